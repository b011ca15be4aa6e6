"""The part of the conformance suite about channels: rows, members, logs, presence."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from handrail.store.channels import LATE_ANSWERS_MAX
from handrail.store.rows import (
    EMPTY_HEAD,
    ChannelLogRow,
    ChannelMemberRow,
    ChannelRow,
    ChannelWrite,
    StreamWrite,
)
from handrail.store.store import Store
from handrail.testing import row_factories as a
from handrail.testing.conformance_rows import commit_writes


def channel_write(
    channel_id: str = "c1",
    *,
    before: StreamWrite | None = None,
    members: Sequence[ChannelMemberRow] = (),
    removed: Sequence[str] = (),
    log: Sequence[ChannelLogRow] = (),
    **changes: object,
) -> StreamWrite:
    """Write a new channel, or the next change of an existing one."""
    channel_parts = ChannelWrite(
        members=members, removed_members=[(channel_id, agent) for agent in removed], log=log
    )
    if before is not None:
        return a.follow(before, changes=changes, channel=channel_parts)
    row = ChannelRow(
        id=channel_id,
        seq=0,
        head=EMPTY_HEAD,
        next_due=None,
        created_at=a.at(),
        updated_at=a.at(),
        closed_at=None,
        state='{"id":"c"}',
    )
    return a.begin(replace(row, **changes), channel=channel_parts)


def member_row(
    channel_id: str,
    agent_id: str,
    state: str = "QUEUED",
    **changes: Any,  # noqa: ANN401 - fields of the row
) -> ChannelMemberRow:
    turn = 1 if state in ("ACTIVE", "WAITING") else None
    row = ChannelMemberRow(
        channel_id=channel_id, agent_id=agent_id, state=state, busy=0, sole=1, turn=turn
    )
    return replace(row, **changes)


def log_row(seq: int, number: int | None, text: str = "hello") -> ChannelLogRow:
    return ChannelLogRow(
        channel_id="c1",
        seq=seq,
        kind="message" if number is not None else "notice",
        number=number,
        message_id=f"m{number}" if number is not None else "",
        code="" if number is not None else "resting",
        author="ana",
        human=1,
        text=text,
        recipient=None,
        at=a.at(seq),
    )


class ChannelConformance:
    def test_a_channel_is_made_changed_and_guarded_by_its_head(
        self, store: Store, second: Store
    ) -> None:
        first = channel_write()
        assert commit_writes(store, first) == [True]
        assert second.channels.load(["c1", "nobody"]) == {"c1": first.row}
        assert commit_writes(second, channel_write()) == [False], "it is there"
        next_ = channel_write(before=first, next_due=a.at(9), state='{"id":"d"}')
        assert commit_writes(second, next_) == [True]
        assert commit_writes(store, channel_write(before=first)) == [False], "it was changed"
        assert store.channels.load(["c1"]) == {"c1": next_.row}
        assert [entry.seq for entry in store.journal.read("channel:c1")] == [1, 2]

    def test_due_channels_come_the_earliest_first_and_closed_ones_are_not_listed(
        self, store: Store, second: Store
    ) -> None:
        late = channel_write("late", next_due=a.at(9))
        soon = channel_write("soon", next_due=a.at(5))
        closed = channel_write("closed", closed_at=a.at(1))
        assert all(commit_writes(store, late, soon, closed))
        assert second.channels.list_due(a.at(9), 9) == ["soon", "late"]
        assert second.channels.list_due(a.at(8), 9) == ["soon"]
        assert [row.id for row in second.channels.list_open("", 9)] == ["late", "soon"]
        assert [row.id for row in second.channels.list_open("late", 9)] == ["soon"]
        assert [row.id for row in second.channels.list("", 2)] == ["closed", "late"]

    def test_one_member_of_a_channel_has_the_turn(self, store: Store, second: Store) -> None:
        first = channel_write(members=[member_row("c1", "ada", "ACTIVE"), member_row("c1", "bob")])
        assert commit_writes(store, first) == [True]
        for state in ("ACTIVE", "WAITING"):
            wrong = channel_write(before=first, members=[member_row("c1", "bob", state)])
            assert commit_writes(second, wrong) == [False]
        passed = [
            member_row("c1", "bob", "ACTIVE", turn=2),
            member_row("c1", "ada", "QUEUED", busy=1),
        ]
        assert commit_writes(second, channel_write(before=first, members=passed)) == [True]
        assert {row.agent_id: row for row in store.channels.list_members("c1")} == {
            row.agent_id: row for row in passed
        }

    def test_an_agent_that_works_on_one_thing_at_a_time_has_one_turn(
        self, store: Store, second: Store
    ) -> None:
        both = [
            channel_write(name, members=[member_row(name, "ada", "ACTIVE")])
            for name in ("c1", "c2")
        ]
        assert sorted(commit_writes(store, *both)) == [False, True]
        wide = [
            channel_write(name, members=[member_row(name, "bob", "ACTIVE", sole=0)])
            for name in ("c3", "c4")
        ]
        assert commit_writes(second, *wide) == [True, True]
        active_turns = store.channels.list_active_turns(["ada", "bob"])
        assert sorted(agent for _, agent, _ in active_turns) == ["ada", "bob", "bob"]

    def test_members_leave(self, store: Store, second: Store) -> None:
        assert not second.channels.has_members()
        first = channel_write(members=[member_row("c1", "ada"), member_row("c1", "bob", busy=1)])
        assert commit_writes(store, first) == [True]
        assert second.channels.has_members()
        assert second.channels.list_waiting_for(["ada", "bob"]) == ["c1"]
        assert commit_writes(store, channel_write(before=first, removed=["bob"])) == [True]
        assert [row.agent_id for row in second.channels.list_memberships()] == ["ada"]
        assert second.channels.list_memberships("bob") == []
        assert second.channels.list_waiting_for(["ada", "bob"]) == []

    def test_what_was_said_is_read_in_order_by_place_and_by_number(
        self, store: Store, second: Store
    ) -> None:
        lines = [
            log_row(1, 1, "one"),
            log_row(2, None),
            log_row(3, 2, "two"),
            log_row(4, 3, "three\n'ü"),
        ]
        assert commit_writes(store, channel_write(log=lines)) == [True]
        assert second.channels.read_log("c1", 0, 9) == lines
        assert second.channels.read_log("c1", 1, 2) == lines[1:3]
        assert second.channels.read_log("c2", 0, 9) == []
        assert second.channels.list_messages("c1", 1, 3, 9) == lines[2:]
        assert second.channels.list_messages("c1", 0, 3, 2) == lines[2:], "the last ones"

    def test_what_agents_hold_is_counted_over_dispatches_and_turns(
        self, store: Store, second: Store
    ) -> None:
        store.agents.put(a.agent("ada", session="s1", capacity=2))
        store.agents.put(a.agent("bob", session="s2"))
        run = a.begin(a.run(), dispatches=[a.claimed_dispatch(a.dispatch(), "ada", "s1")])
        turns = channel_write(
            members=[member_row("c1", "ada", "WAITING", sole=0), member_row("c1", "bob")]
        )
        assert commit_writes(store, run, turns) == [True, True]
        assert second.channels.get_agent_loads(["ada", "bob", "eve"]) == {
            "ada": (2, 2),
            "bob": (1, 0),
            "eve": (None, 0),
        }
        assert second.channels.get_agent_loads([]) == {}

    def test_members_who_are_not_as_their_agents_are_found(
        self, store: Store, second: Store
    ) -> None:
        for name, changes in {
            "back": {},
            "busy": {"session": "s1"},
            "fine": {},
            "free": {},
            "off": {"enabled": False},
            "silent": {"beat_at": a.at(1)},
        }.items():
            row = a.agent(name, **{"session": name, "beat_at": a.at(9), **changes})
            store.agents.put(row)
        run = a.begin(a.run(), dispatches=[a.claimed_dispatch(a.dispatch(), "busy", "s1")])
        states = {"back": "OFFLINE", "gone": "QUEUED", "silent": "IDLE"}
        names = ("back", "busy", "fine", "free", "gone", "off", "silent")
        rows = [
            member_row("c1", name, states.get(name, "QUEUED"), busy=int(name in ("busy", "free")))
            for name in names
        ]
        talking = [member_row("c2", "fine", "ACTIVE"), member_row("c2", "free", busy=1)]
        first, other = channel_write(members=rows), channel_write("c2", members=talking)
        assert commit_writes(store, run, first, other) == [True, True, True]
        assert second.channels.list_waiting_for(["busy", "free", "fine"]) == ["c1"], (
            "in c2 somebody has the turn"
        )
        changes_by_agent = {
            presence.agent_id: presence.change
            for presence in second.channels.list_presence_changes(a.at(5), 9)
        }
        assert changes_by_agent == {
            "back": "online",
            "free": "free",
            "gone": "offline",
            "off": "disabled",
            "silent": "offline",
        }
        assert len(second.channels.list_presence_changes(a.at(5), 2)) == 2

    def test_late_answers_are_kept_up_to_a_bound(self, store: Store, second: Store) -> None:
        for number in range(LATE_ANSWERS_MAX + 2):
            store.channels.add_late_answer(
                "channel:c1", a.at(number), "ada", "stale_turn", f'{{"n":{number}}}'
            )
        late_answers = second.runs.list_notes("channel:c1")[0]
        assert len(late_answers) == LATE_ANSWERS_MAX
        assert (late_answers[0].actor, late_answers[0].code, late_answers[0].body) == (
            "ada",
            "stale_turn",
            '{"n":0}',
        )
        assert second.runs.list_notes("channel:c2") == ([], 0)

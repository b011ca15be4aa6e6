"""The part of the conformance suite about channels: their rows, members, logs, and who is where."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from handrail.store.chain import START
from handrail.store.channels import LATE_MAX, ChannelRow, ChannelWrite, LogRow, MemberRow
from handrail.store.office import Office
from handrail.store.port import Write
from handrail.testing import rows as a
from handrail.testing.conformance_rows import won


def channel(
    name: str = "c1",
    *,
    before: Write | None = None,
    members: Sequence[MemberRow] = (),
    left: Sequence[str] = (),
    log: Sequence[LogRow] = (),
    **changes: object,
) -> Write:
    """A new channel, or what follows in one that is there."""
    beside = ChannelWrite(members=members, left=[(name, agent) for agent in left], log=log)
    if before is not None:
        return a.follow(before, changes=changes, channel=beside)
    row = ChannelRow(
        id=name,
        seq=0,
        head=START,
        next_due=None,
        created_at=a.at(),
        updated_at=a.at(),
        closed_at=None,
        state='{"id":"c"}',
    )
    return a.begin(replace(row, **changes), channel=beside)


def member(name: str, agent: str, state: str = "QUEUED", **changes: Any) -> MemberRow:  # noqa: ANN401
    turn = 1 if state in ("ACTIVE", "WAITING") else None
    row = MemberRow(channel_id=name, agent_id=agent, state=state, busy=0, sole=1, turn=turn)
    return replace(row, **changes)


def said(seq: int, number: int | None, text: str = "hello") -> LogRow:
    return LogRow(
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
        self, store: Office, second: Office
    ) -> None:
        first = channel()
        assert won(store, first) == [True]
        assert second.load_channels(["c1", "nobody"]) == {"c1": first.subject}
        assert won(second, channel()) == [False], "it is there"
        next_ = channel(before=first, next_due=a.at(9), state='{"id":"d"}')
        assert won(second, next_) == [True]
        assert won(store, channel(before=first)) == [False], "it was changed"
        assert store.load_channels(["c1"]) == {"c1": next_.subject}
        assert [one.seq for one in store.journal("channel:c1")] == [1, 2]

    def test_due_channels_come_the_earliest_first_and_closed_ones_are_not_listed(
        self, store: Office, second: Office
    ) -> None:
        late = channel("late", next_due=a.at(9))
        soon = channel("soon", next_due=a.at(5))
        closed = channel("closed", closed_at=a.at(1))
        assert all(won(store, late, soon, closed))
        assert second.channels_due(a.at(9), 9) == ["soon", "late"]
        assert second.channels_due(a.at(8), 9) == ["soon"]
        assert [one.id for one in second.channels_page("", 9)] == ["late", "soon"]
        assert [one.id for one in second.channels_page("late", 9)] == ["soon"]
        assert [one.id for one in second.channels_all("", 2)] == ["closed", "late"]

    def test_one_member_of_a_channel_has_the_turn(self, store: Office, second: Office) -> None:
        first = channel(members=[member("c1", "ada", "ACTIVE"), member("c1", "bob")])
        assert won(store, first) == [True]
        for state in ("ACTIVE", "WAITING"):
            wrong = channel(before=first, members=[member("c1", "bob", state)])
            assert won(second, wrong) == [False]
        passed = [member("c1", "bob", "ACTIVE", turn=2), member("c1", "ada", "QUEUED", busy=1)]
        assert won(second, channel(before=first, members=passed)) == [True]
        assert {one.agent_id: one for one in store.members_of("c1")} == {
            one.agent_id: one for one in passed
        }

    def test_an_agent_that_works_on_one_thing_at_a_time_has_one_turn(
        self, store: Office, second: Office
    ) -> None:
        both = [channel(name, members=[member(name, "ada", "ACTIVE")]) for name in ("c1", "c2")]
        assert sorted(won(store, *both)) == [False, True]
        wide = [
            channel(name, members=[member(name, "bob", "ACTIVE", sole=0)]) for name in ("c3", "c4")
        ]
        assert won(second, *wide) == [True, True]
        found = store.turns(["ada", "bob"])
        assert sorted(agent for _, agent, _ in found) == ["ada", "bob", "bob"]

    def test_members_leave(self, store: Office, second: Office) -> None:
        assert not second.has_members()
        first = channel(members=[member("c1", "ada"), member("c1", "bob", busy=1)])
        assert won(store, first) == [True]
        assert second.has_members()
        assert second.busy_in(["ada", "bob"]) == ["c1"]
        assert won(store, channel(before=first, left=["bob"])) == [True]
        assert [one.agent_id for one in second.memberships()] == ["ada"]
        assert second.memberships("bob") == []
        assert second.busy_in(["ada", "bob"]) == []

    def test_what_was_said_is_read_in_order_by_place_and_by_number(
        self, store: Office, second: Office
    ) -> None:
        lines = [said(1, 1, "one"), said(2, None), said(3, 2, "two"), said(4, 3, "three\n'ü")]
        assert won(store, channel(log=lines)) == [True]
        assert second.channel_log("c1", 0, 9) == lines
        assert second.channel_log("c1", 1, 2) == lines[1:3]
        assert second.channel_log("c2", 0, 9) == []
        assert second.channel_messages("c1", 1, 3, 9) == lines[2:]
        assert second.channel_messages("c1", 0, 3, 2) == lines[2:], "the last ones"

    def test_what_agents_hold_is_counted_over_dispatches_and_turns(
        self, store: Office, second: Office
    ) -> None:
        store.put_agent(a.agent("ada", session="s1", capacity=2))
        store.put_agent(a.agent("bob", session="s2"))
        run = a.begin(a.execution(), dispatches=[a.claimed(a.dispatch(), "ada", "s1")])
        turns = channel(members=[member("c1", "ada", "WAITING", sole=0), member("c1", "bob")])
        assert won(store, run, turns) == [True, True]
        assert second.engaged(["ada", "bob", "eve"]) == {
            "ada": (2, 2),
            "bob": (1, 0),
            "eve": (None, 0),
        }
        assert second.engaged([]) == {}

    def test_members_who_are_not_as_their_agents_are_found(
        self, store: Office, second: Office
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
            store.put_agent(row)
        run = a.begin(a.execution(), dispatches=[a.claimed(a.dispatch(), "busy", "s1")])
        states = {"back": "OFFLINE", "gone": "QUEUED", "silent": "IDLE"}
        names = ("back", "busy", "fine", "free", "gone", "off", "silent")
        rows = [
            member("c1", name, states.get(name, "QUEUED"), busy=int(name in ("busy", "free")))
            for name in names
        ]
        talking = [member("c2", "fine", "ACTIVE"), member("c2", "free", busy=1)]
        first, other = channel(members=rows), channel("c2", members=talking)
        assert won(store, run, first, other) == [True, True, True]
        assert second.busy_in(["busy", "free", "fine"]) == ["c1"], "in c2 somebody has the turn"
        found = {one.agent_id: one.change for one in second.presence(a.at(5), 9)}
        assert found == {
            "back": "online",
            "free": "free",
            "gone": "offline",
            "off": "disabled",
            "silent": "offline",
        }
        assert len(second.presence(a.at(5), 2)) == 2

    def test_late_answers_are_kept_up_to_a_bound(self, store: Office, second: Office) -> None:
        for number in range(LATE_MAX + 2):
            store.add_late("channel:c1", a.at(number), "ada", "stale_turn", f'{{"n":{number}}}')
        kept = second.late("channel:c1")
        assert len(kept) == LATE_MAX
        assert (kept[0].actor, kept[0].code, kept[0].body) == ("ada", "stale_turn", '{"n":0}')
        assert second.late("channel:c2") == []

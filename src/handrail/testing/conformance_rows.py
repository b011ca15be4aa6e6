"""The part of the conformance suite about the rows beside a run: offers, agents, keys, notes."""

from typing import Any

from msgspec.structs import replace

from handrail.store.port import NOTES_MAX, DispatchRow, Store, Write
from handrail.testing import rows as a


def won(store: Store, *writes: Write) -> list[bool]:
    """Commits them all at once, and says who won."""
    commit, who = store.commit(writes, a.at(1))
    assert (commit is not None) == any(who)
    assert len(who) == len(writes)
    return who


def fences(found: list[DispatchRow]) -> list[int]:
    return [row.fence for row in found]


class RowsConformance:
    # Clocks

    def test_due_runs_come_the_earliest_first_and_ended_ones_never(
        self, store: Store, second: Store
    ) -> None:
        clocks = {"r1": 30, "r2": 10, "r3": 20, "r4": 40}
        runs = {name: a.begin(a.execution(name, next_due=a.at(s))) for name, s in clocks.items()}
        assert all(won(store, *runs.values()))
        assert second.due(a.at(30), 9) == ["r2", "r3", "r1"]
        assert second.due(a.at(30), 2) == ["r2", "r3"]
        assert not second.due(a.at(9), 9)
        assert won(second, a.follow(runs["r2"], changes=a.ENDED)) == [True]
        assert store.due(a.at(99), 9) == ["r3", "r1", "r4"]

    def test_a_clock_is_postponed_unless_the_run_has_changed(
        self, store: Store, second: Store
    ) -> None:
        runs = [a.begin(a.execution(f"r{n}", next_due=a.at(n))) for n in (1, 2, 3)]
        assert all(won(store, *runs))
        changed = a.follow(runs[1], changes={"next_due": a.at(5)})
        assert won(second, changed) == [True]
        second.postpone([(run.entry.stream, run.entry.hash, a.at(9)) for run in runs[:2]])
        second.postpone([("nobody", b"x", a.at(9))])
        second.postpone([])
        assert store.due(a.at(99), 9) == ["r3", "r2", "r1"]
        assert store.load(["r1"])["r1"].subject == replace(runs[0].subject, next_due=a.at(9))
        assert store.load(["r2"])["r2"].subject == a.after(runs[1].subject, changed)
        assert won(store, a.follow(runs[0])) == [True]

    def test_due_locks_come_the_earliest_first_and_free_ones_never(
        self, store: Store, second: Store
    ) -> None:
        late = a.begin(a.lock("late", next_due=a.at(9)))
        soon = a.begin(a.lock("soon", next_due=a.at(5)))
        free = a.begin(a.lock("free", holder_execution_id=None, holder_step=None, next_due=None))
        assert all(won(store, late, soon, free, a.begin(a.execution(next_due=a.at(7)))))
        assert second.locks_due(a.at(9), 9) == ["soon", "late"]
        assert second.locks_due(a.at(9), 1) == ["soon"]
        assert not second.locks_due(a.at(4), 9)
        assert second.due(a.at(9), 9) == ["r1"]
        assert won(second, a.follow(soon, changes={"next_due": None})) == [True]
        assert store.locks_due(a.at(9), 9) == ["late"]

    # Dispatches

    def test_dispatches_are_reserved_by_priority_and_then_by_age(
        self, store: Store, second: Store
    ) -> None:
        offers = [
            a.dispatch("r1", 1, priority=1, offered_at=a.at(1)),
            a.dispatch("r1", 2, priority=2, offered_at=a.at(3)),
            a.dispatch("r1", 3, priority=2, offered_at=a.at(2)),
            a.dispatch("r1", 4, priority=0, offered_at=a.at(0)),
            a.dispatch("r1", 5, priority=9, role="reviewer"),
            a.claimed(a.dispatch("r1", 6, priority=9)),
        ]
        assert won(store, a.begin(a.execution(), dispatches=offers)) == [True]
        found = second.reserve("coder", 9)
        assert fences(found) == [3, 2, 1, 4]
        assert found[0] == offers[2]
        assert fences(second.reserve("reviewer", 9)) == [5]
        assert not second.reserve("nobody", 9)

    def test_no_more_dispatches_are_reserved_than_asked_for(
        self, store: Store, second: Store
    ) -> None:
        offers = [a.dispatch("r1", n, offered_at=a.at(n)) for n in (1, 2, 3)]
        assert won(store, a.begin(a.execution(), dispatches=offers)) == [True]
        assert fences(second.reserve("coder", 2)) == [1, 2]

    def test_what_is_claimed_or_closed_is_no_longer_on_offer(
        self, store: Store, second: Store
    ) -> None:
        offers = [a.dispatch("r1", fence) for fence in (1, 2)]
        begun = a.begin(a.execution(), dispatches=offers)
        mine = a.claimed(offers[0])
        moved = a.follow(begun, dispatches=[mine], closed=[2])
        assert won(store, begun) == [True]
        assert won(second, moved) == [True]
        assert not store.reserve("coder", 9)
        assert store.dispatches("r1") == [mine]
        assert won(store, a.follow(moved, closed=[1])) == [True]
        assert not second.dispatches("r1")

    def test_a_step_has_one_dispatch_at_a_time(self, store: Store, second: Store) -> None:
        begun = a.begin(a.execution(), dispatches=[a.dispatch("r1", 1, place="p")])
        again = a.dispatch("r1", 2, place="p")
        assert won(store, begun) == [True]
        assert won(second, a.follow(begun, dispatches=[again])) == [False]
        other = a.begin(a.execution("r2"), dispatches=[a.dispatch("r2", 1, place="p")])
        assert won(second, a.follow(begun, dispatches=[again]), other) == [False, True]
        assert fences(store.dispatches("r1")) == [1]
        assert won(second, a.follow(begun, dispatches=[again], closed=[1])) == [True]
        assert store.dispatches("r1") == [again]

    def test_a_closed_fence_is_that_of_its_own_run(self, store: Store, second: Store) -> None:
        one = a.begin(a.execution("r1"), dispatches=[a.dispatch("r1", 1)])
        two = a.begin(a.execution("r2"), dispatches=[a.dispatch("r2", 1)])
        assert all(won(store, one, two))
        assert won(store, a.follow(one, closed=[1])) == [True]
        assert not second.dispatches("r1")
        assert second.dispatches("r2") == two.dispatches

    # Approvals

    def test_an_approval_is_settled_once(self, store: Store, second: Store) -> None:
        asked = a.approval()
        yes, no = a.answered(asked), a.answered(asked, "eve", "reject")
        begun = a.begin(a.execution(), approvals=[asked])
        settled = a.follow(begun, approvals=[yes])
        assert won(store, begun) == [True]
        assert won(second, settled) == [True]
        assert won(store, a.follow(settled, approvals=[no])) == [True]
        void = replace(asked, status="void", settled_at=a.at(99))
        later = a.follow(a.follow(settled, approvals=[no]), approvals=[void, asked])
        assert won(store, later) == [True]
        for one in (store, second):
            assert one.approvals() == [yes]

    def test_approvals_are_found_by_run_and_by_status_the_oldest_first(
        self, store: Store, second: Store
    ) -> None:
        questions = [a.approval(f"q{n}", "r1", created_at=a.at(-n)) for n in range(3)]
        other = a.approval("q9", "r2", created_at=a.at(-1.5))
        one = a.begin(a.execution("r1"), approvals=questions)
        two = a.begin(a.execution("r2"), approvals=[other])
        assert all(won(store, one, two))
        assert won(store, a.follow(one, approvals=[a.answered(questions[0])])) == [True]

        def ids(**wanted: Any) -> list[str]:  # noqa: ANN401
            return [row.id for row in second.approvals(**wanted)]

        assert ids() == ["q2", "q9", "q1", "q0"]
        assert ids(limit=2) == ["q2", "q9"]
        assert ids(execution_id="r1") == ["q2", "q1", "q0"]
        assert ids(status="open") == ["q2", "q9", "q1"]
        assert ids(status="answered") == ["q0"]
        assert ids(execution_id="r2", status="answered") == []

    # Messages and keys

    def test_a_message_is_sent_once_for_its_id_and_gone_when_it_was_answered(
        self, store: Store, second: Store
    ) -> None:
        sent, other = a.message("m1"), a.message("m0")
        begun = a.begin(a.execution("r1"), messages=[sent, other])
        assert won(store, begun) == [True]
        again = a.follow(begun, messages=[replace(sent, body='"another"')])
        assert won(second, again) == [True]
        assert store.messages(9) == [sent, other]
        assert store.messages(1) == [sent]
        heard = a.begin(a.execution("r2"), consumed=["m1", "unknown"])
        assert won(store, heard) == [True]
        assert second.messages(9) == [other]
        second.consume("m0")
        second.consume("unknown")
        assert not store.messages(9)

    def test_messages_wait_in_the_order_in_which_they_were_sent(
        self, store: Store, second: Store
    ) -> None:
        last = a.begin(a.execution())
        assert won(store, last) == [True]
        for n in (5, 3, 4, 1, 2):
            last = a.follow(last, messages=[a.message(f"m{n}")])
            assert won((store, second)[n % 2], last) == [True]
        assert [sent.id for sent in store.messages(9)] == ["m5", "m3", "m4", "m1", "m2"]
        assert [sent.id for sent in second.messages(2)] == ["m5", "m3"]

    def test_an_idempotency_key_is_used_once_by_each_actor(
        self, store: Store, second: Store
    ) -> None:
        first = a.begin(a.execution("r1"), keys=[a.key("k", "ola")])
        again = a.begin(a.execution("r2"), keys=[a.key("k", "ola", answer='"other"')])
        assert won(store, first) == [True]
        assert won(second, again) == [False]
        assert won(second, again, a.begin(a.execution("r3"))) == [False, True]
        assert store.key("k", "ola") == first.keys[0]
        assert store.load(["r2"]) == {}
        eve = a.begin(a.execution("r4"), keys=[a.key("k", "eve")])
        twice = a.begin(a.execution("r5"), keys=[a.key("k", "eve")])
        assert sum(won(store, eve, twice)) == 1
        assert store.key("k", "nobody") is None

    def test_old_keys_are_forgotten(self, store: Store, second: Store) -> None:
        keys = [a.key(f"k{n}", created_at=a.at(n)) for n in range(4)]
        assert won(store, a.begin(a.execution(), keys=keys)) == [True]
        assert second.forget_keys(a.at(2)) == 2
        assert second.forget_keys(a.at(2)) == 0
        assert [store.key(f"k{n}", "ola") for n in range(4)] == [None, None, keys[2], keys[3]]

    # Agents and engines

    def test_agents_are_registered_changed_and_removed(self, store: Store, second: Store) -> None:
        ada = a.agent("ada", roles='["coder","r🐍"]', capacity=3)
        bob = a.agent("bob", enabled=False, engine="e1")
        store.put_agent(bob)
        second.put_agent(ada)
        assert store.agents() == second.agents() == [ada, bob]
        newer = replace(ada, session="s2", enabled=False, capacity=1)
        store.put_agent(newer)
        assert second.agents() == [newer, bob]
        second.remove_agent("bob")
        second.remove_agent("nobody")
        assert store.agents() == [newer]

    def test_a_beat_is_for_the_current_session(self, store: Store, second: Store) -> None:
        store.put_agent(ada := a.agent("ada", session="s1"))
        assert second.beat("s1", a.at(5))
        assert store.agents() == [replace(ada, beat_at=a.at(5))]
        store.put_agent(again := a.agent("ada", session="s2", beat_at=a.at(6)))
        assert not second.beat("s1", a.at(7))
        assert not second.beat("nobody", a.at(7))
        assert store.agents() == [again]

    def test_an_engine_beats_for_its_functions_and_takes_them_with_it(
        self, store: Store, second: Store
    ) -> None:
        ours = a.agent("fn", engine="e1")
        theirs, remote = a.agent("fn2", engine="e2"), a.agent("remote")
        for row in (ours, theirs, remote):
            store.put_agent(row)
        store.beat_engine("e1", a.at(1))
        second.beat_engine("e2", a.at(2))
        store.beat_engine("e1", a.at(3))
        assert second.engines() == {"e1": a.at(3), "e2": a.at(2)}
        beaten = [replace(ours, beat_at=a.at(3)), replace(theirs, beat_at=a.at(2)), remote]
        assert second.agents() == beaten
        second.forget_engine("e1")
        assert store.engines() == {"e2": a.at(2)}
        assert store.agents() == beaten[1:]

    def test_a_claimed_dispatch_is_an_orphan_when_its_session_is_gone_disabled_or_silent(
        self, store: Store, second: Store
    ) -> None:
        who = ["gone", "changed", "disabled", "silent", "alive", "busy"]
        offers = [a.dispatch("r1", n) for n in range(len(who))]
        taken = [a.claimed(row, by, f"s-{by}") for row, by in zip(offers, who, strict=True)]
        free = a.dispatch("r1", 9)
        assert won(store, a.begin(a.execution(), dispatches=[*taken, free])) == [True]
        store.put_agent(a.agent("changed", session="s-new", beat_at=a.at(99)))
        store.put_agent(a.agent("disabled", enabled=False, beat_at=a.at(99)))
        store.put_agent(a.agent("silent", beat_at=a.at(10)))
        store.put_agent(a.agent("alive", beat_at=a.at(11)))
        store.put_agent(a.agent("busy", beat_at=a.at(99)))
        found = sorted(second.orphans(a.at(10), 99), key=lambda row: row.fence)
        assert found == taken[:4]
        assert len(second.orphans(a.at(10), 2)) == 2
        assert second.beat("s-silent", a.at(12))
        assert sorted(fences(store.orphans(a.at(10), 99))) == [0, 1, 2]

    def test_an_offer_is_unmanned_when_nobody_alive_has_its_role(
        self, store: Store, second: Store
    ) -> None:
        roles = ["disabled", "silent", "alive", "unknown", "too new"]
        offers = [
            a.dispatch("r1", n, role=role, offered_at=a.at(50 - n)) for n, role in enumerate(roles)
        ]
        offers[4] = replace(offers[4], offered_at=a.at(51))
        taken = a.claimed(a.dispatch("r1", 9, role="unknown"))
        assert won(store, a.begin(a.execution(), dispatches=[*offers, taken])) == [True]
        store.put_agent(a.agent("a1", roles='["disabled"]', enabled=False, beat_at=a.at(99)))
        store.put_agent(a.agent("a2", roles='["silent"]', beat_at=a.at(10)))
        store.put_agent(a.agent("a3", roles='["x","alive"]', beat_at=a.at(11)))
        found = second.unmanned(a.at(10), a.at(50), 99)
        assert found == [offers[3], offers[1], offers[0]]
        assert second.unmanned(a.at(10), a.at(50), 1) == [offers[3]]
        store.put_agent(a.agent("a4", roles="[]", beat_at=a.at(99)))
        assert len(second.unmanned(a.at(10), a.at(50), 99)) == 3

    def test_outages_are_remembered_once_and_in_order(self, store: Store, second: Store) -> None:
        store.add_outage(a.at(10), a.at(20))
        second.add_outage(a.at(30), a.at(40))
        store.add_outage(a.at(30), a.at(40))
        store.add_outage(a.at(31), a.at(41))  # another engine's word for the same
        assert store.outages(a.at(0)) == [(a.at(10), a.at(20)), (a.at(30), a.at(40))]
        assert store.outages(a.at(20)) == [(a.at(30), a.at(40))]
        assert not store.outages(a.at(40))

    def test_last_alive_is_the_latest_trace_of_any_engine(
        self, store: Store, second: Store
    ) -> None:
        begun = a.begin(a.execution())
        store.commit([begun], a.at(5))
        assert second.last_alive() == a.at(5)
        store.beat_engine("e1", a.at(9))
        second.beat_engine("e2", a.at(8))
        assert second.last_alive() == a.at(9)
        second.commit([a.follow(begun)], a.at(11))
        assert store.last_alive() == a.at(11)
        store.add_outage(a.at(11), a.at(15))  # whoever said so was alive at its end
        assert second.last_alive() == a.at(15)

    # Definitions, beads, notes

    def test_a_version_of_a_definition_never_changes(self, store: Store, second: Store) -> None:
        one = a.definition("w1", 1)
        assert store.put_definition(one)
        assert not second.put_definition(replace(one, name="other", definition="{}"))
        assert second.definition("w1", 1) == one
        assert second.definition("w1") == one
        assert second.definition("other") is None

    def test_an_owner_puts_no_version_where_others_are_found(
        self, store: Store, second: Store
    ) -> None:
        assert store.put_definition(a.definition("w1", 1, name="gate", created_by="ceo"))
        mine = a.definition("w2", 1, name="mine", created_by="ola")
        for taken in (
            replace(mine, workflow_id="w1", version=2),
            replace(mine, workflow_id="gate"),
            replace(mine, name="w1"),
            replace(mine, name="gate"),
        ):
            assert not second.put_definition(taken, "ola")
            assert second.foreign_definition(taken.workflow_id, taken.name, "ola") == "w1"
        assert store.definitions() == [a.definition("w1", 1, name="gate", created_by="ceo")]
        assert second.put_definition(mine, "ola")
        assert second.foreign_definition("w2", "mine", "ola") is None
        assert second.put_definition(replace(mine, workflow_id="w1", version=2))

    def test_definitions_are_found_by_id_and_version_and_name(
        self, store: Store, second: Store
    ) -> None:
        old, new = a.definition("w1", 1), a.definition("w1", 3, name="new name", kind="team")
        assert store.put_definition(old)
        assert store.put_definition(new)
        assert second.put_definition(a.definition("w1", 2))
        other = a.definition("w2", 1, name="w1")
        assert store.put_definition(other)
        assert second.definition("w1") == new
        assert second.definition("w1", 1) == old
        assert second.definition("w1", 2) == a.definition("w1", 2)
        assert second.definition("w1", 4) is None
        assert second.definition("new name") == new
        assert second.definition("new name", 1) == old
        assert second.definition("w2") == other
        assert second.definition("nobody") is None
        assert second.definitions() == [new, other]

    def test_a_bead_is_filed_once(self, store: Store, second: Store) -> None:
        filed = a.bead("b1")
        assert store.put_bead(filed)
        assert not second.put_bead(replace(filed, title="other"))
        assert second.bead("b1") == filed
        assert second.bead("b2") is None

    def test_a_run_changes_what_it_may_of_its_bead(self, store: Store, second: Store) -> None:
        filed = a.bead("b-r1")
        assert store.put_bead(filed)
        runs = replace(filed, status="in_progress", execution_id="r1", workflow_id="w1")
        begun = a.begin(a.execution(), bead=runs)
        assert won(store, begun) == [True]
        assert second.bead("b-r1") == runs
        failed = replace(
            runs, status="error", error='{"it":"broke"}', context="{}", updated_at=a.at(9)
        )
        assert won(second, a.follow(begun, bead=failed)) == [True]
        assert store.bead("b-r1") == failed

    def test_notes_are_kept_up_to_a_number_and_counted_beyond(
        self, store: Store, second: Store
    ) -> None:
        assert all(won(store, a.begin(a.execution("r1")), a.begin(a.execution("r2"))))
        kept = [a.note("r1", n) for n in range(NOTES_MAX + 3)]
        for n, one in enumerate(kept):
            (store, second)[n % 2].add_note(one)
        store.add_note(a.note("r2"))
        store.add_note(a.note("nobody"))
        for one in (store, second):
            assert one.notes("r1") == (kept[:NOTES_MAX], NOTES_MAX + 3)
            assert one.notes("r2") == ([a.note("r2")], 1)
            assert one.notes("nobody") == ([], 0)

    def test_a_note_changes_nothing_that_a_decision_is_guarded_by(
        self, store: Store, second: Store
    ) -> None:
        begun = a.begin(a.execution())
        assert won(store, begun) == [True]
        second.add_note(a.note())
        assert won(store, a.follow(begun)) == [True]
        assert second.notes("r1") == ([a.note()], 1)

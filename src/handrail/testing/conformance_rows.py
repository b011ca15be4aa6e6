"""The part of the conformance suite about rows besides runs: dispatches, agents, keys, notes."""

from typing import Any

from msgspec.structs import replace

from handrail.store.budgets import BudgetRow, SpendingRow
from handrail.store.rows import NOTES_MAX, DispatchRow, StreamWrite
from handrail.store.store import Store
from handrail.testing import row_factories as a


def commit_writes(store: Store, *writes: StreamWrite) -> list[bool]:
    """Commit all writes at once. Return which won."""
    commit, won_flags = store.commit(writes, a.at(1))
    assert (commit is not None) == any(won_flags)
    assert len(won_flags) == len(writes)
    return won_flags


def fences(rows: list[DispatchRow]) -> list[int]:
    return [row.fence for row in rows]


class EngineRowsConformance:
    # Clocks

    def test_due_runs_come_the_earliest_first_and_ended_ones_never(
        self, store: Store, second: Store
    ) -> None:
        clocks = {"r1": 30, "r2": 10, "r3": 20, "r4": 40}
        runs = {name: a.begin(a.run(name, next_due=a.at(s))) for name, s in clocks.items()}
        assert all(commit_writes(store, *runs.values()))
        assert second.runs.list_due(a.at(30), 9) == ["r2", "r3", "r1"]
        assert second.runs.list_due(a.at(30), 2) == ["r2", "r3"]
        assert not second.runs.list_due(a.at(9), 9)
        assert commit_writes(second, a.follow(runs["r2"], changes=a.ENDED_RUN_CHANGES)) == [True]
        assert store.runs.list_due(a.at(99), 9) == ["r3", "r1", "r4"]

    def test_a_clock_is_postponed_unless_the_run_has_changed(
        self, store: Store, second: Store
    ) -> None:
        runs = [a.begin(a.run(f"r{n}", next_due=a.at(n))) for n in (1, 2, 3)]
        assert all(commit_writes(store, *runs))
        changed = a.follow(runs[1], changes={"next_due": a.at(5)})
        assert commit_writes(second, changed) == [True]
        second.runs.postpone([(run.entry.stream, run.entry.hash, a.at(9)) for run in runs[:2]])
        second.runs.postpone([("nobody", b"x", a.at(9))])
        second.runs.postpone([])
        assert store.runs.list_due(a.at(99), 9) == ["r3", "r2", "r1"]
        assert store.runs.load(["r1"])["r1"].row == replace(runs[0].row, next_due=a.at(9))
        assert store.runs.load(["r2"])["r2"].row == a.apply_write(runs[1].row, changed)
        assert commit_writes(store, a.follow(runs[0])) == [True]

    def test_due_locks_come_the_earliest_first_and_free_ones_never(
        self, store: Store, second: Store
    ) -> None:
        late = a.begin(a.lock("late", next_due=a.at(9)))
        soon = a.begin(a.lock("soon", next_due=a.at(5)))
        free = a.begin(a.lock("free", holder_execution_id=None, holder_step=None, next_due=None))
        assert all(commit_writes(store, late, soon, free, a.begin(a.run(next_due=a.at(7)))))
        assert second.locks.list_due(a.at(9), 9) == ["soon", "late"]
        assert second.locks.list_due(a.at(9), 1) == ["soon"]
        assert not second.locks.list_due(a.at(4), 9)
        assert second.runs.list_due(a.at(9), 9) == ["r1"]
        assert commit_writes(second, a.follow(soon, changes={"next_due": None})) == [True]
        assert store.locks.list_due(a.at(9), 9) == ["late"]

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
            a.claimed_dispatch(a.dispatch("r1", 6, priority=9)),
        ]
        assert commit_writes(store, a.begin(a.run(), dispatches=offers)) == [True]
        reserved = second.dispatches.reserve("coder", 9)
        assert fences(reserved) == [3, 2, 1, 4]
        assert reserved[0] == offers[2]
        assert fences(second.dispatches.reserve("reviewer", 9)) == [5]
        assert not second.dispatches.reserve("nobody", 9)

    def test_no_more_dispatches_are_reserved_than_asked_for(
        self, store: Store, second: Store
    ) -> None:
        offers = [a.dispatch("r1", n, offered_at=a.at(n)) for n in (1, 2, 3)]
        assert commit_writes(store, a.begin(a.run(), dispatches=offers)) == [True]
        assert fences(second.dispatches.reserve("coder", 2)) == [1, 2]

    def test_what_is_claimed_or_closed_is_no_longer_on_offer(
        self, store: Store, second: Store
    ) -> None:
        offers = [a.dispatch("r1", fence) for fence in (1, 2)]
        begun = a.begin(a.run(), dispatches=offers)
        mine = a.claimed_dispatch(offers[0])
        moved = a.follow(begun, dispatches=[mine], closed_fences=[2])
        assert commit_writes(store, begun) == [True]
        assert commit_writes(second, moved) == [True]
        assert not store.dispatches.reserve("coder", 9)
        assert store.dispatches.list("r1") == [mine]
        assert commit_writes(store, a.follow(moved, closed_fences=[1])) == [True]
        assert not second.dispatches.list("r1")

    def test_a_step_has_one_dispatch_at_a_time(self, store: Store, second: Store) -> None:
        begun = a.begin(a.run(), dispatches=[a.dispatch("r1", 1, place="p")])
        again = a.dispatch("r1", 2, place="p")
        assert commit_writes(store, begun) == [True]
        assert commit_writes(second, a.follow(begun, dispatches=[again])) == [False]
        other = a.begin(a.run("r2"), dispatches=[a.dispatch("r2", 1, place="p")])
        assert commit_writes(second, a.follow(begun, dispatches=[again]), other) == [False, True]
        assert fences(store.dispatches.list("r1")) == [1]
        assert commit_writes(second, a.follow(begun, dispatches=[again], closed_fences=[1])) == [
            True
        ]
        assert store.dispatches.list("r1") == [again]

    def test_a_closed_fence_is_that_of_its_own_run(self, store: Store, second: Store) -> None:
        first = a.begin(a.run("r1"), dispatches=[a.dispatch("r1", 1)])
        other = a.begin(a.run("r2"), dispatches=[a.dispatch("r2", 1)])
        assert all(commit_writes(store, first, other))
        assert commit_writes(store, a.follow(first, closed_fences=[1])) == [True]
        assert not second.dispatches.list("r1")
        assert second.dispatches.list("r2") == other.dispatches

    # Approvals

    def test_an_approval_is_settled_once(self, store: Store, second: Store) -> None:
        open_approval = a.approval()
        yes, no = (
            a.answered_approval(open_approval),
            a.answered_approval(open_approval, "eve", "reject"),
        )
        begun = a.begin(a.run(), approvals=[open_approval])
        settled = a.follow(begun, approvals=[yes])
        assert commit_writes(store, begun) == [True]
        assert commit_writes(second, settled) == [True]
        assert commit_writes(store, a.follow(settled, approvals=[no])) == [True]
        void = replace(open_approval, status="void", settled_at=a.at(99))
        later = a.follow(a.follow(settled, approvals=[no]), approvals=[void, open_approval])
        assert commit_writes(store, later) == [True]
        for each_store in (store, second):
            assert each_store.approvals.list() == [yes]

    def test_approvals_are_found_by_run_and_by_status_the_oldest_first(
        self, store: Store, second: Store
    ) -> None:
        approvals = [a.approval(f"q{n}", "r1", created_at=a.at(-n)) for n in range(3)]
        other = a.approval("q9", "r2", created_at=a.at(-1.5))
        first = a.begin(a.run("r1"), approvals=approvals)
        second_run = a.begin(a.run("r2"), approvals=[other])
        assert all(commit_writes(store, first, second_run))
        assert commit_writes(
            store, a.follow(first, approvals=[a.answered_approval(approvals[0])])
        ) == [True]

        def ids(**filters: Any) -> list[str]:  # noqa: ANN401
            return [row.id for row in second.approvals.list(**filters)]

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
        begun = a.begin(a.run("r1"), messages=[sent, other])
        assert commit_writes(store, begun) == [True]
        again = a.follow(begun, messages=[replace(sent, body='"another"')])
        assert commit_writes(second, again) == [True]
        assert store.messages.list(9) == [sent, other]
        assert store.messages.list(1) == [sent]
        consuming = a.begin(a.run("r2"), consumed_message_ids=["m1", "unknown"])
        assert commit_writes(store, consuming) == [True]
        assert second.messages.list(9) == [other]
        second.messages.delete("m0")
        second.messages.delete("unknown")
        assert not store.messages.list(9)

    def test_messages_wait_in_the_order_in_which_they_were_sent(
        self, store: Store, second: Store
    ) -> None:
        last = a.begin(a.run())
        assert commit_writes(store, last) == [True]
        for n in (5, 3, 4, 1, 2):
            last = a.follow(last, messages=[a.message(f"m{n}")])
            assert commit_writes((store, second)[n % 2], last) == [True]
        assert [sent.id for sent in store.messages.list(9)] == ["m5", "m3", "m4", "m1", "m2"]
        assert [sent.id for sent in second.messages.list(2)] == ["m5", "m3"]

    def test_an_idempotency_key_is_used_once_by_each_actor(
        self, store: Store, second: Store
    ) -> None:
        first = a.begin(a.run("r1"), keys=[a.key("k", "ola")])
        again = a.begin(a.run("r2"), keys=[a.key("k", "ola", answer='"other"')])
        assert commit_writes(store, first) == [True]
        assert commit_writes(second, again) == [False]
        assert commit_writes(second, again, a.begin(a.run("r3"))) == [False, True]
        assert store.idempotency_keys.get("k", "ola") == first.keys[0]
        assert store.runs.load(["r2"]) == {}
        eve = a.begin(a.run("r4"), keys=[a.key("k", "eve")])
        twice = a.begin(a.run("r5"), keys=[a.key("k", "eve")])
        assert sum(commit_writes(store, eve, twice)) == 1
        assert store.idempotency_keys.get("k", "nobody") is None

    def test_old_keys_are_forgotten(self, store: Store, second: Store) -> None:
        keys = [a.key(f"k{n}", created_at=a.at(n)) for n in range(4)]
        assert commit_writes(store, a.begin(a.run(), keys=keys)) == [True]
        assert second.idempotency_keys.delete_before(a.at(2)) == 2
        assert second.idempotency_keys.delete_before(a.at(2)) == 0
        assert [store.idempotency_keys.get(f"k{n}", "ola") for n in range(4)] == [
            None,
            None,
            keys[2],
            keys[3],
        ]

    # Agents and engines

    def test_agents_are_registered_changed_and_removed(self, store: Store, second: Store) -> None:
        ada = a.agent("ada", roles='["coder","r🐍"]', capacity=3)
        bob = a.agent("bob", enabled=False, engine="e1")
        store.agents.put(bob)
        second.agents.put(ada)
        assert store.agents.list() == second.agents.list() == [ada, bob]
        newer = replace(ada, session="s2", enabled=False, capacity=1)
        store.agents.put(newer)
        assert second.agents.list() == [newer, bob]
        second.agents.remove("bob")
        second.agents.remove("nobody")
        assert store.agents.list() == [newer]

    def test_a_beat_is_for_the_current_session(self, store: Store, second: Store) -> None:
        store.agents.put(ada := a.agent("ada", session="s1"))
        assert second.agents.heartbeat("s1", a.at(5))
        assert store.agents.list() == [replace(ada, beat_at=a.at(5))]
        store.agents.put(again := a.agent("ada", session="s2", beat_at=a.at(6)))
        assert not second.agents.heartbeat("s1", a.at(7))
        assert not second.agents.heartbeat("nobody", a.at(7))
        assert store.agents.list() == [again]

    def test_an_engine_beats_for_its_functions_and_takes_them_with_it(
        self, store: Store, second: Store
    ) -> None:
        ours = a.agent("fn", engine="e1")
        theirs, remote = a.agent("fn2", engine="e2"), a.agent("remote")
        for row in (ours, theirs, remote):
            store.agents.put(row)
        store.engines.heartbeat("e1", a.at(1))
        second.engines.heartbeat("e2", a.at(2))
        store.engines.heartbeat("e1", a.at(3))
        assert second.engines.list() == {"e1": a.at(3), "e2": a.at(2)}
        beaten = [replace(ours, beat_at=a.at(3)), replace(theirs, beat_at=a.at(2)), remote]
        assert second.agents.list() == beaten
        second.engines.delete("e1")
        assert store.engines.list() == {"e2": a.at(2)}
        assert store.agents.list() == beaten[1:]

    def test_a_claimed_dispatch_is_an_orphan_when_its_session_is_gone_disabled_or_silent(
        self, store: Store, second: Store
    ) -> None:
        agent_ids = ["gone", "changed", "disabled", "silent", "alive", "busy"]
        offers = [a.dispatch("r1", n) for n in range(len(agent_ids))]
        claimed = [
            a.claimed_dispatch(row, agent_id, f"s-{agent_id}")
            for row, agent_id in zip(offers, agent_ids, strict=True)
        ]
        free = a.dispatch("r1", 9)
        assert commit_writes(store, a.begin(a.run(), dispatches=[*claimed, free])) == [True]
        store.agents.put(a.agent("changed", session="s-new", beat_at=a.at(99)))
        store.agents.put(a.agent("disabled", enabled=False, beat_at=a.at(99)))
        store.agents.put(a.agent("silent", beat_at=a.at(10)))
        store.agents.put(a.agent("alive", beat_at=a.at(11)))
        store.agents.put(a.agent("busy", beat_at=a.at(99)))
        orphaned = sorted(second.dispatches.list_orphaned(a.at(10), 99), key=lambda row: row.fence)
        assert orphaned == claimed[:4]
        assert len(second.dispatches.list_orphaned(a.at(10), 2)) == 2
        assert second.agents.heartbeat("s-silent", a.at(12))
        assert sorted(fences(store.dispatches.list_orphaned(a.at(10), 99))) == [0, 1, 2]

    def test_an_offer_is_unmanned_when_nobody_alive_has_its_role(
        self, store: Store, second: Store
    ) -> None:
        roles = ["disabled", "silent", "alive", "unknown", "too new"]
        offers = [
            a.dispatch("r1", n, role=role, offered_at=a.at(50 - n)) for n, role in enumerate(roles)
        ]
        offers[4] = replace(offers[4], offered_at=a.at(51))
        claimed = a.claimed_dispatch(a.dispatch("r1", 9, role="unknown"))
        assert commit_writes(store, a.begin(a.run(), dispatches=[*offers, claimed])) == [True]
        store.agents.put(a.agent("a1", roles='["disabled"]', enabled=False, beat_at=a.at(99)))
        store.agents.put(a.agent("a2", roles='["silent"]', beat_at=a.at(10)))
        store.agents.put(a.agent("a3", roles='["x","alive"]', beat_at=a.at(11)))
        unmatched = second.dispatches.list_unmatched(a.at(10), a.at(50), 99)
        assert unmatched == [offers[3], offers[1], offers[0]]
        assert second.dispatches.list_unmatched(a.at(10), a.at(50), 1) == [offers[3]]
        store.agents.put(a.agent("a4", roles="[]", beat_at=a.at(99)))
        assert len(second.dispatches.list_unmatched(a.at(10), a.at(50), 99)) == 3

    def test_outages_are_remembered_once_and_in_order(self, store: Store, second: Store) -> None:
        store.engines.add_outage(a.at(10), a.at(20))
        second.engines.add_outage(a.at(30), a.at(40))
        store.engines.add_outage(a.at(30), a.at(40))
        store.engines.add_outage(a.at(31), a.at(41))  # another engine reports the same outage
        assert store.engines.list_outages(a.at(0)) == [(a.at(10), a.at(20)), (a.at(30), a.at(40))]
        assert store.engines.list_outages(a.at(20)) == [(a.at(30), a.at(40))]
        assert not store.engines.list_outages(a.at(40))

    def test_last_alive_is_the_latest_trace_of_any_engine(
        self, store: Store, second: Store
    ) -> None:
        begun = a.begin(a.run())
        store.commit([begun], a.at(5))
        assert second.engines.get_last_alive() == a.at(5)
        store.engines.heartbeat("e1", a.at(9))
        second.engines.heartbeat("e2", a.at(8))
        assert second.engines.get_last_alive() == a.at(9)
        second.commit([a.follow(begun)], a.at(11))
        assert store.engines.get_last_alive() == a.at(11)
        store.engines.add_outage(a.at(11), a.at(15))  # the reporting engine was alive at its end
        assert second.engines.get_last_alive() == a.at(15)

    # Definitions, beads, notes

    def test_a_version_of_a_definition_never_changes(self, store: Store, second: Store) -> None:
        definition = a.definition("w1", 1)
        assert store.definitions.put(definition)
        assert not second.definitions.put(replace(definition, name="other", definition="{}"))
        assert second.definitions.get("w1", 1) == definition
        assert second.definitions.get("w1") == definition
        assert second.definitions.get("other") is None

    def test_an_owner_puts_no_version_where_others_are_found(
        self, store: Store, second: Store
    ) -> None:
        assert store.definitions.put(a.definition("w1", 1, name="gate", created_by="ceo"))
        mine = a.definition("w2", 1, name="mine", created_by="ola")
        for taken in (
            replace(mine, workflow_id="w1", version=2),
            replace(mine, workflow_id="gate"),
            replace(mine, name="w1"),
            replace(mine, name="gate"),
        ):
            assert not second.definitions.put(taken, "ola")
            assert second.definitions.find_foreign(taken.workflow_id, taken.name, "ola") == "w1"
        assert store.definitions.list("", 100) == [
            a.definition("w1", 1, name="gate", created_by="ceo")
        ]
        assert second.definitions.put(mine, "ola")
        assert second.definitions.find_foreign("w2", "mine", "ola") is None
        assert second.definitions.put(replace(mine, workflow_id="w1", version=2))

    def test_definitions_are_found_by_id_and_version_and_name(
        self, store: Store, second: Store
    ) -> None:
        old, new = a.definition("w1", 1), a.definition("w1", 3, name="new name", kind="team")
        assert store.definitions.put(old)
        assert store.definitions.put(new)
        assert second.definitions.put(a.definition("w1", 2))
        other = a.definition("w2", 1, name="w1")
        assert store.definitions.put(other)
        assert second.definitions.get("w1") == new
        assert second.definitions.get("w1", 1) == old
        assert second.definitions.get("w1", 2) == a.definition("w1", 2)
        assert second.definitions.get("w1", 4) is None
        assert second.definitions.get("new name") == new
        assert second.definitions.get("new name", 1) == old
        assert second.definitions.get("w2") == other
        assert second.definitions.get("nobody") is None
        assert second.definitions.list("", 100) == [new, other]

    def test_a_bead_is_filed_once(self, store: Store, second: Store) -> None:
        filed = a.bead("b1")
        store.beads.create(filed, None)
        second.beads.create(replace(filed, title="other"), None)
        assert second.beads.get("b1") == filed
        assert second.beads.get("b2") is None

    def test_a_run_changes_what_it_may_of_its_bead(self, store: Store, second: Store) -> None:
        filed = a.bead("b-r1")
        store.beads.create(filed, None)
        runs = replace(filed, status="in_progress", execution_id="r1", workflow_id="w1")
        begun = a.begin(a.run(), bead=runs)
        assert commit_writes(store, begun) == [True]
        assert second.beads.get("b-r1") == runs
        failed = replace(
            runs, status="error", error='{"it":"broke"}', context="{}", updated_at=a.at(9)
        )
        assert commit_writes(second, a.follow(begun, bead=failed)) == [True]
        assert store.beads.get("b-r1") == failed

    def test_what_is_spent_of_a_budget_adds_up_over_stores_and_apart_by_period(
        self, store: Store, second: Store
    ) -> None:
        def spending(name: str, period: str, cost: float, tokens: int) -> SpendingRow:
            return SpendingRow(name, period, cost, tokens, a.at(1))

        assert store.budgets.get_spending("b", "2026-11-18") is None
        assert store.budgets.spend(spending("b", "2026-11-18", 1.5, 10)).cost == 1.5
        assert second.budgets.spend(spending("b", "2026-11-18", 2.0, 5)).tokens == 15
        second.budgets.spend(spending("b", "2026-11-19", 7.0, 0))
        second.budgets.spend(spending("other", "2026-11-18", 9.0, 0))
        total = store.budgets.get_spending("b", "2026-11-18")
        assert total is not None
        assert (total.cost, total.tokens) == (3.5, 15)

    def test_what_runs_have_spent_is_added_with_their_events_or_not_at_all(
        self, store: Store, second: Store
    ) -> None:
        def spends(run_id: str, *rows: SpendingRow) -> StreamWrite:
            return a.begin(a.run(run_id), bead=a.bead(f"b-{run_id}"), spending=rows)

        day, month = (SpendingRow("b", per, 1.0, 10, a.at(1)) for per in ("2026-11-18", "2026-11"))
        first, other = spends("r1", day, month), spends("r2", month, day)
        assert commit_writes(store, first, other) == [True, True]
        assert commit_writes(second, a.follow(first, spending=(day,))) == [True]
        assert commit_writes(store, a.follow(first, spending=(day,))) == [
            False
        ]  # it was read before
        totals = [store.budgets.get_spending("b", row.period) for row in (day, month)]
        assert [(total.cost, total.tokens) for total in totals if total] == [(3.0, 30), (2.0, 20)]
        assert store.budgets.delete_spending_before(a.at(1)) == 0
        assert second.budgets.delete_spending_before(a.at(2)) == 2

    def test_a_budget_that_a_person_has_set_is_not_changed_by_a_program(
        self, store: Store, second: Store
    ) -> None:
        program = BudgetRow("b", "day", 20.0, None, 0.8, "", a.at(1))
        store.budgets.put(program)
        second.budgets.put(replace(program, cost=30.0))
        assert store.budgets.get("b") == replace(program, cost=30.0)
        person = replace(program, cost=None, tokens=5, updated_by="ann")
        store.budgets.put(person)
        second.budgets.put(program)
        store.budgets.put(replace(program, name="a"))
        assert second.budgets.list("", 10) == [replace(program, name="a"), person]
        assert second.budgets.list("a", 1) == [person]
        assert store.budgets.delete("b", a.at(9), "ann")
        assert not second.budgets.delete("b", a.at(9), "ann")
        assert second.budgets.get("b") is None

    def test_notes_are_kept_up_to_a_number_and_counted_beyond(
        self, store: Store, second: Store
    ) -> None:
        assert all(commit_writes(store, a.begin(a.run("r1")), a.begin(a.run("r2"))))
        notes = [a.note("r1", n) for n in range(NOTES_MAX + 3)]
        for n, note in enumerate(notes):
            (store, second)[n % 2].runs.add_note(note)
        store.runs.add_note(a.note("r2"))
        store.runs.add_note(a.note("nobody"))
        for reader in (store, second):
            assert reader.runs.list_notes("r1") == (notes[:NOTES_MAX], NOTES_MAX + 3)
            assert reader.runs.list_notes("r2") == ([a.note("r2")], 1)
            assert reader.runs.list_notes("nobody") == ([], 0)

    def test_a_note_changes_nothing_that_a_decision_is_guarded_by(
        self, store: Store, second: Store
    ) -> None:
        begun = a.begin(a.run())
        assert commit_writes(store, begun) == [True]
        second.runs.add_note(a.note())
        assert commit_writes(store, a.follow(begun)) == [True]
        assert second.runs.list_notes("r1") == ([a.note()], 1)

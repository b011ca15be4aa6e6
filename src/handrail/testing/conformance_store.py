"""The part of the conformance suite about a server's `Store`: lists, files, credentials,
idempotency keys, statistics."""

from threading import Barrier, Thread
from typing import Any

from msgspec.structs import replace

from handrail.store.beads import BEAD_FILES_MAX
from handrail.store.credentials import CredentialRow
from handrail.store.rows import StoreError
from handrail.store.stats import RunStatsRow
from handrail.store.store import Store
from handrail.testing import row_factories as a
from handrail.testing.conformance_rows import commit_writes


def ids(rows: Any) -> list[str]:  # noqa: ANN401 - rows with an id
    return [row.id for row in rows]


class ListsConformance:
    # Runs

    def test_runs_are_listed_the_newest_first_in_pages(self, store: Store, second: Store) -> None:
        runs = [a.begin(a.run(f"r{n}"), bead=a.bead(f"b-r{n}")) for n in (3, 1, 4, 2)]
        assert all(commit_writes(store, *runs))
        assert ids(second.runs.list()) == ["r4", "r3", "r2", "r1"]
        assert ids(second.runs.list(limit=3)) == ["r4", "r3", "r2"]
        assert ids(second.runs.list(before="r2", limit=3)) == ["r1"]
        assert not second.runs.list(before="r1")
        (row,) = second.runs.list(before="r2")
        run: Any = runs[1].row
        for name in row.__struct_fields__:
            assert getattr(row, name) == ("A bug" if name == "title" else getattr(run, name))

    def test_runs_are_found_by_every_filter_alone_and_together(
        self, store: Store, second: Store
    ) -> None:
        later = {"workflow_id": "w2", "created_at": a.at(50)}
        runs = [
            a.begin(a.run("r1"), bead=a.bead("b-r1")),
            a.begin(a.run("r2", **later), bead=a.bead("b-r2")),
            a.begin(a.run("r3", **later), bead=a.bead("b-r3")),
        ]
        assert all(commit_writes(store, *runs))
        assert commit_writes(store, a.follow(runs[2], changes=a.ENDED_RUN_CHANGES)) == [True]
        again = a.begin(a.run("r4", bead_id="b-r3"), bead=a.bead("b-r3"))
        assert commit_writes(store, again) == [True]
        list_runs = second.runs.list
        assert ids(list_runs(bead_id="b-r3")) == ["r4", "r3"]
        assert ids(list_runs(status="ended")) == ["r3"]
        assert ids(list_runs(status="running")) == ["r4", "r2", "r1"]
        assert ids(list_runs(terminal_status="done_success")) == ["r3"]
        assert not list_runs(terminal_status="aborted_stuck")
        assert ids(list_runs(workflow_id="w2")) == ["r3", "r2"]
        assert ids(list_runs(since=a.at(50))) == ["r3", "r2"]
        assert not list_runs(since=a.at(50.000001))
        assert ids(list_runs(workflow_id="w2", status="running", since=a.at(), before="r4")) == [
            "r2"
        ]
        assert ids(second.runs.list_of_bead("b-r3")) == ["r3", "r4"]
        assert ids(second.runs.list_of_bead("b-r3", "r3")) == ["r4"]
        assert second.runs.list_of_bead("b-r3", limit=1) == [
            replace(row, state=None) for row in [store.runs.load(["r3"])["r3"].row]
        ]

    def test_runs_are_found_by_a_part_of_the_title_or_the_beginning_of_an_id(
        self, store: Store, second: Store
    ) -> None:
        titles = {"r1": "50% off_BUG\\", "r2": "Another bug", "x3": "500 off"}
        runs = [
            a.begin(a.run(name), bead=a.bead(f"b-{name}", title=title))
            for name, title in titles.items()
        ]
        assert all(commit_writes(store, *runs))
        expected = {
            "BUG": ["r2", "r1"],
            "50%": ["r1"],
            "off_b": ["r1"],
            "%": ["r1"],
            "_": ["r1"],
            "\\": ["r1"],
            "r": ["r2", "r1"],  # ids with this prefix, and a title
            "x3": ["x3"],
            "3": [],
            "b-r2": ["r2"],
            "-r2": [],
            "' OR 1=1 --": [],
        }
        for text, names in expected.items():
            assert ids(second.runs.list(text=text)) == names, text
        assert ids(second.runs.list(text="bug", before="r2")) == ["r1"]

    def test_the_feed_backwards_is_the_feed(self, store: Store, second: Store) -> None:
        assert not second.journal.read_feed_backwards(None, 10)
        writes = [a.begin(a.run(f"r{n}"), count=n) for n in (1, 2, 3)]
        assert all(commit_writes(store, *writes))
        for _ in range(3):
            writes = [a.follow(write) for write in writes[:2]]
            assert all(commit_writes(store, *writes))
        all_entries = second.journal.read_feed(0, 100)
        assert len(all_entries) == 9
        assert second.journal.read_feed_backwards(None, 100) == all_entries[::-1]
        last = all_entries[-1].n
        assert second.journal.read_feed_backwards(None, 1) == [
            entry for entry in all_entries[::-1] if entry.n == last
        ]
        assert second.journal.read_feed_backwards(last, 3) == [
            entry for entry in all_entries[::-1] if last - 3 < entry.n < last
        ]
        assert not second.journal.read_feed_backwards(all_entries[0].n, 10)

    # Approvals

    def test_questions_are_listed_those_asked_last_first(self, store: Store, second: Store) -> None:
        open_approvals = [
            a.approval(f"q{n}", created_at=a.at(at)) for n, at in ((1, 5), (2, 9), (3, 5))
        ]
        settled = replace(a.answered_approval(a.approval("q4", "r2")), created_at=a.at(7))
        runs = [
            a.begin(a.run("r1"), approvals=open_approvals, bead=a.bead("b-r1")),
            a.begin(a.run("r2", workflow_id="w2"), approvals=[settled], bead=a.bead("b-r2")),
        ]
        assert all(commit_writes(store, *runs))
        list_page = second.approvals.list_newest
        assert ids(list_page()) == ["q2", "q4", "q3", "q1"]
        assert ids(list_page(limit=2)) == ["q2", "q4"]
        assert ids(list_page(before=(a.at(7), "q4"))) == ["q3", "q1"]
        assert ids(list_page(before=(a.at(5), "q3"))) == ["q1"]
        assert ids(list_page(status="open")) == ["q2", "q3", "q1"]
        assert ids(list_page(status="open", before=(a.at(9), "q2"), limit=1)) == ["q3"]
        assert list_page(status="answered") == [settled]
        assert ids(list_page(execution_id="r1")) == ["q2", "q3", "q1"]
        assert not list_page(execution_id="r1", status="void")
        assert second.approvals.get("q4") == settled
        assert second.approvals.get("q9") is None

    def test_beads_are_listed_with_the_questions_about_them(
        self, store: Store, second: Store
    ) -> None:
        settled = a.answered_approval(a.approval("c-q2", "b"))
        runs = [
            a.begin(a.run("a"), bead=a.bead("b-a", status="in_progress", workflow_id="w1")),
            a.begin(
                a.run("b", workflow_id="w2", priority=7),
                bead=a.bead("b-b", status="waiting", workflow_id="w2"),
                approvals=[a.approval("a-q1", "b"), settled],
            ),
        ]
        assert all(commit_writes(store, *runs))
        store.beads.create(a.bead("b-c"), None)
        list_beads = second.beads.list
        assert ids(list_beads()) == ["c-q2", "b-c", "b-b", "b-a", "a-q1"]
        assert ids(list_beads(limit=3)) == ["c-q2", "b-c", "b-b"]
        assert ids(list_beads(before="b-b", limit=3)) == ["b-a", "a-q1"]
        assert ids(list_beads(type="work")) == ["b-c", "b-b", "b-a"]
        assert ids(list_beads(type="approval")) == ["c-q2", "a-q1"]
        assert ids(list_beads(status="open")) == ["b-c", "a-q1"]
        assert ids(list_beads(status="closed")) == ["c-q2"]
        assert ids(list_beads(status="waiting")) == ["b-b"]
        assert not list_beads(status="waiting", type="approval")
        assert ids(list_beads(workflow_id="w2")) == ["c-q2", "b-b", "a-q1"]
        work_bead, approval_bead = (
            list_beads(before="b-b", limit=1)[0],
            list_beads(type="approval")[1],
        )
        assert (work_bead.type, work_bead.parent_id, work_bead.context) == ("work", None, '{"k":1}')
        assert (approval_bead.type, approval_bead.parent_id, approval_bead.execution_id) == (
            "approval",
            "b-b",
            "b",
        )
        assert (approval_bead.title, approval_bead.priority, approval_bead.context) == (
            "May it?",
            7,
            "{}",
        )
        assert list_beads(type="approval")[0].updated_at == settled.settled_at

    # Definitions

    def test_definitions_are_listed_in_pages_and_with_their_versions(
        self, store: Store, second: Store
    ) -> None:
        for name, versions in {"w2": 1, "w1": 3, "w3": 1}.items():
            for version in range(1, versions + 1):
                assert store.definitions.put(a.definition(name, version))
        page = second.definitions.list("", 2)
        assert page == [a.definition("w1", 3), a.definition("w2", 1)]
        assert second.definitions.list("w2", 2) == [a.definition("w3", 1)]
        assert second.definitions.list_versions("w1") == [a.definition("w1", n) for n in (3, 2, 1)]
        assert not second.definitions.list_versions("name of w1")


class SmallWritesConformance:
    # Beads

    def test_a_bead_is_filed_with_the_key_that_it_was_asked_for_with(
        self, store: Store, second: Store
    ) -> None:
        key = a.key("k1", answer='{"bead_id":"b1"}')
        assert store.beads.create(a.bead("b1"), key) is None
        assert store.beads.create(a.bead("b0"), None) is None
        assert second.beads.get("b1") == a.bead("b1")
        assert second.idempotency_keys.get("k1", "ola") == key
        other = a.key("k1", digest="d2")
        assert second.beads.create(a.bead("b2"), other) == key
        assert second.beads.get("b2") is None
        assert second.beads.create(a.bead("b2"), a.key("k1", actor="eve")) is None

    def test_a_bead_without_a_run_is_changed_by_whoever_read_it_last(
        self, store: Store, second: Store
    ) -> None:
        row = a.bead("b1")
        store.beads.create(row, None)
        changed = replace(row, context='{"k":2}', updated_at=a.at(1))
        assert second.beads.update_context(changed, row.updated_at, "ann")
        assert store.beads.get("b1") == changed
        assert not store.beads.update_context(
            replace(row, context='{"k":3}'), row.updated_at, "ann"
        )
        assert second.beads.get("b1") == changed
        assert not store.beads.update_context(replace(row, id="b9"), row.updated_at, "ann")

    def test_a_bead_in_a_runs_hands_is_not_changed_beside_it(
        self, store: Store, second: Store
    ) -> None:
        row = a.bead("b-r1", status="in_progress")
        begun = a.begin(a.run("r1"), bead=row)
        assert commit_writes(store, begun) == [True]
        changed = replace(row, context='{"k":2}', updated_at=a.at(1))
        assert not second.beads.update_context(changed, row.updated_at, "ann")
        assert commit_writes(store, a.follow(begun, changes=a.ENDED_RUN_CHANGES)) == [True]
        assert second.beads.update_context(changed, row.updated_at, "ann")

    def test_a_file_of_a_bead_is_read_back_and_never_replaced(
        self, store: Store, second: Store
    ) -> None:
        every_byte = a.file("b1", "z.bin", bytes(range(256)) * 500)
        assert store.beads.put_file(every_byte)
        assert store.beads.put_file(a.file("b1", "a.txt", b""))
        assert store.beads.put_file(a.file("b2", "z.bin", b"other"))
        assert not second.beads.put_file(a.file("b1", "z.bin", b"new"))
        assert second.beads.get_file("b1", "z.bin") == every_byte
        assert second.beads.get_file("b1", "none") is None
        listed = second.beads.list_files("b1")
        assert [row.name for row in listed] == ["a.txt", "z.bin"]
        assert listed[1] == replace(every_byte, content=None)
        assert not second.beads.list_files("b9")

    def test_a_bead_has_only_so_many_files_whoever_hangs_them_on_it(
        self, store: Store, second: Store
    ) -> None:
        for n in range(BEAD_FILES_MAX - 1):
            assert store.beads.put_file(a.file("b1", f"{n}", b"x"))
        stored: list[bool] = []
        barrier = Barrier(2)

        def put(each_store: Store, name: str) -> None:
            barrier.wait()
            stored.append(each_store.beads.put_file(a.file("b1", name, b"y")))

        threads = [
            Thread(target=put, args=(each_store, f"last-{n}"))
            for n, each_store in enumerate((store, second))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(stored) == [False, True]
        assert len(store.beads.list_files("b1")) == BEAD_FILES_MAX
        assert second.beads.put_file(a.file("b2", "a", b"x"))

    # Agents

    def test_an_agent_from_outside_is_registered_and_found(
        self, store: Store, second: Store
    ) -> None:
        ada = a.agent("ada", roles='["coder","qa"]', capacity=3)
        assert store.agents.register(ada)
        assert second.agents.get("ada") == ada
        assert second.agents.get("bob") is None
        again = replace(ada, session="s2", roles='["qa"]', capacity=1, beat_at=a.at(9))
        assert second.agents.register(again)
        assert store.agents.get("ada") == again

    def test_registering_neither_enables_an_agent_nor_replaces_a_function(
        self, store: Store, second: Store
    ) -> None:
        assert store.agents.register(a.agent("ada"))
        assert store.agents.set_enabled("ada", enabled=False)
        assert second.agents.register(a.agent("ada", session="s2"))
        assert second.agents.get("ada") == a.agent("ada", session="s2", enabled=False)
        assert second.agents.set_enabled("ada", enabled=True)
        assert store.agents.get("ada") == a.agent("ada", session="s2")
        assert not store.agents.set_enabled("bob", enabled=True)
        function = a.agent("fix@e1", engine="e1")
        store.agents.put(function)
        assert not second.agents.register(a.agent("fix@e1", session="s3"))
        assert second.agents.get("fix@e1") == function

    def test_what_a_session_holds_is_found_the_oldest_first(
        self, store: Store, second: Store
    ) -> None:
        offers = [a.dispatch("r1", n) for n in (1, 2, 3, 4)]
        mine = [
            replace(a.claimed_dispatch(offers[n], "ada", "s-ada"), claimed_at=a.at(9 - n))
            for n in (0, 1)
        ]
        other = a.claimed_dispatch(offers[2], "bob", "s-bob")
        begun = a.begin(a.run(), dispatches=[*mine, other, offers[3]])
        assert commit_writes(store, begun) == [True]
        assert second.dispatches.list_claimed("s-ada") == mine[::-1]
        assert second.dispatches.list_claimed("s-bob") == [other]
        assert not second.dispatches.list_claimed("s-nobody")
        assert second.dispatches.list_claimed() == [other, *mine[::-1]]
        assert commit_writes(store, a.follow(begun, closed_fences=[1])) == [True]
        assert second.dispatches.list_claimed("s-ada") == [mine[1]]

    # Credentials

    def test_a_credential_is_found_by_its_digest_and_listed_by_its_kind(
        self, store: Store, second: Store
    ) -> None:
        full = a.credential("c1", agent="ada", works_as='["coder"]', expires_at=a.at(99))
        plain = a.credential("c2", created_at=a.at(2))
        link = a.credential("c3", kind="sign_in")
        for row in (full, plain, link):
            store.credentials.add(row)
        assert second.credentials.get(full.digest) == full
        assert second.credentials.get("f" * 64) is None
        assert second.credentials.list("token") == [plain, full]
        assert second.credentials.list("sign_in") == [link]
        assert not second.credentials.list("session")

    def test_no_two_credentials_have_the_same_secret(self, store: Store, second: Store) -> None:
        store.credentials.add(a.credential("c1"))
        for wrong in (
            a.credential("c2", digest=a.credential("c1").digest),
            a.credential("c1", digest="f" * 64),
            a.credential("c3", kind="password"),
        ):
            try:
                second.credentials.add(wrong)
            except StoreError:
                continue
            raise AssertionError(f"{wrong} was stored")
        assert store.credentials.list("token") == [a.credential("c1")]

    def test_a_credential_is_revoked_once(self, store: Store, second: Store) -> None:
        assert not store.credentials.has_active_tokens()
        store.credentials.add(a.credential("c0", kind="session"))
        assert not second.credentials.has_active_tokens()
        store.credentials.add(a.credential("c1"))
        assert second.credentials.has_active_tokens()
        assert second.credentials.revoke("c1", a.at(5), "ann")
        assert not store.credentials.revoke("c1", a.at(6), "ann")
        assert not store.credentials.revoke("c9", a.at(6), "ann")
        assert second.credentials.get(a.credential("c1").digest) == a.credential(
            "c1", revoked_at=a.at(5)
        )
        assert not store.credentials.has_active_tokens()

    def test_a_sign_in_is_used_once_while_it_is_good(self, store: Store, second: Store) -> None:
        good = a.credential("c1", kind="sign_in", expires_at=a.at(60))
        old = a.credential("c2", kind="sign_in", expires_at=a.at(10))
        token = a.credential("c3", expires_at=a.at(60))
        for row in (good, old, token):
            store.credentials.add(row)
        assert second.credentials.use_sign_in(old.digest, a.at(10)) is None
        assert second.credentials.use_sign_in(token.digest, a.at(10)) is None
        assert second.credentials.use_sign_in("f" * 64, a.at(10)) is None
        used: list[CredentialRow | None] = []
        barrier = Barrier(4)

        def use(each_store: Store) -> None:
            barrier.wait()
            used.append(each_store.credentials.use_sign_in(good.digest, a.at(20)))

        threads = [Thread(target=use, args=(each_store,)) for each_store in (store, second) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row for row in used if row is not None] == [replace(good, revoked_at=a.at(20))]

    # Idempotency keys

    def test_under_a_key_the_first_answer_stands(self, store: Store, second: Store) -> None:
        first, large = a.key("k1"), a.key("k2", answer='"' + "x" * 1_400_000 + '"')
        store.idempotency_keys.put([large, first])
        store.idempotency_keys.put([])
        second.idempotency_keys.put([a.key("k1", answer='"late"'), a.key("k1", actor="eve")])
        assert second.idempotency_keys.get("k1", "ola") == first
        assert second.idempotency_keys.get("k2", "ola") == large
        assert store.idempotency_keys.get("k1", "eve") == a.key("k1", actor="eve")

    # Statistics

    def test_ended_runs_are_looked_at_in_the_order_of_their_ends(
        self, store: Store, second: Store
    ) -> None:
        runs = {f"r{n}": a.begin(a.run(f"r{n}")) for n in range(1, 6)}
        assert all(commit_writes(store, *runs.values()))
        for name, end in (("r4", 1), ("r2", 2), ("r1", 3), ("r3", 3)):
            ended = a.follow(runs[name], changes={**a.ENDED_RUN_CHANGES, "ended_at": a.at(end)})
            assert commit_writes(store, ended) == [True]
        second.stats.put([a.run_stats("r2")], [])
        first = second.stats.list_ended_runs(("", ""), 3)
        assert [(run.id, run.counted) for run in first] == [
            *(("r4", False), ("r2", True), ("r1", False)),
        ]
        assert ids(second.stats.list_ended_runs((first[-1].ended_at, first[-1].id), 3)) == ["r3"]
        assert ids(second.stats.list_ended_runs((a.at(3), ""), 9)) == ["r1", "r3"]

    def test_a_run_is_counted_once(self, store: Store, second: Store) -> None:
        store.stats.put([a.run_stats("r1")], [a.node_stats("r1", "fix", 2)])
        late = a.run_stats("r1", tokens=99, workflow_id="w9")
        second.stats.put([late], [a.node_stats("r1", "fix", 5)])
        second.stats.put([], [])
        (sums,) = second.stats.sum_definitions(None, None)
        assert (sums.workflow_id, sums.runs, sums.tokens) == ("w1", 1, 10)
        (node,) = second.stats.sum_nodes(None, None)
        assert (node.node, node.dispatches, node.runs) == ("fix", 2, 1)

    def test_sums_are_by_definition_and_since_a_moment(self, store: Store, second: Store) -> None:
        assert not second.stats.sum_definitions(None, None)
        seconds = [4.0, 1.0, 3.0, 2.5]
        runs = [
            a.run_stats(f"r{n}", seconds=s, ended_at=a.at(n), escalations=n, cost=0.1, tokens=n)
            for n, s in enumerate(seconds)
        ]
        runs[3] = replace(runs[3], terminal_status="aborted_stuck")
        nodes = [a.node_stats(run.execution_id, "fix", 1 + n % 2) for n, run in enumerate(runs)]
        nodes.append(a.node_stats("r0", "check", 7))
        second.stats.put([*runs, a.run_stats("r9", workflow_id="w2")], nodes)
        first, other = store.stats.sum_definitions(None, None)
        assert (other.workflow_id, other.runs) == ("w2", 1)
        assert (other.seconds_p50, other.seconds_p99, other.seconds_mean) == (1.5, 1.5, 1.5)
        assert store.stats.sum_definitions("w1", None) == [first]
        assert (first.runs, first.succeeded, first.escalated, first.tokens) == (4, 3, 3, 6)
        assert abs(first.cost - 0.4) < 1e-9
        assert first.seconds_mean == 2.625
        percentiles = first.seconds_p50, first.seconds_p90, first.seconds_p99
        for percentile, expected in zip(percentiles, (2.75, 3.7, 3.97), strict=True):
            assert abs(percentile - expected) < 1e-9
        (late,) = store.stats.sum_definitions("w1", a.at(2))
        assert (late.runs, late.seconds_p50, late.succeeded) == (2, 2.75, 1)
        assert not store.stats.sum_definitions("w1", a.at(100))
        dispatch_counts = [
            (node_stats.node, node_stats.dispatches, node_stats.runs)
            for node_stats in store.stats.sum_nodes("w1", None)
        ]
        assert dispatch_counts == [("check", 7, 1), ("fix", 1, 2), ("fix", 2, 2)]
        assert len(store.stats.sum_nodes(None, a.at(1))) == 2

    def test_figures_are_kept_to_the_last_digit(self, store: Store, second: Store) -> None:
        odd: RunStatsRow = a.run_stats("r1", seconds=0.1 + 0.2, cost=1e-17)
        store.stats.put([odd], [])
        (sums,) = second.stats.sum_definitions(None, None)
        assert (sums.seconds_p50, sums.cost) == (odd.seconds, odd.cost)

    # The reader

    def test_a_reader_sees_what_was_committed(self, store: Store, second: Store) -> None:
        reader = second.open_reader()
        try:
            assert not reader.runs.list()
            assert commit_writes(store, a.begin(a.run(), bead=a.bead())) == [True]
            assert ids(reader.runs.list()) == ["r1"]
            assert len(reader.journal.read("r1")) == 1
        finally:
            if reader is not second:
                reader.close()

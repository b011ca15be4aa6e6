"""The conformance suite: tests that every store must pass, by inheriting them, one class for each
subject: `CommitConformance` here, and those of the other modules `conformance_…`.

    class TestMyStore(CommitConformance, EngineRowsConformance):
        @pytest.fixture
        def store(self, url):  # an empty database
            ...

        @pytest.fixture
        def second(self, url, store):  # another connection to the same database
            ...

A store that several engines may share inherits `SharedEngineStoreConformance` too. Nothing here
imports pytest; `pytest.register_assert_rewrite("handrail.testing.conformance_commits")`, and the
same for the other modules, makes failures show the differences.
"""

from collections.abc import Sequence
from threading import Barrier, Thread
from typing import Any

from msgspec.structs import replace

from handrail.store.rows import (
    EMPTY_HEAD,
    CommitRow,
    LockRow,
    RunRow,
    StoredEntry,
    StoreError,
    StreamWrite,
    commit_hash,
    entry_hash,
)
from handrail.store.store import Store
from handrail.testing import row_factories as a
from handrail.testing.conformance_rows import commit_writes

ODD_TEXT = (
    "quotes ' \" ` \\ %s %(x)s {} ? $1 :x -- /* ; \t\n\r\x01\x7f"
    "é e\u0301 ß Ω 漢 🐍👩\u200d👩 \u202e\u2028\ufeff\uffff"
)
ESCAPED_NUL_JSON = '["a\\u0000b"]'
"""JSON can express a NUL by an escape; the JSON text itself contains none."""
BODY_CHARS = 1_000_000


def full_write(
    run_id: str, before: StreamWrite | None = None, *, tag: str = "", count: int = 1
) -> StreamWrite:
    """Return a write with something in every part: the first of its run, or the next."""
    fence = 1 if before is None else before.entry.seq + 1
    tag = tag or f"{run_id}-{fence}"
    parts: dict[str, Any] = {
        "bead": a.bead(f"b-{run_id}", status="waiting", execution_id=run_id, context=f'"{tag}"'),
        "transitions": [a.transition(run_id, fence, reason=tag)],
        "approvals": [a.approval(f"q-{tag}", run_id)],
        "dispatches": [a.dispatch(run_id, fence, place=f"p-{tag}")],
        "messages": [a.message(f"m-{tag}")],
        "keys": [a.key(f"k-{tag}")],
    }
    if before is None:
        return a.begin(a.run(run_id), **parts)
    state = {"state": f'"{tag}"', "current_node_id": tag, "updated_at": a.at(7)}
    closed = [dispatch.fence for dispatch in before.dispatches]
    consumed = [message.id for message in before.messages]
    return a.follow(
        before,
        count=count,
        changes=state,
        closed_fences=closed,
        consumed_message_ids=consumed,
        **parts,
    )


def check_chain(commits: Sequence[tuple[CommitRow, list[StoredEntry]]]) -> None:
    """Check both chains by computing them again from the recorded entries alone."""
    chain_head, heads, last = EMPTY_HEAD, dict[str, bytes](), 0
    for commit, entries in commits:
        assert commit.n > last
        last = commit.n
        assert commit.entries == len(entries)
        for entry in entries:
            assert entry.n == commit.n
            heads[entry.stream] = entry_hash(
                heads.get(entry.stream, EMPTY_HEAD), entry.stream, entry.seq, entry.body
            )
            assert entry.hash == heads[entry.stream]
        chain_head = commit_hash(chain_head, [entry.hash for entry in entries])
        assert commit.hash == chain_head


class CommitConformance:
    """Commits, their guards, and the journal."""

    # Winners are written

    def test_an_empty_database_is_empty(self, store: Store, second: Store) -> None:
        for each_store in (store, second):
            assert each_store.journal.get_last_commit() is None
            assert not each_store.runs.list_due(a.at(), 10)
            assert not each_store.locks.list_due(a.at(), 10)
            assert each_store.engines.get_last_alive() is None
            assert not each_store.runs.list_by_id()
            assert not each_store.journal.read_feed(0, 10)
            assert not list(each_store.journal.iter_commits(0, 10))
            assert each_store.runs.load(["r1"]) == {}
            assert each_store.locks.load(["repo"]) == {}
            assert each_store.journal.load_stream("care") is None
            assert each_store.commit([], a.at()) == (None, [])

    def test_what_a_commit_wrote_is_read_back_equal(self, store: Store, second: Store) -> None:
        first = full_write("r1")
        commit, winners = store.commit([first], a.at(1))
        assert winners == [True]
        assert commit is not None
        assert commit.entries == 1
        assert commit.at == a.at(1)
        for each_store in (store, second):
            assert each_store.runs.load(["r1", "r2"]).keys() == {"r1"}
            assert each_store.runs.load(["r1"])["r1"].row == first.row
            assert not each_store.runs.load(["r1"])["r1"].tail
            assert each_store.runs.list_by_id() == [replace(first.row, state=None)]
            assert each_store.beads.get("b-r1") == first.bead
            assert each_store.runs.get_active_id("b-r1") == "r1"
            assert each_store.approvals.list(execution_id="r1") == first.approvals
            assert each_store.dispatches.list("r1") == first.dispatches
            assert each_store.messages.list(10) == first.messages
            assert each_store.idempotency_keys.get("k-r1-1", "ola") == first.keys[0]
            assert each_store.journal.get_last_commit() == commit
            self._assert_same_transition(each_store, first)
            self._assert_same_entry(each_store, first, commit)

    def _assert_same_transition(self, store: Store, write: StreamWrite) -> None:
        stored = [row for _, row in store.runs.list_transitions(write.entry.stream)]
        assert stored == list(write.transitions)

    def _assert_same_entry(self, store: Store, write: StreamWrite, commit: CommitRow) -> None:
        (stored,) = store.journal.read(write.entry.stream)
        assert [stored] == store.journal.read_feed(0, 10)
        assert list(store.journal.iter_commits(0, 10)) == [(commit, [stored])]
        for name in write.entry.__struct_fields__:
            assert getattr(stored, name) == getattr(write.entry, name)
        assert stored.n == commit.n

    def test_what_the_next_commit_changed_is_read_back_equal(
        self, store: Store, second: Store
    ) -> None:
        first = full_write("r1")
        then = full_write("r1", first)
        assert commit_writes(store, first) == [True]
        assert commit_writes(second, then) == [True]
        for each_store in (store, second):
            assert each_store.runs.load(["r1"])["r1"].row == then.row
            assert each_store.beads.get("b-r1") == then.bead
            assert each_store.dispatches.list("r1") == then.dispatches
            assert each_store.messages.list(10) == then.messages
            assert each_store.approvals.list() == [*first.approvals, *then.approvals]
            assert [
                transition.reason for _, transition in each_store.runs.list_transitions("r1")
            ] == [
                "r1-1",
                "r1-2",
            ]
            assert [entry.seq for entry in each_store.journal.read("r1")] == [1, 2]

    def test_a_run_is_loaded_from_its_last_state_and_the_events_since(
        self, store: Store, second: Store
    ) -> None:
        writes = [a.begin(a.run(state='"old"'), count=2)]
        writes.append(a.follow(writes[-1], count=3, changes={"status": "waiting"}))
        writes.append(a.follow(writes[-1], changes={"current_node_id": "fix"}, position_only=True))
        expected: Any = None
        for write in writes:
            assert commit_writes(store, write) == [True]
            expected = a.apply_write(expected, write)
            assert second.runs.load(["r1"])["r1"].row == expected
        assert (expected.state, expected.state_seq, expected.seq) == ('"old"', 2, 6)
        assert second.runs.load(["r1"])["r1"].tail == [write.entry.body for write in writes[1:]]
        fresh = a.follow(writes[-1], changes={"state": '"new"'})
        assert commit_writes(second, fresh) == [True]
        loaded = store.runs.load(["r1"])["r1"]
        assert loaded.row == fresh.row
        assert (fresh.row.seq, loaded.tail) == (7, [])

    def test_a_light_move_changes_nothing_but_the_place(self, store: Store, second: Store) -> None:
        begun = a.begin(a.run())
        claims = {"status": "paused", "priority": 9, "next_due": a.at(1), "current_node_id": "fix"}
        assert commit_writes(store, begun) == [True]
        moved = a.follow(begun, changes=claims, position_only=True)
        assert commit_writes(store, moved) == [True]
        assert second.runs.load(["r1"])["r1"].row == replace(
            begun.row, current_node_id="fix", seq=2, head=moved.entry.hash
        )

    def test_locks_and_streams_are_kept_and_guarded_like_runs(
        self, store: Store, second: Store
    ) -> None:
        for subject in (a.lock(), a.stream()):
            first = a.begin(subject)
            assert commit_writes(store, first) == [True]
            assert commit_writes(second, first) == [False]
            is_lock = isinstance(subject, LockRow)
            moved = a.follow(first, changes={"state": "2", "next_due": None} if is_lock else {})
            assert commit_writes(second, moved) == [True]
            assert commit_writes(store, a.follow(first)) == [False]
            for each_store in (store, second):
                assert moved.row in [
                    each_store.locks.load(["repo"])["repo"],
                    each_store.journal.load_stream("care"),
                ]
                journal = each_store.journal.read(moved.entry.stream)
                assert [entry.hash for entry in journal] == [first.entry.hash, moved.entry.hash]

    def test_runs_are_listed_by_id_in_pages_and_by_bead_and_status(
        self, store: Store, second: Store
    ) -> None:
        runs = [a.begin(a.run(f"r{n}")) for n in (3, 1, 2, 4)]
        assert all(commit_writes(store, *runs))
        ended = a.follow(runs[0], changes=a.ENDED_RUN_CHANGES)
        assert commit_writes(store, ended, a.begin(a.run("r9", bead_id="b-r3"))) == [True, True]

        def ids(**filters: Any) -> list[str]:  # noqa: ANN401
            return [run.id for run in second.runs.list_by_id(**filters)]

        assert ids() == ["r1", "r2", "r3", "r4", "r9"]
        assert ids(limit=2) == ["r1", "r2"]
        assert ids(after="r2", limit=2) == ["r3", "r4"]
        assert ids(bead_id="b-r3") == ["r3", "r9"]
        assert ids(status="ended") == ["r3"]
        assert ids(bead_id="b-r3", status="running") == ["r9"]
        assert not ids(after="r9")

    # Losers change nothing

    def test_the_loser_of_two_commits_on_the_same_head_changes_nothing_at_all(
        self, store: Store, second: Store
    ) -> None:
        first = full_write("r1")
        assert commit_writes(store, first) == [True]
        assert commit_writes(second, full_write("r1", first, tag="winner")) == [True]
        before = a.snapshot(store)
        for count in (1, 2):  # also where its sequence number is free
            loser = full_write("r1", first, tag="loser", count=count)
            assert store.commit([loser], a.at(9)) == (None, [False])
        for each_store in (store, second):
            assert a.snapshot(each_store) == before
            assert each_store.idempotency_keys.get("k-loser", "ola") is None
            assert each_store.idempotency_keys.get("k-winner", "ola") is not None

    def test_in_a_batch_the_loser_changes_nothing_and_the_others_everything(
        self, store: Store, second: Store
    ) -> None:
        first, other = full_write("r1"), full_write("r2")
        assert commit_writes(store, first, other) == [True, True]
        batch = [
            full_write("r2", other),
            full_write("r1", first, tag="one"),
            full_write("r1", first, tag="two", count=2),
            full_write("r3"),
        ]
        commit, won_flags = second.commit(batch, a.at(9))
        assert (won_flags[0], won_flags[3], sum(won_flags)) == (True, True, 3)
        winners = [write for write, won in zip(batch, won_flags, strict=True) if won]
        loser = next(write for write, won in zip(batch, won_flags, strict=True) if not won)
        for reader in (store, second):
            for write in winners:
                run_id = write.entry.stream
                assert reader.runs.load([run_id])[run_id].row == write.row
                assert reader.beads.get(f"b-{run_id}") == write.bead
                assert reader.dispatches.list(run_id) == write.dispatches
                assert (
                    reader.runs.list_transitions(run_id)[-1][1].reason
                    == write.transitions[0].reason
                )
                assert reader.idempotency_keys.get(write.keys[0].key, "ola") == write.keys[0]
            assert {m.id for m in reader.messages.list(10)} == {w.messages[0].id for w in winners}
            assert loser.approvals[0] not in reader.approvals.list()
            assert reader.idempotency_keys.get(loser.keys[0].key, "ola") is None
            assert reader.journal.get_last_commit() == commit
            (last,) = reader.journal.iter_commits(1, 10)
            assert sorted(entry.hash for entry in last[1]) == sorted(w.entry.hash for w in winners)
            check_chain(list(reader.journal.iter_commits(0, 10)))

    def test_every_kind_of_write_with_a_stale_head_loses(self, store: Store, second: Store) -> None:
        first_writes = [a.begin(a.run()), a.begin(a.lock()), a.begin(a.stream())]
        assert all(commit_writes(store, *first_writes))
        assert all(commit_writes(second, *(a.follow(write) for write in first_writes)))
        before = a.snapshot(store)
        stale = [a.follow(write, count=count) for write in first_writes for count in (1, 5)]
        stale += [a.follow(first_writes[0], count=count, position_only=True) for count in (1, 5)]
        assert commit_writes(store, *stale, *first_writes) == [False] * 11
        for write in [*stale, *first_writes]:
            assert commit_writes(second, write) == [False]
        assert a.snapshot(store) == before

    def test_writes_of_one_stream_in_one_batch_follow_each_other(
        self, store: Store, second: Store
    ) -> None:
        first = full_write("r1")
        then = a.follow(
            first, dispatches=[a.dispatch("r1", 7)], closed_fences=[1], position_only=True
        )
        last = a.follow(then, closed_fences=[7], changes={"priority": 5})
        assert commit_writes(store, first, then, last) == [True, True, True]
        assert not second.dispatches.list("r1")
        run = second.runs.load(["r1"])["r1"].row
        assert isinstance(run, RunRow)
        assert (run.seq, run.head, run.priority) == (3, last.entry.hash, 5)
        check_chain(list(second.journal.iter_commits(0, 10)))

    def test_a_bead_has_one_active_run(self, store: Store, second: Store) -> None:
        begun = a.begin(a.run("r1", bead_id="b"))
        rival = a.begin(a.run("r2", bead_id="b"), messages=[a.message()])
        assert commit_writes(store, begun) == [True]
        assert commit_writes(second, rival) == [False]
        assert commit_writes(store, rival, a.begin(a.run("r3"))) == [False, True]
        assert store.runs.get_active_id("b") == "r1"
        assert not store.journal.read("r2")
        assert not store.messages.list(1)
        assert commit_writes(store, a.follow(begun, changes=a.ENDED_RUN_CHANGES)) == [True]
        assert second.runs.get_active_id("b") is None
        assert commit_writes(second, rival, a.begin(a.run("r4", bead_id="b"))) == [True, False]
        assert store.runs.get_active_id("b") == "r2"

    def test_what_the_database_forbids_loses_alone(self, store: Store, second: Store) -> None:
        impossible = a.begin(a.run("r1", status="dancing"))
        unwritable = a.begin(a.run("r2"), keys=[a.key("\ud800")])
        good = a.begin(a.run("r3"))
        assert commit_writes(store, impossible, good) == [False, True]
        assert commit_writes(store, unwritable, a.follow(good)) == [False, True]
        assert [run.id for run in second.runs.list_by_id()] == ["r3"]
        message = ""
        try:
            store.idempotency_keys.get("\ud800", "ola")  # half a character
        except StoreError as error:
            message = str(error)
        assert message
        assert "\n" not in message
        check_chain(list(second.journal.iter_commits(0, 10)))

    def test_threads_on_two_connections_win_each_head_once(
        self, store: Store, second: Store
    ) -> None:
        begun = a.begin(a.run())
        assert commit_writes(store, begun) == [True]
        wins: list[bytes] = []
        barrier = Barrier(4)

        def race(each_store: Store, name: str) -> None:
            barrier.wait()
            for turn in range(25):
                run = each_store.runs.load(["r1"])["r1"].row
                write = a.follow(run, body=f'["{name} {turn}"]', position_only=turn % 2 == 0)
                if commit_writes(each_store, write) == [True]:
                    wins.append(write.entry.hash)

        names = "abcd"
        threads = [Thread(target=race, args=((store, second)[i % 2], names[i])) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        recorded = [entry.hash for entry in store.journal.read("r1")]
        assert len(recorded) > 25  # in every round a write won
        assert sorted(recorded[1:]) == sorted(wins)
        check_chain(list(second.journal.iter_commits(0, 1_000)))

    def test_a_run_that_another_is_writing_is_never_loaded_half(
        self, store: Store, second: Store
    ) -> None:
        begun = a.begin(a.run())
        assert commit_writes(store, begun) == [True]

        def write() -> None:
            last = begun
            for _ in range(150):
                last = a.follow(last)
                assert commit_writes(second, last) == [True]

        writer = Thread(target=write)
        writer.start()
        try:
            while writer.is_alive():
                loaded = store.runs.load(["r1"])["r1"]
                head = begun.entry.hash
                for seq, body in enumerate(loaded.tail, 2):
                    head = entry_hash(head, "r1", seq, body)
                assert head == loaded.row.head
        finally:
            writer.join()

    # The journal

    def _commit_three(self, store: Store, second: Store) -> None:
        """Commit two entries, then one, then two, by two connections."""
        first, other = a.begin(a.run("r1")), a.begin(a.run("r2"))
        assert all(commit_writes(store, first, other))
        assert commit_writes(second, a.follow(first, count=3)) == [True]
        assert commit_writes(store, a.begin(a.run("r1")), a.follow(other), a.begin(a.lock())) == [
            *(False, True, True)
        ]

    def test_commits_are_one_chain_that_can_be_computed_again(
        self, store: Store, second: Store
    ) -> None:
        self._commit_three(store, second)
        for each_store in (store, second):
            commits = list(each_store.journal.iter_commits(0, 100))
            assert [len(entries) for _, entries in commits] == [2, 1, 2]
            check_chain(commits)
            assert each_store.journal.get_last_commit() == commits[-1][0]
            assert list(each_store.journal.iter_commits(0, 2)) == commits[:2]
            assert list(each_store.journal.iter_commits(commits[0][0].n, 100)) == commits[1:]
            assert not list(each_store.journal.iter_commits(commits[-1][0].n, 100))

    def test_the_feed_gives_whole_commits_in_order_and_resumes_exactly(
        self, store: Store, second: Store
    ) -> None:
        self._commit_three(store, second)
        all_entries = [
            read for _, entries in store.journal.iter_commits(0, 100) for read in entries
        ]
        assert second.journal.read_feed(0, 100) == all_entries
        assert [read.stream for read in all_entries][2] == "r1"
        assert second.journal.read_feed(0, 1) == all_entries[:2]
        for limit in range(1, 6):
            read: list[StoredEntry] = []
            while page := second.journal.read_feed(read[-1].n if read else 0, limit):
                read += page
            assert read == all_entries
        assert not second.journal.read_feed(all_entries[-1].n, 100)
        assert commit_writes(store, a.begin(a.stream())) == [True]
        assert [read.stream for read in second.journal.read_feed(all_entries[-1].n, 100)] == [
            "care"
        ]

    def test_the_journal_of_a_stream_is_read_in_order_and_in_pages(
        self, store: Store, second: Store
    ) -> None:
        last = a.begin(a.run("r1"), count=2)
        writes = [last] + [last := a.follow(last, count=2) for _ in range(3)]
        for write in writes:
            assert commit_writes(store, write, a.begin(a.run(f"x{write.entry.seq}"))) == [
                True,
                True,
            ]
        journal = second.journal.read("r1")
        assert [(entry.seq, entry.count) for entry in journal] == [(2, 2), (4, 2), (6, 2), (8, 2)]
        assert [
            entry for entry in second.journal.read_feed(0, 100) if entry.stream == "r1"
        ] == journal
        assert second.journal.read("r1", after_seq=4) == journal[2:]
        assert second.journal.read("r1", after_seq=2, limit=2) == journal[1:3]
        assert not second.journal.read("nobody")

    def test_a_connection_hears_that_another_has_written(self, store: Store, second: Store) -> None:
        store.has_changed()
        assert commit_writes(second, a.begin(a.run("r1"))) == [True]
        assert store.has_changed()

    # Texts and times

    def test_texts_with_every_odd_character_survive(self, store: Store, second: Store) -> None:
        run = a.run("r-🐍", bead_id=ODD_TEXT, current_node_id=ODD_TEXT, state=ESCAPED_NUL_JSON)
        write = a.begin(
            run,
            body=ESCAPED_NUL_JSON,
            bead=a.bead(ODD_TEXT, title=ODD_TEXT, description=ODD_TEXT, context=ESCAPED_NUL_JSON),
            transitions=[a.transition(run.id, reason=ODD_TEXT)],
            messages=[a.message(ODD_TEXT, body=ODD_TEXT)],
            keys=[a.key(ODD_TEXT, ODD_TEXT, answer=ODD_TEXT)],
        )
        assert commit_writes(store, write) == [True]
        store.runs.add_note(note := a.note(run.id, body=ODD_TEXT))
        assert second.runs.load([run.id])[run.id].row == write.row
        assert second.journal.read(run.id)[0].body == ESCAPED_NUL_JSON
        assert second.beads.get(ODD_TEXT) == write.bead
        assert second.runs.list_transitions(run.id)[0][1].reason == ODD_TEXT
        assert second.messages.list(1) == write.messages
        assert second.idempotency_keys.get(ODD_TEXT, ODD_TEXT) == write.keys[0]
        assert second.runs.list_notes(run.id) == ([note], 1)
        assert second.runs.get_active_id(ODD_TEXT) == run.id

    def test_a_body_of_a_million_characters_survives(self, store: Store, second: Store) -> None:
        body = '["' + "🐍'" * (BODY_CHARS // 2) + '"]'
        write = a.begin(a.run(state=body), body=body)
        assert commit_writes(store, write) == [True]
        assert second.journal.read("r1")[0].body == body
        assert second.runs.load(["r1"])["r1"].row == write.row
        check_chain(list(second.journal.iter_commits(0, 1)))

    def test_times_survive_to_the_microsecond(self, store: Store, second: Store) -> None:
        early, late = a.at(0.000001), a.at(0.999999)
        run = a.run(created_at=early, updated_at=late, next_due=late)
        commit, _ = store.commit([a.begin(run)], late)
        assert commit is not None
        read = second.runs.list_by_id()[0]
        assert (read.created_at, read.updated_at, read.next_due) == (early, late, late)
        assert second.journal.get_last_commit() == commit
        assert not second.runs.list_due(early, 9)
        assert second.runs.list_due(late, 9) == ["r1"]


class SharedEngineStoreConformance:
    """Tests that a store for several engines must pass."""

    def test_two_engines_never_reserve_the_same_dispatch(self, store: Store, second: Store) -> None:
        offers = [a.dispatch("r1", fence) for fence in range(1, 9)]
        assert commit_writes(store, a.begin(a.run(), dispatches=offers)) == [True]
        mine = store.dispatches.reserve("coder", 3)
        theirs = second.dispatches.reserve("coder", 100)
        assert len(mine) == 3
        assert sorted(row.fence for row in [*mine, *theirs]) == list(range(1, 9))
        assert store.dispatches.reserve("coder", 100) == mine

    def test_a_store_that_cannot_know_does_not_claim_to_be_alone(
        self, store: Store, second: Store
    ) -> None:
        assert store.engines.find_dead() is None or second.engines.find_dead() is None

"""What every store must do, as tests that a store inherits.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, url):  # an empty database
            ...

        @pytest.fixture
        def second(self, url, store):  # another connection to the same one
            ...

A store that several engines may share inherits `SharedStoreConformance`. Nothing here imports
pytest; `pytest.register_assert_rewrite("handrail.testing.conformance")`, and the same for
`handrail.testing.conformance_rows`, makes it tell what was different.
"""

from collections.abc import Sequence
from threading import Barrier, Thread
from typing import Any

from msgspec.structs import replace

from handrail.store.chain import START, commit_hash, entry_hash
from handrail.store.port import Commit, Execution, LockState, Recorded, Store, StoreError, Write
from handrail.testing import rows as a
from handrail.testing.conformance_rows import RowsConformance, won

ODD = (
    "quotes ' \" ` \\ %s %(x)s {} ? $1 :x -- /* ; \t\n\r\x01\x7f"
    "é e\u0301 ß Ω 漢 🐍👩\u200d👩 \u202e\u2028\ufeff\uffff"
)
ESCAPED_ZERO = '["a\\u0000b"]'
"""JSON may say it; the text has no such character."""
MANY = 1_000_000


def full(run_id: str, before: Write | None = None, *, tag: str = "", count: int = 1) -> Write:
    """A write with something in every part; the first of its run, or the next."""
    at_fence = 1 if before is None else before.entry.seq + 1
    tag = tag or f"{run_id}-{at_fence}"
    parts: dict[str, Any] = {
        "bead": a.bead(f"b-{run_id}", status="waiting", execution_id=run_id, context=f'"{tag}"'),
        "transitions": [a.transition(run_id, at_fence, reason=tag)],
        "approvals": [a.approval(f"q-{tag}", run_id)],
        "dispatches": [a.dispatch(run_id, at_fence, place=f"p-{tag}")],
        "messages": [a.message(f"m-{tag}")],
        "keys": [a.key(f"k-{tag}")],
    }
    if before is None:
        return a.begin(a.execution(run_id), **parts)
    state = {"state": f'"{tag}"', "current_node_id": tag, "updated_at": a.at(7)}
    closed = [one.fence for one in before.dispatches]
    consumed = [one.id for one in before.messages]
    return a.follow(before, count=count, changes=state, closed=closed, consumed=consumed, **parts)


def check_chain(commits: Sequence[tuple[Commit, list[Recorded]]]) -> None:
    """Both chains, computed again from nothing but what was recorded."""
    whole, heads, last = START, dict[str, bytes](), 0
    for commit, entries in commits:
        assert commit.n > last
        last = commit.n
        assert commit.entries == len(entries)
        for one in entries:
            assert one.n == commit.n
            heads[one.stream] = entry_hash(
                heads.get(one.stream, START), one.stream, one.seq, one.body
            )
            assert one.hash == heads[one.stream]
        whole = commit_hash(whole, [one.hash for one in entries])
        assert commit.hash == whole


class DecidingConformance:
    """Commits, their guards, and the journal."""

    # What was written is there

    def test_an_empty_database_is_empty(self, store: Store, second: Store) -> None:
        for one in (store, second):
            assert one.head() is None
            assert not one.due(a.at(), 10)
            assert not one.locks_due(a.at(), 10)
            assert one.last_alive() is None
            assert not one.executions()
            assert not one.feed(0, 10)
            assert not list(one.commits(0, 10))
            assert one.load(["r1"]) == {}
            assert one.load_locks(["repo"]) == {}
            assert one.load_stream("care") is None
            assert one.commit([], a.at()) == (None, [])

    def test_what_a_commit_wrote_is_read_back_equal(self, store: Store, second: Store) -> None:
        first = full("r1")
        commit, who = store.commit([first], a.at(1))
        assert who == [True]
        assert commit is not None
        assert commit.entries == 1
        assert commit.at == a.at(1)
        for one in (store, second):
            assert one.load(["r1", "r2"]).keys() == {"r1"}
            assert one.load(["r1"])["r1"].subject == first.subject
            assert not one.load(["r1"])["r1"].tail
            assert one.executions() == [replace(first.subject, state=None)]
            assert one.bead("b-r1") == first.bead
            assert one.active_run("b-r1") == "r1"
            assert one.approvals(execution_id="r1") == first.approvals
            assert one.dispatches("r1") == first.dispatches
            assert one.messages(10) == first.messages
            assert one.key("k-r1-1", "ola") == first.keys[0]
            assert one.head() == commit
            self._same_transition(one, first)
            self._same_entry(one, first, commit)

    def _same_transition(self, store: Store, write: Write) -> None:
        (shown,) = store.transitions(write.entry.stream)
        (meant,) = write.transitions
        for name in shown.__struct_fields__:
            assert name == "id" or getattr(shown, name) == getattr(meant, name)

    def _same_entry(self, store: Store, write: Write, commit: Commit) -> None:
        (read,) = store.journal(write.entry.stream)
        assert [read] == store.feed(0, 10)
        assert list(store.commits(0, 10)) == [(commit, [read])]
        for name in write.entry.__struct_fields__:
            assert getattr(read, name) == getattr(write.entry, name)
        assert read.n == commit.n

    def test_what_the_next_commit_changed_is_read_back_equal(
        self, store: Store, second: Store
    ) -> None:
        first = full("r1")
        then = full("r1", first)
        assert won(store, first) == [True]
        assert won(second, then) == [True]
        for one in (store, second):
            assert one.load(["r1"])["r1"].subject == then.subject
            assert one.bead("b-r1") == then.bead
            assert one.dispatches("r1") == then.dispatches
            assert one.messages(10) == then.messages
            assert one.approvals() == [*first.approvals, *then.approvals]
            assert [shown.reason for shown in one.transitions("r1")] == ["r1-1", "r1-2"]
            assert [read.seq for read in one.journal("r1")] == [1, 2]

    def test_a_run_is_loaded_from_its_last_state_and_the_events_since(
        self, store: Store, second: Store
    ) -> None:
        writes = [a.begin(a.execution(state='"old"'), count=2)]
        writes.append(a.follow(writes[-1], count=3, changes={"status": "waiting"}))
        writes.append(a.follow(writes[-1], changes={"current_node_id": "fix"}, light=True))
        kept: Any = None
        for one in writes:
            assert won(store, one) == [True]
            kept = a.after(kept, one)
            assert second.load(["r1"])["r1"].subject == kept
        assert (kept.state, kept.state_seq, kept.seq) == ('"old"', 2, 6)
        assert second.load(["r1"])["r1"].tail == [one.entry.body for one in writes[1:]]
        fresh = a.follow(writes[-1], changes={"state": '"new"'})
        assert won(second, fresh) == [True]
        loaded = store.load(["r1"])["r1"]
        assert loaded.subject == fresh.subject
        assert (fresh.subject.seq, loaded.tail) == (7, [])

    def test_a_light_move_changes_nothing_but_the_place(self, store: Store, second: Store) -> None:
        begun = a.begin(a.execution())
        claims = {"status": "paused", "priority": 9, "next_due": a.at(1), "current_node_id": "fix"}
        assert won(store, begun) == [True]
        moved = a.follow(begun, changes=claims, light=True)
        assert won(store, moved) == [True]
        assert second.load(["r1"])["r1"].subject == replace(
            begun.subject, current_node_id="fix", seq=2, head=moved.entry.hash
        )

    def test_locks_and_streams_are_kept_and_guarded_like_runs(
        self, store: Store, second: Store
    ) -> None:
        for subject in (a.lock(), a.stream()):
            begun = a.begin(subject)
            assert won(store, begun) == [True]
            assert won(second, begun) == [False]
            is_lock = isinstance(subject, LockState)
            moved = a.follow(begun, changes={"state": "2", "next_due": None} if is_lock else {})
            assert won(second, moved) == [True]
            assert won(store, a.follow(begun)) == [False]
            for one in (store, second):
                assert moved.subject in [one.load_locks(["repo"])["repo"], one.load_stream("care")]
                journal = one.journal(moved.entry.stream)
                assert [read.hash for read in journal] == [begun.entry.hash, moved.entry.hash]

    def test_runs_are_listed_by_id_in_pages_and_by_bead_and_status(
        self, store: Store, second: Store
    ) -> None:
        runs = [a.begin(a.execution(f"r{n}")) for n in (3, 1, 2, 4)]
        assert all(won(store, *runs))
        ended = a.follow(runs[0], changes=a.ENDED)
        assert won(store, ended, a.begin(a.execution("r9", bead_id="b-r3"))) == [True, True]

        def ids(**wanted: Any) -> list[str]:  # noqa: ANN401
            return [run.id for run in second.executions(**wanted)]

        assert ids() == ["r1", "r2", "r3", "r4", "r9"]
        assert ids(limit=2) == ["r1", "r2"]
        assert ids(after="r2", limit=2) == ["r3", "r4"]
        assert ids(bead_id="b-r3") == ["r3", "r9"]
        assert ids(status="ended") == ["r3"]
        assert ids(bead_id="b-r3", status="running") == ["r9"]
        assert not ids(after="r9")

    # Who loses changes nothing

    def test_the_loser_of_two_commits_on_the_same_head_changes_nothing_at_all(
        self, store: Store, second: Store
    ) -> None:
        first = full("r1")
        assert won(store, first) == [True]
        assert won(second, full("r1", first, tag="winner")) == [True]
        before = a.everything(store)
        for count in (1, 2):  # also where its place in the journal is free
            loser = full("r1", first, tag="loser", count=count)
            assert store.commit([loser], a.at(9)) == (None, [False])
        for one in (store, second):
            assert a.everything(one) == before
            assert one.key("k-loser", "ola") is None
            assert one.key("k-winner", "ola") is not None

    def test_in_a_batch_the_loser_changes_nothing_and_the_others_everything(
        self, store: Store, second: Store
    ) -> None:
        first, other = full("r1"), full("r2")
        assert won(store, first, other) == [True, True]
        batch = [
            full("r2", other),
            full("r1", first, tag="one"),
            full("r1", first, tag="two", count=2),
            full("r3"),
        ]
        commit, who = second.commit(batch, a.at(9))
        assert (who[0], who[3], sum(who)) == (True, True, 3)
        winners = [write for write, one in zip(batch, who, strict=True) if one]
        loser = next(write for write, one in zip(batch, who, strict=True) if not one)
        for one in (store, second):
            for write in winners:
                run_id = write.entry.stream
                assert one.load([run_id])[run_id].subject == write.subject
                assert one.bead(f"b-{run_id}") == write.bead
                assert one.dispatches(run_id) == write.dispatches
                assert one.transitions(run_id)[-1].reason == write.transitions[0].reason
                assert one.key(write.keys[0].key, "ola") == write.keys[0]
            assert {m.id for m in one.messages(10)} == {w.messages[0].id for w in winners}
            assert loser.approvals[0] not in one.approvals()
            assert one.key(loser.keys[0].key, "ola") is None
            assert one.head() == commit
            (last,) = one.commits(1, 10)
            assert sorted(read.hash for read in last[1]) == sorted(w.entry.hash for w in winners)
            check_chain(list(one.commits(0, 10)))

    def test_every_kind_of_write_with_a_stale_head_loses(self, store: Store, second: Store) -> None:
        begun = [a.begin(a.execution()), a.begin(a.lock()), a.begin(a.stream())]
        assert all(won(store, *begun))
        assert all(won(second, *(a.follow(one) for one in begun)))
        before = a.everything(store)
        stale = [a.follow(one, count=count) for one in begun for count in (1, 5)]
        stale += [a.follow(begun[0], count=count, light=True) for count in (1, 5)]
        assert won(store, *stale, *begun) == [False] * 11
        for one in [*stale, *begun]:
            assert won(second, one) == [False]
        assert a.everything(store) == before

    def test_writes_of_one_stream_in_one_batch_follow_each_other(
        self, store: Store, second: Store
    ) -> None:
        first = full("r1")
        then = a.follow(first, dispatches=[a.dispatch("r1", 7)], closed=[1], light=True)
        last = a.follow(then, closed=[7], changes={"priority": 5})
        assert won(store, first, then, last) == [True, True, True]
        assert not second.dispatches("r1")
        run = second.load(["r1"])["r1"].subject
        assert isinstance(run, Execution)
        assert (run.seq, run.head, run.priority) == (3, last.entry.hash, 5)
        check_chain(list(second.commits(0, 10)))

    def test_a_bead_has_one_active_run(self, store: Store, second: Store) -> None:
        begun = a.begin(a.execution("r1", bead_id="b"))
        rival = a.begin(a.execution("r2", bead_id="b"), messages=[a.message()])
        assert won(store, begun) == [True]
        assert won(second, rival) == [False]
        assert won(store, rival, a.begin(a.execution("r3"))) == [False, True]
        assert store.active_run("b") == "r1"
        assert not store.journal("r2")
        assert not store.messages(1)
        assert won(store, a.follow(begun, changes=a.ENDED)) == [True]
        assert second.active_run("b") is None
        assert won(second, rival, a.begin(a.execution("r4", bead_id="b"))) == [True, False]
        assert store.active_run("b") == "r2"

    def test_what_the_database_forbids_loses_alone(self, store: Store, second: Store) -> None:
        impossible = a.begin(a.execution("r1", status="dancing"))
        unwritable = a.begin(a.execution("r2"), keys=[a.key("\ud800")])
        good = a.begin(a.execution("r3"))
        assert won(store, impossible, good) == [False, True]
        assert won(store, unwritable, a.follow(good)) == [False, True]
        assert [run.id for run in second.executions()] == ["r3"]
        told = ""
        try:
            store.key("\ud800", "ola")  # half a character
        except StoreError as error:
            told = str(error)
        assert told
        assert "\n" not in told
        check_chain(list(second.commits(0, 10)))

    def test_threads_on_two_connections_win_each_head_once(
        self, store: Store, second: Store
    ) -> None:
        begun = a.begin(a.execution())
        assert won(store, begun) == [True]
        wins: list[bytes] = []
        together = Barrier(4)

        def race(one: Store, name: str) -> None:
            together.wait()
            for turn in range(25):
                run = one.load(["r1"])["r1"].subject
                write = a.follow(run, body=f'["{name} {turn}"]', light=turn % 2 == 0)
                if won(one, write) == [True]:
                    wins.append(write.entry.hash)

        names = "abcd"
        racing = [Thread(target=race, args=((store, second)[i % 2], names[i])) for i in range(4)]
        for thread in racing:
            thread.start()
        for thread in racing:
            thread.join()
        recorded = [read.hash for read in store.journal("r1")]
        assert len(recorded) > 25  # whoever lost, somebody won
        assert sorted(recorded[1:]) == sorted(wins)
        check_chain(list(second.commits(0, 1_000)))

    def test_a_run_that_another_is_writing_is_never_loaded_half(
        self, store: Store, second: Store
    ) -> None:
        begun = a.begin(a.execution())
        assert won(store, begun) == [True]

        def write() -> None:
            last = begun
            for _ in range(150):
                last = a.follow(last)
                assert won(second, last) == [True]

        writer = Thread(target=write)
        writer.start()
        try:
            while writer.is_alive():
                loaded = store.load(["r1"])["r1"]
                head = begun.entry.hash
                for seq, body in enumerate(loaded.tail, 2):
                    head = entry_hash(head, "r1", seq, body)
                assert head == loaded.subject.head
        finally:
            writer.join()

    # The journal

    def _three_commits(self, store: Store, second: Store) -> None:
        """Of two entries, of one, of two; by two connections."""
        one, two = a.begin(a.execution("r1")), a.begin(a.execution("r2"))
        assert all(won(store, one, two))
        assert won(second, a.follow(one, count=3)) == [True]
        assert won(store, a.begin(a.execution("r1")), a.follow(two), a.begin(a.lock())) == [
            *(False, True, True)
        ]

    def test_commits_are_one_chain_that_can_be_computed_again(
        self, store: Store, second: Store
    ) -> None:
        self._three_commits(store, second)
        for one in (store, second):
            commits = list(one.commits(0, 100))
            assert [len(entries) for _, entries in commits] == [2, 1, 2]
            check_chain(commits)
            assert one.head() == commits[-1][0]
            assert list(one.commits(0, 2)) == commits[:2]
            assert list(one.commits(commits[0][0].n, 100)) == commits[1:]
            assert not list(one.commits(commits[-1][0].n, 100))

    def test_the_feed_gives_whole_commits_in_order_and_resumes_exactly(
        self, store: Store, second: Store
    ) -> None:
        self._three_commits(store, second)
        whole = [read for _, entries in store.commits(0, 100) for read in entries]
        assert second.feed(0, 100) == whole
        assert [read.stream for read in whole][2] == "r1"
        assert second.feed(0, 1) == whole[:2]
        for limit in range(1, 6):
            read: list[Recorded] = []
            while page := second.feed(read[-1].n if read else 0, limit):
                read += page
            assert read == whole
        assert not second.feed(whole[-1].n, 100)
        assert won(store, a.begin(a.stream())) == [True]
        assert [read.stream for read in second.feed(whole[-1].n, 100)] == ["care"]

    def test_the_journal_of_a_stream_is_read_in_order_and_in_pages(
        self, store: Store, second: Store
    ) -> None:
        last = a.begin(a.execution("r1"), count=2)
        writes = [last] + [last := a.follow(last, count=2) for _ in range(3)]
        for one in writes:
            assert won(store, one, a.begin(a.execution(f"x{one.entry.seq}"))) == [True, True]
        journal = second.journal("r1")
        assert [(read.seq, read.count) for read in journal] == [(2, 2), (4, 2), (6, 2), (8, 2)]
        assert [read for read in second.feed(0, 100) if read.stream == "r1"] == journal
        assert second.journal("r1", after_seq=4) == journal[2:]
        assert second.journal("r1", after_seq=2, limit=2) == journal[1:3]
        assert not second.journal("nobody")

    def test_a_connection_hears_that_another_has_written(self, store: Store, second: Store) -> None:
        store.changed()
        assert won(second, a.begin(a.execution("r1"))) == [True]
        assert store.changed()

    # Texts and times

    def test_texts_with_every_odd_character_survive(self, store: Store, second: Store) -> None:
        run = a.execution("r-🐍", bead_id=ODD, current_node_id=ODD, state=ESCAPED_ZERO)
        write = a.begin(
            run,
            body=ESCAPED_ZERO,
            bead=a.bead(ODD, title=ODD, description=ODD, context=ESCAPED_ZERO),
            transitions=[a.transition(run.id, reason=ODD)],
            messages=[a.message(ODD, body=ODD)],
            keys=[a.key(ODD, ODD, answer=ODD)],
        )
        assert won(store, write) == [True]
        store.add_note(noted := a.note(run.id, body=ODD))
        assert second.load([run.id])[run.id].subject == write.subject
        assert second.journal(run.id)[0].body == ESCAPED_ZERO
        assert second.bead(ODD) == write.bead
        assert second.transitions(run.id)[0].reason == ODD
        assert second.messages(1) == write.messages
        assert second.key(ODD, ODD) == write.keys[0]
        assert second.notes(run.id) == ([noted], 1)
        assert second.active_run(ODD) == run.id

    def test_a_body_of_a_million_characters_survives(self, store: Store, second: Store) -> None:
        body = '["' + "🐍'" * (MANY // 2) + '"]'
        write = a.begin(a.execution(state=body), body=body)
        assert won(store, write) == [True]
        assert second.journal("r1")[0].body == body
        assert second.load(["r1"])["r1"].subject == write.subject
        check_chain(list(second.commits(0, 1)))

    def test_times_survive_to_the_microsecond(self, store: Store, second: Store) -> None:
        early, late = a.at(0.000001), a.at(0.999999)
        run = a.execution(created_at=early, updated_at=late, next_due=late)
        commit, _ = store.commit([a.begin(run)], late)
        assert commit is not None
        read = second.executions()[0]
        assert (read.created_at, read.updated_at, read.next_due) == (early, late, late)
        assert second.head() == commit
        assert not second.due(early, 9)
        assert second.due(late, 9) == ["r1"]


class StoreConformance(DecidingConformance, RowsConformance):
    """What every store must do."""


class SharedStoreConformance(StoreConformance):
    """And what one must do that several engines may share."""

    def test_two_engines_never_reserve_the_same_dispatch(self, store: Store, second: Store) -> None:
        offers = [a.dispatch("r1", fence) for fence in range(1, 9)]
        assert won(store, a.begin(a.execution(), dispatches=offers)) == [True]
        mine = store.reserve("coder", 3)
        theirs = second.reserve("coder", 100)
        assert len(mine) == 3
        assert sorted(row.fence for row in [*mine, *theirs]) == list(range(1, 9))
        assert store.reserve("coder", 100) == mine

    def test_a_store_that_cannot_know_does_not_claim_to_be_alone(
        self, store: Store, second: Store
    ) -> None:
        assert store.left_behind() is None or second.left_behind() is None

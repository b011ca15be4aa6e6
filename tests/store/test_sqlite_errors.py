"""The SQLite store when something is wrong: one line that says what, where and what to do next;
nothing half written; the file as it was."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.store.child_process import child, output, read_line, send_line
from tests.store.databases import sqlite_database

from handrail.store.database import Transaction
from handrail.store.rows import StoreError
from handrail.store.sqlite import database as opening
from handrail.store.sqlite.store import SqliteStore
from handrail.testing import row_factories as a
from handrail.testing.conformance_commits import check_chain, full_write

KNOWN = opening.NEWEST_SCHEMA_VERSION


def complaint(path: str | Path, *hints: str) -> "pytest.RaisesExc[StoreError]":
    """One line that names the file and says what to do."""

    def fits(error: StoreError) -> bool:
        said = str(error)
        named = said.startswith(str(path)) and "\n" not in said and "; " in said
        assert named, said
        assert all(hint in said for hint in hints), said
        return True

    return pytest.raises(StoreError, check=fits)


def folder_of(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.parent.iterdir() if one.is_file()}


def filled(path: Path) -> None:
    with closing(SqliteStore(str(path))) as store:
        last = full_write("r1")
        store.commit([last], a.at())
        for _ in range(30):
            last = full_write("r1", last)
            store.commit([last], a.at())


# Files that are not ours to open


def a_text(path: Path) -> None:
    path.write_text("Dear diary,")


def a_long_text(path: Path) -> None:
    path.write_text("Dear diary, nothing happened.\n" * 1_000)


def another_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE tracks (title TEXT); INSERT INTO tracks VALUES ('Air')")


def another_programs_empty_one(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.executescript("PRAGMA application_id = 7; CREATE TABLE t (x); DROP TABLE t")


def another_programs_with_a_log(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript("PRAGMA user_version = 99; CREATE TABLE tracks (title TEXT)")


def a_newer_one(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {KNOWN + 1}")


def one_made_before_the_first_release(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 4")


def one_of_another_build(path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as db:
        db.executescript("DROP INDEX beads_due; ALTER TABLE beads DROP COLUMN due_at")
        db.execute("PRAGMA journal_mode = DELETE")


def a_broken_header(path: Path) -> None:
    filled(path)
    with path.open("r+b") as file:
        file.write(b"\0" * 100)


def a_broken_schema(path: Path) -> None:
    filled(path)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * 20 * 4096)


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (a_text, "name a Handrail database, or a file that does not exist yet"),
        (a_long_text, "name a Handrail database, or a file that does not exist yet"),
        (another_programs, "is a database of another program; name another file"),
        (another_programs_empty_one, "is a database of another program; name another file"),
        (another_programs_with_a_log, "is a database of another program; name another file"),
        (one_made_before_the_first_release, "before Handrail 0.1.0 (schema 4), which cannot"),
        (a_newer_one, f"newer Handrail (schema {KNOWN + 1}; this one knows {KNOWN}); upgrade"),
        (one_of_another_build, "its table 'beads' has no column 'due_at': another build"),
        (a_broken_header, "name a Handrail database"),
        (a_broken_schema, "restore a backup with `handrail db restore FILE`"),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_cannot_be_opened_is_told_in_a_line_and_left_as_it_was(
    tmp_path: Path, make: Callable[[Path], None], hint: str, read_only: bool
):
    path = tmp_path / "some.db"
    make(path)
    before = folder_of(path)
    with complaint(path, hint):
        SqliteStore(str(path), read_only=read_only)
    after = folder_of(path)
    if read_only:  # who may not write cannot clear away the log's own files
        after = {name: content for name, content in after.items() if name in before}
    assert after == before


@pytest.mark.parametrize("read_only", [False, True])
def test_a_folder_is_no_file_and_a_file_needs_a_folder(tmp_path: Path, read_only: bool):
    with complaint(tmp_path, "is a folder; name a file in it"):
        SqliteStore(str(tmp_path), read_only=read_only)
    missing = tmp_path / "no" / "handrail.db"
    with complaint(missing, f"there is no folder {tmp_path / 'no'}; make it first"):
        SqliteStore(str(missing), read_only=read_only)
    in_a_file = tmp_path / "file" / "handrail.db"
    in_a_file.parent.write_text("")
    with complaint(in_a_file, "make it first"):
        SqliteStore(str(in_a_file), read_only=read_only)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_nothing_is_made_by_who_only_wants_to_read(tmp_path: Path):
    path = tmp_path / "handrail.db"
    with complaint(path, "there is no such database; `handrail serve` makes one"):
        SqliteStore(str(path), read_only=True)
    assert not list(tmp_path.iterdir())


def test_who_only_reads_cannot_write_and_sees_what_others_write(database: str):
    with (
        closing(SqliteStore(database)) as store,
        closing(SqliteStore(database, read_only=True)) as reader,
    ):
        first = full_write("r1")
        store.commit([first], a.at())
        assert reader.runs.load(["r1"])["r1"].row == first.row
        with complaint(database, "readonly", "make the file and its folder writable"):
            reader.commit([full_write("r1", first)], a.at())
        assert a.snapshot(reader) == a.snapshot(store)


def test_a_broken_page_is_told_when_it_is_read_and_the_file_is_left_as_it_was(tmp_path: Path):
    path = tmp_path / "handrail.db"
    filled(path)
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'journal'").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xa5" * 4096)
    before = path.read_bytes()
    with closing(SqliteStore(str(path))) as store:
        with complaint(path, "malformed", "restore a backup"):
            store.journal.read_feed(0, 10)
        with complaint(path, "malformed", "restore a backup"):
            store.commit([a.begin(a.run("r2"))], a.at())
        assert store.runs.load(["r2"]) == {}  # what is whole can still be read
    assert path.read_bytes() == before


# Rights


@pytest.mark.parametrize(
    ("file", "folder", "hint"),
    [
        (0o444, 0o777, "make the file and its folder writable; nothing was written"),
        (0o444, 0o555, "make the file and its folder writable; nothing was written"),
        (0o666, 0o555, "make the file and its folder writable; nothing was written"),
        (0o000, 0o777, "check that the folder exists and may be written"),
    ],
)
def test_a_file_that_may_not_be_written_is_told_in_a_line(
    open_folder: Path, file: int, folder: int, hint: str
):
    path = open_folder / "handrail.db"
    filled(path)
    before = folder_of(path)
    path.chmod(file)
    open_folder.chmod(folder)
    said = output("read_only", str(path))
    open_folder.chmod(0o777)
    path.chmod(0o666)
    assert len(said) == 1
    assert said[0].startswith(f"{path}: ")
    assert said[0].endswith(hint)
    assert folder_of(path)["handrail.db"] == before["handrail.db"]


def test_the_mark_of_an_engine_that_cannot_be_made_is_told_in_a_line(database: str):
    with closing(SqliteStore(database)) as store:
        Path(f"{database}-engines").mkdir()
        with complaint(f"{database}-engines", "make the file and its folder writable"):
            store.engines.find_dead()


# Room


def test_a_full_database_is_told_nothing_is_half_written_and_room_helps(database: str):
    with closing(SqliteStore(database)) as store:
        last = full_write("r1")
        store.commit([last], a.at())
        (pages,) = sqlite_database(store)._db.execute("PRAGMA page_count").fetchone()
        sqlite_database(store)._db.execute(f"PRAGMA max_page_count = {pages + 20}")
        before, new = a.snapshot(store), last
        with complaint(database, "is full", "make room on the disk; nothing was written"):
            for _ in range(1_000):
                before = a.snapshot(store)
                new = full_write("r1", last)
                store.commit([new], a.at())
                last = new
        assert a.snapshot(store) == before
        with closing(SqliteStore(database)) as second:
            assert a.snapshot(second) == before
        sqlite_database(store)._db.execute("PRAGMA max_page_count = 1000000")
        assert store.commit([new], a.at())[1] == [True]
        check_chain(list(store.journal.iter_commits(0, 10_000)))


def test_a_full_disk_is_told_nothing_is_half_written_and_room_helps(
    open_folder: Path, own_disk: list[str]
):
    full_line, *read_only = output("small_disk", str(open_folder), before=own_disk)
    path = open_folder / "handrail.db"
    assert full_line == (
        f"{path}: database or disk is full; make room on the disk; nothing was written"
    )
    for line in read_only:  # where the kernel lets us mount it anew
        assert line.startswith(f"{path}: ")
        assert "writable" in line or "may be written" in line


def test_every_write_to_the_log_fails_once_and_nothing_is_half_written(database: str):
    line, failures = output("short_files", database)
    assert line == f"{database}: disk I/O error; look at the disk; nothing was written"
    assert int(failures) >= 3 * 10  # three places in each page of the log


# Every statement fails once


def batch(before: list) -> list:
    """Two runs, a lock, a new run, and one that loses: every statement of a commit."""
    return [
        full_write("r1", before[0]),
        a.follow(before[1], position_only=True),
        a.follow(before[2]),
        full_write("r3"),
        a.begin(a.run("r1")),
        a.begin(a.stream()),
    ]


WON = [True, True, True, True, False, True]


def check_failing(path: str, fail: Callable[[sqlite3.Connection, int], Callable[[], bool]]) -> int:
    """Makes the same commit fail at the first place, at the second, and so on; how often."""
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as second:
        begun = [full_write("r1"), a.begin(a.run("r2")), a.begin(a.lock())]
        assert all(store.commit(begun, a.at())[1])
        before = a.snapshot(second)
        place = 0
        while True:
            happened = fail(sqlite_database(store)._db, place)
            try:
                commit, won = store.commit(batch(begun), a.at(1))
            except StoreError:
                assert happened()
            else:
                break
            fail(sqlite_database(store)._db, -1)
            assert a.snapshot(store) == before, f"something is there after place {place}"
            assert a.snapshot(second) == before
            place += 1
        assert not happened()
        fail(sqlite_database(store)._db, -1)
        assert won == WON
        assert commit == second.journal.get_last_commit()
        assert second.runs.load(["r3"])["r3"].row == full_write("r3").row
        assert all(store.commit([a.begin(a.run("r9"))], a.at(2))[1])
        check_chain(list(second.journal.iter_commits(0, 10)))
        return place


def refuse(db: sqlite3.Connection, place: int) -> Callable[[], bool]:
    """The statement at that place is refused, the others are not."""
    left = [place]
    if place < 0:
        db.set_authorizer(None)
        return bool

    def authorize(*asked: object) -> int:
        left[0] -= 1
        return sqlite3.SQLITE_DENY if left[0] == -1 else sqlite3.SQLITE_OK

    db.set_authorizer(authorize)
    return lambda: left[0] < 0


def test_every_statement_of_a_commit_is_refused_once_and_nothing_is_half_written(database: str):
    assert check_failing(database, refuse) > 80


def interrupt(db: sqlite3.Connection, place: int) -> Callable[[], bool]:
    """The machine that runs the statements is stopped at that step, once, but not after the end."""
    left, ending, stopped = [place], [False], [False]
    if place < 0:
        db.set_progress_handler(None, 1)
        db.set_trace_callback(None)
        return bool

    def step() -> int:
        left[0] -= 1
        stopped[0] |= left[0] == -1 and not ending[0]
        return int(left[0] == -1 and not ending[0])

    def traced(statement: str) -> None:
        # SQLite asks once more when COMMIT is on disk; no error can come then.
        ending[0] = statement == "COMMIT"

    db.set_trace_callback(traced)
    db.set_progress_handler(step, 1)
    return lambda: stopped[0]


def test_a_commit_is_interrupted_at_every_step_and_nothing_is_half_written(database: str):
    assert check_failing(database, interrupt) > 100


def test_a_commit_that_was_interrupted_just_after_it_is_followed_by_the_next(database: str):
    with closing(SqliteStore(database)) as store:
        first = full_write("r1")
        store.commit([first], a.at())
        writing = store.database.transaction

        @contextmanager
        def interrupted() -> Iterator[Transaction]:
            with writing() as db:
                yield db
            raise KeyboardInterrupt  # it is on disk, and nobody has noted it yet

        store.database.transaction = interrupted
        then = full_write("r1", first)
        with pytest.raises(KeyboardInterrupt):
            store.commit([then], a.at())
        store.database.transaction = writing
        assert store.commit([full_write("r1", then)], a.at())[1] == [True]
        commits = list(store.journal.iter_commits(0, 10))
        assert len(commits) == 3
        check_chain(commits)


# Other processes


def test_writers_in_many_processes_win_each_head_once_and_make_one_chain(database: str):
    with closing(SqliteStore(database)) as store:
        begun = a.begin(a.run("r1"))
        store.commit([begun], a.at())
        writers = [child("race", database, name, "40") for name in ("ann", "bob", "cat")]
        for writer in writers:
            assert read_line(writer) == "ready\n"
        for writer in writers:
            send_line(writer, "go")
        won = [
            line.split() for one in writers for line in one.communicate(timeout=60)[0].split("\n")
        ]
        assert [one.returncode for one in writers] == [0, 0, 0]
        winners = sorted(line[1] for line in won if line)
        recorded = sorted(read.hash.hex() for read in store.journal.read_feed(1, 10_000))
        assert recorded == winners
        assert len([line for line in won if line and line[0] != "r1"]) == 40  # one run a bead
        check_chain(list(store.journal.iter_commits(0, 10_000)))
        last = store.runs.load(["r1"])["r1"]
        assert len(last.tail) == last.row.seq - last.row.state_seq
        assert store.commit([a.follow(last.row)], a.at())[1] == [True]


def test_many_processes_open_a_new_file_at_once(database: str):
    openers = [child("create", database) for _ in range(6)]
    for one in openers:
        assert read_line(one) == "ready\n"
    for one in openers:
        send_line(one, "go")
    said = [one.communicate(timeout=60) for one in openers]
    assert said == [("opened\n", "")] * 6


def test_a_file_that_another_process_made_meanwhile_is_opened(
    database: str, monkeypatch: pytest.MonkeyPatch
):
    """The other one comes between looking at the file and locking it."""
    look, looked = opening._read_schema_version, []

    def late(db: sqlite3.Connection, path: str) -> int:
        found = look(db, path)
        if not looked:
            looked.append(True)
            filled(Path(database))
        return found

    monkeypatch.setattr(opening, "_read_schema_version", late)
    with closing(SqliteStore(database)) as store:
        assert len(store.journal.read("r1")) == 31


def test_a_writer_that_holds_the_lock_too_long_is_told_in_a_line(
    database: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(opening, "BUSY_SECONDS", 0.05)
    with closing(SqliteStore(database)) as store:
        first = full_write("r1")
        holder = child("hold", database)
        assert read_line(holder) == "ready\n"
        with complaint(database, "is locked", "another process has been writing", "try again"):
            store.commit([first], a.at())
        with complaint(database, "is locked", "try again"):
            SqliteStore(database)
        assert store.journal.get_last_commit() is None  # reading goes on
        holder.communicate("go\n", timeout=60)
        assert store.commit([first], a.at())[1] == [True]


def test_what_was_answered_is_there_after_kill_9(database: str):
    writer = child("survive", database)
    said = [read_line(writer) for _ in range(20)]
    writer.kill()
    assert writer.stdout is not None
    said += writer.stdout.readlines()
    writer.communicate(timeout=60)
    answered = [line.split() for line in said if line.endswith("\n")]
    with closing(SqliteStore(database)) as store:
        commits = list(store.journal.iter_commits(0, 100_000))
        stored = [[str(commit.n), commit.hash.hex()] for commit, _ in commits]
        assert stored[: len(answered)] == answered
        assert len(stored) <= len(answered) + 1
        check_chain(commits)
        assert store.runs.load(["r1"])["r1"].row.seq == len(stored)
        assert len(store.dispatches.list("r1")) == 1


def test_an_engine_knows_whether_it_is_alone_also_after_kill_9(database: str):
    first = child("engine", database)
    assert read_line(first) == "alone: True\n"
    with closing(SqliteStore(database)) as second:
        assert second.engines.find_dead() is None
        first.kill()
        first.communicate(timeout=60)
        with closing(SqliteStore(database)) as third:
            assert third.engines.find_dead() is None  # the second one is still there
    with closing(SqliteStore(database)) as fourth:
        assert fourth.engines.find_dead() is not None

"""What the tests of the SQLite store need another process for; each function is a command.

    python child.py COMMAND ARGUMENT...

A command writes lines to stdout; `ready` waits until the test says go.
"""

import os
import resource
import signal
import sqlite3
import sys
from pathlib import Path

from handrail.store.rows import StoreError
from handrail.store.sqlite import database
from handrail.store.sqlite.store import SqliteStore
from handrail.store.store import Store
from handrail.testing import row_factories as a
from handrail.testing.conformance_commits import check_chain, full_write

FRAME = 24 + 4096
"""What a page takes in the write-ahead log."""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def ready() -> None:
    say("ready")
    sys.stdin.readline()


def become_nobody() -> None:
    """Root may write what nobody may."""
    if os.geteuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def race(path: str, name: str, turns: str) -> None:
    """Many writes to the same runs as others, and to beads that they want too; says what it won."""
    ready()
    store = SqliteStore(path)
    for turn in range(int(turns)):
        run = store.runs.load(["r1"])["r1"].row
        moved = a.follow(run, body=f'["{name} {turn}"]', position_only=turn % 3 != 0)
        begun = a.begin(a.run(f"{name}-{turn}", bead_id=f"b{turn}"), keys=[a.key(f"k{turn}")])
        _, who = store.commit([moved, begun], a.at(turn))
        for write, won in zip([moved, begun], who, strict=True):
            if won:
                say(f"{write.entry.stream} {write.entry.hash.hex()}")
    store.close()


def create(path: str) -> None:
    """Opens a file that may not be there yet."""
    ready()
    SqliteStore(path).close()
    say("opened")


def hold(path: str) -> None:
    """Writes, and does not come to an end."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    ready()
    db.execute("ROLLBACK")


def engine(path: str) -> None:
    """An engine on this file, until it is killed."""
    store = SqliteStore(path)
    say(f"alone: {store.engines.find_dead() is not None}")
    signal.pause()


def read_only(path: str) -> None:
    """Opens it with nobody's rights; says what was wrong."""
    become_nobody()
    try:
        SqliteStore(path).close()
        say("opened")
    except StoreError as error:
        say(str(error))


def small_disk(folder: str) -> None:
    """On a file system of its own: full, then with room again, then read-only."""
    path, ballast = f"{folder}/handrail.db", Path(folder, "ballast")
    store = SqliteStore(path)
    last = full_write("r1")
    store.commit([last], a.at())
    ballast.write_bytes(b"x" * 300_000)
    told, before, new = None, a.snapshot(store), last
    while told is None:
        before = a.snapshot(store)
        body = '["' + "x" * 10_000 + '"]'
        new = a.follow(last, body=body, messages=[a.message(f"m{last.entry.seq}")])
        try:
            store.commit([new], a.at())
            last = new
        except StoreError as error:
            told = error
    say(str(told))
    assert a.snapshot(store) == before, "a part of it was written"
    ballast.unlink()
    assert store.commit([new], a.at())[1] == [True]
    store.close()
    again = SqliteStore(path)
    check_chain(list(again.journal.iter_commits(0, 10_000)))
    assert again.runs.load(["r1"])["r1"].row.head == new.entry.hash
    again.close()
    if os.system(f"mount -o remount,ro {folder}") == 0:
        read_only(path)


def short_files(path: str) -> None:
    """Every write to the log fails once: files may not grow beyond where it would write."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(path)
    last = full_write("r1")
    assert store.commit([last], a.at())[1] == [True]
    while (Path(path + "-wal").stat().st_size - 32) < 40 * FRAME:  # beyond the size of -shm
        last = full_write("r1", last)
        assert store.commit([last], a.at())[1] == [True]
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    before, new = a.snapshot(store), full_write("r1", last)
    size = Path(path + "-wal").stat().st_size
    failures = 0
    for limit in sorted({size + n * FRAME + part for n in range(99) for part in (0, 24, 2_000)}):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            won = store.commit([new], a.at())[1]
        except StoreError as error:
            failures += 1
            if failures == 1:
                say(str(error))
        else:
            assert won == [True]
            break
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        assert a.snapshot(store) == before, f"a part was written at {limit}"
    say(str(failures))
    assert store.runs.load(["r1"])["r1"].row == new.row
    check_chain(list(store.journal.iter_commits(0, 10_000)))
    store.close()


def survive(path: str) -> None:
    """Commits as long as it lives; says each commit after it was answered."""
    store: Store = SqliteStore(path)
    last = full_write("r1")
    while True:
        commit, who = store.commit([last], a.at())
        assert commit is not None
        assert who == [True]
        say(f"{commit.n} {commit.hash.hex()}")
        last = full_write("r1", last)


if __name__ == "__main__":
    database.BUSY_SECONDS = 60.0  # others may be many
    globals()[sys.argv[1]](*sys.argv[2:])

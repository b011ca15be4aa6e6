"""What every contender is given: a place to store in, and clocks that count all who do the work.

CPU time is that of the contender's process, its children and the PostgreSQL server: a step that a
server carries out is not free. What a process that has ended used is counted by its parent.
"""

import base64
import gc
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

AGENTS = ("triage", "billing", "tech")
MESSAGE_BYTES = 500
WINDOW_MAX = 1_000
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

Store = Literal["sqlite", "postgres"]


class MissingError(Exception):
    """This contender cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Load:
    """So many runs of so many steps, one after the other or all at once."""

    name: str
    runs: int
    steps: int
    at_once: bool = True

    @property
    def total(self) -> int:
        return self.runs * self.steps


@dataclass(frozen=True)
class Postgres:
    """A fresh database, and the process that is its server."""

    address: str
    pid: int

    def url(self, driver: str = "") -> str:
        return self.address.replace("postgresql:", f"postgresql{driver}:", 1)


@dataclass
class Bench:
    """One contender's turn: where to store, and what came out."""

    store: Store
    folder: Path
    postgres: Postgres | None = None
    figures: dict[str, dict[str, float]] = field(default_factory=dict)

    @cached_property
    def file(self) -> Path:
        """An empty SQLite database in WAL mode, which connections that come later keep."""
        path = self.folder / "bench.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            (level,) = connection.execute("PRAGMA synchronous").fetchone()
        if level != 2:
            raise MissingError(f"this SQLite commits with synchronous={level} instead of 2 (FULL)")
        return path

    @property
    def database(self) -> Postgres:
        if self.postgres is None:
            raise MissingError("needs PostgreSQL")
        return self.postgres

    def size(self) -> int:
        """Bytes on disk now."""
        if self.store == "postgres":
            import psycopg

            with psycopg.connect(self.database.url()) as connection:
                row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            return row[0] if row else 0
        # The log is emptied, but not cut off: it would have to grow again under what is measured
        # next, which makes a commit half as long again, and no engine that is at work does that.
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        return self.file.stat().st_size

    def clock(self) -> "Clock":
        return Clock(self.postgres.pid if self.postgres else None)

    @contextmanager
    def timed(self, load: Load) -> Iterator[None]:
        """The block makes exactly the steps of the load."""
        gc.collect()
        clock = self.clock()
        yield
        wall, cpu = clock.read()
        self.figures[load.name] = {
            "steps_per_s": load.total / wall,
            "ms_per_step": wall / load.total * 1000,
            "cpu_ms_per_step": cpu / load.total * 1000,
        }


class Clock:
    """Wall and CPU seconds since it was made, without those that reading it takes."""

    def __init__(self, server: int | None) -> None:
        self.server = server
        self.others = others_cpu(server)
        self.own, self.start = time.process_time(), time.perf_counter()

    def read(self) -> tuple[float, float]:
        wall, own = time.perf_counter() - self.start, time.process_time() - self.own
        return wall, own + others_cpu(self.server) - self.others


class Growth:
    """One long run: what its first steps cost, what its last steps cost, bytes a step.

    Call `step` once in every step; reads clocks only at the ends of the two windows.
    """

    def __init__(self, bench: Bench, steps: int) -> None:
        self.bench, self.steps = bench, steps
        self.window = max(1, min(WINDOW_MAX, steps // 20))
        self.begins, self.ends = (0, steps - 1 - self.window), (self.window, steps - 1)
        self.clock = bench.clock()
        self.costs: list[tuple[float, float]] = []
        self.made = 0
        self.size = bench.size()

    def step(self) -> None:
        if self.made in self.ends:
            self.costs.append(self.clock.read())
        if self.made in self.begins:
            self.clock = self.bench.clock()
        self.made += 1

    def result(self) -> dict[str, float]:
        if self.made != self.steps:
            raise RuntimeError(f"made {self.made} steps instead of {self.steps}")
        (first, first_cpu), (last, last_cpu) = self.costs
        return {
            "steps": self.steps,
            "window": self.window,
            "first_ms_per_step": first / self.window * 1000,
            "last_ms_per_step": last / self.window * 1000,
            "growth": last / first,
            "growth_cpu": last_cpu / first_cpu,
            "bytes_per_step": (self.bench.size() - self.size) / self.steps,
        }


def message() -> str:
    """500 bytes that do not compress away."""
    return base64.b64encode(os.urandom(MESSAGE_BYTES * 3 // 4)).decode()


def following(agent: str) -> str:
    return AGENTS[(AGENTS.index(agent) + 1) % len(AGENTS)]


def rss_mb(pid: int | None = None) -> float:
    """Memory that is resident now."""
    status = Path(f"/proc/{pid or os.getpid()}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def processes() -> dict[int, tuple[int, float]]:
    """Every process: its parent, and the CPU seconds of itself and its ended children."""
    found: dict[int, tuple[int, float]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has just ended
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                ticks = sum(int(value) for value in fields[11:15])
                found[int(folder.name)] = (int(fields[1]), ticks / TICKS_PER_SECOND)
    return found


def others_cpu(server: int | None) -> float:
    """CPU seconds of this process's descendants, and of a server with its descendants."""
    every = processes()
    own = os.getpid()
    tree = {own} if server is None else {own, server}
    while grown := {pid for pid, (parent, _) in every.items() if parent in tree} - tree:
        tree |= grown
    times = os.times()
    ended = times.children_user + times.children_system
    return ended + sum(every[pid][1] for pid in tree - {own} if pid in every)

"""Engines on a primary with a standby; the primary dies under load, the standby takes over, the old
primary comes back as its standby; and so on, to and fro.

    python -m tests.failover.failovers --failovers 3 --seed 1 --folder FOLDER [--asynchronous]

The engines are the same processes from the beginning to the end: nobody starts them again. What
they were told is kept outside of the database (`tests/crash/load.py`) and looked for in it when all
is over (`tests/crash/checks.py`); then `handrail verify` and `handrail doctor` have their say.

A primary ends by SIGKILL, in an immediate or an orderly shutdown; or it stands still, the standby
takes over, and the old one goes on for a moment, in the belief that it is the primary, before it is
ended: that is what fencing is for, and what synchronous replication makes harmless.

`--asynchronous` is the control: commits do not wait for the standby, which hears nothing for a
moment before the primary dies. The checks must see that something is lost.

Prints one JSON object; exits 1 if anything was lost, doubled or stuck.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import psutil
import psycopg
from tests.crash import checks, load
from tests.crash.kill_campaign import left_alone
from tests.failover.replicated_database import Pair

from handrail.store.postgres import connection
from handrail.testing.replica import Replica

ENGINES = 2
SETTINGS = {"lease": 5.0, "pulse": 0.1, "store_patience": 60.0}
ANSWER_SECONDS = 3
"""For a primary that stands still: not everybody has the time to wait for the default."""
BETWEEN = 300
"""Acknowledgements before the first failover, and after each."""
WAIT_SECONDS = END_SECONDS = 600
"""It takes a few; on a busy machine many times that."""
KINDS = ("kill", "crash", "freeze", "stop")


class StandstillError(Exception):
    """The engines do not go on."""


class Steady(load.Load):
    """Starts runs until it is told to stop."""

    enough: Path

    async def starter(self, engine: load.Engine, active: int) -> None:
        for first in itertools.count(0, load.HANDFUL):
            if self.enough.exists():
                return
            numbers = range(first, first + load.HANDFUL)
            await asyncio.gather(*(self._start(engine, number) for number in numbers))
            while not await self._fewer(engine, active):
                await asyncio.sleep(0.005)


class Engine:
    """A child that opens the database once, and works until all is over. What it is told it keeps
    in a folder of its own."""

    def __init__(self, url: str, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.trouble = self.folder / "trouble"
        self._read, self._count = 0, 0
        self.pid = os.fork()
        if not self.pid:
            self._live(url, name)

    def _live(self, url: str, name: str) -> None:
        code = 1
        try:
            os.setsid()
            load.Load, Steady.enough = Steady, self.folder.parent / "enough"
            connection.ANSWER_SECONDS = ANSWER_SECONDS
            asyncio.run(load.live(url, self.folder, name, 0, **SETTINGS))
            code = 0
        except BaseException:
            self.trouble.write_text(f"engine {name}\n{traceback.format_exc()}")
        finally:
            os._exit(code)

    def acknowledged(self) -> int:
        """How many entries it was told are on disk."""
        path = self.folder / "acks"
        if path.exists():
            with path.open("rb") as file:
                file.seek(self._read)
                new = file.read()
            whole = new.rfind(b"\n") + 1
            self._count += new[:whole].count(b"store ")
            self._read += whole
        return self._count


def freeze(server: Replica) -> list[psutil.Process]:
    postmaster = psutil.Process(server.pid)
    found = [postmaster, *postmaster.children(recursive=True)]
    for process in found:
        process.send_signal(signal.SIGSTOP)
    return found


class Campaign:
    def __init__(self, pair: Pair, folder: Path, seed: int, *, synchronous: bool) -> None:
        self.pair, self.folder, self.seed, self.synchronous = pair, folder, seed, synchronous
        self.chance = random.Random(seed)
        self.engines: list[Engine] = []
        self.takeovers: list[float] = []
        """Seconds from the primary's end until its standby took writes."""
        self.silences: list[float] = []
        """Seconds from the primary's end until every engine had something acknowledged again."""

    def more(self, entries: int) -> None:
        """Until every engine was told of so many more."""
        wanted = [(one, one.acknowledged() + entries) for one in self.engines]
        deadline = time.monotonic() + WAIT_SECONDS
        while not all(one.acknowledged() >= count for one, count in wanted):
            if any(one.trouble.exists() for one in self.engines):
                raise StandstillError("an engine has failed")
            if time.monotonic() > deadline:
                raise StandstillError(f"no {entries} acknowledgements in {WAIT_SECONDS} s")
            time.sleep(0.01)

    def play(self, failovers: int) -> None:
        names = [f"{self.seed}-{number}" for number in range(ENGINES)]
        self.engines = [Engine(self.pair.url, self.folder, name) for name in names]
        self.more(BETWEEN)
        for number in range(failovers):
            self.failover(KINDS[number % len(KINDS)])
            self.more(BETWEEN)
            if number + 1 < failovers:
                self.pair.standby.follow(self.pair.primary, rewind=bool(number % 2))
                self.pair.primary.require_standby(self.synchronous)
                self.more(BETWEEN)

    def failover(self, kind: str) -> None:
        if not self.synchronous:
            self.pair.standby.stop_streaming()
            self.more(BETWEEN)
        time.sleep(self.chance.random() * 0.5)
        old, frozen, began = self.pair.primary, [], time.monotonic()
        if kind == "freeze":
            frozen = freeze(old)
        else:
            getattr(old, kind)()
        self.pair.take_over()
        self.takeovers.append(time.monotonic() - began)
        self.more(1)
        self.silences.append(time.monotonic() - began)
        for process in frozen:
            process.send_signal(signal.SIGCONT)
        if frozen:
            self.more(BETWEEN)
            old.kill()

    def end(self) -> list[str]:
        """All that is wrong with what is there, and with how it was left."""
        (self.folder / "enough").touch()
        wrong = [what for one in self.engines if (what := left_alone(one.pid, END_SECONDS))]
        for name in ("acks", "effects"):
            parts = (one.folder / name for one in self.engines)
            (self.folder / name).write_bytes(b"".join(p.read_bytes() for p in parts if p.exists()))
        troubles = (one.trouble for one in self.engines)
        wrong += [trouble.read_text()[-3_000:] for trouble in troubles if trouble.exists()]
        return [
            *wrong,
            *command_findings(self.pair.url, "verify"),
            *command_findings(self.pair.url, "doctor"),
        ]


def command_findings(url: str, command: str) -> list[str]:
    """What a command of `handrail` finds wrong with the database."""
    done = subprocess.run(
        [sys.executable, "-m", "handrail", command, "--database", url],
        capture_output=True,
        text=True,
        check=False,
    )
    return [f"{command}: {done.stdout}{done.stderr}"] if done.returncode else []


def main() -> int:
    reading = argparse.ArgumentParser()
    reading.add_argument("--failovers", type=int, default=1)
    reading.add_argument("--seed", type=int, default=1)
    reading.add_argument("--folder", type=Path, required=True)
    reading.add_argument("--asynchronous", action="store_true")
    wanted = reading.parse_args()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    began, wrong = time.monotonic(), []
    with Replica(tcp=True) as first, Replica(tcp=True) as second:
        first.start()
        pair = Pair(first, second)
        pair.heal()
        synchronous = not wanted.asynchronous
        pair.primary.require_standby(synchronous)
        campaign = Campaign(pair, wanted.folder, wanted.seed, synchronous=synchronous)
        try:
            campaign.play(wanted.failovers)
        except StandstillError as error:
            wrong.append(str(error))
        wrong += campaign.end()
        with psycopg.connect(pair.primary.url(pair.database)) as db:
            found = checks.look(wanted.folder, checks.postgres_rows(db))
        first.kill()
        second.kill()
    found.wrong = wrong + found.wrong
    seconds = {
        "takeover": [round(one, 2) for one in campaign.takeovers],
        "silence": [round(one, 2) for one in campaign.silences],
        "all": round(time.monotonic() - began, 1),
    }
    print(json.dumps({**found.shown(), "failovers": len(campaign.silences), "seconds": seconds}))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Three engines on one PostgreSQL; engines are killed, the database crashes, connections are cut.

    python -m tests.crash.postgres_campaign --faults 15 --seed 1 --folder FOLDER

Prints one JSON object; exits 1 if anything was lost, doubled or stuck.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import psycopg
from tests.crash import checks
from tests.crash.kill_campaign import born, left_alone, said

from handrail.testing.postgres import PostgresServer

ENGINES = 3
SETTINGS = {"lease": 2.0, "pulse": 0.1}
QUOTA_A_FAULT = 8
END_SECONDS = 600  # it takes a few; on a busy machine many times that
MORE_SECONDS = 10
AT_WORK = 0.5
"""Of all faults: those that wait until something was acknowledged since the last one. The others
come when they come, also to engines that are still opening."""
KINDS = ("kill", "kill", "kill", "crash", "cut", "cut")
CUT = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database()"""


class Together:
    def __init__(self, server: PostgresServer, folder: Path, seed: str, quota: int) -> None:
        self.server, self.folder, self.seed, self.quota = server, folder, seed, quota
        self.url = server.create_database()
        self.chance = random.Random(seed)
        self.engines: list[int] = []
        self.faults: Counter[str] = Counter()
        self.lives = 0
        self.working = True

    def start(self, quota: int) -> int:
        self.lives += 1
        name = f"{self.seed}-{self.lives}"
        return born(self.url, self.folder, name, quota, **SETTINGS)

    def end(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def fault(self, kind: str) -> None:
        self.faults[kind] += 1
        if kind == "kill":
            which = self.chance.randrange(ENGINES)
            self.end(self.engines[which])
            self.engines[which] = self.start(self.quota)
        elif kind == "crash":
            self.server.crash()
            time.sleep(self.chance.random() * 0.5)
            self.server.start()
        else:
            with psycopg.connect(self.url, autocommit=True) as db:
                db.execute(CUT)

    def more(self, most: float = MORE_SECONDS) -> None:
        """Until something more was acknowledged. Where nothing is, all is done, and never will."""
        before, deadline = said(self.folder), time.monotonic() + most
        while self.working and said(self.folder) == before:
            self.working = time.monotonic() < deadline
            time.sleep(0.005)

    def play(self, faults: int, mean: float) -> checks.Found:
        self.engines = [self.start(self.quota) for _ in range(ENGINES)]
        self.more(END_SECONDS)  # the first ones make the tables
        kinds = [KINDS[n % len(KINDS)] for n in range(faults)]
        self.chance.shuffle(kinds)
        for kind in kinds:
            if self.chance.random() < AT_WORK:
                self.more()
            time.sleep(min(self.chance.expovariate(1 / mean), 4 * mean))
            self.fault(kind)
        # Those who lived through the last faults go on: nothing they remember may hold up a run.
        wrong = [what for what in (left_alone(pid, END_SECONDS) for pid in self.engines) if what]
        with psycopg.connect(self.url) as db:
            found = checks.look(self.folder, checks.postgres_rows(db))
        found.kills = faults
        found.wrong += wrong + checks.audited(self.url)
        trouble = self.folder / "trouble"
        if trouble.exists():
            found.wrong.append(trouble.read_text()[-3_000:])
        return found


def main() -> int:
    reading = argparse.ArgumentParser()
    reading.add_argument("--faults", type=int, default=15)
    reading.add_argument("--seed", type=int, default=1)
    reading.add_argument("--mean", type=float, default=0.5)
    reading.add_argument("--folder", type=Path, required=True)
    wanted = reading.parse_args()
    wanted.folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with PostgresServer() as server:
        quota = QUOTA_A_FAULT * wanted.faults
        together = Together(server, wanted.folder, str(wanted.seed), quota)
        found = together.play(wanted.faults, wanted.mean)
    spent = round(time.monotonic() - began, 1)
    print(json.dumps({**found.shown(), "faults": together.faults, "seconds": spent}))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

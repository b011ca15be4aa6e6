"""Kill -9, again and again, on one machine: children of a process that has everything imported
already, so that a life costs a fork and not half a second of imports.

    python -m tests.crash.kill_campaign --kills 40 --seed 1 --folder FOLDER
        [--url URL] [--engines 1]

A *round* is one database: some lives that are killed at random moments, then one that is left alone
until every run has ended, then the checks (checks.py). A life is killed so long after its birth, or
so long after the first thing that it acknowledged: on a busy machine it takes a while to get there,
and a life that never worked has nothing to lose. Prints one JSON object; exits 1 if anything was
lost, doubled or stuck.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

from tests.crash import checks, load

KILLS_A_ROUND = 10
MEAN_SECONDS = 0.25
SHORTEST = 0.004
QUOTA_A_KILL = 30
OPENING, BY_CLOCK = 0.15, 0.35
"""Of all kills: those while the database is opened or made, those so long after the birth. All
others come so long after the first acknowledgement."""
END_SECONDS = 600
"""A life takes one or two; on a busy machine many times that."""


def born(url: str, folder: Path, seed: str, quota: int, **settings: float) -> int:
    """A child that lives until it is killed, or everything has ended."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        load.main(url, str(folder), seed, quota, **settings)
        code = 0
    except BaseException:
        with (folder / "trouble").open("a") as file:
            file.write(f"-- life {seed}\n{traceback.format_exc()}")
    finally:
        os._exit(code)


def said(folder: Path) -> int:
    """How many bytes of acknowledgements there are."""
    acks = folder / "acks"
    return acks.stat().st_size if acks.exists() else 0


def is_over(pid: int) -> bool:
    ended, _ = os.waitpid(pid, os.WNOHANG)
    return bool(ended)


def at_work(pid: int, folder: Path, before: int) -> bool:
    """Waits for its first acknowledgement; False if the life is over."""
    deadline = time.monotonic() + END_SECONDS
    while said(folder) == before and time.monotonic() < deadline:
        if is_over(pid):
            return False
        time.sleep(0.002)
    return True


def killed(pid: int, after: float) -> bool:
    """Whether it was alive until we killed it."""
    time.sleep(after)
    if is_over(pid):
        return False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def left_alone(pid: int, seconds: float) -> str:
    """Until it ends by itself; what is wrong if it does not, or not well."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return "" if status == 0 else f"the last life ended with {status}"
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return f"after {seconds:g} s without a fault there are runs that have not ended"


def moment(chance: random.Random, mean: float) -> tuple[bool, float]:
    """Whether the time begins with the first acknowledgement, and how long it is."""
    kind = chance.random()
    if kind < OPENING:
        return False, SHORTEST + chance.random() * 0.04
    after = SHORTEST + min(chance.expovariate(1 / mean), 6 * mean)
    return kind >= OPENING + BY_CLOCK, after


def round_of(folder: Path, seed: str, kills: int, mean: float) -> checks.Found:
    folder.mkdir(parents=True)
    chance = random.Random(seed)
    url = f"sqlite:///{folder}/crash.db"
    quota = QUOTA_A_KILL * kills
    done = 0
    for life in range(kills):
        working, after = moment(chance, mean)
        before = said(folder)
        pid = born(url, folder, f"{seed}-{life}", quota)
        done += (not working or at_work(pid, folder, before)) and killed(pid, after)
    wrong = left_alone(born(url, folder, f"{seed}-last", 0), END_SECONDS)
    found = checks.look(folder, checks.sqlite_rows(folder / "crash.db"))
    found.kills = done
    found.wrong += checks.audited(url)
    if wrong:
        found.wrong.append(wrong)
    trouble = folder / "trouble"
    if trouble.exists():
        found.wrong.append(trouble.read_text()[-2_000:])
    return found


def campaign(folder: Path, seed: int, kills: int, mean: float) -> checks.Found:
    total = checks.Found()
    number = 0
    while total.kills < kills:
        name = f"{seed}-{number}"
        found = round_of(folder / name, name, min(KILLS_A_ROUND, kills - total.kills), mean)
        total.add(found)
        if found.wrong:
            total.wrong.append(f"the above in {folder / name}")
            break
        shutil.rmtree(folder / name)
        number += 1
        if number > kills:
            total.wrong.append("the children end before they are killed")
            break
    return total


def main() -> int:
    reading = argparse.ArgumentParser()
    reading.add_argument("--kills", type=int, default=40)
    reading.add_argument("--seed", type=int, default=1)
    reading.add_argument("--mean", type=float, default=MEAN_SECONDS)
    reading.add_argument("--folder", type=Path, required=True)
    wanted = reading.parse_args()
    began = time.monotonic()
    found = campaign(wanted.folder, wanted.seed, wanted.kills, wanted.mean)
    print(json.dumps({**found.shown(), "seconds": round(time.monotonic() - began, 1)}))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""A disk that says no: the Nth write, sync or truncation of an engine's database fails, once or for
a while, for every N from the making of the file to its orderly closing.

    LD_PRELOAD=shim.so SHIM_MATCH=crash.db python -m tests.crash.disk_faults
        FOLDER FIRST STEP ERRNO TIMES

Each N is a database of its own in one process. Prints one JSON object: how many were tried, how
many faults fired, what was told, what is wrong.
"""

import asyncio
import ctypes
import json
import shutil
import sys
import time
from pathlib import Path

from tests.crash import checks, load

from handrail.engine.dispatch import local_agents
from handrail.store.rows import StoreError

QUOTA = len(load.NAMES)
SECONDS = 120  # a life takes less than one; on a busy machine many times that
OPENINGS_MAX = 50

shim = ctypes.CDLL(None)
local_agents.RETRY_SECONDS = 0.02


async def _lives(folder: Path, name: str) -> list[str]:
    """Opens until an engine lived to the end of all runs; what was wrong with how it failed."""
    url = f"sqlite:///{folder}/crash.db"
    lines, wrong = load.Lines(folder / "acks"), []
    for life in range(OPENINGS_MAX):
        try:
            await load.live(url, folder, f"{name}-{life}", QUOTA, store_patience=0.2)
        except StoreError as error:
            lines.put(f"told open {error!s}".replace("\n", "\\n"))
            if "\n" in str(error) or not str(error):
                wrong.append(f"not told in one line: {error!r}")
        except Exception as error:  # whatever it is, nobody is prepared for it
            wrong.append(f"not told as an error of the store: {error!r}")
        else:
            return wrong
        await asyncio.sleep(0.01)
    return [*wrong, f"opened {OPENINGS_MAX} times in vain"]


def tried(folder: Path, n: int, error: int, times: int) -> tuple[checks.Found, int]:
    """One database, of which the Nth call fails; and how many calls failed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    async def timed() -> list[str]:
        async with asyncio.timeout(SECONDS):
            return await _lives(folder, str(n))

    shim.shim_arm(n, error, times)
    try:
        wrong = asyncio.run(timed())
    except TimeoutError:
        wrong = [f"stuck: not over after {SECONDS} s"]
    fired = shim.shim_fired()
    shim.shim_arm(0, 0, 0)
    found = checks.look(folder, checks.sqlite_rows(folder / "crash.db"))
    found.wrong += wrong + checks.audited(f"sqlite:///{folder}/crash.db")
    found.wrong = [f"{n}: {what}" for what in found.wrong]
    return found, fired


def main(folder: Path, first: int, step: int, error: int, times: int) -> None:
    total, fired, n, began = checks.Found(), 0, first, time.monotonic()
    while True:
        found, failed = tried(folder / "one", n, error, times)
        if found.wrong and not total.wrong:
            shutil.copytree(folder / "one", folder / f"wrong-{n}")
        total.add(found)
        fired += failed
        if not failed:
            break
        n += step
    shown = {"tried": (n - first) // step, "fired": fired, "calls": shim.shim_count()}
    spent = round(time.monotonic() - began, 1)
    print(json.dumps({**total.shown(), **shown, "seconds": spent}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:6]))

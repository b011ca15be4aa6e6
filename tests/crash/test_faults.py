"""A disk that is full or broken for a moment, at every write of an engine's life: whoever asked is
told in one line, nothing acknowledged is lost, and the runs end once the disk is well again."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.power import compiled

LONG = bool(os.environ.get("HANDRAIL_LONG"))
STEP = 1 if LONG else 29
"""Every so many calls; one after the other in the long form."""


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder in memory, if there is one: here every sync is a call like any other."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="handrail-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("error", "times", "first"),
    [
        (errno.ENOSPC, 1, 1),
        (errno.EIO, 1, 8),
        (errno.ENOSPC, 20, 15),
        (errno.EIO, 40, 22),
    ],
    ids=["full once", "broken once", "full for a while", "broken for a while"],
)
def test_a_write_that_fails_is_told_and_costs_nothing(
    quick: Path, error: int, times: int, first: int
):
    library = compiled(quick)
    environment = {**os.environ, "LD_PRELOAD": str(library), "SHIM_MATCH": "crash.db"}
    numbers = [1 if LONG else first, STEP * (1 if times == 1 or LONG else 3), error, times]
    command = [sys.executable, "-m", "tests.crash.disk_faults", str(quick), *map(str, numbers)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["tried"] >= 200 / numbers[1], "it makes hundreds of calls"
    assert found["fired"] >= found["tried"]
    assert found["told"], "nobody heard of it"
    assert all(_says_what_to_do(told) for told in found["told"]), found["told"]


def _says_what_to_do(told: str) -> bool:
    return "make room on the disk" in told or "look at the disk" in told

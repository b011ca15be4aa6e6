"""Two engines on a primary that dies under load: its standby takes over, and they go on. Nothing
acknowledged is lost, nothing is done twice, every run ends. `scripts/failover` is the long form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LONG = bool(os.environ.get("HANDRAIL_LONG"))
FAILOVERS = 8 if LONG else 1
RECOVERY_SECONDS = 30
"""From the primary's death until every engine had something acknowledged again; when the machine
has nothing else to do it is about one, and with a primary that stands still about ten."""


def failovers(folder: Path, number: int, *options: str) -> dict:
    command = [sys.executable, "-m", "tests.failover.failovers", "--failovers", str(number)]
    done = subprocess.run(
        [*command, "--folder", str(folder), *options],
        capture_output=True,
        text=True,
        timeout=300 * number,
        check=False,
    )
    assert done.stdout, done.stderr[-2_000:]
    return json.loads(done.stdout)


@pytest.mark.heavy
@pytest.mark.requirement("L4.6", "K1")
def test_the_standby_takes_over_and_the_same_engines_go_on(tmp_path: Path):
    found = failovers(tmp_path, FAILOVERS)
    assert found["wrong"] == []
    assert found["failovers"] == FAILOVERS
    assert found["acknowledged"] >= 1_000 * FAILOVERS, found
    assert max(found["seconds"]["silence"]) < RECOVERY_SECONDS, found["seconds"]
    good = sum(count for name, count in found["ends"].items() if name.endswith("done_success"))
    assert good >= 0.9 * found["runs"], found["ends"]


@pytest.mark.heavy
def test_without_waiting_for_the_standby_something_is_lost_and_the_engines_say_so(tmp_path: Path):
    """The control."""
    found = failovers(tmp_path, 1, "--asynchronous")
    assert any(what.startswith("lost") for what in found["wrong"]), found
    assert "is missing now" in json.dumps(found), found

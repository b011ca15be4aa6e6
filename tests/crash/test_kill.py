"""Kill -9 of an engine on SQLite, again and again: nothing acknowledged is lost, nothing is done
twice, every run ends. `scripts/crash --kills 5000` is the long form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LONG = bool(os.environ.get("HANDRAIL_LONG"))
KILLS = 5_000 if LONG else 40
KILLS_MAX = 60
"""Of the engine that lies: it is over when the lie is seen, mostly after ten."""
SECONDS = 600
"""For what takes ten: machines stall."""
FLOOR = 10
"""Acknowledgements a kill, at least: an engine that does nothing loses nothing."""


def campaign(folder: Path, kills: int, **environment: str) -> dict:
    command = [sys.executable, "-m", "tests.crash.kill_campaign", "--kills", str(kills)]
    done = subprocess.run(
        [*command, "--folder", str(folder), "--mean", "0.1" if LONG else "0.25"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=SECONDS + kills * 2,
        check=False,
    )
    assert done.stdout, done.stderr[-2_000:]
    return json.loads(done.stdout)


@pytest.mark.heavy
@pytest.mark.requirement("L4.6", "K1")
def test_nothing_is_lost_doubled_or_stuck(tmp_path: Path):
    found = campaign(tmp_path / "rounds", KILLS)
    assert found["wrong"] == []
    assert found["kills"] == KILLS
    assert found["acknowledged"] >= FLOOR * KILLS, found
    assert found["lost_attempts"] > 0, "no kill hit an agent at work"
    ends = found["ends"]
    assert {name.split()[0] for name in ends} == {"ring", "retry", "fan", "sign", "ship"}
    good = sum(count for name, count in ends.items() if name.endswith("done_success"))
    assert good >= 0.9 * found["runs"], ends


@pytest.mark.heavy
def test_what_is_acknowledged_too_early_is_seen_to_be_lost(tmp_path: Path):
    """The control: the same test of an engine that lies."""
    found = campaign(tmp_path / "rounds", KILLS_MAX, HANDRAIL_CRASH_CONTROL="1")
    assert any(what.startswith("lost") for what in found["wrong"]), found

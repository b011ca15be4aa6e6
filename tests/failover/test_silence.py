"""How soon it is noticed that a server is gone without a word."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("silence.py")
ALLOWED = ["unshare", "-n", "ip", "link", "set", "lo", "up"]
NOTICED_SECONDS = 20


def may() -> bool:
    try:
        return subprocess.run(ALLOWED, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.heavy
@pytest.mark.skipif(not may(), reason="a network of one's own wants rights, and the program ip")
def test_a_server_that_vanishes_is_noticed_by_who_sends_and_by_who_waits():
    done = subprocess.run(
        ["unshare", "-n", sys.executable, str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    seconds = json.loads(done.stdout)
    assert seconds.keys() == {"sends", "waits"}
    assert max(seconds.values()) < NOTICED_SECONDS, seconds

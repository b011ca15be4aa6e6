"""A holder that is killed in the middle, with what it left running: the next one commits, once, and
what comes late is refused by the repository."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tests.commits.houses import TRACE, House, go

from handrail.commits import Lane

FIXED = {"app.py": "def total(n):\n    return n + 1\n"}
HOLDER = """
import asyncio, sys, msgspec
from handrail.commits import Change, Lane, Repository
change = msgspec.json.decode(sys.stdin.read(), type=Change)
lane = Lane(Repository(url=sys.argv[1]), sys.argv[2])
print(asyncio.run(lane.apply(change, 1)).commit)
"""
STANDS = """#!/bin/sh
cat > /dev/null
[ -e "{gate}" ] || exit 0
rm "{gate}"
ps -o pgid= $$ | tr -d ' ' > "{gate}.reached.new" && mv "{gate}.reached.new" "{gate}.reached"
n=0; while [ ! -e "{gate}.open" ] && [ $n -lt 2400 ]; do sleep 0.05; n=$((n+1)); done
exit 0
"""
SECONDS = 120


def wait(holds) -> None:
    """Until another process has come so far."""
    until = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < until, "it never came so far"
        time.sleep(0.02)


def goes_on(group: str) -> bool:
    """Whether any process of the group is alive."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if found == group and state != "Z":
            return True
    return False


@pytest.mark.requirement("L12.5", "L16")
@pytest.mark.parametrize("moment", ["pre-commit", "pre-push", "post-receive"])
def test_a_holder_that_is_killed_leaves_one_commit_all_the_same(moment: str, tmp_path: Path):
    house = House(tmp_path)
    gate = tmp_path / "gate"
    change = go(house.change("b1", FIXED))
    text = STANDS.format(gate=gate)
    if moment == "post-receive":  # only that of the branch: the fence is raised by a push, too
        text = text.replace("cat > /dev/null", "grep -q refs/heads/main || exit 0")
    if moment == "pre-commit":
        text += TRACE.format(trace=house.trace, more="")
    house.hook(moment, text)
    gate.touch()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(house.bare), str(tmp_path / "killed")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert holder.stdin is not None
    holder.stdin.write(msgspec.json.encode(change))
    holder.stdin.close()
    reached = tmp_path / "gate.reached"
    wait(reached.exists)
    holder.kill()
    holder.wait()
    for pipe in (holder.stdout, holder.stderr):
        pipe.close()  # type: ignore[union-attr]
    pushed = moment == "post-receive"
    assert house.log("%s") == ["begin", *(["Fix b1"] if pushed else [])]

    applied = asyncio.run(Lane(house.repository, tmp_path / "next").apply(change, 2))
    assert applied.found == pushed
    assert house.log("%s") == ["begin", "Fix b1"]

    # What the killed one had begun goes on now, and comes too late.
    group = reached.read_text().strip()
    assert goes_on(group)
    (tmp_path / "gate.open").touch()
    wait(lambda: not goes_on(group))
    assert house.log("%s") == ["begin", "Fix b1"]
    assert house.head() == applied.commit
    told = asyncio.run(Lane(house.repository, tmp_path / "next").apply(change, 3))
    assert (told.commit, told.found) == (applied.commit, True)

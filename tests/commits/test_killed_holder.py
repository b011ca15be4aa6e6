"""A holder that is killed in the middle, with what it left running: the next one commits, once, and
what comes late is refused by the repository."""

import asyncio
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.commits.sample_repository import SampleRepository, run_async, wait_for_process

from handrail.commits import CommitLane

FIXED = {"app.py": "def total(n):\n    return n + 1\n"}
HOLDER = """
import asyncio, sys, msgspec
from handrail.commits import ApprovedChange, CommitLane, Repository
change = msgspec.json.decode(sys.stdin.read(), type=ApprovedChange)
lane = CommitLane(Repository(url=sys.argv[1]), sys.argv[2])
print(asyncio.run(lane.apply(change, 1)).commit)
"""


@pytest.mark.requirement("L12.5", "L16")
@pytest.mark.parametrize("moment", ["pre-commit", "pre-push", "post-receive"])
def test_a_holder_that_is_killed_leaves_one_commit_all_the_same(moment: str, tmp_path: Path):
    sample = SampleRepository(tmp_path)
    change = run_async(sample.change("b1", FIXED))
    sample.put_gates()
    gate = sample.gates[moment]
    gate.shut()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(sample.bare), str(tmp_path / "killed")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert holder.stdin is not None
    holder.stdin.write(msgspec.json.encode(change))
    holder.stdin.close()
    wait_for_process(lambda: gate.reached)
    holder.kill()
    holder.wait()
    for pipe in (holder.stdout, holder.stderr):
        pipe.close()  # type: ignore[union-attr]
    pushed = moment == "post-receive"
    assert sample.log("%s") == ["begin", *(["Fix b1"] if pushed else [])]

    applied = asyncio.run(CommitLane(sample.repository, tmp_path / "next").apply(change, 2))
    assert applied.already_pushed == pushed
    assert sample.log("%s") == ["begin", "Fix b1"]

    assert gate.goes_on
    gate.open()  # what the killed one had begun goes on now, and comes too late
    assert sample.log("%s") == ["begin", "Fix b1"]
    assert sample.head() == applied.commit
    told = asyncio.run(CommitLane(sample.repository, tmp_path / "next").apply(change, 3))
    assert (told.commit, told.already_pushed) == (applied.commit, True)

"""Programs as agents: real processes, and none of them left when their turn is over."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from tests.agents.agent_runs import FIX, PAIR, failure_text, run_agent
from tests.engine.engines import ANA, manual_engine, run_async, start_run, wait_until_async

from handrail.agents.commands import CommandLimits
from handrail.agents.dispatch_input import AgentFunction
from handrail.agents.program import program_agent
from handrail.testing.clock import ManualClock

Script = Callable[..., AgentFunction]
PARENT = """
    import os, signal, subprocess, sys, time
    if {deaf}:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = '''
    import subprocess
    below = subprocess.Popen(["sleep", "600"])
    print(below.pid, flush=True)
    below.wait()'''
    below = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE, text=True)
    pids = [os.getpid(), below.pid, int(below.stdout.readline())]
    with open("pids.tmp", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.rename("pids.tmp", "pids")
    {then}
"""
"""A program with a child and a grandchild, which says who they are in a file."""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """An agent that is this piece of Python."""

    def agent(text: str, **more: Any) -> AgentFunction:
        (tmp_path / "agent.py").write_text(dedent(text))
        return program_agent(sys.executable, "agent.py", folder=tmp_path, **more)

    return agent


def alive(pid: int) -> bool:
    """Whether it still runs; one that has ended and nobody has asked for yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def family(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


@pytest.mark.requirement("L9.6")
def test_a_program_is_given_the_dispatch_and_prints_a_result(script: Script):
    agent = script(
        """
        import json, sys
        dispatch = json.load(sys.stdin)
        assert dispatch["allowed"]["outcomes"] == ["success", "failure", "ask"]
        found = {"seen": dispatch["bead"]["title"], "place": dispatch["node"]}
        used = {"tokens": 7}
        print(json.dumps({"outcome": "success", "text": "done", "data": found, "usage": used}))
        """
    )
    run = run_agent(agent)
    assert run.terminal_status == "done_success"
    assert (run.context["seen"], run.context["place"]) == ("500 on /invoices", "fix")
    assert run.ledger.tokens == 7


def test_a_text_is_a_success_at_a_node_and_the_text_protocols_business_in_a_team(script: Script):
    assert run_agent(script("print('fixed')")).terminal_status == "done_success"
    agent = script(
        """
        import json, sys
        me = json.load(sys.stdin)["agent"]
        print("ok")
        print("HANDOFF: closer: done" if me == "asker" else "TERMINATE_WORKFLOW: all is well")
        """
    )
    run = run_agent(agent, PAIR, "asker", "closer")
    assert run.terminal_status == "done_success"
    assert run.stop is not None
    assert run.stop.reason == "all is well"


def test_a_program_that_fails_is_told_with_its_last_words(script: Script):
    agent = script(
        """
        import sys
        print("one\\ntwo\\nthree\\nfour\\nfive\\nno disk", file=sys.stderr)
        sys.exit(3)
        """
    )
    text = failure_text(agent)
    assert "agent.py' of 'fix' exited with 3; it should exit with 0" in text
    assert "It said: two | three | four | five | no disk" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('print(\'{"outcome": "perhaps"}\')', "printed what is no result"),
        ("print('{oops')", "printed what is no result"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", "printed what is no result"),
        ("import os; os.abort()", "was killed by SIGABRT"),
        ("x = bytearray(10**9)", "MemoryError"),
        ("while True: print('x' * 1000)", "was ended after 20000 bytes of output"),
        ("while True: pass", "was ended after 1 s; give it more time, or less to do"),
    ],
)
def test_what_is_no_result_or_beyond_a_limit_costs_the_attempt(
    script: Script, text: str, said: str
):
    limits = CommandLimits(seconds=1, output_bytes=20_000, memory_bytes=500_000_000)
    assert said in failure_text(script(text, limits=limits))


def test_a_program_that_is_not_there_is_told(tmp_path: Path):
    assert "exited with 127" in failure_text(program_agent("no-such-program", folder=tmp_path))
    with pytest.raises(ValueError, match="needs a command"):
        program_agent()


def test_a_program_sees_the_variables_that_are_named_and_no_other(
    script: Script, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HANDRAIL_TOKEN", "hr-secret-0123456789")
    monkeypatch.setenv("WANTED", "yes")
    text = """
        import json, os
        seen = {name: os.environ.get(name) for name in ("HANDRAIL_TOKEN", "WANTED", "HOME")}
        seen["PATH"] = "PATH" in os.environ
        print(json.dumps({"outcome": "success", "data": {"seen": seen}}))
        """
    run = run_agent(script(text, variables=["WANTED", "NOT_SET"]))
    assert run.context["seen"] == {"WANTED": "yes", "PATH": True}, "null removes"


def test_no_secret_of_ours_is_told(script: Script, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVICE_TOKEN", "hr-secret-0123456789")
    text = "import os; raise SystemExit('no entry with ' + os.environ['SERVICE_TOKEN'])"
    said = failure_text(script(text, variables=["SERVICE_TOKEN"]))
    assert "no entry with ***" in said


@pytest.mark.parametrize(
    ("then", "deaf"),
    [("time.sleep(600)", False), ("time.sleep(600)", True), ("print('done')", False)],
    ids=["told to stop", "deaf to SIGTERM", "ended, its children not"],
)
def test_nothing_of_a_program_outlives_its_turn(
    script: Script, tmp_path: Path, then: str, deaf: bool
):
    agent = script(PARENT.format(then=then, deaf=deaf))

    async def play():
        async with manual_engine("sqlite://", ManualClock()) as engine:
            engine.add_agent(agent, "backend-engineer")
            run = await start_run(engine, FIX)
            await wait_until_async((tmp_path / "pids").exists)
            pids = family(tmp_path)
            if "sleep" in then:
                assert all(map(alive, pids))
                await run.close(by=ANA, reason="no longer needed")
            await run.result(60)
            await wait_until_async(lambda: not any(map(alive, pids)))

    run_async(play())


def test_a_program_that_takes_too_long_takes_its_children_with_it(script: Script, tmp_path: Path):
    limits = CommandLimits(seconds=8)  # its children are there after one, if nobody else works
    agent = script(PARENT.format(then="time.sleep(600)", deaf=False), limits=limits)
    assert "was ended after 8 s" in failure_text(agent)
    assert not any(map(alive, family(tmp_path)))


def test_an_engine_that_closes_leaves_no_program_behind(script: Script, tmp_path: Path):
    agent = script(PARENT.format(then="time.sleep(600)", deaf=False))

    async def play():
        async with manual_engine("sqlite://", ManualClock()) as engine:
            engine.add_agent(agent, "backend-engineer")
            await start_run(engine, FIX)
            await wait_until_async((tmp_path / "pids").exists)
        await wait_until_async(lambda: not any(map(alive, family(tmp_path))))

    run_async(play())


def test_the_processes_of_this_test_can_be_seen():
    assert alive(os.getpid())
    assert not alive(2**22 + 1)

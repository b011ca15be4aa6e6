"""Flows and agents of CrewAI under guard, the same mistakes as in the other frameworks, the command
line, people, and the page; in the environment of test_crewai.py.
"""

import ast
import asyncio
import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.same_mistake.scenes import SCENES, Scene, Script
from crewai import Crew
from crewai.flow import Flow, listen, or_, router, start
from crewai.tools import tool
from tests.client.live_server import Server
from tests.frameworks.crewai_stubs import (
    DONE,
    Stub,
    acts,
    agent,
    calls,
    crew,
    delegates,
    handoffs,
    look,
    run,
    says,
    task,
)
from tests.patience import PATIENCE

from handrail import Guard, LoopDetected, NoProgress, Stopped, StopRules
from handrail.cli import main
from handrail.client.clients import Client
from handrail.guard import crewai as adapter
from handrail.guard import server_recorder
from handrail.guard.crewai import guarded
from handrail.guard.detection import wrap_team

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAIR, CYCLE, GROWING, LONG = SCENES
PAUSE = 0.05
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _everything_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "EVENT_FLUSH_SECONDS", PATIENCE)


class Writing(Flow):
    """A router that goes round for ever, the commonest loop there is."""

    @start("again")
    def write(self) -> str:
        return "draft"

    @router(write)
    def review(self) -> str:
        return "again"


def test_a_router_that_goes_round_for_ever_is_stopped():
    for kickoff in (
        lambda one: one.kickoff(),
        lambda one: run(one.kickoff_async()),
        lambda one: run(one.akickoff()),
    ):
        guard = Guard()
        with pytest.raises(LoopDetected) as caught:
            kickoff(guarded(Writing(), guard))
        assert caught.value.stop.pattern == ("write -> review", "review -> write")
        assert handoffs(guard) == [("write", "review"), ("review", "write")] * 3
        assert caught.value.partial == ["draft", "again"] * 3
    assert guard.last.name == "Writing"


def test_methods_beside_each_other_are_handed_to_by_the_one_that_triggered_them():
    class Fans(Flow):
        @start()
        def first(self) -> str:
            return "go"

        @listen(first)
        def left(self) -> str:
            return "l"

        @listen(first)
        async def right(self) -> str:
            await asyncio.sleep(0)
            return "r"

        @listen(left)
        def last(self) -> str:
            return "done"

    guard = Guard()
    assert guarded(Fans(), guard).kickoff() in ("done", "r")
    assert sorted(handoffs(guard)) == [("first", "left"), ("first", "right"), ("left", "last")]


def test_a_flow_stopped_in_one_branch_leaves_no_other_branch_going_on():
    waited = []

    class Branches(Flow):
        @start()
        async def slow(self) -> None:
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                waited.append("ended")

        @start()
        def first(self) -> None: ...

        @listen(or_(first, "again"))
        def write(self) -> str:
            return "draft"

        @router(write)
        def review(self) -> str:
            return "again"

    with pytest.raises(LoopDetected) as caught:
        run(guarded(Branches()).kickoff_async())
    assert caught.value.stop.pattern == ("write -> review", "review -> write")
    assert waited == ["ended"]


def test_a_crew_and_an_agent_inside_a_method_are_called_after_it():
    planner, coder = agent("planner", says("a")), agent("coder", says("b"))
    alone = agent("critic", lambda n: acts("look", where="x"), tools=[look])

    class Nested(Flow):
        @start()
        def work(self) -> str:
            return "".join(crew(planner, coder).kickoff().raw for _ in range(4))

        @listen(work)
        def check(self) -> str:
            return str(alone.kickoff("check it").raw)

    guard = Guard()
    with pytest.raises(NoProgress) as caught:
        guarded(Nested(), guard).kickoff()
    assert handoffs(guard) == [("work/planner", "work/coder"), ("work", "check")]
    assert caught.value.stop.agent == "check/critic"
    assert caught.value.partial == ["bbbb"]
    assert guard.last.report().usage.tokens == 8 * 10 + 4 * 10


def test_a_guarded_crew_inside_a_guarded_flow_is_a_run_of_its_own():
    inner, outer = Guard(), Guard()
    team = guarded(crew(agent("planner", says("a")), agent("coder", says("b"))), inner)

    class Nested(Flow):
        @start()
        def work(self) -> str:
            return team.kickoff().raw

    assert guarded(Nested(), outer).kickoff() == "b"
    assert (handoffs(inner), handoffs(outer)) == ([("planner", "coder")], [])
    assert inner.last.report().usage.tokens == 20
    assert outer.last.report().usage.tokens == 0


def test_an_error_of_a_flow_s_own_passes_through():
    class Breaks(Flow):
        @start()
        def work(self) -> None:
            raise KeyError("mine")

    guard = Guard()
    with pytest.raises(KeyError, match="mine"):
        guarded(Breaks(), guard).kickoff()
    assert guard.last.stop.rule == "agent_lost"


def test_an_agent_alone_is_guarded_too():
    guard = Guard()
    one = agent("seeker", lambda n: acts("look", where="x"), tools=[look])
    with pytest.raises(NoProgress):
        guarded(one, guard).kickoff("find it")
    assert guard.last.report().totals.handoffs == 0
    one.llm.says = says("found")
    assert guarded(one, guard).kickoff("find it").raw == "found"
    assert run(guarded(one, guard).kickoff_async("find it")).raw == "found"


# The same mistakes as in the other frameworks


def scene(script: Script) -> Flow:
    """A flow whose methods send each other on; each asks an agent."""

    @tool("save")
    def save(section: int) -> str:
        """Saves a section."""
        return f"section {section} is saved"

    def method(name: str) -> Any:
        def answers(number: int) -> Any:
            section = script.wants_to_save(name)
            return calls("save", {"section": section}) if section else script.text()

        one = agent(name, answers, native=True, tools=[save])
        one.llm.cost = script.answer

        def turn(self: Any) -> str:
            one.kickoff("go")
            return f"to {script.next() or 'nobody'}"

        turn.__name__ = name
        begins = start if name == script.agent(0) else listen
        return router()(begins(f"to {name}")(turn))

    return type("Scene", (Flow,), {name: method(name) for name in script.scene.agents})()


@pytest.mark.parametrize(("which", "count"), [(PAIR, 6), (CYCLE, 9), (GROWING, 6)])
def test_it_is_stopped_at_the_same_handoff_with_the_same_reason(which: Scene, count: int):
    script = Script(which)
    with pytest.raises(LoopDetected) as caught:
        guarded(scene(script)).kickoff()
    stop, report = caught.value.stop, caught.value.run.report()
    ways = [*zip(which.agents, (*which.agents[1:], which.agents[0]), strict=True)]
    assert stop.pattern == tuple(f"{source} -> {target}" for source, target in ways)
    assert report.totals.handoffs == count
    assert report.why.startswith("Stuck: ")
    assert report.usage.tokens == script.tokens


def test_a_long_run_that_makes_progress_ends_as_it_does_without_a_guard():
    bare = Script(LONG)
    told = scene(bare).kickoff()
    script, guard = Script(LONG), Guard()
    assert guarded(scene(script), guard).kickoff() == told
    assert (script.handoffs, script.saved, script.tokens) == (16, bare.saved, bare.tokens)
    report = guard.last.report()
    assert (report.terminal_status, report.usage.tokens) == ("done_success", script.tokens)


def test_what_models_used_is_counted_and_the_budget_is_kept():
    guard = Guard(StopRules(repeat_limit=None, max_edge=None, max_tokens=55))
    script = Script(PAIR)
    with pytest.raises(Stopped) as caught:
        guarded(scene(script), guard).kickoff()
    assert (caught.value.stop.rule, caught.value.stop.seen) == ("budget", 60)


# From the command line, and on record

TEAM = """
from tests.frameworks.crewai_stubs import agent, crew, says
from tests.frameworks.test_crewai_flows import Writing

crew_of_two = crew(agent("planner", says("a")), agent("coder", says("b")))
flow = Writing()
writer = agent("writer", says("hello"))
"""


def test_somebody_s_team_is_guarded_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "their_crew.py").write_text(TEAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    database = f"sqlite:///{tmp_path / 'work.db'}"

    def shown(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            monkeypatch.setattr(sys, "argv", ["handrail", *words, "--database", database])
            main()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out + told.err

    code, told = shown("guard", "their_crew:crew_of_two", "--input", "ticket 4711")
    assert (code, "b" in told) == (0, True)
    assert shown("guard", "their_crew:writer", "--input", "hi")[0] == 0
    code, told = shown("guard", "their_crew:flow", "--input", "{}")
    assert (code, "repeated_pattern" in told) == (1, True)
    code, told = shown("runs", "--json")
    items = {one["terminal_status"]: one["id"] for one in json.loads(told)["items"]}
    assert sorted(items) == ["aborted_stuck", "done_success"]
    assert "repeated_pattern" in shown("replay", items["aborted_stuck"], "--rules", "yolo")[1]
    assert shown("verify")[0] == 0


@contextmanager
def somebody(server: Server, *answers: str) -> Iterator[list[str]]:
    """Answers what is asked, in turn. What was asked is in the list."""
    asked: list[str] = []
    token, over = server.token("ceo", "ann"), threading.Event()

    def answer() -> None:
        with Client(server.url, token) as client:
            left = list(answers)
            while left and not over.wait(PAUSE):
                for one in client.approvals.list(status="open").items:
                    asked.append(one.question)
                    said = left.pop(0)
                    decided = {"decision": said} if said in ("approve", "reject") else {}
                    client.approvals.answer(one.id, **(decided or {"text": said}))

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield asked
    finally:
        over.set()
        thread.join(PATIENCE)


def test_human_input_of_a_task_is_a_question_in_the_inbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_recorder, "FLUSH_SECONDS", PATIENCE)
    with Server(f"sqlite:///{tmp_path / 'work.db'}") as server:
        token = server.token("operator", "program")
        guard = Guard(record=server.url, token=token, answer_seconds=3 * PATIENCE)
        for kickoff in (lambda one: one.kickoff(), lambda one: run(one.akickoff())):
            writer = agent("writer", lambda n: DONE.format(f"draft {n}"))
            team = Crew(agents=[writer], tasks=[task(writer, human_input=True)])
            with somebody(server, "shorter, please", "approve") as asked:
                assert kickoff(guarded(team, guard)).raw == "draft 2"
            assert asked == ["writer answers: draft 1", "writer answers: draft 2"]
        with somebody(server, "reject"), pytest.raises(Stopped) as caught:
            guarded(team, guard).kickoff()
        assert caught.value.stop.rule == "closed"


def test_a_team_is_known_by_where_it_comes_from():
    team = crew(agent("planner", says("a")))
    assert wrap_team(team, Guard(), "team")("go").raw == "a"


def test_the_example_of_the_page_prints_what_it_says(capsys: pytest.CaptureFixture[str]):
    sources = re.findall(r"```python\n(.*?)```", (DOCS / "guard-crewai.md").read_text(), re.S)
    assert len(sources) == 2
    for source in sources:
        model = Stub(model="stub", says=lambda n: delegates(n) if n % 2 else DONE.format("ok"))
        page = {"model": model, "__name__": "page"}
        exec(compile(ast.parse(source), "guard-crewai.md", "exec"), page)
        said = re.findall(r"^ *#> (.*)$", source, flags=re.M)
        shown = [line for line in capsys.readouterr().out.splitlines() if line in said]
        assert shown == said

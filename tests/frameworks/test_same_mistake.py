"""The same mistakes in every framework: the same stop, the same explanation."""

import asyncio
import importlib

import pytest
from benchmarks.same_mistake.scenes import SCENES, Script

from handrail import Guard, LoopDetected, Stopped, StopRules

FRAMEWORKS = (
    "plain",
    "langgraph",
    "strands",
    "openai_agents",
    "pydantic_ai",
    "autogen",
    "agent_framework",
)
PAIR, CYCLE, GROWING, LONG = SCENES


@pytest.fixture(params=FRAMEWORKS)
def framework(request):
    return importlib.import_module(f"benchmarks.same_mistake.{request.param}")


@pytest.mark.parametrize(("scene", "handoffs"), [(PAIR, 6), (CYCLE, 9), (GROWING, 6)])
def test_every_framework_is_stopped_at_the_same_handoff_with_the_same_reason(
    framework, scene, handoffs
):
    script = Script(scene)
    with pytest.raises(LoopDetected) as caught:
        framework.guarded(script, Guard())
    stop, report = caught.value.stop, caught.value.run.report()
    ways = [*zip(scene.agents, (*scene.agents[1:], scene.agents[0]), strict=True)]
    assert stop.pattern == tuple(f"{source} -> {target}" for source, target in ways)
    assert report.totals.handoffs == handoffs
    assert report.why.startswith("Stuck: ")
    lets_come_to_its_end = framework.__name__.endswith("autogen")
    assert script.handoffs <= handoffs + lets_come_to_its_end


def test_a_long_run_that_makes_progress_ends_as_it_does_without_a_guard(framework):
    bare = Script(LONG, far=1_000)
    told = framework.bare(bare)
    script, guard = Script(LONG), Guard()
    assert framework.guarded(script, guard) == told
    assert (script.handoffs, script.saved, script.tokens) == (16, bare.saved, bare.tokens)
    assert guard.last.report().terminal_status == "done_success"


def test_what_models_used_is_counted_and_the_budget_is_kept(framework):
    guard = Guard(StopRules(repeat_limit=None, max_edge=None, max_tokens=55))
    script = Script(PAIR)
    with pytest.raises(Stopped) as caught:
        framework.guarded(script, guard)
    assert caught.value.stop.rule == "budget"
    assert caught.value.stop.seen == 60
    assert script.tokens <= 80  # what had begun when the sixth answer was told


def test_tools_are_told_with_digests_of_what_they_were_given_and_returned(framework):
    guard, script = Guard(), Script(LONG)
    framework.guarded(script, guard)
    seen = [event.result.evidence for event in guard.last.events if hasattr(event, "result")]
    files = [one for evidence in seen for one in (evidence.files or {}).items()]
    assert {path.partition(":")[0] for path, _ in files} == {"tools"}
    assert len(files) == len(set(files)) == script.saved
    assert {check.command for evidence in seen for check in evidence.checks} == {"save"}


def test_a_team_can_be_run_again_after_a_stop(framework):
    for _ in range(2):
        with pytest.raises(LoopDetected):
            framework.guarded(Script(PAIR), Guard())


@pytest.mark.parametrize("name", ["openai_agents", "autogen", "agent_framework"])
def test_nothing_is_left_running_after_a_stop(name):
    framework = importlib.import_module(f"benchmarks.same_mistake.{name}")
    script = Script(PAIR)
    made = {
        "openai_agents": lambda: framework.first(script),
        "autogen": lambda: framework.team(script),
        "agent_framework": lambda: framework.workflow(script),
    }[name]
    begin = {"task": "begin"} if name == "autogen" else {}

    async def run() -> set:
        team = framework.adapter.guarded(made())
        with pytest.raises(LoopDetected):
            await (team.run(**begin) if begin else team.run("begin"))
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run()) == set()

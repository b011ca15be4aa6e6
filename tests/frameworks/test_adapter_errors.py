"""An error in what an adapter reads of its framework never reaches the program."""

from typing import Any

import pytest
from benchmarks.same_mistake import agent_framework, autogen, pydantic_ai, strands
from benchmarks.same_mistake.scenes import SCENES, Script

from handrail import Guard, LimitReached, StopRules

PAIR, LONG = SCENES[0], SCENES[3]


def broken(*given: object, **options: object) -> Any:
    raise KeyError("an attribute that this version of the framework does not have")


HOOKS = (
    (strands, "_begin_node"),
    (strands, "_activate_agent"),
    (strands, "_model_call"),
    (strands, "_record_tool"),
    (autogen, "_MessageRecorder"),
    (autogen, "_MessageRecorder.record_message"),
    (autogen, "_MessageRecorder.deliver_nudge"),
    (pydantic_ai, "_NodeRecorder.record_node"),
    (pydantic_ai, "declares_effect"),
    (agent_framework, "_add_hooks"),
    (agent_framework, "_WorkflowRun.begin_call"),
    (agent_framework, "_record_sent_answers"),
)


def break_hook(monkeypatch: pytest.MonkeyPatch, framework: Any, name: str) -> None:
    owner, _, attribute = name.rpartition(".")
    target = getattr(framework.adapter, owner) if owner else framework.adapter
    monkeypatch.setattr(target, attribute, broken)


@pytest.mark.parametrize(("framework", "hook"), HOOKS, ids=lambda value: str(value)[-30:])
def test_a_program_runs_as_without_a_guard_whatever_fails_in_the_guard(
    framework, hook, monkeypatch
):
    bare, guarded, guard = (
        Script(LONG, far=100),
        Script(LONG, far=100),
        Guard(StopRules(max_steps=500)),
    )
    framework.bare(bare)
    break_hook(monkeypatch, framework, hook)
    framework.guarded(guarded, guard)
    assert (guarded.steps, guarded.handoffs, guarded.saved) == (
        bare.steps,
        bare.handoffs,
        bare.saved,
    )


@pytest.mark.parametrize(
    ("framework", "hook"),
    [
        (strands, "_activate_agent"),
        (autogen, "_MessageRecorder.record_message"),
        (pydantic_ai, "_NodeRecorder.record_node"),
        (agent_framework, "_WorkflowRun.begin_call"),
    ],
    ids=lambda value: str(value)[-30:],
)
def test_a_hard_limit_ends_a_run_of_which_the_adapter_sees_nothing(framework, hook, monkeypatch):
    guard, script = Guard(StopRules(max_steps=8)), Script(PAIR, far=100)
    break_hook(monkeypatch, framework, hook)
    with pytest.raises(LimitReached) as caught:
        framework.guarded(script, guard)
    assert caught.value.stop.rule == "max_steps"
    assert script.steps <= 12
    assert guard.last.report().unguarded


def test_an_unsupported_version_is_refused_before_the_run(monkeypatch):
    for framework in (strands, autogen, pydantic_ai, agent_framework):
        monkeypatch.setattr(framework.adapter, "require_version", broken)
    with pytest.raises(KeyError):
        strands.adapter.guarded(strands.swarm(Script(PAIR)))
    with pytest.raises(KeyError):
        autogen.adapter.guarded(autogen.team(Script(PAIR)))
    with pytest.raises(KeyError):
        pydantic_ai.adapter.guarded(pydantic_ai.agent(Script(PAIR), "planner"))
    with pytest.raises(KeyError):
        agent_framework.adapter.guarded(agent_framework.workflow(Script(PAIR)))

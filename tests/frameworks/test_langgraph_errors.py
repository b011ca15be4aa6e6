"""No error of the guard itself reaches a graph, in any of the forms of the guard."""

import asyncio

import pytest
from langchain_core.messages import AIMessage
from langgraph.types import interrupt
from tests.frameworks.langgraph_agents import (
    INPUT,
    Till,
    asks,
    endless_model,
    model_of,
    paying_agent,
    thread,
    tool_call,
)
from tests.frameworks.test_langgraph import asking, node_that

from handrail import Guard, LimitReached, StopRules
from handrail.guard import framework_versions
from handrail.guard.adapter import RunWatch
from handrail.guard.langgraph import callbacks, guarded, nodes

FORMS = {
    "guarded": lambda till, model, guard: guarded(paying_agent(till, model), guard),
    "callback": lambda till, model, guard: paying_agent(till, model).with_config(
        callbacks=[guard.callback()]
    ),
    "middleware": lambda till, model, guard: paying_agent(till, model, guard.middleware()),
}
BROKEN = [
    (RunWatch, "begin_step"),
    (RunWatch, "record_answer"),
    (RunWatch, "record_tool_call"),
    (RunWatch, "activate"),
    (RunWatch, "deliver_nudge"),
    (callbacks, "read_tool_output"),
    (nodes.NodeTracker, "begin_node"),
    (nodes.ToolNodes, "is_outer"),
]


def raises(*args: object, **options: object) -> None:
    raise RuntimeError("an error of the guard")


@pytest.mark.parametrize(("owner", "name"), BROKEN)
@pytest.mark.parametrize("form", FORMS)
def test_a_program_runs_as_without_a_guard_whatever_fails_in_it(form, owner, name, monkeypatch):
    monkeypatch.setattr(owner, name, raises)
    for call in ("invoke", "ainvoke"):
        till, model = Till(), model_of(asks(tool_call(1)), AIMessage("done"))
        team = FORMS[form](till, model, Guard())
        result = getattr(team, call)(INPUT, thread())
        if call == "ainvoke":
            result = asyncio.run(result)
        assert result["messages"][-1].content == "done"
        assert till.payments == [5]


@pytest.mark.parametrize("form", ["callback", "middleware"])
def test_a_program_whose_run_cannot_begin_runs_without_a_guard(form, monkeypatch, caplog):
    monkeypatch.setattr(Guard, "run", raises)
    till, model = Till(), model_of(asks(tool_call(1)), AIMessage("done"))
    result = FORMS[form](till, model, Guard()).invoke(INPUT, thread())
    assert result["messages"][-1].content == "done"
    assert "a run could not begin, so it is not guarded" in caplog.messages


@pytest.mark.parametrize("form", FORMS)
def test_a_run_of_which_nothing_can_be_read_still_ends_at_its_hard_limit(form, monkeypatch):
    monkeypatch.setattr(RunWatch, "record_tool_call", raises)
    guard = Guard(StopRules(max_steps=10))
    with pytest.raises(LimitReached) as caught:
        FORMS[form](Till(), endless_model(), guard).invoke(INPUT, thread())
    assert caught.value.stop.rule == "max_steps"
    assert guard.last.report().unguarded


def test_an_error_of_the_guard_is_raised_where_that_is_wanted(monkeypatch):
    monkeypatch.setattr(nodes.NodeTracker, "begin_node", raises)
    for form in ("guarded", "callback"):
        with pytest.raises(RuntimeError, match="an error of the guard"):
            FORMS[form](Till(), endless_model(), Guard(on_error="raise")).invoke(INPUT, thread())


@pytest.mark.parametrize(
    "value",
    [
        {"action_requests": 5},
        {"action_requests": []},
        {"action_requests": [{"name": "pay"}]},
        {"action_requests": ["pay"], "review_configs": "all"},
        {"type": "tool_approval", "name": "pay"},
    ],
)
def test_an_interrupt_that_only_looks_like_langchains_is_asked_as_it_is(value):
    questions = []
    graph = node_that(lambda state: {"seen": [interrupt(value)]}).copy(
        {"checkpointer": asking().checkpointer}
    )
    team = guarded(graph, answer=lambda question: questions.append(question) or "yes")
    assert team.invoke({"seen": []}, thread())["seen"] == ["yes"]
    assert questions == [value]


def test_a_version_that_the_adapter_is_not_made_for_is_refused_at_once(monkeypatch):
    framework_versions._version_problem.cache_clear()
    monkeypatch.setattr(framework_versions.metadata, "version", lambda package: "0.6.11")
    guard = Guard()
    for wrap in (lambda: guarded(asking()), guard.callback, guard.middleware):
        with pytest.raises(ImportError, match=r"langgraph 0\.6\.11 cannot be guarded.*>=1\.2"):
            wrap()
    framework_versions._version_problem.cache_clear()

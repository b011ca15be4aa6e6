"""Guard Strands: a Swarm, a Graph or an agent, watched through its hooks, called as before.

    team = guarded(swarm)
    team("write the report")

A node is an agent. In a swarm the source of a handoff is the agent that handed over; in a graph it
is the dependency that ended last. An agent that is a tool of another gets the turn, and gives it
back. A refused node is cancelled before it runs; after a stop no model is asked, and no tool
called. The hooks stay with the team and do nothing outside a guarded call.

What a stop leaves: the framework's own result as it stands then (status FAILED for a node that was
cancelled), as `partial`.
"""

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any
from weakref import WeakKeyDictionary

from handrail.guard.adapter import (
    RunWatch,
    current_watch,
    import_framework,
    to_text,
    watching,
    watching_stream,
)
from handrail.guard.approvals import ASKS_PER_RUN_MAX, ask_person, ask_person_async
from handrail.guard.run import Guard
from handrail.guard.tool_calls import declares_effect
from handrail.kernel.run.state import Stop

EXTRA = "strands"
HANDOFF_TOOL = "handoff_to_agent"
NAME_ATTRIBUTE = "_handrail_name"
"""Holds the guard's name of an agent; an agent that has the attribute has the hooks."""
_agent_tool_calls: WeakKeyDictionary[RunWatch, dict[tuple[str, str], str]] = WeakKeyDictionary()
"""Agents that are being called as tools: by which agent, in which call."""


class GuardedStrandsTeam:
    """A Swarm or a Graph with a guard around it."""

    def __init__(self, team: Any, guard: Guard, name: str) -> None:
        self.team, self.guard, self.name = team, guard, name
        _add_hooks(team)

    def __call__(self, task: Any, **options: Any) -> Any:
        """Like `team(task)`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, task, _thread(self.team)) as watch:
            watch.partial = self.team(task, **options)
            for _ in range(ASKS_PER_RUN_MAX):
                interrupts = watch.partial.interrupts or ()
                replies = [ask_person(watch, _question_text(interrupt)) for interrupt in interrupts]
                if not replies or None in replies:
                    break
                watch.partial = self.team(_responses(interrupts, replies), **options)
        return watch.partial

    async def invoke_async(self, task: Any, **options: Any) -> Any:
        """Like `team.invoke_async(task)`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, task, _thread(self.team)) as watch:
            watch.partial = await self.team.invoke_async(task, **options)
            for _ in range(ASKS_PER_RUN_MAX):
                interrupts = watch.partial.interrupts or ()
                replies = [
                    await ask_person_async(watch, _question_text(interrupt))
                    for interrupt in interrupts
                ]
                if not replies or None in replies:
                    break
                responses = _responses(interrupts, replies)
                watch.partial = await self.team.invoke_async(responses, **options)
        return watch.partial

    async def stream_async(self, task: Any, **options: Any) -> AsyncIterator[Any]:
        """Like `team.stream_async(task)`; raises `Stopped` when a rule ends the run. An interrupt
        ends it.
        """
        with watching_stream(self.guard, self.name, task, _thread(self.team)) as watch:
            stream: Any = watch.iterate_async(self.team.stream_async(task, **options))
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    watch.partial = piece.get("result", watch.partial)
                    yield piece


def _thread(team: Any) -> str:
    """Return the id of the session that keeps the conversation; empty without a session manager."""
    manager = getattr(team, "session_manager", None) or getattr(team, "_session_manager", None)
    return getattr(manager, "session_id", "")


def _question_text(interrupt: Any) -> str:
    reason = interrupt.reason
    return f"{interrupt.name}: {to_text(reason)}" if reason is not None else interrupt.name


def _responses(interrupts: Any, replies: list[Any]) -> list[dict[str, Any]]:
    """Convert people's replies for the framework: their text, or True for a bare yes."""
    return [
        {"interruptResponse": {"interruptId": interrupt.id, "response": reply.text or True}}
        for interrupt, reply in zip(interrupts, replies, strict=True)
    ]


def guarded(team: Any, guard: Guard | None = None, *, name: str = "") -> GuardedStrandsTeam:
    return GuardedStrandsTeam(team, guard or Guard(), name or _default_name(team))


def _default_name(team: Any) -> str:
    """Return a team's id, or an agent's name."""
    return str(team.id if hasattr(team, "nodes") else team.name)


def _add_hooks(team: Any, name: str = "") -> None:
    """Add hooks to the team, the teams in it and their agents, once."""
    if hasattr(team, NAME_ATTRIBUTE):
        return
    setattr(team, NAME_ATTRIBUTE, name or _default_name(team))
    events = import_framework("strands.hooks", EXTRA)
    if hasattr(team, "nodes"):
        team.hooks.add_callback(events.BeforeNodeCallEvent, _before_node)
        for node_id, node in team.nodes.items():
            _add_hooks(node.executor, node_id)
        return
    for event, callback in AGENT_HOOKS.items():
        team.hooks.add_callback(getattr(events, event), callback)


def _before_node(event: Any) -> None:
    watch = current_watch.get()
    if watch is None:
        return
    setattr(event.source.nodes[event.node_id].executor, NAME_ATTRIBUTE, event.node_id)
    state = event.source.state
    order = getattr(state, "execution_order", None)
    reason = getattr(state, "handoff_message", None) or ""
    source = None if order is None else _last_dependency(event, order)
    stop = watch.activate(event.node_id, source=source, reason=reason)
    if stop is not None:
        event.cancel_node = f"{stop.rule}: {stop.reason}"


def _last_dependency(event: Any, order: list[Any]) -> str:
    """Return the dependency of this node that ended last; empty for an entry point."""
    dependency_ids = {node.node_id for node in event.source.nodes[event.node_id].dependencies}
    return next((node.node_id for node in reversed(order) if node.node_id in dependency_ids), "")


def _before_model(event: Any) -> None:
    watch = current_watch.get()
    stop = _activate_agent(watch, event.agent) if watch is not None else None
    if stop is not None:
        event.cancel = f"{stop.rule}: {stop.reason}"
    elif watch is not None:
        watch.deliver_nudge(functools.partial(_add_text, event.agent.messages))


def _add_text(messages: Any, text: str) -> None:
    """Add a text to what the model is given next, at the end of the last message to it."""
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"].append({"text": text})
    else:
        messages.append({"role": "user", "content": [{"text": text}]})


def _activate_agent(watch: RunWatch, agent: Any) -> Stop | None:
    """Continue the agent's turn, whichever others are at work; a single agent begins its own."""
    if not watch.active_agent:
        setattr(agent, NAME_ATTRIBUTE, agent.name)
        return watch.activate(agent.name)
    name: str = getattr(agent, NAME_ATTRIBUTE)
    return watch.begin_step() if watch.active_agent == name else watch.resume(name)


def _after_model(event: Any) -> None:
    watch, response = current_watch.get(), event.stop_response
    if watch is None or watch.stop is not None or response is None:
        return
    if watch.active_agent != getattr(event.agent, NAME_ATTRIBUTE):
        watch.resume(getattr(event.agent, NAME_ATTRIBUTE))
    text = "".join(part.get("text", "") for part in response.message["content"])
    usage = response.message.get("metadata", {}).get("usage", {})
    watch.record_answer(text=text, tokens=usage.get("totalTokens", 0))


def _before_tool(event: Any) -> None:
    watch = current_watch.get()
    if watch is None:
        return
    nested_agent = getattr(event.selected_tool, "agent", None)
    if nested_agent is not None and hasattr(nested_agent, "hooks"):
        _add_hooks(nested_agent)
        _activate_agent_tool(
            watch, getattr(event.agent, NAME_ATTRIBUTE), event.tool_use["toolUseId"], nested_agent
        )
    if watch.stop is not None:
        event.cancel_tool = f"{watch.stop.rule}: {watch.stop.reason}"


def _activate_agent_tool(watch: RunWatch, caller: str, call_id: str, agent: Any) -> None:
    """Give the turn to an agent that is a tool.

    Called several times at once, or after an interrupt, it keeps the turn.
    """
    calls = _agent_tool_calls.setdefault(watch, {})
    agent_name = calls.get((caller, call_id)) or agent.name
    if not any(
        other_caller == caller and name == agent_name for (other_caller, _), name in calls.items()
    ):
        setattr(agent, NAME_ATTRIBUTE, agent_name)
        watch.activate(agent_name, source=caller)
    calls[caller, call_id] = agent_name


def _after_tool(event: Any) -> None:
    watch, name = current_watch.get(), event.tool_use["name"]
    if watch is None:
        return
    caller: str = getattr(event.agent, NAME_ATTRIBUTE)
    nested_agent = _agent_tool_calls.get(watch, {}).pop((caller, event.tool_use["toolUseId"]), None)
    if nested_agent is not None and watch.active_agent != caller:
        watch.resume(caller)
    content = event.result.get("content", "")
    error = event.exception or (content if event.result.get("status") == "error" else None)
    if error is not None or name != HANDOFF_TOOL:  # a successful one shows when the other begins
        mcp_tool = getattr(getattr(event, "selected_tool", None), "mcp_tool", None)
        effect = declares_effect(getattr(mcp_tool, "annotations", None))
        watch.record_tool_call(name, event.tool_use["input"], content, error, effect=effect)


AGENT_HOOKS: dict[str, Callable[[Any], None]] = {
    "BeforeModelCallEvent": _before_model,
    "AfterModelCallEvent": _after_model,
    "BeforeToolCallEvent": _before_tool,
    "AfterToolCallEvent": _after_tool,
}

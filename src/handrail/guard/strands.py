"""Guard Strands: a Swarm, a Graph or an agent, watched through its hooks, called as before.

    team = guarded(swarm)
    team("write the report")

A node is an agent. In a swarm the source of a handoff is the agent that handed over; in a graph it
is the dependency that ended last. An agent that is a tool of another gets the turn, and gives it
back. A refused node is cancelled before it runs; after a stop no model is asked, and no tool
called. The hooks stay with the team and do nothing outside a guarded call. Of an agent without
hooks (a remote one, a class of the user's own) the answer is seen.

What a stop leaves: the framework's own result as it stands then (status FAILED for a node that was
cancelled), as `partial`.
"""

import functools
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, contextmanager
from typing import Any, cast
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
from handrail.guard.framework_object import FrameworkObject, first_argument
from handrail.guard.framework_versions import require_version
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard
from handrail.guard.tool_calls import declares_effect

EXTRA = "strands"
TASK_NAMES = ("task", "prompt")
"""What teams and agents call their first parameter."""
HANDOFF_TOOL = "handoff_to_agent"
NAME_ATTRIBUTE = "_handrail_name"
"""Holds the guard's name of an agent; an agent that has the attribute has the hooks."""
_agent_tool_calls: WeakKeyDictionary[RunWatch, dict[tuple[str, str], str]] = WeakKeyDictionary()
"""Agents that are being called as tools: by which agent, in which call."""


class GuardedStrandsTeam(FrameworkObject):
    """A Swarm, a Graph or an agent with a guard around it; in all else it is the team itself."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Like `team(task)`; raises `Stopped` when a rule ends the run."""
        with self._watching(watching, args, options) as watch:
            watch.partial = self.wrapped(*args, **options)
            for _ in range(ASKS_PER_RUN_MAX):
                interrupts = _interrupts(watch.partial)
                replies = [ask_person(watch, _question_text(interrupt)) for interrupt in interrupts]
                if not replies or None in replies:
                    break
                args, options = _answer_arguments(_responses(interrupts, replies), args, options)
                watch.partial = self.wrapped(*args, **options)
        return watch.partial

    async def invoke_async(self, *args: Any, **options: Any) -> Any:
        """Like `team.invoke_async(task)`; raises `Stopped` when a rule ends the run."""
        with self._watching(watching, args, options) as watch:
            watch.partial = await self.wrapped.invoke_async(*args, **options)
            for _ in range(ASKS_PER_RUN_MAX):
                responses = await _ask_people(watch)
                if responses is None:
                    break
                args, options = _answer_arguments(responses, args, options)
                watch.partial = await self.wrapped.invoke_async(*args, **options)
        return watch.partial

    async def stream_async(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        """Like `team.stream_async(task)`; raises `Stopped` when a rule ends the run. A person's
        answer to an interrupt continues the stream, and takes the place of the interrupt's result.
        """
        with self._watching(watching_stream, args, options) as watch:
            for asks_left in range(ASKS_PER_RUN_MAX, -1, -1):
                interrupt_piece = None
                stream: Any = watch.iterate_async(self.wrapped.stream_async(*args, **options))
                async with aclosing(stream) as pieces:
                    async for piece in pieces:
                        watch.partial = _result(piece, watch.partial)
                        if _interrupts(_result(piece)):
                            interrupt_piece = piece
                            continue
                        yield piece
                if interrupt_piece is None:
                    break
                responses = await _ask_people(watch) if asks_left else None
                if responses is None:
                    yield interrupt_piece
                    break
                args, options = _answer_arguments(responses, args, options)

    @contextmanager
    def _watching(
        self,
        watch_run: Callable[..., AbstractContextManager[RunWatch]],
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Generator[RunWatch]:
        task = first_argument(args, options, *TASK_NAMES)
        thread = functools.partial(_thread, self.wrapped)
        with watch_run(self.run_guard, self.run_name, task, thread) as watch:
            has_hooks = _has_hooks(self.wrapped)
            if not has_hooks:
                with watch.boundary:
                    watch.activate(self.run_name, source="")
            yield watch
            if not has_hooks and watch.partial is not None:
                with watch.boundary:
                    _record_result(watch, watch.partial)


def _thread(team: Any) -> str:
    """Return the id of the session that keeps the conversation; empty without a session manager."""
    manager = getattr(team, "session_manager", None) or getattr(team, "_session_manager", None)
    session_id = getattr(manager, "session_id", "")
    return session_id if isinstance(session_id, str) else ""


def _result(piece: Any, default: Any = None) -> Any:
    """Return the result that a stream's last piece brings."""
    return cast("Any", piece).get("result", default) if isinstance(piece, dict) else default


def _interrupts(result: Any) -> Sequence[Any]:
    """Return the open interrupts of a result; agents of the user's own may have no such field."""
    interrupts = getattr(result, "interrupts", None)
    return cast("Sequence[Any]", interrupts) if isinstance(interrupts, Sequence) else ()


async def _ask_people(watch: RunWatch) -> list[dict[str, Any]] | None:
    """Return people's responses to the open interrupts, if there are any and all are answered."""
    interrupts = _interrupts(watch.partial)
    replies = [await ask_person_async(watch, _question_text(interrupt)) for interrupt in interrupts]
    return None if not replies or None in replies else _responses(interrupts, replies)


def _answer_arguments(
    responses: list[dict[str, Any]], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of the call that resumes: responses in the place of the task."""
    options = {name: option for name, option in options.items() if name not in TASK_NAMES}
    return (responses, *args[1:]), options


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
    require_version(EXTRA)
    _add_hooks(team)
    return GuardedStrandsTeam(team, guard or Guard(), name or _default_name(team))


def _default_name(team: Any) -> str:
    """Return a team's id, or an agent's name, or else its class."""
    name = getattr(team, "id" if _nodes(team) else "name", None)
    return name if isinstance(name, str) and name else type(team).__name__


def _nodes(team: Any) -> Mapping[str, Any]:
    """Return the nodes of a Swarm or a Graph."""
    nodes = getattr(team, "nodes", None)
    return cast("Mapping[str, Any]", nodes) if isinstance(nodes, Mapping) else {}


def _has_hooks(executor: Any) -> bool:
    """Return whether the framework's hooks tell what an executor does. Remote agents, and classes
    of the user's own, have none; what they answer is known at their end.
    """
    registry_type: type[Any] = import_framework("strands.hooks", EXTRA).HookRegistry
    return isinstance(getattr(executor, "hooks", None), registry_type)


def _add_hooks(team: Any, name: str = "") -> None:
    """Add hooks to the team, the teams in it and their agents, once."""
    while isinstance(team, FrameworkObject):
        team = team.wrapped
    if NAME_ATTRIBUTE in getattr(team, "__dict__", ()) or not _has_hooks(team):
        return
    setattr(team, NAME_ATTRIBUTE, name or _default_name(team))
    events = import_framework("strands.hooks", EXTRA)
    if nodes := _nodes(team):
        team.hooks.add_callback(events.BeforeNodeCallEvent, _before_node)
        team.hooks.add_callback(events.AfterNodeCallEvent, _after_node)
        for node_id, node in nodes.items():
            _add_hooks(node.executor, node_id)
        return
    for event, callback in AGENT_HOOKS.items():
        team.hooks.add_callback(getattr(events, event), callback)


def _before_node(event: Any) -> None:
    watch = current_watch.get()
    if watch is None:
        return
    with watch.boundary:
        _begin_node(watch, event)
    if watch.stop is not None:
        event.cancel_node = f"{watch.stop.rule}: {watch.stop.reason}"


def _begin_node(watch: RunWatch, event: Any) -> None:
    executor = event.source.nodes[event.node_id].executor
    if _has_hooks(executor):
        setattr(executor, NAME_ATTRIBUTE, event.node_id)
    state = event.source.state
    order = getattr(state, "execution_order", None)
    reason = getattr(state, "handoff_message", None) or ""
    source = None if order is None else _last_dependency(event, order)
    watch.activate(event.node_id, source=source, reason=reason)
    watch.begin_call()


def _after_node(event: Any) -> None:
    """Record what a node answered that has no hooks of its own."""
    watch = current_watch.get()
    if watch is None:
        return
    with watch.boundary:
        if _has_hooks(event.source.nodes[event.node_id].executor):
            return
        node_result = event.source.state.results.get(event.node_id)
        if node_result is not None:
            if watch.active_agent != event.node_id:
                watch.resume(event.node_id)
            _record_result(watch, node_result)


def _record_result(watch: RunWatch, result: Any) -> None:
    """Record what an agent without hooks answered, and what it used."""
    metrics = getattr(result, "metrics", result)
    usage = getattr(metrics, "accumulated_usage", None)
    tokens = cast("Any", usage).get("totalTokens", 0) if isinstance(usage, Mapping) else 0
    watch.record_answer(text=str(result), tokens=tokens)


def _last_dependency(event: Any, order: list[Any]) -> str:
    """Return the dependency of this node that ended last; empty for an entry point."""
    dependency_ids = {node.node_id for node in event.source.nodes[event.node_id].dependencies}
    return next((node.node_id for node in reversed(order) if node.node_id in dependency_ids), "")


def _before_model(event: Any) -> None:
    watch = current_watch.get()
    if watch is None:
        return
    with watch.boundary:
        _activate_agent(watch, event.agent)
        watch.begin_call()
    if watch.stop is not None:
        event.cancel = f"{watch.stop.rule}: {watch.stop.reason}"
    else:
        watch.deliver_nudge(functools.partial(_add_text, event.agent.messages))


def _add_text(messages: Any, text: str) -> None:
    """Add a text to what the model is given next, at the end of the last message to it."""
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"].append({"text": text})
    else:
        messages.append({"role": "user", "content": [{"text": text}]})


def _activate_agent(watch: RunWatch, agent: Any) -> None:
    """Continue the agent's turn, whichever others are at work; a single agent begins its own."""
    if not watch.active_agent:
        setattr(agent, NAME_ATTRIBUTE, agent.name)
        watch.activate(agent.name)
    elif watch.active_agent == getattr(agent, NAME_ATTRIBUTE):
        watch.begin_step()
    else:
        watch.resume(getattr(agent, NAME_ATTRIBUTE))


def _after_model(event: Any) -> None:
    watch, response = current_watch.get(), event.stop_response
    if watch is None or watch.stop is not None or response is None:
        return
    with watch.boundary:
        if watch.active_agent != getattr(event.agent, NAME_ATTRIBUTE):
            watch.resume(getattr(event.agent, NAME_ATTRIBUTE))
        text = "".join(part.get("text", "") for part in response.message["content"])
        usage = response.message.get("metadata", {}).get("usage", {})
        watch.record_answer(text, usage.get("totalTokens", 0), _model_call(event.agent, usage))


def _model_call(agent: Any, usage: Any) -> ModelCall:
    """Return the call; some models count the tokens of a cache in the total only."""
    model: Any = agent.model
    config: Any = model.get_config()
    model_id: Any = config.get("model_id") if hasattr(config, "get") else ""
    output_tokens = usage.get("outputTokens", 0)
    input_tokens = max(usage.get("inputTokens", 0), usage.get("totalTokens", 0) - output_tokens)
    return ModelCall(
        model=str(model_id or ""),
        provider=type(model).__name__.removesuffix("Model").lower(),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cache_read_tokens=usage.get("cacheReadInputTokens", 0),
        cache_write_tokens=usage.get("cacheWriteInputTokens", 0),
    )


def _before_tool(event: Any) -> None:
    watch = current_watch.get()
    if watch is None:
        return
    with watch.tool_boundary:
        nested_agent = getattr(event.selected_tool, "agent", None)
        if nested_agent is not None and _has_hooks(nested_agent):
            caller: str = getattr(event.agent, NAME_ATTRIBUTE)
            _add_hooks(nested_agent)
            _activate_agent_tool(watch, caller, event.tool_use["toolUseId"], nested_agent)
        watch.begin_call(event.tool_use["name"])
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
    watch = current_watch.get()
    if watch is not None:
        with watch.tool_boundary:
            _record_tool(watch, event)


def _record_tool(watch: RunWatch, event: Any) -> None:
    name, caller = event.tool_use["name"], getattr(event.agent, NAME_ATTRIBUTE)
    nested_agent = _agent_tool_calls.get(watch, {}).pop((caller, event.tool_use["toolUseId"]), None)
    if nested_agent is not None and watch.active_agent != caller:
        watch.resume(caller)
    content = event.result.get("content", "")
    error = event.exception or (content if event.result.get("status") == "error" else None)
    if error is not None or name != HANDOFF_TOOL:  # a successful one shows when the other begins
        mcp_tool = getattr(event.selected_tool, "mcp_tool", None)
        effect = declares_effect(getattr(mcp_tool, "annotations", None))
        watch.record_tool_call(name, event.tool_use["input"], content, error, effect=effect)


AGENT_HOOKS: dict[str, Callable[[Any], None]] = {
    "BeforeModelCallEvent": _before_model,
    "AfterModelCallEvent": _after_model,
    "BeforeToolCallEvent": _before_tool,
    "AfterToolCallEvent": _after_tool,
}

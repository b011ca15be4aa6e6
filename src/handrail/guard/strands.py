"""Strands under guard: a Swarm or a Graph, watched through its hooks, called as before.

    team = guarded(swarm)
    team("write the report")

A node is an agent. In a swarm the one that handed over is the source; in a graph it is the node it
waited for that ended last. A node that is refused is cancelled before it runs, a model that would
be asked after a stop is not asked. The hooks stay with the team and do nothing outside a guarded
call.

What a stop leaves: the framework's own result as it stands then (status FAILED for a node that was
cancelled), as `partial`.
"""

from collections.abc import AsyncIterator, Callable

from handrail.guard import Guard
from handrail.guard.people import ASKS_MAX, ask, ask_async
from handrail.guard.watch import Theirs, current, framework, streaming, text_of, watching

EXTRA = "strands"
HANDOFF_TOOL = "handoff_to_agent"
MARK = "_handrail_hooked"


class GuardedTeam:
    """A Swarm or a Graph with a guard around it."""

    def __init__(self, team: Theirs, guard: Guard, name: str) -> None:
        self.team, self.guard, self.name = team, guard, name
        _hook(team)

    def __call__(self, task: Theirs, **options: Theirs) -> Theirs:
        """As `team(task)`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, task) as watch:
            watch.partial = self.team(task, **options)
            for _ in range(ASKS_MAX):
                wanted = watch.partial.interrupts
                said = [ask(watch, _question(one)) for one in wanted]
                if not said or None in said:
                    break
                watch.partial = self.team(_responses(wanted, said), **options)
        return watch.partial

    async def invoke_async(self, task: Theirs, **options: Theirs) -> Theirs:
        """As `team.invoke_async(task)`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, task) as watch:
            watch.partial = await self.team.invoke_async(task, **options)
            for _ in range(ASKS_MAX):
                wanted = watch.partial.interrupts
                said = [await ask_async(watch, _question(one)) for one in wanted]
                if not said or None in said:
                    break
                responses = _responses(wanted, said)
                watch.partial = await self.team.invoke_async(responses, **options)
        return watch.partial

    async def stream_async(self, task: Theirs, **options: Theirs) -> AsyncIterator[Theirs]:
        """As `team.stream_async(task)`; raises `Stopped` when a rule ends the run. An interrupt
        ends it."""
        with streaming(self.guard, self.name, task) as watch:
            async for piece in watch.drawn_async(self.team.stream_async(task, **options)):
                watch.partial = piece.get("result", watch.partial)
                yield piece


def _question(interrupt: Theirs) -> str:
    reason = interrupt.reason
    return f"{interrupt.name}: {text_of(reason)}" if reason is not None else interrupt.name


def _responses(wanted: Theirs, said: list[Theirs]) -> list[dict[str, Theirs]]:
    """What people said, as the framework takes it: their words, or True for a yes without any."""
    return [
        {"interruptResponse": {"interruptId": one.id, "response": reply.text or True}}
        for one, reply in zip(wanted, said, strict=True)
    ]


def guarded(team: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedTeam:
    return GuardedTeam(team, guard or Guard(), name or str(getattr(team, "id", "team")))


def _hook(team: Theirs) -> None:
    """Hooks for the team, the teams in it and their agents, once."""
    if getattr(team, MARK, False):
        return
    setattr(team, MARK, True)
    events = framework("strands.hooks", EXTRA)
    if hasattr(team, "nodes"):
        team.hooks.add_callback(events.BeforeNodeCallEvent, _node_begins)
        for node in team.nodes.values():
            _hook(node.executor)
        return
    for event, callback in AGENT_HOOKS.items():
        team.hooks.add_callback(getattr(events, event), callback)


def _node_begins(event: Theirs) -> None:
    watch = current.get()
    if watch is None:
        return
    state = event.source.state
    order = getattr(state, "execution_order", None)
    reason = getattr(state, "handoff_message", None) or ""
    source = None if order is None else _waited_for(event, order)
    stop = watch.turn(event.node_id, source=source, reason=reason)
    if stop is not None:
        event.cancel_node = f"{stop.rule}: {stop.reason}"


def _waited_for(event: Theirs, order: list[Theirs]) -> str:
    """Of the nodes that this one depends on, the one that ended last; none for an entry point."""
    needed = {node.node_id for node in event.source.nodes[event.node_id].dependencies}
    return next((node.node_id for node in reversed(order) if node.node_id in needed), "")


def _model_begins(event: Theirs) -> None:
    watch = current.get()
    stop = watch.step() if watch is not None else None
    if stop is not None:
        event.cancel = f"{stop.rule}: {stop.reason}"


def _model_ended(event: Theirs) -> None:
    watch, response = current.get(), event.stop_response
    if watch is None or watch.stop is not None or response is None:
        return
    text = "".join(part.get("text", "") for part in response.message["content"])
    usage = response.message.get("metadata", {}).get("usage", {})
    watch.answered(text=text, tokens=usage.get("totalTokens", 0))


def _tool_ended(event: Theirs) -> None:
    watch, name = current.get(), event.tool_use["name"]
    if watch is None or name == HANDOFF_TOOL:
        return
    content = event.result.get("content", "")
    failed = event.exception or (content if event.result.get("status") == "error" else None)
    watch.called(name, event.tool_use["input"], content, failed)


AGENT_HOOKS: dict[str, Callable[[Theirs], None]] = {
    "BeforeModelCallEvent": _model_begins,
    "AfterModelCallEvent": _model_ended,
    "AfterToolCallEvent": _tool_ended,
}

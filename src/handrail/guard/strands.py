"""Strands under guard: a Swarm, a Graph or an agent, watched through its hooks, called as before.

    team = guarded(swarm)
    team("write the report")

A node is an agent. In a swarm the one that handed over is the source; in a graph it is the node it
waited for that ended last. An agent that is a tool of another gets the turn, and gives it back. A
node that is refused is cancelled before it runs; a model that would be asked after a stop is not
asked, and a tool not called. The hooks stay with the team and do nothing outside a guarded call.

What a stop leaves: the framework's own result as it stands then (status FAILED for a node that was
cancelled), as `partial`.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from weakref import WeakKeyDictionary

from handrail.guard import Guard
from handrail.guard.people import ASKS_MAX, ask, ask_async
from handrail.guard.watch import Theirs, Watch, current, framework, streaming, text_of, watching
from handrail.kernel.run.state import Stop

EXTRA = "strands"
HANDOFF_TOOL = "handoff_to_agent"
NAME = "_handrail_name"
"""Where it is kept by which name the guard knows an agent; one that has it has the hooks."""
_asked: WeakKeyDictionary[Watch, dict[tuple[str, str], str]] = WeakKeyDictionary()
"""Agents that are being asked as tools: by whom, in which call."""


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
                wanted = watch.partial.interrupts or ()
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
                wanted = watch.partial.interrupts or ()
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
            drawn: Theirs = watch.drawn_async(self.team.stream_async(task, **options))
            async with aclosing(drawn) as pieces:
                async for piece in pieces:
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
    return GuardedTeam(team, guard or Guard(), name or _own_name(team))


def _own_name(team: Theirs) -> str:
    """A team's id; an agent is called by its name."""
    return str(team.id if hasattr(team, "nodes") else team.name)


def _hook(team: Theirs, name: str = "") -> None:
    """Hooks for the team, the teams in it and their agents, once."""
    if hasattr(team, NAME):
        return
    setattr(team, NAME, name or _own_name(team))
    events = framework("strands.hooks", EXTRA)
    if hasattr(team, "nodes"):
        team.hooks.add_callback(events.BeforeNodeCallEvent, _node_begins)
        for node_id, node in team.nodes.items():
            _hook(node.executor, node_id)
        return
    for event, callback in AGENT_HOOKS.items():
        team.hooks.add_callback(getattr(events, event), callback)


def _node_begins(event: Theirs) -> None:
    watch = current.get()
    if watch is None:
        return
    setattr(event.source.nodes[event.node_id].executor, NAME, event.node_id)
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
    stop = _at_work(watch, event.agent) if watch is not None else None
    if stop is not None:
        event.cancel = f"{stop.rule}: {stop.reason}"


def _at_work(watch: Watch, agent: Theirs) -> Stop | None:
    """The agent goes on with its turn, whoever else is at work; an agent alone begins its own."""
    if not watch.agent:
        setattr(agent, NAME, agent.name)
        return watch.turn(agent.name)
    name: str = getattr(agent, NAME)
    return watch.step() if watch.agent == name else watch.resume(name)


def _model_ended(event: Theirs) -> None:
    watch, response = current.get(), event.stop_response
    if watch is None or watch.stop is not None or response is None:
        return
    if watch.agent != getattr(event.agent, NAME):
        watch.resume(getattr(event.agent, NAME))
    text = "".join(part.get("text", "") for part in response.message["content"])
    usage = response.message.get("metadata", {}).get("usage", {})
    watch.answered(text=text, tokens=usage.get("totalTokens", 0))


def _tool_begins(event: Theirs) -> None:
    watch = current.get()
    if watch is None:
        return
    asked = getattr(event.selected_tool, "agent", None)
    if asked is not None and hasattr(asked, "hooks"):
        _hook(asked)
        _asks(watch, getattr(event.agent, NAME), event.tool_use["toolUseId"], asked)
    if watch.stop is not None:
        event.cancel_tool = f"{watch.stop.rule}: {watch.stop.reason}"


def _asks(watch: Watch, asker: str, call: str, agent: Theirs) -> None:
    """An agent that is a tool gets the turn. Asked several times at once, or after an interrupt, it
    has it."""
    calls = _asked.setdefault(watch, {})
    asked = calls.get((asker, call)) or agent.name
    if not any(by == asker and name == asked for (by, _), name in calls.items()):
        setattr(agent, NAME, asked)
        watch.turn(asked, source=asker)
    calls[asker, call] = asked


def _tool_ended(event: Theirs) -> None:
    watch, name = current.get(), event.tool_use["name"]
    if watch is None:
        return
    asker: str = getattr(event.agent, NAME)
    asked = _asked.get(watch, {}).pop((asker, event.tool_use["toolUseId"]), None)
    if asked is not None and watch.agent != asker:
        watch.resume(asker)
    content = event.result.get("content", "")
    failed = event.exception or (content if event.result.get("status") == "error" else None)
    if failed is not None or name != HANDOFF_TOOL:  # one that works is seen when the other begins
        watch.called(name, event.tool_use["input"], content, failed)


AGENT_HOOKS: dict[str, Callable[[Theirs], None]] = {
    "BeforeModelCallEvent": _model_begins,
    "AfterModelCallEvent": _model_ended,
    "BeforeToolCallEvent": _tool_begins,
    "AfterToolCallEvent": _tool_ended,
}

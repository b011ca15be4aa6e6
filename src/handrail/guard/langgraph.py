"""LangGraph under guard: a compiled graph, watched through callbacks, called as before.

    team = guarded(graph)
    team.invoke({"messages": [...]})

A node is an agent, and one that follows another is a handoff, however it was sent there: by an
edge, a `Command`, a `Send`. Nodes of one superstep are handed to by the same agent, each name once.
Nodes of subgraphs are called "outer/inner". A node that only runs tools (`ToolNode`) is no agent:
the agent that comes back after it goes on with its turn. A node that is refused does not run.

What a stop leaves: the state that the refused node was to be given, as `partial`; with a
checkpointer, the thread as it stood before that node.
"""

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from uuid import UUID

from handrail.guard import Guard
from handrail.guard.people import ASKS_MAX, ask, ask_async
from handrail.guard.watch import Theirs, Watch, framework, streaming, watching
from handrail.kernel.reading import is_mapping

EXTRA = "langgraph"
STEP_TAG = "graph:step:"
HEARD = ("chain", "llm", "chat_model", "agent")
"""Kinds of events; tools are among those of agents."""
UNHEARD = ("retriever", "retry", "custom_event")

Answer = Callable[[object], object]
"""From what an interrupt asks to what the graph is resumed with."""
Config = Mapping[str, Theirs] | None


class GuardedGraph:
    """A compiled graph with a guard around it. Whatever the graph can do else, ask the graph."""

    def __init__(self, graph: Theirs, guard: Guard, name: str, answer: Answer | None) -> None:
        self.graph, self.guard, self.name, self.answer = graph, guard, name, answer

    def invoke(self, given: object, config: Config = None, **options: Theirs) -> Theirs:
        """As `graph.invoke`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, given) as watch:
            configured = _watched(config, watch, self.graph)
            watch.partial = self.graph.invoke(given, configured, **options)
            for asked in _asked(watch):
                said = self._said(asked) or _reply(ask(watch, asked.value))
                if said is None:
                    break
                watch.partial = self.graph.invoke(_resume(asked, said), configured, **options)
        return watch.partial

    async def ainvoke(self, given: object, config: Config = None, **options: Theirs) -> Theirs:
        """As `graph.ainvoke`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, given) as watch:
            configured = _watched(config, watch, self.graph)
            watch.partial = await self.graph.ainvoke(given, configured, **options)
            for asked in _asked(watch):
                said = self._said(asked) or _reply(await ask_async(watch, asked.value))
                if said is None:
                    break
                resume = _resume(asked, said)
                watch.partial = await self.graph.ainvoke(resume, configured, **options)
        return watch.partial

    def stream(self, given: object, config: Config = None, **options: Theirs) -> Iterator[Theirs]:
        """As `graph.stream`; raises `Stopped` when a rule ends the run. An interrupt ends it."""
        with streaming(self.guard, self.name, given) as watch:
            configured = _watched(config, watch, self.graph)
            yield from watch.drawn(self.graph.stream(given, configured, **options))

    async def astream(
        self, given: object, config: Config = None, **options: Theirs
    ) -> AsyncIterator[Theirs]:
        """As `graph.astream`; raises `Stopped` when a rule ends the run. An interrupt ends it."""
        with streaming(self.guard, self.name, given) as watch:
            configured = _watched(config, watch, self.graph)
            async for piece in watch.drawn_async(self.graph.astream(given, configured, **options)):
                yield piece

    def _said(self, asked: Theirs) -> "_Said | None":
        return _Said(self.answer(asked.value)) if self.answer is not None else None


class _Said:
    """An answer, which may be anything, also nothing."""

    def __init__(self, value: object) -> None:
        self.value = value


def guarded(
    graph: Theirs,
    guard: Guard | None = None,
    *,
    name: str = "",
    answer: Answer | None = None,
) -> GuardedGraph:
    """`answer` is asked when the graph interrupts itself for a person; without it a person is asked
    through the server that records the run; without one the graph's own result says so, as ever."""
    return GuardedGraph(graph, guard or Guard(), name or graph.get_name(), answer)


def _asked(watch: Watch) -> Iterator[Theirs]:
    """What the graph asks, again and again, as often as people may be asked."""
    for _ in range(ASKS_MAX):
        result = watch.partial
        asked: Theirs = result.get("__interrupt__") if is_mapping(result) else None
        if not asked or watch.stop is not None:
            return
        yield asked[0]


def _reply(reply: Theirs) -> _Said | None:
    """A person's words; a yes without words is True."""
    return None if reply is None else _Said(reply.text or True)


def _resume(asked: Theirs, said: _Said) -> Theirs:
    return framework("langgraph.types", EXTRA).Command(resume={asked.id: said.value})


def _watched(config: Config, watch: Watch, graph: Theirs) -> dict[str, Theirs]:
    """The caller's configuration with the guard among its callbacks."""
    configured: dict[str, Theirs] = dict(config or {})
    handler = _handler()(watch, _ToolNodes(graph))
    held = configured.get("callbacks")
    if held is None or isinstance(held, list):
        configured["callbacks"] = [*(held or ()), handler]
    else:
        configured["callbacks"] = held = held.copy()
        held.add_handler(handler)
    return configured


class _ToolNodes:
    """Nodes that only run tools, of the graph and of those inside it. To look for graphs inside
    takes a while, so they are looked for when a node of one begins."""

    def __init__(self, graph: Theirs) -> None:
        self.graph = graph
        self.kind = framework("langgraph.prebuilt", EXTRA).ToolNode
        self.outer = {name for name, node in graph.nodes.items() if self._is(node)}

    def has(self, name: str, *, inside: bool) -> bool:
        return name in (self.inner if inside else self.outer)

    @functools.cached_property
    def inner(self) -> set[str]:
        found = set[str]()
        for outer, inner in self.graph.get_subgraphs(recurse=True):
            path = outer.replace("|", "/")
            found |= {f"{path}/{name}" for name, node in inner.nodes.items() if self._is(node)}
        return found

    def _is(self, node: Theirs) -> bool:
        return isinstance(node.bound, self.kind)


@functools.cache
def _handler() -> Theirs:
    """The class of callbacks; it can be made only where the framework is installed."""
    base = framework("langchain_core.callbacks", EXTRA).BaseCallbackHandler
    ways = {"raise_error": True, "run_inline": True}
    ways |= {f"ignore_{kind}": False for kind in HEARD}
    ways |= {f"ignore_{kind}": True for kind in UNHEARD}
    return type("HandrailGuard", (_Callbacks, base), ways)


class _Callbacks:
    """What the framework calls, and what the guard is told of it."""

    def __init__(self, watch: Watch, tool_nodes: _ToolNodes) -> None:
        self.watch, self.turns = watch, _Turns(watch, tool_nodes)
        self.tools: dict[UUID, tuple[str, object]] = {}

    def on_chain_start(self, serialized: object, inputs: object, **about: Theirs) -> None:
        for tag in about.get("tags") or ():
            if tag.startswith(STEP_TAG):
                self.turns.began(about["metadata"], inputs)

    def on_chat_model_start(self, *_: object, **about: object) -> None:
        self.watch.step()
        self.watch.check()

    on_llm_start = on_chat_model_start

    def on_llm_end(self, response: Theirs, **about: object) -> None:
        self.watch.answered(text=response.generations[0][0].text, tokens=_tokens(response))

    def on_tool_start(
        self,
        serialized: Mapping[str, Theirs] | None,
        given: str,
        *,
        run_id: UUID,
        inputs: object = None,
        **about: Theirs,
    ) -> None:
        name = (serialized or {}).get("name") or about.get("name") or "tool"
        self.tools[run_id] = (name, inputs if inputs is not None else given)

    def on_tool_end(self, output: Theirs, *, run_id: UUID, **about: object) -> None:
        name, inputs = self.tools.pop(run_id, ("tool", ""))
        found = getattr(output, "content", output)
        failed = getattr(output, "status", "") == "error"
        self.watch.called(name, inputs, found, found if failed else None)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: object) -> None:
        name, inputs = self.tools.pop(run_id, ("tool", ""))
        if not _is_interrupt(error):
            self.watch.called(name, inputs, error=f"{type(error).__name__}: {error}")


class _Turns:
    """From nodes that begin to turns. `source` had the turn in the superstep before."""

    def __init__(self, watch: Watch, tool_nodes: _ToolNodes) -> None:
        self.watch, self.tool_nodes = watch, tool_nodes
        self.at: tuple[str, int] | None = None
        self.names: set[str] = set()
        self.source = ""
        self.ran_tools = False

    def began(self, about: Mapping[str, Theirs], inputs: object) -> None:
        outer, _, _ = about["langgraph_checkpoint_ns"].rpartition("|")
        name: str = about["langgraph_node"]
        if outer:
            name = "/".join((*(part.partition(":")[0] for part in outer.split("|")), name))
        at = (outer, about["langgraph_step"])
        if at != self.at:
            self.at, self.source = at, min(self.names, default="")
            self.names = set()
        if self.tool_nodes.has(name, inside=bool(outer)):
            self.names.add(self.source)
            self.ran_tools = True
            return
        if name in self.names:
            return
        self.names.add(name)
        if not outer or self.watch.partial is None:
            self.watch.partial = inputs
        back, self.ran_tools = self.ran_tools and name == self.source, False
        if back:
            self.watch.resume(name)
        else:
            self.watch.turn(name, source=self.source)
        self.watch.check()


def _is_interrupt(error: BaseException) -> bool:
    """A pause for a person, not a failure."""
    return any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)


def _tokens(response: Theirs) -> int:
    """As the message says, or else the answer as a whole; providers differ."""
    message = getattr(response.generations[0][0], "message", None)
    usage: Theirs = getattr(message, "usage_metadata", None)
    if not usage and response.llm_output:
        usage = response.llm_output.get("token_usage")
    return usage.get("total_tokens") or 0 if usage else 0

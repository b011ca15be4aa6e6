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
from collections.abc import Callable, Mapping
from uuid import UUID

from handrail.guard import Guard
from handrail.guard.watch import Theirs, Watch, framework, watching
from handrail.kernel.reading import is_mapping

EXTRA = "langgraph"
STEP_TAG = "graph:step:"
ASKS_MAX = 10
"""Times that people are asked in one run, as in the engine's."""

Answer = Callable[[object], object]
"""From what an interrupt asks to what the graph is resumed with."""


class GuardedGraph:
    """A compiled graph with a guard around it. Whatever the graph can do else, ask the graph."""

    def __init__(self, graph: Theirs, guard: Guard, name: str, answer: Answer | None) -> None:
        self.graph, self.guard, self.name, self.answer = graph, guard, name, answer

    def invoke(
        self, given: object, config: Mapping[str, Theirs] | None = None, **options: Theirs
    ) -> Theirs:
        """As `graph.invoke`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, given) as watch:
            configured = _watched(config, watch, self.graph)
            watch.partial = self.graph.invoke(given, configured, **options)
            for question in _questions(watch, self.answer):
                resume = _resumed(self.answer, question)
                watch.partial = self.graph.invoke(resume, configured, **options)
        return watch.partial

    async def ainvoke(
        self,
        given: object,
        config: Mapping[str, Theirs] | None = None,
        **options: Theirs,
    ) -> Theirs:
        """As `graph.ainvoke`; raises `Stopped` when a rule ends the run."""
        with watching(self.guard, self.name, given) as watch:
            configured = _watched(config, watch, self.graph)
            watch.partial = await self.graph.ainvoke(given, configured, **options)
            for question in _questions(watch, self.answer):
                resume = _resumed(self.answer, question)
                watch.partial = await self.graph.ainvoke(resume, configured, **options)
        return watch.partial


def guarded(
    graph: Theirs,
    guard: Guard | None = None,
    *,
    name: str = "",
    answer: Answer | None = None,
) -> GuardedGraph:
    """`answer` is asked when the graph interrupts itself for a person; without it the graph's own
    result says so, as ever."""
    return GuardedGraph(graph, guard or Guard(), name or graph.get_name(), answer)


def _questions(watch: Watch, answer: Answer | None) -> Theirs:
    """What the graph asks, again and again, as often as people may be asked."""
    for _ in range(ASKS_MAX if answer is not None else 0):
        result = watch.partial
        asked: Theirs = result.get("__interrupt__") if is_mapping(result) else None
        if not asked or watch.stop is not None:
            return
        yield asked[0].value


def _resumed(answer: Answer | None, question: object) -> object:
    assert answer is not None, "asked only if there is one"
    return framework("langgraph.types", EXTRA).Command(resume=answer(question))


def _watched(config: Mapping[str, Theirs] | None, watch: Watch, graph: Theirs) -> dict[str, Theirs]:
    """The caller's configuration with the guard among its callbacks."""
    configured: dict[str, Theirs] = dict(config or {})
    handler = _handler()(watch, _tool_nodes(graph))
    held = configured.get("callbacks")
    if held is None or isinstance(held, list):
        configured["callbacks"] = [*(held or ()), handler]
    else:
        configured["callbacks"] = held = held.copy()
        held.add_handler(handler)
    return configured


def _tool_nodes(graph: Theirs) -> frozenset[str]:
    """Nodes that only run tools, of the graph and of those inside it."""
    tools = framework("langgraph.prebuilt", EXTRA).ToolNode
    found = {name for name, node in graph.nodes.items() if isinstance(node.bound, tools)}
    for outer, inner in graph.get_subgraphs(recurse=True):
        path = outer.replace("|", "/")
        found |= {f"{path}/{n}" for n, node in inner.nodes.items() if isinstance(node.bound, tools)}
    return frozenset(found)


@functools.cache
def _handler() -> Theirs:
    """The class of callbacks; it can be made only where the framework is installed."""
    base = framework("langchain_core.callbacks", EXTRA).BaseCallbackHandler
    ways = {"raise_error": True, "run_inline": True, "ignore_retriever": True, "ignore_retry": True}
    return type("HandrailGuard", (_Callbacks, base), ways)


class _Callbacks:
    """What the framework calls, and what the guard is told of it."""

    def __init__(self, watch: Watch, tool_nodes: frozenset[str]) -> None:
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

    def __init__(self, watch: Watch, tool_nodes: frozenset[str]) -> None:
        self.watch, self.tool_nodes = watch, tool_nodes
        self.at: tuple[str, int] | None = None
        self.names: set[str] = set()
        self.source = ""
        self.ran_tools = False

    def began(self, about: Mapping[str, Theirs], inputs: object) -> None:
        outer, _, _ = about["langgraph_checkpoint_ns"].rpartition("|")
        parts = [part.partition(":")[0] for part in outer.split("|") if part]
        name = "/".join((*parts, about["langgraph_node"]))
        at = (outer, about["langgraph_step"])
        if at != self.at:
            self.at, self.source = at, min(self.names, default="")
            self.names = set()
        if name in self.tool_nodes:
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
    whole: dict[str, Theirs] = response.llm_output or {}
    told = (getattr(message, "usage_metadata", None), whole.get("token_usage"))
    return next((int(usage.get("total_tokens") or 0) for usage in told if usage), 0)

"""LangGraph under guard: a compiled graph, watched through callbacks, called as before.

    team = guarded(graph)
    team.invoke({"messages": [...]})

A node is an agent, and one that follows another is a handoff, however it was sent there: by an
edge, a `Command`, a `Send`. Nodes of one superstep are handed to by the same agent, each name once.
Nodes of subgraphs are called "outer/inner", as often as the outer one calls them. A node that only
runs tools (`ToolNode`) is no agent: the agent that comes back after it goes on with its turn. A
tool that hands over is no evidence. A node that is refused does not run, nor is it tried again.

What a stop leaves: the state that the refused node was to be given, as `partial`; with a
checkpointer, the thread as it stood before that node.
"""

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from threading import RLock
from uuid import UUID

import msgspec

from handrail.guard import Guard
from handrail.guard.people import ASKS_MAX, ask, ask_async
from handrail.guard.watch import Theirs, Watch, framework, streaming, text_of, watching
from handrail.kernel.reading import is_mapping
from handrail.kernel.run.state import Stop

EXTRA = "langgraph"
STEP_TAG = "graph:step:"
HEARD = ("chain", "llm", "agent")
"""Kinds of events; tools are among those of agents."""
STEPS_KEPT = 1_000
"""Supersteps of a graph that are remembered: tasks beside each other are not that far apart."""
BESIDE = "|"
"""In place of a path: graphs that a node calls by callbacks alone, such as in threads of its own.
Nobody knows which are beside each other, so all of them go on as one, until the node is over."""
FOUND_KEPT = 1_000
"""Of one superstep, what its tasks found."""
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


class _Said(msgspec.Struct):
    """An answer, which may be anything, also nothing."""

    value: object


def guarded(
    graph: Theirs, guard: Guard | None = None, *, name: str = "", answer: Answer | None = None
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
    """Which nodes only run tools, of the graph and of those inside it. To look for graphs inside
    takes a while, so they are looked for when a node of one begins. Not all can be found, such as
    those that tools call: what runs in their nodes first will tell."""

    def __init__(self, graph: Theirs) -> None:
        self.graph = graph
        self.kind = framework("langgraph.prebuilt", EXTRA).ToolNode
        self.outer = {name for name, node in graph.nodes.items() if self._is(node)}

    @functools.cached_property
    def inner(self) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for outer, inner in self.graph.get_subgraphs(recurse=True):
            path = outer.replace("|", "/")
            found |= {f"{path}/{name}": self._is(node) for name, node in inner.nodes.items()}
        return found

    def has(self, name: str, inputs: object) -> bool | None:
        """Of a node inside; None as long as nobody can tell."""
        found = self.inner.get(name)
        return False if found is None and not _asks_for_tools(inputs) else found

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

    ignore_chat_model = False
    """Whether there is nothing to settle before a model is asked, as most often. Who says so looks
    once more; who has something to settle says that last: nodes beside each other hide nothing."""

    def __init__(self, watch: Watch, tool_nodes: _ToolNodes) -> None:
        self.watch, self.turns = watch, _Turns(watch, tool_nodes)
        self.running, self.unsure = self.turns.running, self.turns.unsure
        self.tools: dict[UUID, tuple[str, object, Theirs]] = {}
        self.beside = _Beside()

    def on_chain_start(
        self,
        serialized: object,
        inputs: object,
        *,
        tags: Sequence[str] | None = None,
        metadata: Theirs = None,
        **about: Theirs,
    ) -> None:
        for tag in tags or ():
            if tag.startswith(STEP_TAG):
                stop = self.turns.began(metadata, inputs, about)
                self.ignore_chat_model = True
                if self.watch.open or self.unsure or self.watch.stop is not None:
                    self.ignore_chat_model = False
                if stop is not None:
                    _end(self.watch)

    def on_chain_end(self, _: object, *, run_id: UUID, **about: object) -> None:
        if self.running:
            self.running.pop(run_id, None)
        if run_id is self.turns.graph:
            self.turns.graph = None

    on_chain_error = on_chain_end

    def on_chat_model_start(self, *_: object, metadata: Theirs = None, **about: object) -> None:
        if self.unsure:
            self.turns.tell(_where(metadata), runs_tools=False)
        if self.watch.step() is not None:
            _end(self.watch)

    on_llm_start = on_chat_model_start

    def on_llm_end(self, response: Theirs, **about: object) -> None:
        first = response.generations[0][0]
        usage = getattr(getattr(first, "message", None), "usage_metadata", None)
        if not usage and response.llm_output:  # as the message says, or else the answer as a whole
            usage = response.llm_output.get("token_usage")
        self.watch.answered(first.text, (usage.get("total_tokens") or 0) if usage else 0)
        self.ignore_chat_model = False

    def on_tool_start(
        self, serialized: Config, given: str, *, run_id: UUID, **about: Theirs
    ) -> None:
        name = (serialized or {}).get("name") or about.get("name") or "tool"
        inputs, metadata = about.get("inputs"), about.get("metadata")
        self.tools[run_id] = (name, inputs if inputs is not None else given, metadata)
        if self.unsure:
            self.turns.tell(_where(metadata), runs_tools=True)

    def on_tool_end(self, output: Theirs, *, run_id: UUID, **about: object) -> None:
        name, inputs, metadata = self.tools.pop(run_id, ("tool", "", None))
        if getattr(output, "goto", ()):
            return  # it hands over, which is seen when the other node begins
        found = _found(output)
        failed = getattr(output, "status", "") == "error"
        if failed or self.beside.is_new(
            self.turns.step.number, _where(metadata), name, inputs, found
        ):
            self.watch.called(name, inputs, found, found if failed else None)
            self.ignore_chat_model = False

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **about: object) -> None:
        name, inputs, _ = self.tools.pop(run_id, ("tool", "", None))
        if not isinstance(error, framework("langgraph.errors", EXTRA).GraphBubbleUp):  # no pause
            self.watch.called(name, inputs, error=f"{type(error).__name__}: {error}")
            self.ignore_chat_model = False


class _Beside:
    """Tasks of one superstep that find the same do not repeat each other: none knew of the other.
    A task that finds it again does."""

    def __init__(self) -> None:
        self.step = -1
        self.by: dict[int, str] = {}
        """From what was found to the task that found it."""

    def is_new(self, step: int, where: str, *found: object) -> bool:
        """`step`: of the outermost graph."""
        task, _, _ = where.partition("|")
        if step != self.step or len(self.by) >= FOUND_KEPT:
            self.step, self.by = step, {}
        return self.by.setdefault(hash(tuple(map(text_of, found))), task) == task


class _Turns:
    """From nodes that begin to turns. Each graph has its own supersteps; one inside another goes on
    while a node of that runs, several times at once where several tasks run the same node."""

    def __init__(self, watch: Watch, tool_nodes: _ToolNodes) -> None:
        self.watch, self.tool_nodes = watch, tool_nodes
        self.graph: UUID | None = None
        """The run of the outermost graph, while it goes on."""
        self.step = _Superstep(0, "")
        """Of it: one is over before the next begins."""
        self.inside: dict[str, dict[int, _Superstep]] = {}
        """Of those inside it, by the path to the node that runs one."""
        self.last: dict[str, str] = {}
        """By the same path: who had the turn in it last."""
        self.askers: dict[str, str] = {}
        """From nodes that run tools to who has the turn meanwhile."""
        self.running: dict[UUID, str] = {}
        """Calls of graphs inside that are not over, each with that path."""
        self.unsure: dict[str, tuple[_Superstep, str, str]] = {}
        """By where they run: nodes that may only run tools, with path and name."""
        self.lock = RLock()

    def began(self, about: Theirs, inputs: object, run: Mapping[str, Theirs]) -> Stop | None:
        name: str = about["langgraph_node"]
        number: int = about["langgraph_step"]
        where: str = about["langgraph_checkpoint_ns"]
        with self.lock:
            graph = run["parent_run_id"]
            if "|" in where:
                outer = self._called(where, graph)
                return self._began_inside(outer, f"{outer}/{name}", number, where, inputs)
            if graph is not self.graph and graph != self.graph:
                if self.graph is not None:
                    return self._began_inside(BESIDE, name, number, where, inputs)
                self.graph = graph
            step, watch = self.step, self.watch
            if number != step.number:
                source, after_tools = min(step.names, default=""), step.ran_tools
                if self.inside:
                    self._sure(where)
                    source = self._last_in(source)
                    self._leave("")
                step.number, step.source, step.after_tools = number, source, after_tools
                step.names, step.ran_tools = (), False
            if name in self.tool_nodes.outer:
                self.askers[name] = step.source
                step.run_tools()
            elif name not in step.names:
                step.names += (name,)
                watch.partial = inputs
                if not step.after_tools or name != step.source:
                    return watch.turn(name, source=step.source)
                watch.resume(name)
            return watch.stop

    def _began_inside(
        self, outer: str, name: str, number: int, where: str, inputs: object
    ) -> Stop | None:
        """The same in a graph inside another one, or beside it."""
        watch = self.watch
        steps = self.inside.setdefault(outer, {})
        step = steps.get(number)
        if step is None:
            step = steps[number] = self._next(outer, steps.get(number - 1), number, where)
            steps.pop(number - STEPS_KEPT, None)
        runs_tools = self.tool_nodes.has(name, inputs)
        if runs_tools:
            self.askers[name] = step.source
            step.run_tools()
        elif runs_tools is None and name not in step.names:
            self.unsure[where] = step, outer, name
        elif name not in step.names:
            step.names += (name,)
            self.last[outer] = name
            if watch.partial is None:
                watch.partial = inputs
            if not step.after_tools or name != step.source:
                return watch.turn(name, source=step.source)
            watch.resume(name)
        return watch.stop

    def tell(self, where: str, *, runs_tools: bool) -> None:
        """A node that was asked for tools only runs tools, if it does that before all else."""
        with self.lock:
            step, outer, name = self.unsure.pop(where, (None, "", ""))
            if step is not None and runs_tools:
                self.askers[name] = step.source
                step.run_tools()
            elif step is not None and name not in step.names:
                step.names += (name,)
                self.last[outer] = name
                self.watch.turn(name, source=step.source)

    def _called(self, where: str, run: UUID) -> str:
        """The path to the node that runs the graph. A node that calls a graph again, after it was
        done with it, begins anew: the framework counts such calls."""
        parts = where.split("|")[:-1]
        outer = "/".join(part.partition(":")[0] for part in parts if not part.isdigit())
        if run not in self.running:
            if parts[-1].isdigit() and outer not in self.running.values():
                self.inside.pop(outer, None)
            self.running[run] = outer
        return outer

    def _next(
        self, outer: str, before: "_Superstep | None", number: int, where: str
    ) -> "_Superstep":
        """The first in a graph has the turn from the node that runs it, or whose tools that is."""
        self._sure(where)
        runs = outer if outer != BESIDE else min(self.step.names, default="")
        first = self.askers.get(runs, runs)
        source = first if before is None else self._last_in(min(before.names, default=first))
        self._leave(outer)
        return _Superstep(number, source, before is not None and before.ran_tools)

    def _sure(self, where: str) -> None:
        """A graph goes on: what began in it, or in those inside, and ran no tools is an agent."""
        graph, _, _ = where.rpartition("|")
        for one in [one for one in self.unsure if graph in (one, one.rpartition("|")[0])]:
            self.tell(one, runs_tools=False)

    def _last_in(self, source: str) -> str:
        """Whoever had the turn last in the graphs that it ran; itself, if it ran none."""
        while source in self.last:
            source = self.last.pop(source)
        return source

    def _leave(self, outer: str) -> None:
        """Forgets the graphs inside this one: none still runs when it goes on."""
        inside = f"{outer}/" if outer else ""
        for held in (self.inside, self.last, self.askers):
            for path in [one for one in held if one != outer and one.startswith(inside)]:
                del held[path]
        if not outer:
            self.running.clear()
            self.unsure.clear()


class _Superstep(msgspec.Struct, gc=False):
    """Who has the turn in it, from whom."""

    number: int
    source: str
    after_tools: bool = False
    names: tuple[str, ...] = ()
    ran_tools: bool = False

    def run_tools(self) -> None:
        if not self.ran_tools:
            self.names, self.ran_tools = (*self.names, self.source), True


def _where(about: Mapping[str, Theirs] | None) -> str:
    return (about or {}).get("langgraph_checkpoint_ns", "")


def _asks_for_tools(inputs: Theirs) -> bool:
    """Whether a node is given calls of tools that nobody has answered: in a model's message at the
    end of its messages, or by themselves."""
    held: Theirs = inputs if is_mapping(inputs) else getattr(inputs, "__dict__", {"": inputs})
    ends: list[Theirs] = [one[-1] if one and type(one) is list else one for one in held.values()]
    return any(
        end.get("type") == "tool_call" if is_mapping(end) else getattr(end, "tool_calls", None)
        for end in ends
    )


def _end(watch: Watch) -> None:
    """By an error that a graph's `RetryPolicy` never tries again; the stop itself is raised when
    the graph has come to rest."""
    over = f"the guarded run is over: {watch.stop.rule if watch.stop else ''}"
    raise framework("langgraph.errors", EXTRA).GraphBubbleUp(over)


def _found(output: Theirs) -> object:
    """What a tool returned, without the id of the call."""
    update: Theirs = getattr(output, "update", None)
    if is_mapping(update):  # it changes the graph's state
        held: Theirs = update
        said: list[Theirs] = held.get("messages") or []
        rest = {key: value for key, value in held.items() if key != "messages"}
        return [getattr(one, "content", one) for one in said], rest
    return getattr(output, "content", output)

"""A graph under guard is the graph itself: its class, its state, its methods.

Everything that runs a graph goes through `invoke`, `ainvoke`, `stream` and `astream`; these begin a
guarded run, unless one goes on already that the call belongs to.
"""

import functools
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, cast

from handrail.guard.adapter import RunWatch, watching, watching_stream
from handrail.guard.errors import StoppedError
from handrail.guard.langgraph.callbacks import RunCallbacks, callback_type, find_callbacks
from handrail.guard.langgraph.framework import Config, bubble_up_type, graph_stop_error
from handrail.guard.langgraph.interrupts import DEFAULT_NAME, AnswerFunction, InterruptAnswers
from handrail.guard.langgraph.nodes import ToolNodes
from handrail.guard.run import Guard


class GuardedGraph:
    """What a guarded graph does in another way than its own class, the next of its bases."""

    __slots__ = ()
    handrail: "GraphGuard"

    def invoke(
        self,
        input: Any,  # noqa: A002 - the name is the framework's
        config: Config = None,
        **options: Any,
    ) -> Any:
        """Like the graph's own; raises `Stopped` when a rule ends the run."""
        graph = self.handrail.graph
        if find_callbacks(config, graph.config) is not None:
            return graph.invoke(input, config, **options)
        with self.handrail.run(input, config, watching) as run:
            watch = run.watch
            watch.partial = graph.invoke(input, run.config, **options)
            while (command := run.answers.resume_command(run.interrupts())) is not None:
                with run.resuming():
                    watch.partial = graph.invoke(command, run.config, **options)
        return watch.partial

    async def ainvoke(
        self,
        input: Any,  # noqa: A002 - the name is the framework's
        config: Config = None,
        **options: Any,
    ) -> Any:
        """Like the graph's own; raises `Stopped` when a rule ends the run."""
        graph = self.handrail.graph
        if find_callbacks(config, graph.config) is not None:
            return await graph.ainvoke(input, config, **options)
        with self.handrail.run(input, config, watching) as run:
            watch, answers = run.watch, run.answers
            watch.partial = await graph.ainvoke(input, run.config, **options)
            while command := await answers.resume_command_async(run.interrupts()):
                with run.resuming():
                    watch.partial = await graph.ainvoke(command, run.config, **options)
        return watch.partial

    def stream(
        self,
        input: Any,  # noqa: A002 - the name is the framework's
        config: Config = None,
        **options: Any,
    ) -> Iterator[Any]:
        """Like the graph's own; raises `Stopped` out of the iteration when a rule ends the run."""
        graph = self.handrail.graph
        if find_callbacks(config, graph.config) is not None:
            yield from graph.stream(input, config, **options)
            return
        with self.handrail.run(input, config, watching_stream) as run:
            command = input
            while True:
                with run.resuming():
                    yield from run.watch.iterate(graph.stream(command, run.config, **options))
                command = run.answers.resume_command(run.interrupts())
                if command is None:
                    break

    async def astream(
        self,
        input: Any,  # noqa: A002 - the name is the framework's
        config: Config = None,
        **options: Any,
    ) -> AsyncIterator[Any]:
        """Like the graph's own; raises `Stopped` out of the iteration when a rule ends the run."""
        graph = self.handrail.graph
        if find_callbacks(config, graph.config) is not None:
            async with aclosing(graph.astream(input, config, **options)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        with self.handrail.run(input, config, watching_stream) as run:
            command = input
            while True:
                stream = graph.astream(command, run.config, **options)
                with run.resuming():
                    watched: Any = run.watch.iterate_async(stream)
                    async with aclosing(watched) as pieces:
                        async for piece in pieces:
                            yield piece
                command = await run.answers.resume_command_async(run.interrupts())
                if command is None:
                    break

    def copy(self, update: dict[str, Any] | None = None) -> Any:
        """Like the graph's own, under the same guard; `with_config` copies, too."""
        return guard_graph(self.handrail.graph.copy(update), self.handrail)


class GraphGuard:
    """How one graph is guarded."""

    def __init__(self, graph: Any, guard: Guard, name: str, answer: AnswerFunction | None) -> None:
        self.graph, self.guard, self.name, self.answer = graph, guard, name, answer

    @contextmanager
    def run(self, graph_input: object, config: Config, watch_with: Any) -> Generator["_WatchedRun"]:
        """Watch a run of the graph.

        A stop passes through a graph outside of this one like an error of LangGraph's own. Another
        such error is no failure: the graph was interrupted, or hands over to a graph outside.
        """
        pause: Exception | None = None
        bubble_up, team = bubble_up_type(), self.name or _name_of(self.graph)
        run: _WatchedRun | None = None
        try:
            thread = functools.partial(self._thread, config)
            with watch_with(self.guard, team, graph_input, thread) as watch:
                run = _WatchedRun(self, team, watch, config)
                try:
                    yield run
                except bubble_up as error:
                    if watch.stop is not None:
                        raise
                    pause = error
                finally:
                    run.callbacks.end()
        except StoppedError as stopped:
            if run is None or stopped.run is not run.watch.run:
                raise
            raise graph_stop_error(stopped.stop, stopped.run, stopped.partial) from None
        if pause is not None:
            raise pause

    def _thread(self, config: Config) -> object:
        """Return the id of the conversation, as the caller or the graph's own config names it."""
        sources: list[Config] = [config, self.graph.config]
        for source in sources:
            configurable: Config = (source or {}).get("configurable")
            if configurable and configurable.get("thread_id") is not None:
                return configurable["thread_id"]
        return ""


class _WatchedRun:
    """One run of a guarded graph: its callbacks, and who answers its interrupts."""

    def __init__(self, guard: GraphGuard, team: str, watch: RunWatch, config: Config) -> None:
        self.watch = watch
        self.callbacks: RunCallbacks = callback_type(RunCallbacks)(watch, ToolNodes(guard.graph))
        self.config = _with_callback(config, self.callbacks)
        self.answers = InterruptAnswers(watch, team, guard.answer)

    def interrupts(self) -> tuple[Any, ...]:
        """Return the interrupts at which the graph has come to rest."""
        return self.callbacks.interrupts

    @contextmanager
    def resuming(self) -> Generator[None]:
        """Run the graph, on from its interrupts if there are any; they stay if it refuses an
        answer.
        """
        interrupts, self.callbacks.interrupts = self.callbacks.interrupts, ()
        try:
            yield
        except Exception as error:
            if not interrupts or not self.answers.refuse(error):
                raise
            self.callbacks.interrupts = interrupts


def guard_graph(graph: Any, guard: GraphGuard) -> Any:
    """Return the graph under the guard: an object of its class, with the same attributes."""
    guarded_graph: Any = object.__new__(_guarded_type(cast("Any", type(graph))))
    guarded_graph.__dict__ = graph.__dict__
    guarded_graph.handrail = GraphGuard(graph, guard.guard, guard.name, guard.answer)
    return guarded_graph


@functools.cache
def _guarded_type(graph_type: Any) -> Any:
    return type(
        f"Guarded{graph_type.__name__}", (GuardedGraph, graph_type), {"__slots__": ("handrail",)}
    )


def _name_of(graph: Any) -> str:
    """Return the graph's name, or else the one that its runs have in traces."""
    name, config = graph.get_name(), graph.config
    return config.get("run_name") or name if name == DEFAULT_NAME and config else name


def _with_callback(config: Config, callback: RunCallbacks) -> dict[str, Any]:
    """Return the caller's configuration with the guard among its callbacks."""
    configured: dict[str, Any] = dict(config or {})
    callbacks = configured.get("callbacks")
    if callbacks is None or isinstance(callbacks, list):
        configured["callbacks"] = [*(callbacks or ()), callback]
    else:
        configured["callbacks"] = callbacks = callbacks.copy()
        callbacks.add_handler(callback)
    return configured

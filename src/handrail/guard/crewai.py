"""Guard CrewAI: a Crew, a Flow or an Agent, watched through its hooks, started as before.

    team = guarded(crew)
    team.kickoff({"ticket": "4711"})

In a crew an agent's name is its role, and a task for another agent than the one before is a
handoff. So is work that is delegated to a coworker, or a question to one: the coworker gets the
turn, and gives it back. In a flow a method is an agent, which has the turn from the method that
triggered it; crews and agents inside are called "method/role". The hooks belong to one call: they
follow its context into its threads and tasks, and nowhere else. A refused step does not begin;
after a stop no model is asked, and no tool called.

What a stop leaves: the outputs of the tasks or methods that were done by then, as `partial`.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from handrail.guard.adapter import RunWatch, refuse_stream, watching
from handrail.guard.approvals import ASKS_PER_RUN_MAX, ask_person, ask_person_async, is_yes
from handrail.guard.framework_object import FrameworkObject, first_argument
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard
from handrail.kernel.run.state import Stop

INPUT_NAMES = ("inputs", "messages")
"""What crews, flows and agents call their first parameter."""
INSTALL_HINT = "pip install crewai, in an environment of its own"
DELEGATION_TOOLS = ("delegate_work_to_coworker", "ask_question_to_coworker")
"""Tools by which an agent lets another one work."""
FAILURE_PREFIXES = (
    "Error executing tool",
    "Error executing task with agent",
    "I encountered an error",
)
"""How CrewAI's output for a failed tool begins: hooks get no other sign of the failure."""
REUSED_INPUT_PREFIX = "I tried reusing the same input"
"""How its output begins when it skips a tool call that repeats the previous one."""
UNHOOKED_FAILURES = ("unknown_tool", "invalid_input")
"""Failures before there is a call, for which no hook runs."""
EVENT_FLUSH_SECONDS = 5.0
"""Time for events to arrive: another thread reports usage."""
THREAD_JOIN_SECONDS = 10.0
"""Time for tasks in threads, after a stop, to reach their next model or tool."""


class GuardedCrewAITeam(FrameworkObject):
    """A Crew, a Flow or an Agent with a guard around its runs; in all else it is the team
    itself.
    """

    def kickoff(self, *args: Any, **options: Any) -> Any:
        """Like `team.kickoff(inputs)`; raises `Stopped` when a rule ends the run."""
        with self._run(args, options) as run:
            try:
                run.watch.partial = self.wrapped.kickoff(*args, **options)
            except Exception:
                run.settle()
                raise
        return run.watch.partial

    async def kickoff_async(self, *args: Any, **options: Any) -> Any:
        """Like `team.kickoff_async(inputs)`; raises `Stopped` when a rule ends the run."""
        return await self._kickoff_awaited(self.wrapped.kickoff_async, args, options)

    async def akickoff(self, *args: Any, **options: Any) -> Any:
        """Like `team.akickoff(inputs)`; raises `Stopped` when a rule ends the run."""
        return await self._kickoff_awaited(self.wrapped.akickoff, args, options)

    def kickoff_for_each(self, inputs: list[Any], **options: Any) -> list[Any]:
        """Like `crew.kickoff_for_each(inputs)`, each a run of its own; a stop ends the rest."""
        return [self._copy().kickoff(team_inputs, **options) for team_inputs in inputs]

    async def kickoff_for_each_async(self, inputs: list[Any], **options: Any) -> list[Any]:
        """Like `crew.kickoff_for_each_async(inputs)`, each a run of its own."""
        runs = [self._copy().kickoff_async(team_inputs, **options) for team_inputs in inputs]
        return await asyncio.gather(*runs)

    async def akickoff_for_each(self, inputs: list[Any], **options: Any) -> list[Any]:
        """Like `crew.akickoff_for_each(inputs)`, each a run of its own."""
        runs = [self._copy().akickoff(team_inputs, **options) for team_inputs in inputs]
        return await asyncio.gather(*runs)

    def _copy(self) -> "GuardedCrewAITeam":
        return GuardedCrewAITeam(self.wrapped.copy(), self.run_guard, self.run_name)

    async def _kickoff_awaited(
        self, kickoff: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        with self._run(args, options) as run:
            try:
                run.watch.partial = await kickoff(*args, **options)
            except Exception:
                await run.settle_async()
                raise
        return run.watch.partial

    @contextmanager
    def _run(self, args: tuple[Any, ...], options: dict[str, Any]) -> Generator["_CrewRun"]:
        if getattr(self.wrapped, "stream", False):
            refuse_stream("a team with stream=True", "be guarded and not streamed")
        hooks, events = _import_crewai("crewai.hooks.dispatch"), _import_crewai("crewai.events")
        for event, handler in EVENT_HANDLERS.items():
            events.crewai_event_bus.on(getattr(events, event))(handler)
        points = {hooks.InterceptionPoint[point]: hook for point, hook in HOOKS.items()}
        scope = {
            point: [
                *(
                    scoped_hook
                    for scoped_hook in hooks.get_scoped_hooks(point)
                    if scoped_hook is not hook
                ),
                hook,
            ]
            for point, hook in points.items()
        }
        inputs = first_argument(args, options, *INPUT_NAMES)
        with watching(self.run_guard, self.run_name, inputs or "") as watch:
            run = _CrewRun(watch)
            reset_token = _current_scope.set(_CrewScope(run, _ActiveTeam(None, "", None), "", ""))
            try:
                with hooks.scoped_hooks(scope), _inbox_provider(watch):
                    yield run
            finally:
                _current_scope.reset(reset_token)
                _flush_events()


def guarded(team: Any, guard: Guard | None = None, *, name: str = "") -> GuardedCrewAITeam:
    default_name = getattr(team, "name", None) or getattr(team, "role", None) or type(team).__name__
    return GuardedCrewAITeam(team, guard or Guard(), name or default_name)


@contextmanager
def _inbox_provider(watch: RunWatch) -> Generator[None]:
    """Turn `human_input` into an approval in the inbox, where there is one; a caller's own provider
    stays in use.
    """
    human_input = _import_crewai("crewai.core.providers.human_input")
    has_own_provider = type(human_input.get_provider()) is not human_input.SyncHumanInputProvider
    if watch.run.recorder is None or has_own_provider:
        yield
        return
    reset_token = human_input.set_provider(_inbox_class()(watch))
    try:
        yield
    finally:
        human_input.reset_provider(reset_token)


@functools.cache
def _inbox_class() -> Any:
    """Make the class of providers; this works only where the framework is installed."""
    base = _import_crewai("crewai.core.providers.human_input").SyncHumanInputProvider
    return type("HandrailInbox", (_InboxProvider, base), {})


class _InboxProvider:
    """Asks a person whether an answer will do: a yes, or what the agent has to improve."""

    def __init__(self, watch: RunWatch) -> None:
        self.watch = watch

    def handle_feedback(self, formatted_answer: Any, context: Any) -> Any:
        answer = formatted_answer
        for _ in range(ASKS_PER_RUN_MAX):
            reply = ask_person(self.watch, _question_text(answer, context))
            _abort_if_stopped(self.watch.stop)
            if reply is None:
                return super().handle_feedback(answer, context)  # pyright: ignore
            if is_yes(reply):
                break
            context.messages.append(context._format_feedback_message(reply.text))
            answer = context._invoke_loop()
        context.ask_for_human_input = False
        return answer

    async def handle_feedback_async(self, formatted_answer: Any, context: Any) -> Any:
        answer = formatted_answer
        for _ in range(ASKS_PER_RUN_MAX):
            reply = await ask_person_async(self.watch, _question_text(answer, context))
            _abort_if_stopped(self.watch.stop)
            if reply is None:
                return await super().handle_feedback_async(answer, context)  # pyright: ignore
            if is_yes(reply):
                break
            context.messages.append(context._format_feedback_message(reply.text))
            answer = await context._ainvoke_loop()
        context.ask_for_human_input = False
        return answer


def _question_text(answer: Any, context: Any) -> str:
    return f"{_role(context.agent)} answers: {answer.output}"


def _import_crewai(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"CrewAI is not installed; {INSTALL_HINT}", name=error.name
        ) from None


class _CrewRun:
    """One guarded call: its outputs, and the threads and tasks that it has begun."""

    def __init__(self, watch: RunWatch) -> None:
        self.watch = watch
        self.outputs: list[Any] = []
        self.last_tool_outputs: dict[str, Any] = {}
        """The last output of each tool."""
        self.tasks: set[asyncio.Task[Any]] = set()
        self.threads: set[threading.Thread] = set()

    def register_concurrent(self) -> None:
        """Register the current thread or task, which may run beside the caller."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is None:
            self.threads.add(threading.current_thread())
        else:
            self.tasks.add(task)

    def settle(self) -> None:
        """Wait for its threads: after a stop, each is refused its next model or tool."""
        self.watch.partial = self.outputs
        if self.watch.stop is not None:
            for thread in self.threads - {threading.current_thread()}:
                thread.join(THREAD_JOIN_SECONDS)

    async def settle_async(self) -> None:
        """Like `settle`, for tasks."""
        await asyncio.to_thread(self.settle)
        if self.watch.stop is not None:
            loop, caller = asyncio.get_running_loop(), asyncio.current_task()
            pending = [
                task for task in self.tasks if task is not caller and task.get_loop() is loop
            ]
            for task in pending:
                task.cancel()
            await asyncio.gather(*pending, return_exceptions=True)


class _ActiveTeam:
    """A crew or a flow at work. `outer`: where it was started; None for the call as a whole."""

    def __init__(self, crew_or_flow: Any, path: str, outer: "_CrewScope | None") -> None:
        self.crew_or_flow, self.path, self.outer = crew_or_flow, path, outer
        self.last_agent = ""
        """In a crew: the agent of the task that ended last."""
        self.last_sequential_agent = ""
        """The agent of the last task that did not run in parallel."""

    def calling_agent(self) -> str:
        """The agent that called the tool; empty for a method, which starts a team by itself."""
        return self.outer.agent if self.outer is not None and self.outer.role else ""


class _CrewScope:
    """A position in a run: which agent in which team. A method of a flow has no role."""

    def __init__(
        self,
        run: _CrewRun,
        team: _ActiveTeam,
        agent: str,
        role: str,
        outer: "_CrewScope | None" = None,
    ) -> None:
        self.run, self.team, self.agent, self.role = run, team, agent, role
        self.outer = outer
        """Of a tool: the scope of its call."""
        self.nested_agents: dict[int, str] = {}
        """Other agents at work in this scope, by identity."""
        self.edges: set[tuple[str, str]] = set()
        """Edges between tasks, in crews that were started here."""

    def name_prefix(self) -> str:
        """The prefix for names of agents that are started here."""
        return f"{self.agent}/" if self.agent else self.team.path

    def agent_name(self, agent: Any) -> str:
        """Return the agent's name; a model call without an agent belongs to the scope's agent."""
        return self.nested_agents.get(id(agent), self.agent)

    def begin_agent(self, agent: Any) -> Stop | None:
        """Give the agent the turn before its model is asked.

        An agent that a tool lets work has the turn from the tool's caller.
        """
        role, watch = _role(agent), self.run.watch
        if role and role != self.role and id(agent) not in self.nested_agents:
            prefix = self.agent.removesuffix(self.role) if self.role else self.name_prefix()
            self.nested_agents[id(agent)] = name = prefix + role
            if self.outer is not None:
                return watch.enter_call((self.agent,), name)
        name = self.agent_name(agent)
        if watch.active_agent == name or not name:
            return watch.begin_step()
        return watch.resume(name) if watch.active_agent else watch.activate(name, source="")

    def leave_tool(self) -> None:
        """End a tool call: the agent that it asked gives the turn back."""
        for name in self.nested_agents.values():
            self.run.watch.leave_call((self.agent,), name)


_current_scope: ContextVar[_CrewScope] = ContextVar("handrail_crewai_place")
"""Set wherever hooks are."""


def _role(agent: Any) -> str:
    return str(getattr(agent, "role", "") or "").strip()


def _abort_if_stopped(stop: Stop | None) -> None:
    """End the framework's run, if the guard's has ended."""
    if stop is not None:
        abort_error = _import_crewai("crewai.hooks").HookAborted
        raise abort_error(f"{stop.rule}: {stop.reason}", source="handrail")


def _on_execution_start(context: Any) -> None:
    """Begin a crew or a flow; an agent's own machinery is a flow too, and no part of the team."""
    scope, crew_or_flow = _current_scope.get(), context.crew or context.flow
    if not getattr(crew_or_flow, "is_crewai_internal", False):
        _current_scope.set(
            _CrewScope(scope.run, _ActiveTeam(crew_or_flow, scope.name_prefix(), scope), "", "")
        )


def _on_execution_end(context: Any) -> None:
    team = _current_scope.get().team
    if team.outer is not None and team.crew_or_flow is (context.crew or context.flow):
        _current_scope.set(team.outer)


def _before_step(context: Any) -> None:
    scope = _current_scope.get()
    handler = STEP_HANDLERS.get((context.kind, _is_crew(scope.team)))
    if handler is not None:
        handler(scope, context)


def _is_crew(team: _ActiveTeam) -> bool:
    return hasattr(team.crew_or_flow, "tasks")


def _begin_task(scope: _CrewScope, context: Any) -> None:
    """Hand over from the agent of the last task; to a parallel task, from the last before them.

    A list of tasks ends, so that each edge between tasks is recorded once.
    """
    run, team, role = scope.run, scope.team, _role(context.agent)
    name, is_async = team.path + role, bool(context.task.async_execution)
    source = (team.last_sequential_agent if is_async else team.last_agent) or team.calling_agent()
    if is_async:
        run.register_concurrent()
    else:
        team.last_sequential_agent = team.last_agent = name
    _current_scope.set(_CrewScope(run, team, name, role))
    edges = team.outer.edges if team.outer is not None else set[tuple[str, str]]()
    if source == name or (source, name) in edges:
        run.watch.resume(name)
    else:
        edges.add((source, name))
        run.watch.activate(name, source=source)


def _begin_method(scope: _CrewScope, context: Any) -> None:
    """Hand over from the method that triggered this one: the context comes from there."""
    run, team = scope.run, scope.team
    run.register_concurrent()
    name = team.path + context.step_name
    _current_scope.set(_CrewScope(run, team, name, ""))
    run.watch.activate(name, source=scope.agent or team.calling_agent())


STEP_HANDLERS: dict[tuple[str, bool], Callable[[_CrewScope, Any], None]] = {
    ("task", True): _begin_task,
    ("flow_method", False): _begin_method,
}
"""By the kind of a step, and whether a crew runs it. A task without a crew shows by its model."""


def _after_step(context: Any) -> None:
    scope = _current_scope.get()
    if (context.kind, _is_crew(scope.team)) not in STEP_HANDLERS:
        return
    if context.kind == "task":
        scope.team.last_agent = scope.agent
    outer = scope.team.outer
    if outer is not None and outer.team.outer is None:
        scope.run.outputs.append(context.output)


def _before_model(context: Any) -> None:
    _flush_events()
    scope = _current_scope.get()
    scope.begin_agent(context.agent)
    if scope.run.watch.begin_call() is None:
        scope.run.watch.deliver_nudge(
            lambda text: context.messages.append({"role": "user", "content": text})
        )


def _after_model(context: Any) -> None:
    _flush_events()
    scope = _current_scope.get()
    watch, name = scope.run.watch, scope.agent_name(context.agent)
    if watch.stop is None:
        if name and watch.active_agent != name:
            watch.resume(name)
        watch.record_answer(text=str(context.response or ""))


def _before_tool(context: Any) -> None:
    _flush_events()
    scope = _current_scope.get()
    if scope.run.watch.stop is not None:
        return
    if scope.run.watch.begin_call(context.tool_name) is not None:
        return
    name = scope.agent_name(context.agent)
    _current_scope.set(
        _CrewScope(scope.run, scope.team, name, _role(context.agent) or scope.role, scope)
    )


def _after_tool(context: Any) -> None:
    scope = _current_scope.get()
    watch = scope.run.watch
    if scope.outer is not None:  # None for a tool that another hook refused
        scope.leave_tool()
        _current_scope.set(scope.outer)
    if context.tool is None or (context.tool_name in DELEGATION_TOOLS and scope.nested_agents):
        return
    tool, result_text = context.tool_name, str(context.tool_result).strip()
    if not result_text.startswith(REUSED_INPUT_PREFIX):
        scope.run.last_tool_outputs[tool] = context.raw_tool_result
    output = scope.run.last_tool_outputs.get(tool)
    failed = isinstance(
        output, _import_crewai("crewai.tools").ToolFailure
    ) or result_text.startswith(FAILURE_PREFIXES)
    watch.record_tool_call(tool, context.tool_input, output, result_text if failed else None)


def _bounded_hook(point: str, hook: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the hook in the guard's boundary; what would begin after a stop is aborted."""

    @functools.wraps(hook)
    def run_hook(context: Any) -> None:
        watch = _current_scope.get().run.watch
        with watch.tool_boundary if point.endswith("TOOL_CALL") else watch.boundary:
            hook(context)
        if point.startswith("PRE_"):
            _abort_if_stopped(watch.stop)

    return run_hook


HOOKS: dict[str, Callable[[Any], None]] = {
    point: _bounded_hook(point, hook)
    for point, hook in (
        ("EXECUTION_START", _on_execution_start),
        ("EXECUTION_END", _on_execution_end),
        ("PRE_STEP", _before_step),
        ("POST_STEP", _after_step),
        ("PRE_MODEL_CALL", _before_model),
        ("POST_MODEL_CALL", _after_model),
        ("PRE_TOOL_CALL", _before_tool),
        ("POST_TOOL_CALL", _after_tool),
    )
}


def _on_model_completed(source: Any, event: Any) -> None:
    """Record every answer, also those with tool calls only, for which no hook runs."""
    scope = _current_scope.get(None)
    if scope is None:
        return
    with scope.run.watch.boundary:
        usage = _import_crewai("crewai.types.usage_metrics").UsageMetrics.from_provider_dict(
            event.usage
        )
        text = event.response if isinstance(event.response, str) else ""
        call = ModelCall(model=event.model or "")
        if usage:
            call = ModelCall(
                model=event.model or "",
                input_tokens=usage.prompt_tokens,
                output_tokens=usage.completion_tokens,
                cache_read_tokens=usage.cached_prompt_tokens,
                cache_write_tokens=usage.cache_creation_tokens,
            )
        scope.run.watch.record_answer(text, usage.total_tokens if usage else 0, call)


def _on_tool_failure(source: Any, event: Any) -> None:
    scope = _current_scope.get(None)
    if scope is None:
        return
    with scope.run.watch.tool_boundary:
        if event.failure.reason in UNHOOKED_FAILURES:
            scope.run.watch.record_tool_call(
                event.tool_name, event.tool_args, error=event.failure.message
            )


EVENT_HANDLERS: dict[str, Callable[[Any, Any], None]] = {
    "LLMCallCompletedEvent": _on_model_completed,
    "ToolFailureDetectedEvent": _on_tool_failure,
}
"""Event handlers, which stay with the process and do nothing outside a guarded call."""


def _flush_events() -> None:
    """Wait for pending events, which another thread delivers."""
    _import_crewai("crewai.events").crewai_event_bus.flush(EVENT_FLUSH_SECONDS)

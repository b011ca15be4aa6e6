"""CrewAI under guard: a Crew, a Flow or an Agent, watched through its hooks, started as before.

    team = guarded(crew)
    team.kickoff({"ticket": "4711"})

In a crew an agent is known by its role, and a task that goes to another agent than the one before
is a handoff. So is work that is delegated to a coworker, or a question to one: the coworker gets
the turn, and gives it back. In a flow a method is an agent, handed to by the method that triggered
it; crews and agents inside are called "method/role". The hooks are those of one call: they go where
its context goes, into its threads and tasks, and nowhere else. A step that is refused does not
begin; a model that would be asked after a stop is not asked, and a tool not called.

What a stop leaves: the outputs of the tasks or methods that were done by then, as `partial`.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module

from handrail.guard import Guard
from handrail.guard.people import ASKS_MAX, ask, ask_async, is_yes
from handrail.guard.watch import Theirs, Watch, refuse_stream, watching
from handrail.kernel.run.state import Stop

HOW = "pip install crewai, in an environment of its own"
DELEGATES = ("delegate_work_to_coworker", "ask_question_to_coworker")
"""Tools by which an agent lets another one work."""
FAILURES = (
    "Error executing tool",
    "Error executing task with agent",
    "I encountered an error",
)
"""What CrewAI says instead of a tool that failed: hooks are told nothing else of it."""
REUSED = "I tried reusing the same input"
"""What it says instead of calling a tool as it was called just before."""
UNHEARD = ("unknown_tool", "invalid_input")
"""Failures before there is a call, of which hooks are told nothing at all."""
HEARD_SECONDS = 5.0
"""That events have to arrive: what was used is told by another thread."""
REST_SECONDS = 10.0
"""That tasks in threads have, after a stop, to come to their next model or tool."""


class GuardedTeam:
    """A Crew, a Flow or an Agent with a guard around it."""

    def __init__(self, team: Theirs, guard: Guard, name: str) -> None:
        self.team, self.guard, self.name = team, guard, name

    def kickoff(self, inputs: Theirs = None, **options: Theirs) -> Theirs:
        """As `team.kickoff(inputs)`; raises `Stopped` when a rule ends the run."""
        with self._run(inputs) as run:
            try:
                run.watch.partial = self.team.kickoff(*_given(inputs), **options)
            except Exception:
                run.rest()
                raise
        return run.watch.partial

    async def kickoff_async(self, inputs: Theirs = None, **options: Theirs) -> Theirs:
        """As `team.kickoff_async(inputs)`; raises `Stopped` when a rule ends the run."""
        return await self._awaited(self.team.kickoff_async, inputs, options)

    async def akickoff(self, inputs: Theirs = None, **options: Theirs) -> Theirs:
        """As `team.akickoff(inputs)`; raises `Stopped` when a rule ends the run."""
        return await self._awaited(self.team.akickoff, inputs, options)

    def kickoff_for_each(self, inputs: list[Theirs], **options: Theirs) -> list[Theirs]:
        """As `crew.kickoff_for_each(inputs)`, each a run of its own; a stop ends the rest."""
        copies = (GuardedTeam(self.team.copy(), self.guard, self.name) for _ in inputs)
        return [one.kickoff(given, **options) for one, given in zip(copies, inputs, strict=True)]

    async def _awaited(
        self, kickoff: Callable[..., Theirs], inputs: Theirs, options: dict[str, Theirs]
    ) -> Theirs:
        with self._run(inputs) as run:
            try:
                run.watch.partial = await kickoff(*_given(inputs), **options)
            except Exception:
                await run.rest_async()
                raise
        return run.watch.partial

    @contextmanager
    def _run(self, inputs: Theirs) -> Generator["_Run"]:
        if getattr(self.team, "stream", False):
            refuse_stream("a team with stream=True", "be guarded and not streamed")
        hooks, events = _crewai("crewai.hooks.dispatch"), _crewai("crewai.events")
        for event, handler in HANDLERS.items():
            events.crewai_event_bus.on(getattr(events, event))(handler)
        points = {hooks.InterceptionPoint[point]: hook for point, hook in HOOKS.items()}
        scope = {
            point: [*(one for one in hooks.get_scoped_hooks(point) if one is not hook), hook]
            for point, hook in points.items()
        }
        with watching(self.guard, self.name, inputs or "") as watch:
            run = _Run(watch)
            before = _here.set(_Place(run, _Team(None, "", None), "", ""))
            try:
                with hooks.scoped_hooks(scope), _asking(watch):
                    yield run
            finally:
                _here.reset(before)
                _hear()


def guarded(team: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedTeam:
    own = getattr(team, "name", None) or getattr(team, "role", None) or type(team).__name__
    return GuardedTeam(team, guard or Guard(), name or own)


@contextmanager
def _asking(watch: Watch) -> Generator[None]:
    """`human_input` is a question in the inbox, where there is one; who asks in a way of their own
    goes on to."""
    people = _crewai("crewai.core.providers.human_input")
    own = type(people.get_provider()) is not people.SyncHumanInputProvider
    if watch.run.live is None or own:
        yield
        return
    before = people.set_provider(_inbox()(watch))
    try:
        yield
    finally:
        people.reset_provider(before)


@functools.cache
def _inbox() -> Theirs:
    """The class of providers; it can be made only where the framework is installed."""
    base = _crewai("crewai.core.providers.human_input").SyncHumanInputProvider
    return type("HandrailInbox", (_Inbox, base), {})


class _Inbox:
    """Asks a person whether an answer will do: a yes, or what the agent is to do better."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def handle_feedback(self, formatted_answer: Theirs, context: Theirs) -> Theirs:
        answer = formatted_answer
        for _ in range(ASKS_MAX):
            reply = ask(self.watch, _question(answer, context))
            _obey(self.watch.stop)
            if reply is None:
                return super().handle_feedback(answer, context)  # pyright: ignore
            if is_yes(reply):
                break
            context.messages.append(context._format_feedback_message(reply.text))
            answer = context._invoke_loop()
        context.ask_for_human_input = False
        return answer

    async def handle_feedback_async(self, formatted_answer: Theirs, context: Theirs) -> Theirs:
        answer = formatted_answer
        for _ in range(ASKS_MAX):
            reply = await ask_async(self.watch, _question(answer, context))
            _obey(self.watch.stop)
            if reply is None:
                return await super().handle_feedback_async(answer, context)  # pyright: ignore
            if is_yes(reply):
                break
            context.messages.append(context._format_feedback_message(reply.text))
            answer = await context._ainvoke_loop()
        context.ask_for_human_input = False
        return answer


def _question(answer: Theirs, context: Theirs) -> str:
    return f"{_role(context.agent)} answers: {answer.output}"


def _crewai(module: str) -> Theirs:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"CrewAI is not installed; {HOW}", name=error.name) from None


def _given(inputs: Theirs) -> tuple[Theirs, ...]:
    return () if inputs is None else (inputs,)


class _Run:
    """One guarded call: what is done in it, and what it has begun beside the caller."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.done: list[Theirs] = []
        self.found: dict[str, Theirs] = {}
        """What each tool returned last."""
        self.tasks: set[asyncio.Task[Theirs]] = set()
        self.threads: set[threading.Thread] = set()

    def begun_beside(self) -> None:
        """What calls this is beside the caller, or may be."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        if task is None:
            self.threads.add(threading.current_thread())
        else:
            self.tasks.add(task)

    def rest(self) -> None:
        """Nothing of it goes on: after a stop each thread is refused its next model or tool."""
        self.watch.partial = self.done
        if self.watch.stop is not None:
            for thread in self.threads - {threading.current_thread()}:
                thread.join(REST_SECONDS)

    async def rest_async(self) -> None:
        """The same of tasks."""
        await asyncio.to_thread(self.rest)
        if self.watch.stop is not None:
            loop, caller = asyncio.get_running_loop(), asyncio.current_task()
            left = [one for one in self.tasks if one is not caller and one.get_loop() is loop]
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)


class _Team:
    """A crew or a flow at work. `outer`: where it was started; none for the call as a whole."""

    def __init__(self, theirs: Theirs, path: str, outer: "_Place | None") -> None:
        self.theirs, self.path, self.outer = theirs, path, outer
        self.last = ""
        """In a crew: who did the task that ended last."""
        self.handing = ""
        """Who did the last one that was not beside others."""

    def asker(self) -> str:
        """The agent whose tool it is; a method that starts a team does not ask it, it is it."""
        return self.outer.agent if self.outer is not None and self.outer.role else ""


class _Place:
    """Where in a run this is: whose part, in which team. A method of a flow has no role."""

    def __init__(
        self, run: _Run, team: _Team, agent: str, role: str, outer: "_Place | None" = None
    ) -> None:
        self.run, self.team, self.agent, self.role = run, team, agent, role
        self.outer = outer
        """Of a tool: where it was called."""
        self.others: dict[int, str] = {}
        """Agents at work here whose part this is not, by identity."""
        self.ways: set[tuple[str, str]] = set()
        """From task to task, in crews that were started here."""

    def inside(self) -> str:
        """What the names of those begin with that are started here."""
        return f"{self.agent}/" if self.agent else self.team.path

    def known(self, agent: Theirs) -> str:
        """The name of the agent; a model that no agent asks is asked by whose part this is."""
        return self.others.get(id(agent), self.agent)

    def begins(self, agent: Theirs) -> Stop | None:
        """The agent's model is about to be asked. An agent that a tool lets work was asked by whose
        tool it is."""
        role, watch = _role(agent), self.run.watch
        if role and role != self.role and id(agent) not in self.others:
            before = self.agent.removesuffix(self.role) if self.role else self.inside()
            self.others[id(agent)] = name = before + role
            if self.outer is not None:
                return watch.join((self.agent,), name)
        name = self.known(agent)
        if watch.agent == name or not name:
            return watch.step()
        return watch.resume(name) if watch.agent else watch.turn(name, source="")

    def left(self) -> None:
        """The tool has returned: who was asked gives the turn back."""
        for name in self.others.values():
            self.run.watch.leave((self.agent,), name)


_here: ContextVar[_Place] = ContextVar("handrail_crewai_place")
"""Set wherever hooks are."""


def _role(agent: Theirs) -> str:
    return str(getattr(agent, "role", "") or "").strip()


def _obey(stop: Stop | None) -> None:
    """Ends the framework's run, if the guard's has ended."""
    if stop is not None:
        aborted = _crewai("crewai.hooks").HookAborted
        raise aborted(f"{stop.rule}: {stop.reason}", source="handrail")


def _execution_begins(context: Theirs) -> None:
    """A crew or a flow begins; an agent's own machinery is a flow too, and no part of the team."""
    place, theirs = _here.get(), context.crew or context.flow
    if not getattr(theirs, "is_crewai_internal", False):
        _here.set(_Place(place.run, _Team(theirs, place.inside(), place), "", ""))


def _execution_ended(context: Theirs) -> None:
    team = _here.get().team
    if team.outer is not None and team.theirs is (context.crew or context.flow):
        _here.set(team.outer)


def _step_begins(context: Theirs) -> None:
    place = _here.get()
    begins = STEPS.get((context.kind, _is_crew(place.team)))
    if begins is not None:
        _obey(begins(place, context))


def _is_crew(team: _Team) -> bool:
    return hasattr(team.theirs, "tasks")


def _task_begins(place: _Place, context: Theirs) -> Stop | None:
    """Whoever did the last task hands over; to a task beside others, who did the last before them.
    A list of tasks ends, so that a way from one to another is told once."""
    run, team, role = place.run, place.team, _role(context.agent)
    name, beside = team.path + role, bool(context.task.async_execution)
    source = (team.handing if beside else team.last) or team.asker()
    if beside:
        run.begun_beside()
    else:
        team.handing = team.last = name
    _here.set(_Place(run, team, name, role))
    ways = team.outer.ways if team.outer is not None else set[tuple[str, str]]()
    if source == name or (source, name) in ways:
        return run.watch.resume(name)
    ways.add((source, name))
    return run.watch.turn(name, source=source)


def _method_begins(place: _Place, context: Theirs) -> Stop | None:
    """What triggered the method is whose part this was, as its context comes from there."""
    run, team = place.run, place.team
    run.begun_beside()
    name = team.path + context.step_name
    _here.set(_Place(run, team, name, ""))
    return run.watch.turn(name, source=place.agent or team.asker())


STEPS: dict[tuple[str, bool], Callable[[_Place, Theirs], Stop | None]] = {
    ("task", True): _task_begins,
    ("flow_method", False): _method_begins,
}
"""By the kind of a step, and whether it is a crew's. A task without a crew is told by its model."""


def _step_ended(context: Theirs) -> None:
    place = _here.get()
    if (context.kind, _is_crew(place.team)) not in STEPS:
        return
    if context.kind == "task":
        place.team.last = place.agent
    outer = place.team.outer
    if outer is not None and outer.team.outer is None:
        place.run.done.append(context.output)


def _model_begins(context: Theirs) -> None:
    _hear()
    _obey(_here.get().begins(context.agent))


def _model_ended(context: Theirs) -> None:
    _hear()
    place = _here.get()
    watch, name = place.run.watch, place.known(context.agent)
    if watch.stop is None:
        if name and watch.agent != name:
            watch.resume(name)
        watch.answered(text=str(context.response or ""))


def _tool_begins(context: Theirs) -> None:
    _hear()
    place = _here.get()
    _obey(place.run.watch.stop)
    name = place.known(context.agent)
    _here.set(_Place(place.run, place.team, name, _role(context.agent) or place.role, place))


def _tool_ended(context: Theirs) -> None:
    place = _here.get()
    watch = place.run.watch
    if place.outer is not None:  # none for a tool that somebody else's hook refused
        place.left()
        _here.set(place.outer)
    if context.tool is None or (context.tool_name in DELEGATES and place.others):
        return
    tool, told = context.tool_name, str(context.tool_result).strip()
    if not told.startswith(REUSED):
        place.run.found[tool] = context.raw_tool_result
    found = place.run.found.get(tool)
    failed = isinstance(found, _crewai("crewai.tools").ToolFailure) or told.startswith(FAILURES)
    watch.called(tool, context.tool_input, found, told if failed else None)


HOOKS: dict[str, Callable[[Theirs], None]] = {
    "EXECUTION_START": _execution_begins,
    "EXECUTION_END": _execution_ended,
    "PRE_STEP": _step_begins,
    "POST_STEP": _step_ended,
    "PRE_MODEL_CALL": _model_begins,
    "POST_MODEL_CALL": _model_ended,
    "PRE_TOOL_CALL": _tool_begins,
    "POST_TOOL_CALL": _tool_ended,
}


def _used(source: Theirs, event: Theirs) -> None:
    """Of every answer, also one that only calls tools, of which hooks are told nothing."""
    place = _here.get(None)
    if place is not None:
        usage = _crewai("crewai.types.usage_metrics").UsageMetrics.from_provider_dict(event.usage)
        text = event.response if isinstance(event.response, str) else ""
        place.run.watch.answered(text=text, tokens=usage.total_tokens if usage else 0)


def _failed(source: Theirs, event: Theirs) -> None:
    place = _here.get(None)
    if place is not None and event.failure.reason in UNHEARD:
        place.run.watch.called(event.tool_name, event.tool_args, error=event.failure.message)


HANDLERS: dict[str, Callable[[Theirs, Theirs], None]] = {
    "LLMCallCompletedEvent": _used,
    "ToolFailureDetectedEvent": _failed,
}
"""Of events, which stay with the process and do nothing outside a guarded call."""


def _hear() -> None:
    """Waits for events that are on their way: another thread tells them."""
    _crewai("crewai.events").crewai_event_bus.flush(HEARD_SECONDS)

"""CrewAI under guard: a Crew, watched through its execution hooks, started as before.

    team = guarded(crew)
    team.kickoff({"ticket": "4711"})

An agent is known by its role. A task that goes to another agent than the one before is a handoff.
So is work that is delegated to a coworker, or a question to one: the coworker gets the turn, and
gives it back. The hooks are CrewAI's own, for all crews of the process, and do nothing outside a
guarded call; a model that would be asked after a stop is not asked, and a tool not called.

What a stop leaves: the outputs of the tasks that were done by then, as `partial`.
"""

from collections.abc import Callable
from contextvars import ContextVar
from importlib import import_module

from handrail.guard import Guard
from handrail.guard.watch import Theirs, Watch, current, refuse_stream, watching

HOW = "pip install crewai, in an environment of its own"
DELEGATES = ("delegate_work_to_coworker", "ask_question_to_coworker")
"""Tools by which an agent lets another one work."""
FAILURES = (
    "Error executing tool",
    "Error executing task with agent",
    "I encountered an error while trying to use the tool",
)
"""What CrewAI says instead of a tool that failed: hooks are told nothing else of it."""

_before: ContextVar[int] = ContextVar("handrail_crewai_tokens", default=0)
"""What a model had used before it was asked."""


class GuardedCrew:
    """A Crew with a guard around it."""

    def __init__(self, crew: Theirs, guard: Guard, name: str) -> None:
        self.crew, self.guard, self.name = crew, guard, name

    def kickoff(self, inputs: Theirs = None, **options: Theirs) -> Theirs:
        """As `crew.kickoff(inputs)`; raises `Stopped` when a rule ends the run."""
        self._prepare()
        with watching(self.guard, self.name, inputs or "") as watch:
            try:
                watch.partial = self.crew.kickoff(inputs=inputs, **options)
            except Exception:
                watch.partial = self._done()
                raise
        return watch.partial

    async def akickoff(self, inputs: Theirs = None, **options: Theirs) -> Theirs:
        """As `crew.akickoff(inputs)`; raises `Stopped` when a rule ends the run."""
        self._prepare()
        with watching(self.guard, self.name, inputs or "") as watch:
            try:
                watch.partial = await self.crew.akickoff(inputs=inputs, **options)
            except Exception:
                watch.partial = self._done()
                raise
        return watch.partial

    def _prepare(self) -> None:
        if self.crew.stream:
            refuse_stream("a crew with stream=True", "be guarded and not streamed")
        hooks = _hooks()
        for point, hook in HOOKS.items():
            where = hooks.InterceptionPoint[point]
            if hook not in hooks.get_hooks(where):
                hooks.register_hook(where, hook)

    def _done(self) -> list[Theirs]:
        return [task.output for task in self.crew.tasks if task.output is not None]


def guarded(crew: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedCrew:
    return GuardedCrew(crew, guard or Guard(), name or crew.name or "crew")


def _hooks() -> Theirs:
    try:
        return import_module("crewai.hooks")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"CrewAI is not installed; {HOW}", name=error.name) from None


def _refuse(watch: Watch) -> None:
    """Ends the framework's run, if the guard's has ended."""
    if watch.stop is not None:
        raise _hooks().HookAborted(f"{watch.stop.rule}: {watch.stop.reason}", source="handrail")


def _role(context: Theirs) -> str:
    return str(getattr(context.agent, "role", "") or "agent").strip()


def _model_begins(context: Theirs) -> None:
    watch, role = current.get(), _role(context)
    if watch is None:
        return
    if watch.agent == role:
        watch.step()
    else:
        watch.turn(role)
    _refuse(watch)
    _before.set(_tokens(context.llm))


def _model_ended(context: Theirs) -> None:
    watch = current.get()
    if watch is not None and watch.stop is None:
        used = _tokens(context.llm) - _before.get()
        watch.answered(text=str(context.response or ""), tokens=used)


def _tokens(llm: Theirs) -> int:
    summary = getattr(llm, "get_token_usage_summary", None)
    return summary().total_tokens if summary is not None else 0


def _tool_begins(context: Theirs) -> None:
    watch = current.get()
    if watch is not None:
        _refuse(watch)


def _tool_ended(context: Theirs) -> None:
    watch, role = current.get(), _role(context)
    if watch is None:
        return
    if context.tool_name in DELEGATES and watch.agent != role:
        watch.resume(role)
        return
    found = str(context.tool_result).strip()
    failed = found if found.startswith(FAILURES) else None
    watch.called(context.tool_name, context.tool_input, found, failed)


HOOKS: dict[str, Callable[[Theirs], None]] = {
    "PRE_MODEL_CALL": _model_begins,
    "POST_MODEL_CALL": _model_ended,
    "PRE_TOOL_CALL": _tool_begins,
    "POST_TOOL_CALL": _tool_ended,
}

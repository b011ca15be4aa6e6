"""Guard plain Python: decorators for functions that are agents or tools, and for the team.

    @agent("planner")
    def plan(task): ...

    @tool
    def search(words): ...

    team = guarded(loop)
    team("ticket 4711")

A call of an agent's function gives it the turn; called by another agent's, it gives the turn back.
What an agent was given and returned counts as a call, if nothing else of its turn was seen: no
tool, and no answer of a model. Lists in what it was given count by their elements, so that a
history that only grows by the same is the same. A function that returns nothing shows nothing.
Outside a guarded team the decorated functions behave as before. Functions may be `async`. Threads
that they start are part of the run if they run with the same context, as `asyncio.to_thread` does.
"""

import functools
import inspect
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar, cast

from handrail.guard.adapter import (
    UNKNOWN_CALL,
    RunWatch,
    current_watch,
    watching,
    watching_agent,
)
from handrail.guard.errors import StoppedError, exception_text
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard
from handrail.guard.tool_calls import to_text

F = TypeVar("F", bound=Callable[..., Any])
ITEMS_MAX, TEXT_CHARS_MAX, DEPTH_MAX = 1_000, 200_000, 6
"""Elements of a list or mapping that count, characters of a text, and how deep they are nested."""


def agent(name: str) -> Callable[[F], F]:
    """Make each call of the function a turn of that agent."""

    def decorate(function: F) -> F:
        _refuse_generator(function)
        if _is_async(function):

            @functools.wraps(function)
            async def take_turn_async(*args: Any, **kwargs: Any) -> Any:
                with _turn(name, args, kwargs) as turn:
                    turn.output = await function(*args, **kwargs)
                return turn.output

            return take_turn_async  # pyright: ignore[reportReturnType] - as the function

        @functools.wraps(function)
        def take_turn(*args: Any, **kwargs: Any) -> Any:
            with _turn(name, args, kwargs) as turn:
                turn.output = function(*args, **kwargs)
                if current_watch.get() is not None:
                    _require_finished(getattr(function, "__name__", name), turn.output)
            return turn.output

        return take_turn  # pyright: ignore[reportReturnType] - as the function

    return decorate


class _Turn:
    """One call of an agent's function, and what it returned."""

    output: Any = None


@contextmanager
def _turn(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Generator[_Turn]:
    """Let an agent take its turn, in a guarded team; what it was given is read before it can be
    changed.
    """
    turn = _Turn()
    if current_watch.get() is None:
        yield turn
        return
    with watching_agent(None, name) as watch:
        _begin_call(watch)
        records, arguments = watch.records, None
        with watch.tool_boundary:
            arguments = _describe_arguments(args, kwargs) if watch.judges_findings else None
        try:
            yield turn
        except Exception as error:
            if arguments is not None and watch.records == records:
                _record_call(name, arguments, error=error)
            raise
        if arguments is not None and watch.records == records and turn.output is not None:
            with watch.tool_boundary:
                _record_call(name, arguments, _bounded(turn.output))


def _describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return to_text([[_bounded(value) for value in args], _bounded(kwargs)])


def _bounded(value: object, depth: int = DEPTH_MAX) -> object:
    """Return the value without what costs too much to compare; lists as the set of their elements,
    in a fixed order.
    """
    if isinstance(value, str):
        return value[:TEXT_CHARS_MAX]
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        entries = islice(cast("dict[object, object]", value).items(), ITEMS_MAX)
        return {to_text(key): _bounded(entry, depth - 1) for key, entry in entries}
    if isinstance(value, list | tuple | set | frozenset):
        elements = islice(cast("Iterable[object]", value), ITEMS_MAX)
        return sorted({to_text(_bounded(element, depth - 1)) for element in elements})
    return to_text(value)[:TEXT_CHARS_MAX]


def tool(function: F) -> F:
    """Make each call of the function evidence: its arguments, and what it returned or raised."""
    name: str = getattr(function, "__name__", "tool")
    _refuse_generator(function)

    if _is_async(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            _begin_call(current_watch.get(), name)
            try:
                output = await function(*args, **kwargs)
            except Exception as error:
                _record_call(name, [args, kwargs], error=error)
                raise
            _record_call(name, [args, kwargs], output)
            return output

        return call_async  # pyright: ignore[reportReturnType] - as the function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _begin_call(current_watch.get(), name)
        try:
            output = function(*args, **kwargs)
        except Exception as error:
            _record_call(name, [args, kwargs], error=error)
            raise
        _record_call(
            name, [args, kwargs], _require_finished(name, output) if current_watch.get() else output
        )
        return output

    return call  # pyright: ignore[reportReturnType] - as the function


def used(*, tokens: int = 0, text: str = "", call: ModelCall = UNKNOWN_CALL) -> None:
    """Record a model's answer: tokens, text and which model was called. Raises `Stopped` if that
    was too much."""
    watch = current_watch.get()
    if watch is not None:
        with watch.boundary:
            watch.begin_step()
        watch.raise_if_stopped()
        with watch.boundary:
            watch.record_answer(text, tokens, call)


def nudge() -> str:
    """Call it before a model is asked: returns what that should be told of a rule that is near,
    once; else nothing. Raises `Stopped` if no call may begin.
    """
    texts: list[str] = []
    watch = current_watch.get()
    if watch is not None:
        with watch.boundary:
            watch.begin_step()
            watch.begin_call()
        watch.raise_if_stopped()
        watch.deliver_nudge(texts.append)
    return "".join(texts)


def guarded(function: F, guard: Guard | None = None, *, name: str = "") -> F:
    """Make the function that runs the team a guarded run; raises `Stopped` when a rule ends it."""
    _refuse_generator(function)
    function_name: str = getattr(function, "__name__", "team")
    team_name, guard = name or function_name, guard or Guard()
    if _is_async(function):

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            with watching(guard, team_name):
                return await function(*args, **kwargs)

        return run_async  # pyright: ignore[reportReturnType] - as the function

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with watching(guard, team_name):
            return _require_finished(function_name, function(*args, **kwargs))

    return run  # pyright: ignore[reportReturnType] - as the function


def _begin_call(watch: RunWatch | None, tool: str = "") -> None:
    """Begin an agent's turn or a tool's call; raise the stop if a limit refuses it."""
    if watch is not None:
        with watch.tool_boundary:
            watch.begin_call(tool)
        watch.raise_if_stopped()


def _record_call(
    name: str, arguments: object, output: object = "", error: Exception | None = None
) -> None:
    watch = current_watch.get()
    if watch is not None and not isinstance(error, StoppedError):
        with watch.tool_boundary:
            message = None if error is None else f"{type(error).__name__}: {exception_text(error)}"
            watch.record_tool_call(name, arguments, output, message)


def _is_async(function: Callable[..., Any]) -> bool:
    """Return whether a function, or a callable object, is async."""
    call_method: Any = getattr(function, "__call__", None)  # noqa: B004 - its own, whatever it is
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call_method)


def _refuse_generator(function: Callable[..., Any]) -> None:
    """Refuse generators: they run after their call has returned, past the guard."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        message = f"'{getattr(function, '__name__', 'a function')}' yields, which cannot be guarded"
        raise ValueError(f"{message}; decorate a function that returns, and let it iterate")


def _require_finished(name: str, output: Any) -> Any:
    """Return the output of a finished call; refuse an awaitable, which would run past the guard."""
    if inspect.iscoroutine(output) or inspect.isgenerator(output):
        output.close()
    elif not (inspect.isawaitable(output) or inspect.isasyncgen(output)):
        return output
    message = f"'{name}' returned a {type(output).__name__} that is still to be run"
    raise ValueError(f"{message}, which cannot be guarded; let the function await it, or iterate")

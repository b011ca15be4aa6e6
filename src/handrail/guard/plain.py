"""Guard plain Python: decorators for functions that are agents or tools, and for the team.

    @agent("planner")
    def plan(task): ...

    @tool
    def search(words): ...

    team = guarded(loop)
    team("ticket 4711")

A call of an agent's function gives it the turn; called by another agent's, it gives the turn back.
Outside a guarded team the decorated functions behave as before. Functions may be `async`. Threads
that they start are part of the run if they run with the same context, as `asyncio.to_thread` does.
"""

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeVar

from handrail.guard.adapter import current_watch, watching, watching_agent
from handrail.guard.errors import StoppedError
from handrail.guard.run import Guard

F = TypeVar("F", bound=Callable[..., Any])


def agent(name: str) -> Callable[[F], F]:
    """Make each call of the function a turn of that agent."""

    def decorate(function: F) -> F:
        return _wrap(
            function, lambda: watching_agent(None, name) if current_watch.get() else nullcontext()
        )

    return decorate


def tool(function: F) -> F:
    """Make each call of the function evidence: its arguments, and what it returned or raised."""
    name: str = getattr(function, "__name__", "tool")
    _refuse_generator(function)

    if _is_async(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            try:
                output = await function(*args, **kwargs)
            except Exception as error:
                _record_call(name, args, kwargs, error=error)
                raise
            _record_call(name, args, kwargs, output)
            return output

        return call_async  # pyright: ignore[reportReturnType] - as the function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            output = function(*args, **kwargs)
        except Exception as error:
            _record_call(name, args, kwargs, error=error)
            raise
        _record_call(
            name, args, kwargs, _require_finished(name, output) if current_watch.get() else output
        )
        return output

    return call  # pyright: ignore[reportReturnType] - as the function


def used(*, tokens: int = 0, text: str = "") -> None:
    """Record a model's answer: tokens and text. Raises `Stopped` if that was too much."""
    watch = current_watch.get()
    if watch is not None:
        watch.begin_step()
        watch.raise_if_stopped()
        watch.record_answer(text=text, tokens=tokens)


def guarded(function: F, guard: Guard | None = None, *, name: str = "") -> F:
    """Make the function that runs the team a guarded run; raises `Stopped` when a rule ends it."""
    team_name: str = name or getattr(function, "__name__", "team")
    return _wrap(function, lambda: watching(guard or Guard(), team_name))


def _record_call(
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    output: object = "",
    error: Exception | None = None,
) -> None:
    watch = current_watch.get()
    if watch is not None and not isinstance(error, StoppedError):
        message = None if error is None else f"{type(error).__name__}: {error}"
        watch.record_tool_call(name, [args, kwargs], output, message)


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


def _wrap(function: F, context: Callable[[], Any]) -> F:
    """Wrap the function in a context that is made for each call."""
    _refuse_generator(function)
    name: str = getattr(function, "__name__", "a function")
    if _is_async(function):

        @functools.wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            with context():
                return await function(*args, **kwargs)

        return run_async  # pyright: ignore[reportReturnType] - as the function

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with context() as watch:
            output = function(*args, **kwargs)
            return output if watch is None else _require_finished(name, output)

    return run  # pyright: ignore[reportReturnType] - as the function

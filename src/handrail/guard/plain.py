"""Plain Python under guard: decorators for functions that are agents or tools, and for the team.

    @agent("planner")
    def plan(task): ...

    @tool
    def search(words): ...

    team = guarded(loop)
    team("ticket 4711")

An agent's function that is called has the turn; called by another agent's, it gives it back.
Outside a guarded team the decorated functions are what they were. Functions may be `async`. What
they start in threads is part of the run if it is started with their context, as `asyncio.to_thread`
does.
"""

import functools
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import TypeVar

from handrail.guard import Guard
from handrail.guard.errors import Stopped
from handrail.guard.watch import Theirs, current, joining, watching

F = TypeVar("F", bound=Callable[..., Theirs])


def agent(name: str) -> Callable[[F], F]:
    """Each call of the function is a turn of that agent."""

    def decorate(function: F) -> F:
        return _around(function, lambda: joining(None, name) if current.get() else nullcontext())

    return decorate


def tool(function: F) -> F:
    """Each call of the function is evidence: what it was given, and what it returned or raised."""
    name: str = getattr(function, "__name__", "tool")
    _no_generator(function)

    if _is_async(function):

        @functools.wraps(function)
        async def call_async(*given: Theirs, **named: Theirs) -> Theirs:
            try:
                found = await function(*given, **named)
            except Exception as error:
                _called(name, given, named, error=error)
                raise
            _called(name, given, named, found)
            return found

        return call_async  # pyright: ignore[reportReturnType] - as the function

    @functools.wraps(function)
    def call(*given: Theirs, **named: Theirs) -> Theirs:
        try:
            found = function(*given, **named)
        except Exception as error:
            _called(name, given, named, error=error)
            raise
        _called(name, given, named, _finished(name, found) if current.get() else found)
        return found

    return call  # pyright: ignore[reportReturnType] - as the function


def used(*, tokens: int = 0, text: str = "") -> None:
    """A model was asked: what it used, and what it said. Raises `Stopped` if that was too much."""
    watch = current.get()
    if watch is not None:
        watch.step()
        watch.check()
        watch.answered(text=text, tokens=tokens)


def guarded(function: F, guard: Guard | None = None, *, name: str = "") -> F:
    """The function that runs the team, as a guarded run: raises `Stopped` when a rule ends it."""
    called: str = name or getattr(function, "__name__", "team")
    return _around(function, lambda: watching(guard or Guard(), called))


def _called(
    name: str,
    given: tuple[Theirs, ...],
    named: dict[str, Theirs],
    found: object = "",
    error: Exception | None = None,
) -> None:
    watch = current.get()
    if watch is not None and not isinstance(error, Stopped):
        told = None if error is None else f"{type(error).__name__}: {error}"
        watch.called(name, [given, named], found, told)


def _is_async(function: Callable[..., Theirs]) -> bool:
    """Also of an object that is called like a function."""
    called: Theirs = getattr(function, "__call__", None)  # noqa: B004 - its own, whatever it is
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def _no_generator(function: Callable[..., Theirs]) -> None:
    """What is iterated over runs when its call has returned, past the guard."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        told = f"'{getattr(function, '__name__', 'a function')}' yields, which cannot be guarded"
        raise ValueError(f"{told}; decorate a function that returns, and let it iterate")


def _finished(name: str, found: Theirs) -> Theirs:
    """What a function returned, if it has done its work: what is still to be run would go past the
    guard."""
    if inspect.iscoroutine(found) or inspect.isgenerator(found):
        found.close()
    elif not (inspect.isawaitable(found) or inspect.isasyncgen(found)):
        return found
    told = f"'{name}' returned a {type(found).__name__} that is still to be run"
    raise ValueError(f"{told}, which cannot be guarded; let the function await it, or iterate")


def _around(function: F, context: Callable[[], Theirs]) -> F:
    """The function inside a context that is made for each call."""
    _no_generator(function)
    name: str = getattr(function, "__name__", "a function")
    if _is_async(function):

        @functools.wraps(function)
        async def run_async(*given: Theirs, **named: Theirs) -> Theirs:
            with context():
                return await function(*given, **named)

        return run_async  # pyright: ignore[reportReturnType] - as the function

    @functools.wraps(function)
    def run(*given: Theirs, **named: Theirs) -> Theirs:
        with context() as watch:
            found = function(*given, **named)
            return found if watch is None else _finished(name, found)

    return run  # pyright: ignore[reportReturnType] - as the function

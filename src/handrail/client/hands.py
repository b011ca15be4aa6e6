"""Functions at work: on the loop or on threads of their own, and how they are stopped.

A thread cannot be stopped: what its function returns is dropped, and its place is taken until it
has returned. Threads are daemons, so that a process that is to end does end.
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import TypeVar, cast

from handrail.engine.dispatch import DispatchView
from handrail.engine.returned import NO_USAGE, checked, told, used
from handrail.kernel.result import Result

G = TypeVar("G")
AgentFunction = Callable[[DispatchView], object]
Room = asyncio.Semaphore | nullcontext[None]
"""How many may run at once, of those that share it."""
_ROLES = "handrail_roles"


def agent(*roles: str) -> Callable[[AgentFunction], AgentFunction]:
    """Marks a function that works as these roles, for `handrail worker MODULE:FUNCTION`."""
    if not roles:
        raise ValueError("an agent works as some role; name one: agent('backend-engineer')")

    def mark(function: AgentFunction) -> AgentFunction:
        setattr(function, _ROLES, roles)
        return function

    return mark


def roles_of(function: object) -> tuple[str, ...]:
    """The roles that a function was marked with."""
    return getattr(function, _ROLES, ())


class Hired:
    """A function, the roles it works as, and how often at once it may run, if that is limited."""

    def __init__(self, function: AgentFunction, roles: Sequence[str], capacity: int | None) -> None:
        self.function, self.roles, self.capacity = function, tuple(roles), capacity
        called: object = getattr(function, "__call__", None)  # noqa: B004 - an object's own
        awaited = inspect.iscoroutinefunction
        self.asynchronous = awaited(function) or awaited(called)


class GivenBack(str):
    """Why a function will not bring a result: it raised, or returned what cannot be sent. What it
    used all the same is counted."""

    usage = NO_USAGE


def _raised(error: BaseException) -> GivenBack:
    given_back = GivenBack(told(error))
    given_back.usage = used(error)
    return given_back


class Job:
    """A dispatch in hand, from its claim until its answer has arrived."""

    def __init__(self, dispatch: DispatchView, hired: Hired, room: Room) -> None:
        self.dispatch, self.hired, self.room = dispatch, hired, room
        self.dropped = ""
        """Why it counts no more; what comes of it is not sent then."""
        self.answered = False
        """Its function is done, and the answer is on its way."""
        self.work: asyncio.Future[object] | None = None

    def drop(self, why: str) -> None:
        """Whoever holds it, it is not this worker any more."""
        if self.answered or self.dropped:
            return
        self.dropped = why
        if self.work is not None and self.hired.asynchronous:
            self.work.cancel()

    async def said(self) -> Result | GivenBack:
        """What the function says, however it says it."""
        async with self.room:
            if self.dropped:
                return GivenBack(self.dropped)
            function, dispatch = self.hired.function, self.dispatch
            if self.hired.asynchronous:
                self.work = _on_loop(function, dispatch)
            else:
                self.work = in_thread(function, dispatch, dispatch.role)
            await asyncio.wait((self.work,))
        self.answered = not self.dropped
        if self.work.cancelled():
            return GivenBack(self.dropped or "the agent cancelled itself")
        returned = self.work.result()
        if isinstance(returned, GivenBack):
            return returned
        result = checked(returned, self.dispatch.role, trusted=False)
        return result if isinstance(result, Result) else GivenBack(result)


def _on_loop(function: AgentFunction, dispatch: DispatchView) -> "asyncio.Future[object]":
    async def work() -> object:
        try:
            return await cast("Awaitable[object]", function(dispatch))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # its lost attempt, whatever it is, and not ours
            return _raised(error)

    return asyncio.ensure_future(work())


def in_thread(function: Callable[[G], object], given: G, name: str) -> "asyncio.Future[object]":
    """What it returns, or why it does not (`GivenBack`). To be waited for, never cancelled."""
    loop = asyncio.get_running_loop()
    came: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            returned = context.run(function, given)
        except BaseException as error:  # as above; a thread has nobody to tell
            returned = _raised(error)
        try:
            loop.call_soon_threadsafe(came.set_result, returned)
        except RuntimeError:  # the worker has ended, and nobody listens
            return

    threading.Thread(target=work, name=f"handrail-{name}", daemon=True).start()
    return came

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

from handrail.engine.dispatch.agent_results import (
    NO_USAGE,
    describe_error,
    usage_of,
    validate_result,
)
from handrail.engine.dispatch.dispatch import DispatchView
from handrail.kernel.result import Result

Argument = TypeVar("Argument")
AgentFunction = Callable[[DispatchView], object]
ConcurrencyLimit = asyncio.Semaphore | nullcontext[None]
"""How many may run at once, of those that share it."""
_ROLES_ATTRIBUTE = "handrail_roles"


def agent(*roles: str) -> Callable[[AgentFunction], AgentFunction]:
    """Marks a function that works as these roles, for `handrail worker MODULE:FUNCTION`."""
    if not roles:
        raise ValueError("an agent works as some role; name one: agent('backend-engineer')")

    def mark(function: AgentFunction) -> AgentFunction:
        setattr(function, _ROLES_ATTRIBUTE, roles)
        return function

    return mark


def roles_of(function: object) -> tuple[str, ...]:
    """The roles that a function was marked with."""
    return getattr(function, _ROLES_ATTRIBUTE, ())


class AgentHandler:
    """A function, the roles it works as, and how often at once it may run, if that is limited."""

    def __init__(self, function: AgentFunction, roles: Sequence[str], capacity: int | None) -> None:
        self.function, self.roles, self.capacity = function, tuple(roles), capacity
        call_method: object = getattr(function, "__call__", None)  # noqa: B004 - an object's own
        is_coroutine = inspect.iscoroutinefunction
        self.is_async = is_coroutine(function) or is_coroutine(call_method)


class ReleaseReason(str):
    """Why a function will not bring a result: it raised, or returned what cannot be sent. What it
    used all the same is counted."""

    usage = NO_USAGE


def _release_reason(error: BaseException) -> ReleaseReason:
    release_reason = ReleaseReason(describe_error(error))
    release_reason.usage = usage_of(error)
    return release_reason


class DispatchTask:
    """A dispatch in hand, from its claim until its answer has arrived."""

    def __init__(
        self, dispatch: DispatchView, handler: AgentHandler, limit: ConcurrencyLimit
    ) -> None:
        self.dispatch, self.handler, self.limit = dispatch, handler, limit
        self.drop_reason = ""
        """Why it counts no more; what comes of it is not sent then."""
        self.is_answered = False
        """Its function is done, and the answer is on its way."""
        self.future: asyncio.Future[object] | None = None

    def drop(self, reason: str) -> None:
        """Whoever holds it, it is not this worker any more."""
        if self.is_answered or self.drop_reason:
            return
        self.drop_reason = reason
        if self.future is not None and self.handler.is_async:
            self.future.cancel()

    async def run(self) -> Result | ReleaseReason:
        """What the function says, however it says it."""
        async with self.limit:
            if self.drop_reason:
                return ReleaseReason(self.drop_reason)
            function, dispatch = self.handler.function, self.dispatch
            if self.handler.is_async:
                self.future = _run_on_loop(function, dispatch)
            else:
                self.future = run_in_thread(function, dispatch, dispatch.role)
            await asyncio.wait((self.future,))
        self.is_answered = not self.drop_reason
        if self.future.cancelled():
            return ReleaseReason(self.drop_reason or "the agent cancelled itself")
        returned = self.future.result()
        if isinstance(returned, ReleaseReason):
            return returned
        result = validate_result(returned, self.dispatch.role, trusted=False)
        return result if isinstance(result, Result) else ReleaseReason(result)


def _run_on_loop(function: AgentFunction, dispatch: DispatchView) -> "asyncio.Future[object]":
    async def work() -> object:
        try:
            return await cast("Awaitable[object]", function(dispatch))
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # its lost attempt, whatever it is, and not ours
            return _release_reason(error)

    return asyncio.ensure_future(work())


def run_in_thread(
    function: Callable[[Argument], object], argument: Argument, name: str
) -> "asyncio.Future[object]":
    """What it returns, or why it does not (`GivenBack`). To be waited for, never cancelled."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            returned = context.run(function, argument)
        except BaseException as error:  # as above; a thread has nobody to tell
            returned = _release_reason(error)
        try:
            loop.call_soon_threadsafe(future.set_result, returned)
        except RuntimeError:  # the worker has ended, and nobody listens
            return

    threading.Thread(target=work, name=f"handrail-{name}", daemon=True).start()
    return future

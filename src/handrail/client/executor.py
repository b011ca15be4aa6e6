"""Runs agent functions, on the event loop or on threads of their own, and stops them.

A thread cannot be stopped: its function's return value is dropped, and it counts against the
capacity until it has returned. Threads are daemons, so that the process can exit.
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
from handrail.kernel.result import Result
from handrail.views.dispatches import DispatchView

Argument = TypeVar("Argument")
AgentFunction = Callable[[DispatchView], object]
ConcurrencyLimit = asyncio.Semaphore | nullcontext[None]
"""Limits how many of the dispatches that share it run at once."""
_ROLES_ATTRIBUTE = "handrail_roles"


def agent(*roles: str) -> Callable[[AgentFunction], AgentFunction]:
    """Mark a function that works as these roles, for `handrail worker MODULE:FUNCTION`."""
    if not roles:
        raise ValueError("an agent needs a role; name one: agent('backend-engineer')")

    def mark(function: AgentFunction) -> AgentFunction:
        setattr(function, _ROLES_ATTRIBUTE, roles)
        return function

    return mark


def roles_of(function: object) -> tuple[str, ...]:
    """Return the roles that a function was marked with."""
    return getattr(function, _ROLES_ATTRIBUTE, ())


class AgentHandler:
    """A function, its roles, and how often at once it may run (None: unlimited)."""

    def __init__(self, function: AgentFunction, roles: Sequence[str], capacity: int | None) -> None:
        self.function, self.roles, self.capacity = function, tuple(roles), capacity
        call_method: object = getattr(function, "__call__", None)  # noqa: B004 - an object's own
        is_coroutine = inspect.iscoroutinefunction
        self.is_async = is_coroutine(function) or is_coroutine(call_method)


class ReleaseReason(str):
    """Why a function has no result: it raised, or returned an unusable value. Its usage still
    counts."""

    usage = NO_USAGE


def _release_reason(error: BaseException) -> ReleaseReason:
    release_reason = ReleaseReason(describe_error(error))
    release_reason.usage = usage_of(error)
    return release_reason


class DispatchTask:
    """A claimed dispatch, until the server has its answer."""

    def __init__(
        self, dispatch: DispatchView, handler: AgentHandler, limit: ConcurrencyLimit
    ) -> None:
        self.dispatch, self.handler, self.limit = dispatch, handler, limit
        self.drop_reason = ""
        """Why the dispatch was dropped; its answer is then not sent."""
        self.is_answered = False
        """The function is done, and the answer is being sent."""
        self.future: asyncio.Future[object] | None = None

    def drop(self, reason: str) -> None:
        """Drop the dispatch: this worker no longer holds it."""
        if self.is_answered or self.drop_reason:
            return
        self.drop_reason = reason
        if self.future is not None and self.handler.is_async:
            self.future.cancel()

    async def run(self) -> Result | ReleaseReason:
        """Run the function; return its result, or why there is none."""
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
        except BaseException as error:  # any failure of the function only costs its attempt
            return _release_reason(error)

    return asyncio.ensure_future(work())


def run_in_thread(
    function: Callable[[Argument], object], argument: Argument, name: str
) -> "asyncio.Future[object]":
    """Return a future of the return value, or of a `ReleaseReason`. Await it, never cancel it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            returned = context.run(function, argument)
        except BaseException as error:  # as above; no caller would see it
            returned = _release_reason(error)
        try:
            loop.call_soon_threadsafe(future.set_result, returned)
        except RuntimeError:  # the loop is closed: the worker has ended
            return

    threading.Thread(target=work, name=f"handrail-{name}", daemon=True).start()
    return future

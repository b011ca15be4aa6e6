"""Runs agents that are functions in this process: starts, awaits and cancels them.

A function takes a `Dispatch` and returns a `Result`, a plain text (read by the text protocol), or
an object with a result's fields; async functions run on the loop, others on a thread. Anything else
costs the attempt. The result is submitted to the committer until it is on disk; while the database
is away it is submitted again and again, as long as the engine lives.

Each dispatch could have a task, but a task is dear and most dispatches of a large batch are over
before they wait for anything. So a task runs one dispatch after the other; when one has to wait,
the next task goes on with the others. A dispatch leaves nothing behind in its task: a task that was
cancelled, or whose context variables have changed, runs no more dispatches.
"""

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import cast

from handrail.engine.clock import Clock
from handrail.engine.commit.batch import CommandJob, CommandResult
from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.dispatch.agent_results import (
    NO_USAGE,
    describe_error,
    usage_of,
    validate_result,
)
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.dispatch.matcher import AgentSlot
from handrail.engine.dispatch.refused_notes import refused_note
from handrail.engine.log_events import log_event
from handrail.engine.queries.run_reader import RunReader
from handrail.engine.store_access import StoreAccess
from handrail.kernel.result import Result
from handrail.kernel.run import commands as c
from handrail.store.rows import StoreError

AgentFunction = Callable[[Dispatch], object]
log = logging.getLogger("handrail.engine")

AGENT_THREADS_MAX = 100
RETRY_SECONDS = 0.5
STOP_SECONDS = 5.0
"""Time for functions to stop when the engine closes."""


class FunctionSlot(AgentSlot):
    """The slot of a local function."""

    def __init__(
        self,
        name: str,
        roles: tuple[str, ...],
        session: str,
        capacity: int,
        function: AgentFunction,
        executor: "LocalExecutor",
        *,
        trusted: bool,
    ) -> None:
        super().__init__(name, roles, session, capacity, self.start)
        self.function, self.executor, self.trusted = function, executor, trusted
        call_method: object = getattr(function, "__call__", None)  # noqa: B004 - an object's own
        is_coroutine = inspect.iscoroutinefunction
        self.is_async = is_coroutine(function) or is_coroutine(call_method)

    def start(self, run_id: str, fence: int) -> None:
        self.executor.start(self, run_id, fence)


class LocalExecutor:
    """Runs the functions of one engine."""

    def __init__(
        self, access: StoreAccess, committer: GroupCommitter, reader: RunReader, clock: Clock
    ) -> None:
        self._access, self.committer, self._reader, self._clock = access, committer, reader, clock
        self._queued: OrderedDict[tuple[str, int], tuple[FunctionSlot, Dispatch]] = OrderedDict()
        self._next_task: asyncio.Task[None] | None = None
        """The task that will run waiting dispatches, if it has not begun."""
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._cancelled_tasks: set[asyncio.Task[None]] = set()
        self.closed = False
        self._threads = ThreadPoolExecutor(AGENT_THREADS_MAX, "handrail-agent")

    def start(self, slot: FunctionSlot, run_id: str, fence: int) -> None:
        """Start the function: its claim is on disk."""
        dispatch = self._reader.cached_dispatch(run_id, fence)
        if dispatch is None or self.closed:  # ended in the same commit
            self._release(slot)
            return
        self._queued[run_id, fence] = slot, dispatch
        self._ensure_task()

    def _ensure_task(self) -> None:
        """Start a task for waiting dispatches, unless one is about to begin."""
        if self._next_task is None:
            self._next_task = asyncio.get_running_loop().create_task(self._run_queued())

    async def _run_queued(self) -> None:
        self._next_task = None
        task, context = asyncio.current_task(), copy_context()
        assert task is not None
        while self._queued and not task.cancelling() and copy_context() == context:
            key, (slot, dispatch) = self._queued.popitem(last=False)
            if self._queued:
                self._ensure_task()  # in case this task has to wait
            self._tasks[key] = task
            await self._run_function(slot, dispatch)
        if self._queued:
            self._ensure_task()

    def cancel(self, run_id: str, fence: int) -> None:
        """Cancel a dispatch that no longer counts (H5.5). A function on a thread cannot be stopped;
        its result will be late."""
        key = run_id, fence
        task = self._tasks.get(key)
        if task is not None:
            self._cancel_task(task)
        elif key in self._queued:
            slot, _ = self._queued.pop(key)
            self._release(slot)

    def _cancel_task(self, task: asyncio.Task[None]) -> None:
        self._cancelled_tasks.add(task)
        task.add_done_callback(self._cancelled_tasks.discard)
        task.cancel()

    async def close(self) -> None:
        """Cancel all functions; one that does not stop is left behind."""
        self.closed = True
        self._queued.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            self._cancel_task(task)
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def active_count(self) -> int:
        return len(self._tasks) + len(self._queued)

    async def _run_function(self, slot: FunctionSlot, dispatch: Dispatch) -> None:
        run_id, fence = dispatch.run.id, dispatch.fence
        try:
            if slot.is_async:
                returned = await cast("Awaitable[object]", slot.function(dispatch))
            else:
                loop = asyncio.get_running_loop()
                returned = await loop.run_in_executor(self._threads, slot.function, dispatch)
            result = validate_result(returned, dispatch.role, trusted=slot.trusted)
        except asyncio.CancelledError:
            if asyncio.current_task() in self._cancelled_tasks:
                raise
            command = c.Lose(fence=fence, reason="the agent cancelled itself")
            ResultSubmission(self, slot, run_id, command).submit()
        except (Exception, SystemExit) as error:  # costs its attempt, whatever it is
            command = _lost_command(slot.agent, fence, error)
            ResultSubmission(self, slot, run_id, command).submit()
        else:
            if isinstance(result, Result):
                report = c.Report(fence=fence, agent=slot.agent, result=result)
            else:
                report = c.Report(fence=fence, agent=slot.agent, malformed=result)
            ResultSubmission(self, slot, run_id, report).submit()
        finally:
            self._tasks.pop((run_id, fence), None)
            self._release(slot)

    def _release(self, slot: AgentSlot) -> None:
        self.committer.matcher.release(slot)
        if not self.committer.matcher.maybe_waiting.isdisjoint(slot.roles):
            self.committer.wake()

    def on_refused(self, run_id: str, command: c.Report | c.Lose, result: CommandResult) -> None:
        """Handle a refused result. While the dispatch is open it costs the attempt, and the agent
        is told why. A late result changes nothing, and is kept as a note."""
        run, refusal = result.run, result.refusal
        assert refusal is not None
        is_open = run is not None and run.find_position(command.fence) is not None
        if not isinstance(command, c.Report) or command.malformed or not is_open:
            reason = refusal.message
            log_event(log, "result_refused", execution_id=run_id, code=refusal.code, reason=reason)
            if isinstance(command, c.Report):
                note = refused_note(run_id, command, refusal.code, self._clock())
                self._access.call_soon(self._access.store.runs.add_note, note)
            return
        problem = f"{refusal.message}; {refusal.hint}"
        resubmitted = c.Report(fence=command.fence, agent=command.agent, malformed=problem)
        self.committer.enqueue(CommandJob(run_id, resubmitted))


def _lost_command(agent: str, fence: int, error: BaseException) -> c.Report | c.Lose:
    """Report a lost attempt that has usage as an unusable result, so that its usage is counted."""
    usage = usage_of(error)
    if usage == NO_USAGE:
        return c.Lose(fence=fence, reason=describe_error(error))
    return c.Report(
        fence=fence, agent=agent, result=Result(usage=usage), malformed=describe_error(error)
    )


class ResultSubmission:
    """Submits a result to the committer, again and again while the database is away."""

    __slots__ = ("command", "executor", "run_id", "slot")

    def __init__(
        self, executor: LocalExecutor, slot: FunctionSlot, run_id: str, command: c.Report | c.Lose
    ) -> None:
        self.executor, self.slot, self.run_id, self.command = executor, slot, run_id, command

    def submit(self) -> None:
        try:
            self.executor.committer.enqueue(CommandJob(self.run_id, self.command, self.on_done))
        except StoreError as error:
            self.on_done(error)

    def on_done(self, result: CommandResult | Exception) -> None:
        if isinstance(result, CommandResult):
            if result.refusal is not None:
                self.executor.on_refused(self.run_id, self.command, result)
        elif isinstance(result, StoreError):
            self._retry_later(result)

    def _retry_later(self, error: StoreError) -> None:
        """Retry as long as the engine lives: until then no engine finds the dispatch orphaned. If
        another engine did meanwhile, the result is refused as late."""
        if not self.executor.closed and not self.executor.committer.failed:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.submit)
        else:
            agent = self.slot.agent
            log_event(log, "result_lost", execution_id=self.run_id, agent=agent, reason=str(error))

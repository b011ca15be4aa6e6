"""Agents that are functions in this process: registered, started, awaited, cancelled.

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
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, cast

from handrail.engine.commit.batch import CommandJob, CommandResult
from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.dispatch.agent_results import (
    describe_error,
    lost_command,
    refused_note,
    usage_of,
    validate_result,
)
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.dispatch.matcher import AgentSlot
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.ids import uuid7
from handrail.engine.log_events import log_event
from handrail.engine.notifier import AgentPresenceChanged, ChangeNotifier
from handrail.engine.queries.runs import RunReader
from handrail.engine.settings import EngineSettings
from handrail.kernel.agent_lifecycle import Trigger
from handrail.kernel.result import Result
from handrail.kernel.run import commands as c
from handrail.store.rows import AgentRow, StoreError, encode, iso

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
                returned = await asyncio.get_running_loop().run_in_executor(
                    self._threads, slot.function, dispatch
                )
            result = validate_result(returned, dispatch.role, trusted=slot.trusted)
        except asyncio.CancelledError:
            if asyncio.current_task() in self._cancelled_tasks:
                raise
            command = c.Lose(fence=fence, reason="the agent cancelled itself")
            ResultSubmission(self, slot, run_id, command).submit()
        except (Exception, SystemExit) as error:  # costs its attempt, whatever it is
            command = lost_command(slot.agent, fence, describe_error(error), usage_of(error))
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
            log_event(
                log,
                "result_refused",
                execution_id=run_id,
                code=refusal.code,
                reason=refusal.message,
            )
            if isinstance(command, c.Report):
                self._access.call_soon(
                    self._access.store.runs.add_note,
                    refused_note(run_id, command, refusal.code, self._clock()),
                )
            return
        self.committer.enqueue(
            CommandJob(
                run_id,
                c.Report(
                    fence=command.fence,
                    agent=command.agent,
                    malformed=f"{refusal.message}; {refusal.hint}",
                ),
            )
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
            log_event(
                log,
                "result_lost",
                execution_id=self.run_id,
                agent=self.slot.agent,
                reason=str(error),
            )


CAPACITY_DEFAULT = 100
"""Dispatches that a function works on at once, unless it sets its own capacity."""


class LocalAgents:
    """Registers functions of this process as agents."""

    def __init__(
        self,
        access: StoreAccess,
        committer: GroupCommitter,
        executor: LocalExecutor,
        notifier: ChangeNotifier,
        clock: Clock,
        settings: EngineSettings,
        engine_id: str,
        spawn: Callable[[Coroutine[Any, Any, None]], Awaitable[None]],
    ) -> None:
        self._access, self._store, self._committer = access, access.store, committer
        self._executor, self._listeners = executor, notifier.listeners
        self._clock, self._settings, self._engine_id = clock, settings, engine_id
        self._spawn = spawn
        """Runs a coroutine that fails the engine if it fails."""

    def decorator(
        self, *roles: str, name: str = "", capacity: int = CAPACITY_DEFAULT, trusted: bool = False
    ) -> Callable[[AgentFunction], AgentFunction]:
        """Decorate a function that works as these roles. `trusted`: its evidence counts as
        measured."""

        def register(function: AgentFunction) -> AgentFunction:
            self.add(function, *roles, name=name, capacity=capacity, trusted=trusted)
            return function

        return register

    def add(
        self,
        function: AgentFunction,
        *roles: str,
        name: str = "",
        capacity: int = CAPACITY_DEFAULT,
        trusted: bool = False,
        only: Iterable[str] = (),
    ) -> Awaitable[None]:
        """Add a function of this process that works as these roles, as soon as the database has its
        row; awaiting that is optional. `only` names the definitions that it works on."""
        assert roles, "an agent works as some role"
        assert capacity > 0, "an agent has room for at least one dispatch"
        base_name = name or getattr(function, "__name__", "agent")
        row = AgentRow(
            id=f"{base_name}@{self._engine_id[-8:]}",
            roles=encode(roles).decode(),
            capacity=capacity,
            enabled=True,
            session=uuid7().hex,
            engine=self._engine_id,
            beat_at=iso(self._clock()),
        )
        slot = FunctionSlot(
            row.id, roles, row.session, capacity, function, self._executor, trusted=trusted
        )
        slot.definitions = frozenset(only)
        if not self._store.inline:
            return self._spawn(self._register(row, slot))
        self._store.agents.put(row)
        self._activate(slot)
        joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        joined.set_result(None)
        return joined

    async def _register(self, row: AgentRow, slot: FunctionSlot) -> None:
        """Register the function; wait for an unavailable database as long as the engine does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._settings.store_patience
        while True:
            try:
                await self._access.call(self._store.agents.put, row)
                break
            except StoreError:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(self._settings.pulse)
        self._activate(slot)

    def _activate(self, slot: FunctionSlot) -> None:
        self._committer.matcher.add(slot)
        self._committer.wake()
        if self._listeners:
            self._listeners.notify(
                AgentPresenceChanged(
                    slot.agent, Trigger.AGENT_STARTS, self._clock(), slot.session, in_process=True
                )
            )

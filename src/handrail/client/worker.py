"""`handrail.Worker`: runs functions as agents of a server, over HTTP.

    worker = handrail.Worker("http://127.0.0.1:8080")

    @worker.agent("backend-engineer")
    async def fix(dispatch):
        return handrail.success(f"fixed: {dispatch.bead.title}")

    worker.serve()

Rules
1. A worker is one agent with the roles of all its functions. It works on `concurrency` dispatches
   at once; while it has capacity, one long poll at a time claims more.
2. One heartbeat renews the leases of all claimed dispatches. Its answer says which have ended; the
   worker cancels these (H5.5).
3. A function returns a result in any form that an engine's agent function may return. If it
   raises, or returns an unusable value, the worker releases the dispatch with the reason.
4. While no server answers, the worker retries all of them, for as long as it lives, and keeps
   finished results until then. A refused token ends the worker.
5. When stopped, the worker claims nothing new, gives claimed dispatches `grace` seconds, and hands
   back the rest. It does not deregister: it counts as offline once it is silent.

Each `Worker.run` has one `WorkerLoop`, which registers, claims and sends heartbeats until stopped.
"""

import asyncio
import logging
import random
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from handrail.client.channel_turns import TurnFunction, TurnRunner
from handrail.client.clients import TIMEOUT_SECONDS, AsyncClient, Client
from handrail.client.errors import ClientError, ConflictError, NotFoundError, UnreachableError
from handrail.client.executor import (
    AgentFunction,
    AgentHandler,
    ConcurrencyLimit,
    DispatchTask,
    ReleaseReason,
    roles_of,
)
from handrail.engine.dispatch.agent_results import NO_USAGE
from handrail.engine.log_events import log_event
from handrail.kernel.result import Result, Usage
from handrail.views.channels import TurnView
from handrail.views.dispatches import DispatchView

T = TypeVar("T")
log = logging.getLogger("handrail.worker")

POLL_SECONDS_MAX = 20.0
"""How long one claim waits."""
RETRY_SECONDS_FIRST, RETRY_SECONDS_MAX = 0.5, 15.0
"""Between two tries while no server answers: a random part of a span that doubles."""
POLL_SECONDS_MIN = 0.5
"""A server that is shutting down answers at once; retrying at once would be a busy loop."""
STOP_SECONDS = 5.0
"""How long cancelled functions, and handing back dispatches, may take."""
REASON_CHARS_MAX = 2_000
UNREGISTERED_CODES, DISABLED_CODE = ("no_session", "unknown_agent"), "agent_disabled"
"""Error codes: the server does not know this agent, or may not give it dispatches."""
STOPPED_REASON = "the worker was stopped"
CHANNELS_ONLY_ROLE = "channels"
"""The role of a worker that only takes turns in channels: an agent needs at least one role."""
HEARTBEAT_SECONDS, GRACE_SECONDS = 15.0, 30.0
PATIENCE_SECONDS = 5.0
"""Per call; after that the worker itself retries."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Runs agents for a server. Defaults of `url`, `token` and `agent_id`: `HANDRAIL_SERVER`,
    `HANDRAIL_TOKEN`, and the agent that the token belongs to."""

    def __init__(
        self,
        url: str | Sequence[str] = "",
        token: str = "",
        *,
        agent_id: str = "",
        concurrency: int = 0,
        heartbeat: float = HEARTBEAT_SECONDS,
        grace: float = GRACE_SECONDS,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self.url, self.token, self.agent_id = url, token, agent_id
        self.concurrency = concurrency
        """Dispatches at once; 0: the sum of its functions' capacities."""
        self.heartbeat, self.grace, self.timeout = heartbeat, grace, timeout
        self._handlers: dict[str, AgentHandler] = {}
        self._channels: dict[str, TurnFunction] = {}
        self._stop_requested = asyncio.Event()

    def agent(
        self, *roles: str, capacity: int | None = None
    ) -> Callable[[AgentFunction], AgentFunction]:
        """Decorate a function that works as these roles, at most `capacity` times at once."""

        def register(function: AgentFunction) -> AgentFunction:
            self.add(function, *roles, capacity=capacity)
            return function

        return register

    def add(self, function: AgentFunction, *roles: str, capacity: int | None = None) -> None:
        """Add a function that works as these roles; default: those of its `handrail.agent` mark.
        Claimed dispatches beyond its capacity wait."""
        role_names = roles or roles_of(function)
        name = getattr(function, "__name__", "the function")
        if not role_names:
            raise ValueError(f"{name} has no role; name one: add({name}, 'backend-engineer')")
        if capacity is not None and capacity < 1:
            raise ValueError(f"{name} has a capacity of {capacity}; it is at least 1")
        handler = AgentHandler(function, role_names, capacity)
        for role in handler.roles:
            if role in self._handlers:
                raise ValueError(f"two functions work as '{role}'; a worker has one for each role")
            self._handlers[role] = handler

    def channel(self, *channels: str) -> Callable[[TurnFunction], TurnFunction]:
        """Decorate a function that takes this agent's turns in these channels
        (`channel_turns.py`). An operator makes it a member; then it rejoins the queue by itself."""

        def register(function: TurnFunction) -> TurnFunction:
            for name in channels:
                if name in self._channels:
                    raise ValueError(f"two functions take turns in '{name}'; a channel has one")
                self._channels[name] = function
            return function

        return register

    async def run(self) -> None:
        """Run until `stop`, or until cancelled, which drops claimed dispatches at once."""
        if not self._handlers and not self._channels:
            raise ValueError("the worker has no function; add one with @worker.agent('ROLE')")
        unopened = Client(self.url, self.token, timeout=self.timeout, patience=PATIENCE_SECONDS)
        try:
            async with unopened as client:
                await WorkerLoop(
                    client,
                    self.agent_id,
                    self._handlers,
                    concurrency=self.concurrency or self._total_capacity(),
                    heartbeat=self.heartbeat,
                    grace=self.grace,
                    channels=self._channels,
                ).run(self._stop_requested)
        finally:
            self._stop_requested = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing new; `run` returns when all dispatches are done or handed back."""
        self._stop_requested.set()

    def serve(self) -> None:
        """Run as the whole process: SIGTERM or SIGINT stops the worker, a second one kills it."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._stop_by_signal, loop)
        try:
            await self.run()
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _stop_by_signal(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        self.stop()

    def _total_capacity(self) -> int:
        return max(1, sum(handler.capacity or 1 for handler in set(self._handlers.values())))


class EndlessRetry:
    """Retries calls for ever; logs once when the servers are lost, and once when they are back."""

    def __init__(self) -> None:
        self._lost_reason = ""

    async def retry(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the answer, however long it takes. Raises errors that are not transient."""
        backoff_seconds = RETRY_SECONDS_FIRST
        while True:
            try:
                answer = await call()
            except ClientError as error:
                if not _is_transient(error):
                    self._log_recovered()
                    raise
                self._log_lost(str(error))
            else:
                self._log_recovered()
                return answer
            await asyncio.sleep(random.random() * backoff_seconds)  # noqa: S311 - jitter
            backoff_seconds = min(2 * backoff_seconds, RETRY_SECONDS_MAX)

    def _log_lost(self, reason: str) -> None:
        if not self._lost_reason:
            log_event(log, "server_lost", reason=reason)
        self._lost_reason = reason

    def _log_recovered(self) -> None:
        if self._lost_reason:
            log_event(log, "server_back")
        self._lost_reason = ""


def _is_transient(error: ClientError) -> bool:
    """Return whether the error may go away without any action on this side."""
    return isinstance(error, UnreachableError) or error.status == 429 or error.status >= 500


class WorkerLoop:
    def __init__(
        self,
        client: AsyncClient,
        agent_id: str,
        handlers: Mapping[str, AgentHandler],
        *,
        concurrency: int,
        heartbeat: float,
        grace: float,
        channels: Mapping[str, TurnFunction] | None = None,
    ) -> None:
        self.client, self.agent_id, self.handlers = client, agent_id, handlers
        self.turns = TurnRunner(client, channels or {}, self._call_registered)
        self.concurrency, self.heartbeat, self.grace = concurrency, heartbeat, grace
        self.endless_retry = EndlessRetry()
        self.dispatch_tasks: dict[str, DispatchTask] = {}
        self._limits: dict[AgentHandler, ConcurrencyLimit] = {
            handler: _concurrency_limit(handler) for handler in handlers.values()
        }
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_capacity = asyncio.Event()
        self._has_capacity.set()
        self._registered = asyncio.Event()
        self._registering = asyncio.Lock()
        self._registrations = 0
        self._disabled = False

    async def run(self, stop_requested: asyncio.Event) -> None:
        """Run until a stop is requested, then drain the claimed dispatches and turns."""
        stop_waiter = asyncio.create_task(stop_requested.wait())
        claim_task = asyncio.create_task(self._claim_loop())
        loops = (claim_task, *map(asyncio.create_task, self._heartbeat_loops()))
        try:
            await asyncio.wait((stop_waiter, *loops), return_when=asyncio.FIRST_COMPLETED)
            for loop in loops:
                if loop.done():
                    loop.result()  # a loop ends only by failing
            await _cancel_and_wait([claim_task])
            if self._registered.is_set():
                await self._drain()
        finally:
            for dispatch_task in list(self.dispatch_tasks.values()):
                dispatch_task.drop("the worker was cancelled")
            await _cancel_and_wait([stop_waiter, *loops, *self._tasks])

    async def _register(self) -> None:
        if not self.agent_id:
            self.agent_id = (await self.endless_retry.retry(self.client.sessions.get_me)).name
        register, roles = self.client.agents.register, tuple(self.handlers) or (CHANNELS_ONLY_ROLE,)
        await self.endless_retry.retry(
            partial(register, self.agent_id, roles, capacity=self.concurrency)
        )
        self._registrations += 1
        self._registered.set()
        log_event(log, "worker_started", agent=self.agent_id, roles=roles, count=self.concurrency)
        await self.turns.join(self.agent_id)

    async def _call_registered(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call as this agent. If the server does not know the agent, register it again;
        the dispatches that it held before are lost."""
        while True:
            registrations = self._registrations
            try:
                return await self.endless_retry.retry(call)
            except (ConflictError, NotFoundError) as error:
                if error.code not in UNREGISTERED_CODES:
                    raise
            async with self._registering:
                if registrations == self._registrations:  # no other call registered meanwhile
                    for dispatch_task in list(self.dispatch_tasks.values()):
                        self._drop(dispatch_task, "the server does not know this agent")
                    await self._register()

    def _heartbeat_loops(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._heartbeat_loop()
        if self.turns.functions:
            yield self._hold_heartbeat_open()

    async def _hold_heartbeat_open(self) -> None:
        """Keep one call always open: if this process dies, its turns pass on before the lease
        expires."""
        await self._registered.wait()
        while True:
            started = asyncio.get_running_loop().time()
            await self._call_registered(
                partial(self.client.agents.heartbeat, self.agent_id, wait=POLL_SECONDS_MAX)
            )
            if asyncio.get_running_loop().time() - started < POLL_SECONDS_MIN:
                await asyncio.sleep(POLL_SECONDS_MIN + random.random() * POLL_SECONDS_MIN)  # noqa: S311 - jitter

    async def _heartbeat_loop(self) -> None:
        await self._registered.wait()
        while True:
            await asyncio.sleep(self.heartbeat)
            dispatch_tasks = dict(self.dispatch_tasks)
            answer = await self._call_registered(
                partial(self.client.agents.heartbeat, self.agent_id, holding=self._held_ids())
            )
            for held_id in answer.ended:
                if held_id in dispatch_tasks:
                    self._drop(dispatch_tasks[held_id], "its run has ended, or it was taken away")
                elif held_id in self.turns.running:
                    self.turns.drop(held_id, "it timed out, or was taken away")
            await self.turns.rejoin(self.agent_id, answer.channels)

    def _held_ids(self) -> list[str]:
        return sorted([*self.dispatch_tasks, *self.turns.running])

    async def _claim_loop(self) -> None:
        await self._register()
        while True:
            await self._has_capacity.wait()
            started = asyncio.get_running_loop().time()
            dispatch = await self._claim_next()
            if dispatch is not None and dispatch.id not in self._held_ids():
                self._start(dispatch)
            elif asyncio.get_running_loop().time() - started < POLL_SECONDS_MIN:
                await asyncio.sleep(random.random() * POLL_SECONDS_MIN)  # noqa: S311 - jitter

    async def _claim_next(self) -> DispatchView | TurnView | None:
        claim = partial(
            self.client.dispatches.claim,
            self.agent_id,
            wait=POLL_SECONDS_MAX,
            holding=self._held_ids(),
        )
        try:
            dispatch = await self._call_registered(claim)
        except ConflictError as error:
            if error.code != DISABLED_CODE:
                raise
            if not self._disabled:
                log_event(log, "worker_disabled", agent=self.agent_id, reason=str(error))
            self._disabled = True
            await asyncio.sleep(self.heartbeat)
            return None
        self._disabled = False
        return dispatch

    def _start(self, dispatch: DispatchView | TurnView) -> None:
        if isinstance(dispatch, TurnView):
            task = self.turns.start(dispatch)
            task.add_done_callback(lambda _: self._has_capacity.set())
        else:
            handler = self.handlers[dispatch.role]
            dispatch_task = self.dispatch_tasks[dispatch.id] = DispatchTask(
                dispatch, handler, self._limits[handler]
            )
            task = asyncio.create_task(self._run_dispatch(dispatch_task))
        if len(self._held_ids()) >= self.concurrency:
            self._has_capacity.clear()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_dispatch(self, dispatch_task: DispatchTask) -> None:
        """Run a dispatch from the start of its function until the server has its answer."""
        try:
            answer = await dispatch_task.run()
            if not dispatch_task.drop_reason:
                await self._send_answer(dispatch_task, answer)
        except ClientError as error:
            self._log_lost_result(dispatch_task, str(error))
        finally:
            del self.dispatch_tasks[dispatch_task.dispatch.id]
            self._has_capacity.set()

    async def _send_answer(
        self, dispatch_task: DispatchTask, answer: Result | ReleaseReason
    ) -> None:
        reason = await self._report(dispatch_task, answer) if isinstance(answer, Result) else answer
        if reason is not None:
            log_event(
                log, "dispatch_given_back", dispatch_id=dispatch_task.dispatch.id, reason=reason
            )
            await self._release(
                dispatch_task.dispatch.id, dispatch_task.dispatch.fence, reason, reason.usage
            )

    async def _report(self, dispatch_task: DispatchTask, result: Result) -> ReleaseReason | None:
        """Report the result; return why to release the dispatch if the result is unusable."""
        dispatch, report = dispatch_task.dispatch, self.client.dispatches.report
        try:
            receipt = await self._call_registered(
                partial(report, dispatch.id, dispatch.fence, result, key=str(uuid4()))
            )
        except (ConflictError, NotFoundError) as error:
            log_event(log, "result_dropped", dispatch_id=dispatch.id, reason=str(error))
            return None
        except ClientError as error:  # too large, or invalid: a retry would not help
            return ReleaseReason(error.detail or str(error))
        if not receipt.accepted:
            log_event(log, "result_not_accepted", dispatch_id=dispatch.id, reason=receipt.reason)
        return None

    async def _release(
        self, dispatch_id: str, fence: int, reason: str, usage: Usage = NO_USAGE
    ) -> None:
        release, short_reason = self.client.dispatches.release, reason[:REASON_CHARS_MAX]
        call = partial(release, dispatch_id, fence, short_reason, usage=usage, key=str(uuid4()))
        try:
            await self._call_registered(call)
        except (ConflictError, NotFoundError) as error:
            log_event(log, "result_dropped", dispatch_id=dispatch_id, reason=str(error))

    def _log_lost_result(self, dispatch_task: DispatchTask, reason: str) -> None:
        run_id = dispatch_task.dispatch.execution_id
        log_event(log, "result_lost", execution_id=run_id, agent=self.agent_id, reason=reason)

    def _drop(self, dispatch_task: DispatchTask, reason: str) -> None:
        if not dispatch_task.is_answered and not dispatch_task.drop_reason:
            log_event(
                log, "dispatch_cancelled", dispatch_id=dispatch_task.dispatch.id, reason=reason
            )
            dispatch_task.drop(reason)

    async def _drain(self) -> None:
        """Give running dispatches `grace` seconds, then hand back the rest."""
        if self._tasks:
            log_event(log, "worker_stopping", count=len(self._tasks), seconds=self.grace)
            await asyncio.wait(self._tasks, timeout=self.grace)
        unfinished = [
            dispatch_task
            for dispatch_task in self.dispatch_tasks.values()
            if not dispatch_task.drop_reason
        ]
        for dispatch_task in unfinished:
            if dispatch_task.is_answered:
                self._log_lost_result(
                    dispatch_task, "no server received it before the worker ended"
                )
            dispatch_task.drop(STOPPED_REASON)
        await _cancel_and_wait(list(self.turns.running.values()))
        await _wait_for_cancelled(
            [
                dispatch_task.future
                for dispatch_task in unfinished
                if dispatch_task.future is not None and dispatch_task.handler.is_async
            ]
        )
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._release_all(unfinished)
        except (TimeoutError, ClientError) as error:
            log_event(log, "not_handed_back", reason=str(error) or "no server answers")

    async def _release_all(self, unfinished: Sequence[DispatchTask]) -> None:
        """Release them, and also dispatches whose claim response this worker never received."""
        held_ids = set((await self.client.agents.heartbeat(self.agent_id)).held)
        turn_ids = {held_id for held_id in held_ids if is_turn_id(held_id)}
        for held_id in sorted(turn_ids):
            await self.turns.release(self.agent_id, held_id)
        held_ids -= turn_ids
        unreceived = held_ids - set(self.dispatch_tasks)
        for dispatch_id in sorted(
            held_ids.intersection(dispatch_task.dispatch.id for dispatch_task in unfinished)
            | unreceived
        ):
            fence = int(dispatch_id.rpartition(".d")[2])
            log_event(log, "dispatch_given_back", dispatch_id=dispatch_id, reason=STOPPED_REASON)
            await self._release(dispatch_id, fence, STOPPED_REASON)


def is_turn_id(held_id: str) -> bool:
    """Return whether the id is that of a turn, and not of a dispatch."""
    return held_id.rpartition(".")[2].startswith("t")


def _concurrency_limit(handler: AgentHandler) -> ConcurrencyLimit:
    return asyncio.Semaphore(handler.capacity) if handler.capacity is not None else nullcontext()


async def _wait_for_cancelled(futures: Sequence[asyncio.Future[object]]) -> None:
    """Let cancelled functions clean up, for at most STOP_SECONDS."""
    if futures:
        await asyncio.wait(futures, timeout=STOP_SECONDS)


async def _cancel_and_wait(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

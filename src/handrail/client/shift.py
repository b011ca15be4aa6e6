"""A worker at work: registered, asking for dispatches, alive, until it is told to stop.

One of these for each `Worker.run`. The rules stand in `worker.py`.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from uuid_utils import uuid7

from handrail.client.clients import AsyncClient
from handrail.client.errors import ClientError, Conflict, NotFound, Unreachable
from handrail.client.hands import GivenBack, Hired, Job, Room
from handrail.client.turns import TurnFunction, Turns
from handrail.engine.channel_views import TurnView
from handrail.engine.dispatch import DispatchView
from handrail.engine.returned import NO_USAGE
from handrail.engine.vocabulary import tell
from handrail.kernel.result import Result, Usage

T = TypeVar("T")
log = logging.getLogger("handrail.worker")

POLL_SECONDS = 20.0
"""How long one question for work waits."""
AGAIN_FIRST, AGAIN_MAX = 0.5, 15.0
"""Seconds between two tries while no server answers: a random part of a span that doubles."""
AT_ONCE = 0.5
"""Seconds. A server that is about to end does not wait; to ask it again at once would be a spin."""
STOP_SECONDS = 5.0
"""How long cancelled functions, and the goodbye, may take."""
REASON_MAX = 2_000
UNKNOWN, DISABLED = ("no_session", "unknown_agent"), "agent_disabled"
"""Codes of a server that does not know this agent, or may not give it anything."""
STOPPED = "the worker was stopped"
TALKS = "channels"
"""The role of a worker that only takes turns in channels: an agent has at least one."""


class Line:
    """The line to the servers: tried for ever, told once when it is lost, once when it is back."""

    def __init__(self) -> None:
        self._lost = ""

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """An answer, however long it takes. What is answered with no is raised."""
        span = AGAIN_FIRST
        while True:
            try:
                answer = await call()
            except ClientError as error:
                if not _passes(error):
                    self._back()
                    raise
                self._say(str(error))
            else:
                self._back()
                return answer
            await asyncio.sleep(random.random() * span)  # noqa: S311 - jitter
            span = min(2 * span, AGAIN_MAX)

    def _say(self, lost: str) -> None:
        if not self._lost:
            tell(log, "server_lost", reason=lost)
        self._lost = lost

    def _back(self) -> None:
        if self._lost:
            tell(log, "server_back")
        self._lost = ""


def _passes(error: ClientError) -> bool:
    """Whether it may be otherwise in a while, without anybody doing anything here."""
    return isinstance(error, Unreachable) or error.status == 429 or error.status >= 500


class Shift:
    def __init__(
        self,
        client: AsyncClient,
        agent_id: str,
        staff: Mapping[str, Hired],
        *,
        concurrency: int,
        heartbeat: float,
        grace: float,
        channels: Mapping[str, TurnFunction] | None = None,
    ) -> None:
        self.client, self.agent_id, self.staff = client, agent_id, staff
        self.turns = Turns(client, channels or {}, self._known)
        self.concurrency, self.heartbeat, self.grace = concurrency, heartbeat, grace
        self.line = Line()
        self.jobs: dict[str, Job] = {}
        self._rooms: dict[Hired, Room] = {one: _room(one) for one in staff.values()}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._registered = asyncio.Event()
        self._registering = asyncio.Lock()
        self._stay = 0
        self._disabled = False

    async def work(self, told: asyncio.Event) -> None:
        """Until it is told to stop; then what is in hand is brought to its end."""
        stopping = asyncio.create_task(told.wait())
        claiming = asyncio.create_task(self._claim())
        loops = (claiming, *map(asyncio.create_task, self._signs_of_life()))
        try:
            await asyncio.wait((stopping, *loops), return_when=asyncio.FIRST_COMPLETED)
            for loop in loops:
                if loop.done():
                    loop.result()  # it only ends when it fails
            await _end([claiming])
            if self._registered.is_set():
                await self._finish()
        finally:
            for job in list(self.jobs.values()):
                job.drop("the worker was cancelled")
            await _end([stopping, *loops, *self._tasks])

    async def _register(self) -> None:
        if not self.agent_id:
            self.agent_id = (await self.line.insist(self.client.me)).name
        make, roles = self.client.register_agent, tuple(self.staff) or (TALKS,)
        await self.line.insist(partial(make, self.agent_id, roles, capacity=self.concurrency))
        self._stay += 1
        self._registered.set()
        tell(log, "worker_started", agent=self.agent_id, roles=roles, count=self.concurrency)
        await self.turns.join(self.agent_id)

    async def _known(self, call: Callable[[], Awaitable[T]]) -> T:
        """A call of this agent. A server that does not know it is told who it is; what it had in
        hand before is lost."""
        while True:
            stay = self._stay
            try:
                return await self.line.insist(call)
            except (Conflict, NotFound) as error:
                if error.code not in UNKNOWN:
                    raise
            async with self._registering:
                if stay == self._stay:  # nobody else has seen to it meanwhile
                    for job in list(self.jobs.values()):
                        self._drop(job, "the server knows nothing of this agent")
                    await self._register()

    def _signs_of_life(self) -> Iterator[Coroutine[Any, Any, None]]:
        yield self._beat()
        if self.turns.functions:
            yield self._hold_line()

    async def _hold_line(self) -> None:
        """A call that is always open: when this process is gone its turns go on before the lease
        is over."""
        await self._registered.wait()
        while True:
            began = asyncio.get_running_loop().time()
            await self._known(partial(self.client.heartbeat, self.agent_id, wait=POLL_SECONDS))
            if asyncio.get_running_loop().time() - began < AT_ONCE:
                await asyncio.sleep(AT_ONCE + random.random() * AT_ONCE)  # noqa: S311 - jitter

    async def _beat(self) -> None:
        await self._registered.wait()
        while True:
            await asyncio.sleep(self.heartbeat)
            jobs = dict(self.jobs)
            beat = partial(self.client.heartbeat, self.agent_id, holding=self._holding())
            answer = await self._known(beat)
            for name in answer.ended:
                if name in jobs:
                    self._drop(jobs[name], "its run has ended, or it was taken away")
                elif name in self.turns.in_hand:
                    self.turns.drop(name, "it timed out, or was taken away")
            await self.turns.return_to(self.agent_id, answer.channels)

    def _holding(self) -> list[str]:
        return sorted([*self.jobs, *self.turns.in_hand])

    async def _claim(self) -> None:
        await self._register()
        while True:
            await self._has_room.wait()
            began = asyncio.get_running_loop().time()
            dispatch = await self._claimed()
            if dispatch is not None and dispatch.id not in self._holding():
                self._begin(dispatch)
            elif asyncio.get_running_loop().time() - began < AT_ONCE:
                await asyncio.sleep(random.random() * AT_ONCE)  # noqa: S311 - jitter

    async def _claimed(self) -> DispatchView | TurnView | None:
        claim = partial(
            self.client.claim, self.agent_id, wait=POLL_SECONDS, holding=self._holding()
        )
        try:
            dispatch = await self._known(claim)
        except Conflict as error:
            if error.code != DISABLED:
                raise
            if not self._disabled:
                tell(log, "worker_disabled", agent=self.agent_id, reason=str(error))
            self._disabled = True
            await asyncio.sleep(self.heartbeat)
            return None
        self._disabled = False
        return dispatch

    def _begin(self, dispatch: DispatchView | TurnView) -> None:
        if isinstance(dispatch, TurnView):
            task = self.turns.begin(dispatch)
            task.add_done_callback(lambda _: self._has_room.set())
        else:
            hired = self.staff[dispatch.role]
            job = self.jobs[dispatch.id] = Job(dispatch, hired, self._rooms[hired])
            task = asyncio.create_task(self._see_through(job))
        if len(self._holding()) >= self.concurrency:
            self._has_room.clear()
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _see_through(self, job: Job) -> None:
        """From the first moment of its function to the arrival of its answer."""
        try:
            said = await job.said()
            if not job.dropped:
                await self._answer(job, said)
        except ClientError as error:
            self._lost(job, str(error))
        finally:
            del self.jobs[job.dispatch.id]
            self._has_room.set()

    async def _answer(self, job: Job, said: Result | GivenBack) -> None:
        reason = await self._report(job, said) if isinstance(said, Result) else said
        if reason is not None:
            tell(log, "dispatch_given_back", dispatch_id=job.dispatch.id, reason=reason)
            await self._give_back(job.dispatch.id, job.dispatch.fence, reason, reason.usage)

    async def _report(self, job: Job, result: Result) -> GivenBack | None:
        """The reason to give it back, if the result cannot be used."""
        dispatch, report = job.dispatch, self.client.report_result
        try:
            done = await self._known(
                partial(report, dispatch.id, dispatch.fence, result, key=str(uuid7()))
            )
        except (Conflict, NotFound) as error:
            tell(log, "result_dropped", dispatch_id=dispatch.id, reason=str(error))
            return None
        except ClientError as error:  # too large, or not what it should be: it would not do again
            return GivenBack(error.detail or str(error))
        if not done.accepted:
            tell(log, "result_not_accepted", dispatch_id=dispatch.id, reason=done.reason)
        return None

    async def _give_back(
        self, dispatch_id: str, fence: int, reason: str, usage: Usage = NO_USAGE
    ) -> None:
        release, told = self.client.release, reason[:REASON_MAX]
        give = partial(release, dispatch_id, fence, told, usage=usage, key=str(uuid7()))
        try:
            await self._known(give)
        except (Conflict, NotFound) as error:
            tell(log, "result_dropped", dispatch_id=dispatch_id, reason=str(error))

    def _lost(self, job: Job, reason: str) -> None:
        run_id = job.dispatch.execution_id
        tell(log, "result_lost", execution_id=run_id, agent=self.agent_id, reason=reason)

    def _drop(self, job: Job, why: str) -> None:
        if not job.answered and not job.dropped:
            tell(log, "dispatch_cancelled", dispatch_id=job.dispatch.id, reason=why)
            job.drop(why)

    async def _finish(self) -> None:
        """What is in hand has its time; then the rest is handed back."""
        if self._tasks:
            tell(log, "worker_stopping", count=len(self._tasks), seconds=self.grace)
            await asyncio.wait(self._tasks, timeout=self.grace)
        left = [job for job in self.jobs.values() if not job.dropped]
        for job in left:
            if job.answered:
                self._lost(job, "no server took it before the worker ended")
            job.drop(STOPPED)
        await _end(list(self.turns.in_hand.values()))
        await _over([job.work for job in left if job.work is not None and job.hired.asynchronous])
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._hand_back(left)
        except (TimeoutError, ClientError) as error:
            tell(log, "not_handed_back", reason=str(error) or "no server answers")

    async def _hand_back(self, left: Sequence[Job]) -> None:
        """Also what the server gave while nobody listened to its answer any more."""
        held = set((await self.client.heartbeat(self.agent_id)).held)
        turns = {name for name in held if is_turn(name)}
        for name in sorted(turns):
            await self.turns.give_back(self.agent_id, name)
        held -= turns
        unheard = held - set(self.jobs)
        for dispatch_id in sorted(held.intersection(job.dispatch.id for job in left) | unheard):
            fence = int(dispatch_id.rpartition(".d")[2])
            tell(log, "dispatch_given_back", dispatch_id=dispatch_id, reason=STOPPED)
            await self._give_back(dispatch_id, fence, STOPPED)


def is_turn(name: str) -> bool:
    """Whether it is the id of a turn, and not of a dispatch."""
    return name.rpartition(".")[2].startswith("t")


def _room(hired: Hired) -> Room:
    return asyncio.Semaphore(hired.capacity) if hired.capacity is not None else nullcontext()


async def _over(works: Sequence[asyncio.Future[object]]) -> None:
    """Functions that were cancelled may clean up; not for ever."""
    if works:
        await asyncio.wait(works, timeout=STOP_SECONDS)


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

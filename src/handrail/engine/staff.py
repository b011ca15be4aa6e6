"""Agents that are functions in this process: given their turn, listened to, stopped.

A function takes a `Dispatch` and returns a `Result`, a plain text (the text protocol's business),
or an object with a result's fields; async ones run on the loop, others on a thread. Whatever else
it does costs it the attempt. Its result is handed to the keeper until that has it on disk; while
the database is away it is handed in again and again, as long as the engine lives.

Each turn has a task, but a task is dear and most turns of a large batch are over before they wait
for anything. So a task gives one turn after the other; when one has to wait, the next task goes on
with the others. Nothing of a turn stays with its task: one that was told to stop, or that has other
context variables than it began with, gives no more turns.
"""

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import cast

from handrail.engine.batch import Answer, Job
from handrail.engine.desk import Seat
from handrail.engine.dispatch import Dispatch
from handrail.engine.keeper import Keeper
from handrail.engine.returned import NO_USAGE, checked, told, used
from handrail.engine.vocabulary import tell
from handrail.kernel.result import Result
from handrail.kernel.run import commands as c
from handrail.store.port import StoreError

AgentFunction = Callable[[Dispatch], object]
Given = Callable[[str, int], Dispatch | None]
Late = Callable[[str, c.Report, str], object]
log = logging.getLogger("handrail.engine")

THREADS_MAX = 100
RETRY_SECONDS = 0.5
STOP_SECONDS = 5.0
"""How long a function has to stop when the engine closes."""


class Function(Seat):
    """A seat that is a function."""

    def __init__(
        self,
        name: str,
        roles: tuple[str, ...],
        session: str,
        capacity: int,
        function: AgentFunction,
        *,
        trusted: bool,
        staff: "Staff",
    ) -> None:
        super().__init__(name, roles, session, capacity, self.start)
        self.function, self.trusted, self.staff, self.capacity = function, trusted, staff, capacity
        called: object = getattr(function, "__call__", None)  # noqa: B004 - an object's own
        awaited = inspect.iscoroutinefunction
        self.asynchronous = awaited(function) or awaited(called)

    def start(self, run_id: str, fence: int) -> None:
        self.staff.start(self, run_id, fence)


class Staff:
    """The functions of one engine, at work."""

    def __init__(self, keeper: Keeper, given: Given, late: Late) -> None:
        self.keeper, self.given, self.late = keeper, given, late
        self._waiting: OrderedDict[tuple[str, int], tuple[Function, Dispatch]] = OrderedDict()
        self._next: asyncio.Task[None] | None = None
        """The task that will look at those who wait, if it has not begun."""
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._stopped: set[asyncio.Task[None]] = set()
        self.closed = False
        self._threads = ThreadPoolExecutor(THREADS_MAX, "handrail-agent")

    def start(self, seat: Function, run_id: str, fence: int) -> None:
        """The claim is on disk: the function may begin."""
        dispatch = self.given(run_id, fence)
        if dispatch is None or self.closed:  # ended by something that was committed with it
            self._free(seat)
            return
        self._waiting[run_id, fence] = seat, dispatch
        self._call()

    def _call(self) -> None:
        """Somebody waits for a turn."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._give_turns())

    async def _give_turns(self) -> None:
        self._next = None
        task, context = asyncio.current_task(), copy_context()
        assert task is not None
        while self._waiting and not task.cancelling() and copy_context() == context:
            turn, (seat, dispatch) = self._waiting.popitem(last=False)
            if self._waiting:
                self._call()  # in case this one has to wait
            self._tasks[turn] = task
            await self._work(seat, dispatch)
        if self._waiting:
            self._call()

    def cancel(self, run_id: str, fence: int) -> None:
        """Its dispatch counts no more (H5.5). A function on a thread cannot be stopped; what it
        returns will be too late."""
        turn = run_id, fence
        task = self._tasks.get(turn)
        if task is not None:
            self._stop(task)
        elif turn in self._waiting:
            seat, _ = self._waiting.pop(turn)
            self._free(seat)

    def _stop(self, task: asyncio.Task[None]) -> None:
        self._stopped.add(task)
        task.add_done_callback(self._stopped.discard)
        task.cancel()

    async def close(self) -> None:
        """Whoever does not stop when told to is left behind."""
        self.closed = True
        self._waiting.clear()
        tasks = list(self._tasks.values())
        for task in tasks:
            self._stop(task)
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def at_work(self) -> int:
        return len(self._tasks) + len(self._waiting)

    async def _work(self, seat: Function, dispatch: Dispatch) -> None:
        run_id, fence = dispatch.run.id, dispatch.fence
        try:
            if seat.asynchronous:
                returned = await cast("Awaitable[object]", seat.function(dispatch))
            else:
                loop = asyncio.get_running_loop()
                returned = await loop.run_in_executor(self._threads, seat.function, dispatch)
            result = checked(returned, dispatch.role, trusted=seat.trusted)
        except asyncio.CancelledError:
            if asyncio.current_task() in self._stopped:
                raise
            self._hand_in(seat, run_id, c.Lose(fence=fence, reason="the agent cancelled itself"))
        except (Exception, SystemExit) as error:  # its lost attempt, whatever it is, and not ours
            self._hand_in(seat, run_id, _lost(seat.agent, fence, error))
        else:
            agent = seat.agent
            if isinstance(result, Result):
                report = c.Report(fence=fence, agent=agent, result=result)
            else:
                report = c.Report(fence=fence, agent=agent, malformed=result)
            self._hand_in(seat, run_id, report)
        finally:
            self._tasks.pop((run_id, fence), None)
            self._free(seat)

    def _free(self, seat: Seat) -> None:
        self.keeper.desk.give_back(seat)
        if not self.keeper.desk.behind.isdisjoint(seat.roles):
            self.keeper.wake()

    def _hand_in(self, seat: Function, run_id: str, command: c.Report | c.Lose) -> None:
        HandIn(self, seat, run_id, command).submit()

    def refused(self, run_id: str, command: c.Report | c.Lose, answer: Answer) -> None:
        """A result that cannot be taken while the dispatch is open costs the attempt, and the agent
        is told why. One that is late changes nothing, and is kept as a note."""
        run, refusal = answer.run, answer.refusal
        assert refusal is not None
        still_open = run is not None and run.token_of(command.fence) is not None
        if not isinstance(command, c.Report) or command.malformed or not still_open:
            why = refusal.message
            tell(log, "result_refused", execution_id=run_id, code=refusal.code, reason=why)
            if isinstance(command, c.Report):
                self.late(run_id, command, refusal.code)
            return
        wrong = f"{refusal.message}; {refusal.hint}"
        again = c.Report(fence=command.fence, agent=command.agent, malformed=wrong)
        self.keeper.let_in(Job(run_id, again))


def _lost(agent: str, fence: int, error: BaseException) -> c.Report | c.Lose:
    """An attempt that has cost something is a report that cannot be used, so that it is counted."""
    spent = used(error)
    if spent == NO_USAGE:
        return c.Lose(fence=fence, reason=told(error))
    return c.Report(fence=fence, agent=agent, result=Result(usage=spent), malformed=told(error))


class HandIn:
    """A result on its way to the keeper, again and again while the database is away."""

    __slots__ = ("command", "run_id", "seat", "staff")

    def __init__(
        self, staff: Staff, seat: Function, run_id: str, command: c.Report | c.Lose
    ) -> None:
        self.staff, self.seat, self.run_id, self.command = staff, seat, run_id, command

    def submit(self) -> None:
        try:
            self.staff.keeper.let_in(Job(self.run_id, self.command, self.done))
        except StoreError as error:
            self.done(error)

    def done(self, answer: Answer | Exception) -> None:
        if isinstance(answer, Answer):
            if answer.refusal is not None:
                self.staff.refused(self.run_id, self.command, answer)
        elif isinstance(answer, StoreError):
            self._later(answer)

    def _later(self, error: StoreError) -> None:
        """As long as the engine lives: as it does, nobody would find the dispatch orphaned. If
        another one did meanwhile, the result is refused as late."""
        if not self.staff.closed and not self.staff.keeper.failed:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.submit)
        else:
            who = self.seat.agent
            tell(log, "result_lost", execution_id=self.run_id, agent=who, reason=str(error))

"""The core of an engine: it opens, commits what it is asked, listens, fails as a whole, closes."""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from threading import Lock
from typing import Any, TypeVar

from handrail.engine.batch import Answer
from handrail.engine.bell import Bell
from handrail.engine.clock import Clock
from handrail.engine.desk import Desk
from handrail.engine.dispatch import Dispatch
from handrail.engine.journal import read_events
from handrail.engine.keeper import Keeper
from handrail.engine.listeners import EngineClosed, Listeners
from handrail.engine.plans import Plans
from handrail.engine.project import encode, loaded
from handrail.engine.pulse import Pulse
from handrail.engine.refused import Refused
from handrail.engine.settings import EngineSettings
from handrail.engine.staff import Staff
from handrail.engine.vocabulary import tell
from handrail.engine.works import RunWork
from handrail.kernel.decision import Refusal
from handrail.kernel.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.effects import CancelWork
from handrail.kernel.run.machine import Run
from handrail.kernel.run.state import Token
from handrail.store.office import Office
from handrail.store.port import KeyRow, Note, StoreError, iso

log = logging.getLogger("handrail.engine")

T = TypeVar("T")
KEY_MAX = 255
NOTE_BYTES_MAX = 50_000
"""Of a refused result that are kept as evidence; of one with more, its beginning and its digest."""
SHORT = 200
"""Events that are read at once where the store is near."""
ANYTHING = ""
"""Whoever listens for this hears of every run."""
WRITTEN_MAX = 1_000
"""Entries of others that are looked at, at each pulse, for who should be told."""


class Core:
    """What an engine is made of, and how it is asked."""

    def __init__(
        self,
        store: Office,
        *,
        clock: Clock,
        settings: EngineSettings,
        engine_id: str,
        visiting: bool = False,
    ) -> None:
        self.store, self.clock, self.settings, self.id = store, clock, settings, engine_id
        self.visiting = visiting
        self.desk = Desk()
        self.plans = Plans(settings.kernel)
        self.keeper = Keeper(store, clock, self.plans, self.desk)
        self.keeper.heard = self._heard
        self.listeners = self.keeper.listeners = Listeners()
        self.pulse = Pulse(self.keeper, clock, settings, engine_id)
        self.pulse.noticed = self._others_wrote
        self.staff = Staff(self.keeper, self._dispatch, self._note_soon)
        self._changes: Bell[None] = Bell()
        self._ends: Bell[Run] = Bell()
        self._tasks: list[asyncio.Task[None]] = []
        self.failure: BaseException | None = None
        self._closed = asyncio.Event()
        self._reader: Office | None = None
        self._reader_lock = Lock()
        self._end: int | None = None
        """The last commit of which those who wait were told, if it was others'."""
        self._watches = False
        """Whether the pulse looks for what others do by itself."""

    async def tick(self) -> None:
        """Look at all clocks, leases and messages now, and at what follows from them."""
        self._check()
        await self.pulse.beat()
        await self.keeper.settled()

    async def over(self) -> BaseException | None:
        """Waits until the engine is closed; what it failed of, if it did."""
        await self._closed.wait()
        return self.failure

    async def visit(self) -> None:
        """By `handrail.open`: what is asked is done, and nothing else."""
        self.pulse.others = True  # what this engine knows of a run may be old at any time
        self._spawn(self.keeper.keep())

    async def open(self, *, dead: list[str] | None, background: bool) -> None:
        """By `handrail.open`. Whoever is alone clears up after those who died."""
        await self.pulse.after_outage(alone=dead is not None)  # by the beats of the dead
        for engine_id in dead or ():
            await self._io(self.store.forget_engine, engine_id)
        await self._io(self.store.beat_engine, self.id, iso(self.clock()))
        self._spawn(self.keeper.keep())
        if background:
            self._watches = True
            self._spawn(self.pulse.go_on())
        else:
            await self.pulse.beat()

    async def close(self) -> None:
        """By `handrail.open`. Work in hand is stopped, and offered again by whoever opens next."""
        self.desk.close()  # a seat that gets free now is given nothing new
        await self.staff.close()
        if self.failure is None:
            await self.keeper.settled()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self.visiting:
            await self._leave()
        if self.listeners:
            self.listeners.tell(EngineClosed(self.clock()))
        self.keeper.close()
        self._close_reader()
        self.store.close()
        self._closed.set()

    async def _leave(self) -> None:
        """That it was alive until now stands under a name that is nobody's."""
        try:
            await self._io(self.store.beat_engine, "", iso(self.clock()))
            await self._io(self.store.forget_engine, self.id)
        except StoreError as error:
            tell(log, "database_away", reason=str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A loop that dies takes the engine with it: half an engine helps nobody."""
        if task.cancelled() or task.exception() is None:
            return
        self.failure = task.exception()
        tell(log, "engine_failed", reason=str(self.failure), error=self.failure)
        self._closed.set()
        wrong = StoreError(f"the engine has failed: {self.failure}")
        self._changes.break_off(wrong)
        self._ends.break_off(wrong)

    async def _io(self, function: Callable[..., Any], *values: object) -> Any:  # noqa: ANN401 - as the store
        try:
            return await self.keeper.io(function, *values)
        except StoreError:
            self._check()  # that the engine has failed, or was closed, says more
            raise

    @property
    def reader(self) -> Office:
        """The store for what takes long."""
        with self._reader_lock:
            if self._reader is None:
                self._reader = self.store.reader()
            return self._reader

    def _close_reader(self) -> None:
        """A question that nobody waits for any more may be opening it on a thread just now. Who
        asks later finds the store, which is closed."""
        with self._reader_lock:
            reader, self._reader = self._reader, self.store
        if reader is not None and reader is not self.store:
            reader.close()

    async def _slowly(self, question: Callable[[Office], T]) -> T:
        """A question to the reader, on a thread: nobody else waits for the answer."""
        self._check()
        if self.store.inline and self.reader is self.store:
            return question(self.store)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: question(self.reader))

    async def _others_wrote(self) -> None:
        """By the pulse: whoever waits for something that others may have changed is told. If so
        much was written that it would take long to look at it, everybody is."""
        waiting = self._changes.names() | self._ends.names()
        if not waiting:
            return
        head = await self._io(self.store.head)
        await self.keeper.landed()  # what is there already, and its own, is known to be its own
        end, known = head.n if head is not None else 0, self._end
        if known is not None and self.keeper.own.are_all(known, end):
            self._end = end
            return
        if known is not None and waiting != {ANYTHING}:
            entries = await self._io(self.store.feed, known, WRITTEN_MAX)
            if 0 < len(entries) < WRITTEN_MAX:
                waiting = {ANYTHING, *(entry.stream for entry in entries)}
        self._end = end
        for name in waiting:
            self._changes.ring(name, None)
        if names := waiting & self._ends.names():
            found = await self._io(self.store.load, list(names))
            for name, one in found.items():
                if one.subject.ended_at is not None:
                    self._ends.ring(name, loaded(one.subject, one.tail))

    async def _ask(
        self,
        run_id: str,
        command: c.RunCommand,
        *,
        key: KeyRow | None = None,
        priority: int = 0,
        start: bool = False,
    ) -> Answer:
        self._check()
        if self.visiting:  # a commit is a sign of life: what was no life must be known before it
            await self.pulse.after_outage(alone=False)
        try:
            answer = await self.keeper.ask(run_id, command, key=key, priority=priority)
        except StoreError:
            if start and isinstance(command, c.Start) and await self._is_there(command):
                return Answer()
            self._check()
            raise
        if answer.repeated is not None and key is not None and answer.repeated.digest != key.digest:
            told = f"the key '{key.key}' was used for another request"
            raise Refused(Refusal(code="key_reused", message=told, hint="take a new key"))
        if answer.refusal is not None and answer.repeated is None:
            raise Refused(answer.refusal)
        return answer

    async def _is_there(self, start: c.Start) -> bool:
        """Whether it began after all: the connection broke, and it was on disk. Refused if its bead
        has another run."""
        try:
            active = await self._io(self.store.active_run, start.bead_id)
        except StoreError:
            return False  # what was wrong first is told
        if active is not None and active != start.run_id:
            told = f"bead '{start.bead_id}' has the active run '{active}'"
            hint = "wait for its end, or close it"
            raise Refused(Refusal(code="bead_busy", message=told, hint=hint))
        return active is not None

    def _check(self) -> None:
        if self.failure is not None:
            raise StoreError(f"the engine has failed: {self.failure}") from self.failure
        if self._closed.is_set():
            raise StoreError("the engine is closed; open it again")

    def _key(self, key: str, actor: str, request: object, answer: dict[str, str]) -> KeyRow | None:
        if not key:
            return None
        if len(key) > KEY_MAX or not key.isprintable():
            told = f"the key {key[:40]!r} is longer than {KEY_MAX} characters, or no plain text"
            raise Refused(Refusal(code="bad_key", message=told, hint="take a UUID"))
        return KeyRow(
            key=key,
            actor=actor,
            digest=hashlib.sha256(encode(request)).hexdigest(),
            answer=encode(answer).decode(),
            created_at=iso(self.clock()),
        )

    def _note(self, run_id: str, report: c.Report, code: str) -> Note:
        at, body = iso(self.clock()), _kept(encode(report))
        return Note(execution_id=run_id, at=at, actor=report.agent, code=code, body=body)

    def _note_soon(self, run_id: str, report: c.Report, code: str) -> None:
        self.keeper.soon(self.store.add_note, self._note(run_id, report, code))

    def _dispatch(self, run_id: str, fence: int) -> Dispatch | None:
        run = self.keeper.run(run_id)
        token = run.token_of(fence) if run is not None else None
        if run is None or token is None:
            return None
        return self._given(self.keeper.plan(run), run, token)

    def _given(self, plan: Plan, run: Run, token: Token) -> Dispatch:
        """What was said, and the bead's files, are read when an agent asks for them."""
        return Dispatch(
            plan,
            run,
            token,
            lambda: read_events(self._near(run), run.id, run.seq),
            lambda: self._near(run).files(run.bead_id),
        )

    def _near(self, run: Run) -> Office:
        """Of a short run everything is read faster than it could be asked of the reader."""
        return self.store if self._is_short(run) else self.reader

    def _is_short(self, run: Run) -> bool:
        return self.store.inline and run.seq <= SHORT

    def _heard(self, work: RunWork) -> None:
        """A run was changed, and it is on disk."""
        for effect in work.effects:
            if isinstance(effect, CancelWork):
                self.staff.cancel(work.stream, effect.fence)
        self._changes.ring(work.stream, None)
        self._changes.ring(ANYTHING, None)
        if work.run is not None and work.run.ended:
            self._ends.ring(work.stream, work.run)
        if self.listeners:
            self.listeners.tell(work)

    def wrote(self, work: RunWork) -> None:
        """A run was changed on disk without a command: whoever waits or listens is told."""
        self._heard(work)

    async def state(self, run_id: str) -> Run:
        """The run as it stands on disk."""
        found = await self._io(self.store.load, [run_id])
        if run_id not in found:
            raise Refused(_unknown(run_id))
        return loaded(found[run_id].subject, found[run_id].tail)

    async def plan_of(self, run: Run) -> Plan:
        """Its definition, from memory or from the database."""
        version = run.definition_id, run.version
        if self.keeper.run(run.id) is None and not self.keeper.plans.knows(*version):
            self.keeper.plans.add(*version, await self._io(self.store.definition, *version))
        return self.keeper.plan(run)

    async def command(
        self, run_id: str, command: c.RunCommand, *, key: KeyRow | None = None
    ) -> Run:
        """Any command of the kernel; the run after it. Who asks is vouched for by the caller."""
        answer = await self._ask(run_id, command, key=key)
        return answer.run if answer.run is not None else await self.state(run_id)


def _unknown(run_id: str) -> Refusal:
    told = f"there is no run '{run_id}'"
    return Refusal(code="unknown_run", message=told, hint="`handrail runs` lists them")


def _kept(report: bytes) -> str:
    """A refused report as a note holds it: whoever is refused may send as much as it likes."""
    if len(report) <= NOTE_BYTES_MAX:
        return report.decode()
    begins = report[:NOTE_BYTES_MAX].decode(errors="ignore")
    cut = {"bytes": len(report), "sha256": hashlib.sha256(report).hexdigest(), "begins": begins}
    return encode(cut).decode()

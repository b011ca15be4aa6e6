"""`handrail.open(url)`: an engine for `async with`, or for a plain `with` on its own thread."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Literal, TypeVar

from uuid_utils import uuid7

from handrail.engine.clock import Clock, steady_clock
from handrail.engine.engine import Defined, Engine
from handrail.engine.settings import EngineSettings
from handrail.engine.staff import AgentFunction
from handrail.engine.with_agents import CAPACITY
from handrail.kernel.report import Report
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Person, Run
from handrail.kernel.run.state import Question
from handrail.store.office import Office
from handrail.store.port import StoreError, moment
from handrail.store.urls import open_store

T = TypeVar("T")


def open(  # noqa: A001 - read as handrail.open
    url: str = "sqlite:///handrail.db",
    *,
    settings: EngineSettings | None = None,
    clock: Clock | None = None,
    background: bool = True,
    visit: bool = False,
) -> "Opening":
    """An engine on that database: `sqlite:///work.db`, `sqlite://` for one in memory, or
    `postgresql://…`. Without `background` nothing happens by itself: call `tick`. A `visit` is for
    a short look at a database, or a word to it, whether or not an engine is at work there: what is
    asked is done, and nothing else happens; no clock runs out, nobody is given work."""
    return Opening(url, settings or EngineSettings(), clock, background=background, visit=visit)


class Opening:
    """Enter it with `async with` for an `Engine`, with `with` for a `SyncEngine`."""

    def __init__(
        self,
        url: str,
        settings: EngineSettings,
        clock: Clock | None,
        *,
        background: bool,
        visit: bool,
    ) -> None:
        self.url, self.settings, self.clock, self.background = url, settings, clock, background
        self.visit = visit
        self._engine: Engine | None = None
        self._sync: SyncEngine | None = None

    async def __aenter__(self) -> Engine:
        loop = asyncio.get_running_loop()
        store: Office = await loop.run_in_executor(None, open_store, self.url)
        try:
            dead = store.left_behind() if not self.visit else None
            last = store.last_alive()
            clock = self.clock or steady_clock(moment(last) if last is not None else None)
            engine = Engine(
                store,
                clock=clock,
                settings=self.settings,
                engine_id=uuid7().hex,
                visiting=self.visit,
            )
            if self.visit:
                await engine.visit()
            else:
                await engine.open(dead=dead, background=self.background)
        except BaseException:
            store.close()
            raise
        self._engine = engine
        return engine

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._engine is not None, "entered"
        await self._engine.close()
        failure = self._engine.failure
        if failure is not None and error is None:
            raise failure

    def __enter__(self) -> "SyncEngine":
        self._sync = SyncEngine(self)
        return self._sync

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._sync is not None, "entered"
        self._sync.close()


class SyncEngine:
    """The engine for programs without an event loop: it has one on a thread of its own."""

    def __init__(self, opening: Opening) -> None:
        self._opening = opening
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="handrail", daemon=True)
        self._thread.start()
        try:
            self.engine = self._do(opening.__aenter__())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        try:
            self._do(self._opening.__aexit__(None, None, None))
        finally:
            self._stop()

    def define(self, source: Any, *, by: str = "") -> Defined:  # noqa: ANN401 - as Engine.define
        return self._do(self.engine.define(source, by=by))

    def agent(
        self, *roles: str, name: str = "", capacity: int = CAPACITY, trusted: bool = False
    ) -> Any:  # noqa: ANN401 - a decorator
        def register(function: AgentFunction) -> AgentFunction:
            async def add() -> None:
                await self.engine.add_agent(
                    function, *roles, name=name, capacity=capacity, trusted=trusted
                )

            self._do(add())
            return function

        return register

    def start(self, definition: str, **wanted: Any) -> "SyncRun":  # noqa: ANN401 - as Engine.start
        handle = self._do(self.engine.start(definition, **wanted))
        return SyncRun(self, handle.id)

    def run(self, run_id: str) -> "SyncRun":
        return SyncRun(self, run_id)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Any other coroutine of the engine, to its end."""
        return self._do(work)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            work.close()
            if self._loop.is_closed():
                raise StoreError("the engine is closed; open it again")
            raise RuntimeError("an async function of this engine would wait for itself: await it")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncRun:
    """A run to hold on to."""

    def __init__(self, engine: SyncEngine, run_id: str) -> None:
        self._engine, self.id = engine, run_id
        self._run = engine.engine.run(run_id)

    def state(self) -> Run:
        return self._engine.do(self._run.state())

    def result(self, timeout: float | None = None) -> Run:
        return self._engine.do(self._run.result(timeout))

    def questions(self, timeout: float | None = None) -> list[Question]:
        return self._engine.do(self._run.questions(timeout))

    def answer(
        self,
        question_id: str,
        text: str = "",
        *,
        by: Person | str,
        decision: Literal["approve", "reject", "revise"] | None = None,
        digest: str = "",
    ) -> Run:
        answered = self._run.answer(question_id, text, by=by, decision=decision, digest=digest)
        return self._engine.do(answered)

    def report(self) -> Report:
        return self._engine.do(self._run.report())

    def events(self, after: int = 0, *, follow: bool = True) -> Iterator[tuple[int, RunEvent]]:
        """As they happen; the thread waits for each."""
        events = self._run.events(after, follow=follow)

        async def following() -> tuple[int, RunEvent] | None:
            return await anext(events, None)

        while (found := self._engine.do(following())) is not None:
            yield found

"""`handrail.open(url)`: an engine for `async with`, or for a plain `with` on its own thread."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Literal, TypeVar

from handrail.engine.dispatch.local_agents import CAPACITY_DEFAULT, AgentFunction
from handrail.engine.engine import Engine
from handrail.engine.environment import Clock, steady_clock
from handrail.engine.ids import uuid7
from handrail.engine.settings import EngineSettings
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.state import PendingApproval, Person, Run
from handrail.store.rows import StoreError, parse_iso
from handrail.store.store import Store
from handrail.store.urls import open_store
from handrail.views.definitions import StoredDefinition
from handrail.views.report import RunReport

T = TypeVar("T")


def open(  # noqa: A001 - read as handrail.open
    url: str = "sqlite:///handrail.db",
    *,
    settings: EngineSettings | None = None,
    clock: Clock | None = None,
    background: bool = True,
    visit: bool = False,
) -> "EngineContext":
    """Open an engine on a database: `sqlite:///work.db`, `sqlite://` for one in memory, or
    `postgresql://…`. Without `background` nothing happens by itself: call `tick`. A `visit` is for
    a short read or command, whether or not an engine is running on the database: the engine
    performs what is asked and nothing else; no clock runs out, no agent gets work."""
    return EngineContext(
        url, settings or EngineSettings(), clock, background=background, visit=visit
    )


class EngineContext:
    """Enter with `async with` for an `Engine`, with `with` for a `SyncEngine`."""

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
        store: Store = await asyncio.get_running_loop().run_in_executor(None, open_store, self.url)
        try:
            dead_engines = store.engines.find_dead() if not self.visit else None
            last_alive = store.engines.get_last_alive()
            clock = self.clock or steady_clock(
                parse_iso(last_alive) if last_alive is not None else None
            )
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
                await engine.open(dead_engines=dead_engines, background=self.background)
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

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="handrail", daemon=True)
        self._thread.start()
        try:
            self.engine = self._run_coroutine(context.__aenter__())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        try:
            self._run_coroutine(self._context.__aexit__(None, None, None))
        finally:
            self._stop()

    def define(self, source: Any, *, by: str = "") -> StoredDefinition:  # noqa: ANN401 - as Engine.define
        return self._run_coroutine(self.engine.define(source, by=by))

    def agent(
        self, *roles: str, name: str = "", capacity: int = CAPACITY_DEFAULT, trusted: bool = False
    ) -> Any:  # noqa: ANN401 - a decorator
        def register(function: AgentFunction) -> AgentFunction:
            async def add() -> None:
                await self.engine.add_agent(
                    function, *roles, name=name, capacity=capacity, trusted=trusted
                )

            self._run_coroutine(add())
            return function

        return register

    def start(self, definition: str, **options: Any) -> "SyncRun":  # noqa: ANN401 - as Engine.start
        return SyncRun(self, self._run_coroutine(self.engine.start(definition, **options)).id)

    def run(self, run_id: str) -> "SyncRun":
        return SyncRun(self, run_id)

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any other coroutine of the engine to its end."""
        return self._run_coroutine(coroutine)

    def _run_coroutine(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed() or threading.current_thread() is self._thread:
            coroutine.close()
            if self._loop.is_closed():
                raise StoreError("the engine is closed; open it again")
            raise RuntimeError(
                "a synchronous call inside the engine's own loop would never return; "
                "await the async engine"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncRun:
    """A handle of one run, for programs without an event loop."""

    def __init__(self, engine: SyncEngine, run_id: str) -> None:
        self._engine, self.id = engine, run_id
        self._run = engine.engine.run(run_id)

    def state(self) -> Run:
        return self._engine.do(self._run.state())

    def result(self, timeout: float | None = None) -> Run:
        return self._engine.do(self._run.result(timeout))

    def questions(self, timeout: float | None = None) -> list[PendingApproval]:
        return self._engine.do(self._run.questions(timeout))

    def answer(
        self,
        approval_id: str,
        text: str = "",
        *,
        by: Person | str,
        decision: Literal["approve", "reject", "revise"] | None = None,
        digest: str = "",
    ) -> Run:
        coroutine = self._run.answer(approval_id, text, by=by, decision=decision, digest=digest)
        return self._engine.do(coroutine)

    def report(self) -> RunReport:
        return self._engine.do(self._run.report())

    def events(self, after: int = 0, *, follow: bool = True) -> Iterator[tuple[int, RunEvent]]:
        """The run's events as they happen; the thread waits for each."""
        events = self._run.events(after, follow=follow)

        async def read_next() -> tuple[int, RunEvent] | None:
            return await anext(events, None)

        while (numbered_event := self._engine.do(read_next())) is not None:
            yield numbered_event

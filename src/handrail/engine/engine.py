"""The engine: runs that survive crashes of this process. For programs that embed it.

    async with handrail.open("sqlite:///work.db") as engine:
        @engine.agent("backend-engineer")
        async def fix(dispatch): ...

        await engine.define("fix.yaml")
        run = await engine.start("fix", title="500 on /invoices")
        ended = await run.result()

Everything else is a service of its own: `engine.beads.create(…)`, `engine.approvals.answer(…)`,
`engine.runs.override(…)`. The effect of a method is on disk when the method returns. A refused call
raises `Refused`; a failing database raises `StoreError`.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.commit.gateway import CommandGateway, StoredAnswers
from handrail.engine.commit.plan_cache import PlanCache
from handrail.engine.dispatch.claims import ClaimService
from handrail.engine.dispatch.dispatches import DispatchService
from handrail.engine.dispatch.local_agents import LocalAgents, LocalExecutor
from handrail.engine.dispatch.matcher import DispatchMatcher
from handrail.engine.dispatch.registry import AgentService
from handrail.engine.environment import Clock, StandstillWatch, StoreAccess
from handrail.engine.errors import InvalidDefinitionError, RefusedError
from handrail.engine.log_events import log_event
from handrail.engine.maintenance.loop import Maintenance
from handrail.engine.notifier import ChangeNotifier, EngineClosed, Listeners
from handrail.engine.queries.event_feed import AuditTrail, EventFeed
from handrail.engine.queries.locks import LockQueries
from handrail.engine.queries.runs import RunQueries, RunReader
from handrail.engine.queries.statistics import StatisticsService
from handrail.engine.services.approvals import ApprovalService
from handrail.engine.services.beads import BeadService
from handrail.engine.services.budgets import BudgetService
from handrail.engine.services.bugs import BugService
from handrail.engine.services.channels import ChannelService
from handrail.engine.services.credentials import CredentialService
from handrail.engine.services.definitions import DefinitionService
from handrail.engine.services.memory import MemoryService
from handrail.engine.services.replays import ReplayService
from handrail.engine.services.report_files import ReportWriter
from handrail.engine.services.runs import RunService
from handrail.engine.services.webhooks import WebhookService
from handrail.engine.settings import EngineSettings
from handrail.store.rows import StoreError, iso
from handrail.store.store import Store
from handrail.views.definitions import StoredDefinition

__all__ = [
    "Engine",
    "InvalidDefinition",
    "InvalidDefinitionError",
    "Refused",
    "RefusedError",
    "StoredDefinition",
]

Refused = RefusedError
InvalidDefinition = InvalidDefinitionError
"""The public names."""
log = logging.getLogger("handrail.engine")


class EngineParts:
    """What the services are made of: the store, the commands' way to it, and who hears of them."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: EngineSettings,
        engine_id: str,
        plans: PlanCache | None,
        *,
        visiting: bool,
    ) -> None:
        self.access = StoreAccess(store)
        self.notifier = ChangeNotifier()
        self.matcher = DispatchMatcher()
        plans = plans or PlanCache(settings.kernel)
        self.committer = GroupCommitter(self.access, clock, plans, self.matcher, self.notifier)
        standstill = StandstillWatch()
        self.maintenance = Maintenance(
            self.access, self.committer, self.notifier, clock, settings, engine_id, standstill
        )
        self.gateway = CommandGateway(
            self.committer,
            self.access,
            clock,
            self._record_outage if visiting else self.maintenance.record_standstill,
            None if visiting else standstill,
        )
        self.reader = RunReader(self.access, plans, self.committer.cached_runs)

    async def _record_outage(self) -> None:
        """A commit is a sign of life: record the outage before it."""
        await self.maintenance.record_outage(is_alone=False)


class Engine:
    """The engine, made by `handrail.open`. It holds the services, opens and closes them."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        settings: EngineSettings,
        engine_id: str,
        visiting: bool = False,
        plans: PlanCache | None = None,
    ) -> None:
        self.store, self.clock, self.settings, self.id = store, clock, settings, engine_id
        self._visiting, self._tasks = visiting, list[asyncio.Task[None]]()
        parts = EngineParts(store, clock, settings, engine_id, plans, visiting=visiting)
        self._access, self._notifier = access, notifier = parts.access, parts.notifier
        self.committer = committer = parts.committer
        self.matcher, self.maintenance = parts.matcher, parts.maintenance
        gateway, reader = parts.gateway, parts.reader

        # Work: beads, runs, people
        self.definitions = DefinitionService(access, committer.plans, clock, settings)
        self.approvals = ApprovalService(access, gateway, reader, clock)
        self.runs = RunService(access, gateway, reader, notifier, self.approvals, settings)
        self.beads = BeadService(access, gateway, reader, self.approvals.get, clock)
        self.bugs = BugService(access, self.beads, clock)
        self.run_queries = RunQueries(access, reader, self.beads.get, clock, settings)
        self.locks = LockQueries(access)
        self.statistics = StatisticsService(access)

        # Agents: their registry, channels and dispatches
        self.agents = AgentService(
            access, committer, notifier, self.maintenance.update_presence, clock, settings
        )
        self.channels = ChannelService(
            *(access, gateway, committer, notifier, self.agents, clock, settings), visiting=visiting
        )
        self.claims = ClaimService(
            access, reader, committer, notifier, self.agents, self.channels, settings
        )
        self.dispatches = DispatchService(access, gateway, reader, self.agents, clock)
        self.local_executor = executor = LocalExecutor(access, committer, reader, clock)
        self.local_agents = LocalAgents(
            access, committer, executor, notifier, clock, settings, engine_id, self._spawn
        )

        # The record
        self.feed = EventFeed(access, notifier)
        self.audit = AuditTrail(access, self.feed, reader)
        self.memory = MemoryService(access, gateway, notifier, clock, settings)
        self.webhooks = WebhookService(access, self.feed, self.approvals, reader, clock)
        self.budgets = BudgetService(access, clock)
        self.credentials = CredentialService(access, clock)
        self.stored_answers = StoredAnswers(access)
        self.replays = ReplayService(access, gateway, settings)
        self.reports = ReportWriter(self.run_queries, notifier, clock, settings)

        # For programs that embed it
        self.agent, self.add_agent = self.local_agents.decorator, self.local_agents.add
        self.define, self.start = self.definitions.store, self.runs.start
        self.run = self.runs.handle
        self._connect(parts)

    def _connect(self, parts: EngineParts) -> None:
        """Let the services hear of changes, before anybody else does."""
        parts.notifier.cancel_hooks.append(self.local_executor.cancel)
        parts.notifier.channel_hooks.append(self.channels.on_channel_changed)
        parts.notifier.foreign_commit_hooks += (
            self.channels.on_foreign_commits,
            self.agents.on_foreign_commits,
        )

    @property
    def listeners(self) -> Listeners:
        """Functions that are called with every committed change."""
        return self._notifier.listeners

    @property
    def failure(self) -> BaseException | None:
        """What made the engine fail."""
        return self._access.failure

    async def open(self, *, dead_engines: list[str] | None, background: bool) -> None:
        """Called by `handrail.open`. An engine that is alone clears up after dead engines."""
        # an outage is found by the heartbeats of the dead
        await self.maintenance.record_outage(is_alone=dead_engines is not None)
        for engine_id in dead_engines or ():
            await self._access.call(self.store.engines.delete, engine_id)
        await self._access.call(self.store.engines.heartbeat, self.id, iso(self.clock()))
        await self.budgets.set_from_settings(self.settings.budgets)
        self._spawn(self.committer.run_forever())
        if background:
            self._spawn(self.maintenance.run_forever())
            self._spawn(self.maintenance.stay_awake())
        else:
            await self.maintenance.run_once()
        await self.reports.open()

    async def visit(self) -> None:
        """Called by `handrail.open`: perform what is asked, and nothing else."""
        self._notifier.has_peers = True  # a cached run may be out of date at any time
        self._spawn(self.committer.run_forever())

    async def close(self) -> None:
        """Called by `handrail.open`. Stop claimed work; the next engine that opens offers it
        again."""
        await self.reports.close()
        await self.channels.wait_background()
        self.matcher.close()  # a slot that becomes free now gets nothing new
        await self.local_executor.close()
        if self.failure is None:
            await self.committer.wait_idle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._visiting:
            await self._record_shutdown()
        if self.listeners:
            self.listeners.notify(EngineClosed(self.clock()))
        self._access.close()
        await self.memory.wait_written()

    async def wait_closed(self) -> BaseException | None:
        """Wait until the engine is closed; return the error if the engine failed."""
        await self._access.closed.wait()
        return self.failure

    async def tick(self) -> None:
        """Check all clocks, leases and messages now, with all that follows from them."""
        self._access.check_open()
        await self.maintenance.run_once()
        await self.committer.wait_idle()

    async def has_live_peers(self) -> bool:
        """Whether another engine is alive on the same database."""
        return await self.maintenance.has_live_peers(self.clock())

    async def is_oldest(self) -> bool:
        """Whether no older engine is alive on the same database."""
        return await self.maintenance.is_oldest_engine()

    async def _record_shutdown(self) -> None:
        """Record that this engine was alive until now, under a name that no engine has."""
        try:
            await self._access.call(self.store.engines.heartbeat, "", iso(self.clock()))
            await self._access.call(self.store.engines.delete, self.id)
        except StoreError as error:
            log_event(log, "database_away", reason=str(error))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """Fail the engine when one of its loops dies: half an engine is useless."""
        if task.cancelled() or (failure := task.exception()) is None:
            return
        self._access.failure = failure
        log_event(log, "engine_failed", reason=str(failure), error=failure)
        self._access.closed.set()
        self._notifier.fail_all(StoreError(f"the engine has failed: {failure}"))

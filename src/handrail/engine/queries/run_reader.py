"""Runs as they stand: from memory where they are active, else from the database."""

from handrail.engine.commit.projection import rebuild_run
from handrail.engine.commit.run_cache import RunCache
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.errors import refuse
from handrail.engine.queries.journal import read_events
from handrail.engine.store_access import StoreAccess
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.state import Position, Run


class RunReader:
    """Reads runs, their plans and their events."""

    def __init__(self, access: StoreAccess, cache: RunCache) -> None:
        self._access, self._cache = access, cache

    async def state(self, run_id: str) -> Run:
        """The run as it stands on disk. Refused: unknown_run."""
        run = await self.find(run_id)
        if run is None:
            refuse("unknown_run", f"there is no run '{run_id}'", "`handrail runs` lists them")
        return run

    def cached(self, run_id: str) -> Run | None:
        """An active run, if it is in memory."""
        return self._cache.run(run_id)

    async def find(self, run_id: str) -> Run | None:
        return next(iter(await self.load([run_id])), None)

    async def load(self, run_ids: list[str]) -> list[Run]:
        """The runs that exist, as they stand on disk."""
        loaded_runs = await self._access.call(self._access.store.runs.load, run_ids)
        return [rebuild_run(stored.row, stored.tail) for stored in loaded_runs.values()]

    async def history(self, run: Run) -> list[RunEvent]:
        """All events of the run."""
        if self._access.has_short_history(run):
            return read_events(self._access.store, run.id, run.seq)
        return await self._access.query(lambda store: read_events(store, run.id, run.seq))

    async def plan_of(self, run: Run) -> Plan:
        """The run's definition, from memory or from the database."""
        version = run.definition_id, run.version
        plans = self._cache.plans
        if self._cache.run(run.id) is None and not plans.has(*version):
            plans.add(
                *version, await self._access.call(self._access.store.definitions.get, *version)
            )
        return self._cache.plan_of(run)

    def cached_dispatch(self, run_id: str, fence: int) -> Dispatch | None:
        """An open dispatch of a run in memory."""
        run = self._cache.run(run_id)
        position = run.find_position(fence) if run is not None else None
        if run is None or position is None:
            return None
        return self._dispatch(self._cache.plan_of(run), run, position)

    async def open_dispatch(self, run_id: str, fence: int) -> Dispatch | None:
        """An open dispatch, from memory, else from the database."""
        cached = self.cached_dispatch(run_id, fence)
        if cached is not None:
            return cached
        run = await self.find(run_id)
        position = run.find_position(fence) if run is not None else None
        if run is None or position is None:
            return None
        return self._dispatch(await self.plan_of(run), run, position)

    def _dispatch(self, plan: Plan, run: Run, position: Position) -> Dispatch:
        """A dispatch. Its history and files are read when its agent wants them."""
        return Dispatch(
            plan,
            run,
            position,
            lambda: read_events(self._access.store_for(run), run.id, run.seq),
            lambda: self._access.store_for(run).beads.list_files(run.bead_id),
        )

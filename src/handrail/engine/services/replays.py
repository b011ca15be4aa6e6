"""Replays recorded runs under other stop rules, and proposes limits from them. No agent is run.

Reading and deciding take their time: both happen on a thread, for one caller at a time, and within
bounds on the number of runs and events.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from handrail.engine.commit.gateway import CommandGateway
from handrail.engine.environment import StoreAccess
from handrail.engine.errors import EventsGoneError, InvalidDefinitionError, refuse, require_known
from handrail.engine.queries.runs import read_events
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.model import Settings
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.run.events import RunEvent
from handrail.replay.replay_report import (
    REPLAYED_RUNS_MAX,
    ReplayReport,
    ReplayResults,
    replay_report,
    summarize,
)
from handrail.replay.rule_overrides import RuleOverrides, read_overrides
from handrail.replay.tuning import TUNING_RUNS_DEFAULT, TUNING_RUNS_MAX, TuningReport, tune
from handrail.store.store import Store

T = TypeVar("T")

REPLAYED_EVENTS_MAX = 200_000
"""Events of all runs of one call together."""
PAGE_RUNS = 100


class ReplayService:
    """Replays runs under other rules, and proposes limits."""

    def __init__(
        self, access: StoreAccess, gateway: CommandGateway, settings: EngineSettings
    ) -> None:
        self._access, self._gateway, self._settings = access, gateway, settings.kernel
        self._lock = asyncio.Lock()

    async def replay(self, run_ids: Sequence[str], rules: object) -> ReplayResults:
        """Replay the runs under these rules: fields of `stop_rules`, which count before those of
        the definition, or the name of a profile. Invalid rules raise `InvalidDefinition`. Refused:
        unknown_run, too_many_runs, too_many_events, events_gone, unknown_definition."""
        overrides, problems = read_overrides(rules)
        if overrides is None:
            raise InvalidDefinitionError(problems)
        distinct_ids = list(dict.fromkeys(run_ids))
        if not 0 < len(distinct_ids) <= REPLAYED_RUNS_MAX:
            refuse(
                "too_many_runs",
                (
                    f"{len(distinct_ids)} run ids were sent; 1 to {REPLAYED_RUNS_MAX} are replayed "
                    "at once"
                ),
                "name fewer, or ask several times",
            )
        items = await self._query_exclusively(
            lambda store: _replay_runs(store, self._settings, distinct_ids, overrides)
        )
        return ReplayResults(
            rules=msgspec.to_builtins(dict(overrides)), items=items, summary=summarize(items)
        )

    async def tune(
        self, workflow_id: str, *, share: float = 0.0, runs: int = TUNING_RUNS_DEFAULT
    ) -> TuningReport:
        """Propose limits for a definition, by id or name, from its newest ended runs. No proposed
        limit would have cut more than `share` of the good ones. Refused: unknown_definition."""
        row = await self._gateway.load_newest_definition(workflow_id)
        if not 0 < runs <= TUNING_RUNS_MAX or not 0 <= share <= 1:
            refuse(
                "bad_limit",
                f"runs must be 1 to {TUNING_RUNS_MAX}, and share between 0 and 1",
                "ask for fewer runs, or another share",
            )
        workflow_id, version = row.workflow_id, row.version

        def propose(store: Store) -> TuningReport:
            plans = _PlanLoader(store, self._settings)
            return tune(
                plans(workflow_id, version),
                workflow_id,
                version,
                _read_ended_runs(store, workflow_id, runs),
                plans,
                share,
            )

        return await self._query_exclusively(propose)

    async def _query_exclusively(self, query: Callable[[Store], T]) -> T:
        async with self._lock:
            return await self._access.query(query)


class _PlanLoader:
    """Loads the plans of the versions that runs were recorded under."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.plans: dict[tuple[str, int], Plan] = {}

    def __call__(self, workflow_id: str, version: int) -> Plan:
        plan = self.plans.get((workflow_id, version))
        if plan is None:
            row = self.store.definitions.get(workflow_id, version)
            document = msgspec.json.decode(row.definition) if row is not None else None
            plan, _ = check_definition(document, self.settings)
            if plan is None:
                refuse(
                    "unknown_definition",
                    f"there is no usable version {version} of the definition '{workflow_id}'",
                    "`handrail check` says what is wrong with it",
                )
            self.plans[workflow_id, version] = plan
        return plan


def _replay_runs(
    store: Store, settings: Settings, run_ids: Sequence[str], overrides: RuleOverrides
) -> tuple[ReplayReport, ...]:
    plans, events_left = _PlanLoader(store, settings), REPLAYED_EVENTS_MAX
    replays: list[ReplayReport] = []
    for run_id in run_ids:
        events = _read_run_events(store, run_id, events_left)
        events_left -= len(events)
        replays.append(replay_report(events, plans, overrides))
    return tuple(replays)


def _read_run_events(store: Store, run_id: str, events_left: int) -> list[RunEvent]:
    stored = require_known(
        store.runs.load([run_id]).get(run_id), "unknown_run", run_id, "`handrail runs` lists them"
    )
    if stored.row.seq > events_left:
        refuse(
            "too_many_events",
            f"the runs up to '{run_id}' have more than {REPLAYED_EVENTS_MAX:,} events",
            "name fewer runs",
        )
    try:
        return read_events(store, run_id, stored.row.seq)
    except EventsGoneError as error:
        refuse("events_gone", str(error), "an archived run cannot be replayed")


def _read_ended_runs(store: Store, workflow_id: str, runs_max: int) -> list[list[RunEvent]]:
    """Return the newest ended runs, as many as the bounds allow; archived ones are left out."""
    histories: list[list[RunEvent]] = []
    before, events_left = None, REPLAYED_EVENTS_MAX
    while len(histories) < runs_max:
        rows = store.runs.list(
            status="ended", workflow_id=workflow_id, before=before, limit=PAGE_RUNS
        )
        for row in rows[: runs_max - len(histories)]:
            run = store.runs.load([row.id])[row.id].row
            events_left -= run.seq
            if events_left < 0:
                return histories
            try:
                histories.append(read_events(store, row.id, run.seq))
            except EventsGoneError:
                continue
        if len(rows) < PAGE_RUNS:
            break
        before = rows[-1].id
    return histories

"""Recorded runs under other stop rules, and limits proposed from them. No agent is run.

Reading and thinking take their time: both happen on a thread, for one caller at a time, and within
bounds of how many runs and how many events are looked at.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from handrail.engine.definitions import InvalidDefinition
from handrail.engine.journal import EventsGone, read_events
from handrail.engine.pages import refuse
from handrail.engine.runs import WithRuns
from handrail.kernel.definition import Settings
from handrail.kernel.other_rules import Given, read_given
from handrail.kernel.plan import Plan, check
from handrail.kernel.replayed import Replayed, Summary, replayed, summed
from handrail.kernel.run.events import RunEvent
from handrail.kernel.shown import Shown
from handrail.kernel.tune import Tuning, tune
from handrail.store.office import Office

T = TypeVar("T")

RUNS_MAX = 200
"""Runs that are replayed at once."""
TUNED_FROM, TUNED_FROM_MAX = 100, 500
"""Ended runs that limits are proposed from: the newest."""
EVENTS_MAX = 200_000
"""Of all runs together that are looked at in one call."""
PAGE = 100


class Replays(Shown):
    """Runs under other rules, in the order they were named, and their sum."""

    rules: dict[str, Any]
    items: tuple[Replayed, ...]
    summary: Summary


class WithReplays(WithRuns):
    """An engine whose runs can be looked at under other rules."""

    def __init__(self, store: Office, **made: Any) -> None:  # noqa: ANN401 - as Core
        super().__init__(store, **made)
        self._replaying = asyncio.Lock()

    async def replay(self, run_ids: Sequence[str], rules: object) -> Replays:
        """What these rules would have made of the runs: fields of `stop_rules`, which count before
        those of the definition, or the name of a profile. Wrong ones raise `InvalidDefinition`.
        Refused: unknown_run, too_many_runs, too_many_events, events_gone, unknown_definition."""
        given, problems = read_given(rules)
        if given is None:
            raise InvalidDefinition(problems)
        wanted = list(dict.fromkeys(run_ids))
        if not 0 < len(wanted) <= RUNS_MAX:
            told = f"{len(wanted)} runs were named; 1 to {RUNS_MAX} are replayed at once"
            refuse("too_many_runs", told, "name fewer, or ask several times")
        items = await self._thinking(lambda store: _replay(store, self._settings, wanted, given))
        return Replays(rules=msgspec.to_builtins(dict(given)), items=items, summary=summed(items))

    async def tune(self, workflow_id: str, *, share: float = 0.0, runs: int = TUNED_FROM) -> Tuning:
        """Limits for a definition, by id or name, from its newest ended runs. No limit is proposed
        that would have cut more than that share of the good ones. Refused: unknown_definition."""
        row = await self._newest(workflow_id)
        if not 0 < runs <= TUNED_FROM_MAX or not 0 <= share <= 1:
            told = f"1 to {TUNED_FROM_MAX} runs are looked at, and a share is between 0 and 1"
            refuse("bad_limit", told, "ask for fewer runs, or another share")
        workflow_id, version = row.workflow_id, row.version

        def think(store: Office) -> Tuning:
            versions = _Versions(store, self._settings)
            found = _ended(store, workflow_id, runs)
            plan = versions(workflow_id, version)
            return tune(plan, workflow_id, version, found, versions, share)

        return await self._thinking(think)

    @property
    def _settings(self) -> Settings:
        return self.settings.kernel

    async def _thinking(self, think: Callable[[Office], T]) -> T:
        async with self._replaying:
            return await self._slowly(think)


class _Versions:
    """Plans of the versions that runs were recorded under."""

    def __init__(self, store: Office, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.known: dict[tuple[str, int], Plan] = {}

    def __call__(self, workflow_id: str, version: int) -> Plan:
        found = self.known.get((workflow_id, version))
        if found is None:
            row = self.store.definition(workflow_id, version)
            document = msgspec.json.decode(row.definition) if row is not None else None
            found, _ = check(document, self.settings)
            if found is None:
                told = f"there is no usable version {version} of the definition '{workflow_id}'"
                refuse("unknown_definition", told, "`handrail check` says what is wrong with it")
            self.known[workflow_id, version] = found
        return found


def _replay(
    store: Office, settings: Settings, run_ids: Sequence[str], given: Given
) -> tuple[Replayed, ...]:
    versions, left = _Versions(store, settings), EVENTS_MAX
    found: list[Replayed] = []
    for run_id in run_ids:
        events = _events(store, run_id, left)
        left -= len(events)
        found.append(replayed(events, versions, given))
    return tuple(found)


def _events(store: Office, run_id: str, left: int) -> list[RunEvent]:
    kept = store.load([run_id]).get(run_id)
    if kept is None:
        refuse("unknown_run", f"there is no run '{run_id}'", "`handrail runs` lists them")
    if kept.subject.seq > left:
        told = f"the runs up to '{run_id}' have more than {EVENTS_MAX:,} events"
        refuse("too_many_events", told, "name fewer runs")
    try:
        return read_events(store, run_id, kept.subject.seq)
    except EventsGone as error:
        refuse("events_gone", str(error), "a run that was archived cannot be replayed")


def _ended(store: Office, workflow_id: str, most: int) -> list[list[RunEvent]]:
    """The newest runs that have ended, as many as the bounds allow; archived ones are left out."""
    found: list[list[RunEvent]] = []
    before, left = None, EVENTS_MAX
    while len(found) < most:
        rows = store.runs(status="ended", workflow_id=workflow_id, before=before, limit=PAGE)
        for row in rows[: most - len(found)]:
            run = store.load([row.id])[row.id].subject
            left -= run.seq
            if left < 0:
                return found
            try:
                found.append(read_events(store, row.id, run.seq))
            except EventsGone:
                continue
        if len(rows) < PAGE:
            break
        before = rows[-1].id
    return found

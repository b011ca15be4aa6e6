"""Figures per definition (L14): how long, how often well, how often with the CEO, how many tries.

They are counted from the events of ended runs (`kernel/figures.py`), once, when somebody asks, and
kept beside them: nobody's commit waits for it. Runs are looked at in the order of their ends: all
of them the first time, then those since a while before the last end that was seen. The clocks of
several engines are not the same, and a commit may be late.
"""

import asyncio
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from handrail.engine.journal import EventsGone, read_events
from handrail.engine.runs import WithRuns
from handrail.kernel.decision import Value
from handrail.kernel.figures import RunCount, count
from handrail.kernel.shown import Shown, Spent
from handrail.store.office import (
    EndedRun,
    NodeFigures,
    NodeSums,
    Office,
    RunFigures,
    WorkflowSums,
)
from handrail.store.port import DefinitionRow, Execution, iso, moment

LOOKED_AT = 500
"""Ended runs a page."""
COUNTED = 50
"""Runs whose figures are written at once."""
AGAIN_SECONDS = 600


class Seconds(Shown):
    p50: float
    p90: float
    p99: float
    mean: float


class WorkflowFigures(Shown):
    """The runs of a definition that have ended."""

    workflow_id: str
    runs: int
    time_to_resolution: Seconds
    success_rate: float
    escalation_rate: float
    """The share of runs that needed the CEO."""
    retries: dict[str, dict[str, int]]
    """Node -> how many runs needed 0, 1, 2, … dispatches beyond the first."""
    dispatch_cycles: dict[str, float]
    """Node -> dispatches a run, on average."""
    usage: Spent
    investigation_success: float | None = None
    """Of the runs that were investigated, the share whose fix was approved and applied. None where
    nothing was, and for a definition that does not both investigate and commit, as the next two."""
    fix_success: float | None = None
    """Of the runs that applied a fix, the share that ended well: it passed verification."""
    fix_cycles: float | None = None
    """How often a fix was applied, on average, in runs that applied one."""


class _Config(Value):
    kind: str | None = None


class _Node(Value):
    id: str
    config: _Config = _Config()


class _Nodes(Value):
    """What is read of a definition; a team has no nodes."""

    nodes: tuple[_Node, ...] = ()


_decode = msgspec.json.Decoder(_Nodes).decode


class WithFigures(WithRuns):
    """An engine that counts."""

    def __init__(self, store: Office, **made: Any) -> None:  # noqa: ANN401 - as Core
        super().__init__(store, **made)
        self._counting = asyncio.Lock()
        self._counted_to: tuple[str, str] = ("", "")

    async def figures(
        self, workflow_id: str | None = None, since: datetime | None = None
    ) -> list[WorkflowFigures]:
        """By definition, of the runs that ended since then; all, without a moment."""
        async with self._counting:
            await self._count()
        at = iso(since) if since is not None else None
        sums, nodes = await self._slowly(
            lambda store: (store.sums(workflow_id, at), store.node_sums(workflow_id, at))
        )
        of: dict[str, list[NodeSums]] = {}
        for node in nodes:
            of.setdefault(node.workflow_id, []).append(node)
        kinds = {one.workflow_id: await self._kinds(one.workflow_id) for one in sums}
        return [_figures(one, of.get(one.workflow_id, []), kinds[one.workflow_id]) for one in sums]

    async def _kinds(self, workflow_id: str) -> dict[str, list[str]]:
        """Kind -> the nodes that have it (`config.kind`), in the newest version."""
        row: DefinitionRow | None = await self._io(self.store.definition, workflow_id, None)
        found: dict[str, list[str]] = {}
        for node in _decode(row.definition).nodes if row is not None else ():
            found.setdefault(node.config.kind or "", []).append(node.id)
        return found

    async def _count(self) -> None:
        """Everything that is missing, page by page."""
        place: tuple[str, str] = self._counted_to
        while True:
            runs = await self._slowly(partial(_ended, place))
            missing = [run.id for run in runs if not run.counted]
            for first in range(0, len(missing), COUNTED):
                await self._count_some(missing[first : first + COUNTED])
            if runs:
                place = runs[-1].ended_at, runs[-1].id
            if len(runs) < LOOKED_AT:
                break
        if place[0]:
            self._counted_to = iso(moment(place[0]) - timedelta(seconds=AGAIN_SECONDS)), ""

    async def _count_some(self, run_ids: list[str]) -> None:
        figures, nodes = await self._slowly(lambda store: _counted(store, run_ids))
        await self._io(self.store.put_figures, figures, nodes)


def _ended(after: tuple[str, str], store: Office) -> list[EndedRun]:
    return store.ended(after, LOOKED_AT)


def _counted(store: Office, run_ids: list[str]) -> tuple[list[RunFigures], list[NodeFigures]]:
    figures: list[RunFigures] = []
    nodes: list[NodeFigures] = []
    for run_id, found in store.load(run_ids).items():
        run, counts = found.subject, _count(store, found.subject)
        if counts is None or run.ended_at is None:
            continue
        figures.append(
            RunFigures(
                execution_id=run_id,
                workflow_id=run.workflow_id,
                ended_at=run.ended_at,
                seconds=counts.seconds,
                terminal_status=counts.terminal_status,
                escalations=counts.escalations,
                tokens=counts.tokens,
                cost=counts.cost,
            )
        )
        nodes += [
            NodeFigures(
                execution_id=run_id, node=node, visits=one.visits, dispatches=one.dispatches
            )
            for node, one in counts.nodes.items()
        ]
    return figures, nodes


def _count(store: Office, run: Execution) -> RunCount | None:
    """None for one that was archived meanwhile, or is not what it says it is: `verify` tells."""
    try:
        return count(read_events(store, run.id, run.seq))
    except EventsGone:
        return None


def _figures(
    sums: WorkflowSums, nodes: list[NodeSums], kinds: dict[str, list[str]]
) -> WorkflowFigures:
    retries: dict[str, dict[str, int]] = {}
    dispatches: dict[str, list[int]] = {}
    for one in nodes:
        retries.setdefault(one.node, {})[str(one.dispatches - 1)] = one.runs
        runs, total = dispatches.get(one.node, [0, 0])
        dispatches[one.node] = [runs + one.runs, total + one.runs * one.dispatches]
    cycles = {node: total / runs for node, (runs, total) in dispatches.items()}
    both = kinds if {"investigation", "commit"} <= set(kinds) else dict[str, list[str]]()
    applied = _first(dispatches, both.get("commit", []))
    looked_into = _first(dispatches, both.get("investigation", []))
    reached = dispatches[applied][0] if applied else 0
    return WorkflowFigures(
        workflow_id=sums.workflow_id,
        runs=sums.runs,
        time_to_resolution=Seconds(
            p50=sums.seconds_p50,
            p90=sums.seconds_p90,
            p99=sums.seconds_p99,
            mean=sums.seconds_mean,
        ),
        success_rate=sums.succeeded / sums.runs,
        escalation_rate=sums.escalated / sums.runs,
        retries=retries,
        dispatch_cycles=cycles,
        usage=Spent(tokens=sums.tokens, cost=sums.cost),
        investigation_success=reached / dispatches[looked_into][0] if looked_into else None,
        fix_success=sums.succeeded / reached if applied else None,
        fix_cycles=cycles[applied] if applied else None,
    )


def _first(dispatches: dict[str, list[int]], nodes: list[str]) -> str:
    """The first of these nodes at which somebody worked; "" if nobody did."""
    return next((node for node in nodes if node in dispatches), "")

"""Statistics per definition (L14): duration, success, escalations to the CEO, attempts.

They are counted from the events of ended runs (`views/statistics.py`), once, on request, and
stored beside them: no commit waits for it. Runs are read in the order of their ends: all of them
the first time, then those since a while before the last end that was read. The clocks of several
engines are not the same, and a commit may be late.
"""

import asyncio
from datetime import datetime, timedelta
from functools import partial

import msgspec

from handrail.engine.environment import StoreAccess
from handrail.engine.errors import EventsGoneError
from handrail.engine.queries.runs import read_events
from handrail.kernel.decision import Value
from handrail.store.rows import RunRow, iso, parse_iso
from handrail.store.stats import (
    DefinitionStats,
    EndedRun,
    NodeDispatchStats,
    NodeStatsRow,
    RunStatsRow,
)
from handrail.store.store import Store
from handrail.views.statistics import (
    DefinitionStatistics,
    DurationStatistics,
    RunStatistics,
    run_statistics,
)
from handrail.views.view_types import UsageView

PAGE_RUNS = 500
WRITE_BATCH_RUNS = 50
"""Runs whose statistics are written at once."""
RECOUNT_SECONDS = 600


class _NodeConfig(Value):
    kind: str | None = None


class _Node(Value):
    id: str
    config: _NodeConfig = _NodeConfig()


class _DefinitionNodes(Value):
    """The part of a definition that is read here; a team has no nodes."""

    nodes: tuple[_Node, ...] = ()


_decode_nodes = msgspec.json.Decoder(_DefinitionNodes).decode


class StatisticsService:
    """Counts ended runs, and sums the counts."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access
        self._count_lock = asyncio.Lock()
        self._counted_to: tuple[str, str] = ("", "")

    async def by_definition(
        self, workflow_id: str | None = None, since: datetime | None = None
    ) -> list[DefinitionStatistics]:
        """Statistics by definition, of the runs that ended since `since`; of all without it."""
        async with self._count_lock:
            await self._count_missing()
        at = iso(since) if since is not None else None
        sums, nodes = await self._access.query(
            lambda store: (
                store.stats.sum_definitions(workflow_id, at),
                store.stats.sum_nodes(workflow_id, at),
            )
        )
        nodes_by_definition: dict[str, list[NodeDispatchStats]] = {}
        for node in nodes:
            nodes_by_definition.setdefault(node.workflow_id, []).append(node)
        return [
            _to_statistics(
                definition_sums,
                nodes_by_definition.get(definition_sums.workflow_id, []),
                await self._nodes_by_kind(definition_sums.workflow_id),
            )
            for definition_sums in sums
        ]

    async def _nodes_by_kind(self, workflow_id: str) -> dict[str, list[str]]:
        """Kind -> the nodes that have it (`config.kind`), in the newest version."""
        row = await self._access.call(self._access.store.definitions.get, workflow_id)
        by_kind: dict[str, list[str]] = {}
        for node in _decode_nodes(row.definition).nodes if row is not None else ():
            by_kind.setdefault(node.config.kind or "", []).append(node.id)
        return by_kind

    async def _count_missing(self) -> None:
        """Count all runs that are missing, page by page."""
        last_counted = self._counted_to
        while True:
            runs = await self._access.query(partial(_ended_runs, last_counted))
            missing = [run.id for run in runs if not run.counted]
            for start in range(0, len(missing), WRITE_BATCH_RUNS):
                await self._count_runs(missing[start : start + WRITE_BATCH_RUNS])
            if runs:
                last_counted = runs[-1].ended_at, runs[-1].id
            if len(runs) < PAGE_RUNS:
                break
        if last_counted[0]:
            recounted_since = parse_iso(last_counted[0]) - timedelta(seconds=RECOUNT_SECONDS)
            self._counted_to = iso(recounted_since), ""

    async def _count_runs(self, run_ids: list[str]) -> None:
        figures, nodes = await self._access.query(lambda store: _count_rows(store, run_ids))
        await self._access.call(self._access.store.stats.put, figures, nodes)


def _ended_runs(after: tuple[str, str], store: Store) -> list[EndedRun]:
    return store.stats.list_ended_runs(after, PAGE_RUNS)


def _count_rows(store: Store, run_ids: list[str]) -> tuple[list[RunStatsRow], list[NodeStatsRow]]:
    figures: list[RunStatsRow] = []
    nodes: list[NodeStatsRow] = []
    for run_id, stored in store.runs.load(run_ids).items():
        run, counts = stored.row, _count_run(store, stored.row)
        if counts is None or run.ended_at is None:
            continue
        figures.append(
            RunStatsRow(
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
            NodeStatsRow(
                execution_id=run_id,
                node=node,
                visits=node_count.visits,
                dispatches=node_count.dispatches,
            )
            for node, node_count in counts.nodes.items()
        ]
    return figures, nodes


def _count_run(store: Store, run: RunRow) -> RunStatistics | None:
    """Count one run; None if it was archived meanwhile, or its record is damaged: `verify`
    tells."""
    try:
        return run_statistics(read_events(store, run.id, run.seq))
    except EventsGoneError:
        return None


def _to_statistics(
    sums: DefinitionStats, nodes: list[NodeDispatchStats], kinds: dict[str, list[str]]
) -> DefinitionStatistics:
    retries: dict[str, dict[str, int]] = {}
    dispatches: dict[str, list[int]] = {}
    for node_sums in nodes:
        retries.setdefault(node_sums.node, {})[str(node_sums.dispatches - 1)] = node_sums.runs
        runs, total = dispatches.get(node_sums.node, [0, 0])
        dispatches[node_sums.node] = [
            runs + node_sums.runs,
            total + node_sums.runs * node_sums.dispatches,
        ]
    cycles = {node: total / runs for node, (runs, total) in dispatches.items()}
    fix_kinds = kinds if {"investigation", "commit"} <= set(kinds) else dict[str, list[str]]()
    committed = _first_dispatched(dispatches, fix_kinds.get("commit", []))
    investigated = _first_dispatched(dispatches, fix_kinds.get("investigation", []))
    commit_runs = dispatches[committed][0] if committed else 0
    return DefinitionStatistics(
        workflow_id=sums.workflow_id,
        runs=sums.runs,
        time_to_resolution=DurationStatistics(
            p50=sums.seconds_p50,
            p90=sums.seconds_p90,
            p99=sums.seconds_p99,
            mean=sums.seconds_mean,
        ),
        success_rate=sums.succeeded / sums.runs,
        escalation_rate=sums.escalated / sums.runs,
        retries=retries,
        dispatch_cycles=cycles,
        usage=UsageView(tokens=sums.tokens, cost=sums.cost),
        investigation_success=commit_runs / dispatches[investigated][0] if investigated else None,
        fix_success=sums.succeeded / commit_runs if committed else None,
        fix_cycles=cycles[committed] if committed else None,
    )


def _first_dispatched(dispatches: dict[str, list[int]], nodes: list[str]) -> str:
    """The first of these nodes that was dispatched; "" if none was."""
    return next((node for node in nodes if node in dispatches), "")

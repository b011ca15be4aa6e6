"""Statistics in the store: counts of open work, and figures of runs that have ended."""

from collections.abc import Sequence

from handrail.store.columns import Row, Time
from handrail.store.database import Subject


class RunStatsRow(Row):
    """Statistics of a run that has ended."""

    execution_id: str
    workflow_id: str
    ended_at: Time
    seconds: float
    terminal_status: str
    escalations: int
    tokens: int
    cost: float


class NodeStatsRow(Row):
    """Statistics of one node, or agent of a team, in a run that has ended."""

    execution_id: str
    node: str
    visits: int
    dispatches: int


class EndedRun(Row):
    """A run that has ended, and whether its statistics are stored."""

    id: str
    ended_at: Time
    counted: bool


class DefinitionStats(Row):
    """Totals of the runs of one definition that ended since a moment. Percentiles are interpolated
    between the two nearest values."""

    workflow_id: str
    runs: int
    succeeded: int
    escalated: int
    """Runs with an escalation."""
    seconds_mean: float
    seconds_p50: float
    seconds_p90: float
    seconds_p99: float
    tokens: int
    cost: float


class NodeDispatchStats(Row):
    """How many runs needed that number of dispatches of the node."""

    workflow_id: str
    node: str
    dispatches: int
    runs: int


class OpenWorkCount(Row):
    """A count of open work: runs by status, dispatches offered and claimed by role, approvals by
    type. `oldest` is when the first of them began to wait."""

    what: str
    kind: str
    count: int
    oldest: Time | None


class StatsStore(Subject):
    def count_open_work(self, limit: int) -> list[OpenWorkCount]:
        """Count open work; at most `limit` rows of each kind are read."""
        return self._fetch_rows(OpenWorkCount, "open_work", limit=limit)

    def list_ended_runs(self, after: tuple[str, str], limit: int) -> list[EndedRun]:
        """List ended runs after (ended_at, id), in that order."""
        ended_at, last_id = after
        rows = self._database.fetch_all(
            "ended_runs", ended_at=ended_at or "-infinity", id=last_id, limit=limit
        )
        return [EndedRun(run_id, at, bool(counted)) for run_id, at, counted in rows]

    def put(self, runs: Sequence[RunStatsRow], nodes: Sequence[NodeStatsRow]) -> None:
        """Insert statistics of runs; runs that have statistics already stay unchanged."""
        with self._database.transaction() as transaction:
            transaction.write_rows("insert_run_stats", runs)
            transaction.write_rows("insert_node_stats", nodes)

    def sum_definitions(self, workflow_id: str | None, since: str | None) -> list[DefinitionStats]:
        """Sum up, by definition, the runs that ended at that moment or later."""
        rows = self._database.fetch_scanning(
            "definition_stats", workflow_id=workflow_id, since=since
        )
        return [DefinitionStats(*row) for row in rows]

    def sum_nodes(self, workflow_id: str | None, since: str | None) -> list[NodeDispatchStats]:
        """Count, by node, the runs that ended at that moment or later."""
        rows = self._database.fetch_scanning("node_stats", workflow_id=workflow_id, since=since)
        return [NodeDispatchStats(*row) for row in rows]

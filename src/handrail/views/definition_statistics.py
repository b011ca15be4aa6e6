"""Statistics of a definition's ended runs."""

from handrail.views.view_types import UsageView, View


class DurationStatistics(View):
    p50: float
    p90: float
    p99: float
    mean: float


class DefinitionStatistics(View):
    """The ended runs of a definition."""

    workflow_id: str
    runs: int
    time_to_resolution: DurationStatistics
    success_rate: float
    escalation_rate: float
    """The share of runs that needed the CEO."""
    retries: dict[str, dict[str, int]]
    """Node -> how many runs needed 0, 1, 2, … dispatches beyond the first."""
    dispatch_cycles: dict[str, float]
    """Node -> dispatches a run, on average."""
    usage: UsageView
    investigation_success: float | None = None
    """Of the runs that were investigated, the share whose fix was approved and applied. None
    without such runs, and for a definition that does not both investigate and commit, as the next
    two."""
    fix_success: float | None = None
    """Of the runs that applied a fix, the share that ended well: it passed verification."""
    fix_cycles: float | None = None
    """How often a fix was applied, on average, in runs that applied one."""

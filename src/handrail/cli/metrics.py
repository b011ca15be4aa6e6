"""`handrail metrics`: figures of the runs that have ended, what each is, and its target (L14, L15).

The targets are those of a team that fixes its own bugs: they stand beside the built-in
`auto-bug-workflow`. A figure that would divide by zero is not shown.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.formatting import decode_argument, format_count, format_duration
from handrail.cli.runs import parse_since
from handrail.client.clients import AsyncClient
from handrail.views.definition_statistics import DefinitionStatistics

HEALING_DEFINITION_ID = "auto-bug-workflow"


class Metric(NamedTuple):
    """`target` is (at most or at least, of); `of` gives None if there is nothing to say."""

    name: str
    format_value: Callable[[float], str]
    value_of: Callable[[DefinitionStatistics], float | None]
    definition: str
    target: tuple[str, float] | None = None


def _format_percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _format_number(value: float) -> str:
    return f"{value:.3g}"


def _median_seconds(figures: DefinitionStatistics) -> float:
    return figures.time_to_resolution.p50


def _p90_seconds(figures: DefinitionStatistics) -> float:
    return figures.time_to_resolution.p90


def _success_rate(figures: DefinitionStatistics) -> float:
    return figures.success_rate


def _escalation_rate(figures: DefinitionStatistics) -> float:
    return figures.escalation_rate


def _root_cause_rate(figures: DefinitionStatistics) -> float | None:
    return figures.investigation_success


def _fix_rate(figures: DefinitionStatistics) -> float | None:
    return figures.fix_success


def _fix_cycles(figures: DefinitionStatistics) -> float | None:
    return figures.fix_cycles


COMMON_METRICS = (
    Metric(
        "median time to resolution",
        format_duration,
        _median_seconds,
        "from the start of a run to its end; half of the runs took less",
        ("<", 300),
    ),
    Metric("90th percentile of it", format_duration, _p90_seconds, "nine runs of ten took less"),
    Metric("success rate", _format_percent, _success_rate, "runs that ended as done_success"),
    Metric(
        "escalation rate",
        _format_percent,
        _escalation_rate,
        "runs in which the CEO was asked because agents could not go on; planned approvals "
        "do not count",
        ("<", 0.1),
    ),
)
HEALING_METRICS = (
    Metric(
        "root cause found",
        _format_percent,
        _root_cause_rate,
        "of the runs that were investigated, those whose proposal was approved and applied",
        (">", 0.8),
    ),
    Metric(
        "fixes that pass verification",
        _format_percent,
        _fix_rate,
        "of the runs that applied a fix, those that ended as done_success",
        (">", 0.9),
    ),
    Metric(
        "apply and verify cycles",
        _format_number,
        _fix_cycles,
        "how often a fix was applied, on average, in runs that applied one",
        ("<", 1.5),
    ),
)


def print_metrics(target: ApiTarget, *, workflow: str, since: str) -> int:
    async def do(client: AsyncClient) -> None:
        definition = await client.get_definition(decode_argument(workflow)) if workflow else None
        metrics = await client.get_definition_metrics(
            workflow_id=definition.id if definition is not None else None, since=parse_since(since)
        )
        if target.as_json:
            output.print_json(metrics)
            return
        for figures in metrics.items:
            _print_definition_metrics(figures)
        if not metrics.items:
            output.print_line("no such run has ended")

    return call_api(target, do)


def _print_definition_metrics(figures: DefinitionStatistics) -> None:
    usage = f"{figures.usage.tokens:,} tokens, cost {figures.usage.cost:g}"
    output.print_line(f"{figures.workflow_id}: {format_count(figures.runs, 'run')} ended; {usage}")
    heads = ("figure", "value", "target", "what it is")
    output.print_table(heads, list(_metric_rows(figures)))
    retry_rows = [_retry_row(figures, node) for node in figures.retries]
    if retry_rows:
        heads = ("node", "dispatches a run", "retries: runs")
        output.print_table(heads, retry_rows)


def _metric_rows(figures: DefinitionStatistics) -> Iterator[list[output.Cell]]:
    is_healing = figures.workflow_id == HEALING_DEFINITION_ID
    for metric in (*COMMON_METRICS, *(HEALING_METRICS if is_healing else ())):
        value = metric.value_of(figures)
        if value is None:
            continue
        target, style = "", ""
        if is_healing and metric.target is not None:
            sign, limit = metric.target
            target = f"{sign} {metric.format_value(limit)}"
            style = "green" if (value < limit) == (sign == "<") and value != limit else "red"
        yield [metric.name, (metric.format_value(value), style), target, metric.definition]


def _retry_row(figures: DefinitionStatistics, node: str) -> list[output.Cell]:
    runs_by_retries = figures.retries[node]
    counts = ", ".join(f"{n}: {runs_by_retries[n]}" for n in sorted(runs_by_retries, key=int))
    return [node, _format_number(figures.dispatch_cycles.get(node, 0)), counts]

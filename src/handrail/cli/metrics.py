"""`handrail metrics`: figures of the runs that have ended, what each is, and its target (L14, L15).

The targets are those of a team that fixes its own bugs: they stand beside the built-in
`auto-bug-workflow`. A figure that would divide by zero is not shown.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from handrail.cli import output
from handrail.cli.arguments import (
    AsJson,
    Database,
    Server,
    Since,
    WorkflowName,
    decode_argument,
    parse_since,
)
from handrail.cli.connection import open_client

if TYPE_CHECKING:
    from handrail.views.statistics import DefinitionStatistics

HEALING_DEFINITION_ID = "auto-bug-workflow"


class Metric(NamedTuple):
    """`value` is None if there is nothing to divide by; `target` is a sign and a limit."""

    name: str
    format_value: Callable[[float], str]
    value: float | None
    definition: str
    target: tuple[str, float] | None = None


def _format_percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _format_number(value: float) -> str:
    return f"{value:.3g}"


def _common_metrics(figures: "DefinitionStatistics") -> tuple[Metric, ...]:
    return (
        Metric(
            "median time to resolution",
            output.format_duration,
            figures.time_to_resolution.p50,
            "from the start of a run to its end; half of the runs took less",
            ("<", 300),
        ),
        Metric(
            "90th percentile of it",
            output.format_duration,
            figures.time_to_resolution.p90,
            "nine runs of ten took less",
        ),
        Metric(
            "success rate",
            _format_percent,
            figures.success_rate,
            "runs that ended as done_success",
        ),
        Metric(
            "escalation rate",
            _format_percent,
            figures.escalation_rate,
            "runs in which the CEO was asked because agents could not go on; planned approvals "
            "do not count",
            ("<", 0.1),
        ),
    )


def _healing_metrics(figures: "DefinitionStatistics") -> tuple[Metric, ...]:
    return (
        Metric(
            "root cause found",
            _format_percent,
            figures.investigation_success,
            "of the runs that were investigated, those whose proposal was approved and applied",
            (">", 0.8),
        ),
        Metric(
            "fixes that pass verification",
            _format_percent,
            figures.fix_success,
            "of the runs that applied a fix, those that ended as done_success",
            (">", 0.9),
        ),
        Metric(
            "apply and verify cycles",
            _format_number,
            figures.fix_cycles,
            "how often a fix was applied, on average, in runs that applied one",
            ("<", 1.5),
        ),
    )


async def metrics(
    workflow: WorkflowName = "",
    since: Since = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Print figures of ended runs, with targets and definitions."""
    async with open_client(database, server) as client:
        definition = await client.definitions.get(decode_argument(workflow)) if workflow else None
        page = await client.definitions.get_metrics(
            workflow_id=definition.id if definition is not None else None, since=parse_since(since)
        )
    if as_json:
        output.print_json(page)
        return
    for figures in page.items:
        _print_definition_metrics(figures)
    if not page.items:
        output.print_line("no matching run has ended")


def _print_definition_metrics(figures: "DefinitionStatistics") -> None:
    output.print_line(
        f"{figures.workflow_id}: {output.format_count(figures.runs, 'run')} ended; "
        f"{figures.usage.tokens:,} tokens, cost {figures.usage.cost:g}"
    )
    output.print_table(
        output.TextTable(("figure", "value", "target", "what it is"), _metric_rows(figures))
    )
    if figures.retries:
        output.print_table(
            output.TextTable(
                ("node", "dispatches a run", "retries: runs"),
                [_retry_row(figures, node) for node in figures.retries],
            )
        )


def _metric_rows(figures: "DefinitionStatistics") -> Iterator[list[output.Cell]]:
    is_healing = figures.workflow_id == HEALING_DEFINITION_ID
    for metric in (*_common_metrics(figures), *(_healing_metrics(figures) if is_healing else ())):
        value = metric.value
        if value is None:
            continue
        target, style = "", ""
        if is_healing and metric.target is not None:
            sign, limit = metric.target
            target = f"{sign} {metric.format_value(limit)}"
            style = "green" if (value < limit) == (sign == "<") and value != limit else "red"
        yield [metric.name, (metric.format_value(value), style), target, metric.definition]


def _retry_row(figures: "DefinitionStatistics", node: str) -> list[output.Cell]:
    runs_by_retries = figures.retries[node]
    counts = ", ".join(f"{n}: {runs_by_retries[n]}" for n in sorted(runs_by_retries, key=int))
    return [node, _format_number(figures.dispatch_cycles.get(node, 0)), counts]

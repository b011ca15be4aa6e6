"""`handrail metrics`: figures of the runs that have ended, what each is, and its target (L14, L15).

The targets are those of a team that mends its own bugs: they stand beside the built-in
`auto-bug-workflow`. A figure that would divide by nothing is not shown.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.cli.runs import moment
from handrail.cli.words import count, duration, typed
from handrail.client.clients import AsyncClient
from handrail.engine.figures import WorkflowFigures

SELF_HEALING = "auto-bug-workflow"


class Figure(NamedTuple):
    """`target` is (at most or at least, of); `of` gives None if there is nothing to say."""

    name: str
    shown: Callable[[float], str]
    of: Callable[[WorkflowFigures], float | None]
    definition: str
    target: tuple[str, float] | None = None


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"


def _number(value: float) -> str:
    return f"{value:.3g}"


def _median(of: WorkflowFigures) -> float:
    return of.time_to_resolution.p50


def _slow(of: WorkflowFigures) -> float:
    return of.time_to_resolution.p90


def _succeeded(of: WorkflowFigures) -> float:
    return of.success_rate


def _escalated(of: WorkflowFigures) -> float:
    return of.escalation_rate


def _found(of: WorkflowFigures) -> float | None:
    return of.investigation_success


def _passed(of: WorkflowFigures) -> float | None:
    return of.fix_success


def _cycles(of: WorkflowFigures) -> float | None:
    return of.fix_cycles


EVERYWHERE = (
    Figure(
        "median time to resolution",
        duration,
        _median,
        "from the start of a run to its end; half of the runs took less",
        ("<", 300),
    ),
    Figure("90th percentile of it", duration, _slow, "nine runs of ten took less"),
    Figure("success rate", _percent, _succeeded, "runs that ended as done_success"),
    Figure(
        "escalation rate",
        _percent,
        _escalated,
        "runs in which the CEO was asked because agents could not go on; planned approvals "
        "do not count",
        ("<", 0.1),
    ),
)
HEALING = (
    Figure(
        "root cause found",
        _percent,
        _found,
        "of the runs that were investigated, those whose proposal was approved and applied",
        (">", 0.8),
    ),
    Figure(
        "fixes that pass verification",
        _percent,
        _passed,
        "of the runs that applied a fix, those that ended as done_success",
        (">", 0.9),
    ),
    Figure(
        "apply and verify cycles",
        _number,
        _cycles,
        "how often a fix was applied, on average, in runs that applied one",
        ("<", 1.5),
    ),
)


def print_metrics(where: Where, *, workflow: str, since: str) -> int:
    async def do(client: AsyncClient) -> None:
        known = await client.workflow(typed(workflow)) if workflow else None
        found = await client.metrics(
            workflow_id=known.id if known is not None else None, since=moment(since)
        )
        if where.as_json:
            tables.print_json(found)
            return
        for figures in found.items:
            _print(figures)
        if not found.items:
            tables.print_line("no such run has ended")

    return ask(where, do)


def _print(figures: WorkflowFigures) -> None:
    used = f"{figures.usage.tokens:,} tokens, cost {figures.usage.cost:g}"
    tables.print_line(f"{figures.workflow_id}: {count(figures.runs, 'run')} ended; {used}")
    heads = ("figure", "value", "target", "what it is")
    tables.print_table(heads, list(_rows(figures)))
    retried = [_retries(figures, node) for node in figures.retries]
    if retried:
        heads = ("node", "dispatches a run", "retries: runs")
        tables.print_table(heads, retried)


def _rows(figures: WorkflowFigures) -> Iterator[list[tables.Cell]]:
    healing = figures.workflow_id == SELF_HEALING
    for figure in (*EVERYWHERE, *(HEALING if healing else ())):
        value = figure.of(figures)
        if value is None:
            continue
        target, style = "", ""
        if healing and figure.target is not None:
            sign, limit = figure.target
            target = f"{sign} {figure.shown(limit)}"
            style = "green" if (value < limit) == (sign == "<") and value != limit else "red"
        yield [figure.name, (figure.shown(value), style), target, figure.definition]


def _retries(figures: WorkflowFigures, node: str) -> list[tables.Cell]:
    spread = figures.retries[node]
    told = ", ".join(f"{n}: {spread[n]}" for n in sorted(spread, key=int))
    return [node, _number(figures.dispatch_cycles.get(node, 0)), told]

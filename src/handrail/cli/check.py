"""`handrail check`: every error with its place, or the certificate with slack and warnings."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from handrail.cli import formatting, output
from handrail.cli.command import EXIT_FAILED, EXIT_WRONG_INPUT, print_error
from handrail.cli.options import AsJson

if TYPE_CHECKING:
    from handrail.cli.definitions import DefinitionSource
    from handrail.kernel.definition.plan import DefinitionCheck, Plan


def check(
    files: Annotated[
        list[str], typer.Argument(help="Files or names of built-in definitions; - for stdin.")
    ],
    as_json: AsJson = False,
) -> int:
    """Validate definitions and print their certificates.

    Every error comes with its place and a hint; a valid definition with what a run can cost at most
    and how much room its limits leave. Exit code 1 if a definition has errors, 2 if a file cannot
    be read.
    """
    from handrail.cli.definitions import find_definition
    from handrail.kernel.definition.plan import DefinitionCheck, check_definition

    code = 0
    documents: list[dict[str, Any]] = []
    for name in files:
        source = find_definition(name)
        plan, checked = (None, DefinitionCheck(errors=tuple(source.problems)))
        if not source.problems:
            plan, checked = check_definition(source.document)
        code = max(
            code, EXIT_WRONG_INPUT if source.missing else EXIT_FAILED if checked.errors else 0
        )
        if as_json:
            documents.append(_check_document(source, plan, checked))
        elif source.missing:
            problem = source.problems[0]
            print_error("check", f"{source.label}: {problem.message}; {problem.hint}")
        else:
            print("\n".join(_check_lines(source, plan, checked)))
    if as_json:
        output.print_json({"valid": code == 0, "definitions": documents})
    return code


def _check_lines(
    source: "DefinitionSource", plan: "Plan | None", checked: "DefinitionCheck"
) -> list[str]:
    label = formatting.printable(source.label)
    lines = source.format_problems(checked.errors, "error") + source.format_problems(
        checked.warnings, "warning"
    )
    if plan is None or checked.bound is None:
        return [
            *lines,
            f"{label}: not valid, {formatting.format_count(len(checked.errors), 'error')}",
        ]
    name, bound = formatting.printable(plan.definition.name), checked.bound
    lines.append(f"{label}: valid {plan.kind} '{name}'")
    lines.append(f"  {formatting.format_certificate(bound, plan.kind)}")
    if bound.asks:
        lines.append(f"  besides {formatting.format_asks_bound(bound)}")
    lines.append(f"  {formatting.format_exactness(bound)}")
    for slack in checked.feasibility:
        took = f"{slack.way} takes {slack.needed} of {slack.allowed}"
        lines.append(f"  slack {slack.slack} in {slack.limit}: {took}")
    return lines


def _check_document(
    source: "DefinitionSource", plan: "Plan | None", checked: "DefinitionCheck"
) -> dict[str, Any]:
    slacks = [{**_to_builtins(slack), "slack": slack.slack} for slack in checked.feasibility]
    return {
        "file": source.label,
        "valid": checked.is_valid,
        "name": plan.definition.name if plan is not None else None,
        "kind": plan.kind if plan is not None else None,
        "errors": [_problem_document(p) for p in checked.errors],
        "warnings": [_problem_document(p) for p in checked.warnings],
        "bound": _to_builtins(checked.bound) if checked.bound is not None else None,
        "feasibility": slacks,
    }


def _to_builtins(value: object) -> dict[str, Any]:
    return msgspec.to_builtins(value, str_keys=True)


def _problem_document(problem: object) -> dict[str, Any]:
    return {"hint": "", **_to_builtins(problem)}

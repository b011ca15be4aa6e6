"""`handrail check`: every error with its place, or the certificate with slack and warnings."""

import sys
from typing import Any

import msgspec

from handrail.cli import formatting
from handrail.cli.definitions import DefinitionSource, find_definition
from handrail.kernel.definition.plan import DefinitionCheck, Plan, check_definition

EXIT_FAILED, EXIT_UNREADABLE = 1, 2


def check_definitions(names: list[str], *, as_json: bool) -> int:
    """Check and print all definitions; return the exit code."""
    code = 0
    documents: list[dict[str, Any]] = []
    for name in names:
        source = find_definition(name)
        plan, checked = (None, DefinitionCheck(errors=tuple(source.problems)))
        if not source.problems:
            plan, checked = check_definition(source.document)
        code = max(
            code, EXIT_UNREADABLE if source.missing else EXIT_FAILED if checked.errors else 0
        )
        if source.missing and not as_json:
            problem = source.problems[0]
            message = f"handrail check: {source.label}: {problem.message}; {problem.hint}"
            print(formatting.printable(message), file=sys.stderr)
        elif as_json:
            documents.append(_check_document(source, plan, checked))
        else:
            print("\n".join(_check_lines(source, plan, checked)))
    if as_json:
        document = {"valid": code == 0, "definitions": documents}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    return code


def _check_lines(
    source: DefinitionSource, plan: Plan | None, checked: DefinitionCheck
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
    source: DefinitionSource, plan: Plan | None, checked: DefinitionCheck
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

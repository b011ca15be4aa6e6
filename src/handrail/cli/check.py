"""`handrail check`: every error with its place, or the certificate with slack and warnings."""

import sys
from typing import Any

import msgspec

from handrail.cli import words
from handrail.cli.definitions import Found, find
from handrail.kernel.plan import Checked, Plan, check

FAILED, UNREADABLE = 1, 2


def check_all(names: list[str], *, as_json: bool) -> int:
    """Checks and prints them all; the exit code."""
    code = 0
    shown: list[dict[str, Any]] = []
    for name in names:
        found = find(name)
        plan, checked = (None, Checked(errors=tuple(found.problems)))
        if not found.problems:
            plan, checked = check(found.document)
        code = max(code, UNREADABLE if found.missing else FAILED if checked.errors else 0)
        if found.missing and not as_json:
            wrong = found.problems[0]
            told = f"handrail check: {found.label}: {wrong.message}; {wrong.hint}"
            print(words.clean(told), file=sys.stderr)
        elif as_json:
            shown.append(_as_json(found, plan, checked))
        else:
            print("\n".join(_lines(found, plan, checked)))
    if as_json:
        document = {"valid": code == 0, "definitions": shown}
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    return code


def _lines(found: Found, plan: Plan | None, checked: Checked) -> list[str]:
    label = words.clean(found.label)
    lines = found.told(checked.errors, "error") + found.told(checked.warnings, "warning")
    if plan is None or checked.bound is None:
        return [*lines, f"{label}: not valid, {words.count(len(checked.errors), 'error')}"]
    name, bound = words.clean(plan.definition.name), checked.bound
    lines.append(f"{label}: valid {plan.kind} '{name}'")
    lines.append(f"  {words.certificate(bound, plan.kind)}")
    if bound.asks:
        lines.append(f"  besides {words.asks(bound)}")
    lines.append(f"  {words.exactness(bound)}")
    for one in checked.feasibility:
        took = f"{one.way} takes {one.needed} of {one.allowed}"
        lines.append(f"  slack {one.slack} in {one.limit}: {took}")
    return lines


def _as_json(found: Found, plan: Plan | None, checked: Checked) -> dict[str, Any]:
    slacks = [{**_plain(one), "slack": one.slack} for one in checked.feasibility]
    return {
        "file": found.label,
        "valid": checked.valid,
        "name": plan.definition.name if plan is not None else None,
        "kind": plan.kind if plan is not None else None,
        "errors": [_problem(p) for p in checked.errors],
        "warnings": [_problem(p) for p in checked.warnings],
        "bound": _plain(checked.bound) if checked.bound is not None else None,
        "feasibility": slacks,
    }


def _plain(value: object) -> dict[str, Any]:
    return msgspec.to_builtins(value, str_keys=True)


def _problem(problem: object) -> dict[str, Any]:
    return {"hint": "", **_plain(problem)}

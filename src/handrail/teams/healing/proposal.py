"""What a person is shown before a fix is committed: the cause, the diff, the tests, the risk.

All of it stands in the proposal that the approval is bound to; the patch and its id are the lane's
own, the rest is for the reader.
"""

from typing import Any

import msgspec

from handrail.commits import Proposal
from handrail.kernel.decision import Value
from handrail.kernel.result import Check
from handrail.teams.coding.search import is_test

SMALL_LINES = 10
HIDING = frozenset({"missing-check", "wrong-exception"})
"""Repairs after which an error is silent: it may have been a sign of another one."""


class Risk(Value):
    level: str
    why: tuple[str, ...]


class Cause(Value):
    """What is wrong, where, and who wrote it."""

    told: str
    place: str = ""
    blame: str = ""
    pattern: str = ""


def risk_of(proposal: Proposal, pattern: str, known: frozenset[str]) -> Risk:
    """By rules that anybody can check; `known` are the files that were there before."""
    sources = [path for path in proposal.files if not is_test(path)]
    changed = [path for path in proposal.files if is_test(path) and path in known]
    lines = _lines_changed(proposal.patch)
    rules = (
        ("high", "it changes tests that were there before", bool(changed)),
        ("medium", f"it changes {len(sources)} files", len(sources) > 1),
        ("medium", f"it changes {lines} lines", lines > SMALL_LINES),
        ("medium", "it makes an error silent, which may be a sign of another", pattern in HIDING),
    )
    met = [(level, why) for level, why, holds in rules if holds]
    usual = f"it changes {lines} lines of {', '.join(sources) or 'tests alone'}"
    return Risk(
        level=next((level for level, _ in met), "low"),  # the worst stand first
        why=tuple(why for _, why in met) or (usual,),
    )


def _lines_changed(patch: str) -> int:
    """Lines that the patch takes or gives, without those of tests."""
    count = 0
    for part in patch.split("diff --git ")[1:]:
        head, _, body = part.partition("\n@@")
        if not is_test(head.partition("\n")[0].rpartition(" b/")[2]):
            count += sum(line.startswith(("+", "-")) for line in body.splitlines()[1:])
    return count


def shown(proposal: Proposal, cause: Cause, checks: tuple[Check, ...], risk: Risk) -> str:
    """The proposal as a person reads it."""
    lines = [f"Cause: {cause.told}"]
    if proposal.commit:
        lines.append(f"On the branch already: this run committed it as {proposal.commit}")
    lines += [f"Written by: {cause.blame}"] if cause.blame else []
    lines += [f"Risk: {risk.level}, because {'; '.join(risk.why)}", "Tests:"]
    lines += [f"  {one.command}: {'green' if not one.exit_code else 'red'}" for one in checks]
    lines += [f"Patch {proposal.patch_id}:", "", proposal.patch]
    return "\n".join(lines)


def packed(
    proposal: Proposal, cause: Cause, checks: tuple[Check, ...], risk: Risk
) -> dict[str, Any]:
    """As it lies in the bead's context under `proposal`."""
    tests = [{"command": one.command, "exit_code": one.exit_code} for one in checks]
    return {
        **msgspec.to_builtins(proposal),
        "cause": msgspec.to_builtins(cause),
        "tests": tests,
        "risk": msgspec.to_builtins(risk),
    }

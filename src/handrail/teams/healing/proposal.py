"""The proposal as a person sees it before a fix is committed: cause, diff, tests, risk.

All of it stands in the proposal that the approval is bound to; the patch and its id are the lane's
own, the rest is for the reader.
"""

from typing import Any

import msgspec

from handrail.commits import PatchProposal
from handrail.kernel.decision import Value
from handrail.kernel.result import Check
from handrail.teams.coding.search import is_test

SMALL_CHANGE_LINES = 10
ERROR_HIDING_PATTERNS = frozenset({"missing-check", "wrong-exception"})
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


def assess_risk(proposal: PatchProposal, pattern: str, existing_files: frozenset[str]) -> Risk:
    """Assess the risk by rules that anybody can check; `existing_files` were there before."""
    sources = [path for path in proposal.files if not is_test(path)]
    changed_tests = [path for path in proposal.files if is_test(path) and path in existing_files]
    lines = _count_changed_lines(proposal.patch)
    rules = (
        ("high", "it changes tests that were there before", bool(changed_tests)),
        ("medium", f"it changes {len(sources)} files", len(sources) > 1),
        ("medium", f"it changes {lines} lines", lines > SMALL_CHANGE_LINES),
        (
            "medium",
            "it makes an error silent, which may be a sign of another",
            pattern in ERROR_HIDING_PATTERNS,
        ),
    )
    applying_rules = [(level, reason) for level, reason, applies in rules if applies]
    default_reason = f"it changes {lines} lines of {', '.join(sources) or 'tests alone'}"
    return Risk(
        level=next((level for level, _ in applying_rules), "low"),  # the worst come first
        why=tuple(reason for _, reason in applying_rules) or (default_reason,),
    )


def _count_changed_lines(patch: str) -> int:
    """Count the lines that the patch removes or adds, without those of tests."""
    count = 0
    for part in patch.split("diff --git ")[1:]:
        head, _, body = part.partition("\n@@")
        if not is_test(head.partition("\n")[0].rpartition(" b/")[2]):
            count += sum(line.startswith(("+", "-")) for line in body.splitlines()[1:])
    return count


def format_proposal(
    proposal: PatchProposal, cause: Cause, checks: tuple[Check, ...], risk: Risk
) -> str:
    """Format the proposal for a person."""
    lines = [f"Cause: {cause.told}"]
    if proposal.commit:
        lines.append(f"On the branch already: this run committed it as {proposal.commit}")
    lines += [f"Written by: {cause.blame}"] if cause.blame else []
    lines += [f"Risk: {risk.level}, because {'; '.join(risk.why)}", "Tests:"]
    lines += [f"  {check.command}: {'green' if not check.exit_code else 'red'}" for check in checks]
    lines += [f"Patch {proposal.patch_id}:", "", proposal.patch]
    return "\n".join(lines)


def encode_proposal(
    proposal: PatchProposal, cause: Cause, checks: tuple[Check, ...], risk: Risk
) -> dict[str, Any]:
    """Encode the proposal for the bead's context, under `proposal`."""
    tests = [{"command": check.command, "exit_code": check.exit_code} for check in checks]
    return {
        **msgspec.to_builtins(proposal),
        "cause": msgspec.to_builtins(cause),
        "tests": tests,
        "risk": msgspec.to_builtins(risk),
    }

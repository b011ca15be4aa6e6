"""Assesses the progress in a result, once, for the record (docs/requirements.md, "Progress").

Progress is: a check that turned from failing to passing, a failure set smaller than any before, a
materially better score, a new milestone, a new ticket state, a new artefact digest. Activity is not
progress: returning to an earlier digest is oscillation; of files that the run created only the
first counts; while an error persists, file changes count at most `same_error_limit` times; and a
mere claim of an agent (not measured by Handrail) counts once per agent and stretch. Claims are
compared with claims and measurements with measurements.
"""

from collections.abc import Iterable

from tests.kernel.frozen_rules.error_signature import error_signature
from tests.kernel.frozen_rules.ledger import (
    DIGEST_CHARS,
    NO_ASSESSMENT,
    Assessment,
    EvidenceState,
    Ledger,
    is_better_score,
    short_key,
)

from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Evidence


def assess_result(
    ledger: Ledger,
    limits: Limits,
    agent: str,
    evidence: Evidence,
    *,
    task: str = "",
    milestone: str = "",
    paths: frozenset[str] | None = None,
) -> Assessment:
    """Assess a result: its progress, and what else the ledger records of it.

    `paths` are those that existed at the start or that the task names; None if unknown.
    """
    if evidence == NO_EVIDENCE and not milestone:
        if not (ledger.measured.checks or ledger.claimed.checks):
            return NO_ASSESSMENT  # most results
        standing_errors = _standing_errors(ledger, evidence, ())
        return Assessment(red=standing_errors) if standing_errors else NO_ASSESSMENT
    signatures = tuple(
        error_signature(check.command, check.stderr)
        for check in evidence.checks
        if check.exit_code != 0
    )
    state = ledger.measured if evidence.measured else ledger.claimed
    goal = short_key(f"{agent}/{task}" if task else agent)
    changed, returned, known_changed, created = _compare_files(state, evidence, paths)
    facts = [*_newly_green_checks(state, evidence), *_fewer_failures(state, evidence)]
    if evidence.score is not None and is_better_score(
        limits, state.research.get(goal), evidence.score
    ):
        facts.append("score")
    if evidence.ticket_state is not None:
        facts.append(f"ticket:{evidence.ticket_state[:100]}")
    standing_errors = _standing_errors(ledger, evidence, signatures)
    if (known_changed or (created and not state.created)) and _may_count_files(
        ledger, limits, standing_errors
    ):
        facts.append("files")
    facts = _new_facts(ledger, facts)
    if facts and not evidence.measured:
        facts = [] if agent in ledger.claimants else [f"claim:{agent}"]
    if milestone:
        facts += _new_facts(ledger, [f"milestone:{milestone}"])
    return Assessment(
        progress=tuple(facts),
        signatures=signatures,
        red=standing_errors,
        changed=changed,
        returned=returned,
        created=created,
        goal=goal if evidence.score is not None else "",
    )


def _new_facts(ledger: Ledger, facts: list[str]) -> list[str]:
    """Return the facts not seen before; "files", "failures" and "score" are always new."""
    return [
        fact for fact in facts if fact in ("files", "failures", "score") or fact not in ledger.facts
    ]


def _compare_files(
    state: EvidenceState, evidence: Evidence, paths: frozenset[str] | None
) -> tuple[bool, bool, bool, bool]:
    """Return (changed, all back to earlier contents, a known path has new contents, a new path)."""
    changed = has_new_content = known_changed = created = False
    for path, full_digest in (evidence.files or {}).items():
        digest, versions = full_digest[-DIGEST_CHARS:], state.files.get(path, ())
        if versions[:1] == (digest,) or (not versions and state.forgot):
            continue
        changed = True
        if digest in versions:
            continue
        has_new_content = True
        if path in paths if paths is not None else bool(versions and digest):
            known_changed = True  # without `paths`, the removal of a file is not new content
        elif not versions:
            created = True
    return changed, changed and not has_new_content, known_changed, created


def _standing_errors(
    ledger: Ledger, evidence: Evidence, signatures: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the standing errors: of this result's commands, and of others as last reported."""
    if not (signatures or ledger.measured.checks or ledger.claimed.checks):
        return ()
    ran_commands = {short_key(check.command) for check in evidence.checks}
    stored_checks = (*ledger.measured.checks.items(), *ledger.claimed.checks.items())
    remaining = [
        signature
        for command, signature in stored_checks
        if signature and command not in ran_commands
    ]
    return tuple(dict.fromkeys([*signatures, *remaining]))


def _may_count_files(ledger: Ledger, limits: Limits, standing_errors: tuple[str, ...]) -> bool:
    """While an error persists, file changes count as progress a limited number of times."""
    limit = limits.same_error_limit
    grants = [
        error.grants
        for signature in standing_errors
        if (error := ledger.errors.get(signature)) is not None
    ]
    return limit is None or all(granted < limit for granted in grants)


def _newly_green_checks(state: EvidenceState, evidence: Evidence) -> Iterable[str]:
    """Yield checks that turned green, once per error: a flapping check is not progress."""
    for check in evidence.checks:
        previous_signature = state.checks.get(short_key(check.command), "")
        if check.exit_code == 0 and previous_signature:
            yield f"green:{check.command[:200]}:{previous_signature[-12:]}"


def _fewer_failures(state: EvidenceState, evidence: Evidence) -> Iterable[str]:
    fewest = state.failures_least
    if (
        evidence.failures is not None
        and fewest is not None
        and len(set(evidence.failures)) < fewest
    ):
        yield "failures"

"""What is progress in a result (docs/requirements.md, "Progress"), decided once and recorded.

A check that turned from failing to passing, a failure set smaller than any before, a materially
better score, a new milestone, a new state of the ticket, a new artefact digest. Activity is not
progress: returning to an earlier digest is oscillation; of files that the run created only the
first counts; while an error persists, file changes count at most `same_error_limit` times; and what
an agent merely claims (not measured by Handrail) counts once per agent and stretch. Claims are
compared with claims and measurements with measurements.
"""

from collections.abc import Iterable

from handrail.kernel.ledger import DIGEST_CHARS, NOTHING, Ledger, Seen, Weighed, is_better, short
from handrail.kernel.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Evidence
from handrail.kernel.signature import signature


def weigh(
    ledger: Ledger,
    limits: Limits,
    agent: str,
    evidence: Evidence,
    *,
    task: str = "",
    milestone: str = "",
    paths: frozenset[str] | None = None,
) -> Weighed:
    """What is progress in this result, and what else the ledger will want to know of it.

    `paths`: those that existed at the start or that the task names; None if nobody knows.
    """
    if evidence == NO_EVIDENCE and not milestone:
        if not (ledger.measured.checks or ledger.claimed.checks):
            return NOTHING  # as of most results
        red = _red(ledger, evidence, ())
        return Weighed(red=red) if red else NOTHING
    signatures = tuple(
        signature(check.command, check.stderr) for check in evidence.checks if check.exit_code != 0
    )
    seen = ledger.measured if evidence.measured else ledger.claimed
    goal = short(f"{agent}/{task}" if task else agent)
    changed, returned, known, created = _files(seen, evidence, paths)
    facts = [*_checks(seen, evidence), *_failures(seen, evidence)]
    if evidence.score is not None and is_better(limits, seen.research.get(goal), evidence.score):
        facts.append("score")
    if evidence.ticket_state is not None:
        facts.append(f"ticket:{evidence.ticket_state[:100]}")
    red = _red(ledger, evidence, signatures)
    if (known or (created and not seen.created)) and _may_count_files(ledger, limits, red):
        facts.append("files")
    facts = _new(ledger, facts)
    if facts and not evidence.measured:
        facts = [] if agent in ledger.claimants else [f"claim:{agent}"]
    if milestone:
        facts += _new(ledger, [f"milestone:{milestone}"])
    return Weighed(
        progress=tuple(facts),
        signatures=signatures,
        red=red,
        changed=changed,
        returned=returned,
        created=created,
        goal=goal if evidence.score is not None else "",
    )


def _new(ledger: Ledger, facts: list[str]) -> list[str]:
    """Facts not seen before. "files", "failures" and "score" say themselves what is new."""
    return [f for f in facts if f in ("files", "failures", "score") or f not in ledger.facts]


def _files(
    seen: Seen, evidence: Evidence, paths: frozenset[str] | None
) -> tuple[bool, bool, bool, bool]:
    """(changed, all of it back to earlier contents, a known path has news, a path is new)"""
    changed = fresh = known = created = False
    for path, whole in (evidence.files or {}).items():
        digest, versions = whole[-DIGEST_CHARS:], seen.files.get(path, ())
        if versions[:1] == (digest,) or (not versions and seen.forgot):
            continue
        changed = True
        if digest in versions:
            continue
        fresh = True
        if path in paths if paths is not None else bool(versions and digest):
            known = True  # where nobody knows what was there before, a file that goes is no news
        elif not versions:
            created = True
    return changed, changed and not fresh, known, created


def _red(ledger: Ledger, evidence: Evidence, signatures: tuple[str, ...]) -> tuple[str, ...]:
    """Errors that stand: of commands that this result ran as it says, of others as last seen."""
    if not (signatures or ledger.measured.checks or ledger.claimed.checks):
        return ()
    ran = {short(check.command) for check in evidence.checks}
    held = (*ledger.measured.checks.items(), *ledger.claimed.checks.items())
    left = [found for command, found in held if found and command not in ran]
    return tuple(dict.fromkeys([*signatures, *left]))


def _may_count_files(ledger: Ledger, limits: Limits, red: tuple[str, ...]) -> bool:
    """While an error persists, file changes are granted as progress a limited number of times."""
    most = limits.same_error_limit
    grants = [held.grants for found in red if (held := ledger.errors.get(found)) is not None]
    return most is None or all(used < most for used in grants)


def _checks(seen: Seen, evidence: Evidence) -> Iterable[str]:
    """Turned green, once for each error it turned green from: a flapping check is no progress."""
    for check in evidence.checks:
        before = seen.checks.get(short(check.command), "")
        if check.exit_code == 0 and before:
            yield f"green:{check.command[:200]}:{before[-12:]}"


def _failures(seen: Seen, evidence: Evidence) -> Iterable[str]:
    least = seen.failures_least
    if evidence.failures is not None and least is not None and len(set(evidence.failures)) < least:
        yield "failures"

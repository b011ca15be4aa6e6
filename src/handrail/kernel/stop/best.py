"""The best result of a run whose evidence Handrail measured, which a stop carries.

A run that is stopped has often had something better than its last state. Of the measured results
the best is the one with a green goal, then with the fewest failures, then with the highest score;
of equals the latest. Results without measured evidence cost nothing here, and the ledger keeps one
result only, cut to a bounded size.
"""

import hashlib
from itertools import islice
from math import inf

import msgspec
from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.result import Evidence

FILES_KEPT = 64
CHECKS_KEPT = 20
FAILURES_KEPT = 50
TEXT_CHARS = 300
_encode = msgspec.json.Encoder(order="deterministic").encode


class BestResult(Value):
    """A result by its step; `digest` is the SHA-256 of `evidence` as it is shown."""

    step: int
    agent: str
    evidence: Evidence
    digest: str = ""
    goal_met: bool = False
    failures: int | None = None

    @property
    def rank(self) -> tuple[bool, float, float]:
        failures = inf if self.failures is None else self.failures
        score = -inf if self.evidence.score is None else self.evidence.score
        return self.goal_met, -failures, score


def choose_best(
    best: BestResult | None, step: int, agent: str, evidence: Evidence, *, goal_met: bool
) -> BestResult | None:
    """Return the better one of the best so far and this result; of equals, this result.

    A result that shows neither files nor checks nor figures is none.
    """
    failures = None if evidence.failures is None else len(set(evidence.failures))
    if failures is None and evidence.checks:
        failures = sum(check.exit_code != 0 for check in evidence.checks)
    if failures is None and evidence.score is None and not evidence.files:
        return best
    result = BestResult(
        step=step, agent=agent, evidence=evidence, goal_met=goal_met, failures=failures
    )
    if best is not None and best.rank > result.rank:
        return best
    return replace(result, evidence=_shorten(evidence))


def seal_best(best: BestResult | None) -> BestResult | None:
    """Return the best result with the digest of its evidence, for a stop."""
    if best is None:
        return None
    return replace(best, digest=hashlib.sha256(_encode(best.evidence)).hexdigest())


def _shorten(evidence: Evidence) -> Evidence:
    checks = tuple(
        replace(check, command=check.command[:TEXT_CHARS], stderr=check.stderr[:TEXT_CHARS])
        for check in evidence.checks[-CHECKS_KEPT:]
    )
    files = None if evidence.files is None else dict(islice(evidence.files.items(), FILES_KEPT))
    failures = evidence.failures
    if failures is not None:
        failures = tuple(failure[:TEXT_CHARS] for failure in failures[:FAILURES_KEPT])
    return replace(evidence, checks=checks, files=files, failures=failures, findings=())

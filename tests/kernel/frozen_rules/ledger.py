"""The ledger: what the stop rules count. One frozen value per run, bounded whatever the run does.

`progress.assess_result` decides what in a result is progress; the event records its assessment.
`add_handoff`, `add_usage` and `add_result` then advance the ledger, without policy, live and in
replay alike. The rules in `rules.py` read the ledger.

Progress opens a new *epoch*: counters of soft rules belong to an epoch, so opening an epoch costs
nothing. Every collection is capped (the constants below), so a handoff costs the same at the start
and after 100,000 of them.
"""

import functools
import hashlib
from collections import deque
from collections.abc import Collection, Iterable
from typing import TypeVar

from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import NO_EVIDENCE, Evidence, Usage

V = TypeVar("V")

REASONS_KEPT = 5
CITATIONS_MAX = 50
VERSIONS_KEPT = 64
PATHS_KEPT = 256
ERRORS_KEPT = 256
EDGES_KEPT = 1_000
CHECKS_KEPT = 256
FACTS_KEPT = 1_000
SYMBOLS_MAX = 1_000_000
KEY_CHARS = 300
DIGEST_CHARS = 24


class EdgeCount(Value):
    """The handoffs along one edge: the count in this epoch, the total, and the last reasons."""

    source: str
    target: str
    symbol: str
    """The character of this edge in the trail."""
    epoch: int
    count: int = 0
    total: int = 0
    reasons: tuple[str, ...] = ()


class Tally(Value):
    """How often something happened, and the last steps at which it did."""

    count: int = 0
    steps: tuple[int, ...] = ()
    spare: tuple[int, ...] = ()
    """Steps that another step would have replaced; the rules do not cite them."""

    def add(self, step: int, *, spare: bool = False) -> "Tally":
        """Count the step; several occurrences within one step count once."""
        if self.steps[-1:] == (step,):
            return self
        return Tally(
            count=self.count + 1,
            steps=(*self.steps[1 - CITATIONS_MAX :], step),
            spare=(*self.spare[1 - CITATIONS_MAX :], step) if spare else self.spare,
        )


class ErrorCount(Value):
    """One error signature: failures in this epoch; `grants`: file changes counted as progress."""

    epoch: int
    seen: Tally = Tally()
    grants: int = 0


class ResearchScores(Value):
    """Scores of one agent at one goal: the best, and the visits that did not improve it."""

    best: int | float
    stale: Tally = Tally()


class EvidenceState(Value):
    """The evidence of one kind so far: measured by Handrail, or claimed by agents.

    The ledger keeps the two apart, so that a claim can neither make a measurement look like
    progress nor hide that it is.
    """

    checks: dict[str, str] = {}
    """Command -> "" if it passed last, else the signature of its failure."""
    files: dict[str, tuple[str, ...]] = {}
    """Path -> its digests, newest first."""
    forgot: bool = False
    """Some paths were dropped: an unknown path may be an old one, and does not count as new."""
    created: bool = False
    failures_least: int | None = None
    research: dict[str, ResearchScores] = {}


class Ledger(Value):
    """Steps, handoffs, tokens and cost since the start; the rest since the last raising act."""

    steps: int = 0
    handoffs: int = 0
    steps_before: int = 0
    """Steps of earlier stretches: the limits are per stretch, the numbering is not."""
    handoffs_before: int = 0
    epoch: int = 0
    last_progress_step: int = 0
    edges: dict[str, EdgeCount] = {}
    edges_seen: int = 0
    trail: str = ""
    """The handoffs of this epoch, a character each, newest first, as many as the rules need."""
    errors: dict[str, ErrorCount] = {}
    measured: EvidenceState = EvidenceState()
    claimed: EvidenceState = EvidenceState()
    facts: dict[str, int] = {}
    """Facts that count as progress only once -> the step at which they counted."""
    claimants: dict[str, int] = {}
    """Agents whose claims have postponed the soft rules (once each) -> the step."""
    idle: Tally = Tally()
    """Steps of this epoch that reported files but changed none."""
    returns: Tally = Tally()
    """Steps of this epoch that went back to earlier file contents."""
    tokens: int = 0
    cost: int | float = 0.0
    tokens_step: int = 0
    """The last step that used tokens; 0 if none did."""
    cost_step: int = 0


class Assessment(Value):
    """The assessment of a result: progress, signatures of failed checks, changes of files."""

    progress: tuple[str, ...] = ()
    signatures: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    """Every error that stands after the result, also of commands that the step did not run."""
    changed: bool = False
    returned: bool = False
    created: bool = False
    goal: str = ""
    """Agent and task, for scores."""


NO_ASSESSMENT = Assessment()
"""The assessment of most results; as an event's default, the journal omits it."""


def short_key(text: str) -> str:
    """Return the text as a key: a long text is cut and ends with its hash."""
    if len(text) <= KEY_CHARS:
        return text
    return f"{text[: KEY_CHARS - 13]}~{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@functools.lru_cache(maxsize=1_024)
def edge_key(source: str, target: str) -> str:
    """Return the unique key of an edge: the length marks where the source ends."""
    return f"{len(source)}:{source}>{target}"


def find_edge(ledger: Ledger, source: str, target: str) -> EdgeCount | None:
    """Return the counts of this edge; None if no handoff used it."""
    return ledger.edges.get(edge_key(source, target))


def add_handoff(
    ledger: Ledger, limits: Limits, source: str, target: str, reason: str, *, steps: int = 0
) -> Ledger:
    """Return the ledger after a handoff; `steps` counts the steps it takes without a dispatch."""
    return add_handoffs(ledger, limits, ((source, target, reason),), steps=steps)


def add_handoffs(
    ledger: Ledger, limits: Limits, handoffs: Collection[tuple[str, str, str]], *, steps: int = 0
) -> Ledger:
    """Add several handoffs in order; each is (source, target, reason)."""
    edges, edges_seen, epoch = {**ledger.edges}, ledger.edges_seen, ledger.epoch
    trail_length_max = limits.pattern_period_max * (limits.repeat_limit or 1)
    symbols = deque[str](maxlen=trail_length_max)
    for source, target, reason in handoffs:
        key = edge_key(source, target)
        edge = edges.get(key)
        if edge is None:
            symbol, epoch_count, total, reasons = edge_symbol(edges_seen), 0, 0, ()
            edges_seen += 1
        else:
            symbol, total, reasons = edge.symbol, edge.total, edge.reasons[1 - REASONS_KEPT :]
            epoch_count = edge.count if edge.epoch == epoch else 0
        edges[key] = EdgeCount(
            source=source,
            target=target,
            symbol=symbol,
            epoch=epoch,
            count=epoch_count + 1,
            total=total + 1,
            reasons=(*reasons, reason[:KEY_CHARS]),
        )
        symbols.appendleft(symbol)
        if len(edges) > EDGES_KEPT:
            _keep_newest(edges, EDGES_KEPT)
    return replace(
        ledger,
        handoffs=ledger.handoffs + len(handoffs),
        steps=ledger.steps + steps,
        edges=edges,
        edges_seen=edges_seen,
        trail=("".join(symbols) + ledger.trail)[:trail_length_max],
    )


def edge_symbol(number: int) -> str:
    """Return the character of an edge; surrogates are skipped, because no encoder accepts them."""
    code = 0x100 + number % SYMBOLS_MAX
    return chr(code if code < 0xD800 else code + 0x800)


def add_result(
    ledger: Ledger,
    limits: Limits,
    step: int,
    evidence: Evidence,
    usage: Usage,
    assessment: Assessment,
) -> Ledger:
    """Return the ledger after the result of a step."""
    previous = ledger
    if assessment.progress:
        ledger = open_epoch(ledger, assessment, step)
    if usage.tokens or usage.cost:
        ledger = add_usage(ledger, ((step, usage),))
    if evidence == NO_EVIDENCE:
        return ledger
    state = ledger.measured if evidence.measured else ledger.claimed
    new_state = _add_evidence(state, limits, step, evidence, assessment)
    idle, returns = ledger.idle, ledger.returns
    if evidence.files is not None and not assessment.changed:
        returns = _mark_last_spare(returns, idle) if evidence.files else returns
        idle = idle.add(step, spare=previous.idle.count > idle.count)
    elif assessment.returned:
        returns = returns.add(step, spare=previous.returns.count > returns.count)
    return replace(
        ledger,
        errors=_add_failures(ledger, assessment, step),
        measured=new_state if evidence.measured else ledger.measured,
        claimed=ledger.claimed if evidence.measured else new_state,
        idle=idle,
        returns=returns,
    )


def add_usage(ledger: Ledger, usages: Iterable[tuple[int, Usage]]) -> Ledger:
    """Return the ledger after these (step, usage) pairs."""
    tokens, cost = ledger.tokens, ledger.cost
    tokens_step, cost_step = ledger.tokens_step, ledger.cost_step
    for step, usage in usages:
        if usage.tokens:
            tokens, tokens_step = tokens + usage.tokens, step
        if usage.cost:
            cost, cost_step = cost + usage.cost, step
    return replace(ledger, tokens=tokens, cost=cost, tokens_step=tokens_step, cost_step=cost_step)


def _mark_last_spare(returns: Tally, idle: Tally) -> Tally:
    """Mark the last return as spare: the idle step that follows it would have been that return."""
    last_step = returns.steps[-1:]
    return (
        replace(returns, spare=(*returns.spare, *last_step))
        if last_step > idle.steps[-1:]
        else returns
    )


def open_epoch(ledger: Ledger, assessment: Assessment, step: int) -> Ledger:
    """Open a new epoch: the soft rules start counting again."""
    facts, claimants, errors = dict(ledger.facts), ledger.claimants, ledger.errors
    for fact in assessment.progress:
        if fact.startswith("claim:"):
            claimants = {**claimants, fact.removeprefix("claim:"): step}
        else:
            facts.setdefault(fact, step)
    if "files" in assessment.progress:
        errors = dict(errors)
        for signature in assessment.red:
            error = errors.get(signature, ErrorCount(epoch=ledger.epoch))
            errors[signature] = replace(error, grants=error.grants + 1)
    return replace(
        ledger,
        epoch=ledger.epoch + 1,
        last_progress_step=step,
        trail="",
        idle=Tally(),
        returns=Tally(),
        facts=_keep_newest(facts, FACTS_KEPT),
        claimants=claimants,
        errors=errors,
    )


def _add_failures(ledger: Ledger, assessment: Assessment, step: int) -> dict[str, ErrorCount]:
    if not assessment.signatures:
        return ledger.errors
    errors = dict(ledger.errors)
    for signature in assessment.signatures:
        error = errors.pop(signature, ErrorCount(epoch=ledger.epoch))
        tally = error.seen if error.epoch == ledger.epoch else Tally()
        # Without the progress of this step, the failures of the previous epoch would count.
        spare = bool(assessment.progress) and error.epoch == ledger.epoch - 1
        errors[signature] = replace(error, epoch=ledger.epoch, seen=tally.add(step, spare=spare))
    return _keep_newest(errors, ERRORS_KEPT)


def _add_evidence(
    state: EvidenceState, limits: Limits, step: int, evidence: Evidence, assessment: Assessment
) -> EvidenceState:
    """Return the state of this kind of evidence after the result."""
    if evidence.checks:
        checks, signatures = dict(state.checks), iter(assessment.signatures)
        for check in evidence.checks:
            command = short_key(check.command)
            checks.pop(command, None)
            checks[command] = next(signatures) if check.exit_code != 0 else ""
        state = replace(state, checks=_keep_newest(checks, CHECKS_KEPT))
    if evidence.files is not None:
        files = dict(state.files)
        for path, full_digest in evidence.files.items():
            digest = full_digest[-DIGEST_CHARS:]
            versions = files.pop(path, ())
            if digest in versions[1:]:
                versions = tuple(v for v in versions if v != digest)
            if versions[:1] != (digest,):
                versions = (digest, *versions[: VERSIONS_KEPT - 1])
            files[path] = versions
        state = replace(
            state,
            forgot=state.forgot or len(files) > PATHS_KEPT,
            files=_keep_newest(files, PATHS_KEPT),
            created=state.created or assessment.created,
        )
    if evidence.failures is not None:
        count = len(set(evidence.failures))
        fewest = count if state.failures_least is None else min(state.failures_least, count)
        state = replace(state, failures_least=fewest)
    if evidence.score is not None:
        scores = state.research.get(assessment.goal)
        if scores is None or is_better_score(limits, scores, evidence.score):
            scores = ResearchScores(best=evidence.score)
        else:
            scores = replace(scores, stale=scores.stale.add(step))
        research = _keep_newest({**state.research, assessment.goal: scores}, PATHS_KEPT)
        state = replace(state, research=research)
    return state


def is_better_score(limits: Limits, scores: ResearchScores | None, score: float) -> bool:
    return scores is None or score >= scores.best + max(limits.research_gain, 1e-9)


def _keep_newest(entries: dict[str, V], limit: int) -> dict[str, V]:
    """Drop the oldest entries beyond `limit`, in place."""
    while len(entries) > limit:
        del entries[next(iter(entries))]
    return entries


def renew(ledger: Ledger) -> Ledger:
    """Reset every counter after a raising act of a person; budgets and files continue (K14)."""
    return Ledger(
        steps=ledger.steps,
        handoffs=ledger.handoffs,
        steps_before=ledger.steps,
        handoffs_before=ledger.handoffs,
        epoch=ledger.epoch + 1,
        last_progress_step=ledger.last_progress_step,
        measured=_carry_over(ledger.measured),
        claimed=_carry_over(ledger.claimed),
        tokens=ledger.tokens,
        cost=ledger.cost,
        tokens_step=ledger.tokens_step,
        cost_step=ledger.cost_step,
    )


def _carry_over(state: EvidenceState) -> EvidenceState:
    """Keep checks and file contents, reset the counts."""
    return EvidenceState(checks=state.checks, files=state.files, forgot=state.forgot)

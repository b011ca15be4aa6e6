"""The ledger: what the stop rules count. One frozen value per run, bounded whatever the run does.

`assess_result` decides what in a result is progress; the event records its assessment.
`add_handoff`, `add_usage` and `add_result` then advance the ledger, without policy, live and in
replay alike. The rules in `rules.py` read the ledger.

Progress opens a new *epoch*: counters of soft rules belong to an epoch, so opening an epoch costs
nothing. Every collection is capped (the constants below), so a handoff costs the same at the start
and after 100,000 of them.

Progress is (docs/requirements.md, "Progress"): a check that turned from failing to passing, a
failure set smaller than any before, a materially better score, a new milestone, a new ticket state,
a new artefact digest. Activity is not progress: returning to an earlier digest is oscillation; of
files that the run created only the first counts; while an error persists, file changes count at
most `same_error_limit` times. Claims are compared with claims and measurements with measurements.

A claim of an agent (not measured by Handrail) is progress if it is the best so far, a bounded
number of times in a stretch (`CLAIM_KINDS`, K32), so that a team over HTTP that gets better goes
on, and one that only says so is stopped; and the first claim of each agent is. With the limit
`evidence: measured` no claim is.
"""

import functools
import hashlib
from collections import deque
from collections.abc import Collection, Iterable
from typing import TypeVar

from msgspec.structs import replace

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import FINDING_PROFILES, FREE_VISITS_MAX, Limits
from handrail.kernel.result import NO_EVIDENCE, Check, Evidence, Result, Usage
from handrail.kernel.stop.alike import EffectCall
from handrail.kernel.stop.best import BestResult, choose_best
from handrail.kernel.stop.budgets import BudgetState, update_budgets
from handrail.kernel.stop.error_signature import error_signature
from handrail.kernel.stop.findings import FindingKind, FindingReader, StepFinding, digest_text
from handrail.kernel.stop.news import (
    NO_REPEATS,
    News,
    Repeats,
    add_findings,
    add_visit,
    assess_findings,
    open_repeats_epoch,
    renew_repeats,
    renumber_repeats,
)
from handrail.kernel.stop.tool_counts import ToolCount, add_tool_calls

V = TypeVar("V")

REASONS_KEPT = 5
CITATIONS_MAX = 50
VERSIONS_KEPT = 64
PATHS_KEPT = 256
ERRORS_KEPT = 256
EDGES_KEPT = 1_000
CHECKS_KEPT = 256
FACTS_KEPT = 1_000
EFFECTS_KEPT = 50
SYMBOLS_MAX = 1_000_000
CLAIM_KINDS = {
    "failures": ("failures", 20),
    "score": ("score", 20),
    "green": ("green", 20),
    "files": ("contents", 8),
    "ticket": ("contents", 8),
    "created": ("created", 1),
}
"""Kind of claim -> the group it counts in, and how often a group is progress in a stretch; a
created path in the whole run (K32)."""
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

    def renumber(self, offset: int) -> "Tally":
        """Return the tally with each step's number lowered by `offset`."""
        return replace(
            self,
            steps=tuple(step - offset for step in self.steps),
            spare=tuple(step - offset for step in self.spare),
        )


class ErrorCount(Value):
    """One error signature: failures in this epoch; `grants`: file changes counted as progress."""

    epoch: int
    seen: Tally = Tally()
    grants: int = 0
    calls: tuple[str, ...] = ()
    """The different calls of this epoch that failed so, as far as they are known by findings."""


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
    """Agents whose claims were progress in this stretch -> the step of the last one."""
    claims: dict[str, int] = {}
    """Claims that were progress: how many of each group of `CLAIM_KINDS`, and 1 for each command
    and ticket state, which count once."""
    claims_refused: bool = False
    """Whether a claim of this stretch did not count; the run warned of it."""
    idle: Tally = Tally()
    """Steps of this epoch that reported files but changed none."""
    returns: Tally = Tally()
    """Steps of this epoch that went back to earlier file contents."""
    tokens: int = 0
    cost: int | float = 0.0
    tokens_step: int = 0
    """The last step that used tokens; 0 if none did."""
    cost_step: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unpriced_calls: int = 0
    budgets: dict[str, BudgetState] = {}
    """Budgets that this run shares with others, as its last event found them."""
    repeats: Repeats = NO_REPEATS
    """What came again, in profiles that judge findings."""
    best: BestResult | None = None
    """The best result whose evidence Handrail measured, of the whole run."""
    first_visits: int = 0
    """Handoffs of this stretch to agents that had not been visited, where those are free."""
    waits: int = 0
    """Steps of this stretch that waited."""
    tool_calls: dict[str, ToolCount] = {}
    """The calls of this stretch, of tools that have a limit."""
    visited: dict[str, int] = {}
    """Agents that were visited, where first visits are free -> the number of the handoff."""
    effects: tuple[EffectCall, ...] = ()
    """Calls with an effect outside of the run, from the last step with progress on."""
    nudged: tuple[str, ...] = ()
    """Rules that have nudged an agent in this epoch."""
    nudges: int = 0
    """Nudges of this stretch."""
    warned: tuple[str, ...] = ()
    """Warnings that were given in this stretch, of those that are given once."""


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
    news: News = News.UNSEEN
    """How much the findings bring that was not there before."""
    claims: tuple[str, ...] = ()
    """What an agent claims that is the best so far."""
    claim_refused: bool = False
    """A claim that is no progress, the first of the stretch."""


NO_ASSESSMENT = Assessment()
"""The assessment of most results; as an event's default, the journal omits it."""
NEWS_ASSESSMENTS = {
    News.STRONG: Assessment(progress=("news",), news=News.STRONG),
    News.WEAK: Assessment(news=News.WEAK),
}
"""The assessment of a result whose evidence is findings alone, where no error stands."""
WAIT_ASSESSMENT = Assessment(news=News.WAITING)
"""The assessment of a result that says that its agent waits."""


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
    if limits.profile in FINDING_PROFILES:
        ledger = _add_visits(ledger, limits, [target for _, target, _ in handoffs])
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
    if assessment.claim_refused:
        ledger = replace(ledger, claims_refused=True)
    if usage.tokens or usage.cost or usage.unpriced_calls:
        ledger = add_usage(ledger, ((step, usage),))
    if limits.tool_limits and evidence != NO_EVIDENCE:
        tool_calls = add_tool_calls(ledger.tool_calls, limits.tool_limits, step, evidence)
        ledger = replace(ledger, tool_calls=tool_calls)
    if assessment.news is not News.UNSEEN:
        ledger = _add_findings(ledger, step, evidence, assessment)
    if evidence == NO_EVIDENCE or assessment.news is News.WAITING:
        return ledger  # no rule sees what a step that waits has shown
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
        effects=_add_effects(ledger.effects, step, evidence),
    )


def _add_effects(
    effects: tuple[EffectCall, ...], step: int, evidence: Evidence
) -> tuple[EffectCall, ...]:
    calls = [
        EffectCall(step=step, agent=finding.agent, tool=finding.tool)
        for finding in evidence.findings
        if finding.effect
    ] + [
        EffectCall(step=step, agent="", tool=short_key(check.command))
        for check in evidence.checks
        if check.effect
    ]
    return (*effects, *calls)[-EFFECTS_KEPT:] if calls else effects


def add_best(ledger: Ledger, step: int, agent: str, evidence: Evidence, goal: str) -> Ledger:
    """Return the ledger with this measured result as the best, if none before it is better.

    `goal` is the command of the functional goal; the ledger includes the result already.
    """
    goal_met = bool(goal) and ledger.measured.checks.get(short_key(goal)) == ""
    best = choose_best(ledger.best, step, agent, evidence, goal_met=goal_met)
    return ledger if best is ledger.best else replace(ledger, best=best)


def _add_findings(ledger: Ledger, step: int, evidence: Evidence, assessment: Assessment) -> Ledger:
    """Return the ledger after the findings of a step: repetitions, and failures by what failed."""
    errors = ledger.errors
    for finding in evidence.findings:
        if finding.error:
            errors = dict(errors) if errors is ledger.errors else errors
            error = errors.pop(finding.error, ErrorCount(epoch=ledger.epoch))
            is_current = error.epoch == ledger.epoch
            calls = error.calls if is_current else ()
            if finding.key not in calls:
                calls = (*calls[1 - CITATIONS_MAX :], finding.key)
            errors[finding.error] = replace(
                error,
                epoch=ledger.epoch,
                seen=(error.seen if is_current else Tally()).add(step),
                calls=calls,
            )
    repeats = add_findings(ledger.repeats, step, evidence.findings, assessment.news)
    is_look = bool(evidence.findings) and not repeats.waited  # again, after a wait
    return replace(
        ledger,
        repeats=repeats,
        waits=ledger.waits + (assessment.news is News.WAITING and not is_look),
        errors=_keep_newest(errors, ERRORS_KEPT),
    )


def _add_visits(ledger: Ledger, limits: Limits, targets: list[str]) -> Ledger:
    """Return the ledger with the visits that these handoffs end and begin."""
    repeats, visits_max = ledger.repeats, limits.pattern_period_max * (limits.repeat_limit or 1)
    for _ in targets:
        repeats = add_visit(repeats, visits_max)
    visited, first_visits = ledger.visited, ledger.first_visits
    if limits.free_visits:
        for number, target in enumerate(targets, ledger.handoffs + 1):
            if target not in visited and len(visited) < FREE_VISITS_MAX:
                visited = {**visited, target: number}
                first_visits += 1
    return replace(
        ledger,
        repeats=repeats,
        visited=visited,
        first_visits=first_visits,
    )


def add_usage(ledger: Ledger, usages: Iterable[tuple[int, Usage]]) -> Ledger:
    """Return the ledger after these (step, usage) pairs."""
    tokens, cost = ledger.tokens, ledger.cost
    tokens_step, cost_step = ledger.tokens_step, ledger.cost_step
    input_tokens, output_tokens = ledger.input_tokens, ledger.output_tokens
    unpriced_calls = ledger.unpriced_calls
    for step, usage in usages:
        input_tokens += usage.input_tokens
        output_tokens += usage.output_tokens
        unpriced_calls += usage.unpriced_calls
        if usage.tokens:
            tokens, tokens_step = tokens + usage.tokens, step
        if usage.cost:
            cost, cost_step = cost + usage.cost, step
    return replace(
        ledger,
        tokens=tokens,
        cost=cost,
        tokens_step=tokens_step,
        cost_step=cost_step,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        unpriced_calls=unpriced_calls,
    )


def add_budgets(ledger: Ledger, states: Collection[BudgetState]) -> Ledger:
    """Return the ledger with the state of its shared budgets."""
    if not states:
        return ledger
    return replace(ledger, budgets=update_budgets(ledger.budgets, states))


def add_nudge(ledger: Ledger, rule: str) -> Ledger:
    """Return the ledger after a nudge by this rule."""
    return replace(ledger, nudged=(*ledger.nudged, rule), nudges=ledger.nudges + 1)


def add_warning(ledger: Ledger, key: str) -> Ledger:
    """Return the ledger after a warning that is given once; an empty key is given any time."""
    if not key or key in ledger.warned:
        return ledger
    return replace(ledger, warned=(*ledger.warned, key))


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
        nudged=(),
        repeats=open_repeats_epoch(ledger.repeats),
        effects=(),
        facts=_keep_newest(facts, FACTS_KEPT),
        claimants=claimants,
        claims=_add_claims(ledger.claims, assessment.claims),
        errors=errors,
    )


def _add_claims(counts: dict[str, int], claims: tuple[str, ...]) -> dict[str, int]:
    if not claims:
        return counts
    counts = dict(counts)
    for claim in claims:
        kind, _, name = claim.partition(":")
        group, _ = CLAIM_KINDS[kind]
        counts[group] = counts.get(group, 0) + 1
        if name:
            counts[claim] = 1
    return counts


def _add_failures(ledger: Ledger, assessment: Assessment, step: int) -> dict[str, ErrorCount]:
    if not assessment.signatures:
        return ledger.errors
    errors = dict(ledger.errors)
    for signature in assessment.signatures:
        error = errors.pop(signature, ErrorCount(epoch=ledger.epoch))
        tally = error.seen if error.epoch == ledger.epoch else Tally()
        # Without the progress of this step, the failures of the previous epoch would count.
        errors[signature] = replace(
            error,
            epoch=ledger.epoch,
            seen=tally.add(
                step, spare=bool(assessment.progress) and error.epoch == ledger.epoch - 1
            ),
        )
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
        state = replace(
            state,
            failures_least=count
            if state.failures_least is None
            else min(state.failures_least, count),
        )
    if evidence.score is not None:
        scores = state.research.get(assessment.goal)
        if scores is None or is_better_score(limits, scores, evidence.score):
            scores = ResearchScores(best=evidence.score)
        else:
            scores = replace(scores, stale=scores.stale.add(step))
        state = replace(
            state, research=_keep_newest({**state.research, assessment.goal: scores}, PATHS_KEPT)
        )
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
        input_tokens=ledger.input_tokens,
        output_tokens=ledger.output_tokens,
        unpriced_calls=ledger.unpriced_calls,
        budgets=ledger.budgets,
        repeats=renew_repeats(ledger.repeats),
        visited=ledger.visited,
        claims={"created": 1} if "created" in ledger.claims else {},
        best=ledger.best,
    )


def _carry_over(state: EvidenceState) -> EvidenceState:
    """Keep checks and file contents, reset the counts."""
    return EvidenceState(checks=state.checks, files=state.files, forgot=state.forgot)


def continue_thread(ledger: Ledger) -> Ledger:
    """Return the ledger with which the next run of the same thread begins.

    What was seen, the soft counts and the budgets go on; steps, handoffs, first visits, waits and
    tool calls, which hard limits count, begin anew. The steps of earlier runs get numbers up to 0,
    in their order: no citation of them can be taken for a step of the new run.
    """
    offset = ledger.steps
    return replace(
        ledger,
        steps=0,
        handoffs=0,
        steps_before=0,
        handoffs_before=0,
        last_progress_step=ledger.last_progress_step - offset,
        errors={
            signature: replace(error, seen=error.seen.renumber(offset))
            for signature, error in ledger.errors.items()
        },
        measured=_renumber_evidence(ledger.measured, offset),
        claimed=_renumber_evidence(ledger.claimed, offset),
        facts={fact: step - offset for fact, step in ledger.facts.items()},
        claimants={agent: step - offset for agent, step in ledger.claimants.items()},
        idle=ledger.idle.renumber(offset),
        returns=ledger.returns.renumber(offset),
        tokens_step=ledger.tokens_step and ledger.tokens_step - offset,
        cost_step=ledger.cost_step and ledger.cost_step - offset,
        repeats=renumber_repeats(ledger.repeats, offset),
        effects=tuple(replace(call, step=call.step - offset) for call in ledger.effects),
        first_visits=0,
        visited={},
        waits=0,
        tool_calls={},
        budgets={},
        nudges=0,
        claims_refused=False,
        warned=(),
        best=None,
    )


def _renumber_evidence(state: EvidenceState, offset: int) -> EvidenceState:
    research = {
        goal: replace(scores, stale=scores.stale.renumber(offset))
        for goal, scores in state.research.items()
    }
    return replace(state, research=research)


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
    goal = research_goal(agent, task)
    changed, returned, known_changed, created = _compare_files(state, evidence, paths)
    facts = _find_facts(state, limits, goal, evidence)
    standing_errors = _standing_errors(ledger, evidence, signatures)
    is_news = known_changed or (created and not state.created)
    if is_news and _may_count_files(ledger, limits, standing_errors):
        facts.append("files")
    facts, news = _new_facts(ledger, facts), News.UNSEEN
    if limits.profile in FINDING_PROFILES:
        news = assess_findings(ledger.repeats, evidence.findings)
    claims, is_claim = (), bool(facts) and not evidence.measured
    if is_claim:
        claims = _best_claims(ledger, limits, evidence, facts, known_changed)
        is_first = limits.evidence == "claims" and agent not in ledger.claimants
        facts = [f"claim:{agent}"] if claims or is_first else []
    is_refused = is_claim and not facts and not ledger.claims_refused
    if milestone:
        facts += _new_facts(ledger, [f"milestone:{milestone}"])
    if news is News.STRONG:
        facts.append("news")
    return Assessment(
        progress=tuple(facts),
        signatures=signatures,
        red=standing_errors,
        changed=changed,
        returned=returned,
        created=created,
        goal=goal if evidence.score is not None else "",
        news=news,
        claims=claims,
        claim_refused=is_refused,
    )


def _best_claims(
    ledger: Ledger, limits: Limits, evidence: Evidence, facts: list[str], known_changed: bool
) -> tuple[str, ...]:
    """Return the claims that are the best so far and within what may count in a stretch (K32).

    A command counts once, whatever its error was, and so does a state of the ticket. While Handrail
    measures a failure, claimed files are no progress: the measurement says that they did not help.
    """
    if limits.evidence != "claims":
        return ()
    claims = [fact for fact in facts if not fact.startswith(("green:", "files"))]
    if any(fact.startswith("green:") for fact in facts):
        claims += [f"green:{command}" for command in _green_commands(ledger.claimed, evidence)]
    if "files" in facts and not any(ledger.measured.checks.values()):
        claims.append("files" if known_changed else "created")
    counted: list[str] = []
    counts = ledger.claims
    for claim in dict.fromkeys(claims):
        kind, _, name = claim.partition(":")
        group, claims_max = CLAIM_KINDS[kind]
        is_repeated = bool(name) and claim in ledger.claims
        if not is_repeated and counts.get(group, 0) < claims_max:
            counted.append(claim)
            counts = {**counts, group: counts.get(group, 0) + 1}
    return tuple(counted)


def research_goal(agent: str, task: str) -> str:
    """Return the key of the goal that an agent's scores at a task belong to."""
    return short_key(f"{agent}/{task}" if task else agent)


def show_findings(limits: Limits, agent: str, result: Result) -> Result:
    """Return a result with its findings: its text, and the evidence that Handrail measured.

    An agent's own are dropped, so that no claim is news. Profiles that judge no findings have none.
    """
    findings: tuple[StepFinding, ...] = ()
    if limits.profile in FINDING_PROFILES:
        text = FindingReader().read_text(agent, result.text)
        findings = (text,) if text is not None else ()
        if result.evidence.measured:
            findings += read_evidence(agent, replace(result.evidence, findings=()))
    if findings == result.evidence.findings:
        return result
    return replace(result, evidence=replace(result.evidence, findings=findings))


def read_evidence(agent: str, evidence: Evidence) -> tuple[StepFinding, ...]:
    """Return files and checks as findings, for profiles that judge findings."""
    files = [
        StepFinding(
            kind=FindingKind.STATE,
            key=digest_text("file", path),
            answer=digest_text(digest),
            agent=agent,
        )
        for path, digest in (evidence.files or {}).items()
    ]
    checks = [_read_check(agent, check) for check in evidence.checks]
    return (*evidence.findings, *files, *checks)


def _read_check(agent: str, check: Check) -> StepFinding:
    has_failed = check.exit_code != 0
    signature = error_signature(check.command, check.stderr) if has_failed else ""
    return StepFinding(
        kind=FindingKind.CALL,
        key=digest_text("check", check.command),
        answer=digest_text(str(check.exit_code), signature),
        agent=agent,
        tool=short_key(check.command),
        error=digest_text(signature) if has_failed else "",
        failed=has_failed,
    )


def _find_facts(state: EvidenceState, limits: Limits, goal: str, evidence: Evidence) -> list[str]:
    """Return what checks, failures, score and ticket show, compared with evidence of its kind."""
    facts = [*_newly_green_checks(state, evidence), *_fewer_failures(state, evidence)]
    scores = state.research.get(goal)
    if evidence.score is not None and is_better_score(limits, scores, evidence.score):
        facts.append("score")
    if evidence.ticket_state is not None:
        facts.append(f"ticket:{evidence.ticket_state[:100]}")
    return facts


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
    for command in _green_commands(state, evidence):
        yield f"green:{command[:200]}:{state.checks[command][-12:]}"


def _green_commands(state: EvidenceState, evidence: Evidence) -> Iterable[str]:
    """Yield the keys of the commands that had failed and passed now."""
    for check in evidence.checks:
        command = short_key(check.command)
        if check.exit_code == 0 and state.checks.get(command):
            yield command


def _fewer_failures(state: EvidenceState, evidence: Evidence) -> Iterable[str]:
    fewest = state.failures_least
    if (
        evidence.failures is not None
        and fewest is not None
        and len(set(evidence.failures)) < fewest
    ):
        yield "failures"

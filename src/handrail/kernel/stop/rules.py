"""The stop rules: one row for each in one table, ordered by precedence.

A rule judges one moment: a new result, a proposed handoff, the next step. Its function returns a
`FiredRule`, or None; it begins with the test that most moments fail, of a counter and a limit. To
add a rule, add its name, a function and a row here, and a limit in `limits.py`. Everything else is
derived from the row: who asks the function and when, how far a guard may run ahead of its ledger,
what people and agents read about the rule. If several rules fire at once, the stop names the first
of the table and lists the others in `also`.

Counting: N handoffs, steps and uses of an edge are allowed and the next is refused; the handoff
that completes the last repetition of a pattern is still made, and is the last. The Nth identical
failure, idle turn, return or fruitless visit is the last (docs/requirements.md, H3, S2-S7).

A rule cites its evidence by number: "handoff 4" is the fourth accepted handoff of the run, "step 7"
its seventh step. Every citation is necessary: without any of the cited events the rule would not
have fired.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Literal

import msgspec

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import LIMITS, WAITS_MAX_WITHOUT_TIMES, Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.result import NO_EVIDENCE, TOOL_PATH_PREFIX, Evidence
from handrail.kernel.stop.alike import ALIKE_KINDS, AlikeStep, alike_steps, describe_finding
from handrail.kernel.stop.budgets import describe_budget
from handrail.kernel.stop.constraint_patterns import is_command_forbidden, is_path_forbidden
from handrail.kernel.stop.findings import FindingKind, StepFinding
from handrail.kernel.stop.ledger import (
    CITATIONS_MAX,
    EdgeCount,
    ErrorCount,
    Ledger,
    ResearchScores,
    Tally,
)
from handrail.kernel.stop.news import (
    cycle_agents,
    cycle_steps,
    describe_steps,
    find_cycle,
    is_stale,
    same_calls,
    same_texts,
    steps_again,
)
from handrail.kernel.stop.repetition import repetition_period


class StopRule(StrEnum):
    """Why a run ended, in the order in which they are named when several fire on one event."""

    CONSTRAINT = "constraint"
    BUDGET = "budget"
    TOOL_LIMIT = "tool_limit"
    RESEARCH_EXHAUSTED = "research_exhausted"
    SAME_ERROR = "same_error"
    NO_CHANGE = "no_change"
    OSCILLATION = "oscillation"
    MONOLOGUE = "monologue"
    REPEATED_PATTERN = "repeated_pattern"
    MAX_EDGE = "max_edge"
    MAX_HANDOFFS = "max_handoffs"
    MAX_STEPS = "max_steps"
    MAX_DURATION = "max_duration"
    WAIT_DEADLINE = "wait_deadline"
    PROTOCOL = "protocol"
    AGENT_LOST = "agent_lost"
    HUMAN_DEADLINE = "human_deadline"
    PAUSE_DEADLINE = "pause_deadline"
    CLOSED = "closed"
    TERMINATED = "terminated"
    COMPLETED = "completed"


RULE_ORDER = {rule: i for i, rule in enumerate(StopRule)}


class FiredRule(Value):
    """A rule that fired: its limit, the value seen, the cited events, what would have helped."""

    rule: StopRule
    reason: str
    limit: int | float | str | None = None
    seen: int | float | str | None = None
    pattern: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    alike: tuple[AlikeStep, ...] = ()
    """What the cited events had in common, for each of them; nothing where a total was passed."""
    names: tuple[str, ...] = ()
    """The agents or tools that the stop's code names."""
    limit_name: str = ""
    """The field of `Limits` that was reached, where it is not the row's first."""


class Nudge(Value):
    """A rule that is near: its count, its limit, and how many the limit leaves."""

    rule: StopRule
    count: int
    limit: int
    left: int


class RuleContext(msgspec.Struct, frozen=True, gc=False):
    """The input of a rule: `evidence` for results, `source` and `target` for handoffs."""

    ledger: Ledger
    limits: Limits
    agent: str = ""
    evidence: Evidence | None = None
    source: str = ""
    target: str = ""
    edge: EdgeCount | None = None  # the ledger's count for source -> target
    step: int = 0  # the step that reported the result
    ran: float = 0.0
    ran_since: datetime | None = None
    now: datetime | None = None
    stops: Limits | None = None  # the run's own limits, where `limits` are its early ones
    goes_on: bool = False  # whether a guarded program calls on, whatever the result says
    waited: float | None = None  # seconds since a guarded run's first wait, if times are known

    @property
    def elapsed(self) -> float:
        """The run's running time in seconds: computed when a rule asks, as few do."""
        if self.ran_since is None or self.now is None:
            return self.ran
        seconds = (self.now - self.ran_since).total_seconds()
        return self.ran + seconds if seconds > 0 else self.ran


def judge_result(ctx: RuleContext) -> list[FiredRule]:
    """Judge a result that the ledger already includes."""
    fired_rules: list[FiredRule] = []
    has_evidence = ctx.evidence is not None and ctx.evidence != NO_EVIDENCE
    for rule in TABLE.on_result if has_evidence else TABLE.on_plain_result:
        if (fired := rule(ctx)) is not None:
            fired_rules.append(fired)
    return fired_rules


def judge_handoff(ctx: RuleContext) -> list[FiredRule]:
    """Judge the proposed handoff source -> target."""
    fired_rules: list[FiredRule] = []
    for rule in TABLE.on_handoff:
        if (fired := rule(ctx)) is not None:
            fired_rules.append(fired)
    return fired_rules


def judge_step(ctx: RuleContext) -> list[FiredRule]:
    """Judge whether the run may take another step."""
    fired_rules: list[FiredRule] = []
    for rule in TABLE.on_step:
        if (fired := rule(ctx)) is not None:
            fired_rules.append(fired)
    return fired_rules


def judge_call(ctx: RuleContext) -> list[FiredRule]:
    """Judge whether a call may be made that the ledger counts already among its tool's calls."""
    fired_rules = (_budget_spent(ctx), _tool_limit(ctx))
    return [fired for fired in fired_rules if fired is not None]


def is_handoff_made(fired: list[FiredRule]) -> bool:
    """Whether the handoff on which these rules fired is still made, as the run's last."""
    return all(fired_rule.rule in TABLE.on_made_handoff for fired_rule in fired)


def counts_handoffs(limits: Limits) -> bool:
    """Whether any rule counts handoffs: in a workflow only if the definition sets its limit."""
    return TABLE.handoff_limits(limits) != TABLE.handoffs_off


def terminal_status_of(rule: StopRule, *, goal_met: bool) -> TerminalStatus:
    if RULES_BY_NAME[rule].kind in CONSTRAINT_KINDS:
        return TerminalStatus.ABORTED_CONSTRAINT
    if RULES_BY_NAME[rule].may_be_partial and goal_met:
        return TerminalStatus.DONE_PARTIAL
    return TerminalStatus.ABORTED_STUCK


def _constraint(ctx: RuleContext) -> FiredRule | None:
    constraints, evidence = ctx.limits.constraints, ctx.evidence
    if evidence is None or not (constraints.paths or constraints.commands):
        return None
    touched_paths = sorted(evidence.files or {})
    run_commands = [check.command for check in evidence.checks]
    for verb, values, patterns, is_forbidden in (
        ("touched", touched_paths, constraints.paths, is_path_forbidden),
        ("ran", run_commands, constraints.commands, is_command_forbidden),
    ):
        for value in values:
            pattern = next(
                (candidate for candidate in patterns if is_forbidden(value, candidate)), None
            )
            if pattern is not None:
                return FiredRule(
                    rule=StopRule.CONSTRAINT,
                    reason=(
                        f"{ctx.agent} {verb} '{value}', which the constraint '{pattern}' forbids"
                    ),
                    limit=pattern,
                    seen=value,
                    evidence=(f"step {ctx.step}",),
                    remedy=f"keep off '{pattern}', or change stop_rules.constraints",
                    names=(ctx.agent,),
                )
    return None


def _budget(ctx: RuleContext) -> FiredRule | None:
    """Fire if the run used more than its budget, whatever else the result says; and if a budget
    that it shares leaves nothing for the next call."""
    ledger, limits = ctx.ledger, ctx.limits
    if limits.max_tokens is not None and ledger.tokens > limits.max_tokens:
        return _budget_exceeded("tokens", ledger.tokens, limits.max_tokens, ledger.tokens_step)
    if limits.max_cost is not None and ledger.cost > limits.max_cost:
        return _budget_exceeded("cost", ledger.cost, limits.max_cost, ledger.cost_step)
    return _shared_budget_spent(ledger) if ctx.goes_on and ledger.budgets else None


def _budget_spent(ctx: RuleContext) -> FiredRule | None:
    """Fire if the budget leaves nothing for another step."""
    ledger, limits = ctx.ledger, ctx.limits
    if limits.max_tokens is not None and ledger.tokens >= limits.max_tokens:
        return _budget_exceeded("tokens", ledger.tokens, limits.max_tokens, ledger.tokens_step)
    if limits.max_cost is not None and ledger.cost >= limits.max_cost:
        return _budget_exceeded("cost", ledger.cost, limits.max_cost, ledger.cost_step)
    return _shared_budget_spent(ledger) if ledger.budgets else None


def _shared_budget_spent(ledger: Ledger) -> FiredRule | None:
    """Fire if a budget is spent that other runs share: it cites nothing, since they spent it."""
    for name, state in ledger.budgets.items():
        if state.is_spent:
            _, spent, limit = state.spent_limit
            return FiredRule(
                rule=StopRule.BUDGET,
                reason=f"the budget '{name}' is spent: {describe_budget(state)}",
                limit=limit,
                seen=spent,
                remedy=f"a larger budget '{name}', or its next {state.per}",
                names=(name,),
                limit_name="budgets",
            )
    return None


def _budget_exceeded(unit: str, used: float, limit: float, step: int) -> FiredRule:
    return FiredRule(
        rule=StopRule.BUDGET,
        reason=f"the budget is spent: {used:g} of {limit:g} {unit}",
        limit=limit,
        seen=used,
        evidence=(f"step {step}",) if step else (),
        remedy=f"a larger max_{unit}",
        names=(unit,),
        limit_name=f"max_{unit}",
    )


def _tool_limit(ctx: RuleContext) -> FiredRule | None:
    for tool, limit in ctx.limits.tool_limits.items():
        count = ctx.ledger.tool_calls.get(tool)
        if count is not None and count.calls > limit:
            return FiredRule(
                rule=StopRule.TOOL_LIMIT,
                reason=f"{tool} was asked for {count.calls} times, the last time by {ctx.agent}",
                limit=limit,
                seen=count.calls,
                evidence=_step_citations(count.needed_steps(limit)),
                remedy=f"fewer calls of {tool}, or a higher limit in tool_limits",
                names=(tool,),
                limit_name=f"tool_limits.{tool}",
            )
    return None


def _research(ctx: RuleContext) -> FiredRule | None:
    limit, ledger = ctx.limits.research_limit, ctx.ledger
    if limit is None or ctx.evidence is None or ctx.evidence.score is None:
        return None
    for goal, scores in (*ledger.measured.research.items(), *ledger.claimed.research.items()):
        if scores.stale.count >= limit:
            rating = "good enough" if scores.best >= ctx.limits.research_good else "exhausted"
            evidence = _cite_last_steps(scores.stale, limit)
            return FiredRule(
                rule=StopRule.RESEARCH_EXHAUSTED,
                reason=f"{goal} was visited {limit} times with no better score: "
                f"research is {rating} (best {scores.best:g})",
                limit=limit,
                seen=scores.stale.count,
                evidence=evidence,
                remedy=f"a score better by {ctx.limits.research_gain:g}, or going on without it",
                alike=alike_steps(evidence, "state", [f"{goal}: no score above {scores.best:g}"]),
                names=(goal,),
            )
    return None


def judge_research(ledger: Ledger, limits: Limits, goals: Collection[str]) -> FiredRule | None:
    """Return why another visit for these goals would be in vain: research is good or exhausted, and
    was visited since without gain. This ends no run; it may turn a handoff aside (K30)."""
    entries = [
        state.research[goal]
        for state in (ledger.measured, ledger.claimed)
        for goal in goals
        if goal in state.research
    ]
    if not entries or any(_is_worth_a_visit(limits, scores) for scores in entries):
        return None
    best = max(scores.best for scores in entries)
    return FiredRule(
        rule=StopRule.RESEARCH_EXHAUSTED,
        reason=f"research has a best score of {best:g}, and the last visit brought no better one",
    )


def _is_worth_a_visit(limits: Limits, scores: ResearchScores) -> bool:
    if limits.research_limit is None:
        return True
    visits_max = 1 if scores.best >= limits.research_good else limits.research_limit
    return scores.stale.count < visits_max


def _same_error(ctx: RuleContext) -> FiredRule | None:
    limit = ctx.limits.same_error_limit
    if limit is None or ctx.evidence is None:
        return None
    if ctx.limits.judges_findings:
        return _same_finding_failed(ctx, ctx.evidence.findings, limit)
    if not ctx.evidence.checks:
        return None
    for signature, error in ctx.ledger.errors.items():
        is_current = error.epoch == ctx.ledger.epoch and error.seen.steps[-1:] == (ctx.step,)
        if is_current and error.seen.count >= limit:
            return _repeated_failure(signature, error, limit)
    return None


def _repeated_failure(signature: str, error: ErrorCount, limit: int) -> FiredRule:
    evidence = _cite_last_steps(error.seen, limit)
    return FiredRule(
        rule=StopRule.SAME_ERROR,
        reason=f"the same failure {error.seen.count} times without progress: {signature}",
        limit=limit,
        seen=error.seen.count,
        evidence=evidence,
        remedy="a check that turns green, fewer failures, or another error in between",
        alike=alike_steps(evidence, "call", [f"same failure: {signature}"]),
    )


def _same_finding_failed(
    ctx: RuleContext, findings: tuple[StepFinding, ...], limit: int
) -> FiredRule | None:
    """Fire if different calls of a tool met the same failure. The very same call again is a matter
    of `no_change`: it may be a deliberate retry, and gets one more."""
    for finding in findings:
        error = ctx.ledger.errors.get(finding.error) if finding.error else None
        if error is not None and error.seen.count >= limit and len(error.calls) > 1:
            # Beyond the limit it fires only now, by the first call that is another.
            needed = limit if error.seen.count == limit else 1
            evidence = _cite_last_steps(error.seen, needed)
            what = f"{finding.agent}, {finding.tool}: other arguments, same failure"
            return FiredRule(
                rule=StopRule.SAME_ERROR,
                reason=f"{finding.tool} failed {error.seen.count} times in the same way without "
                "progress, whatever was asked",
                limit=limit,
                seen=error.seen.count,
                evidence=evidence,
                remedy="a call that succeeds or fails otherwise, or a higher same_error_limit",
                alike=alike_steps(evidence, "call", [what]),
                names=(finding.tool,),
            )
    return None


def _nothing_new(
    ctx: RuleContext, findings: tuple[StepFinding, ...], limit: int
) -> FiredRule | None:
    """Fire if the same finding came again so often, with nothing new in between. In a run that has
    found nothing else yet, a call counts from its first time: it has shown no other way."""
    steps = steps_again(ctx.ledger.repeats, findings)
    often = f"{len(steps)} more times, with nothing new in between"
    if len(steps) < limit and ctx.ledger.epoch <= 1:
        steps = same_calls(ctx.ledger.repeats, findings, since=ctx.ledger.last_progress_step)
        often = f"{len(steps)} times, and nothing else has been found"
    if len(steps) < limit:
        return None
    finding, evidence = _first_seen(findings), _step_citations(steps[-limit:])
    return FiredRule(
        rule=StopRule.NO_CHANGE,
        reason=f"{ctx.agent} {_repeated_act(finding)} {often}",
        limit=limit,
        seen=len(steps),
        evidence=evidence,
        remedy="another call, another answer, or a higher no_change_limit",
        alike=alike_steps(evidence, ALIKE_KINDS[finding.kind], [describe_finding(finding)]),
        names=(finding.tool or finding.agent,),
    )


def _first_seen(findings: tuple[StepFinding, ...]) -> StepFinding:
    """Return the first of the findings whose answer is known."""
    return next((finding for finding in findings if finding.answer), findings[0])


def _repeated_act(finding: StepFinding) -> str:
    if finding.kind is FindingKind.CALL:
        return f"called {finding.tool} with the same arguments and got the same answer"
    return "left everything as it was" if finding.kind is FindingKind.STATE else "said the same"


def _no_change(ctx: RuleContext) -> FiredRule | None:
    limit, idle = ctx.limits.no_change_limit, ctx.ledger.idle
    if limit is not None and ctx.evidence is not None and ctx.evidence.findings:
        return _nothing_new(ctx, ctx.evidence.findings, limit)
    if limit is None or idle.count < limit or not _reports_files(ctx):
        return None
    what_happened, remedy = "left every file as it was", "a turn that changes a file"
    if _is_about_tools(ctx):
        what_happened = "found only what tools had found before"
        remedy = "a tool that finds something new, or a higher no_change_limit"
    evidence = _cite_last_steps(idle, limit)
    return FiredRule(
        rule=StopRule.NO_CHANGE,
        reason=f"{idle.count} turns {what_happened}, the last one of {ctx.agent}",
        limit=limit,
        seen=idle.count,
        evidence=evidence,
        remedy=remedy,
        alike=alike_steps(evidence, "state", [what_happened]),
    )


def _oscillation(ctx: RuleContext) -> FiredRule | None:
    limit, returns = ctx.limits.oscillation_limit, ctx.ledger.returns
    if ctx.limits.oscillation_by == "cycles":
        return _cycle(ctx)
    if limit is None or returns.count < limit or not _reports_files(ctx):
        return None
    returned_to, remedy = "earlier contents", "contents that were not there before"
    if _is_about_tools(ctx):
        returned_to = "what tools had found earlier"
        remedy = "a tool that finds something new, or a higher oscillation_limit"
    evidence = _cite_last_steps(returns, limit)
    return FiredRule(
        rule=StopRule.OSCILLATION,
        reason=f"{returns.count} turns went back to {returned_to}, the last one of {ctx.agent}",
        limit=limit,
        seen=returns.count,
        evidence=evidence,
        remedy=remedy,
        alike=alike_steps(evidence, "state", [f"went back to {returned_to}"]),
    )


def _cycle(ctx: RuleContext) -> FiredRule | None:
    limit = ctx.limits.oscillation_limit
    if limit is None or ctx.evidence is None or not ctx.evidence.findings:
        return None
    period = find_cycle(ctx.ledger.repeats, limit)
    if not period:
        return None
    agents = cycle_agents(ctx.ledger.repeats, period)
    steps = cycle_steps(ctx.ledger.repeats, period, limit)
    return FiredRule(
        rule=StopRule.OSCILLATION,
        reason=f"the same {period} steps {limit} times in a row with nothing new: "
        f"{', '.join(agents)}",
        limit=limit,
        seen=limit,
        pattern=agents,
        evidence=_step_citations(steps),
        remedy="a step that finds something new, or a higher oscillation_limit",
        alike=describe_steps(ctx.ledger.repeats, steps),
        names=agents,
    )


def _monologue(ctx: RuleContext) -> FiredRule | None:
    limit = ctx.limits.monologue_limit
    if limit is None or ctx.evidence is None or not ctx.evidence.findings:
        return None
    steps = same_texts(ctx.ledger.repeats)
    if len(steps) < limit:
        return None
    evidence = _step_citations(steps[-limit:])
    return FiredRule(
        rule=StopRule.MONOLOGUE,
        reason=f"{ctx.agent} said the same {len(steps)} times in a row, and nothing else happened",
        limit=limit,
        seen=len(steps),
        evidence=evidence,
        remedy="another text, a tool call, or a higher monologue_limit",
        alike=alike_steps(evidence, "text", [describe_finding(_first_seen(ctx.evidence.findings))]),
        names=(ctx.agent,),
    )


def _reports_files(ctx: RuleContext) -> bool:
    return ctx.evidence is not None and ctx.evidence.files is not None


def _is_about_tools(ctx: RuleContext) -> bool:
    """Whether the evidence consists of tool findings only, without a file."""
    files = ctx.evidence.files if ctx.evidence is not None else None
    return bool(files) and all(path.startswith(TOOL_PATH_PREFIX) for path in files)


def _pattern(ctx: RuleContext) -> FiredRule | None:
    times, edge = ctx.limits.repeat_limit, ctx.edge
    if times is None or edge is None or edge.count < times - 1:
        return None  # every repetition uses this edge once
    trail = edge.symbol + ctx.ledger.trail
    fired = _repetition(ctx, trail, times, ctx.limits.pattern_period_max)
    stops = ctx.stops
    stop_times = 0 if stops is None or stops.repeat_limit is None else stops.repeat_limit
    if fired is None and stops is not None and edge.count >= stop_times - 1 >= times:
        # no agent is nudged of long patterns
        fired = _repetition(ctx, trail, stop_times, stops.pattern_period_max)
    return fired


def _repetition(ctx: RuleContext, trail: str, times: int, period_max: int) -> FiredRule | None:
    period = repetition_period(trail, times, period_max)
    if not period:
        return None
    if ctx.limits.judges_findings and not is_stale(ctx.ledger.repeats, period * (times - 1)):
        return None
    pattern = pattern_names(ctx.ledger, trail[:period])
    last_number = ctx.ledger.handoffs + 1
    evidence = _handoff_citations(range(last_number - period * times + 1, last_number + 1))
    return FiredRule(
        rule=StopRule.REPEATED_PATTERN,
        reason=f"the same handoffs {times} times in a row without progress: {', '.join(pattern)}",
        limit=times,
        seen=times,
        pattern=pattern,
        evidence=evidence,
        remedy="progress in between, another way, or a higher repeat_limit",
        alike=alike_steps(evidence, "handoff", pattern),
        names=tuple(name for handoff in pattern for name in handoff.split(" -> ")),
    )


def pattern_names(ledger: Ledger, symbols: str) -> tuple[str, ...]:
    """Return the handoffs of a pattern, whose symbols are the newest first, in their order."""
    names = {edge.symbol: f"{edge.source} -> {edge.target}" for edge in ledger.edges.values()}
    return tuple(names.get(symbol, "(forgotten)") for symbol in reversed(symbols))


def _max_edge(ctx: RuleContext) -> FiredRule | None:
    limit, edge = ctx.limits.max_edge, ctx.edge
    count = edge.count if edge is not None and edge.epoch == ctx.ledger.epoch else 0
    if limit is None or count < limit + min(ctx.ledger.repeats.weak, ctx.limits.weak_news_max):
        return None
    trail, last_number = ctx.ledger.trail, ctx.ledger.handoffs
    symbol = edge.symbol if edge is not None else ""
    numbers = [last_number - i for i, used_symbol in enumerate(trail) if used_symbol == symbol][
        count - 1 :: -1
    ]
    evidence = _handoff_citations(tuple(numbers) if count else ())
    return FiredRule(
        rule=StopRule.MAX_EDGE,
        reason=f"{ctx.source}_{ctx.target}_loop: {ctx.source} handed to {ctx.target} "
        f"{count} times without progress and wants to again",
        limit=limit,
        seen=count + 1,
        evidence=evidence,
        remedy="progress in between, or a higher max_edge",
        alike=alike_steps(evidence, "handoff", [f"{ctx.source} -> {ctx.target}"]),
        names=(ctx.source, ctx.target),
    )


def _max_handoffs(ctx: RuleContext) -> FiredRule | None:
    limit = ctx.limits.max_handoffs
    count = ctx.ledger.handoffs - ctx.ledger.handoffs_before - ctx.ledger.first_visits
    if limit is None or count < limit:
        return None
    # A fork makes several handoffs at once: if it passed the limit, it alone is needed.
    first = 1 if count == limit else limit
    return FiredRule(
        rule=StopRule.MAX_HANDOFFS,
        reason=f"{count} handoffs were made, and {ctx.source} proposes one more, to {ctx.target}",
        limit=limit,
        seen=count + 1,
        evidence=_handoff_citations(
            range(ctx.ledger.handoffs_before + first, ctx.ledger.handoffs + 1)
        ),
        remedy="a higher max_handoffs, or ending earlier",
    )


def _max_steps(ctx: RuleContext) -> FiredRule | None:
    limit = ctx.limits.ordinary_steps
    count = ctx.ledger.steps - ctx.ledger.steps_before
    if limit is None or count < limit:
        return None
    return FiredRule(
        rule=StopRule.MAX_STEPS,
        reason=f"{count} steps were taken, and the run wants one more",
        limit=limit,
        seen=count + 1,
        evidence=_step_citations(range(ctx.ledger.steps_before + 1, ctx.ledger.steps + 1)),
        remedy="a higher max_steps, or ending earlier",
    )


def _max_duration(ctx: RuleContext) -> FiredRule | None:
    limit = ctx.limits.max_duration
    if limit is None or (elapsed := ctx.elapsed) < limit:
        return None
    return FiredRule(
        rule=StopRule.MAX_DURATION,
        reason=f"the run has been running for {elapsed:g} s",
        limit=limit,
        seen=elapsed,
        remedy="a longer max_duration, or faster agents",
    )


def _wait_deadline(ctx: RuleContext) -> FiredRule | None:
    """Fire on a guarded program's wait past the deadline, or one too many without times."""
    waits = ctx.ledger.waits
    if not ctx.ledger.repeats.waited:
        return None
    if ctx.waited is not None:
        is_past = ctx.waited >= ctx.limits.wait_deadline
        return wait_deadline_passed(ctx.limits, "a tool", ctx.waited) if is_past else None
    if waits <= WAITS_MAX_WITHOUT_TIMES:
        return None
    return FiredRule(
        rule=StopRule.WAIT_DEADLINE,
        reason=f"{ctx.agent} waits once more after {waits - 1} waits, and no times are known",
        limit=WAITS_MAX_WITHOUT_TIMES,
        seen=waits,
        remedy="what was waited for",
    )


def wait_deadline_passed(limits: Limits, waits_for: str, waited: float) -> FiredRule:
    """Return the rule as it fires on a wait that has passed its deadline."""
    return FiredRule(
        rule=StopRule.WAIT_DEADLINE,
        reason=f"{waited:g} s after its first wait the run still waits for {waits_for}",
        limit=limits.wait_deadline,
        seen=waited,
        remedy="a longer wait_deadline, or what was waited for",
    )


def _cite_last_steps(tally: Tally, limit: int) -> tuple[str, ...]:
    """Cite the last `limit` steps, except the spare ones, which another step could replace."""
    return _step_citations(tuple(step for step in tally.steps[-limit:] if step not in tally.spare))


def _step_citations(numbers: range | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"step {n}" for n in numbers[-CITATIONS_MAX:])


def _handoff_citations(numbers: range | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"handoff {n}" for n in numbers[-CITATIONS_MAX * 4 :])


def _fruitless_visits(ledger: Ledger, limits: Limits) -> int:
    """Return the largest number of visits to one goal without a better score."""
    entries = (*ledger.measured.research.values(), *ledger.claimed.research.values())
    return max((scores.stale.count for scores in entries), default=0)


def _repetitions(ledger: Ledger, limits: Limits) -> int:
    """Return how often the last pattern of handoffs, of any period, was repeated in a row."""
    limit, trail = limits.repeat_limit or 0, ledger.trail
    return next(
        (n for n in range(limit, 1, -1) if repetition_period(trail, n, limits.pattern_period_max)),
        min(1, len(trail)),
    )


def _edge_moves(ledger: Ledger, limits: Limits) -> int | None:
    if limits.max_edge is None:
        return None
    return limits.max_edge - max(
        [edge.count for edge in ledger.edges.values() if edge.epoch == ledger.epoch], default=0
    )


def _handoff_moves(ledger: Ledger, limits: Limits) -> int | None:
    limit = limits.max_handoffs
    count = ledger.handoffs - ledger.handoffs_before - ledger.first_visits
    return None if limit is None else limit - count


def _step_moves(ledger: Ledger, limits: Limits) -> int | None:
    """A move may take two steps: one for a result, one for the handoff after it."""
    limit = limits.ordinary_steps
    return None if limit is None else (limit - (ledger.steps - ledger.steps_before)) // 2


class RuleKind(StrEnum):
    """The kind of reason: a guard has an error for each, but the ends that no rule forces."""

    CONSTRAINT = "constraint"
    BUDGET = "budget"
    NO_PROGRESS = "no_progress"
    LOOP = "loop"
    LIMIT = "limit"
    END = "end"


REDIRECTING_RULES = frozenset(
    {StopRule.RESEARCH_EXHAUSTED, StopRule.REPEATED_PATTERN, StopRule.MAX_EDGE}
)
"""Rules against a handoff that lead to another target where the definition names one (K30)."""
CONSTRAINT_KINDS = (RuleKind.CONSTRAINT, RuleKind.BUDGET)
SOFT_KINDS = (RuleKind.NO_PROGRESS, RuleKind.LOOP)
Rule = Callable[[RuleContext], FiredRule | None]
HeadroomUnit = Literal["moves", "tokens", "cost", "seconds", "repeats", "news"]
Ahead = Mapping[HeadroomUnit, Callable[[Ledger, Limits], float | None]]
ASK_ALWAYS: Ahead = {"moves": lambda ledger, limits: 0}
EVIDENCE_ONLY: Ahead = {}
NEWS: HeadroomUnit = "news"


class RuleRow(Value):
    """All about one rule. What it judges: `on_result`, `on_handoff`, `on_step`; none for an end
    that the clocks, the protocol or a person bring about.
    """

    rule: StopRule
    kind: RuleKind
    cause: str
    """Why the run ends, for the documentation."""
    advice: str = ""
    """The next step for a person who wants the work done."""
    limit: str = ""
    """The field of `Limits` that switches it off and that its count is compared with."""
    settings: tuple[str, ...] = ()
    """What else sets it: fields of `Limits`, of a definition or of the installation."""
    on_result: Rule | None = None
    on_handoff: Rule | None = None
    on_step: Rule | None = None
    ahead: Ahead | None = None
    """How far off the rule is while no evidence arrives, None if out of reach: `moves` (results,
    and handoffs each with a result before it), or the total of tokens, cost, seconds or repeats
    at which it may fire. `EVIDENCE_ONLY` rules can only fire on a result with evidence, and not if
    all its evidence is findings that bring news and no failure; a rule that can says `news`: 0 if
    it may fire then. A row without `ahead` is asked every time.
    """
    count: Callable[[Ledger, Limits], int] | None = None
    """The count since the last progress, for people."""
    still_made: bool = False
    """Whether a handoff on which it fires is made, as the last."""
    may_be_partial: bool = False
    """Whether the run is partial, not stuck, if the bead's goal is green when it fires (S13)."""

    @property
    def is_soft(self) -> bool:
        """Whether it counts since the last progress only."""
        return self.kind in SOFT_KINDS

    @property
    def on_ladder(self) -> bool:
        """Whether it counts what agents do, so that they are nudged before it fires."""
        return self.limit in LIMITS and LIMITS[self.limit].nudges


LOOK_IN_REPORT = "look in the report"
RULES = (
    RuleRow(
        rule=StopRule.CONSTRAINT,
        kind=RuleKind.CONSTRAINT,
        cause="a forbidden path was touched, or a forbidden command run",
        advice="keep the agents off what is forbidden, or change stop_rules.constraints",
        limit="constraints",
        on_result=_constraint,
        ahead=EVIDENCE_ONLY,
    ),
    RuleRow(
        rule=StopRule.BUDGET,
        kind=RuleKind.BUDGET,
        cause="more tokens or money were used than may be",
        advice=f"{LOOK_IN_REPORT} what was bought for it; if it is worth more, raise the budget",
        limit="max_tokens",
        settings=("max_cost", "budgets"),
        on_result=_budget,
        on_step=_budget_spent,
        ahead={
            "tokens": lambda ledger, limits: limits.max_tokens,
            "cost": lambda ledger, limits: limits.max_cost,
            "moves": lambda ledger, limits: 0 if ledger.budgets else None,
        },
    ),
    RuleRow(
        rule=StopRule.TOOL_LIMIT,
        kind=RuleKind.LIMIT,
        cause="a tool was called too often",
        advice=f"{LOOK_IN_REPORT} what the tool was called for; if it is worth more, raise its "
        "limit",
        limit="tool_limits",
        on_result=_tool_limit,
        ahead={NEWS: lambda ledger, limits: 0 if limits.tool_limits else None},
    ),
    RuleRow(
        rule=StopRule.RESEARCH_EXHAUSTED,
        kind=RuleKind.NO_PROGRESS,
        cause="visits brought no better score",
        advice="go on with the best that was found, or ask for something else",
        limit="research_limit",
        settings=("research_good", "research_gain"),
        on_result=_research,
        ahead=EVIDENCE_ONLY,
        count=_fruitless_visits,
        may_be_partial=True,
    ),
    RuleRow(
        rule=StopRule.SAME_ERROR,
        kind=RuleKind.NO_PROGRESS,
        cause="the same failure came so often",
        advice=f"{LOOK_IN_REPORT} at the command that fails: what was tried leaves its cause alone",
        limit="same_error_limit",
        on_result=_same_error,
        ahead=EVIDENCE_ONLY,
        may_be_partial=True,
    ),
    RuleRow(
        rule=StopRule.NO_CHANGE,
        kind=RuleKind.NO_PROGRESS,
        cause="turns left every file as it was; under guard, found only what tools had found "
        "before",
        advice=f"{LOOK_IN_REPORT} what the agents were asked to do: they changed nothing",
        limit="no_change_limit",
        on_result=_no_change,
        ahead=EVIDENCE_ONLY,
        count=lambda ledger, limits: ledger.idle.count,
        may_be_partial=True,
    ),
    RuleRow(
        rule=StopRule.OSCILLATION,
        kind=RuleKind.NO_PROGRESS,
        cause="turns went back to earlier contents, or to what tools had found earlier",
        advice=f"{LOOK_IN_REPORT} which demand contradicts another: one undoes what the other did",
        limit="oscillation_limit",
        settings=("oscillation_by",),
        on_result=_oscillation,
        ahead={NEWS: lambda ledger, limits: 0 if limits.oscillation_limit == 1 else None},
        count=lambda ledger, limits: ledger.returns.count,
    ),
    RuleRow(
        rule=StopRule.MONOLOGUE,
        kind=RuleKind.NO_PROGRESS,
        cause="an agent said the same again and again, and nothing else happened",
        advice=f"{LOOK_IN_REPORT} what the agent was asked: it has nothing more to say",
        limit="monologue_limit",
        on_result=_monologue,
        ahead=EVIDENCE_ONLY,
        count=lambda ledger, limits: len(same_texts(ledger.repeats)),
        may_be_partial=True,
    ),
    RuleRow(
        rule=StopRule.REPEATED_PATTERN,
        kind=RuleKind.LOOP,
        cause="the same handoffs came so often in a row",
        advice=f"{LOOK_IN_REPORT} what the agents told each other; say who decides",
        limit="repeat_limit",
        settings=("pattern_period_max", "evidence"),
        on_handoff=_pattern,
        ahead={"repeats": lambda ledger, limits: limits.repeat_limit},
        count=_repetitions,
        still_made=True,
    ),
    RuleRow(
        rule=StopRule.MAX_EDGE,
        kind=RuleKind.LOOP,
        cause="one agent handed to the same one too often",
        advice=f"{LOOK_IN_REPORT} what the two told each other; say who decides",
        limit="max_edge",
        settings=("weak_news_max",),
        on_handoff=_max_edge,
        ahead={"moves": _edge_moves},
    ),
    RuleRow(
        rule=StopRule.MAX_HANDOFFS,
        kind=RuleKind.LIMIT,
        cause="there were too many handoffs",
        advice=f"{LOOK_IN_REPORT} whether it was getting anywhere; if so, raise max_handoffs",
        limit="max_handoffs",
        settings=("free_visits",),
        on_handoff=_max_handoffs,
        ahead={"moves": _handoff_moves},
    ),
    RuleRow(
        rule=StopRule.MAX_STEPS,
        kind=RuleKind.LIMIT,
        cause="there were too many steps",
        advice=f"{LOOK_IN_REPORT} whether it was getting anywhere; if so, raise max_steps",
        limit="max_steps",
        on_step=_max_steps,
        ahead={"moves": _step_moves},
    ),
    RuleRow(
        rule=StopRule.MAX_DURATION,
        kind=RuleKind.LIMIT,
        cause="it ran too long",
        advice=f"{LOOK_IN_REPORT} what took so long; if it has to, raise max_duration",
        limit="max_duration",
        on_step=_max_duration,
        ahead={"seconds": lambda ledger, limits: limits.max_duration},
    ),
    RuleRow(
        rule=StopRule.WAIT_DEADLINE,
        kind=RuleKind.LIMIT,
        cause="it waited too long for something outside of the run",
        advice="see whether what it waited for is still to come; if so, raise wait_deadline",
        limit="wait_deadline",
        settings=("max_waits",),
        on_result=_wait_deadline,
        ahead=EVIDENCE_ONLY,
    ),
    RuleRow(
        rule=StopRule.PROTOCOL,
        kind=RuleKind.END,
        cause="one turn brought too many answers that could not be used",
        advice=f"{LOOK_IN_REPORT} what the agent answered: an answer says whom it hands to, or "
        "ends",
        limit="protocol_error_limit",
    ),
    RuleRow(
        rule=StopRule.AGENT_LOST,
        kind=RuleKind.END,
        cause="in a team: whoever should work did not come, or was lost too often",
        advice="see `handrail agents`, and start one that has the role and stays",
        settings=("role_grace", "queue_timeout", "lease", "protocol_error_limit", "guard_silence"),
    ),
    RuleRow(
        rule=StopRule.HUMAN_DEADLINE,
        kind=RuleKind.END,
        cause="nobody answered in time; silence never approves",
        advice="answer sooner, or give the question a longer deadline",
        settings=("deadline", "human_deadline"),
    ),
    RuleRow(
        rule=StopRule.PAUSE_DEADLINE,
        kind=RuleKind.END,
        cause="nobody resumed it in time",
        advice="resume sooner what is paused",
        settings=("pause_deadline",),
    ),
    RuleRow(
        rule=StopRule.CLOSED,
        kind=RuleKind.END,
        cause="a person closed or rejected it",
        advice="if it should be done after all",
    ),
    RuleRow(
        rule=StopRule.TERMINATED,
        kind=RuleKind.END,
        cause="the agent that may end the run ended it",
    ),
    RuleRow(
        rule=StopRule.COMPLETED,
        kind=RuleKind.END,
        cause="a workflow's end was reached, or a person approved",
    ),
)
"""Every rule in the order of `StopRule`."""
RULES_BY_NAME = {row.rule: row for row in RULES}


class RuleTable:
    """What is derived from the rows for the hot paths, once."""

    def __init__(self, rows: tuple[RuleRow, ...]) -> None:
        self.on_result = tuple(row.on_result for row in rows if row.on_result is not None)
        self.on_plain_result = tuple(
            row.on_result
            for row in rows
            if row.on_result is not None and (row.ahead is None or row.ahead.keys() - {NEWS})
        )
        self.on_handoff = tuple(row.on_handoff for row in rows if row.on_handoff is not None)
        self.on_step = tuple(row.on_step for row in rows if row.on_step is not None)
        self.on_made_handoff = frozenset(row.rule for row in rows if row.still_made)
        limits = [row.limit for row in rows if row.on_handoff is not None]
        self.handoff_limits = attrgetter(*limits)
        self.handoffs_off = (None,) * len(limits)
        judged = [row for row in rows if row.on_result or row.on_handoff or row.on_step]
        self.ahead = tuple(
            entry
            for row in judged
            for entry in (ASK_ALWAYS if row.ahead is None else row.ahead).items()
        )


TABLE = RuleTable(RULES)

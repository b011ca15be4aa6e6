"""The stop rules: small pure functions over the ledger, in tables ordered by precedence.

A rule judges one moment: a new result, a proposed handoff, the next step, the clock. It returns a
`FiredRule`, or None. To add a rule, add a function and a row here, and a limit in `limits.py`. If
several rules fire at once, the stop names the first of the table and lists the others in `also`.

Counting: N handoffs, steps and uses of an edge are allowed and the next is refused; the handoff
that completes the last repetition of a pattern is still made, and is the last. The Nth identical
failure, idle turn, return or fruitless visit is the last (docs/requirements.md, H3, S2-S7).

A rule cites its evidence by number: "handoff 4" is the fourth accepted handoff of the run, "step 7"
its seventh step. Every citation is necessary: without any of the cited events the rule would not
have fired.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from handrail.kernel.decision import Value
from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.result import NO_EVIDENCE, TOOL_PATH_PREFIX, Evidence
from handrail.kernel.stop.constraint_patterns import is_command_forbidden, is_path_forbidden
from handrail.kernel.stop.ledger import CITATIONS_MAX, EdgeCount, ErrorCount, Ledger, Tally
from handrail.kernel.stop.repetition import repetition_period


class StopRule(StrEnum):
    """Why a run ended, in the order in which they are named when several fire on one event."""

    CONSTRAINT = "constraint"
    BUDGET = "budget"
    RESEARCH_EXHAUSTED = "research_exhausted"
    SAME_ERROR = "same_error"
    NO_CHANGE = "no_change"
    OSCILLATION = "oscillation"
    REPEATED_PATTERN = "repeated_pattern"
    MAX_EDGE = "max_edge"
    MAX_HANDOFFS = "max_handoffs"
    MAX_STEPS = "max_steps"
    MAX_DURATION = "max_duration"
    PROTOCOL = "protocol"
    AGENT_LOST = "agent_lost"
    HUMAN_DEADLINE = "human_deadline"
    PAUSE_DEADLINE = "pause_deadline"
    CLOSED = "closed"
    TERMINATED = "terminated"
    COMPLETED = "completed"


RULE_ORDER = {rule: i for i, rule in enumerate(StopRule)}
CONSTRAINT_RULES = frozenset({StopRule.CONSTRAINT, StopRule.BUDGET})
PARTIAL_SUCCESS_RULES = frozenset(
    {StopRule.SAME_ERROR, StopRule.NO_CHANGE, StopRule.RESEARCH_EXHAUSTED}
)
"""If the bead's goal is green when such a rule fires, the run is partial, not stuck (S13)."""


class FiredRule(Value):
    """A rule that fired: its limit, the value seen, the cited events, what would have helped."""

    rule: StopRule
    reason: str
    limit: int | float | str | None = None
    seen: int | float | str | None = None
    pattern: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    remedy: str = ""


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
    elapsed: float = 0.0


def judge_result(ctx: RuleContext) -> list[FiredRule]:
    """Judge a result that the ledger already includes."""
    ledger, limits = ctx.ledger, ctx.limits
    if (
        ctx.evidence == NO_EVIDENCE
        and not (ledger.idle.count or ledger.returns.count)
        and not (ledger.measured.research or ledger.claimed.research)
        and (limits.max_tokens is None or ledger.tokens <= limits.max_tokens)
        and (limits.max_cost is None or ledger.cost <= limits.max_cost)
    ):  # fast path for most results: no evidence, no open counter, budgets not exceeded
        return []
    return _apply_rules(RESULT_RULES, ctx)


def judge_handoff(ctx: RuleContext) -> list[FiredRule]:
    """Judge the proposed handoff source -> target."""
    ledger, limits, edge = ctx.ledger, ctx.limits, ctx.edge
    handoffs_made = ledger.handoffs - ledger.handoffs_before
    if (limits.max_handoffs is None or handoffs_made < limits.max_handoffs) and (
        limits.max_edge is None or (0 if edge is None else edge.count) < limits.max_edge
    ):  # fast path for most handoffs: both limits have room, only a repetition can fire
        fired = _pattern(ctx)
        return [fired] if fired is not None else []
    return _apply_rules(HANDOFF_RULES, ctx)


def judge_step(ctx: RuleContext) -> list[FiredRule]:
    """Judge whether the run may take another step."""
    ledger, limits = ctx.ledger, ctx.limits
    if (
        (limits.max_tokens is None or ledger.tokens < limits.max_tokens)
        and (limits.max_cost is None or ledger.cost < limits.max_cost)
        and (limits.max_steps is None or ledger.steps - ledger.steps_before < limits.max_steps)
        and (limits.max_duration is None or ctx.elapsed < limits.max_duration)
    ):  # fast path for most steps: every limit has room
        return []
    return _apply_rules(STEP_RULES, ctx)


def _apply_rules(rules: tuple["Rule", ...], ctx: RuleContext) -> list[FiredRule]:
    fired_rules: list[FiredRule] = []
    for rule in rules:
        fired = rule(ctx)
        if fired is not None:
            fired_rules.append(fired)
    return fired_rules


def terminal_status_of(rule: StopRule, *, goal_met: bool) -> TerminalStatus:
    if rule in CONSTRAINT_RULES:
        return TerminalStatus.ABORTED_CONSTRAINT
    if rule in PARTIAL_SUCCESS_RULES and goal_met:
        return TerminalStatus.DONE_PARTIAL
    return TerminalStatus.ABORTED_STUCK


def _constraint(ctx: RuleContext) -> FiredRule | None:
    if ctx.evidence is None:
        return None
    touched_paths = sorted(ctx.evidence.files or {})
    run_commands = [check.command for check in ctx.evidence.checks]
    for verb, values, patterns, is_forbidden in (
        ("touched", touched_paths, ctx.limits.constraints.paths, is_path_forbidden),
        ("ran", run_commands, ctx.limits.constraints.commands, is_command_forbidden),
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
                )
    return None


def _budget(ctx: RuleContext) -> FiredRule | None:
    """Fire if the run used more than its budget, whatever else the result says."""
    ledger, limits = ctx.ledger, ctx.limits
    if limits.max_tokens is not None and ledger.tokens > limits.max_tokens:
        return _budget_exceeded("tokens", ledger.tokens, limits.max_tokens, ledger.tokens_step)
    if limits.max_cost is not None and ledger.cost > limits.max_cost:
        return _budget_exceeded("cost", ledger.cost, limits.max_cost, ledger.cost_step)
    return None


def _budget_spent(ctx: RuleContext) -> FiredRule | None:
    """Fire if the budget leaves nothing for another step."""
    ledger, limits = ctx.ledger, ctx.limits
    if limits.max_tokens is not None and ledger.tokens >= limits.max_tokens:
        return _budget_exceeded("tokens", ledger.tokens, limits.max_tokens, ledger.tokens_step)
    if limits.max_cost is not None and ledger.cost >= limits.max_cost:
        return _budget_exceeded("cost", ledger.cost, limits.max_cost, ledger.cost_step)
    return None


def _budget_exceeded(unit: str, used: float, limit: float, step: int) -> FiredRule:
    return FiredRule(
        rule=StopRule.BUDGET,
        reason=f"the budget is spent: {used:g} of {limit:g} {unit}",
        limit=limit,
        seen=used,
        evidence=(f"step {step}",) if step else (),
        remedy=f"a larger max_{unit}",
    )


def _research(ctx: RuleContext) -> FiredRule | None:
    limit, ledger = ctx.limits.research_limit, ctx.ledger
    for goal, scores in (*ledger.measured.research.items(), *ledger.claimed.research.items()):
        if limit is not None and scores.stale.count >= limit:
            rating = "good enough" if scores.best >= ctx.limits.research_good else "exhausted"
            return FiredRule(
                rule=StopRule.RESEARCH_EXHAUSTED,
                reason=f"{goal} was visited {limit} times with no better score: "
                f"research is {rating} (best {scores.best:g})",
                limit=limit,
                seen=scores.stale.count,
                evidence=_cite_last_steps(scores.stale, limit),
                remedy=f"a score better by {ctx.limits.research_gain:g}, or going on without it",
            )
    return None


def _same_error(ctx: RuleContext) -> FiredRule | None:
    limit = ctx.limits.same_error_limit
    if limit is None or ctx.evidence is None or not ctx.evidence.checks:
        return None
    for signature, error in ctx.ledger.errors.items():
        is_current = error.epoch == ctx.ledger.epoch and error.seen.steps[-1:] == (ctx.step,)
        if is_current and error.seen.count >= limit:
            return _repeated_failure(signature, error, limit)
    return None


def _repeated_failure(signature: str, error: ErrorCount, limit: int) -> FiredRule:
    return FiredRule(
        rule=StopRule.SAME_ERROR,
        reason=f"the same failure {error.seen.count} times without progress: {signature}",
        limit=limit,
        seen=error.seen.count,
        evidence=_cite_last_steps(error.seen, limit),
        remedy="a check that turns green, fewer failures, or another error in between",
    )


def _no_change(ctx: RuleContext) -> FiredRule | None:
    limit, idle = ctx.limits.no_change_limit, ctx.ledger.idle
    if limit is None or idle.count < limit:
        return None
    what_happened, remedy = "left every file as it was", "a turn that changes a file"
    if _is_about_tools(ctx):
        what_happened = "found only what tools had found before"
        remedy = "a tool that finds something new, or a higher no_change_limit"
    return FiredRule(
        rule=StopRule.NO_CHANGE,
        reason=f"{idle.count} turns {what_happened}, the last one of {ctx.agent}",
        limit=limit,
        seen=idle.count,
        evidence=_cite_last_steps(idle, limit),
        remedy=remedy,
    )


def _oscillation(ctx: RuleContext) -> FiredRule | None:
    limit, returns = ctx.limits.oscillation_limit, ctx.ledger.returns
    if limit is None or returns.count < limit:
        return None
    returned_to, remedy = "earlier contents", "contents that were not there before"
    if _is_about_tools(ctx):
        returned_to = "what tools had found earlier"
        remedy = "a tool that finds something new, or a higher oscillation_limit"
    return FiredRule(
        rule=StopRule.OSCILLATION,
        reason=f"{returns.count} turns went back to {returned_to}, the last one of {ctx.agent}",
        limit=limit,
        seen=returns.count,
        evidence=_cite_last_steps(returns, limit),
        remedy=remedy,
    )


def _is_about_tools(ctx: RuleContext) -> bool:
    """Whether the evidence consists of tool findings only, without a file."""
    files = ctx.evidence.files if ctx.evidence is not None else None
    return bool(files) and all(path.startswith(TOOL_PATH_PREFIX) for path in files)


def _pattern(ctx: RuleContext) -> FiredRule | None:
    times, edge = ctx.limits.repeat_limit, ctx.edge
    if times is None or edge is None or edge.count < times - 1:
        return None  # every repetition uses this edge once
    trail = edge.symbol + ctx.ledger.trail
    period = repetition_period(trail, times, ctx.limits.pattern_period_max)
    if not period:
        return None
    names = {e.symbol: f"{e.source} -> {e.target}" for e in ctx.ledger.edges.values()}
    pattern = tuple(names.get(symbol, "(forgotten)") for symbol in reversed(trail[:period]))
    last_number = ctx.ledger.handoffs + 1
    return FiredRule(
        rule=StopRule.REPEATED_PATTERN,
        reason=f"the same handoffs {times} times in a row without progress: {', '.join(pattern)}",
        limit=times,
        seen=times,
        pattern=pattern,
        evidence=_handoff_citations(range(last_number - period * times + 1, last_number + 1)),
        remedy="progress in between, another way, or a higher repeat_limit",
    )


def _max_edge(ctx: RuleContext) -> FiredRule | None:
    limit, edge = ctx.limits.max_edge, ctx.edge
    count = edge.count if edge is not None and edge.epoch == ctx.ledger.epoch else 0
    if limit is None or count < limit:
        return None
    trail, last_number = ctx.ledger.trail, ctx.ledger.handoffs
    symbol = edge.symbol if edge is not None else ""
    numbers = [last_number - i for i, used_symbol in enumerate(trail) if used_symbol == symbol][
        count - 1 :: -1
    ]
    return FiredRule(
        rule=StopRule.MAX_EDGE,
        reason=f"{ctx.source}_{ctx.target}_loop: {ctx.source} handed to {ctx.target} "
        f"{count} times without progress and wants to again",
        limit=limit,
        seen=count + 1,
        evidence=_handoff_citations(tuple(numbers) if count else ()),
        remedy="progress in between, or a higher max_edge",
    )


def _max_handoffs(ctx: RuleContext) -> FiredRule | None:
    limit = ctx.limits.max_handoffs
    count = ctx.ledger.handoffs - ctx.ledger.handoffs_before
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
    limit = ctx.limits.max_steps
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
    if limit is None or ctx.elapsed < limit:
        return None
    return FiredRule(
        rule=StopRule.MAX_DURATION,
        reason=f"the run has been running for {ctx.elapsed:g} s",
        limit=limit,
        seen=ctx.elapsed,
        remedy="a longer max_duration, or faster agents",
    )


def _cite_last_steps(tally: Tally, limit: int) -> tuple[str, ...]:
    """Cite the last `limit` steps, except the spare ones, which another step could replace."""
    return _step_citations(tuple(step for step in tally.steps[-limit:] if step not in tally.spare))


def _step_citations(numbers: range | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"step {n}" for n in numbers[-CITATIONS_MAX:])


def _handoff_citations(numbers: range | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"handoff {n}" for n in numbers[-CITATIONS_MAX * 4 :])


Rule = Callable[[RuleContext], FiredRule | None]
RESULT_RULES: tuple[Rule, ...] = (
    _constraint,
    _budget,
    _research,
    _same_error,
    _no_change,
    _oscillation,
)
HANDOFF_RULES: tuple[Rule, ...] = (_pattern, _max_edge, _max_handoffs)
STEP_RULES: tuple[Rule, ...] = (_budget_spent, _max_steps, _max_duration)

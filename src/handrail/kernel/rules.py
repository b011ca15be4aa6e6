"""The stop rules: small pure functions over the ledger, in one table, in the order they are named.

A rule looks at one moment: a result that came in, a handoff that is proposed, a step about to be
taken, the clock. It answers with what it saw, or None. Adding a rule: a function and a row here, a
limit in `limits.py`. If several fire at once, the first of the table is named and the others stand
in `also`.

Counting: of handoffs, steps and edges N are allowed and the next one is refused; the handoff that
completes the last repetition of a pattern is still made, and is the last. The Nth identical
failure, idle turn, return or fruitless visit is the last (docs/requirements.md, H3, S2-S7).

Evidence is cited by number: "handoff 4" is the fourth accepted handoff of the run, "step 7" its
seventh step. What is cited is needed: without any one of the cited events the rule would not have
fired.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from handrail.kernel.decision import Value
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.forbidden import command_forbidden, path_forbidden
from handrail.kernel.ledger import CITED_MAX, EdgeCount, ErrorCount, Ledger, Tally
from handrail.kernel.limits import Limits
from handrail.kernel.repetition import repetition
from handrail.kernel.result import NO_EVIDENCE, TOOLS, Evidence


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


ORDER = {rule: i for i, rule in enumerate(StopRule)}
CONSTRAINING = frozenset({StopRule.CONSTRAINT, StopRule.BUDGET})
PARTIAL = frozenset({StopRule.SAME_ERROR, StopRule.NO_CHANGE, StopRule.RESEARCH_EXHAUSTED})
"""If the bead's goal is green when one of these fires, the run is partial, not stuck (S13)."""


class Fired(Value):
    """One rule that fired: what it allows, what it saw, on which events, what would have helped."""

    rule: StopRule
    reason: str
    limit: int | float | str | None = None
    seen: int | float | str | None = None
    pattern: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    remedy: str = ""


class Moment(msgspec.Struct, frozen=True, gc=False):
    """What the rules look at: `evidence` for results, source and target for handoffs."""

    ledger: Ledger
    limits: Limits
    agent: str = ""
    evidence: Evidence | None = None
    source: str = ""
    target: str = ""
    edge: EdgeCount | None = None  # what the ledger knows of this way
    step: int = 0  # whose result this is
    elapsed: float = 0.0


def judge_result(moment: Moment) -> list[Fired]:
    """After the ledger has taken the result in."""
    ledger, limits = moment.ledger, moment.limits
    if (
        moment.evidence == NO_EVIDENCE
        and not (ledger.idle.count or ledger.returns.count)
        and not (ledger.measured.research or ledger.claimed.research)
        and (limits.max_tokens is None or ledger.tokens <= limits.max_tokens)
        and (limits.max_cost is None or ledger.cost <= limits.max_cost)
    ):  # nothing shown, nothing counted, nothing spent too much, as of most results
        return []
    return _judge(ON_RESULT, moment)


def judge_handoff(moment: Moment) -> list[Fired]:
    """Before the handoff source -> target is made."""
    ledger, limits, edge = moment.ledger, moment.limits, moment.edge
    made = ledger.handoffs - ledger.handoffs_before
    if (limits.max_handoffs is None or made < limits.max_handoffs) and (
        limits.max_edge is None or (0 if edge is None else edge.count) < limits.max_edge
    ):  # there is room, as for most handoffs: only a repetition can be against it
        repeated = _pattern(moment)
        return [repeated] if repeated is not None else []
    return _judge(ON_HANDOFF, moment)


def judge_step(moment: Moment) -> list[Fired]:
    """Before the next step is taken."""
    ledger, limits = moment.ledger, moment.limits
    if (
        (limits.max_tokens is None or ledger.tokens < limits.max_tokens)
        and (limits.max_cost is None or ledger.cost < limits.max_cost)
        and (limits.max_steps is None or ledger.steps - ledger.steps_before < limits.max_steps)
        and (limits.max_duration is None or moment.elapsed < limits.max_duration)
    ):  # as of most steps: something is left of everything
        return []
    return _judge(ON_STEP, moment)


def _judge(rules: tuple["Rule", ...], moment: Moment) -> list[Fired]:
    found: list[Fired] = []
    for rule in rules:
        fired = rule(moment)
        if fired is not None:
            found.append(fired)
    return found


def status_of(rule: StopRule, *, goal_met: bool) -> TerminalStatus:
    if rule in CONSTRAINING:
        return TerminalStatus.ABORTED_CONSTRAINT
    if rule in PARTIAL and goal_met:
        return TerminalStatus.DONE_PARTIAL
    return TerminalStatus.ABORTED_STUCK


def _constraint(m: Moment) -> Fired | None:
    if m.evidence is None:
        return None
    touched = sorted(m.evidence.files or {})
    ran = [check.command for check in m.evidence.checks]
    for what, found, forbidden, hits in (
        ("touched", touched, m.limits.constraints.paths, path_forbidden),
        ("ran", ran, m.limits.constraints.commands, command_forbidden),
    ):
        for one in found:
            hit = next((rule for rule in forbidden if hits(one, rule)), None)
            if hit is not None:
                return Fired(
                    rule=StopRule.CONSTRAINT,
                    reason=f"{m.agent} {what} '{one}', which the constraint '{hit}' forbids",
                    limit=hit,
                    seen=one,
                    evidence=(f"step {m.step}",),
                    remedy=f"keep off '{hit}', or change stop_rules.constraints",
                )
    return None


def _budget(m: Moment) -> Fired | None:
    """More was used than allowed, whatever else the result says."""
    ledger, limits = m.ledger, m.limits
    if limits.max_tokens is not None and ledger.tokens > limits.max_tokens:
        return _spent("tokens", ledger.tokens, limits.max_tokens, ledger.tokens_step)
    if limits.max_cost is not None and ledger.cost > limits.max_cost:
        return _spent("cost", ledger.cost, limits.max_cost, ledger.cost_step)
    return None


def _budget_spent(m: Moment) -> Fired | None:
    """Nothing is left for another step."""
    ledger, limits = m.ledger, m.limits
    if limits.max_tokens is not None and ledger.tokens >= limits.max_tokens:
        return _spent("tokens", ledger.tokens, limits.max_tokens, ledger.tokens_step)
    if limits.max_cost is not None and ledger.cost >= limits.max_cost:
        return _spent("cost", ledger.cost, limits.max_cost, ledger.cost_step)
    return None


def _spent(what: str, used: float, most: float, step: int) -> Fired:
    return Fired(
        rule=StopRule.BUDGET,
        reason=f"the budget is spent: {used:g} of {most:g} {what}",
        limit=most,
        seen=used,
        evidence=(f"step {step}",) if step else (),
        remedy=f"a larger max_{what}",
    )


def _research(m: Moment) -> Fired | None:
    most, ledger = m.limits.research_limit, m.ledger
    for goal, held in (*ledger.measured.research.items(), *ledger.claimed.research.items()):
        if most is not None and held.stale.count >= most:
            good = "good enough" if held.best >= m.limits.research_good else "exhausted"
            return Fired(
                rule=StopRule.RESEARCH_EXHAUSTED,
                reason=f"{goal} was visited {most} times with no better score: "
                f"research is {good} (best {held.best:g})",
                limit=most,
                seen=held.stale.count,
                evidence=_counted(held.stale, most),
                remedy=f"a score better by {m.limits.research_gain:g}, or going on without it",
            )
    return None


def _same_error(m: Moment) -> Fired | None:
    most = m.limits.same_error_limit
    if most is None or m.evidence is None or not m.evidence.checks:
        return None
    for failing, held in m.ledger.errors.items():
        now = held.epoch == m.ledger.epoch and held.seen.steps[-1:] == (m.step,)
        if now and held.seen.count >= most:
            return _failing_again(failing, held, most)
    return None


def _failing_again(failing: str, held: ErrorCount, most: int) -> Fired:
    return Fired(
        rule=StopRule.SAME_ERROR,
        reason=f"the same failure {held.seen.count} times without progress: {failing}",
        limit=most,
        seen=held.seen.count,
        evidence=_counted(held.seen, most),
        remedy="a check that turns green, fewer failures, or another error in between",
    )


def _no_change(m: Moment) -> Fired | None:
    most, idle = m.limits.no_change_limit, m.ledger.idle
    if most is None or idle.count < most:
        return None
    same, remedy = "left every file as it was", "a turn that changes a file"
    if _is_of_tools(m):
        same = "found only what tools had found before"
        remedy = "a tool that finds something new, or a higher no_change_limit"
    return Fired(
        rule=StopRule.NO_CHANGE,
        reason=f"{idle.count} turns {same}, the last one of {m.agent}",
        limit=most,
        seen=idle.count,
        evidence=_counted(idle, most),
        remedy=remedy,
    )


def _oscillation(m: Moment) -> Fired | None:
    most, returns = m.limits.oscillation_limit, m.ledger.returns
    if most is None or returns.count < most:
        return None
    what, remedy = "earlier contents", "contents that were not there before"
    if _is_of_tools(m):
        what = "what tools had found earlier"
        remedy = "a tool that finds something new, or a higher oscillation_limit"
    return Fired(
        rule=StopRule.OSCILLATION,
        reason=f"{returns.count} turns went back to {what}, the last one of {m.agent}",
        limit=most,
        seen=returns.count,
        evidence=_counted(returns, most),
        remedy=remedy,
    )


def _is_of_tools(m: Moment) -> bool:
    """Whether what did not change is what an agent's tools have found, and no file."""
    files = m.evidence.files if m.evidence is not None else None
    return bool(files) and all(path.startswith(TOOLS) for path in files)


def _pattern(m: Moment) -> Fired | None:
    times, edge = m.limits.repeat_limit, m.edge
    if times is None or edge is None or edge.count < times - 1:
        return None  # it has to be gone once in each of them
    trail = edge.symbol + m.ledger.trail
    period = repetition(trail, times, m.limits.pattern_period_max)
    if not period:
        return None
    names = {e.symbol: f"{e.source} -> {e.target}" for e in m.ledger.edges.values()}
    pattern = tuple(names.get(symbol, "(forgotten)") for symbol in reversed(trail[:period]))
    last = m.ledger.handoffs + 1
    return Fired(
        rule=StopRule.REPEATED_PATTERN,
        reason=f"the same handoffs {times} times in a row without progress: {', '.join(pattern)}",
        limit=times,
        seen=times,
        pattern=pattern,
        evidence=_handoffs(range(last - period * times + 1, last + 1)),
        remedy="progress in between, another way, or a higher repeat_limit",
    )


def _max_edge(m: Moment) -> Fired | None:
    most, edge = m.limits.max_edge, m.edge
    count = edge.count if edge is not None and edge.epoch == m.ledger.epoch else 0
    if most is None or count < most:
        return None
    trail, last = m.ledger.trail, m.ledger.handoffs
    symbol = edge.symbol if edge is not None else ""
    numbers = [last - i for i, one in enumerate(trail) if one == symbol][count - 1 :: -1]
    return Fired(
        rule=StopRule.MAX_EDGE,
        reason=f"{m.source}_{m.target}_loop: {m.source} handed to {m.target} "
        f"{count} times without progress and wants to again",
        limit=most,
        seen=count + 1,
        evidence=_handoffs(tuple(numbers) if count else ()),
        remedy="progress in between, or a higher max_edge",
    )


def _max_handoffs(m: Moment) -> Fired | None:
    most = m.limits.max_handoffs
    count = m.ledger.handoffs - m.ledger.handoffs_before
    if most is None or count < most:
        return None
    # A fork hands over to several at once: where it went past the limit, it alone is needed.
    first = 1 if count == most else most
    return Fired(
        rule=StopRule.MAX_HANDOFFS,
        reason=f"{count} handoffs were made, and {m.source} proposes one more, to {m.target}",
        limit=most,
        seen=count + 1,
        evidence=_handoffs(range(m.ledger.handoffs_before + first, m.ledger.handoffs + 1)),
        remedy="a higher max_handoffs, or ending earlier",
    )


def _max_steps(m: Moment) -> Fired | None:
    most = m.limits.max_steps
    count = m.ledger.steps - m.ledger.steps_before
    if most is None or count < most:
        return None
    return Fired(
        rule=StopRule.MAX_STEPS,
        reason=f"{count} steps were taken, and the run wants one more",
        limit=most,
        seen=count + 1,
        evidence=_steps(range(m.ledger.steps_before + 1, m.ledger.steps + 1)),
        remedy="a higher max_steps, or ending earlier",
    )


def _max_duration(m: Moment) -> Fired | None:
    most = m.limits.max_duration
    if most is None or m.elapsed < most:
        return None
    return Fired(
        rule=StopRule.MAX_DURATION,
        reason=f"the run has been running for {m.elapsed:g} s",
        limit=most,
        seen=m.elapsed,
        remedy="a longer max_duration, or faster agents",
    )


def _counted(tally: Tally, most: int) -> tuple[str, ...]:
    """The last that count, but for those that another one could stand in for."""
    return _steps(tuple(step for step in tally.steps[-most:] if step not in tally.spare))


def _steps(numbers: range | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"step {n}" for n in numbers[-CITED_MAX:])


def _handoffs(numbers: range | tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"handoff {n}" for n in numbers[-CITED_MAX * 4 :])


Rule = Callable[[Moment], Fired | None]
ON_RESULT: tuple[Rule, ...] = (
    _constraint,
    _budget,
    _research,
    _same_error,
    _no_change,
    _oscillation,
)
ON_HANDOFF: tuple[Rule, ...] = (_pattern, _max_edge, _max_handoffs)
ON_STEP: tuple[Rule, ...] = (_budget_spent, _max_steps, _max_duration)

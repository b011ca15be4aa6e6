"""Redirects: where a handoff of a team leads that a loop rule is against (K30).

`max_edge`, the completion of a repetition and `research_exhausted` refuse a handoff and end the
run. If the agent's `when_exhausted` names another target, the turn goes there instead. So it does
before another visit to a researcher whose score is good and whose last visit brought no gain.

Why every run still ends: a redirect is an ordinary handoff to a target that is allowed anyway,
judged and counted by every rule; certificate and measure need not know of it. It is no progress and
resets nothing. Each edge leads elsewhere once a stretch, and the redirects of one agent have no
cycle: a redirect only postpones the end.
"""

from handrail.kernel.decision import Value
from handrail.kernel.definition.model import Agent
from handrail.kernel.result import Result
from handrail.kernel.run.decision_builder import DecisionBuilder
from handrail.kernel.stop.ledger import edge_key, research_goal
from handrail.kernel.stop.rules import (
    REDIRECTING_RULES,
    RULE_ORDER,
    FiredRule,
    StopRule,
    judge_research,
)


class Redirect(Value):
    """The turn goes to `target`, because `rule` is against those `proposed`: the agent's own is the
    first, the others are redirects that a rule is against too."""

    target: str
    proposed: tuple[str, ...]
    rule: StopRule
    reason: str


def find_redirect(
    builder: DecisionBuilder, agent: Agent, result: Result, fired: list[FiredRule]
) -> Redirect | None:
    """Return where the proposed handoff leads instead; None if it is made, or ends the run.

    `fired` are the rules that fired on the result itself.
    """
    if not agent.when_exhausted:
        return None
    cause, proposed, target, task = None, (), result.to, result.task
    while True:
        fired = [*fired, *builder.judge_handoff(agent.id, target)]
        if not REDIRECTING_RULES.issuperset(fired_rule.rule for fired_rule in fired):
            return None
        is_spent = edge_key(agent.id, target) in builder.run.redirected
        other = None if is_spent else agent.when_exhausted.get(target)
        objections = [*fired, *_judge_visit(builder, target, task)]
        if other is None or not objections:
            break
        cause = cause or min(objections, key=lambda objection: RULE_ORDER[objection.rule])
        proposed, target, task, fired = (*proposed, target), other, "", []
    if cause is None or fired:
        return None
    return Redirect(target=target, proposed=proposed, rule=cause.rule, reason=cause.reason)


def _judge_visit(builder: DecisionBuilder, target: str, task: str) -> list[FiredRule]:
    """Return the objection of the research rule to another visit; without a task, at any goal."""
    tasks = [task] if task else ["", *(each.id for each in builder.plan.agents[target].tasks)]
    goals = [research_goal(target, each) for each in tasks]
    fired = judge_research(builder.run.ledger, builder.run.limits, goals)
    return [] if fired is None else [fired]

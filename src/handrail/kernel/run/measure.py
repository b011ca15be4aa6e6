"""measure: a natural number that falls with every accepted event and is 0 exactly at the end (K26).

Workflow: for each token what is left of its visit and of the way after it; for each open block the
way after its merge; for each rework rule whose scope is open, its turns left at what a turn may
cost. Team: four events (offered, claimed, reported, handed over) for each step the limits still
allow. Both: a question and its answer for each ask left, and the end. The tables stand in
`rank.py`.
"""

from handrail.kernel.definition import NodeType
from handrail.kernel.limits import ASKS_MAX
from handrail.kernel.plan import Plan
from handrail.kernel.rank import ASKED, LEAVE
from handrail.kernel.run.state import Phase, Run, Token

STEP = 4
"""Events of a team's step: offered, claimed, reported, handed over."""


def measure(plan: Plan, run: Run) -> int:
    if run.ended:
        return 0
    asks = ASKED * max(0, ASKS_MAX - run.asks)
    paused = 1 if run.paused_at is not None else 0
    here = _team(plan, run) if run.kind == "team" else _workflow(plan, run)
    return here + asks + paused


def _workflow(plan: Plan, run: Run) -> int:
    graph, ranks = plan.graph, plan.ranks
    total = 0
    stand = [graph.index[fork] for fork in run.blocks]
    for token in run.tokens.values():
        i = graph.index[token.place]
        stand.append(i)
        total += ranks.rest[i] - ranks.full[i] + _visit(plan, run, token)
    for fork in run.blocks:
        total += ranks.entered(graph.merge_of[graph.index[fork]])
    for target, nodes in graph.rules.items():
        if any(graph.dominates(target, i) for i in stand):
            for v in nodes:
                rule = graph.nodes[v].config.on_failure
                assert rule is not None
                left = rule.max - run.reworks.get(graph.nodes[v].id, 0)
                total += left * ranks.turn[v]
    return total


def _visit(plan: Plan, run: Run, token: Token) -> int:
    """Events left of this stay at the node."""
    node = plan.node(token.place)
    if token.phase is Phase.ASKED:
        question = run.questions[token.question]
        if question.own:
            return 1 + _attempts(plan, token) + ASKED + LEAVE
        return question.quorum - len(question.approved_by) + LEAVE
    if node.type is NodeType.TASK:
        extra = {Phase.OFFERED: 2, Phase.CLAIMED: 1}.get(token.phase, 0)
        weight = plan.ranks.attempt - 1 if extra == 2 else plan.ranks.attempt - 2 if extra else 0
        return weight + _attempts(plan, token) + ASKED + LEAVE
    return plan.ranks.full[plan.graph.index[token.place]]


def _attempts(plan: Plan, token: Token) -> int:
    left = plan.node(token.place).max_attempts - token.attempts
    return max(0, left) * plan.ranks.attempt


def _team(plan: Plan, run: Run) -> int:
    token = next(iter(run.tokens.values()))
    limits, ledger = run.limits, run.ledger
    reviews = 2 + plan.team.review.quorum if plan.team.review is not None else 0
    ending = 1
    if token.phase is Phase.ASKED and not run.questions[token.question].own:
        question = run.questions[token.question]
        return question.quorum - len(question.approved_by) + ending
    room = (limits.protocol_error_limit - token.faults) + max(0, ASKS_MAX - run.asks)
    if limits.max_handoffs is not None:
        left = limits.max_handoffs - (ledger.handoffs - ledger.handoffs_before)
        room += left * limits.protocol_error_limit
        steps = room
    else:
        steps = None
    if limits.max_steps is not None:
        by_steps = limits.max_steps - (ledger.steps - ledger.steps_before)
        steps = by_steps if steps is None else min(steps, by_steps)
    assert steps is not None, "a valid team has one of the two"
    phase = {Phase.OFFERED: 3, Phase.CLAIMED: 2, Phase.SETTLED: 1}.get(token.phase, 0)
    if token.phase is Phase.ASKED:
        phase = 1
    return STEP * max(0, steps) + phase + reviews + ending

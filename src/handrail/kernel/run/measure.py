"""measure: a natural number that falls with every accepted event and is 0 exactly at the end (K26).

Workflow: for each token what is left of its visit and of the way after it; for each open block the
way after its merge; for each rework rule whose scope is open, its turns left at what a turn may
cost. Team: four events (offered, claimed, reported, handed over) for each step the limits still
allow. Both: a question and its answer for each ask left, and the end. The tables stand in
`rank.py`.
"""

from typing import assert_never

from handrail.kernel.definition import NodeType
from handrail.kernel.limits import ASKS_MAX
from handrail.kernel.plan import Plan
from handrail.kernel.rank import ASKED, LEAVE
from handrail.kernel.run.state import Phase, Run, Token

STEP = 4
"""Events of a team's step: offered, claimed, reported, handed over."""
PASSED = {
    Phase.READY: 0,
    Phase.OFFERED: -1,
    Phase.CLAIMED: -2,
    Phase.SETTLED: -3,
    Phase.ASKING: 2,
    Phase.ASKED: 1,
}
"""What the phase adds to or takes from the step in hand."""
ASK = STEP + 1
"""An agent's question costs a dispatch of its own besides question and answer."""
END = 1


def measure(plan: Plan, run: Run) -> int:
    if run.ended:
        return 0
    asks = (ASK if run.kind == "team" else ASKED) * max(0, ASKS_MAX - run.asks)
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
    node, attempt = plan.node(token.place), plan.ranks.attempt
    if node.type is not NodeType.TASK and token.phase is Phase.READY:
        return plan.ranks.full[plan.graph.index[token.place]]
    again = max(0, node.max_attempts - token.attempts) * attempt + ASKED + LEAVE
    match token.phase:
        case Phase.READY | Phase.SETTLED:
            return again
        case Phase.OFFERED:
            return again + attempt - 1
        case Phase.CLAIMED:
            return again + attempt - 2
        case Phase.ASKING:
            return again + 2
        case Phase.LEAVING:
            return LEAVE
        case Phase.ASKED:
            question = run.questions[token.question]
            if question.own:
                return again + 1
            return question.quorum - len(question.approved_by) + LEAVE
        case _:
            assert_never(token.phase)


def _team(plan: Plan, run: Run) -> int:
    """STEP events for each dispatch the limits allow, the one in hand included, and the end."""
    token = next(iter(run.tokens.values()))
    if token.phase is Phase.ASKED and not run.questions[token.question].own:
        question = run.questions[token.question]
        return question.quorum - len(question.approved_by) + END
    if token.phase is Phase.LEAVING:
        return END
    in_hand = token.phase in (Phase.OFFERED, Phase.CLAIMED, Phase.SETTLED)
    steps = _steps_left(run, token, 1 if in_hand else 0)
    review = plan.team.review
    tail = END if review is None else END + 1 + review.quorum
    return STEP * steps + PASSED[token.phase] + tail


def _steps_left(run: Run, token: Token, in_hand: int) -> int:
    limits, ledger = run.limits, run.ledger
    left: list[int] = []
    if limits.max_handoffs is not None:
        handoffs = limits.max_handoffs - (ledger.handoffs - ledger.handoffs_before)
        left.append((handoffs + 1) * limits.protocol_error_limit - token.faults)
    if limits.max_steps is not None:
        left.append(limits.max_steps - (ledger.steps - ledger.steps_before) + in_hand)
    assert left, "a valid team has one of the two limits"
    return max(0, min(left))

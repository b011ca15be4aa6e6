"""Parts for scripted agents, and one that fits any definition."""

from collections.abc import Callable
from typing import Any

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.definition.model import BUILTIN_ROLES, REVIEW_STEP_ID, Team
from handrail.kernel.definition.plan import Plan
from handrail.kernel.result import Outcome, Result

ScriptedAgent = Callable[[Dispatch], Result]
"""Works one dispatch, by rules."""
AgentsByRole = dict[str, ScriptedAgent]


def hand_off(to: str, reason: str, text: str = "", **fields: Any) -> Result:  # noqa: ANN401 - a Result's fields
    return Result(outcome=Outcome.HANDOFF, to=to, reason=reason, text=text, **fields)


def terminate(reason: str, text: str = "", **fields: Any) -> Result:  # noqa: ANN401 - as above
    return Result(outcome=Outcome.TERMINATE, reason=reason, text=text, **fields)


def succeed(text: str, **fields: Any) -> Result:  # noqa: ANN401 - as above
    return Result(outcome=Outcome.SUCCESS, text=text, **fields)


def fail(reason: str, text: str = "", **fields: Any) -> Result:  # noqa: ANN401 - as above
    return Result(outcome=Outcome.FAILURE, reason=reason, text=text, **fields)


def ask(question: str, *options: str) -> Result:
    return Result(outcome=Outcome.ASK, question=question, options=options)


def requested_demo(dispatch: Dispatch) -> str:
    """Return the ending that the bead asks to be shown; "" for the usual one."""
    value = dispatch.bead.context.get("demo", "")
    return value if isinstance(value, str) else ""


def bead_text(dispatch: Dispatch) -> str:
    """Return the bead's text, in lower case."""
    return f"{dispatch.bead.title} {dispatch.bead.description}".lower()


def generic_agents(plan: Plan) -> AgentsByRole:
    """Return agents for any definition: they succeed at every node, and hand off along the shortest
    path to the end.
    """
    if plan.kind == "workflow":
        return dict.fromkeys(_roles(plan), _succeed_at_node)
    hops = next_hops(plan.team)

    def hand_along(dispatch: Dispatch) -> Result:
        to = hops.get(dispatch.agent, "")
        if to and to in dispatch.allowed.to:
            return hand_off(to, f"the shortest way to the end leads to {to}")
        return terminate(f"{dispatch.agent} is the end of the shortest way")

    return dict.fromkeys(_roles(plan), hand_along)


def _roles(plan: Plan) -> list[str]:
    """Return every role that a dispatch may need; the context of a bead can name any known one."""
    if plan.kind == "team":
        return [agent.role or agent.id for agent in plan.team.agents]
    node_roles = [node.role for node in plan.workflow.nodes if node.role]
    return list(dict.fromkeys([*BUILTIN_ROLES, *plan.workflow.roles, *node_roles]))


def _succeed_at_node(dispatch: Dispatch) -> Result:
    return succeed(f"{dispatch.node}: done by a scripted agent")


def next_hops(team: Team) -> dict[str, str]:
    """Return, for each agent, the next one on its shortest path to a terminator; "" for those."""
    goals = set(team.review.after) if team.review is not None else set[str]()
    goals |= {team.terminator} if team.terminator is not None else set()
    hops = dict.fromkeys(sorted(goals), "")
    queue = list(hops)
    for target in queue:  # grows during the loop
        for agent in team.agents:
            if target in agent.hands_off_to and agent.id not in hops and agent.id != REVIEW_STEP_ID:
                hops[agent.id] = target
                queue.append(agent.id)
    return hops

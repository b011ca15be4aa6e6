"""Parts for scripted agents, and one that fits any definition."""

from collections.abc import Callable
from typing import Any

from handrail.engine.dispatch import Dispatch
from handrail.kernel.definition import REVIEW_SEAT, ROLES, Team
from handrail.kernel.plan import Plan
from handrail.kernel.result import Outcome, Result

Agent = Callable[[Dispatch], Result]
"""Works one turn, by rules."""
Staff = dict[str, Agent]
"""By role."""


def hand(to: str, reason: str, text: str = "", **more: Any) -> Result:  # noqa: ANN401 - a Result's fields
    return Result(outcome=Outcome.HANDOFF, to=to, reason=reason, text=text, **more)


def end(reason: str, text: str = "", **more: Any) -> Result:  # noqa: ANN401 - as above
    return Result(outcome=Outcome.TERMINATE, reason=reason, text=text, **more)


def succeed(text: str, **more: Any) -> Result:  # noqa: ANN401 - as above
    return Result(outcome=Outcome.SUCCESS, text=text, **more)


def fail(reason: str, text: str = "", **more: Any) -> Result:  # noqa: ANN401 - as above
    return Result(outcome=Outcome.FAILURE, reason=reason, text=text, **more)


def ask(question: str, *options: str) -> Result:
    return Result(outcome=Outcome.ASK, question=question, options=options)


def demo(dispatch: Dispatch) -> str:
    """The ending that the bead asks to be shown; "" for the usual one."""
    wanted = dispatch.bead.context.get("demo", "")
    return wanted if isinstance(wanted, str) else ""


def words(dispatch: Dispatch) -> str:
    """What the bead says, in lower case."""
    return f"{dispatch.bead.title} {dispatch.bead.description}".lower()


def anybody(plan: Plan) -> Staff:
    """For any definition: succeeds at every node, and hands along the shortest way to the end."""
    if plan.kind == "workflow":
        return dict.fromkeys(_roles(plan), _succeeds)
    toward = shortest_ways(plan.team)

    def along(dispatch: Dispatch) -> Result:
        to = toward.get(dispatch.agent, "")
        if to and to in dispatch.allowed.to:
            return hand(to, f"the shortest way to the end leads to {to}")
        return end(f"{dispatch.agent} is the end of the shortest way")

    return dict.fromkeys(_roles(plan), along)


def _roles(plan: Plan) -> list[str]:
    """Every role that a dispatch may want; the context of a bead can name any known one."""
    if plan.kind == "team":
        return [agent.role or agent.id for agent in plan.team.agents]
    named = [node.role for node in plan.workflow.nodes if node.role]
    return list(dict.fromkeys([*ROLES, *plan.workflow.roles, *named]))


def _succeeds(dispatch: Dispatch) -> Result:
    return succeed(f"{dispatch.node}: done by a scripted agent")


def shortest_ways(team: Team) -> dict[str, str]:
    """For each agent the next one on its shortest way to whoever may end the run; "" for those."""
    goals = set(team.review.after) if team.review is not None else set[str]()
    goals |= {team.terminator} if team.terminator is not None else set()
    toward = dict.fromkeys(sorted(goals), "")
    queue = list(toward)
    for at in queue:  # grows while it is walked
        for agent in team.agents:
            if at in agent.hands_off_to and agent.id not in toward and agent.id != REVIEW_SEAT:
                toward[agent.id] = at
                queue.append(agent.id)
    return toward

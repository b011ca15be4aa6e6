"""The certificate of a team: the hard limits bound everything, the handoff graph may bound it more.

A visit to an agent costs at most `protocol_error_limit` dispatches, so the visits bound the
dispatches (K19, K20). If the start reaches no cycle of the handoff graph, its longest walk bounds
the visits too; a guarded team's graph holds only the handoffs seen so far, and bounds nothing.
Once-only tasks make the exact figures a longest-simple-path problem: flagged, not computed.
"""

from handrail.kernel.definition.certificate import Bound, ServiceTime
from handrail.kernel.definition.limits import ASKS_MAX, Limits
from handrail.kernel.definition.model import REVIEW_STEP_ID, Agent, Settings, Team
from handrail.kernel.definition.team_checks import handoff_distances


def longest_walk(team: Team, *, to_review: bool) -> int | None:
    """Return the most handoffs that the graph alone allows from the start agent; None if endless.

    The review step ends a walk; `to_review` says whether the handoff to it counts.
    """
    if team.metadata.get("guarded"):
        return None
    targets = {agent.id: allowed_targets(team, agent, to_review=to_review) for agent in team.agents}
    depth: dict[str, int] = {REVIEW_STEP_ID: 0} if team.review else {}
    on_path: set[str] = set()
    stack = [(team.start, False)]
    while stack:
        agent_id, done = stack.pop()
        if done:
            on_path.discard(agent_id)
            depth[agent_id] = max((1 + depth[to] for to in targets[agent_id]), default=0)
        elif agent_id in on_path:
            return None
        elif agent_id not in depth:
            on_path.add(agent_id)
            stack.append((agent_id, True))
            stack.extend((to, False) for to in targets[agent_id] if to not in depth)
    return depth[team.start]


def allowed_targets(team: Team, agent: Agent, *, to_review: bool) -> tuple[str, ...]:
    """Return the agent's handoff targets; an agent that may finish also has the review step."""
    agents = tuple(to for to in agent.hands_off_to if team.review is None or to != REVIEW_STEP_ID)
    reviewed = team.review is not None and agent.id in (*team.review.after, team.terminator)
    return (*agents, REVIEW_STEP_ID) if reviewed and to_review else agents


def bound_team(team: Team, limits: Limits, settings: Settings) -> Bound:
    """Compute the certificate of a valid team from hard limits and handoff graph (K19, K20).

    Each visit takes at most `protocol_error_limit` dispatches, and each question of an agent one
    more. The handoff out of the last step that max_steps allows still happens.
    """
    handoffs = _smallest(limits.max_handoffs, longest_walk(team, to_review=True), limits.max_steps)
    turns = (
        _smallest(limits.max_handoffs, longest_walk(team, to_review=False), limits.max_steps) + 1
    )
    dispatches = _smallest(turns * limits.protocol_error_limit + ASKS_MAX, limits.max_steps)
    asks = min(ASKS_MAX, dispatches)
    once = any(task.once for agent in team.agents for task in agent.tasks)
    return Bound(
        dispatches=dispatches,
        handoffs=handoffs,
        transitions=handoffs,
        questions=0 if team.review is None else 1,
        asks=asks,
        time=_service_time_of_team(team, limits, settings, dispatches, asks),
        tight={
            "dispatches": not once,
            "handoffs": not once,
            "transitions": not once,
            "questions": team.review is None or _is_review_reachable(team, limits),
            "asks": not once,
            "time": False,
        },
    )


def _is_review_reachable(team: Team, limits: Limits) -> bool:
    """Whether the limits allow a walk from the start to a reviewed agent, and its handoff.

    If not, a person may still move the run there: the figure is safe, not tight.
    """
    steps = handoff_distances(team)
    finishing = (*team.review.after, team.terminator) if team.review is not None else ()
    ways = [steps[name] for name in finishing if name in steps]
    needed = min(ways, default=None)
    hard = [limit for limit in (limits.max_handoffs, limits.max_steps) if limit is not None]
    return needed is not None and all(needed < limit for limit in hard)


def _smallest(*limits: int | None) -> int:
    return min(limit for limit in limits if limit is not None)


def _service_time_of_team(
    team: Team, limits: Limits, settings: Settings, dispatches: int, asks: int
) -> ServiceTime:
    max_seconds = limits.max_duration
    queue, work = dispatches * settings.queue_timeout, dispatches * settings.node_timeout
    running = queue + work
    if max_seconds is not None:
        queue, work, running = (
            min(queue, max_seconds),
            min(work, max_seconds),
            min(running, max_seconds),
        )
    review = team.review
    people = 0.0
    if review is not None:
        people = settings.human_deadline if review.deadline is None else review.deadline
    ask_seconds = asks * settings.human_deadline
    return ServiceTime(
        queue=queue,
        work=work,
        people=people,
        asks=ask_seconds,
        total=running + people + ask_seconds,
    )

"""The certificate of a team: the hard limits bound everything, the handoff graph may bound it more.

Every turn costs at most `protocol_error_limit` dispatches, so the turns bound the dispatches (K19,
K20). If the handoff graph has no cycle that the start reaches, its longest walk bounds the turns
too; of a guarded team the graph is only what was seen so far, and bounds nothing. Once-only tasks
make the exact figures a longest-simple-path problem: those are flagged, not computed.
"""

from handrail.kernel.certificate import Bound, ServiceTime
from handrail.kernel.definition import REVIEW_SEAT, Agent, Settings, Team
from handrail.kernel.limits import ASKS_MAX, Limits
from handrail.kernel.team_rules import reached


def longest_walk(team: Team, *, to_review: bool) -> int | None:
    """Handoffs that the graph alone allows from the start agent; None if it can go on for ever.

    The reviewing person's seat ends a walk; `to_review` says whether stepping there counts.
    """
    if team.metadata.get("guarded"):
        return None
    hands = {agent.id: hand_targets(team, agent, to_review=to_review) for agent in team.agents}
    depth: dict[str, int] = {REVIEW_SEAT: 0} if team.review else {}
    on_path: set[str] = set()
    stack = [(team.start, False)]
    while stack:
        at, done = stack.pop()
        if done:
            on_path.discard(at)
            depth[at] = max((1 + depth[to] for to in hands[at]), default=0)
        elif at in on_path:
            return None
        elif at not in depth:
            on_path.add(at)
            stack.append((at, True))
            stack.extend((to, False) for to in hands[at] if to not in depth)
    return depth[team.start]


def hand_targets(team: Team, agent: Agent, *, to_review: bool) -> tuple[str, ...]:
    """Whom the agent may hand to; who may finish may hand to the reviewing person as well."""
    agents = tuple(to for to in agent.hands_off_to if team.review is None or to != REVIEW_SEAT)
    reviewed = team.review is not None and agent.id in (*team.review.after, team.terminator)
    return (*agents, REVIEW_SEAT) if reviewed and to_review else agents


def bound_team(team: Team, limits: Limits, settings: Settings) -> Bound:
    """The certificate of a valid team: hard limits, and what the handoff graph allows (K19, K20).

    Each turn takes at most `protocol_error_limit` dispatches, and each question of an agent one
    more. The handoff out of the last step that max_steps allows is still made.
    """
    handoffs = _least(limits.max_handoffs, longest_walk(team, to_review=True), limits.max_steps)
    turns = _least(limits.max_handoffs, longest_walk(team, to_review=False), limits.max_steps) + 1
    dispatches = _least(turns * limits.protocol_error_limit + ASKS_MAX, limits.max_steps)
    asks = min(ASKS_MAX, dispatches)
    once = any(task.once for agent in team.agents for task in agent.tasks)
    return Bound(
        dispatches=dispatches,
        handoffs=handoffs,
        transitions=handoffs,
        questions=0 if team.review is None else 1,
        asks=asks,
        time=_team_time(team, limits, settings, dispatches, asks),
        tight={
            "dispatches": not once,
            "handoffs": not once,
            "transitions": not once,
            "questions": team.review is None or _review_fits(team, limits),
            "asks": not once,
            "time": False,
        },
    )


def _review_fits(team: Team, limits: Limits) -> bool:
    """Whether the limits let a reviewed agent be reached from the start and hand its result over.

    Where they do not, a person may still move the run there: the figure is safe, not tight.
    """
    steps = reached(team)
    finishing = (*team.review.after, team.terminator) if team.review is not None else ()
    ways = [steps[name] for name in finishing if name in steps]
    needed = min(ways, default=None)
    hard = [most for most in (limits.max_handoffs, limits.max_steps) if most is not None]
    return needed is not None and all(needed < most for most in hard)


def _least(*limits: int | None) -> int:
    return min(limit for limit in limits if limit is not None)


def _team_time(
    team: Team, limits: Limits, settings: Settings, dispatches: int, asks: int
) -> ServiceTime:
    most = limits.max_duration
    queue, work = dispatches * settings.queue_timeout, dispatches * settings.node_timeout
    running = queue + work
    if most is not None:
        queue, work, running = min(queue, most), min(work, most), min(running, most)
    review = team.review
    people = 0.0
    if review is not None:
        people = settings.human_deadline if review.deadline is None else review.deadline
    asked = asks * settings.human_deadline
    return ServiceTime(
        queue=queue, work=work, people=people, asks=asked, total=running + people + asked
    )

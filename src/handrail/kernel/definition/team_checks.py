"""Validation of teams: known targets, a reachable authority, hard limits, sound tasks.

As for workflows, every check reports all its problems. docs/definitions.md documents the codes.
"""

from collections import Counter
from collections.abc import Iterator

from handrail.kernel.definition.limits import Limits
from handrail.kernel.definition.model import (
    REVIEW_STEP_ID,
    Agent,
    DocumentProblem,
    Team,
    has_too_few_approvers,
)
from handrail.kernel.definition.workflow_checks import check_expression


def check_team(team: Team, limits: Limits) -> list[DocumentProblem]:
    return [
        *_check_names(team),
        *_check_agents(team),
        *_check_reachability(team),
        *_check_review(team),
        *_check_hard_limits(limits),
    ]


def handoff_distances(team: Team) -> dict[str, int]:
    """Return every agent reachable from the start agent, with the fewest handoffs to it."""
    targets = {agent.id: agent.hands_off_to for agent in team.agents}
    steps = {team.start: 0} if team.start in targets else {}
    queue = list(steps)
    for agent_id in queue:  # grows during the loop
        for to in targets[agent_id]:
            if to in targets and to not in steps:
                steps[to] = steps[agent_id] + 1
                queue.append(to)
    return steps


def _check_names(team: Team) -> Iterator[DocumentProblem]:
    ids = [agent.id for agent in team.agents]
    for duplicate, count in Counter(ids).items():
        if count > 1:
            message = f"{count} agents have the id '{duplicate}'"
            yield _problem("duplicate_agent", "$.agents", message, "rename one")
    for key in ("start", "terminator"):
        name = getattr(team, key)
        if name is not None and name not in ids:
            message = f"the {key} '{name}' is no agent of this team"
            yield _problem(f"unknown_{key}", f"$.{key}", message, _one_of_hint(ids))
    if team.review is not None and team.start == REVIEW_STEP_ID:
        message = "the start agent is the reviewing person's seat"
        yield _problem("unknown_start", "$.start", message, "let an agent start")
    if team.terminator is None and team.review is None:
        message = "nobody may end a run: there is neither a terminator nor a review"
        yield _problem("no_terminator", "$.terminator", message, "name the agent that ends a run")


def _check_agents(team: Team) -> Iterator[DocumentProblem]:
    ids = {agent.id for agent in team.agents}
    allowed = ids | {REVIEW_STEP_ID} if team.review is not None else ids
    context = team.metadata.get("context")
    keys = {str(key) for key in context} | {"phase"} if isinstance(context, list | dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any JSON
    for i, agent in enumerate(team.agents):
        for j, to in enumerate(agent.hands_off_to):
            if to not in allowed:
                path = f"$.agents[{i}].hands_off_to[{j}]"
                message = f"'{agent.id}' hands off to '{to}', which is no agent of this team"
                yield _problem("unknown_target", path, message, _one_of_hint(sorted(ids)))
        yield from _check_tasks(agent, i, keys)


def _check_tasks(agent: Agent, i: int, keys: set[str] | None) -> Iterator[DocumentProblem]:
    for duplicate, count in Counter(task.id for task in agent.tasks).items():
        if count > 1:
            message = f"'{agent.id}' has {count} tasks with the id '{duplicate}'"
            yield _problem("duplicate_task", f"$.agents[{i}].tasks", message, "rename one")
    for j, task in enumerate(agent.tasks):
        if task.when.strip():
            yield from check_expression(task.when, f"$.agents[{i}].tasks[{j}].when", keys)


def _check_reachability(team: Team) -> Iterator[DocumentProblem]:
    steps = handoff_distances(team)
    if not steps:
        return  # `_check_names` reports an unknown start
    if team.terminator is not None and team.terminator not in steps:
        message = f"the terminator '{team.terminator}' cannot be reached from '{team.start}'"
        hint = "let some agent on the way hand off to it"
        yield _problem("unreachable_terminator", "$.terminator", message, hint)
    for i, agent in enumerate(team.agents):
        is_review_step = team.review is not None and agent.id == REVIEW_STEP_ID
        if agent.id not in steps and not is_review_step and agent.id != team.terminator:
            message = f"'{agent.id}' cannot be reached from '{team.start}'"
            yield _problem("unreachable", f"$.agents[{i}]", message, "let somebody hand off to it")


def _check_review(team: Team) -> Iterator[DocumentProblem]:
    review = team.review
    if review is None:
        return
    ids = [agent.id for agent in team.agents if agent.id != REVIEW_STEP_ID]
    for i, name in enumerate(review.after):
        if name not in ids:
            message = f"review comes after '{name}', which is no agent of this team"
            yield _problem("unknown_target", f"$.review.after[{i}]", message, _one_of_hint(ids))
    if has_too_few_approvers(review.approvers, review.quorum):
        message = f"review wants {review.quorum} approvals of {len(set(review.approvers))} people"
        hint = "lower the quorum, or name more approvers"
        yield _problem("too_few_approvers", "$.review.quorum", message, hint)
    if review.back_to not in ids:
        message = f"a revision goes back to '{review.back_to}', which is no agent of this team"
        yield _problem("unknown_target", "$.review.back_to", message, _one_of_hint(ids))
    if team.terminator is None and not set(review.after) & set(handoff_distances(team)):
        message = "no reviewed agent can be reached, and there is no terminator"
        yield _problem("unreachable_terminator", "$.review.after", message, "review one on the way")


def _check_hard_limits(limits: Limits) -> Iterator[DocumentProblem]:
    if limits.max_handoffs is None and limits.max_steps is None:
        message = "max_handoffs and max_steps are both off, so agents may hand over for ever"
        yield _problem("unbounded", "$.stop_rules", message, "set at least one of them")


def _one_of_hint(names: list[str]) -> str:
    return f"one of {', '.join(names[:20])}" if names else "add agents"


def _problem(code: str, path: str, message: str, hint: str) -> DocumentProblem:
    return DocumentProblem(code=code, path=path, message=message, hint=hint)

"""Why a run stopped, waits or is not worked on, in sentences that say what to do next.

One text for the API, the command line and the page, which add nothing. Each open position of a run
is explained with what it waits for, and with what happens if nobody acts: every wait has its end.
`code` is for programs.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from handrail.engine.commit.lock_change import decode_lock
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.lock import CommitLock
from handrail.kernel.run.human_commands import REQUIRED_LEVELS
from handrail.kernel.run.state import Position, PositionPhase, Run, Wait
from handrail.kernel.stop.rules import LOOK_IN_REPORT, RULES, StopRule
from handrail.store.rows import AgentRow, DispatchRow, iso, parse_iso
from handrail.store.store import Store
from handrail.views.report import RunReport
from handrail.views.run_view import RunExplanation, WaitReason

NAMED_AGENTS_MAX = 3
"""Agents that a sentence names."""
PICKUP_GRACE = timedelta(seconds=5)
"""A function in a server's process does not ask for work: it gets what it takes within a few
maintenance passes. A dispatch that waits for longer beside a free function is not for it."""


class RunSurroundings(NamedTuple):
    """What the database says of everything around the run."""

    now: datetime
    offline_after: float
    """Seconds of silence after which an agent is shown as offline."""
    agents: Sequence[AgentRow] = ()
    dispatches: Sequence[DispatchRow] = ()
    """The dispatches of the run."""
    busy: Mapping[str | None, int] = {}
    """Session -> how many dispatches of any run it holds."""
    locks: Mapping[str, CommitLock] = {}
    """By repository."""


def load_surroundings(
    store: Store, plan: Plan, run: Run, now: datetime, offline_after: float
) -> RunSurroundings:
    repositories = _repositories(plan, run)
    lock_rows = store.locks.load(repositories) if repositories else {}
    states = (decode_lock(row.state) for row in lock_rows.values())
    return RunSurroundings(
        now=now,
        offline_after=offline_after,
        agents=store.agents.list(),
        dispatches=store.dispatches.list(run.id),
        busy=Counter(row.session for row in store.dispatches.list_claimed()),
        locks={lock.repository: lock for lock in states},
    )


def _repositories(plan: Plan, run: Run) -> list[str]:
    """The repositories whose commit locks the run may wait for."""
    repositories = plan.commit_repositories
    return sorted({repositories[step_id] for step_id in run.positions if step_id in repositories})


def wait_reasons(plan: Plan, run: Run, surroundings: RunSurroundings) -> tuple[WaitReason, ...]:
    """Explain what every open position of the run waits for; nothing if it has ended."""
    return tuple(
        _wait_reason(plan, run, position, surroundings) for position in run.positions.values()
    )


def _wait_reason(
    plan: Plan, run: Run, position: Position, surroundings: RunSurroundings
) -> WaitReason:
    since = position.since
    if run.paused_at is not None:
        code, (message, hint), since = "paused", _paused(run), run.paused_at
    elif position.phase is PositionPhase.ASKED:
        code, (message, hint) = "asked", _approval_pending(run, position)
    elif position.phase is PositionPhase.CLAIMED:
        code, message, hint = _claimed(plan, run, position, surroundings)
    elif position.phase is PositionPhase.OFFERED:
        code, message, hint = _offered(plan, run, position, surroundings)
    elif position.phase is PositionPhase.WAITING and position.wait is not None:
        code, (message, hint) = "waiting", _agent_waits(run, position, position.wait)
    elif run.kind == "team":
        code, (message, hint) = "elsewhere", _in_guarded_program(plan, run, position)
    else:
        code, (message, hint) = "lock", _waits_for_lock(plan, run, position, surroundings)
    return WaitReason(place=position.step_id, code=code, message=message, since=since, hint=hint)


def _paused(run: Run) -> tuple[str, str]:
    until = (
        f"; it ends by itself at {_format_time(run.pause_deadline)}" if run.pause_deadline else ""
    )
    return (
        f"the run is paused, and nobody works on it{until}",
        f"let it go on: `handrail override {run.id} resume --reason TEXT`",
    )


def _approval_pending(run: Run, position: Position) -> tuple[str, str]:
    approval = run.pending_approvals[position.approval_id]
    who = " or ".join(approval.approvers) or f"{REQUIRED_LEVELS[approval.kind]} or above"
    left = approval.quorum - len(approval.approved_by)
    quorum_text = f", {left} of them" if left > 1 else ""
    return (
        f"a person is asked: {approval.text}",
        f"answer ({who}{quorum_text}): `handrail answer {approval.id} TEXT`; "
        f"unanswered, the run ends at {_format_time(approval.deadline)}",
    )


def _claimed(
    plan: Plan, run: Run, position: Position, surroundings: RunSurroundings
) -> tuple[str, str, str]:
    live_sessions = {row.session for row in surroundings.dispatches} & {
        agent.session for agent in surroundings.agents
    }
    if not any(
        agent.id == position.agent and agent.session in live_sessions
        for agent in surroundings.agents
    ):
        message = f"{position.agent} took it and is gone; it is offered again in a moment"
        return "lost", message, "wait; if nobody takes it, start the agent again"
    until = _format_time(
        position.since + plan.node_waits.get(position.step_id, plan.default_waits)[1]
    )
    then = "a person is asked then" if run.kind == "workflow" else "it is offered again then"
    message = (
        f"{position.agent} is at work on it{_retry_text(plan, position)}, and has until "
        f"{until}; {then}"
    )
    return (
        "claimed",
        message,
        f"wait for its result, or take it away from {position.agent}: "
        f"`handrail override {run.id} move --node {position.step_id} --reason TEXT`",
    )


def _agent_waits(run: Run, position: Position, wait: Wait) -> tuple[str, str]:
    then = "a person is asked" if run.kind == "workflow" else "the run ends"
    message = (
        f"{position.agent} waits for {wait.waits_for}, for the {_ordinal(wait.count)} time; the "
        f"next dispatch is offered at {_format_time(wait.not_before)}, and past "
        f"{_format_time(wait.deadline)} {then}"
    )
    return message, f"see whether {wait.waits_for} is still to come"


def _in_guarded_program(plan: Plan, run: Run, position: Position) -> tuple[str, str]:
    until = _format_time(position.since + plan.default_waits[0])
    message = (
        f"{position.step_id} has the turn, in a program elsewhere that is under guard; "
        f"unheard of, it is given up at {until}"
    )
    return (
        message,
        "wait for what it does next, or stop the program at its next step: "
        f"`handrail override {run.id} close --reason TEXT`",
    )


def _retry_text(plan: Plan, position: Position) -> str:
    """How often the dispatch was tried before, and what was wrong the last time."""
    if position.attempts < 2:
        return ""
    limit_text = (
        f" of {plan.node(position.step_id).max_attempts}" if plan.kind == "workflow" else ""
    )
    refusal_text = (
        f" (the last answer could not be used: {position.refusal})" if position.refusal else ""
    )
    return f" for the {_ordinal(position.attempts)} time{limit_text}{refusal_text}"


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0)
    return f"{number}{ending or 'th'}"


def _waits_for_lock(
    plan: Plan, run: Run, position: Position, surroundings: RunSurroundings
) -> tuple[str, str]:
    repository = plan.commit_repositories.get(position.step_id, "default")
    lock = surroundings.locks.get(repository)
    message = f"it waits for the commit lock of '{repository}'"
    if lock is None or lock.holder is None:
        return f"{message}, which is free; it is given in a moment", "wait"
    holder = lock.holder.request.run
    ahead = next(
        (i for i, request in enumerate(lock.queue) if request.run == run.id), len(lock.queue)
    )
    before = f", and {ahead} more are before it" if ahead else ""
    message = (
        f"{message}, which run {holder} has had since "
        f"{_format_time(lock.holder.granted_at)}{before}"
    )
    return message, f"wait for its turn; `handrail why {holder}` says what that run does"


def _offered(
    plan: Plan, run: Run, position: Position, surroundings: RunSurroundings
) -> tuple[str, str, str]:
    """(code, message, hint): the first check that applies."""
    role_agents = [
        agent
        for agent in surroundings.agents
        if position.role in msgspec.json.decode(agent.roles, type=list[str])
    ]
    offer = _Offer(plan, run, position, surroundings, role_agents)
    for code, check in NOT_TAKEN_CHECKS.items():
        explanation = check(offer)
        if explanation is not None:
            return code, *explanation
    free = _agent_names([agent for agent in offer.takers if not offer.is_full(agent)])
    explanation = f"{free} could take it and has not asked for work yet"
    return "asking", explanation, f"wait a moment; if it stays so, look whether {free} still runs"


class _Offer(NamedTuple):
    """A dispatch on offer, and the agents that have its role."""

    plan: Plan
    run: Run
    position: Position
    surroundings: RunSurroundings
    role_agents: list[AgentRow]

    @property
    def enabled(self) -> list[AgentRow]:
        return [agent for agent in self.role_agents if agent.enabled]

    @property
    def present(self) -> list[AgentRow]:
        alive = iso(self.surroundings.now - timedelta(seconds=self.surroundings.offline_after))
        return [agent for agent in self.enabled if agent.beat_at > alive]

    @property
    def eligible(self) -> list[AgentRow]:
        """The agents that are there and have not committed in this run."""
        is_verification = (
            self.run.kind == "workflow"
            and self.plan.node(self.position.step_id).config.kind == "verification"
        )
        return [
            agent
            for agent in self.present
            if not is_verification or agent.id not in self.run.committers
        ]

    @property
    def takers(self) -> list[AgentRow]:
        """The eligible agents that take the dispatch, as far as the database shows."""
        is_recent = self.surroundings.now - self.position.since <= PICKUP_GRACE
        return [
            agent
            for agent in self.eligible
            if is_recent or agent.engine is None or self.is_full(agent)
        ]

    @property
    def role(self) -> str:
        return f"the role '{self.position.role}'"

    @property
    def wait_seconds(self) -> float:
        """Seconds that the dispatch waits for an agent that is there."""
        return self.plan.node_waits.get(self.position.step_id, self.plan.default_waits)[
            0
        ].total_seconds()

    def is_full(self, agent: AgentRow) -> bool:
        return self.surroundings.busy.get(agent.session, 0) >= agent.capacity

    def consequence(self, seconds: float) -> str:
        """What happens if nothing changes."""
        then = "a person is asked" if self.run.kind == "workflow" else "the run ends"
        return (
            f"if it stays so, {then} at "
            f"{_format_time(self.position.since + timedelta(seconds=seconds))}"
        )


MessageAndHint = tuple[str, str] | None


def _no_agent(offer: _Offer) -> MessageAndHint:
    if offer.role_agents:
        return None
    return (
        f"nobody is registered for {offer.role}; "
        f"{offer.consequence(offer.plan.settings.role_grace)}",
        f"start an agent with {offer.role}: `handrail worker MODULE:NAME`, "
        "or for a built-in team `handrail serve --builtin-agents`",
    )


def _disabled(offer: _Offer) -> MessageAndHint:
    if offer.enabled:
        return None
    names, first = _agent_names(offer.role_agents), offer.role_agents[0].id
    message = (
        f"everybody with {offer.role} is disabled: {names}"
        f"; {offer.consequence(offer.plan.settings.role_grace)}"
    )
    hint = f'let a ceo enable one: PATCH /api/v1/agents/{first} with {{"enabled": true}}'
    return message, f"{hint}, or start another agent with the role"


def _offline(offer: _Offer) -> MessageAndHint:
    if offer.present:
        return None
    last = max(offer.enabled, key=lambda agent: agent.beat_at)
    return (
        f"everybody with {offer.role} is offline: {_agent_names(offer.enabled)}; "
        f"{last.id} was last heard of at {_format_time(parse_iso(last.beat_at))}"
        f"; {offer.consequence(offer.plan.settings.role_grace)}"
    ), f"start {last.id} again, and see `handrail agents`"


def _own_commit(offer: _Offer) -> MessageAndHint:
    if offer.eligible:
        return None
    names = _agent_names(offer.present)
    return (
        f"it verifies what {names} committed in this run, and nobody else with {offer.role} is "
        "there"
    ), f"start another agent with {offer.role}"


def _not_theirs(offer: _Offer) -> MessageAndHint:
    if offer.takers:
        return None
    return (
        f"nobody who works as {offer.position.role} takes '{offer.run.definition_id}'"
        f": {_agent_names(offer.eligible)} is there, is free and leaves it"
        " (built-in agents take built-in definitions only); "
        f"{offer.consequence(offer.wait_seconds)}"
    ), f"start an agent with {offer.role}: `handrail worker MODULE:NAME`"


def _full(offer: _Offer) -> MessageAndHint:
    if not all(offer.is_full(agent) for agent in offer.takers):
        return None
    at_once = sum(agent.capacity for agent in offer.takers)
    message = (
        f"{_agent_names(offer.takers)} could take it, and works on {at_once} of {at_once} "
        "things at once"
    )
    return (
        f"{message}; {offer.consequence(offer.wait_seconds)}",
        f"wait, or start another agent with {offer.role}",
    )


NOT_TAKEN_CHECKS: dict[str, Callable[[_Offer], MessageAndHint]] = {
    "no_agent": _no_agent,
    "disabled": _disabled,
    "offline": _offline,
    "own_commit": _own_commit,
    "not_theirs": _not_theirs,
    "full": _full,
}
"""Why no agent takes the dispatch, in the order of the checks."""


def _agent_names(agents: Sequence[AgentRow]) -> str:
    unnamed = len(agents) - NAMED_AGENTS_MAX
    names = [agent.id for agent in agents[:NAMED_AGENTS_MAX]] + (
        [f"{unnamed} more"] if unnamed > 0 else []
    )
    return ", ".join(names)


def _format_time(at: datetime | None) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at is not None else ""


# An ended run

NEXT_BY_RULE: dict[str, str] = {row.rule: row.advice for row in RULES}
"""By rule, the next step for a person who wants the work done."""
NEXT_BY_RULE_GUARDED: dict[str, str] = {
    StopRule.AGENT_LOST: f"{LOOK_IN_REPORT} where the program was last heard of; "
    "mend why it raised an error, or fell silent",
}
"""Likewise, where the next step differs for a program under guard."""
NEXT_BY_STATUS = {
    TerminalStatus.DONE_SUCCESS: "nothing is left to do",
    TerminalStatus.DONE_PARTIAL: "see what is left, and file it as another bead",
}


def explain(
    report: RunReport,
    waiting: tuple[WaitReason, ...],
    newest_version: int,
    refused_count: int = 0,
    *,
    guarded: bool = False,
) -> RunExplanation:
    """Build the explanation. `newest_version` is that of the run's definition; `refused_count`
    counts late, doubled and foreign results. `guarded`: its agents work in a program elsewhere."""
    notes: tuple[str, ...] = ()
    if refused_count:
        notes = (
            f"{refused_count} refused and without effect: late, doubled or foreign; see "
            f"GET /api/v1/executions/{report.run_id}/notes",
        )
    notes += tuple(
        f"dry run: {would.rule} would have taken the rung '{would.rung}' at step {would.step}"
        for would in report.would_have
    )
    if report.terminal_status is None and newest_version > report.version:
        notes += (
            f"the run keeps version {report.version} of '{report.definition_id}'; "
            f"version {newest_version} is newer, and `handrail override {report.run_id} migrate "
            f"--version {newest_version} --reason TEXT` takes it there",
        )
    return RunExplanation(
        status=report.status,
        terminal_status=report.terminal_status,
        why=report.why,
        next=_next_step(report, waiting, guarded=guarded),
        stop=report.stop,
        waiting=waiting,
        notes=notes,
    )


def _next_step(report: RunReport, waiting: tuple[WaitReason, ...], *, guarded: bool) -> str:
    if report.stop is None or report.terminal_status is None:
        return next((reason.hint for reason in waiting), "")
    next_step = NEXT_BY_STATUS.get(TerminalStatus(report.terminal_status))
    if next_step is not None:
        return next_step
    again = f"start another run of the bead: POST /api/v1/beads/{report.bead_id}/executions"
    first = NEXT_BY_RULE[report.stop.rule] or "see the report, `handrail report`"
    if guarded:
        again = "run that program again, under guard"
        first = NEXT_BY_RULE_GUARDED.get(report.stop.rule, first)
    return f"{first}, {again}" if report.stop.rule == StopRule.CLOSED else f"{first}; then {again}"

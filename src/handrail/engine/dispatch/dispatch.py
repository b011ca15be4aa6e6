"""A dispatch: what an agent gets with its work, with the complete history, and its briefing.

All texts come from the events by the same projections (`views/history.py`, `views/steps.py`) as the
report and the page, so an agent sees what these show. Nothing is cut off: a planner that sees half
of a revision plans half of it. All of it is built when an agent asks for it: built for every
dispatch, it would cost a long run more than all its steps.

The briefing is what an agent has to know to answer well: who it is, to whom it may turn, what
counts against it. It is made from the plan and the run that the kernel decides by, so that what an
agent reads and what is accepted of it cannot drift apart. It goes over the wire with the dispatch:
an agent outside of the engine's process (a worker, a program, a service) reads the same.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from msgspec.structs import asdict

from handrail.kernel.decision import Value
from handrail.kernel.definition.certificate import allowed_targets, may_finish
from handrail.kernel.definition.limits import WAIT_FIELDS
from handrail.kernel.definition.model import REVIEW_STEP_ID, Agent, Task
from handrail.kernel.definition.plan import Plan
from handrail.kernel.run.events import Answered, Asked, Reported
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import PendingApproval, Position, Run, dispatch_id
from handrail.kernel.stop.ledger import Ledger, ResearchScores, find_edge
from handrail.kernel.stop.rules import Nudge
from handrail.store.beads import FileRow
from handrail.views.dispatches import (
    AllowedOutcomes,
    BeadFile,
    Briefing,
    Colleague,
    DispatchBead,
    DispatchView,
    DispatchWait,
    HeldLock,
    RepeatedFailure,
    ResearchGoal,
    TaskBrief,
    UsedLimits,
)
from handrail.views.history import handoff_sequence, human_acts, iterations, last_redirect
from handrail.views.steps import Events, steps
from handrail.views.view_types import Handoff, HumanAct, Iteration, RedirectView, Step


class Bead(Value):
    """The bead of a dispatch. The context is what agents and people have merged into it so far."""

    id: str
    title: str
    description: str = ""
    context: dict[str, Any] = {}


def no_files() -> Sequence[FileRow]:
    """The files of a bead that has none."""
    return ()


class Dispatch:
    """One dispatch. `node` is set in a workflow, `agent` in a team; `past` are the run's events."""

    def __init__(
        self,
        plan: Plan,
        run: Run,
        position: Position,
        load_events: Callable[[], Events],
        load_files: Callable[[], Sequence[FileRow]] = no_files,
    ) -> None:
        self.plan, self.run, self.position, self._load_events, self._load_files = (
            plan,
            run,
            position,
            load_events,
            load_files,
        )

    @property
    def id(self) -> str:
        return dispatch_id(self.run.id, self.position.fence)

    @property
    def execution_id(self) -> str:
        return self.run.id

    @property
    def bead(self) -> Bead:
        run = self.run
        return Bead(
            id=run.bead_id, title=run.title, description=run.description, context=run.context
        )

    @property
    def definition(self) -> str:
        return self.run.definition_id

    @property
    def node(self) -> str:
        return "" if self.plan.kind == "team" else self.position.step_id

    @property
    def agent(self) -> str:
        return self.position.step_id if self.plan.kind == "team" else ""

    @property
    def task(self) -> str:
        return self.position.task

    @property
    def phase(self) -> str:
        return self.run.phase

    @property
    def role(self) -> str:
        return self.position.role

    @property
    def attempt(self) -> int:
        return self.position.faults + 1 if self.plan.kind == "team" else self.position.attempts

    @property
    def step(self) -> int:
        """The number of this step in the whole run, from 1."""
        return self.position.step

    @property
    def max_attempts(self) -> int:
        if self.plan.kind == "team":
            return self.run.limits.protocol_error_limit
        return self.plan.node(self.position.step_id).max_attempts

    @property
    def fence(self) -> int:
        return self.position.fence

    @property
    def lock(self) -> int | None:
        """The fence of the commit lock that this dispatch holds, at a commit node."""
        return self.position.lock

    @property
    def key(self) -> str:
        """Stays the same until a result is reported: for outside effects that must not happen
        twice. A lost attempt may have caused them; the next attempt has the same key."""
        return f"{self.run.id}:{self.position.step_id}:{self.position.result}"

    @property
    def last_refusal(self) -> str:
        """Why this agent's last answer could not be used, if that is why it has the dispatch
        again."""
        return self.position.refusal

    @property
    def nudge(self) -> Nudge | None:
        """A stop rule that is near."""
        return self.position.nudge

    @property
    def concluding(self) -> bool:
        """Whether the run ends after this dispatch: then only the text of its result counts."""
        return self.run.concluding is not None

    @property
    def remaining(self) -> int:
        """The measure: how many events the run may still take without a person."""
        return measure(self.plan, self.run)

    @property
    def allowed(self) -> AllowedOutcomes:
        return _allowed_outcomes(self.plan, self.run, self.position)

    @property
    def wait(self) -> DispatchWait | None:
        """The waits so far, of this visit or of the team's stretch."""
        wait = self.position.wait
        if wait is None:
            return None
        return DispatchWait(since=wait.since, deadline=wait.deadline, count=wait.count)

    @property
    def briefing(self) -> Briefing:
        """Who this agent is, to whom it may turn, and what is counted."""
        return build_briefing(self.plan, self.run, self.position)

    @cached_property
    def events(self) -> Events:
        return self._load_events()

    @cached_property
    def files(self) -> tuple[BeadFile, ...]:
        """The bead's files; the engine provides their contents."""
        return tuple(
            BeadFile(name=row.name, size=row.size, sha256=row.sha256, content_type=row.content_type)
            for row in self._load_files()
        )

    @property
    def history(self) -> tuple[Step, ...]:
        """Every finished step, with its texts in full."""
        return tuple(step for step in steps(self.events) if step.outcome)

    @property
    def iterations(self) -> tuple[Iteration, ...]:
        return iterations(self.events)

    @property
    def handoff_sequence(self) -> tuple[Handoff, ...]:
        return handoff_sequence(self.events)

    @property
    def redirected(self) -> RedirectView | None:
        """Why this agent has the turn, if another was proposed."""
        return last_redirect(self.events)

    @property
    def people(self) -> tuple[HumanAct, ...]:
        return human_acts(self.events)

    @property
    def answer(self) -> str:
        """A person's answer to this agent's own question, if that is why it has the dispatch."""
        return _own_question(self.node or self.agent, self.events)[1]

    @property
    def question(self) -> str:
        """The agent's own question, which `answer` answers."""
        return _own_question(self.node or self.agent, self.events)[0]


def dispatch_view(
    dispatch: Dispatch, lease_expires_at: datetime | None, lock_expires_at: datetime | None
) -> DispatchView:
    """Return a dispatch as it goes over a wire, with the full history."""
    run, position = dispatch.run, dispatch.position
    lock = None
    if position.lock is not None:
        lock = HeldLock(
            repository=position.repository, fence=position.lock, expires_at=lock_expires_at
        )
    return DispatchView(
        id=dispatch.id,
        execution_id=run.id,
        bead=DispatchBead(
            id=run.bead_id,
            title=run.title,
            description=run.description,
            context=run.context,
            files=dispatch.files,
        ),
        definition=dispatch.definition,
        node=dispatch.node or None,
        agent=dispatch.agent or None,
        task=dispatch.task or None,
        phase=dispatch.phase,
        role=dispatch.role,
        attempt=dispatch.attempt,
        max_attempts=dispatch.max_attempts,
        step=dispatch.step,
        fence=dispatch.fence,
        key=dispatch.key,
        lease_expires_at=lease_expires_at,
        history=dispatch.history,
        iterations=dispatch.iterations,
        handoff_sequence=dispatch.handoff_sequence,
        people=dispatch.people,
        last_refusal=dispatch.last_refusal or None,
        answer=dispatch.answer or None,
        allowed=dispatch.allowed,
        lock=lock,
        remaining=dispatch.remaining,
        briefing=dispatch.briefing,
        question=dispatch.question or None,
        redirected=dispatch.redirected,
        nudge=dispatch.nudge,
        concluding=dispatch.concluding,
        wait=dispatch.wait,
    )


def result_text(approval: PendingApproval, events: Events) -> str:
    """The text that an approval is about, in full."""
    event = events[approval.result - 1] if approval.result else None
    return event.result.text if isinstance(event, Reported) else ""


def _own_question(step_id: str, events: Events) -> tuple[str, str]:
    """The question that the agent at this step asked after its last result, and its answer."""
    question, answer, own_approval = "", "", None
    for event in events:
        if isinstance(event, Reported) and event.step_id == step_id:
            question, answer = "", ""
        elif isinstance(event, Asked) and event.approval.own:
            own_approval = event.approval if event.approval.step_id == step_id else own_approval
        elif (
            isinstance(event, Answered)
            and own_approval is not None
            and event.approval_id == own_approval.id
        ):
            question, answer = own_approval.text, event.text or event.decision
    return question, answer


def _allowed_outcomes(plan: Plan, run: Run, position: Position) -> AllowedOutcomes:
    if plan.kind == "workflow":
        config = plan.node(position.step_id).config
        multi_dispatch = ("continue",) if config.multi_dispatch else ()
        used = position.wait.count if position.wait is not None else 0
        waiting = ("waiting",) if used < config.max_waits else ()
        return AllowedOutcomes(outcomes=("success", "failure", *multi_dispatch, "ask", *waiting))
    agent = plan.agents[position.step_id]
    task = next((task for task in agent.tasks if task.id == position.task), None)
    to = allowed_targets(plan.team, agent, to_review=True)
    if task is not None and task.is_narrow:
        to = (task.then,) if task.then else ()
    handoff = ("handoff",) if to else ()
    may_end = may_finish(plan.team, agent) and not (task is not None and task.then)
    terminate = ("terminate",) if may_end else ()
    waiting = ("waiting",) if run.ledger.waits < run.limits.max_waits else ()
    return AllowedOutcomes(
        outcomes=(*handoff, *terminate, "failure", "ask", *waiting),
        to=to,
        marker=agent.marker if task is not None and task.once and task.milestone else "",
    )


_NON_NUMERIC_LIMITS = ("budgets", "constraints", "tool_limits", "evidence", "ladder", "profile")


def build_briefing(plan: Plan, run: Run, position: Position) -> Briefing:
    """Build the briefing for the agent that has this dispatch."""
    ledger, limits = run.ledger, run.limits
    fields: dict[str, Any] = {
        "kind": plan.kind,
        "name": plan.definition.name,
        "about": plan.definition.description,
        "facts": _context_names(plan),
        "limits": {
            name: value
            for name, value in asdict(limits).items()
            if value is not None
            and name not in _NON_NUMERIC_LIMITS
            and (name not in WAIT_FIELDS or limits.has_effect(name))
        },
        "constraints": limits.constraints,
        "tool_limits": limits.tool_limits,
        "profile": limits.profile,
        "used": UsedLimits(
            steps=ledger.steps - ledger.steps_before,
            handoffs=ledger.handoffs - ledger.handoffs_before,
            tokens=ledger.tokens,
            cost=float(ledger.cost),
        ),
        "last_progress_step": ledger.last_progress_step,
        "research": _research(ledger),
        "failing": _repeated_failures(ledger),
        "unchanged": ledger.idle.count,
        "returned": ledger.returns.count,
    }
    if plan.kind == "workflow":
        return Briefing(you=plan.node(position.step_id).description, **fields)
    return Briefing(**fields, **_team_fields(plan, run, plan.agents[position.step_id]))


def _context_names(plan: Plan) -> tuple[str, ...]:
    declared: object = plan.definition.metadata.get("context")
    names = cast("list[object]", declared) if isinstance(declared, list | tuple) else []
    return tuple(name for name in names if isinstance(name, str))


def _team_fields(plan: Plan, run: Run, agent: Agent) -> dict[str, Any]:
    team = plan.team
    return {
        "you": agent.description,
        "marker": agent.marker,
        "tasks": _tasks(agent, run),
        "colleagues": tuple(
            _colleague(plan, run, agent, to) for to in plan.handoff_targets[agent.id]
        ),
        "terminator": team.terminator,
        "review": team.review is not None and (team.review.required or run.review == "required"),
    }


def _colleague(plan: Plan, run: Run, source: Agent, to: str) -> Colleague:
    edge = find_edge(run.ledger, source.id, to)
    is_current = edge is not None and edge.epoch == run.ledger.epoch
    handed = edge.count if edge is not None and is_current else 0
    if to == REVIEW_STEP_ID and plan.team.review is not None:
        return Colleague(
            id=to,
            description="A person, who approves the result or says what to change.",
            marker="",
            tasks=(),
            handed=handed,
        )
    other = plan.agents[to]
    return Colleague(
        id=to,
        description=other.description,
        marker=other.marker,
        tasks=_tasks(other, run),
        handed=handed,
    )


def _tasks(agent: Agent, run: Run) -> tuple[TaskBrief, ...]:
    def brief(task: Task) -> TaskBrief:
        return TaskBrief(
            id=task.id,
            description=task.description,
            when=task.when,
            milestone=task.milestone,
            once=task.once,
            ends=task.ends,
            then=task.then,
            done=f"{agent.id}/{task.id}" in run.done,
        )

    return tuple(brief(task) for task in agent.tasks)


def _research(ledger: Ledger) -> tuple[ResearchGoal, ...]:
    """The research goals: a measured score counts before a claimed one."""
    research_by_goal: dict[str, ResearchScores] = {
        **ledger.claimed.research,
        **ledger.measured.research,
    }
    return tuple(
        ResearchGoal(goal=goal, best=float(research.best), in_vain=research.stale.count)
        for goal, research in research_by_goal.items()
    )


def _repeated_failures(ledger: Ledger) -> tuple[RepeatedFailure, ...]:
    return tuple(
        RepeatedFailure(signature=signature, count=error.seen.count)
        for signature, error in ledger.errors.items()
        if error.epoch == ledger.epoch and error.seen.count
    )

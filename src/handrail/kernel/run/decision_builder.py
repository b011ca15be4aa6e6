"""The decision builder: collects events and applies each at once, so that later parts of the same
decision see their effect. From outside, decide stays a pure function.

At the end it derives the effects, which the shell performs after the commit, from the run before
and after.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from handrail.kernel.decision import Value
from handrail.kernel.definition.condition import ConditionBudget, ConditionResult
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.result import Result
from handrail.kernel.run.events import (
    Asked,
    Claimed,
    Ended,
    Faulted,
    HandedOff,
    Lost,
    Moved,
    Offered,
    Reported,
    RunEvent,
    TimedOut,
    Warned,
    nudge_event,
)
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.shared_budgets import add_usage, budget_changes, waits_without_budget
from handrail.kernel.run.state import (
    CLAIMED,
    ENGINE_KEYS,
    OFFERED,
    STOP_OPTIONS,
    ApprovalKind,
    PendingApproval,
    Position,
    PositionPhase,
    Run,
    Stop,
    build_stop,
    goal_command,
    stop_question,
    to_timedelta,
)
from handrail.kernel.stop.budgets import BudgetState
from handrail.kernel.stop.early_warnings import (
    ON_HANDOFF,
    ON_RESULT,
    WarningJudges,
    judge_warnings,
)
from handrail.kernel.stop.ladder import Judge, is_due, judge_early, may_ask, may_conclude
from handrail.kernel.stop.ledger import assess_result, find_edge, short_key
from handrail.kernel.stop.rules import (
    FiredRule,
    Nudge,
    RuleContext,
    judge_call,
    judge_handoff,
    judge_result,
    judge_step,
    terminal_status_of,
)

_encode = msgspec.json.Encoder(order="deterministic").encode


class DecisionBuilder:
    _condition_budget: ConditionBudget | None = None
    _nudges: tuple[Nudge, ...] = ()
    """Rules that are near, to be recorded if the run goes on."""

    def __init__(
        self,
        plan: Plan,
        run: Run | None,
        now: datetime,
        budgets: tuple[BudgetState, ...] = (),
    ) -> None:
        self.plan, self.now, self.budgets = plan, now, budgets
        """`budgets`: what is known of those that the run's definition names."""
        self._ledger_before = None if run is None else run.ledger
        self.run: Run = run  # pyright: ignore[reportAttributeAccessIssue] - none until Started
        self.events: list[RunEvent] = []
        self.fault = ""
        """Why the result of this decision is unusable."""

    def evaluate(self, expression: str, context: Mapping[str, Any]) -> ConditionResult:
        """Evaluate a condition on what this decision may spend on all of its conditions."""
        self._condition_budget = self._condition_budget or ConditionBudget()
        return self.plan.evaluate(expression, context, self._condition_budget)

    def emit(self, event: RunEvent) -> None:
        self.run = evolve(self.run, event)
        self.events.append(event)

    def emit_result(self, event: Reported | Faulted) -> None:
        """Record a result; warn of the first claim of a stretch that is no progress (K32)."""
        self.emit(event)
        if event.weighed.claim_refused:
            reason = "stop_rules.evidence is 'measured'"
            if self.run.limits.evidence == "claims":
                reason = "it repeats another, or such claims were progress often enough"
            self.warn(
                "claim_not_counted",
                f"what '{event.agent}' claims is no progress: {reason}; let Handrail measure it, "
                "by a verifier whose evidence is measured",
                event.step_id,
            )

    def warn(self, code: str, message: str, step_id: str = "") -> None:
        self.emit(Warned(at=self.now, code=code, message=message, step_id=step_id))

    def record_nudges(self) -> None:
        """Record which rules are near, for the next dispatch. A run that ends is not nudged."""
        for nudge in self._nudges:
            if is_due(self.run.ledger, nudge):
                self.emit(nudge_event(self.now, nudge))
        self._nudges = ()

    def _judge_early(self, judge: Judge, ctx: RuleContext) -> list[FiredRule]:
        """Return the rules that end the run, of those that fire early, and note those near."""
        nudges: list[Nudge] = []
        fired = judge_early(judge, ctx, nudges)
        self._nudges += tuple(nudges)
        return fired

    def judge_step(self) -> list[FiredRule]:
        run = self.run
        ctx = RuleContext(
            run.ledger,
            run.limits.early,
            step=run.ledger.steps,
            ran=run.ran,
            ran_since=run.ran_since,
            now=self.now,
            stops=run.limits,
        )
        return self._judge_early(judge_step, ctx) if judge_step(ctx) else []

    def record_budgets(self) -> None:
        """Record what is known of the budgets that the definition names, where that decides."""
        states = add_usage(self.budgets, self._ledger_before, self.run.ledger)
        for event in budget_changes(self.run, states, self.now):
            self.emit(event)

    def end_if_spent(self) -> None:
        """End a run that only waits for agents if one of its budgets is spent."""
        run = self.run
        if waits_without_budget(run):
            ctx = RuleContext(run.ledger, run.limits, step=run.ledger.steps)
            self.stop(judge_call(ctx), run.final_agent)

    def judge_result(
        self, agent: str, result: Result, step: int, waited: float | None = None
    ) -> list[FiredRule]:
        run = self.run
        ctx = RuleContext(
            run.ledger,
            run.limits.early,
            agent=agent,
            evidence=result.evidence,
            step=step,
            stops=run.limits,
            waited=waited,
        )
        fired = self._judge_early(judge_result, ctx) if judge_result(ctx) else []
        return fired or self._warn_early(ON_RESULT, ctx)

    def judge_handoff(self, source: str, target: str) -> list[FiredRule]:
        run = self.run
        ctx = RuleContext(
            run.ledger,
            run.limits.early,
            source=source,
            target=target,
            edge=find_edge(run.ledger, source, target),
            stops=run.limits,
        )
        fired = self._judge_early(judge_handoff, ctx) if judge_handoff(ctx) else []
        return fired or self._warn_early(ON_HANDOFF, ctx)

    def _warn_early(self, judges: WarningJudges, ctx: RuleContext) -> list[FiredRule]:
        """Record the warnings that are due where no rule fired; they stop nothing."""
        if not ctx.limits.judges_findings:
            return []
        for warning in judge_warnings(judges, ctx):
            self.warn(warning.code, warning.message, ctx.source or ctx.agent)
        return []

    def offer_dispatch(self, position: Position, role: str, lock: int | None = None) -> None:
        """Offer the next dispatch of the position; end the run if no step is left."""
        if self.budgets:
            self.record_budgets()
        fired = self.judge_step()
        if fired:
            self.stop(fired, self.run.final_agent)
            return
        if self._nudges:
            self.record_nudges()
        self._offer(position, role, lock)

    def _offer(
        self,
        position: Position,
        role: str,
        lock: int | None = None,
        concluding: Stop | None = None,
    ) -> None:
        repositories = self.plan.commit_repositories
        self.emit(
            Offered(
                at=self.now,
                step_id=position.step_id,
                fence=self.run.fence + 1,
                attempt=position.attempts + 1,
                role=role,
                lock=lock,
                repository="" if lock is None else repositories.get(position.step_id, "default"),
                concluding=concluding,
            )
        )

    def stop(self, fired: list[FiredRule], agent: str) -> None:
        """End the run by the first of the rules that fired, in the order of the table; perhaps
        after a conclusion. A run that concludes already ends by the rule that stopped it."""
        if self.run.concluding is not None:
            self.end(self.run.concluding)
            return
        stop = build_stop(fired, agent, self.run.ledger, self.run.limits.profile)
        if self._may_ask(fired):
            self._ask_to_go_on(stop)
            return
        position, self._nudges = self._concluding_position(fired), ()
        if position is None:
            self.end(stop)
        else:
            role = self.plan.agents[position.step_id].effective_role
            self._offer(position, role, concluding=stop)

    def end(self, stop: Stop, by: str = "") -> None:
        status = terminal_status_of(stop.rule, goal_met=is_goal_met(self.run))
        self.emit(Ended(at=self.now, status=status, stop=stop, by=by))

    def _may_ask(self, fired: list[FiredRule]) -> bool:
        run = self.run
        return (
            run.limits.ladder.ask
            and not self.plan.is_guarded
            and next(iter(run.positions)) in self.plan.agents
            and may_ask(run.limits, fired, self.judge_step())
        )

    def _ask_to_go_on(self, stop: Stop) -> None:
        """Ask a person whether the team goes on, in a new stretch, or ends by this stop."""
        (position,) = self.run.positions.values()
        text, self._nudges = stop_question(stop), ()
        self.open_approval(position, ApprovalKind.ESCALATION, text, options=STOP_OPTIONS, stop=stop)

    def _concluding_position(self, fired: list[FiredRule]) -> Position | None:
        """Return where a stopped team concludes: None if it may not, or has no step, no money or
        no time left for it (K29)."""
        run = self.run
        if not run.limits.ladder.conclude or self.plan.is_guarded or run.paused_at is not None:
            return None
        steps = run.ledger.steps - run.ledger.steps_before
        if not may_conclude(run.limits, steps, [*fired, *self.judge_step()]):
            return None
        (position,) = run.positions.values()
        return position if position.step_id in self.plan.agents else None

    def record_fault(
        self, position: Position, code: str, message: str, result: Result
    ) -> list[FiredRule]:
        """Record an unusable answer, which costs the attempt, and judge its evidence all the same.

        Return the rules that fired.
        """
        run, self.fault = self.run, message
        agent = position.step_id if run.kind == "team" else position.agent
        self.emit_result(
            Faulted(
                at=self.now,
                step_id=position.step_id,
                fence=position.fence,
                agent=position.agent,
                fault=code,
                message=message,
                result=result,
                weighed=assess_result(
                    run.ledger,
                    run.limits,
                    agent,
                    result.evidence,
                    task=position.task,
                    paths=expected_paths(run, result),
                ),
            )
        )
        return self.judge_result(agent, result, position.step)

    def open_approval(
        self,
        position: Position,
        kind: ApprovalKind,
        text: str,
        *,
        deadline_seconds: float | None = None,
        approvers: tuple[str, ...] = (),
        quorum: int = 1,
        barred: tuple[str, ...] = (),
        own: bool = False,
        options: tuple[str, ...] = (),
        status: TerminalStatus = TerminalStatus.DONE_SUCCESS,
        remaining: tuple[str, ...] = (),
        stop: Stop | None = None,
    ) -> None:
        run = self.run
        wait_seconds = (
            self.plan.settings.human_deadline if deadline_seconds is None else deadline_seconds
        )
        approval = PendingApproval(
            id=f"{run.id}.q{run.approvals_opened + 1}",
            kind=kind,
            step_id=position.step_id,
            text=text,
            digest=approval_digest(run, text, position.result),
            asked_at=self.now,
            deadline=self.now + to_timedelta(wait_seconds),
            approvers=approvers,
            quorum=quorum,
            barred=barred,
            result=position.result,
            own=own,
            options=options,
            status=status,
            remaining=remaining,
            stop=stop,
        )
        self.emit(Asked(at=self.now, approval=approval))


def approval_digest(run: Run, text: str, result_seq: int) -> str:
    """Hash the shown content: the text, the result, and the bead without the engine's keys."""
    context = {key: value for key, value in run.context.items() if key not in ENGINE_KEYS}
    content = [text, result_seq, run.title, run.description, context]
    return hashlib.sha256(_encode(content)).hexdigest()


def is_goal_met(run: Run) -> bool:
    """Whether the bead's functional goal, a command, passed when last seen (S13).

    Handrail's own measurement wins over an agent's claim.
    """
    command = short_key(goal_command(run.context))
    if not command:
        return False
    measured, claimed = run.ledger.measured.checks, run.ledger.claimed.checks
    return (measured if command in measured else claimed).get(command) == ""


def expected_paths(run: Run, result: Result) -> frozenset[str] | None:
    """Return the paths that existed at the start and those the task names; None if the paths at
    the start are unknown, or the result has no files."""
    if run.paths is None or not result.evidence.files:
        return None
    words = f"{run.title} {run.description}".replace("`", " ").replace("'", " ").split()
    return frozenset({*run.paths, *(word.strip('.,:;()"') for word in words)})


def first_line(text: str) -> str:
    for line in text.splitlines():
        if stripped := line.strip():
            return stripped[:200]
    return ""


class CancelDispatch(Value):
    """Tell the agent to stop: its dispatch no longer counts (H5.5)."""

    fence: int
    agent: str


class AcquireLock(Value):
    """Queue for the repository's commit lock."""

    step_id: str
    repository: str
    attempt: int


class ReleaseLock(Value):
    step_id: str
    repository: str
    lock: int


RunEffect = CancelDispatch | AcquireLock | ReleaseLock
EVENTS_WITHOUT_EFFECTS = frozenset({Offered, Claimed, Reported, HandedOff, Moved, Warned})
"""Most decisions have no others: one dispatch returned, the next one was offered."""
OPEN_PHASES = (OFFERED, CLAIMED)
UNQUEUED_PHASES = (*OPEN_PHASES, PositionPhase.ASKED)
"""Phases in which a position does not wait for a commit lock."""


def derive_effects(
    plan: Plan, before: Run | None, after: Run, events: list[RunEvent]
) -> tuple[RunEffect, ...]:
    if (
        before is not None
        and len(before.positions) == 1  # no branch that could be cancelled
        and before.stretch == after.stretch  # no person moved the run
        and not plan.commit_repositories
        and EVENTS_WITHOUT_EFFECTS.issuperset(map(type, events))
    ):
        return ()
    run_effects: list[RunEffect] = []
    positions_before = before.positions.values() if before is not None else ()
    for position in positions_before:
        if position.phase in OPEN_PHASES and _is_cancelled(position, after, events):
            run_effects.append(CancelDispatch(fence=position.fence, agent=position.agent))
    for position in positions_before:
        if position.lock is not None and after.find_position(position.fence) is None:
            run_effects.append(
                ReleaseLock(
                    step_id=position.step_id, repository=position.repository, lock=position.lock
                )
            )
    if plan.commit_repositories:
        run_effects.extend(_lock_requests(plan, before, after))
    return tuple(run_effects)


def _is_cancelled(position: Position, after: Run, events: list[RunEvent]) -> bool:
    """Whether the dispatch timed out, or is no longer open and did not return by itself."""
    returned = False
    for event in events:
        if type(event) is Reported or type(event) is Lost:
            returned = returned or event.fence == position.fence
        elif type(event) is TimedOut and event.fence == position.fence:
            return True
    return not returned and after.find_position(position.fence) is None


def _lock_requests(plan: Plan, before: Run | None, after: Run) -> Iterator[RunEffect]:
    positions_before = before.positions if before is not None else {}
    resumed = before is not None and before.paused_at is not None
    for step_id, position in after.positions.items():
        repository = plan.commit_repositories.get(step_id)
        if repository is None or position.phase in UNQUEUED_PHASES or after.paused_at is not None:
            continue
        position_before = positions_before.get(step_id)
        is_waiting_already = (
            not resumed
            and position_before is not None
            and position_before.since == position.since
            and position_before.phase not in UNQUEUED_PHASES
        )
        if not is_waiting_already:
            yield AcquireLock(step_id=step_id, repository=repository, attempt=position.attempts + 1)

"""The invariant checker: watches a run from outside and raises at what must never happen.

The checker gives the state machine a command, keeps its own records from the resulting events
(dispatches, attempts, approvals, counters), and compares. A deviation is an
`InvariantViolationError` that names the rule. The records share no code with `evolve`, so the two
can disagree.

Rules checked after every event (docs/requirements.md):

- the measure falls, except for records and acts of people; these have their allotments (K14, K16);
  it is 0 exactly at the end (K26)
- fences grow, a step has one open dispatch, and only its holder reports on it (K2, K21)
- attempts stay within `max_attempts` of the visit (K1), waits within `max_waits` (K31), and every
  figure of a stretch within the certificate (K14, K23)
- an answer settles an open approval in time, from a person with the right to give it (design 6)
- only the terminator ends a team, apart from rules and people (H5)
- a handoff leads elsewhere only where the definition says so, once a stretch for each edge (K30)

and after every decision: a refusal changed nothing (except clocks that were due anyway), the
previous state was not modified, an ended run stays unchanged, every wait has a deadline, no work
begins beyond the running time, and effects tell the outside world what it must know.
"""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar, cast

import msgspec

from handrail.kernel.definition.model import REVIEW_STEP_ID, NodeType, TerminalStatus
from handrail.kernel.definition.plan import Plan
from handrail.kernel.result import Outcome
from handrail.kernel.run import commands as c
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import RunDecision, decide
from handrail.kernel.run.decision_builder import (
    AcquireLock,
    CancelDispatch,
    ReleaseLock,
)
from handrail.kernel.run.events import (
    NUDGED,
    Answered,
    Asked,
    Claimed,
    ClocksPushed,
    Ended,
    Faulted,
    HandedOff,
    HeardOf,
    Lost,
    Migrated,
    Moved,
    Offered,
    Patched,
    Paused,
    Reasked,
    Reported,
    Resumed,
    RunEvent,
    Started,
    TimedOut,
    Warned,
)
from handrail.kernel.run.evolve import evolve, replay
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import (
    ApprovalKind,
    PendingApproval,
    Person,
    PositionPhase,
    Run,
    RunStatus,
)
from handrail.kernel.run.team import needs_review
from handrail.kernel.stop.budgets import BudgetPeriod, BudgetState
from handrail.kernel.stop.ladder import NUDGES_MAX
from handrail.kernel.stop.rules import StopRule

BOUND_FIGURES = ("dispatches", "handoffs", "transitions", "questions", "asks")
ROLE_LEVELS = ("viewer", "operator", "ceo", "admin")
MEASURE_LOWERING_COMMANDS = (c.GrantLock, c.Claim, c.Report, c.Lose, c.MissRole, c.Tick)
"""Commands of agents and of time: as a whole they lower the measure if they change anything."""
STATUSES_BY_RULE = {
    StopRule.CLOSED: {TerminalStatus.CLOSED_BY_HUMAN},
    StopRule.TERMINATED: {TerminalStatus.DONE_SUCCESS, TerminalStatus.DONE_PARTIAL},
    StopRule.CONSTRAINT: {TerminalStatus.ABORTED_CONSTRAINT},
    StopRule.BUDGET: {TerminalStatus.ABORTED_CONSTRAINT},
    StopRule.COMPLETED: {
        TerminalStatus.DONE_SUCCESS,
        TerminalStatus.DONE_PARTIAL,
        TerminalStatus.ABORTED_STUCK,
    },
}
OPEN_PHASES = (PositionPhase.OFFERED, PositionPhase.CLAIMED)
STUCK_STATUSES = {TerminalStatus.ABORTED_STUCK, TerminalStatus.DONE_PARTIAL}

encode = msgspec.json.Encoder(order="deterministic").encode
decode_event = cast(
    "Callable[[bytes], RunEvent]", msgspec.json.Decoder(cast("type[Any]", RunEvent)).decode
)


class InvariantViolationError(AssertionError):
    """Something happened that must never happen."""


def expect(holds: bool, rule: str, detail: object = "") -> None:
    if not holds:
        raise InvariantViolationError(f"{rule}: {detail}" if detail != "" else rule)


class Visit:
    """The checker's record of one visit to a node, or of one agent's work in a team."""

    def __init__(self) -> None:
        self.attempts = 0
        self.waits = 0
        self.fence = 0
        """The fence of the open dispatch; 0 if there is none."""
        self.agent = ""

    def close(self) -> None:
        self.fence, self.agent = 0, ""


class InvariantChecker:
    """Checks one run, which accepts commands only through `apply_command`."""

    budget_per: BudgetPeriod = "day"
    """The period of the budgets that are known."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.current_run: Run | None = None
        self.events: list[RunEvent] = []
        self.stored_events: list[bytes] = []
        self.measure = 0
        self.stretches = 1
        self.visits: dict[str, Visit] = {}
        self.open_approvals: dict[str, tuple[str, ...]] = {}
        """Open approvals, and who has approved each."""
        self.counts: Counter[str] = Counter()
        self.redirected: set[tuple[str, str]] = set()
        self.fence = 0
        self.steps_seeking_lock: set[str] = set()
        """Commit nodes that requested the lock."""
        self._bounds: dict[str, int] = {}
        self._acting_person: Person | None = None
        self._last_report: Reported | None = None
        self._snapshot: Run | None = None
        self._snapshot_events = 0

    @property
    def run(self) -> Run:
        assert self.current_run is not None, "the run has been started"
        return self.current_run

    def apply_command(
        self, command: c.RunCommand, now: datetime, budgets: tuple[BudgetState, ...] = ()
    ) -> RunDecision:
        """Give the state machine a command and check its decision."""
        before = self.current_run
        encoded_before = encode(before)
        due = None if before is None else next_due(self.plan, before)
        decision = decide(self.plan, before, command, now, budgets)
        expect(encode(before) == encoded_before, "decide changes none of its arguments")
        self._acting_person = getattr(command, "by", None)
        self._last_report = None
        if before is not None:
            self._check_refusal(before, command, decision, now, due, budgets)
        measure_before = self.measure
        for event in decision.events:
            self._apply_event(event)
        if self.current_run is not None:
            self._check_decision(before, command, decision, now, measure_before)
        return decision

    # After every event

    def _apply_event(self, event: RunEvent) -> None:
        before, measure_before = self.current_run, self.measure
        if before is not None:
            expect(not before.has_ended, "nothing happens after the end", event)
        stored = encode(event)
        decoded = decode_event(stored)
        expect(decoded == event, "an event is stored as it is", stored)
        expect(encode(decoded) == stored, "an event read is written byte for byte", stored)
        self.CHECKS[type(event)](self, event)
        self.current_run = after = evolve(before, event)
        self.events.append(event)
        self.stored_events.append(stored)
        expect(after.seq == len(self.events), "events are numbered without gaps", after.seq)
        self.measure = measure(self.plan, after)
        expect(
            (self.measure == 0) == after.has_ended,
            "the measure is 0 exactly at the end",
            self.measure,
        )
        expect(set(after.positions) == set(self.visits), "tokens stand where the events say", event)
        expect(
            set(after.pending_approvals) == set(self.open_approvals),
            "questions are open as the events say",
            event,
        )
        if before is not None:
            self._check_measure(before, event, measure_before)

    def _check_measure(self, before: Run, event: RunEvent, measure_before: int) -> None:
        rise = self.measure - measure_before
        if isinstance(event, Warned | ClocksPushed | HeardOf | Patched):
            expect(rise == 0, "a record leaves the measure as it is", event)
        elif isinstance(event, HandedOff) and not event.accepted:
            expect(rise == 0, "a refused handoff leaves the measure as it is", event)
        elif isinstance(event, Migrated):
            return  # the following move raises the measure
        elif isinstance(event, Moved) and event.renews:
            measure_max = self._fresh_measure() + (1 if before.paused_at is not None else 0)
            expect(
                self.measure <= measure_max, "a person's act grants no more than a fresh run", event
            )
        elif isinstance(event, Paused):
            expect(rise <= 1, "a pause raises the measure by its own two events", event)
        elif isinstance(event, Reasked):
            approvals_lost = len(before.pending_approvals[event.approval_id].approved_by)
            expect(
                rise <= max(1, approvals_lost), "asking again grants only the answers again", event
            )
        else:
            expect(
                rise < 0,
                f"the measure falls with {type(event).__name__}",
                (measure_before, self.measure),
            )

    def _fresh_measure(self) -> int:
        """Return the measure of a run that starts now, under the limits of this run."""
        run, plan = self.run, self.plan
        step_id = plan.team.start if plan.kind == "team" else plan.graph.nodes[plan.graph.start].id
        start = Started(
            at=run.started_at,
            run_id=run.id,
            bead_id=run.bead_id,
            definition_id=run.definition_id,
            version=run.version,
            kind=run.kind,
            step_id=step_id,
            limits=run.limits,
        )
        return measure(plan, evolve(None, start))

    def _set_bounds(self, task_scope: object) -> None:
        bound = self.plan.bound(task_scope)
        self._bounds = {figure: getattr(bound, figure) for figure in BOUND_FIGURES}

    def _count_figure(self, figure: str) -> None:
        self.counts[figure] += 1
        count, count_max = self.counts[figure], self._bounds[figure]
        expect(
            count <= count_max,
            f"{figure} of a stretch stay within the certificate",
            (count, count_max),
        )

    def _on_started(self, event: Started) -> None:
        expect(self.current_run is None, "a run starts once")
        self._set_bounds(event.context.get("task_scope"))
        self.visits = {event.step_id: Visit()}

    def _on_offered(self, event: Offered) -> None:
        visit = self.visits[event.step_id]
        expect(event.fence > self.fence, "fences grow over the whole run", event)
        expect(visit.fence == 0, "at most one dispatch is open at a place", event)
        expect(self.run.paused_at is None, "nothing is offered in a pause", event)
        position = self.run.positions[event.step_id]
        if position.phase is PositionPhase.WAITING and position.wait is not None:
            expect(position.wait.not_before <= event.at, "a wait takes its time", event)
        visit.attempts += 1
        expect(event.attempt == visit.attempts, "attempts are counted per visit", event)
        if self.plan.kind == "workflow":
            node = self.plan.node(event.step_id)
            expect(node.type is NodeType.TASK, "only tasks are dispatched", event)
            expect(visit.attempts <= node.max_attempts, "attempts stay within their limit", event)
            has_lock = event.lock is not None
            expect(has_lock == (node.config.kind == "commit"), "a commit needs the lock", event)
        self.fence = visit.fence = event.fence
        self._count_figure("dispatches")
        expect(self.run.concluding is None, "nothing is offered after a conclusion", event)
        allowed = event.concluding is None or self.run.limits.ladder.conclude
        expect(allowed, "a run concludes where it may", event)

    def _on_claimed(self, event: Claimed) -> None:
        visit = self.visits[event.step_id]
        expect(visit.fence == event.fence and not visit.agent, "only an offer is claimed", event)
        expect(self.run.paused_at is None, "nothing is claimed in a pause", event)
        visit.agent = event.agent

    def _on_returned(self, event: Reported | Faulted | Lost) -> None:
        visit = self.visits[event.step_id]
        is_holder = visit.fence == event.fence != 0 and visit.agent == event.agent != ""
        expect(is_holder, "only the holder of an open dispatch answers it", event)
        visit.close()
        if isinstance(event, Reported):
            self._last_report = event
            self._check_wait(visit, event)

    def _check_wait(self, visit: Visit, event: Reported) -> None:
        """Check that a wait is one of those that are allowed, and begins before its deadline."""
        wait = event.wait
        if wait is None:
            return
        visit.attempts -= 1
        visit.waits += 1
        self.counts["waits"] += 1
        allowed, count = self.run.limits.max_waits, self.counts["waits"]
        if self.plan.kind == "workflow":
            allowed, count = self.plan.node(event.step_id).config.max_waits, visit.waits
        expect(count <= allowed, "waits stay within their limit", event)
        expect(wait.count == count, "waits are counted per visit, or per stretch", event)
        paused_for = max(event.at - (self.run.paused_at or event.at), timedelta(0))
        expect(event.at < wait.deadline + paused_for, "no wait begins past its deadline", event)
        expect(wait.not_before > event.at, "a wait takes time", event)

    def _on_timed_out(self, event: TimedOut) -> None:
        visit = self.visits[event.step_id]
        is_claimed = visit.agent != ""
        expect(
            is_claimed == (event.clock == "work"), "the clock that ran is the one that fires", event
        )
        visit.close()

    def _on_handed_off(self, event: HandedOff) -> None:
        if not event.accepted:
            return
        expect(self._last_report is not None, "a handoff follows a result", event)
        holds = self.run.positions[event.source].task
        for task in self.plan.agents[event.source].tasks:
            if task.id == holds:
                ends = event.target == REVIEW_STEP_ID and self.plan.team.review is not None
                expect(ends or not task.ends, "a task that ends the run is not handed on", event)
                expect(task.then in ("", event.target), "a task leads where it says", event)
        for target, other in pairwise((*event.proposed, event.target)):
            edge = (event.source, target)
            ways = self.plan.agents[event.source].when_exhausted
            expect(ways.get(target) == other, "a redirect is what the definition names", event)
            expect(edge not in self.redirected, "an edge leads elsewhere once a stretch", event)
            self.redirected.add(edge)
        self._count_figure("handoffs")
        self._count_figure("transitions")
        self.visits = {event.source if event.already_done else event.target: Visit()}

    def _on_moved(self, event: Moved) -> None:
        if event.renews:
            person = self._acting_person
            allowed = (
                person is not None
                and person.name == event.by
                and ROLE_LEVELS.index(person.role) >= 1
            )
            expect(allowed, "only a person opens a new stretch", event)
            self.counts.clear()
            self.redirected.clear()
            self.stretches += 1
        else:
            self._count_figure("transitions")
        left_steps = {event.source, *event.cancels}
        for step_id in left_steps & set(self.visits):
            del self.visits[step_id]
        for step_id in event.enters:
            self.visits[step_id] = Visit()
        self.open_approvals = {
            approval_id: approved_by
            for approval_id, approved_by in self.open_approvals.items()
            if self._step_of_approval(approval_id) not in left_steps
        }

    def _step_of_approval(self, approval_id: str) -> str:
        return self.run.pending_approvals[approval_id].step_id

    def _on_asked(self, event: Asked) -> None:
        approval = event.approval
        expect(self.visits[approval.step_id].fence == 0, "who asks works on nothing", event)
        expect(approval.deadline >= event.at, "a question has a deadline", event)
        self.open_approvals[approval.id] = ()
        self._count_figure("asks" if approval.own else "questions")

    def _on_answered(self, event: Answered) -> None:
        run = self.run
        expect(event.approval_id in self.open_approvals, "only an open question is answered", event)
        approval, approved_by = (
            run.pending_approvals[event.approval_id],
            self.open_approvals[event.approval_id],
        )
        paused_for = max(event.at - (run.paused_at or event.at), timedelta(0))  # pushed: later
        expect(
            event.at < approval.deadline + paused_for, "an expired question is not answered", event
        )
        person = self._acting_person
        expect(
            person is not None and person.name == event.by, "the person who answers is named", event
        )
        assert person is not None
        expect(
            may_answer(approval, person), "nobody answers without the right to", (person, approval)
        )
        expect(person.name not in approved_by, "each person approves once", event)
        is_final = event.decision != "approve" or len(approved_by) + 1 >= approval.quorum
        expect(is_final == event.final, "M of N approvals settle a question", event)
        if is_final:
            del self.open_approvals[event.approval_id]
        else:
            self.open_approvals[event.approval_id] = (*approved_by, person.name)

    def _on_reasked(self, event: Reasked) -> None:
        old, new = self.run.pending_approvals[event.approval_id], event.approval
        expect(new.deadline == old.deadline, "a question asked again keeps its deadline", event)
        expect(new.digest != old.digest and not new.approved_by, "it is asked afresh", event)
        del self.open_approvals[old.id]
        self.open_approvals[new.id] = ()

    def _on_migrated(self, event: Migrated) -> None:
        self._set_bounds(self.run.context.get("task_scope"))

    def _on_warned(self, event: Warned) -> None:
        if event.nudge is None:
            return
        ledger = self.run.ledger
        expect(self.run.limits.ladder.nudge, "nobody is nudged where nudges are off", event)
        expect(event.nudge.rule not in ledger.nudged, "a rule nudges once in an epoch", event)
        self.counts[NUDGED] += 1
        expect(self.counts[NUDGED] <= NUDGES_MAX, "a stretch has few nudges", event)

    def _on_other(self, event: RunEvent) -> None:
        """Ignore an event that changes none of the checker's records."""

    def _on_ended(self, event: Ended) -> None:
        rule = event.stop.rule
        expect(
            event.status in STATUSES_BY_RULE.get(rule, STUCK_STATUSES),
            "rule and status agree",
            event,
        )
        if self.plan.kind == "team" and rule in (StopRule.TERMINATED, StopRule.COMPLETED):
            self._check_terminator(event)
        self.visits, self.open_approvals = {}, {}

    def _check_terminator(self, event: Ended) -> None:
        team, report = self.plan.team, self._last_report
        if report is None:
            expect(bool(event.by), "somebody ended the run", event)
            return
        is_reviewed = team.review is not None and report.step_id in team.review.after
        is_terminator = report.step_id == team.terminator
        if event.stop.rule is StopRule.TERMINATED:
            is_terminator = is_terminator and report.result.outcome is Outcome.TERMINATE
            expect(is_terminator, "only the terminator ends a team", event)
        else:
            expect(is_reviewed or is_terminator, "only the terminator ends a team", event)
        is_review_wanted = needs_review(self.plan, self.run)
        expect(not is_review_wanted, "a review is skipped only if it may be", event)

    CHECKS: ClassVar[dict[type[RunEvent], Callable[[Any, Any], None]]] = {
        Started: _on_started,
        Offered: _on_offered,
        Claimed: _on_claimed,
        Reported: _on_returned,
        Faulted: _on_returned,
        Lost: _on_returned,
        TimedOut: _on_timed_out,
        HandedOff: _on_handed_off,
        Moved: _on_moved,
        Asked: _on_asked,
        Answered: _on_answered,
        Reasked: _on_reasked,
        Paused: _on_other,
        Resumed: _on_other,
        Patched: _on_other,
        Migrated: _on_migrated,
        ClocksPushed: _on_other,
        HeardOf: _on_other,
        Warned: _on_warned,
        Ended: _on_ended,
    }

    # After every decision

    def _check_refusal(
        self,
        before: Run,
        command: c.RunCommand,
        decision: RunDecision,
        now: datetime,
        due: datetime | None,
        budgets: tuple[BudgetState, ...],
    ) -> None:
        if before.has_ended:
            expect(decision.refusal is not None, "an ended run refuses everything", command)
            expect(not decision.events and not decision.effects, "the end absorbs", command)
        elif decision.refusal is not None and decision.events:
            is_due = bool(budgets) or (due is not None and due <= now)
            expect(is_due, "a refusal changes nothing", command)
            if not isinstance(command, c.Migrate):  # it fires no clock of a dispatch
                tick_events = decide(self.plan, before, c.Tick(), now, budgets).events
                expect(
                    decision.events == tick_events,
                    "a refusal lets only clocks fire, and budgets end",
                    command,
                )

    def _check_decision(
        self,
        before: Run | None,
        command: c.RunCommand,
        decision: RunDecision,
        now: datetime,
        measure_before: int,
    ) -> None:
        run = self.run
        due = next_due(self.plan, run)
        expect((due is None) == run.has_ended, "every wait has a deadline", run.positions)
        if before is None:
            self.steps_seeking_lock = {
                e.step_id for e in decision.effects if isinstance(e, AcquireLock)
            }
        if before is None or before.has_ended:
            return
        changed = any(not isinstance(e, Warned) for e in decision.events)
        if changed and isinstance(command, MEASURE_LOWERING_COMMANDS):
            expect(
                self.measure < measure_before,
                "a command of agents or time lowers the measure",
                command,
            )
        if not isinstance(command, c.Start | c.Migrate | c.PushClocks):  # these see no clock
            self._check_duration(before, decision, now)
        self._check_effects(before, decision)
        if self.plan.kind == "workflow":
            self._check_lock(before, decision)

    def _check_duration(self, before: Run, decision: RunDecision, now: datetime) -> None:
        duration_max = before.limits.max_duration
        if duration_max is None or before.status is not RunStatus.RUNNING:
            return
        if before.elapsed_seconds(now) >= duration_max:
            started_work = [
                e for e in decision.events if isinstance(e, Offered | Claimed | Reported)
            ]
            expect(not started_work, "no work begins beyond the running time", started_work)
            is_over = self.run.has_ended or self.run.status is RunStatus.WAITING
            expect(is_over, "the running time ends a run", decision)

    def _check_effects(self, before: Run, decision: RunDecision) -> None:
        has_fault = any(isinstance(e, Faulted) for e in decision.events)
        expect(bool(decision.fault) == has_fault, "a decision says that a result is unusable")
        returned_fences = {
            e.fence for e in decision.events if isinstance(e, Reported | Faulted | Lost)
        }
        claimed_fences = {
            t.fence for t in before.positions.values() if t.agent and t.phase == "claimed"
        }
        open_fences = {v.fence for v in self.visits.values()}
        cancelled_fences = {e.fence for e in decision.effects if isinstance(e, CancelDispatch)}
        expect(
            claimed_fences - returned_fences - open_fences <= cancelled_fences,
            "cancelled work is told to stop",
            claimed_fences,
        )

    def _check_lock(self, before: Run, decision: RunDecision) -> None:
        """Check that a waiting commit has requested the lock, and a finished one released it."""
        freed_steps = {e.step_id for e in decision.effects if isinstance(e, ReleaseLock)}
        self.steps_seeking_lock |= {
            e.step_id for e in decision.effects if isinstance(e, AcquireLock)
        }
        open_fences = {visit.fence for visit in self.visits.values()}
        for step_id, position in before.positions.items():
            is_over = position.phase in OPEN_PHASES and position.fence not in open_fences
            if is_over and self._is_commit_step(step_id):
                expect(
                    step_id in freed_steps, "the lock of a commit that is over is freed", step_id
                )
        if self.run.paused_at is not None:
            return
        for step_id, position in self.run.positions.items():
            if self._is_commit_step(step_id) and position.phase in (
                PositionPhase.READY,
                PositionPhase.SETTLED,
            ):
                expect(
                    step_id in self.steps_seeking_lock,
                    "a commit that waits has asked for the lock",
                    step_id,
                )
            else:
                self.steps_seeking_lock.discard(step_id)

    def _is_commit_step(self, step_id: str) -> bool:
        return self.plan.node(step_id).config.kind == "commit"

    # After a crash

    def rebuild_from_snapshot(self) -> None:
        """Rebuild the run from the stored snapshot, as after a crash, and go on with it."""
        since = [decode_event(raw) for raw in self.stored_events[self._snapshot_events :]]
        rebuilt = replay(since, self._snapshot)
        expect(rebuilt == self.current_run, "a replayed run equals the live one", len(self.events))
        self.current_run = self._snapshot = rebuilt
        self._snapshot_events = len(self.stored_events)

    def rebuild_from_start(self) -> None:
        rebuilt = replay(decode_event(raw) for raw in self.stored_events)
        expect(rebuilt == self.current_run, "a replayed run equals the live one", len(self.events))


def may_answer(approval: PendingApproval, person: Person) -> bool:
    """Return whether the person may answer: named people, or the level that the type of approval
    requires; never the author."""
    if person.name in approval.barred:
        return False
    approvers = approval.approvers
    if person.name in approvers:
        return True
    needed = 1 if approval.kind is ApprovalKind.CLARIFICATION else 2
    level = ROLE_LEVELS.index(person.role)
    roles = [ROLE_LEVELS.index(role) for role in approvers if role in ROLE_LEVELS]
    return level >= needed and (not approvers or any(level >= role for role in roles))

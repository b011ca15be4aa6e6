"""The world around a simulated run: workers with leases, people, the commit lock, the clock.

Each action is a method that reads the run and returns a command, good or bad, or None if the action
does not apply. All randomness comes from one generator, so a seed determines a history.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random

from handrail.kernel.definition.plan import Plan
from handrail.kernel.run import commands as c
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decision_builder import AcquireLock, ReleaseLock, RunEffect
from handrail.kernel.run.state import PendingApproval, Person, Position, PositionPhase, Run
from handrail.testing.agent_results import AgentResultMaker
from handrail.testing.clock import ManualClock
from handrail.testing.seed_options import (
    FAULT_ACTIONS,
    PEOPLE_ACTIONS,
    WORK_ACTION_WEIGHTS,
    SeedOptions,
)

APPROVERS = tuple(Person(name=name, role="ceo") for name in ("ana", "bob", "cyd"))
ADMIN = Person(name="dee", role="admin")
AUTHOR = Person(name="ola", role="operator")
GUEST = Person(name="vic", role="viewer")
ALL_PEOPLE = (*APPROVERS, ADMIN, AUTHOR, GUEST)
WORKERS = tuple(f"worker {i}" for i in range(1, 5))
UNCLEAR_ANSWERS = ("no", "hm", "", "ok?", "wait", "ОК", "...", "ok " * 600)
CLEAR_ANSWERS = ("ok", "looks good to me", "approved, thanks", "👍")
CHANGE_REQUESTS = ("ok, but change the date", "use euros", "once more, with feeling", "x" * 5_000)
REMEMBERED_MAX = 8
"""Old reports and approvals that the world remembers, to send them again."""


class World:
    def __init__(self, options: SeedOptions, plan: Plan, rng: Random) -> None:
        self.options, self.plan, self.rng = options, plan, rng
        self.clock = ManualClock()
        self.sent_reports: list[c.Report] = []
        self.past_approvals: list[PendingApproval] = []
        self.steps_seeking_lock: set[str] = set()
        self.revisions = 0
        self.results = AgentResultMaker(options, plan, rng)
        self.step_ids = self.results.step_ids
        self._actions = tuple(options.weights)
        self._weights = tuple(options.weights.values())

    def start(self) -> c.Start:
        review = self.options.review
        if self.plan.kind == "team" and self.plan.team.review is None and review == "required":
            review = None
        return c.Start(
            run_id="run",
            bead_id="bead",
            title="fix src/b.py",
            filed_by=AUTHOR.name,
            context=self.options.context,
            review=review,
            paths=self.options.paths,
            from_step_id=self.options.from_place,
        )

    def note_effects(self, effects: tuple[RunEffect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, AcquireLock):
                self.steps_seeking_lock.add(effect.step_id)
            elif isinstance(effect, ReleaseLock):
                self.steps_seeking_lock.discard(effect.step_id)

    def next_command(self, run: Run) -> c.RunCommand:
        (action,) = self.rng.choices(self._actions, self._weights)
        for approval in run.pending_approvals.values():
            if approval not in self.past_approvals:
                self.past_approvals = [*self.past_approvals[-REMEMBERED_MAX:], approval]
        return ACTIONS[action](self, run) or c.Tick()

    def pass_time(self, run: Run) -> None:
        rng = self.rng
        if rng.random() < self.options.hurry:
            due = next_due(self.plan, run)
            if due is not None:
                self.clock.until(due + timedelta(seconds=rng.choice((-1, 0, 0, 0.5, 90_000))))
            return
        if rng.random() < 0.5:
            self.clock.advance(rng.random() * 2 * self.options.pace)

    # Agents

    def _pick_position(self, run: Run, *phases: PositionPhase) -> Position | None:
        positions = [position for position in run.positions.values() if position.phase in phases]
        return self.rng.choice(positions) if positions else None

    def claim(self, run: Run) -> c.RunCommand | None:
        position = self._pick_position(run, PositionPhase.OFFERED)
        if position is None:
            return None
        return c.Claim(fence=position.fence, agent=self.rng.choice(WORKERS), roles=(position.role,))

    def claim_without_role(self, run: Run) -> c.RunCommand | None:
        position = self._pick_position(run, PositionPhase.OFFERED)
        return position and c.Claim(fence=position.fence, agent=WORKERS[0], roles=("cook", ""))

    def claim_nothing(self, run: Run) -> c.RunCommand:
        token = self._pick_position(run, PositionPhase.CLAIMED)
        fence = token.fence if token is not None else run.fence + self.rng.choice((-1, 1))
        roles = tuple({t.role for t in run.positions.values()})
        return c.Claim(fence=fence, agent=WORKERS[1], roles=roles)

    def report(self, run: Run) -> c.RunCommand | None:
        position = self._pick_position(run, PositionPhase.CLAIMED)
        if position is None:
            return None
        character = self.options.characters[position.step_id]
        if character == "sleeping":
            return None
        if character == "crashing":
            return c.Lose(fence=position.fence, reason="the lease ran out")
        if character == "malformed" or (character == "erratic" and self.rng.random() < 0.2):
            report = c.Report(
                fence=position.fence,
                agent=position.agent,
                malformed="{" * 3,
                result=self.results.huge_result(),
            )
        else:
            result = self.results.make_result(position, character)
            report = c.Report(fence=position.fence, agent=position.agent, result=result)
        self.sent_reports = [*self.sent_reports[-REMEMBERED_MAX:], report]
        return report

    def report_again(self, run: Run) -> c.RunCommand | None:
        """Report twice, or late: after a crash, a timeout, a rework, with an old fence."""
        return self.rng.choice(self.sent_reports) if self.sent_reports else None

    def report_for_another(self, run: Run) -> c.RunCommand | None:
        position = self._pick_position(run, PositionPhase.CLAIMED)
        return position and c.Report(
            fence=position.fence,
            agent="a stranger",
            result=self.results.make_result(position, "lying"),
        )

    def report_unclaimed(self, run: Run) -> c.RunCommand | None:
        position = self._pick_position(run, PositionPhase.OFFERED)
        return position and c.Report(
            fence=position.fence,
            agent=WORKERS[0],
            result=self.results.make_result(position, "diligent"),
        )

    def lose(self, run: Run) -> c.RunCommand | None:
        position = self._pick_position(run, PositionPhase.CLAIMED)
        if position is None:
            return None
        late_report = c.Report(
            fence=position.fence,
            agent=position.agent,
            result=self.results.make_result(position, "diligent"),
        )
        self.sent_reports = [*self.sent_reports[-REMEMBERED_MAX:], late_report]
        return c.Lose(fence=position.fence, reason="the worker is gone")

    def lose_nothing(self, run: Run) -> c.RunCommand:
        position = self._pick_position(run, PositionPhase.OFFERED, PositionPhase.READY)
        return c.Lose(
            fence=position.fence if position is not None else run.fence + 1, reason="gone"
        )

    def miss_role(self, run: Run) -> c.RunCommand | None:
        position = self._pick_position(run, PositionPhase.OFFERED)
        return position and c.MissRole(fence=position.fence)

    def shuffled_workers(self) -> list[str]:
        """Return all workers in random order: the committer may not verify."""
        return self.rng.sample(WORKERS, len(WORKERS))

    # The lock, the clock, the system

    def tick(self, run: Run) -> c.RunCommand:
        return c.Tick()

    def grant(self, run: Run) -> c.RunCommand | None:
        if not self.steps_seeking_lock:
            return None
        return c.GrantLock(
            step_id=self.rng.choice(sorted(self.steps_seeking_lock)), lock=run.fence + 1
        )

    def grant_wrong(self, run: Run) -> c.RunCommand:
        return c.GrantLock(step_id=self.rng.choice((*self.step_ids, "nowhere")), lock=0)

    def push_clocks(self, run: Run) -> c.RunCommand:
        return c.PushClocks(seconds=self.rng.choice((1, 600, 86_400, 0, -5, 1e30, 0.0000001)))

    def start_again(self, run: Run) -> c.RunCommand:
        return self.start()

    # People

    def _pick_approval(self, run: Run) -> PendingApproval | None:
        return (
            self.rng.choice(list(run.pending_approvals.values())) if run.pending_approvals else None
        )

    def may_revise(self) -> bool:
        return self.revisions < self.options.revisions

    def answer(self, run: Run) -> c.RunCommand | None:
        approval = self._pick_approval(run)
        if approval is None:
            return None
        person = self.rng.choice((*APPROVERS, ADMIN))
        text = "this one" if approval.own else self.rng.choice(CLEAR_ANSWERS)
        return c.Answer(approval_id=approval.id, by=person, text=text, digest=approval.digest)

    def answer_many(self, run: Run) -> c.RunCommand | None:
        """Answer as any person, with any answer that cannot raise the measure."""
        approval = self._pick_approval(run)
        return approval and c.Answer(
            approval_id=approval.id,
            by=self.rng.choice(ALL_PEOPLE),
            decision="approve",
            text=self.rng.choice(("", "yes")),
        )

    def answer_again(self, run: Run) -> c.RunCommand | None:
        if not self.past_approvals:
            return None
        approval = self.rng.choice(self.past_approvals)
        return c.Answer(approval_id=approval.id, by=APPROVERS[0], text="ok", digest=approval.digest)

    def answer_stale(self, run: Run) -> c.RunCommand | None:
        approval = self._pick_approval(run)
        return approval and c.Answer(
            approval_id=approval.id, by=APPROVERS[0], decision="approve", digest="0" * 64
        )

    def answer_unclear(self, run: Run) -> c.RunCommand | None:
        approval = self._pick_approval(run)
        if approval is None or approval.own:
            return None
        text = self.rng.choice(UNCLEAR_ANSWERS)
        return c.Answer(approval_id=approval.id, by=self.rng.choice(APPROVERS), text=text)

    def answer_without_right(self, run: Run) -> c.RunCommand | None:
        approval = self._pick_approval(run)
        person = self.rng.choice((GUEST, AUTHOR, Person(name="worker 1", role="viewer")))
        return approval and c.Answer(approval_id=approval.id, by=person, decision="approve")

    def revise(self, run: Run) -> c.RunCommand | None:
        approval = self._pick_approval(run)
        if approval is None or not self.may_revise():
            return None
        text = self.rng.choice(CHANGE_REQUESTS)
        decision = self.rng.choice((None, "revise"))
        return c.Answer(approval_id=approval.id, by=APPROVERS[1], text=text, decision=decision)

    def reject(self, run: Run) -> c.RunCommand | None:
        approval = self._pick_approval(run)
        return approval and c.Answer(approval_id=approval.id, by=APPROVERS[2], decision="reject")

    def _pick_step_id(self) -> str:
        return self.rng.choice((*self.step_ids, *self.step_ids, "nowhere"))

    def move(self, run: Run) -> c.RunCommand | None:
        if not self.may_revise():
            return None
        reason = self.rng.choice(("go there", "go there", " "))
        return c.Move(
            by=self.rng.choice((*APPROVERS, ADMIN)), step_id=self._pick_step_id(), reason=reason
        )

    def migrate(self, run: Run) -> c.RunCommand | None:
        if not self.may_revise():
            return None
        return c.Migrate(
            by=ADMIN,
            definition_id=run.definition_id,
            version=run.version + 1,
            step_id=self._pick_step_id(),
            reason="a newer version",
        )

    def pause(self, run: Run) -> c.RunCommand:
        return c.Pause(by=APPROVERS[0], reason="lunch")

    def resume(self, run: Run) -> c.RunCommand:
        return c.Resume(by=APPROVERS[0], reason="back")

    def patch(self, run: Run) -> c.RunCommand:
        key = self.rng.choice((*(f"k{i}" for i in range(1, 9)), "severity", "task_scope", "goal"))
        value = self.rng.choice((0, 1, 2, None, "large", {"command": "pytest"}))
        return c.Patch(by=self.rng.choice((AUTHOR, APPROVERS[0])), patch={key: value})

    def close(self, run: Run) -> c.RunCommand:
        person, reason = self.rng.choice(
            ((APPROVERS[0], "enough"), (AUTHOR, "never mind"), (ADMIN, ""))
        )
        return c.Close(by=person, reason=reason)

    def override_without_right(self, run: Run) -> c.RunCommand:
        person = self.rng.choice((GUEST, Person(name="mallory", role="operator")))
        step_id = self.rng.choice(self.step_ids)
        return self.rng.choice(
            (
                c.Move(by=person, step_id=step_id, reason="I want to"),
                c.Close(by=person, reason="I want to"),
                c.Pause(by=person, reason="I want to"),
                c.Resume(by=person, reason="I want to"),
                c.Patch(by=GUEST, patch={"severity": 9}),
                c.Migrate(by=person, definition_id="d", version=9, step_id=step_id, reason="mine"),
            )
        )


WorldAction = Callable[[World, Run], c.RunCommand | None]
ACTIONS: dict[str, WorldAction] = {
    name: getattr(World, name) for name in (*WORK_ACTION_WEIGHTS, *FAULT_ACTIONS, *PEOPLE_ACTIONS)
}

"""The book of one decision: events are written down and applied at once, so every later thought of
the same decision sees their effect. From outside, decide stays a pure function.
"""

import hashlib
from datetime import datetime

import msgspec

from handrail.kernel.decision import Refusal
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.ledger import short, way
from handrail.kernel.plan import Plan
from handrail.kernel.progress import weigh
from handrail.kernel.result import Result
from handrail.kernel.rules import Fired, Moment, judge_handoff, judge_result, judge_step, status_of
from handrail.kernel.run.events import Asked, Ended, Faulted, RunEvent, Warned
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import (
    ENGINE_KEYS,
    Question,
    QuestionKind,
    Run,
    Token,
    seconds,
    stop_of,
)

_encode = msgspec.json.Encoder(order="deterministic").encode


class Book:
    def __init__(self, plan: Plan, run: Run | None, now: datetime) -> None:
        self.plan, self.now = plan, now
        self.run: Run = run  # pyright: ignore[reportAttributeAccessIssue] - none until Started
        self.events: list[RunEvent] = []

    def emit(self, event: RunEvent) -> None:
        self.run = evolve(self.run, event)
        self.events.append(event)

    def warn(self, code: str, message: str, place: str = "") -> None:
        self.emit(Warned(at=self.now, code=code, message=message, place=place))

    def judge_step(self) -> list[Fired]:
        run = self.run
        elapsed = 0.0 if run.limits.max_duration is None else run.elapsed(self.now)
        return judge_step(Moment(run.ledger, run.limits, step=run.ledger.steps, elapsed=elapsed))

    def judge_result(self, agent: str, result: Result, step: int) -> list[Fired]:
        run = self.run
        return judge_result(
            Moment(run.ledger, run.limits, agent=agent, evidence=result.evidence, step=step)
        )

    def judge_handoff(self, source: str, target: str) -> list[Fired]:
        run = self.run
        edge = way(run.ledger, source, target)
        return judge_handoff(
            Moment(run.ledger, run.limits, source=source, target=target, edge=edge)
        )

    def stop(self, fired: list[Fired], agent: str) -> None:
        """End the run by the first of the rules that fired, in the order of the table."""
        stop = stop_of(fired, agent, self.run.ledger.handoffs)
        status = status_of(stop.rule, goal_met=goal_met(self.run))
        self.emit(Ended(at=self.now, status=status, stop=stop))

    def fault(self, token: Token, code: str, told: str, result: Result) -> list[Fired]:
        """An answer that cannot be used costs the attempt; what it rests on is judged all the same.

        Gives back the rules that fired.
        """
        run = self.run
        agent = token.place if run.kind == "team" else token.agent
        paths = known_paths(run, result)
        weighed = weigh(
            run.ledger, run.limits, agent, result.evidence, task=token.task, paths=paths
        )
        self.emit(
            Faulted(
                at=self.now,
                place=token.place,
                fence=token.fence,
                agent=token.agent,
                fault=code,
                message=told,
                result=result,
                weighed=weighed,
            )
        )
        return self.judge_result(agent, result, token.step)

    def ask(
        self,
        token: Token,
        kind: QuestionKind,
        text: str,
        *,
        deadline: float | None = None,
        approvers: tuple[str, ...] = (),
        quorum: int = 1,
        barred: tuple[str, ...] = (),
        own: bool = False,
        options: tuple[str, ...] = (),
        status: TerminalStatus = TerminalStatus.DONE_SUCCESS,
        remaining: tuple[str, ...] = (),
    ) -> None:
        run = self.run
        wait = self.plan.settings.human_deadline if deadline is None else deadline
        question = Question(
            id=f"{run.id}.q{run.questions_asked + 1}",
            kind=kind,
            place=token.place,
            text=text,
            digest=digest(run, text, token.result),
            asked_at=self.now,
            deadline=self.now + seconds(wait),
            approvers=approvers,
            quorum=quorum,
            barred=barred,
            result=token.result,
            own=own,
            options=options,
            status=status,
            remaining=remaining,
        )
        self.emit(Asked(at=self.now, question=question))


def digest(run: Run, text: str, result: int) -> str:
    """What a person is shown: the question, the result, and the bead without the engine's keys."""
    context = {key: value for key, value in run.context.items() if key not in ENGINE_KEYS}
    shown = [text, result, run.title, run.description, context]
    return hashlib.sha256(_encode(shown)).hexdigest()


def goal_met(run: Run) -> bool:
    """Whether the bead's functional goal, a command, was last seen green (S13).

    What Handrail measured wins over what an agent claims.
    """
    goal = run.context.get("goal")
    command = goal.get("command") if isinstance(goal, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - any JSON
    if not isinstance(command, str):
        return False
    measured, claimed = run.ledger.measured.checks, run.ledger.claimed.checks
    command = short(command)
    return (measured if command in measured else claimed).get(command) == ""


def refuse(code: str, message: str, hint: str = "") -> Refusal:
    return Refusal(code=code, message=message, hint=hint)


def known_paths(run: Run, result: Result) -> frozenset[str] | None:
    """Paths that existed at the start, and those the task names; None if nobody looked, or if the
    result has no files to look for."""
    if run.paths is None or not result.evidence.files:
        return None
    words = f"{run.title} {run.description}".replace("`", " ").replace("'", " ").split()
    return frozenset({*run.paths, *(word.strip('.,:;()"') for word in words)})


def first_line(text: str) -> str:
    for line in text.splitlines():
        if said := line.strip():
            return said[:200]
    return ""

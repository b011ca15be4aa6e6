"""What an agent is given with its turn: a dispatch, and the story so far, complete.

`Story` folds a run's events into what agents and people are shown: everything that was said, in
full and in order; the handoffs, refused ones too; and the iterations of a reviewed task. It keeps
no policy and cuts nothing off: a planner that sees half of a revision plans half of it.
"""

from datetime import datetime
from typing import Any

from handrail.kernel.decision import Value
from handrail.kernel.definition import REVIEW_SEAT
from handrail.kernel.plan import Plan
from handrail.kernel.result import Outcome
from handrail.kernel.run.events import (
    Answered,
    Asked,
    Faulted,
    HandedOff,
    Lost,
    Reasked,
    Reported,
    RunEvent,
    Started,
    TimedOut,
)
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Question, Run, Token
from handrail.kernel.run.team import may_finish
from handrail.kernel.team_certificate import hand_targets


class Bead(Value):
    """The work itself. The context is what agents and people have merged into it so far."""

    id: str
    title: str
    description: str = ""
    context: dict[str, Any] = {}


class Said(Value):
    """One thing that was said: a result, a failed attempt, or a person's answer."""

    place: str
    by: str
    outcome: str
    text: str
    at: datetime
    reason: str = ""
    to: str = ""
    task: str = ""
    number: int = 0
    """The sequence number of the event, as in the run's history."""


class Handoff(Value):
    source: str
    target: str
    reason: str
    at: datetime
    accepted: bool = True


class Iteration(Value):
    """One round of a reviewed task: what was asked, what came of it, what the person said."""

    n: int
    task: str
    agent: str
    result: str
    decision: str
    text: str
    by: str
    at: datetime


class Allowed(Value):
    outcomes: tuple[str, ...]
    to: tuple[str, ...] = ()


class Dispatch(Value):
    """One turn. `node` is set in a workflow, `agent` in a team."""

    execution_id: str
    bead: Bead
    definition: str
    role: str
    attempt: int
    max_attempts: int
    fence: int
    allowed: Allowed
    remaining: int
    node: str = ""
    agent: str = ""
    task: str = ""
    phase: str = ""
    history: tuple[Said, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    handoff_sequence: tuple[Handoff, ...] = ()
    last_refusal: str = ""
    answer: str = ""
    """What a person said to this agent's own question, if that is why it has the turn again."""


class Story:
    """Everything said so far. `take` each event once, in order."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.handoffs: list[Handoff] = []
        self.iterations: list[Iteration] = []
        self._asked: dict[str, Question] = {}
        self._results: dict[int, Said] = {}
        self._tasks: dict[str, str] = {}
        self._task = ""
        self._seq = 0

    def take(self, event: RunEvent) -> None:
        self._seq += 1
        match event:
            case Started():
                self._task = event.description or event.title
                self._tasks[event.place] = event.task
            case Reported():
                self._reported(event)
            case Faulted():
                self._add(event.place, event.agent, event.fault, event.message, event.at)
            case Lost():
                self._add(event.place, event.agent, "lost", event.reason, event.at)
            case TimedOut():
                self._add(event.place, event.agent, "timed_out", event.clock, event.at)
            case HandedOff():
                self._handed(event)
            case Asked() | Reasked():
                self._asked[event.question.id] = event.question
            case Answered():
                self._answered(event)
            case _:
                pass  # nobody says anything in it

    def result_of(self, question: Question) -> str:
        """The text that the question is about, in full."""
        said = self._results.get(question.result)
        return said.text if said is not None else ""

    def _add(self, place: str, by: str, outcome: str, text: str, at: datetime) -> Said:
        said = Said(place=place, by=by, outcome=outcome, text=text, at=at, number=self._seq)
        self.said.append(said)
        return said

    def _reported(self, event: Reported) -> None:
        result = event.result
        said = Said(
            place=event.place,
            by=event.agent,
            outcome=result.outcome.value if result.outcome else "",
            text=result.question if result.outcome is Outcome.ASK else result.text,
            at=event.at,
            reason=result.reason,
            to=result.to,
            task=self._tasks.get(event.place, ""),
            number=self._seq,
        )
        self.said.append(said)
        self._results[self._seq] = said

    def _handed(self, event: HandedOff) -> None:
        self.handoffs.append(
            Handoff(
                source=event.source,
                target=event.target,
                reason=event.reason,
                at=event.at,
                accepted=event.accepted,
            )
        )
        if event.accepted and not event.already_done:
            self._tasks[event.target] = event.task

    def _answered(self, event: Answered) -> None:
        question = self._asked[event.question_id]
        self._add(question.place, event.by, event.decision, event.text, event.at)
        if question.place != REVIEW_SEAT or not event.final:
            return
        shown = self._results.get(question.result)
        self.iterations.append(
            Iteration(
                n=len(self.iterations) + 1,
                task=self._task,
                agent=shown.place if shown else "",
                result=shown.text if shown else "",
                decision=event.decision,
                text=event.text,
                by=event.by,
                at=event.at,
            )
        )
        self._task = event.text


def dispatch(plan: Plan, run: Run, token: Token, story: Story) -> Dispatch:
    """What the holder of this token is given."""
    team = plan.kind == "team"
    most = run.limits.protocol_error_limit if team else plan.node(token.place).max_attempts
    last = story.said[-1] if story.said else None
    answered = last is not None and last.outcome == "answer" and last.place == token.place
    return Dispatch(
        execution_id=run.id,
        bead=Bead(
            id=run.bead_id, title=run.title, description=run.description, context=run.context
        ),
        definition=run.definition_id,
        node="" if team else token.place,
        agent=token.place if team else "",
        task=token.task,
        phase=run.phase,
        role=token.role,
        attempt=token.faults + 1 if team else token.attempts,
        max_attempts=most,
        fence=token.fence,
        history=tuple(story.said),
        iterations=tuple(story.iterations),
        handoff_sequence=tuple(story.handoffs),
        last_refusal=token.refusal,
        answer=last.text if answered and last is not None else "",
        allowed=_allowed(plan, token),
        remaining=measure(plan, run),
    )


def _allowed(plan: Plan, token: Token) -> Allowed:
    if plan.kind == "workflow":
        more = ("continue",) if plan.node(token.place).config.multi_dispatch else ()
        return Allowed(outcomes=("success", "failure", *more, "ask"))
    agent = plan.agents[token.place]
    to = hand_targets(plan.team, agent, to_review=True)
    hand = ("handoff",) if to else ()
    end = ("terminate",) if may_finish(plan, agent) else ()
    return Allowed(outcomes=(*hand, *end, "failure", "ask"), to=to)

"""What an agent is given with its turn: a dispatch, with the history complete and in full.

Everything that was said comes from the events by the kernel's own projections (`history.py`,
`steps.py`), so an agent sees what the report and the page show. Nothing is cut off: a planner that
sees half of a revision plans half of it. The projections are made when an agent asks for them:
made for every dispatch, they would cost a long run more than all its steps.
"""

from typing import Any

from handrail.kernel.decision import Value
from handrail.kernel.history import handoff_sequence, human_acts, iterations
from handrail.kernel.plan import Plan
from handrail.kernel.run.events import Answered, Asked, Reported, RunEvent
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Question, Run, Token
from handrail.kernel.run.team import may_finish
from handrail.kernel.shown import Handoff, HumanAct, Iteration, Step
from handrail.kernel.steps import Events, steps
from handrail.kernel.team_certificate import hand_targets


class Bead(Value):
    """The work itself. The context is what agents and people have merged into it so far."""

    id: str
    title: str
    description: str = ""
    context: dict[str, Any] = {}


class Allowed(Value):
    """What the holder of the turn may answer; in a team also whom it may hand off to."""

    outcomes: tuple[str, ...]
    to: tuple[str, ...] = ()


class Dispatch(Value):
    """One turn. `node` is set in a workflow, `agent` in a team; `past` are the run's events."""

    execution_id: str
    bead: Bead
    definition: str
    role: str
    attempt: int
    max_attempts: int
    fence: int
    allowed: Allowed
    remaining: int
    """The measure: how many events the run may still take without a person."""
    node: str = ""
    agent: str = ""
    task: str = ""
    phase: str = ""
    last_refusal: str = ""
    past: tuple[RunEvent, ...] = ()

    @property
    def history(self) -> tuple[Step, ...]:
        """Every step that is over, with what was said, in full."""
        return tuple(step for step in steps(self.past) if step.outcome)

    @property
    def iterations(self) -> tuple[Iteration, ...]:
        return iterations(self.past)

    @property
    def handoff_sequence(self) -> tuple[Handoff, ...]:
        return handoff_sequence(self.past)

    @property
    def people(self) -> tuple[HumanAct, ...]:
        return human_acts(self.past)

    @property
    def answer(self) -> str:
        """What a person said to this agent's own question, if that is why it has the turn again."""
        return _answer(self.node or self.agent, self.past)


def dispatch(plan: Plan, run: Run, token: Token, events: Events) -> Dispatch:
    """What the holder of this token is given."""
    team = plan.kind == "team"
    most = run.limits.protocol_error_limit if team else plan.node(token.place).max_attempts
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
        last_refusal=token.refusal,
        past=tuple(events),
        allowed=_allowed(plan, token),
        remaining=measure(plan, run),
    )


def shown_result(question: Question, events: Events) -> str:
    """The text that a question is about, in full."""
    event = events[question.result - 1] if question.result else None
    return event.result.text if isinstance(event, Reported) else ""


def _answer(place: str, events: Events) -> str:
    """The answer to a question that the agent at this place asked after its last result."""
    answer, own = "", ""
    for event in events:
        if isinstance(event, Reported) and event.place == place:
            answer = ""
        elif isinstance(event, Asked) and event.question.own:
            own = event.question.id if event.question.place == place else own
        elif isinstance(event, Answered) and event.question_id == own:
            answer = event.text or event.decision
    return answer


def _allowed(plan: Plan, token: Token) -> Allowed:
    if plan.kind == "workflow":
        more = ("continue",) if plan.node(token.place).config.multi_dispatch else ()
        return Allowed(outcomes=("success", "failure", *more, "ask"))
    agent = plan.agents[token.place]
    to = hand_targets(plan.team, agent, to_review=True)
    hand = ("handoff",) if to else ()
    end = ("terminate",) if may_finish(plan, agent) else ()
    return Allowed(outcomes=(*hand, *end, "failure", "ask"), to=to)

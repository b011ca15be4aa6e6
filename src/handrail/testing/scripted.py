"""Scripted agents: a run played offline, from its first event to its last, without any waiting.

An agent is a function from a `Dispatch` to a `Result`, or a list of results of which each dispatch
takes the next (the last one again and again). Whoever has no script obliges: a workflow's task
succeeds, a team's agent hands on by the shortest way to where the run can end. People are a
function from a `Question` to a text, or to None if nobody answers; then its deadline passes.

    played = play(document, {"verify": [failure("red"), success()]})
    assert played.run.terminal_status == "done_success"

Time is virtual: the clock jumps to the next deadline whenever nobody has anything to do, so every
run ends at once, whatever its agents do.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from handrail.engine import replies
from handrail.engine.replies import ask, carry_on, failure, hand_to, terminate
from handrail.kernel.decision import Value
from handrail.kernel.definition import Problem, Settings
from handrail.kernel.plan import Plan, check
from handrail.kernel.result import Evidence, Result
from handrail.kernel.run import machine
from handrail.kernel.run.commands import Answer, Claim, GrantLock, Report, RunCommand, Start, Tick
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.state import Person, Phase, Question, Run, Token
from handrail.kernel.run.workflow import needs_lock
from handrail.teams.scripted import shortest_ways as next_on_the_way
from handrail.testing.clock import ManualClock

__all__ = ["ask", "carry_on", "failure", "hand_to", "play", "success", "terminate"]

COMMANDS_MAX = 100_000


class Dispatch(Value):
    """What an agent is asked to do: where, for the how-manieth time, with what at hand."""

    run_id: str
    place: str
    attempt: int
    role: str
    task: str
    title: str
    description: str
    context: dict[str, Any]
    phase: str
    told: str
    """Why the answer before this one could not be used, if it could not."""


ScriptedAgent = Callable[[Dispatch], Result]
Script = ScriptedAgent | Sequence[Result]
People = Callable[[Question], str | None]


class InvalidDefinitionError(ValueError):
    """The document is no valid definition; `problems` says where and what to do."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class Played:
    """A run that was played: its plan, its last state and everything that happened."""

    def __init__(self, plan: Plan, run: Run, events: list[RunEvent]) -> None:
        self.plan, self.run, self.events = plan, run, events


def success(text: str = "", *, evidence: Evidence | None = None, **data: Any) -> Result:  # noqa: ANN401 - any JSON
    """The task is done, and what the agent says of it was measured."""
    return replies.success(text, data=data, evidence=evidence or Evidence(measured=True))


def agent_of(script: Script) -> ScriptedAgent:
    """A list of results as an agent: the next one each time, the last one for ever."""
    if callable(script):
        return script
    assert script, "a script has at least one result"
    lines = iter(script)
    last = script[-1]
    return lambda _: next(lines, last)


def obliging(plan: Plan) -> ScriptedAgent:
    """Does what brings the run to its end soonest."""
    if plan.kind == "workflow":
        return lambda _: success("done")
    way = shortest_ways(plan)
    return lambda dispatch: way.get(dispatch.place) or terminate("I know no way on")


def shortest_ways(plan: Plan) -> dict[str, Result]:
    """For each agent of a team that can bring the run to its end: the next step on the way."""
    return {
        agent: hand_to(target, "next on the way") if target else terminate("the work is done")
        for agent, target in next_on_the_way(plan.team).items()
    }


def approve(question: Question) -> str | None:
    """The person who likes everything."""
    return "go with your best guess" if question.own else "ok"


class _Stage:
    """One run being played."""

    def __init__(self, plan: Plan, clock: ManualClock) -> None:
        self.plan, self.clock = plan, clock
        self.events: list[RunEvent] = []
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        assert self._run is not None
        return self._run

    def do(self, command: RunCommand) -> str:
        """Why the command was refused; "" if it was taken."""
        decision = machine.decide(self.plan, self._run, command, self.clock.now())
        for event in decision.events:
            self._run = machine.evolve(self._run, event)
        self.events += decision.events
        return decision.refusal.message if decision.refusal is not None else ""

    def token(self, phase: Phase) -> Token | None:
        return next((t for t in self.run.tokens.values() if t.phase is phase), None)

    def work(self, agents: Mapping[str, ScriptedAgent], otherwise: ScriptedAgent) -> bool:
        """Let somebody do the next piece of work; False if there is none."""
        token = self.token(Phase.OFFERED)
        if token is not None:
            # Nobody verifies a commit of their own, so each place has a worker of its own.
            name = f"{token.place}-worker"
            self.do(Claim(fence=token.fence, agent=name, roles=(token.role,)))
            return True
        token = self.token(Phase.CLAIMED)
        if token is None:
            return self._grant()
        result = agents.get(token.place, otherwise)(self._dispatch(token))
        told = self.do(Report(fence=token.fence, agent=token.agent, result=result))
        if told and self._run is not None and not self._run.ended:
            self.do(Report(fence=token.fence, agent=token.agent, malformed=told))
        return True

    def _grant(self) -> bool:
        if self.plan.kind != "workflow":
            return False
        for token in self.run.tokens.values():
            waits = token.phase in (Phase.READY, Phase.SETTLED)
            if waits and needs_lock(self.plan.node(token.place)):
                return not self.do(GrantLock(place=token.place, lock=self.run.fence + 1))
        return False

    def _dispatch(self, token: Token) -> Dispatch:
        run = self.run
        return Dispatch(
            run_id=run.id,
            place=token.place,
            attempt=token.attempts,
            role=token.role,
            task=token.task,
            title=run.title,
            description=run.description,
            context=run.context,
            phase=run.phase,
            told=token.refusal,
        )

    def hear(self, people: People) -> bool:
        """Let people answer what is asked; False if nobody does."""
        for question in tuple(self.run.questions.values()):
            text = people(question)
            by = Person(name=f"boss {len(question.approved_by) + 1}", role="ceo")
            if text is not None and not self.do(
                Answer(question_id=question.id, by=by, text=text, digest=question.digest)
            ):
                return True
        return False


def play(
    document: object,
    agents: Mapping[str, Script] | None = None,
    people: People = approve,
    *,
    title: str = "",
    context: dict[str, Any] | None = None,
    settings: Settings | None = None,
    clock: ManualClock | None = None,
) -> Played:
    """Play one run to its end. Raises `InvalidDefinitionError` if the document is none."""
    plan, checked = check(document, settings or Settings())
    if plan is None:
        raise InvalidDefinitionError(checked.errors)
    cast = {place: agent_of(script) for place, script in (agents or {}).items()}
    otherwise = obliging(plan)
    stage = _Stage(plan, clock or ManualClock())
    stage.do(Start(run_id="run", bead_id="bead", title=title, context=context or {}))
    for _ in range(COMMANDS_MAX):
        if stage.run.ended:
            return Played(plan, stage.run, stage.events)
        if not stage.work(cast, otherwise) and not stage.hear(people):
            due = machine.next_due(plan, stage.run)
            assert due is not None, "every wait has a deadline"
            stage.clock.until(due)
            stage.do(Tick())
    raise RuntimeError(f"people kept the run going for {COMMANDS_MAX} commands")

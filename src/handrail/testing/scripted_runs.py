"""Scripted agents: play a run offline, from its first event to its last, without any waiting.

An agent is a function from a `ScriptedDispatch` to a `Result`, or a list of results of which each
dispatch takes the next (the last result repeats). An agent without a script cooperates: a
workflow's task succeeds, a team's agent hands on by the shortest way to where the run can end.
People are a function from a `PendingApproval` to a text, or to None for no answer; then the
approval's deadline passes.

    played = play(document, {"verify": [failure("red"), success()]})
    assert played.run.terminal_status == "done_success"

Time is virtual: the clock jumps to the next deadline whenever there is nothing to do, so every run
ends at once, whatever its agents do.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from handrail.engine.dispatch import replies
from handrail.engine.dispatch.replies import ask, carry_on, failure, hand_to, terminate
from handrail.kernel.decision import Value
from handrail.kernel.definition.model import DocumentProblem, Settings
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.result import Evidence, Result
from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.commands import Answer, Claim, GrantLock, Report, RunCommand, Start, Tick
from handrail.kernel.run.decide import decide
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import PendingApproval, Person, Position, PositionPhase, Run
from handrail.teams.scripted import next_hops as next_on_the_way
from handrail.testing.clock import ManualClock

__all__ = ["ask", "carry_on", "failure", "hand_to", "play", "success", "terminate"]

COMMANDS_MAX = 100_000


class ScriptedDispatch(Value):
    """An agent's task: the step, the number of the attempt, and the context."""

    run_id: str
    step_id: str
    attempt: int
    role: str
    task: str
    title: str
    description: str
    context: dict[str, Any]
    phase: str
    refusal: str
    """Why the previous answer was refused; empty if it was not."""


ScriptedAgent = Callable[[ScriptedDispatch], Result]
AgentScript = ScriptedAgent | Sequence[Result]
Answerer = Callable[[PendingApproval], str | None]


class ScriptedDefinitionError(ValueError):
    """The document is not a valid definition; `problems` says where and what to do."""

    def __init__(self, problems: tuple[DocumentProblem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class PlayedRun:
    """A played run: its plan, its last state and all its events."""

    def __init__(self, plan: Plan, run: Run, events: list[RunEvent]) -> None:
        self.plan, self.run, self.events = plan, run, events


def success(text: str = "", *, evidence: Evidence | None = None, **data: Any) -> Result:  # noqa: ANN401 - any JSON
    """Return a success whose evidence counts as measured."""
    return replies.success(text, data=data, evidence=evidence or Evidence(measured=True))


def scripted_agent(script: AgentScript) -> ScriptedAgent:
    """Turn a list of results into an agent: each call returns the next, at the end the last."""
    if callable(script):
        return script
    assert script, "a script has at least one result"
    lines = iter(script)
    last = script[-1]
    return lambda _: next(lines, last)


def obliging_agent(plan: Plan) -> ScriptedAgent:
    """Return an agent that brings the run to its end soonest."""
    if plan.kind == "workflow":
        return lambda _: success("done")
    shortest_way = shortest_way_results(plan)
    return lambda dispatch: shortest_way.get(dispatch.step_id) or terminate("I know no way on")


def shortest_way_results(plan: Plan) -> dict[str, Result]:
    """Return the next step towards the end, for each agent of a team that can reach it."""
    return {
        agent: hand_to(target, "next on the way") if target else terminate("the work is done")
        for agent, target in next_on_the_way(plan.team).items()
    }


def approve(approval: PendingApproval) -> str | None:
    """Approve everything."""
    return "go with your best guess" if approval.own else "ok"


class _RunPlayer:
    """Plays one run."""

    def __init__(self, plan: Plan, clock: ManualClock) -> None:
        self.plan, self.clock = plan, clock
        self.events: list[RunEvent] = []
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        assert self._run is not None
        return self._run

    def submit(self, command: RunCommand) -> str:
        """Submit a command. Return why it was refused; "" if it was accepted."""
        decision = decide(self.plan, self._run, command, self.clock.now())
        for event in decision.events:
            self._run = evolve(self._run, event)
        self.events += decision.events
        return decision.refusal.message if decision.refusal is not None else ""

    def find_position(self, phase: PositionPhase) -> Position | None:
        return next(
            (position for position in self.run.positions.values() if position.phase is phase), None
        )

    def work_once(self, agents: Mapping[str, ScriptedAgent], default_agent: ScriptedAgent) -> bool:
        """Let an agent do the next piece of work. Return False if there is none."""
        position = self.find_position(PositionPhase.OFFERED)
        if position is not None:
            # An agent may not verify its own commit, so each step has its own worker.
            name = f"{position.step_id}-worker"
            self.submit(Claim(fence=position.fence, agent=name, roles=(position.role,)))
            return True
        position = self.find_position(PositionPhase.CLAIMED)
        if position is None:
            return self._grant_lock()
        result = agents.get(position.step_id, default_agent)(self._make_dispatch(position))
        refusal = self.submit(Report(fence=position.fence, agent=position.agent, result=result))
        if refusal and self._run is not None and not self._run.has_ended:
            self.submit(Report(fence=position.fence, agent=position.agent, malformed=refusal))
        return True

    def _grant_lock(self) -> bool:
        if self.plan.kind != "workflow":
            return False
        for position in self.run.positions.values():
            is_waiting = position.phase in (PositionPhase.READY, PositionPhase.SETTLED)
            if is_waiting and position.step_id in self.plan.commit_repositories:
                return not self.submit(GrantLock(step_id=position.step_id, lock=self.run.fence + 1))
        return False

    def _make_dispatch(self, position: Position) -> ScriptedDispatch:
        run = self.run
        return ScriptedDispatch(
            run_id=run.id,
            step_id=position.step_id,
            attempt=position.attempts,
            role=position.role,
            task=position.task,
            title=run.title,
            description=run.description,
            context=run.context,
            phase=run.phase,
            refusal=position.refusal,
        )

    def answer_once(self, people: Answerer) -> bool:
        """Let people answer an open approval. Return False if there is no answer."""
        for approval in tuple(self.run.pending_approvals.values()):
            text = people(approval)
            person = Person(name=f"boss {len(approval.approved_by) + 1}", role="ceo")
            if text is not None and not self.submit(
                Answer(approval_id=approval.id, by=person, text=text, digest=approval.digest)
            ):
                return True
        return False


def play(
    document: object,
    agents: Mapping[str, AgentScript] | None = None,
    people: Answerer = approve,
    *,
    title: str = "",
    context: dict[str, Any] | None = None,
    settings: Settings | None = None,
    clock: ManualClock | None = None,
) -> PlayedRun:
    """Play one run to its end. Raise `ScriptedDefinitionError` if the document is invalid."""
    plan, check_report = check_definition(document, settings or Settings())
    if plan is None:
        raise ScriptedDefinitionError(check_report.errors)
    agents_by_step = {step_id: scripted_agent(script) for step_id, script in (agents or {}).items()}
    default_agent = obliging_agent(plan)
    player = _RunPlayer(plan, clock or ManualClock())
    player.submit(Start(run_id="run", bead_id="bead", title=title, context=context or {}))
    for _ in range(COMMANDS_MAX):
        if player.run.has_ended:
            return PlayedRun(plan, player.run, player.events)
        if not player.work_once(agents_by_step, default_agent) and not player.answer_once(people):
            due = next_due(plan, player.run)
            assert due is not None, "every wait has a deadline"
            player.clock.until(due)
            player.submit(Tick())
    raise RuntimeError(f"people kept the run going for {COMMANDS_MAX} commands")

"""The investigation by a language model, under the rules of the offline one.

The model reads, searches, writes and runs tests in the bead's own copy, through the same workspace:
what the repository protects it cannot touch, whatever it was talked into. What it says it has
mended is measured afterwards, with the test that shows the failure written anew; and a person sees
the diff before anything is committed. What it writes and reports as unfinished (continue, ask, or a
success that the tests deny) is the next turn's draft; what it writes before it dies is gone.
"""

from collections.abc import Callable

from handrail.agents.model import model_agent
from handrail.engine.dispatch import Dispatch
from handrail.kernel.result import Check, Outcome, Result
from handrail.teams.coding.checks import Checks
from handrail.teams.coding.crew import Crew
from handrail.teams.coding.modelled import Turn
from handrail.teams.coding.places import Places
from handrail.teams.healing.crew import Bench, Healers, Investigate, Repaired
from handrail.teams.healing.proposal import Cause

ABOUT = (
    "Find the cause of the failure and mend it in the code, changing as little as possible. The"
    " test '{shows}' shows it; it must pass, and so must '{tests}'. Leave the tests as they are."
    " Read before you write; write whole files; run the tests before you answer. Answer success"
    " with the cause in your first line, continue if you need another turn, and failure if no"
    " change of this repository can mend it, with what a person should know."
)


def by_model(model: str) -> Investigate:
    """The model of that name investigates. Raises `BadModel`."""
    turns: dict[str, Turn] = {}
    model_agent(model)  # a wrong name is told at once, not in the middle of a run

    def tools(given: Dispatch) -> list[Callable[..., object]]:
        return list(turns[given.id].tools("coder"))

    async def investigate(
        healers: Healers, dispatch: Dispatch, bench: Bench, check: Check
    ) -> Repaired | Result:
        checks = Checks(commands=(bench.shows.command, bench.tests))
        turn = Turn(Crew(Places(), limits=healers.limits), bench.workspace, checks)
        turns[dispatch.id] = turn
        about = ABOUT.format(shows=bench.shows.command, tests=bench.tests)
        try:
            result = await model_agent(model, instructions=about, tools=tools)(dispatch)
        finally:
            del turns[dispatch.id]
        return _came_to(bench, turn, result)

    return investigate


def _came_to(bench: Bench, turn: Turn, result: Result) -> Repaired | Result:
    """What the turn left in the copy decides, and not what the model says of it."""
    written = set(turn.workspace.written) - {bench.shows.path}
    if bench.shows.path:
        bench.workspace.write(bench.shows.path, bench.shows.text)
    if result.outcome is Outcome.ASK:
        return Result(outcome=result.outcome, question=result.question, options=result.options,
                      usage=result.usage)  # fmt: skip
    refused = [*turn.workspace.refused, *(one.command for one in turn.refused)]
    told = "; ".join((result.text or result.reason, *(f"not done: {one}" for one in refused)))
    if result.outcome is Outcome.FAILURE:
        return Repaired(told=told, usage=result.usage)
    if not written or result.outcome is Outcome.CONTINUE:
        return Repaired(told=told, left=True, unfinished=True, usage=result.usage)
    first = told.strip().partition("\n")[0]
    cause = Cause(told=first, place=", ".join(sorted(written)))
    return Repaired(told=told, cause=cause, unfinished=True, usage=result.usage)

"""Replays of recorded runs under other stop rules, and limits proposed from them."""

from typing import Annotated

from litestar import get, post
from litestar.params import Parameter

from handrail.api.runs import ReplayRequest
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.services.definitions import InvalidDefinitionError
from handrail.replay.replay_report import ReplayResults
from handrail.replay.tuning import TUNING_RUNS_DEFAULT, TUNING_RUNS_MAX, TuningReport
from handrail.server.idempotency import MEMORY_ONLY
from handrail.server.problems import (
    HTTPProblemError,
    field_errors,
    problem_responses,
    refusal_at_field,
)

RUN_ID_REFUSALS = ("unknown_run", "too_many_events", "events_gone", "unknown_definition")
"""Refusals of a run that `ids` names."""
ShareQuery = Annotated[
    float,
    Parameter(ge=0, le=1, description="Of the good runs, a proposed limit may cut this share."),
]
RunsQuery = Annotated[
    int, Parameter(ge=1, le=TUNING_RUNS_MAX, description="So many ended runs, the newest.")
]


@post("/executions/replay", status_code=200, responses=problem_responses(), opt={MEMORY_ONLY: True})
async def replay(engine: Engine, data: ReplayRequest) -> ReplayResults:
    """What other stop rules would have made of recorded runs: where each would have stopped, by
    which rule, and what would have been saved. No agent is run, and nothing is changed."""
    try:
        return await engine.replays.replay(data.ids, data.rules)
    except InvalidDefinitionError as error:
        message = f"the rules cannot be used: {error}"
        raise HTTPProblemError(
            422, "invalid_rules", message, errors=field_errors(error.problems)
        ) from error
    except RefusedError as refused:
        raise refusal_at_field(refused, **dict.fromkeys(RUN_ID_REFUSALS, "ids")) from refused


@get("/workflows/{workflow_id:str}/tune", responses=problem_responses(404))
async def tune(
    engine: Engine, workflow_id: str, share: ShareQuery = 0.0, runs: RunsQuery = TUNING_RUNS_DEFAULT
) -> TuningReport:
    """Limits for a definition, proposed from its ended runs: each with the good runs it would have
    cut and the steps it would have saved."""
    return await engine.replays.tune(workflow_id, share=share, runs=runs)


HANDLERS = [replay, tune]

"""Replays of recorded runs under other stop rules, and limits proposed from them."""

from handrail.api.definitions import DefinitionCalls, TuningQuery
from handrail.api.runs import ReplayRequest, RunCalls
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.services.definitions import InvalidDefinitionError
from handrail.replay.replay_report import ReplayResults
from handrail.replay.tuning import TuningReport
from handrail.server.binding import serves
from handrail.server.problems import (
    HTTPProblemError,
    field_errors,
    refusal_at_field,
)

RUN_ID_REFUSALS = ("unknown_run", "too_many_events", "events_gone", "unknown_definition")
"""Refusals of a run that `ids` names."""


@serves(RunCalls.replay)
async def replay_runs(engine: Engine, data: ReplayRequest) -> ReplayResults:
    try:
        return await engine.replays.replay(data.ids, data.rules)
    except InvalidDefinitionError as error:
        message = f"the rules cannot be used: {error}"
        raise HTTPProblemError(
            422, "invalid_rules", message, errors=field_errors(error.problems)
        ) from error
    except RefusedError as refused:
        raise refusal_at_field(refused, **dict.fromkeys(RUN_ID_REFUSALS, "ids")) from refused


@serves(DefinitionCalls.tune)
async def tune_definition(engine: Engine, workflow_id: str, query: TuningQuery) -> TuningReport:
    return await engine.replays.tune(workflow_id, share=query.share, runs=query.runs)

"""Recorded runs under other stop rules, and limits proposed from them."""

from typing import Annotated, Any

from litestar import get, post
from litestar.params import Parameter
from msgspec import Meta

from handrail.engine.definitions import InvalidDefinition
from handrail.engine.engine import Engine
from handrail.engine.refused import Refused
from handrail.engine.replaying import RUNS_MAX, TUNED_FROM, TUNED_FROM_MAX, Replays
from handrail.kernel.decision import Value
from handrail.kernel.tune import Tuning
from handrail.server.bodies import Text
from handrail.server.idempotency import PASSING
from handrail.server.problems import Wrong, documented, misnamed, places

IDS = ("unknown_run", "too_many_events", "events_gone", "unknown_definition")
"""Refusals because of what `ids` names."""
OfShare = Annotated[
    float,
    Parameter(ge=0, le=1, description="Of the good runs, a proposed limit may cut this share."),
]
OfRuns = Annotated[
    int, Parameter(ge=1, le=TUNED_FROM_MAX, description="So many ended runs, the newest.")
]


class WhatIf(Value):
    """`rules`: fields of `stop_rules`, which count before those of the definition, or the name of
    a profile."""

    ids: Annotated[tuple[Text, ...], Meta(min_length=1, max_length=RUNS_MAX)]
    rules: dict[str, Any] | Text


@post("/executions/replay", status_code=200, responses=documented(), opt={PASSING: True})
async def replay(engine: Engine, data: WhatIf) -> Replays:
    """What other stop rules would have made of recorded runs: where each would have stopped, by
    which rule, and what would have been saved. No agent is run, and nothing is changed."""
    try:
        return await engine.replay(data.ids, data.rules)
    except InvalidDefinition as error:
        told = f"the rules cannot be used: {error}"
        raise Wrong(422, "invalid_rules", told, errors=places(error.problems)) from error
    except Refused as refused:
        raise misnamed(refused, **dict.fromkeys(IDS, "ids")) from refused


@get("/workflows/{workflow_id:str}/tune", responses=documented(404))
async def tune(
    engine: Engine, workflow_id: str, share: OfShare = 0.0, runs: OfRuns = TUNED_FROM
) -> Tuning:
    """Limits for a definition, proposed from its ended runs: each with the good runs it would have
    cut and the steps it would have saved."""
    return await engine.tune(workflow_id, share=share, runs=runs)


HANDLERS = [replay, tune]

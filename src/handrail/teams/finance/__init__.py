"""Finance: a planner, three specialists and a person who reviews.

Offline they are rules that work something out which can be checked: an invoice's lines, discounts
and tax (`invoice.py`), what differs between a ledger and the bank (`closing.py`), findings in a
sample of entries (`audit.py`). They read the task, all revisions in the order in which they were
said, and the tables among the bead's files (`tables.py`). A revision that says something which the
rules know ("use 7% tax", "limit 2000", "accept R7") is applied; what they do not know is named in
the result, so that nobody takes it for done.

Endings: approved, closed by the person (reject), without review.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from handrail.engine.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel.result import Result
from handrail.teams.finance import audit, closing, invoice
from handrail.teams.finance.routing import planner
from handrail.teams.finance.tables import FILE_BYTES_MAX, FILES_MAX, Files
from handrail.teams.scripted import Agent, hand

NO_FILES: Files = {}


Specialist = Callable[[list[str], Files], tuple[list[str], list[str]]]
"""Of all that was said, the task first, and the files: what came of it, line by line, and which of
the texts say nothing that the rules know."""
SPECIALISTS: dict[str, Specialist] = {
    "invoice": invoice.work_out,
    "closing": closing.work_out,
    "audit": audit.work_out,
}


def staff() -> dict[str, Agent]:
    """Without an engine there are no files."""
    agents: dict[str, Agent] = {"planner": planner}
    for name in SPECIALISTS:
        agents[name] = _alone
    return agents


def employed(
    engine: Engine, *, model: str = "", workspaces: tuple[str, ...] = ()
) -> dict[str, Agent]:
    """The team's agents on an engine, from which they read the bead's files."""
    del workspaces  # finance changes no files
    if model:
        from handrail.teams.finance.modelled import modelled

        return modelled(engine, model)

    async def specialist(dispatch: Dispatch) -> Result:
        files = await files_of(engine, dispatch.bead.id)
        return await asyncio.to_thread(worked, dispatch, files)

    agents: dict[str, Agent] = {"planner": planner}
    for name in SPECIALISTS:
        agents[name] = cast("Agent", specialist)
    return agents


async def files_of(engine: Engine, bead_id: str) -> Files:
    """The texts among the bead's files."""
    found: dict[str, str] = {}
    for info in (await engine.files(bead_id))[:FILES_MAX]:
        if info.size <= FILE_BYTES_MAX:
            _, body = await engine.file(bead_id, info.name)
            found[info.name] = body.decode("utf-8-sig", "replace")
    return found


def _alone(dispatch: Dispatch) -> Result:
    return worked(dispatch, NO_FILES)


def worked(dispatch: Dispatch, files: Files) -> Result:
    """The specialist's result, for a person to look at."""
    bead = dispatch.bead
    revisions = [one.text for one in dispatch.iterations if one.text.strip()]
    said = [f"{bead.title}\n{bead.description}", *revisions]
    rows, unknown = SPECIALISTS[dispatch.agent](said, files)
    applied = [one for one in revisions if one not in unknown]
    notes = [f"revised: {' '.join(applied[-1].split())}"] if applied else []
    notes += [f"not applied, the rules do not know it: {' '.join(one.split())}" for one in unknown]
    return hand("review", f"{dispatch.agent} is done", "\n".join([*rows, *notes]))

"""Finance: a planner, three specialists and a person who reviews.

Offline they are rules whose results can be checked: an invoice's lines, discounts and tax
(`invoice.py`), what differs between a ledger and the bank (`closing.py`), findings in a sample of
entries (`audit.py`). They read the task, all revisions in their order, and the tables among the
bead's files (`tables.py`). A revision that the rules know ("use 7% tax", "limit 2000", "accept R7")
is applied; the result names the others, so that no reader takes them for done.

Endings: approved, closed by the person (reject), without review.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel.result import Result
from handrail.teams.finance import audit, closing, invoice
from handrail.teams.finance.routing import planner
from handrail.teams.finance.tables import FILE_BYTES_MAX, FILES_MAX, Files
from handrail.teams.scripted import ScriptedAgent, hand_off

NO_FILES: Files = {}


SpecialistFunction = Callable[[list[str], Files], tuple[list[str], list[str]]]
"""Takes all texts, the task first, and the files; returns the result, line by line, and which of
the texts say nothing that the rules know.
"""
SPECIALISTS: dict[str, SpecialistFunction] = {
    "invoice": invoice.work_out,
    "closing": closing.work_out,
    "audit": audit.work_out,
}


def scripted_agents() -> dict[str, ScriptedAgent]:
    """Return the agents without an engine: there are no files."""
    agents: dict[str, ScriptedAgent] = {"planner": planner}
    for name in SPECIALISTS:
        agents[name] = _run_without_files
    return agents


def build_agents(
    engine: Engine, *, model: str = "", workspaces: tuple[str, ...] = ()
) -> dict[str, ScriptedAgent]:
    """Return the team's agents on an engine, from which they read the bead's files."""
    del workspaces  # finance changes no files
    if model:
        from handrail.teams.finance.model_agents import build_model_agents

        return build_model_agents(engine, model)

    async def specialist(dispatch: Dispatch) -> Result:
        files = await load_text_files(engine, dispatch.bead.id)
        return await asyncio.to_thread(run_specialist, dispatch, files)

    agents: dict[str, ScriptedAgent] = {"planner": planner}
    for name in SPECIALISTS:
        agents[name] = cast("ScriptedAgent", specialist)
    return agents


async def load_text_files(engine: Engine, bead_id: str) -> Files:
    """Return the texts among the bead's files."""
    texts: dict[str, str] = {}
    for info in (await engine.beads.files(bead_id))[:FILES_MAX]:
        if info.size <= FILE_BYTES_MAX:
            _, body = await engine.beads.file(bead_id, info.name)
            texts[info.name] = body.decode("utf-8-sig", "replace")
    return texts


def _run_without_files(dispatch: Dispatch) -> Result:
    return run_specialist(dispatch, NO_FILES)


def run_specialist(dispatch: Dispatch, files: Files) -> Result:
    """Return the specialist's result, for a person's review."""
    bead = dispatch.bead
    revisions = [iteration.text for iteration in dispatch.iterations if iteration.text.strip()]
    texts = [f"{bead.title}\n{bead.description}", *revisions]
    rows, unknown = SPECIALISTS[dispatch.agent](texts, files)
    applied = [revision for revision in revisions if revision not in unknown]
    notes = [f"revised: {' '.join(applied[-1].split())}"] if applied else []
    notes += [
        f"not applied, the rules do not know it: {' '.join(revision.split())}"
        for revision in unknown
    ]
    return hand_off("review", f"{dispatch.agent} is done", "\n".join([*rows, *notes]))

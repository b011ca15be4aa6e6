"""A pushed commit whose run does not end well is taken back, through the lane and under its lock.

Whoever heals a service listens for runs of `auto-bug-workflow` that end in any other way than well,
and files a bead for each that may have pushed something; once, however many engines hear of it, and
also for those that ended while nobody listened. The bead runs through a definition of its own with
a commit node: taking back waits for its turn like every commit, is recorded, and has a newer fence
than a push that is still under way, so that one is refused, or found and taken back.
"""

import asyncio
import contextlib

from msgspec.structs import replace

from handrail.commits import Change, Lane, changes_of
from handrail.engine.bugs import WORKFLOW
from handrail.engine.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.listeners import Heard
from handrail.engine.refused import Refused
from handrail.engine.works import RunWork
from handrail.kernel.result import Result
from handrail.kernel.run.events import Offered
from handrail.kernel.run.state import Run
from handrail.kernel.steps import Events
from handrail.store.port import StoreError
from handrail.teams.scripted import fail, succeed

REVERT = "auto-bug-revert"
DEFINITION = {
    "id": REVERT,
    "name": REVERT,
    "kind": "workflow",
    "description": "Takes back a commit whose run did not end well.",
    "nodes": [
        {"id": "start", "type": "start"},
        {
            "id": "revert",
            "type": "task",
            "role": "engineering-manager",
            "description": "Commit the opposite of it.",
            "config": {"kind": "commit"},
        },
        {"id": "end", "type": "end"},
    ],
    "edges": [
        {"from_node_id": "start", "to_node_id": "revert"},
        {"from_node_id": "revert", "to_node_id": "end"},
    ],
}
LOOKED_AT = 100
"""The newest ended runs that are looked at when somebody begins to listen."""


async def watch(engine: Engine) -> None:
    """From now on commits are taken back whose runs do not end well; and what was missed is."""
    await engine.define(DEFINITION, by="handrail")
    filing: set[asyncio.Task[None]] = set()

    def hear(heard: Heard) -> None:
        run = heard.run if isinstance(heard, RunWork) else None
        if run is not None and run.definition_id == WORKFLOW and _ended_badly(run.terminal_status):
            task = asyncio.get_running_loop().create_task(_file_if_open(engine, run.id))
            filing.add(task)
            task.add_done_callback(filing.discard)

    engine.listeners.add(hear)
    page = await engine.executions(status="ended", workflow_id=WORKFLOW, limit=LOOKED_AT)
    for run in page.items:
        if _ended_badly(run.terminal_status):
            await _file(engine, run.id)


def _ended_badly(status: str | None) -> bool:
    return status is not None and status != "done_success"


async def _file_if_open(engine: Engine, run_id: str) -> None:
    with contextlib.suppress(StoreError, Refused):  # whoever listens next looks at what was missed
        await _file(engine, run_id)


async def _file(engine: Engine, run_id: str) -> None:
    """A bead, if that run may have pushed something; the same one, whoever files it."""
    if not unwanted(await engine.state(run_id), await engine.history(run_id)):
        return
    await engine.start(
        REVERT,
        title=f"Take back what run {run_id[:12]} has pushed",
        description=f"Run {run_id} did not end well.",
        context={"reverts": run_id},
        filed_by="handrail",
        key=f"revert:{run_id}",
    )


def unwanted(run: Run, events: Events) -> tuple[Change, ...]:
    """What a run that did not end well may have pushed, the newest first. Told or not: one that was
    closed while it pushed has told nobody."""
    begun = any(isinstance(event, Offered) and event.lock is not None for event in events)
    return changes_of(run, events) if begun and _ended_badly(run.terminal_status) else ()


async def take_back(engine: Engine, lane: Lane, dispatch: Dispatch) -> Result:
    """The step of the `revert` node. What is taken back says the record of that run, not the bead:
    nobody has a good commit taken back by filing one."""
    run_id = str(dispatch.bead.context.get("reverts", ""))
    try:
        wrong = unwanted(await engine.state(run_id), await engine.history(run_id))
    except Refused as refused:
        return fail(refused.refusal.message)
    if not wrong or dispatch.lock is None:
        return fail(f"run '{run_id}' has left nothing on the branch that should be taken back")
    by = ""
    told: list[str] = []
    for change in wrong:
        if commit := await lane.left(change, dispatch.lock):
            by = (await lane.revert(commit, _opposite(change, dispatch), dispatch.lock)).commit
            told.append(f"{commit[:12]} is taken back by {by}.")
    if not told:
        return succeed(f"Run {run_id} has left nothing on the branch.")
    return succeed("\n".join(told), data={"commit": by})


def _opposite(change: Change, dispatch: Dispatch) -> Change:
    """For whom and why it is taken back."""
    return replace(
        change,
        bead=dispatch.bead.id,
        run=dispatch.run.id,
        title=f"Take back: {change.title}",
        author=dispatch.token.agent,
        committer=dispatch.token.agent,
        approved_by=(),
        body=dispatch.bead.description,
    )

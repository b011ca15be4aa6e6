"""Revert a pushed commit whose run does not end well, through the lane and under its lock.

The healing process listens for runs of `auto-bug-workflow` that end in any other way than well, and
files a bead for each that may have pushed something; once, however many engines hear of it, and
also for runs that ended while no process listened. The bead runs through a definition of its own
with a commit node: the revert waits for the lock like every commit, is recorded, and has a newer
fence than a push that is still under way, so that push is refused, or found and reverted.
"""

import asyncio
import contextlib

from msgspec.structs import replace

from handrail.commits import ApprovedChange, CommitLane, approved_changes
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError, StoreError
from handrail.engine.notifier import EngineNotification, RunChange
from handrail.engine.services.bugs import BUG_WORKFLOW_ID
from handrail.kernel.result import Result
from handrail.kernel.run.events import Offered
from handrail.kernel.run.state import Run
from handrail.teams.scripted import fail, succeed
from handrail.views.steps import Events

REVERT_WORKFLOW_ID = "auto-bug-revert"
REVERT_WORKFLOW = {
    "id": REVERT_WORKFLOW_ID,
    "name": REVERT_WORKFLOW_ID,
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
MISSED_RUNS_MAX = 100
"""The newest ended runs that are checked when a process begins to listen."""


async def watch_for_reverts(engine: Engine) -> None:
    """Revert commits of runs that do not end well, from now on and for those that were missed."""
    await engine.define(REVERT_WORKFLOW, by="handrail")
    tasks: set[asyncio.Task[None]] = set()

    def on_notification(notification: EngineNotification) -> None:
        run = notification.run if isinstance(notification, RunChange) else None
        if (
            run is not None
            and run.definition_id == BUG_WORKFLOW_ID
            and _ended_badly(run.terminal_status)
        ):
            task = asyncio.get_running_loop().create_task(_file_revert_if_open(engine, run.id))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    engine.listeners.add(on_notification)
    page = await engine.run_queries.list(
        status="ended", workflow_id=BUG_WORKFLOW_ID, limit=MISSED_RUNS_MAX
    )
    for run in page.items:
        if _ended_badly(run.terminal_status):
            await _file_revert(engine, run.id)


def _ended_badly(status: str | None) -> bool:
    return status is not None and status != "done_success"


async def _file_revert_if_open(engine: Engine, run_id: str) -> None:
    with contextlib.suppress(StoreError, RefusedError):  # the next listener finds what was missed
        await _file_revert(engine, run_id)


async def _file_revert(engine: Engine, run_id: str) -> None:
    """File a bead, if that run may have pushed something; the same one, whichever engine files
    it.
    """
    if not changes_to_revert(await engine.runs.state(run_id), await engine.runs.history(run_id)):
        return
    await engine.start(
        REVERT_WORKFLOW_ID,
        title=f"Take back what run {run_id[:12]} has pushed",
        description=f"Run {run_id} did not end well.",
        context={"reverts": run_id},
        filed_by="handrail",
        key=f"revert:{run_id}",
    )


def changes_to_revert(run: Run, events: Events) -> tuple[ApprovedChange, ...]:
    """Return what a run that did not end well may have pushed, the newest first.

    Reported or not: a run that was closed while it pushed has reported nothing.
    """
    has_held_lock = any(isinstance(event, Offered) and event.lock is not None for event in events)
    return (
        approved_changes(run, events) if has_held_lock and _ended_badly(run.terminal_status) else ()
    )


async def revert_run(engine: Engine, lane: CommitLane, dispatch: Dispatch) -> Result:
    """Work the `revert` node. The record of that run says what to revert, not the bead: filing a
    bead cannot revert a good commit.
    """
    run_id = str(dispatch.bead.context.get("reverts", ""))
    try:
        changes = changes_to_revert(
            await engine.runs.state(run_id), await engine.runs.history(run_id)
        )
    except RefusedError as error:
        return fail(error.refusal.message)
    if not changes or dispatch.lock is None:
        return fail(f"run '{run_id}' has left nothing on the branch that should be taken back")
    revert_commit = ""
    lines: list[str] = []
    for change in changes:
        if commit := await lane.find_pushed_commit(change, dispatch.lock):
            revert_commit = (
                await lane.revert(commit, _to_revert(change, dispatch), dispatch.lock)
            ).commit
            lines.append(f"{commit[:12]} is taken back by {revert_commit}.")
    if not lines:
        return succeed(f"Run {run_id} has left nothing on the branch.")
    return succeed("\n".join(lines), data={"commit": revert_commit})


def _to_revert(change: ApprovedChange, dispatch: Dispatch) -> ApprovedChange:
    """Return the change that says for whom and why the commit is reverted."""
    return replace(
        change,
        bead_id=dispatch.bead.id,
        run_id=dispatch.run.id,
        title=f"Take back: {change.title}",
        author=dispatch.position.agent,
        committer=dispatch.position.agent,
        approved_by=(),
        body=dispatch.bead.description,
    )

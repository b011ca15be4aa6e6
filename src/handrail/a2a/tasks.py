"""A run as a task: its id is the run's, and how it stands follows from the run, at any moment.

Nothing is kept here: a task can be asked for as long as the run is on record, of any process that
speaks A2A for the same server.
"""

from handrail.agents.a2a_words import (
    TEXT,
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from handrail.client.clients import AsyncClient
from handrail.engine.beads import BeadView
from handrail.kernel.approval import Approval
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.view import RunView

KEPT = "a2a_context"
"""Where the bead's context has what the caller calls its own."""
STATES: dict[str, TaskState] = {
    "running": TaskState.WORKING,
    "paused": TaskState.WORKING,
    "waiting": TaskState.INPUT_REQUIRED,
    TerminalStatus.DONE_SUCCESS: TaskState.COMPLETED,
    TerminalStatus.DONE_PARTIAL: TaskState.COMPLETED,
    TerminalStatus.ABORTED_STUCK: TaskState.FAILED,
    TerminalStatus.ABORTED_CONSTRAINT: TaskState.FAILED,
    TerminalStatus.CLOSED_BY_HUMAN: TaskState.CANCELED,
}
"""How a run stands, or how it ended -> what a task is then."""
TEXT_CHARS = 200_000
RESULT = "result"
ASKED = ("asked", "reasked")
"""Events that ask a person."""
LOOKED_AT = 200
"""Of the newest events of a run, in which its open question is looked for."""
WAITS = "A person is asked; look again in a moment."


def state_of(run: RunView) -> TaskState:
    return STATES[run.terminal_status or run.status]


async def task_of(client: AsyncClient, run: RunView) -> Task:
    """The task, with what it asks, or with what came of it."""
    state = state_of(run)
    bead = await client.bead(run.bead_id)
    told, artifacts = "", ()
    if state is TaskState.INPUT_REQUIRED:
        question = await open_question(client, run)
        told = _asks(question) if question is not None else WAITS
    elif run.terminal_status is not None:
        told = (await client.why(run.id)).why
        artifacts = await _artifacts(client, run) if state is TaskState.COMPLETED else ()
    context = context_of(bead)
    said = _message(run, context, told) if told else None
    status = TaskStatus(state=state, message=said, timestamp=run.updated_at)
    return Task(id=run.id, context_id=context, status=status, artifacts=artifacts)


def context_of(bead: BeadView) -> str:
    """What the caller calls it; else the bead, of which there may be several runs."""
    named = bead.context.get(KEPT)
    return named if isinstance(named, str) and named else bead.id


async def open_question(client: AsyncClient, run: RunView) -> Approval | None:
    """What a person is asked, the last if there are several."""
    page = await client.audit(execution_id=run.id, limit=LOOKED_AT)
    for event in page.items:
        if event["type"] in ASKED:
            found = await client.approval(event["question"]["id"])
            if found.status == "open":
                return found
    return None


def _asks(question: Approval) -> str:
    who = ", ".join(question.waits_for or question.approvers)
    about = f"\n\nWhat it is about:\n{question.result}" if question.result else ""
    options = f"\n\nChoices: {', '.join(question.options)}" if question.options else ""
    steps = "".join(f"\n- {one}" for one in question.proposed_next_steps)
    told = f"{question.question}{about}{options}\n\nMay be answered by: {who}{steps}"
    return told[:TEXT_CHARS]


async def _artifacts(client: AsyncClient, run: RunView) -> tuple[Artifact, ...]:
    """What was said last."""
    steps = (await client.steps(run.id)).items
    text = next((one.text for one in reversed(steps) if one.text), "")
    if not text:
        return ()
    part = Part(text=text[:TEXT_CHARS], media_type=TEXT)
    return (Artifact(artifact_id=RESULT, name=RESULT, parts=(part,)),)


def _message(run: RunView, context: str, text: str) -> Message:
    return Message(
        message_id=f"{run.id}.{run.updated_at.timestamp():.6f}",
        role=Role.AGENT,
        parts=(Part(text=text, media_type=TEXT),),
        task_id=run.id,
        context_id=context,
    )

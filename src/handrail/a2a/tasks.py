"""A run as a task: its id is the run's, and how it stands follows from the run, at any moment.

Nothing is kept here: a task can be asked for as long as the run is on record, of any process that
speaks A2A for the same server.
"""

from typing import Any

from handrail.agents.a2a_words import (
    TEXT,
    Artifact,
    Message,
    Part,
    Role,
    TaskState,
    TaskStatus,
    ToldTask,
)
from handrail.client.clients import AsyncClient
from handrail.engine.beads import BeadView
from handrail.engine.reading import RunItem
from handrail.kernel.approval import Approval
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.text_protocol import TERMINATE_MARKER, said
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
ANSWERED = "answered"
SPEECH = (*ASKED, ANSWERED)
"""Events in which something is said."""
LOOKED_AT = 200
"""Of the newest events of a run, in which its open question is looked for, and what was said."""
HISTORY_MAX = 50
WAITS = "A person is asked; look again in a moment."


def state_of(run: RunView | RunItem) -> TaskState:
    return STATES[run.terminal_status or run.status]


async def task_of(client: AsyncClient, run: RunView, history: int | None = None) -> ToldTask:
    """The task, with what it asks, or with what came of it. `history`: how much of what was said
    in it at most."""
    state = state_of(run)
    bead = await client.bead(run.bead_id)
    told, artifacts = "", ()
    if state is TaskState.INPUT_REQUIRED:
        question = await open_question(client, run)
        told = _asks(question) if question is not None else WAITS
    elif run.terminal_status is not None:
        told = (await client.why(run.id)).why
        artifacts = await artifacts_of(client, run)
    context = context_of(bead)
    mark = f"{run.id}.{run.updated_at.timestamp():.6f}"
    said = _message(run.id, context, mark, Role.AGENT, told) if told else None
    return ToldTask(
        id=run.id,
        context_id=context,
        status=TaskStatus(state=state, message=said, timestamp=run.updated_at),
        artifacts=artifacts,
        history=await history_of(client, run.id, bead, history),
    )


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


async def answered_with(client: AsyncClient, run: RunView, text: str) -> Approval | None:
    """What was last answered, if with these words."""
    page = await client.audit(execution_id=run.id, limit=LOOKED_AT)
    last = next((event for event in page.items if event["type"] == ANSWERED), None)
    if last is None or last.get("text") != text:
        return None
    return await client.approval(last["question_id"])


def _asks(question: Approval) -> str:
    who = ", ".join(question.waits_for or question.approvers)
    about = f"\n\nWhat it is about:\n{question.result}" if question.result else ""
    options = f"\n\nChoices: {', '.join(question.options)}" if question.options else ""
    steps = "".join(f"\n- {one}" for one in question.proposed_next_steps)
    told = f"{question.question}{about}{options}\n\nMay be answered by: {who}{steps}"
    return told[:TEXT_CHARS]


async def artifacts_of(client: AsyncClient, run: RunView | RunItem) -> tuple[Artifact, ...]:
    """What was said last, if it was completed."""
    if state_of(run) is not TaskState.COMPLETED:
        return ()
    steps = (await client.steps(run.id)).items
    text = next(filter(None, (_without_stop_word(one.text) for one in reversed(steps))), "")
    if not text:
        return ()
    part = Part(text=text[:TEXT_CHARS], media_type=TEXT)
    return (Artifact(artifact_id=RESULT, name=RESULT, parts=(part,)),)


def _without_stop_word(text: str) -> str:
    """What a last line says to Handrail alone is not a partner's to read; its reason is."""
    found = said(text)
    if found.marker != TERMINATE_MARKER:
        return text
    before = "\n".join(text.rstrip().splitlines()[:-1]).rstrip()
    return "\n".join(filter(None, (before, found.reason)))


async def history_of(
    client: AsyncClient, run_id: str, bead: BeadView, most: int | None
) -> tuple[Message, ...]:
    """What the work is, what people were asked, and what they answered: the last of it."""
    if most == 0:
        return ()
    events = (await client.audit(execution_id=run_id, limit=LOOKED_AT)).items
    said = [_said(event) for event in reversed(events) if event["type"] in SPEECH]
    first = ("0", Role.USER, bead.description or bead.title)
    context = context_of(bead)
    return tuple(
        _message(run_id, context, f"{run_id}.m{number}", role, text)
        for number, role, text in [first, *said][-min(most or HISTORY_MAX, HISTORY_MAX) :]
    )


def _said(event: dict[str, Any]) -> tuple[str, Role, str]:
    """The number of the event, who speaks in it, and what."""
    if event["type"] in ASKED:
        return str(event["seq"]), Role.AGENT, event["question"]["text"]
    return str(event["seq"]), Role.USER, event.get("text") or event["decision"]


def _message(run_id: str, context: str, name: str, role: Role, text: str) -> Message:
    return Message(
        message_id=name,
        role=role,
        parts=(Part(text=text[:TEXT_CHARS], media_type=TEXT),),
        task_id=run_id,
        context_id=context,
    )

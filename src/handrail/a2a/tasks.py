"""A run as a task: its id is the run's, and its state follows from the run, at any moment.

Nothing is kept here: every process that serves A2A for the same server can return a task, as long
as the run is on record.
"""

from typing import Any

from handrail.agents.a2a_types import (
    TEXT_MEDIA_TYPE,
    A2AMessage,
    Artifact,
    MessageRole,
    Part,
    TaskState,
    TaskStatus,
    TaskWithHistory,
)
from handrail.client.clients import AsyncClient
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.run.text_protocol import TERMINATE_MARKER, read_directive
from handrail.views.approvals import Approval
from handrail.views.beads import BeadView
from handrail.views.run_view import RunItem, RunView

CONTEXT_KEY = "a2a_context"
"""The key of the bead's context for the caller's own context id."""
STATE_BY_STATUS: dict[str, TaskState] = {
    "running": TaskState.WORKING,
    "paused": TaskState.WORKING,
    "waiting": TaskState.INPUT_REQUIRED,
    TerminalStatus.DONE_SUCCESS: TaskState.COMPLETED,
    TerminalStatus.DONE_PARTIAL: TaskState.COMPLETED,
    TerminalStatus.ABORTED_STUCK: TaskState.FAILED,
    TerminalStatus.ABORTED_CONSTRAINT: TaskState.FAILED,
    TerminalStatus.CLOSED_BY_HUMAN: TaskState.CANCELED,
}
"""Status or end of a run -> state of the task."""
TEXT_CHARS_MAX = 200_000
RESULT_NAME = "result"
ASK_EVENTS = ("asked", "reasked")
"""Events that open an approval."""
ANSWER_EVENT = "answered"
MESSAGE_EVENTS = (*ASK_EVENTS, ANSWER_EVENT)
"""Events with a message."""
EVENTS_SEARCHED = 200
"""The newest events of a run, which are searched for its open approval and its messages."""
HISTORY_MESSAGES_MAX = 50
WAITING_TEXT = "A person is asked; look again in a moment."


def task_state(run: RunView | RunItem) -> TaskState:
    return STATE_BY_STATUS[run.terminal_status or run.status]


async def build_task(
    client: AsyncClient, run: RunView, history_length: int | None = None
) -> TaskWithHistory:
    """Build the task, with its open approval, or with its result. `history`: the most messages to
    include.
    """
    state = task_state(run)
    bead = await client.beads.get(run.bead_id)
    text, artifacts = "", ()
    if state is TaskState.INPUT_REQUIRED:
        approval = await find_open_approval(client, run)
        text = _approval_text(approval) if approval is not None else WAITING_TEXT
    elif run.terminal_status is not None:
        text = (await client.runs.explain(run.id)).why
        artifacts = await build_artifacts(client, run)
    context_id = read_context_id(bead)
    message_id = f"{run.id}.{run.updated_at.timestamp():.6f}"
    message = (
        _text_message(run.id, context_id, message_id, MessageRole.AGENT, text) if text else None
    )
    return TaskWithHistory(
        id=run.id,
        context_id=context_id,
        status=TaskStatus(state=state, message=message, timestamp=run.updated_at),
        artifacts=artifacts,
        history=await build_history(client, run.id, bead, history_length),
    )


def read_context_id(bead: BeadView) -> str:
    """Return the caller's context id; else the bead's id, which may have several runs."""
    context_id = bead.context.get(CONTEXT_KEY)
    return context_id if isinstance(context_id, str) and context_id else bead.id


async def find_open_approval(client: AsyncClient, run: RunView) -> Approval | None:
    """Return the open approval, the last if there are several."""
    page = await client.audit.list(execution_id=run.id, limit=EVENTS_SEARCHED)
    for event in page.items:
        if event["type"] in ASK_EVENTS:
            approval = await client.approvals.get(event["question"]["id"])
            if approval.status == "open":
                return approval
    return None


async def find_answered_approval(client: AsyncClient, run: RunView, text: str) -> Approval | None:
    """Return the last answered approval, if this text answered it."""
    page = await client.audit.list(execution_id=run.id, limit=EVENTS_SEARCHED)
    last = next((event for event in page.items if event["type"] == ANSWER_EVENT), None)
    if last is None or last.get("text") != text:
        return None
    return await client.approvals.get(last["question_id"])


def _approval_text(approval: Approval) -> str:
    who = ", ".join(approval.waits_for or approval.approvers)
    result = f"\n\nWhat it is about:\n{approval.result}" if approval.result else ""
    options = f"\n\nChoices: {', '.join(approval.options)}" if approval.options else ""
    steps = "".join(f"\n- {step}" for step in approval.proposed_next_steps)
    text = f"{approval.question}{result}{options}\n\nMay be answered by: {who}{steps}"
    return text[:TEXT_CHARS_MAX]


async def build_artifacts(client: AsyncClient, run: RunView | RunItem) -> tuple[Artifact, ...]:
    """Return the last result, if the run was completed."""
    if task_state(run) is not TaskState.COMPLETED:
        return ()
    steps = (await client.runs.list_steps(run.id)).items
    text = next(filter(None, (_strip_stop_word(step.text) for step in reversed(steps))), "")
    if not text:
        return ()
    part = Part(text=text[:TEXT_CHARS_MAX], media_type=TEXT_MEDIA_TYPE)
    return (Artifact(artifact_id=RESULT_NAME, name=RESULT_NAME, parts=(part,)),)


def _strip_stop_word(text: str) -> str:
    """Remove a last line that is for Handrail alone; keep its reason."""
    parsed = read_directive(text)
    if parsed.marker != TERMINATE_MARKER:
        return text
    before = "\n".join(text.rstrip().splitlines()[:-1]).rstrip()
    return "\n".join(filter(None, (before, parsed.reason)))


async def build_history(
    client: AsyncClient, run_id: str, bead: BeadView, messages_max: int | None
) -> tuple[A2AMessage, ...]:
    """Return the last messages: the work, the approvals and their answers."""
    if messages_max == 0:
        return ()
    events = (await client.audit.list(execution_id=run_id, limit=EVENTS_SEARCHED)).items
    entries = [
        _history_entry(event) for event in reversed(events) if event["type"] in MESSAGE_EVENTS
    ]
    first = ("0", MessageRole.USER, bead.description or bead.title)
    context_id = read_context_id(bead)
    return tuple(
        _text_message(run_id, context_id, f"{run_id}.m{number}", role, text)
        for number, role, text in [first, *entries][
            -min(messages_max or HISTORY_MESSAGES_MAX, HISTORY_MESSAGES_MAX) :
        ]
    )


def _history_entry(event: dict[str, Any]) -> tuple[str, MessageRole, str]:
    """Return the number of the event, the speaker, and the text."""
    if event["type"] in ASK_EVENTS:
        return str(event["seq"]), MessageRole.AGENT, event["question"]["text"]
    return str(event["seq"]), MessageRole.USER, event.get("text") or event["decision"]


def _text_message(
    run_id: str, context_id: str, message_id: str, role: MessageRole, text: str
) -> A2AMessage:
    return A2AMessage(
        message_id=message_id,
        role=role,
        parts=(Part(text=text[:TEXT_CHARS_MAX], media_type=TEXT_MEDIA_TYPE),),
        task_id=run_id,
        context_id=context_id,
    )

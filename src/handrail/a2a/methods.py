"""The methods of A2A, each called with the caller's credential: the server checks every one.

A message without a task files a bead, and its run is the task. A message to a task that waits
answers its open approval, if the credential may. The same message sent again is the same bead, or
the same answer. Waits are bounded: a task that is not settled by then is returned as it stands, to
be polled again.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from handrail.a2a.cards import extended_card
from handrail.a2a.errors import JsonRpcError
from handrail.a2a.message_content import MessageContent, read_content
from handrail.a2a.params import CallContext, check_name, check_task_id, decode_params
from handrail.a2a.task_list import list_tasks
from handrail.a2a.tasks import (
    CONTEXT_KEY,
    build_task,
    find_answered_approval,
    find_open_approval,
    read_context_id,
    task_state,
)
from handrail.agents.a2a_types import (
    SETTLED_STATES,
    TERMINAL_STATES,
    A2AMessage,
    A2ATask,
    A2AType,
    AgentCard,
    SendMessageRequest,
    SendMessageResponse,
    TaskArtifactUpdateEvent,
    TaskRequest,
    TaskState,
    TaskStatusUpdateEvent,
    join_text,
)
from handrail.api.runs import StreamEvent
from handrail.client.clients import AsyncClient
from handrail.client.errors import ConflictError, InvalidRequestError, NotFoundError
from handrail.views.run_view import RunView

T = TypeVar("T")

WAIT_SECONDS_MAX = 50.0
"""How long a response is held for a caller that waits for the end."""
CANCEL_REASON = "cancelled over A2A"
KEY_REUSED_CODE = "key_reused"
STATE_CHANGE_EVENTS = frozenset(
    {"asked", "reasked", "answered", "paused", "resumed", "moved", "ended"}
)
"""Events that may change the state of a task."""


class Subscription(NamedTuple):
    """A task that is watched until it reaches one of these states, and the history to send with
    it.
    """

    run: RunView
    until: Collection[str]
    history_length: int | None = None


# Calls


async def send_message(call_context: CallContext, raw: bytes) -> SendMessageResponse:
    params = decode_params(raw, SendMessageRequest)
    subscription = await _begin(call_context, params)
    task = await build_task(call_context.client, subscription.run, subscription.history_length)
    if params.configuration.return_immediately:
        return SendMessageResponse(task=task)
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(WAIT_SECONDS_MAX),
            aclosing(_task_states(call_context, subscription)) as states,
        ):
            async for state in states:
                task = state
    return SendMessageResponse(task=task)


async def get_task(call_context: CallContext, raw: bytes) -> A2ATask:
    params = decode_params(raw, TaskRequest)
    run = await call_context.client.runs.get(check_task_id(params.id))
    return await build_task(call_context.client, run, params.history_length)


async def cancel_task(call_context: CallContext, raw: bytes) -> A2ATask:
    """Close the run; an operator those of beads that it filed, a ceo any."""
    run = await call_context.client.runs.get(check_task_id(decode_params(raw, TaskRequest).id))
    try:
        run = await call_context.client.runs.override(run.id, "close", CANCEL_REASON)
    except ConflictError as error:
        raise JsonRpcError("TASK_NOT_CANCELABLE", error.detail) from error
    return await build_task(call_context.client, run)


async def get_extended_card(call_context: CallContext, _: bytes) -> AgentCard:
    return await extended_card(call_context.client, call_context.url, call_context.definition)


async def reject_push_config(_: CallContext, __: bytes) -> NoReturn:
    message = "nothing is pushed from here, as the card says"
    raise JsonRpcError(
        "PUSH_NOTIFICATION_NOT_SUPPORTED", f"{message}; use SubscribeToTask, or GetTask"
    )


METHODS: dict[str, Callable[[CallContext, bytes], Awaitable[A2AType]]] = {
    "SendMessage": send_message,
    "GetTask": get_task,
    "ListTasks": list_tasks,
    "CancelTask": cancel_task,
    "GetExtendedAgentCard": get_extended_card,
    "CreateTaskPushNotificationConfig": reject_push_config,
    "GetTaskPushNotificationConfig": reject_push_config,
    "ListTaskPushNotificationConfigs": reject_push_config,
    "DeleteTaskPushNotificationConfig": reject_push_config,
}


# Streams


async def send_streaming_message(call_context: CallContext, raw: bytes) -> Subscription:
    return await _begin(call_context, decode_params(raw, SendMessageRequest))


async def subscribe_to_task(call_context: CallContext, raw: bytes) -> Subscription:
    """Subscribe to a task until its end: other callers may answer its approvals, too."""
    run = await call_context.client.runs.get(check_task_id(decode_params(raw, TaskRequest).id))
    if task_state(run) in TERMINAL_STATES:
        raise JsonRpcError("UNSUPPORTED_OPERATION", f"task '{run.id}' has ended; get it")
    return Subscription(run, TERMINAL_STATES)


STREAMING_METHODS: dict[str, Callable[[CallContext, bytes], Awaitable[Subscription]]] = {
    "SendStreamingMessage": send_streaming_message,
    "SubscribeToTask": subscribe_to_task,
}
"""The part of a stream before its first event, which may be refused."""


async def stream_updates(
    call_context: CallContext, subscription: Subscription
) -> AsyncGenerator[SendMessageResponse]:
    """Yield the task, then its changes."""
    previous: A2ATask | None = None
    async with aclosing(_task_states(call_context, subscription)) as states:
        async for task in states:
            for update in _updates(previous, task):
                yield update
            previous = task


def _updates(before: A2ATask | None, task: A2ATask) -> list[SendMessageResponse]:
    if before is None:
        return [SendMessageResponse(task=task)]
    ids = {"task_id": task.id, "context_id": task.context_id}
    artifact_updates = [
        SendMessageResponse(
            artifact_update=TaskArtifactUpdateEvent(**ids, artifact=artifact, last_chunk=True)
        )
        for artifact in task.artifacts
    ]
    return [
        *artifact_updates,
        SendMessageResponse(status_update=TaskStatusUpdateEvent(**ids, status=task.status)),
    ]


async def _task_states(
    call_context: CallContext, subscription: Subscription
) -> AsyncGenerator[A2ATask]:
    """Yield the task as it stands, and after each change of its state or its open approval."""
    client, run = call_context.client, subscription.run
    task = await build_task(client, run, subscription.history_length)
    yield task
    if task.status.state in subscription.until:
        return
    event_stream = cast("AsyncGenerator[StreamEvent]", client.runs.follow(run.id))
    async with aclosing(event_stream) as events:
        async for event in events:
            if event.type not in STATE_CHANGE_EVENTS or event.at < run.updated_at:
                continue
            run = await client.runs.get(run.id)
            before, task = task, await build_task(client, run, subscription.history_length)
            if _state_and_text(task) != _state_and_text(before):
                yield task
            if task.status.state in subscription.until:
                return


def _state_and_text(task: A2ATask) -> tuple[str, str]:
    message = task.status.message
    return task.status.state, join_text(message.parts) if message is not None else ""


# Messages


async def _begin(call_context: CallContext, params: SendMessageRequest) -> Subscription:
    """Return the run that a message begins, or goes to, until the run does not change by itself."""
    configuration = params.configuration
    if configuration.task_push_notification_config is not None:
        await reject_push_config(call_context, b"")
    return Subscription(
        await _deliver(call_context, params), SETTLED_STATES, configuration.history_length
    )


async def _deliver(call_context: CallContext, params: SendMessageRequest) -> RunView:
    content = read_content(params.message)
    if params.message.task_id:
        return await _answer_approval(call_context.client, params.message, content)
    requested = params.message.metadata.get("definition") or params.metadata.get("definition")
    definition = call_context.definition or requested
    if not isinstance(definition, str) or definition in ("", ".", ".."):
        reason = "this agent is that of all definitions, and the message does not say which"
        raise JsonRpcError("INVALID_PARAMS", f"{reason}; say so in its metadata, as `definition`")
    return await _file_bead(call_context.client, definition, params.message, content)


async def _file_bead(
    client: AsyncClient, definition: str, message: A2AMessage, content: MessageContent
) -> RunView:
    context_id = check_name(message.context_id, "contextId")
    context = {**content.data, CONTEXT_KEY: context_id} if context_id else content.data
    bead_fields = {"title": content.title, "description": content.text, "context": context}
    if content.files:
        return await _file_bead_with_files(client, definition, message, content, bead_fields)
    create_bead = partial(client.beads.create, **bead_fields, workflow_id=definition)
    bead = await _post_once(message, create_bead)
    assert bead.execution_id is not None, "filed with a definition"
    return await client.runs.get(bead.execution_id)


async def _file_bead_with_files(
    client: AsyncClient,
    definition: str,
    message: A2AMessage,
    content: MessageContent,
    bead_fields: dict[str, Any],
) -> RunView:
    """Begin the run when the files are there: its first agent gets them, too."""
    try:
        await client.definitions.get(check_name(definition, "definition"))
    except NotFoundError as error:
        raise JsonRpcError("INVALID_PARAMS", f"{error.detail}; nothing was filed") from error
    bead = await _post_once(message, partial(client.beads.create, **bead_fields))
    for file in content.files:
        await client.beads.add_file(bead.id, file.name, file.content, content_type=file.media_type)
    start_run = partial(client.runs.start, bead.id, workflow_id=definition)
    return await _post_once(message, start_run, "-run")


async def _answer_approval(
    client: AsyncClient, message: A2AMessage, content: MessageContent
) -> RunView:
    run = await client.runs.get(check_task_id(message.task_id))
    if message.context_id and message.context_id != read_context_id(
        await client.beads.get(run.bead_id)
    ):
        reason = f"task '{run.id}' is not of the context that the message names"
        raise JsonRpcError("INVALID_PARAMS", f"{reason}; leave contextId out, or take the task's")
    if content.data or content.files:
        reason = "an answer is text, and this one brings data or files"
        raise JsonRpcError(
            "CONTENT_TYPE_NOT_SUPPORTED", f"{reason}; say it in words, or begin another task"
        )
    state = task_state(run)
    is_waiting = state is TaskState.INPUT_REQUIRED
    # A caller that missed the response to its answer sends it again.
    find_approval = (
        find_open_approval if is_waiting else partial(find_answered_approval, text=content.text)
    )
    approval = await find_approval(client, run)
    if approval is None:
        reason = "has ended" if state in TERMINAL_STATES else "is at work, and asks nothing"
        raise JsonRpcError(
            "UNSUPPORTED_OPERATION", f"task '{run.id}' {reason}; begin another, or wait"
        )
    answer = partial(client.approvals.answer, approval.id, content.text, digest=approval.digest)
    answered = await _post_once(message, answer)
    return answered.execution if is_waiting else run


async def _post_once(
    message: A2AMessage, call: Callable[..., Awaitable[T]], key_suffix: str = ""
) -> T:
    """Make the call of a message: sent again, it is the same one, and never answers a later
    approval. `key_suffix`: which call, if the message means more than one.
    """
    if not message.message_id:
        raise JsonRpcError(
            "INVALID_PARAMS", "messageId is empty; give every message one of its own"
        )
    key = hashlib.sha256(message.message_id.encode()).hexdigest()[:40]
    try:
        return await call(key=f"a2a-{key}{key_suffix}")
    except InvalidRequestError as error:
        if error.code != KEY_REUSED_CODE:
            raise
        reason = (
            f"messageId '{check_name(message.message_id, 'messageId')}' was used for another "
            "message"
        )
        raise JsonRpcError(
            "INVALID_PARAMS", f"{reason}; give every message one of its own"
        ) from error

"""What each call does, as whoever its token is of: the server judges every one of them.

A message without a task files a bead, and its run is the task. A message to a task that waits
answers the question that it waits for, if the token may. The same message sent again is the same
bead, or the same answer. Waits are bounded: a task that is not settled by then is given as it
stands, to be asked for again.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from handrail.a2a.asked import Asking, name, read, task_id
from handrail.a2a.cards import open_card
from handrail.a2a.content import Content, content_of
from handrail.a2a.lists import listed
from handrail.a2a.refusals import No
from handrail.a2a.tasks import (
    KEPT,
    answered_with,
    context_of,
    open_question,
    state_of,
    task_of,
)
from handrail.agents.a2a_words import (
    ENDED,
    SETTLED,
    ArtifactUpdate,
    Card,
    Message,
    OfTask,
    Said,
    SendMessage,
    Sent,
    StatusUpdate,
    Task,
    TaskState,
    text_of,
)
from handrail.client.call import path
from handrail.client.call import send as send_call
from handrail.client.clients import AsyncClient
from handrail.client.errors import Conflict, Invalid, NotFound
from handrail.client.shapes import Answered
from handrail.client.stream import Event
from handrail.engine.beads import BeadView
from handrail.kernel.view import RunView

T = TypeVar("T")

WAIT_SECONDS = 50.0
"""That an answer is kept back, for a caller that wants to wait for the end."""
CANCELLED = "cancelled over A2A"
KEY_REUSED = "key_reused"
CHANGES = frozenset({"asked", "reasked", "answered", "paused", "resumed", "moved", "ended"})
"""Events after which a task may stand otherwise."""


class Following(NamedTuple):
    """A task that is watched until it stands so, told with so much of what was said in it."""

    run: RunView
    until: Collection[str]
    history: int | None = None


# Calls


async def send(asking: Asking, raw: bytes) -> Sent:
    params = read(raw, SendMessage)
    watched = await _begun(asking, params)
    task = await task_of(asking.client, watched.run, watched.history)
    if params.configuration.return_immediately:
        return Sent(task=task)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS), aclosing(_states(asking, watched)) as states:
            async for one in states:
                task = one
    return Sent(task=task)


async def get(asking: Asking, raw: bytes) -> Task:
    params = read(raw, OfTask)
    run = await asking.client.execution(task_id(params.id))
    return await task_of(asking.client, run, params.history_length)


async def cancel(asking: Asking, raw: bytes) -> Task:
    """Closes the run; an operator those of beads that it filed, a ceo any."""
    run = await asking.client.execution(task_id(read(raw, OfTask).id))
    try:
        run = await asking.client.override(run.id, "close", CANCELLED)
    except Conflict as error:
        raise No("TASK_NOT_CANCELABLE", error.detail) from error
    return await task_of(asking.client, run)


async def card(asking: Asking, _: bytes) -> Card:
    return await open_card(asking.client, asking.url, asking.definition)


async def not_pushed(_: Asking, __: bytes) -> NoReturn:
    told = "nothing is pushed from here, as the card says"
    raise No("PUSH_NOTIFICATION_NOT_SUPPORTED", f"{told}; use SubscribeToTask, or GetTask")


CALLS: dict[str, Callable[[Asking, bytes], Awaitable[Said]]] = {
    "SendMessage": send,
    "GetTask": get,
    "ListTasks": listed,
    "CancelTask": cancel,
    "GetExtendedAgentCard": card,
    "CreateTaskPushNotificationConfig": not_pushed,
    "GetTaskPushNotificationConfig": not_pushed,
    "ListTaskPushNotificationConfigs": not_pushed,
    "DeleteTaskPushNotificationConfig": not_pushed,
}


# Streams


async def send_and_follow(asking: Asking, raw: bytes) -> Following:
    return await _begun(asking, read(raw, SendMessage))


async def subscribe(asking: Asking, raw: bytes) -> Following:
    """To its end: what it asks meanwhile others may answer, too."""
    run = await asking.client.execution(task_id(read(raw, OfTask).id))
    if state_of(run) in ENDED:
        raise No("UNSUPPORTED_OPERATION", f"task '{run.id}' has ended; get it")
    return Following(run, ENDED)


STREAMS: dict[str, Callable[[Asking, bytes], Awaitable[Following]]] = {
    "SendStreamingMessage": send_and_follow,
    "SubscribeToTask": subscribe,
}
"""What comes before the first word of a stream, and may be refused."""


async def follow(asking: Asking, watched: Following) -> AsyncGenerator[Sent]:
    """The task, then what changes."""
    told: Task | None = None
    async with aclosing(_states(asking, watched)) as states:
        async for task in states:
            for sent in _changes(told, task):
                yield sent
            told = task


def _changes(before: Task | None, task: Task) -> list[Sent]:
    if before is None:
        return [Sent(task=task)]
    ids = {"task_id": task.id, "context_id": task.context_id}
    made = [
        Sent(artifact_update=ArtifactUpdate(**ids, artifact=one, last_chunk=True))
        for one in task.artifacts
    ]
    return [*made, Sent(status_update=StatusUpdate(**ids, status=task.status))]


async def _states(asking: Asking, watched: Following) -> AsyncGenerator[Task]:
    """The task as it stands, and whenever it stands otherwise, or asks something else."""
    client, run = asking.client, watched.run
    task = await task_of(client, run, watched.history)
    yield task
    if task.status.state in watched.until:
        return
    found = cast("AsyncGenerator[Event]", client.events(run.id))
    async with aclosing(found) as events:
        async for event in events:
            if event.type not in CHANGES or event.at < run.updated_at:
                continue
            run = await client.execution(run.id)
            before, task = task, await task_of(client, run, watched.history)
            if _stands(task) != _stands(before):
                yield task
            if task.status.state in watched.until:
                return


def _stands(task: Task) -> tuple[str, str]:
    said = task.status.message
    return task.status.state, text_of(said.parts) if said is not None else ""


# Messages


async def _begun(asking: Asking, params: SendMessage) -> Following:
    """The run that a message begins, or goes to, until nothing more happens to it by itself."""
    how = params.configuration
    if how.task_push_notification_config is not None:
        await not_pushed(asking, b"")
    return Following(await _sent(asking, params), SETTLED, how.history_length)


async def _sent(asking: Asking, params: SendMessage) -> RunView:
    content = content_of(params.message)
    if params.message.task_id:
        return await _answer(asking.client, params.message, content)
    named = params.message.metadata.get("definition") or params.metadata.get("definition")
    definition = asking.definition or named
    if not isinstance(definition, str) or definition in ("", ".", ".."):
        told = "this agent is that of all definitions, and the message does not say which"
        raise No("INVALID_PARAMS", f"{told}; say so in its metadata, as `definition`")
    return await _filed(asking.client, definition, params.message, content)


async def _filed(
    client: AsyncClient, definition: str, message: Message, content: Content
) -> RunView:
    kept = name(message.context_id, "contextId")
    context = {**content.data, KEPT: kept} if kept else content.data
    about = {"title": content.title, "description": content.text, "context": context}
    if content.files:
        return await _filed_with_files(client, definition, message, content, about)
    bead = await _once(client, message, "/beads", BeadView, {**about, "workflow_id": definition})
    assert bead.execution_id is not None, "filed with a definition"
    return await client.execution(bead.execution_id)


async def _filed_with_files(
    client: AsyncClient,
    definition: str,
    message: Message,
    content: Content,
    about: dict[str, Any],
) -> RunView:
    """The run begins when the files are there: its first agent is given them, too."""
    try:
        await client.workflow(name(definition, "definition"))
    except NotFound as error:
        raise No("INVALID_PARAMS", f"{error.detail}; nothing was filed") from error
    bead = await _once(client, message, "/beads", BeadView, about)
    for one in content.files:
        await client.add_file(bead.id, one.name, one.content, content_type=one.media_type)
    where, begun = path("beads", bead.id, "executions"), {"workflow_id": definition}
    return await _once(client, message, where, RunView, begun, "-run")


async def _answer(client: AsyncClient, message: Message, content: Content) -> RunView:
    run = await client.execution(task_id(message.task_id))
    if message.context_id and message.context_id != context_of(await client.bead(run.bead_id)):
        told = f"task '{run.id}' is not of the context that the message names"
        raise No("INVALID_PARAMS", f"{told}; leave contextId out, or take the task's")
    if content.data or content.files:
        told = "an answer is text, and this one brings data or files"
        raise No("CONTENT_TYPE_NOT_SUPPORTED", f"{told}; say it in words, or begin another task")
    state = state_of(run)
    waits = state is TaskState.INPUT_REQUIRED
    # Whoever did not hear that its answer was taken sends it again.
    find = open_question if waits else partial(answered_with, text=content.text)
    question = await find(client, run)
    if question is None:
        told = "has ended" if state in ENDED else "is at work, and asks nothing"
        raise No("UNSUPPORTED_OPERATION", f"task '{run.id}' {told}; begin another, or wait")
    where = path("approvals", question.id, "answer")
    said = {"text": content.text, "digest": question.digest}
    answered = await _once(client, message, where, Answered, said)
    return answered.execution if waits else run


async def _once(
    client: AsyncClient,
    message: Message,
    where: str,
    answer: type[T],
    body: dict[str, Any],
    part: str = "",
) -> T:
    """A call that a message means: sent again, it is the same one, and never the answer to what
    was asked later. `part`: which, if it means more than one."""
    if not message.message_id:
        raise No("INVALID_PARAMS", "messageId is empty; give every message one of its own")
    key = hashlib.sha256(message.message_id.encode()).hexdigest()[:40]
    try:
        return await client.run(send_call("POST", where, answer, body, key=f"a2a-{key}{part}"))
    except Invalid as error:
        if error.code != KEY_REUSED:
            raise
        told = f"messageId '{name(message.message_id, 'messageId')}' was used for another message"
        raise No("INVALID_PARAMS", f"{told}; give every message one of its own") from error

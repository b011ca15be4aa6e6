"""What each call does, as whoever its token is of: the server judges every one of them.

A message without a task files a bead, and its run is the task. A message to a task that waits
answers the question that it waits for, if the token may. The same message sent again is the same
bead, or the same answer. Waits are bounded: a task that is not settled by then is given as it
stands, to be asked for again.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from handrail.a2a.cards import open_card
from handrail.a2a.refusals import No
from handrail.a2a.tasks import KEPT, open_question, state_of, task_of
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
from handrail.client.errors import Conflict, Invalid
from handrail.client.shapes import Answered
from handrail.client.stream import Event
from handrail.engine.beads import BeadView
from handrail.kernel.misfit import in_words
from handrail.kernel.result import merged
from handrail.kernel.view import RunView

T = TypeVar("T")

WAIT_SECONDS = 50.0
"""That an answer is kept back, for a caller that wants to wait for the end."""
TITLE_MAX, TEXT_MAX, NAME_MAX = 200, 400_000, 200
CANCELLED = "cancelled over A2A"
KEY_REUSED = "key_reused"
CHANGES = frozenset({"asked", "reasked", "answered", "paused", "resumed", "moved", "ended"})
"""Events after which a task may stand otherwise."""


class Asking(NamedTuple):
    """Whose call it is, and of which agent: a definition, or "" for that of all of them."""

    client: AsyncClient
    definition: str
    url: str


# Calls


async def send(asking: Asking, raw: bytes) -> Sent:
    params = read(raw, SendMessage)
    run = await _sent(asking, params)
    task = await task_of(asking.client, run)
    if params.configuration.return_immediately:
        return Sent(task=task)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_SECONDS), aclosing(_states(asking, run)) as states:
            async for one in states:
                task = one
    return Sent(task=task)


async def get(asking: Asking, raw: bytes) -> Task:
    run = await asking.client.execution(_id(read(raw, OfTask).id))
    return await task_of(asking.client, run)


async def cancel(asking: Asking, raw: bytes) -> Task:
    """Closes the run; an operator those of beads that it filed, a ceo any."""
    run = await asking.client.execution(_id(read(raw, OfTask).id))
    try:
        run = await asking.client.override(run.id, "close", CANCELLED)
    except Conflict as error:
        raise No("TASK_NOT_CANCELABLE", error.detail) from error
    return await task_of(asking.client, run)


async def card(asking: Asking, _: bytes) -> Card:
    return await open_card(asking.client, asking.url, asking.definition)


CALLS: dict[str, Callable[[Asking, bytes], Awaitable[Said]]] = {
    "SendMessage": send,
    "GetTask": get,
    "CancelTask": cancel,
    "GetExtendedAgentCard": card,
}


# Streams


async def send_and_follow(asking: Asking, raw: bytes) -> RunView:
    return await _sent(asking, read(raw, SendMessage))


async def subscribe(asking: Asking, raw: bytes) -> RunView:
    run = await asking.client.execution(_id(read(raw, OfTask).id))
    if state_of(run) in ENDED:
        raise No("UNSUPPORTED_OPERATION", f"task '{run.id}' has ended; get it")
    return run


STREAMS: dict[str, Callable[[Asking, bytes], Awaitable[RunView]]] = {
    "SendStreamingMessage": send_and_follow,
    "SubscribeToTask": subscribe,
}
"""What comes before the first word of a stream, and may be refused."""


async def follow(asking: Asking, run: RunView) -> AsyncGenerator[Sent]:
    """The task, then what changes, until nothing more happens to it by itself."""
    told: Task | None = None
    async with aclosing(_states(asking, run)) as states:
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


async def _states(asking: Asking, run: RunView) -> AsyncGenerator[Task]:
    """The task as it stands, and whenever it stands otherwise, until it is settled."""
    client, state = asking.client, state_of(run)
    yield await task_of(client, run)
    if state in SETTLED:
        return
    found = cast("AsyncGenerator[Event]", client.events(run.id))
    async with aclosing(found) as events:
        async for event in events:
            if event.type not in CHANGES or event.at < run.updated_at:
                continue
            run = await client.execution(run.id)
            if state_of(run) is not state:
                state = state_of(run)
                yield await task_of(client, run)
            if state in SETTLED:
                return


# Messages


async def _sent(asking: Asking, params: SendMessage) -> RunView:
    """The run that a message begins, or goes to."""
    text, data = _content(params.message)
    if params.message.task_id:
        return await _answer(asking.client, params.message, text)
    named = params.message.metadata.get("definition") or params.metadata.get("definition")
    definition = asking.definition or named
    if not isinstance(definition, str) or not definition:
        told = "this agent is that of all definitions, and the message does not say which"
        raise No("INVALID_PARAMS", f"{told}; say so in its metadata, as `definition`")
    return await _filed(asking.client, definition, params.message, text, data)


def _content(message: Message) -> tuple[str, dict[str, Any]]:
    """What a message says in words, and the facts that it brings."""
    if any(part.raw is not None or part.url is not None for part in message.parts):
        told = "files cannot be sent here"
        raise No("CONTENT_TYPE_NOT_SUPPORTED", f"{told}; send text, or data as a JSON object")
    data: dict[str, Any] = {}
    for part in message.parts:
        if isinstance(part.data, dict):
            data = merged(data, cast("dict[str, Any]", part.data))
        elif part.data is not msgspec.UNSET:
            raise No("CONTENT_TYPE_NOT_SUPPORTED", "data has to be a JSON object; send one")
    text = text_of(message.parts).strip()
    if not text or len(text) > TEXT_MAX:
        told = f"a message needs text, of at most {TEXT_MAX:,} characters"
        raise No("INVALID_PARAMS", f"{told}; this one has {len(text):,}")
    return text, data


async def _filed(
    client: AsyncClient, definition: str, message: Message, text: str, data: dict[str, Any]
) -> RunView:
    kept = _name(message.context_id, "contextId")
    context = {**data, KEPT: kept} if kept else data
    about = {"title": text.splitlines()[0][:TITLE_MAX], "description": text, "context": context}
    bead = await _once(client, message, "/beads", BeadView, {**about, "workflow_id": definition})
    assert bead.execution_id is not None, "filed with a definition"
    return await client.execution(bead.execution_id)


async def _answer(client: AsyncClient, message: Message, text: str) -> RunView:
    run = await client.execution(_id(message.task_id))
    state = state_of(run)
    question = await open_question(client, run) if state is TaskState.INPUT_REQUIRED else None
    if question is None:
        told = "has ended" if state in ENDED else "is at work, and asks nothing"
        raise No("UNSUPPORTED_OPERATION", f"task '{run.id}' {told}; begin another, or wait")
    where = path("approvals", question.id, "answer")
    said = {"text": text, "digest": question.digest}
    return (await _once(client, message, where, Answered, said)).execution


async def _once(
    client: AsyncClient, message: Message, where: str, answer: type[T], body: dict[str, Any]
) -> T:
    """A call that a message means: sent again, it is the same one, and never the answer to what
    was asked later."""
    if not message.message_id:
        raise No("INVALID_PARAMS", "messageId is empty; give every message one of its own")
    key = hashlib.sha256(message.message_id.encode()).hexdigest()[:40]
    try:
        return await client.run(send_call("POST", where, answer, body, key=f"a2a-{key}"))
    except Invalid as error:
        if error.code != KEY_REUSED:
            raise
        told = f"messageId '{_name(message.message_id, 'messageId')}' was used for another message"
        raise No("INVALID_PARAMS", f"{told}; give every message one of its own") from error


def _id(name: str) -> str:
    """A task's id; one that cannot be is not asked for."""
    if not _name(name, "id") or name in (".", ".."):
        raise No("TASK_NOT_FOUND", f"there is no task '{name}'; take an id that was given here")
    return name


def _name(given: str, what: str) -> str:
    if len(given) > NAME_MAX or "\0" in given:
        raise No("INVALID_PARAMS", f"{what} has at most {NAME_MAX} characters; take a shorter one")
    return given


def read(raw: bytes, shape: type[T]) -> T:
    """The parameters of a call, or what is wrong with them in words."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except msgspec.ValidationError as error:
        told, _, place = str(error).partition(" - at `$")
        where = place.rstrip("`").lstrip(".") or "the parameters"
        raise No("INVALID_PARAMS", f"{where}: {in_words(told)}; see A2A 1.0") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise No("PARSE_ERROR", f"the request cannot be read: {error}; send JSON") from None

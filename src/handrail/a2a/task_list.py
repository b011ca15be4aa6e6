"""List the tasks that the caller began, at this agent, the last to change first.

The list covers the newest beads and runs of the server, up to a limit of each, and shows only the
state of a task: `GetTask` returns its open approval, and why it ended.
"""

import base64
import binascii
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from handrail.a2a.errors import JsonRpcError
from handrail.a2a.params import CallContext, check_name, decode_params
from handrail.a2a.tasks import build_artifacts, build_history, read_context_id, task_state
from handrail.agents.a2a_types import (
    ListTasksRequest,
    ListTasksResponse,
    TaskStatus,
    TaskWithHistory,
)
from handrail.client.clients import AsyncClient
from handrail.kernel.decision import prepare_types
from handrail.views.beads import BeadView
from handrail.views.run_view import RunItem
from handrail.views.view_types import Page

T = TypeVar("T")

RUNS_PAGE_ITEMS, RUNS_PAGES_MAX = 500, 2
BEADS_PAGE_ITEMS, BEADS_PAGES_MAX = 25, 40
"""A bead comes with all of its text, which is read and dropped."""


class TaskCursor(NamedTuple):
    """The end of a page: tasks are in this order, backwards."""

    at: datetime
    id: str


prepare_types(TaskCursor)


class OwnTask(NamedTuple):
    run: RunItem
    context_id: str

    @property
    def cursor(self) -> TaskCursor:
        return TaskCursor(self.run.updated_at, self.run.id)


async def list_tasks(call_context: CallContext, raw: bytes) -> ListTasksResponse:
    params = decode_params(raw, ListTasksRequest)
    after = _decode_cursor(params.page_token) if params.page_token else None
    check_name(params.context_id, "contextId")
    tasks = [task for task in await _own_tasks(call_context) if _matches(task, params)]
    tasks.sort(key=lambda task: task.cursor, reverse=True)
    rest = [task for task in tasks if after is None or task.cursor < after]
    page, more = rest[: params.page_size], rest[params.page_size :]
    return ListTasksResponse(
        tasks=tuple([await _task_document(call_context.client, task, params) for task in page]),
        next_page_token=_encode_cursor(page[-1].cursor) if more else "",
        page_size=params.page_size,
        total_size=len(tasks),
    )


async def _own_tasks(call_context: CallContext) -> list[OwnTask]:
    client, definition = call_context.client, None
    caller = (await client.sessions.get_me()).name
    if call_context.definition:
        definition = (await client.definitions.get(call_context.definition)).id

    def beads(cursor: str) -> Awaitable[Page[BeadView]]:
        return client.beads.list(
            type="work", workflow_id=definition, limit=BEADS_PAGE_ITEMS, cursor=cursor
        )

    def runs(cursor: str) -> Awaitable[Page[RunItem]]:
        return client.runs.list(workflow_id=definition, limit=RUNS_PAGE_ITEMS, cursor=cursor)

    context_ids = {
        bead.id: read_context_id(bead)
        async for bead in _newest_items(beads, BEADS_PAGES_MAX)
        if bead.filed_by == caller
    }
    return [
        OwnTask(run, context_ids[run.bead_id])
        async for run in _newest_items(runs, RUNS_PAGES_MAX)
        if run.bead_id in context_ids
    ]


async def _newest_items(
    page_of: Callable[[str], Awaitable[Page[T]]], pages: int
) -> AsyncGenerator[T]:
    cursor = ""
    for _ in range(pages):
        page = await page_of(cursor)
        for item in page.items:
            yield item
        if page.next_cursor is None:
            return
        cursor = page.next_cursor


def _matches(task: OwnTask, params: ListTasksRequest) -> bool:
    return (
        (not params.context_id or task.context_id == params.context_id)
        and (params.status is None or task_state(task.run) is params.status)
        and (
            params.status_timestamp_after is None
            or task.run.updated_at >= params.status_timestamp_after
        )
    )


async def _task_document(
    client: AsyncClient, task: OwnTask, params: ListTasksRequest
) -> TaskWithHistory:
    run, history = task.run, ()
    if params.history_length:
        bead = await client.beads.get(run.bead_id)
        history = await build_history(client, run.id, bead, params.history_length)
    return TaskWithHistory(
        id=run.id,
        context_id=task.context_id,
        status=TaskStatus(state=task_state(run), timestamp=run.updated_at),
        artifacts=await build_artifacts(client, run) if params.include_artifacts else (),
        history=history,
    )


# Tokens of pages


def _encode_cursor(cursor: TaskCursor) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()


def _decode_cursor(token: str) -> TaskCursor:
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(token), type=TaskCursor)
        return cursor._replace(at=cursor.at.astimezone())
    except (binascii.Error, ValueError, msgspec.MsgspecError, OverflowError):
        message = "pageToken is none that was given here"
        raise JsonRpcError(
            "INVALID_PARAMS", f"{message}; take nextPageToken of the page before"
        ) from None

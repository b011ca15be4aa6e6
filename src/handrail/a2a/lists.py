"""Which tasks there are: those that the caller began, at this agent, the last to change first.

Looked at are the newest beads and runs that the server has, so many of each, and of a task in a
list only how it stands: what it asks, and why it ended, is said by `GetTask`.
"""

import base64
import binascii
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from handrail.a2a.asked import Asking, name, read
from handrail.a2a.refusals import No
from handrail.a2a.tasks import artifacts_of, context_of, history_of, state_of
from handrail.agents.a2a_words import ListTasks, Tasks, TaskStatus, ToldTask
from handrail.client.clients import AsyncClient
from handrail.engine.beads import BeadView
from handrail.engine.pages import Page
from handrail.engine.reading import RunItem
from handrail.kernel.decision import learn

T = TypeVar("T")

RUNS_PAGE, RUNS_PAGES = 500, 2
BEADS_PAGE, BEADS_PAGES = 25, 40
"""A bead comes with all of its text, which is looked at and dropped."""


class Place(NamedTuple):
    """Where a page ends: tasks are in this order, backwards."""

    at: datetime
    id: str


learn(Place)


class Found(NamedTuple):
    run: RunItem
    context: str

    @property
    def place(self) -> Place:
        return Place(self.run.updated_at, self.run.id)


async def listed(asking: Asking, raw: bytes) -> Tasks:
    wanted = read(raw, ListTasks)
    after = _place(wanted.page_token) if wanted.page_token else None
    name(wanted.context_id, "contextId")
    found = [one for one in await _mine(asking) if _is_wanted(one, wanted)]
    found.sort(key=lambda one: one.place, reverse=True)
    rest = [one for one in found if after is None or one.place < after]
    page, more = rest[: wanted.page_size], rest[wanted.page_size :]
    return Tasks(
        tasks=tuple([await _task(asking.client, one, wanted) for one in page]),
        next_page_token=_token(page[-1].place) if more else "",
        page_size=wanted.page_size,
        total_size=len(found),
    )


async def _mine(asking: Asking) -> list[Found]:
    client, definition = asking.client, None
    who = (await client.me()).name
    if asking.definition:
        definition = (await client.workflow(asking.definition)).id

    def beads(cursor: str) -> Awaitable[Page[BeadView]]:
        return client.beads(type="work", workflow_id=definition, limit=BEADS_PAGE, cursor=cursor)

    def runs(cursor: str) -> Awaitable[Page[RunItem]]:
        return client.executions(workflow_id=definition, limit=RUNS_PAGE, cursor=cursor)

    known = {
        one.id: context_of(one) async for one in _newest(beads, BEADS_PAGES) if one.filed_by == who
    }
    return [
        Found(run, known[run.bead_id])
        async for run in _newest(runs, RUNS_PAGES)
        if run.bead_id in known
    ]


async def _newest(page_of: Callable[[str], Awaitable[Page[T]]], pages: int) -> AsyncGenerator[T]:
    cursor = ""
    for _ in range(pages):
        page = await page_of(cursor)
        for one in page.items:
            yield one
        if page.next_cursor is None:
            return
        cursor = page.next_cursor


def _is_wanted(one: Found, wanted: ListTasks) -> bool:
    return (
        (not wanted.context_id or one.context == wanted.context_id)
        and (wanted.status is None or state_of(one.run) is wanted.status)
        and (
            wanted.status_timestamp_after is None
            or one.run.updated_at >= wanted.status_timestamp_after
        )
    )


async def _task(client: AsyncClient, one: Found, wanted: ListTasks) -> ToldTask:
    run, history = one.run, ()
    if wanted.history_length:
        bead = await client.bead(run.bead_id)
        history = await history_of(client, run.id, bead, wanted.history_length)
    return ToldTask(
        id=run.id,
        context_id=one.context,
        status=TaskStatus(state=state_of(run), timestamp=run.updated_at),
        artifacts=await artifacts_of(client, run) if wanted.include_artifacts else (),
        history=history,
    )


# Tokens of pages


def _token(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _place(token: str) -> Place:
    try:
        place = msgspec.json.decode(base64.urlsafe_b64decode(token), type=Place)
        return place._replace(at=place.at.astimezone())
    except (binascii.Error, ValueError, msgspec.MsgspecError, OverflowError):
        told = "pageToken is none that was given here"
        raise No("INVALID_PARAMS", f"{told}; take nextPageToken of the page before") from None

"""Webhooks: who is told outside that a question waits, a run has ended, or something was said in a
channel. For admins.

What is sent, how it is signed and how often it is tried stands in `server/courier.py`; how a
receiver checks it, in docs/review.md.
"""

import secrets
from typing import Annotated

import msgspec
from litestar import delete, get, post
from uuid_utils import uuid7

from handrail.engine.engine import Engine
from handrail.engine.pages import Page
from handrail.engine.webhooks import KINDS, UNASKED, Kind, kinds_of
from handrail.kernel.decision import Value, learn
from handrail.server.access import Caller
from handrail.server.courier import Courier, Linked
from handrail.server.idempotency import SHOWN_ONCE
from handrail.server.problems import Place, Wrong, documented
from handrail.server.secrets import NAME_MAX
from handrail.server.settings import ServerSettings
from handrail.server.targets import URL_MAX, BadTarget, read_url, resolved
from handrail.store.port import iso
from handrail.store.reviews import WebhookRow

PEOPLE_MAX = 50
SECRET = "hrw_"  # noqa: S105 - how secrets begin
Events = Annotated[tuple[Kind, ...], msgspec.Meta(min_length=1, max_length=len(KINDS))]
People = Annotated[tuple[Linked, ...], msgspec.Meta(max_length=PEOPLE_MAX)]


class NewWebhook(Value):
    """`people` get a one-time link with each question that they may answer. Left out, `events` are
    all but `channel.message`."""

    url: Annotated[str, msgspec.Meta(min_length=1, max_length=URL_MAX, pattern=r"^[\x21-\x7e]+$")]
    events: Events = UNASKED
    people: People = ()


class WebhookView(Value, omit_defaults=False):
    """`failures` is how many attempts in a row failed, `waiting` how much is to be told yet."""

    id: str
    url: str
    events: tuple[Kind, ...]
    people: tuple[Linked, ...]
    enabled: bool
    reason: str
    failures: int
    waiting: int
    next_at: str
    delivered_at: str | None
    disabled_at: str | None
    created_by: str
    created_at: str


class MadeWebhook(WebhookView, frozen=True, kw_only=True):
    secret: str
    """Shown this once."""


learn(Linked, MadeWebhook)


@get("/webhooks", responses=documented())
async def webhooks(engine: Engine) -> Page[WebhookView]:
    """Every webhook, and how its last attempts went."""
    waiting: dict[str, int] = await engine.keeper.io(engine.store.waiting_deliveries)
    rows = await engine.webhooks()
    return Page(items=tuple(_shown(row, waiting.get(row.id, 0)) for row in rows))


@post("/webhooks", responses=documented(409), opt={SHOWN_ONCE: True})
async def make_webhook(
    engine: Engine, courier: Courier, caller: Caller, settings: ServerSettings, data: NewWebhook
) -> MadeWebhook:
    """From now on that address is told of these events. The secret is shown this once."""
    await _check(data, settings)
    now = iso(engine.clock())
    row = WebhookRow(
        id=uuid7().hex,
        url=data.url,
        events=msgspec.json.encode(tuple(dict.fromkeys(data.events))).decode(),
        people=msgspec.json.encode(data.people).decode(),
        secret=SECRET + secrets.token_urlsafe(32),
        since=await engine.last_commit(),
        created_by=caller.name,
        created_at=now,
        failures=0,
        next_at=now,
        busy_until=None,
        delivered_at=None,
        disabled_at=None,
        reason="",
    )
    await engine.add_webhook(row)
    courier.wake()
    return msgspec.convert(
        {**msgspec.to_builtins(_shown(row, 0)), "secret": row.secret}, MadeWebhook
    )


@delete("/webhooks/{webhook_id:str}", responses=documented(404))
async def remove_webhook(engine: Engine, webhook_id: str) -> None:
    """Nothing is told there any more; what waited is forgotten."""
    await engine.remove_webhook(webhook_id)


@post("/webhooks/{webhook_id:str}/enable", status_code=200, responses=documented(404))
async def enable_webhook(engine: Engine, courier: Courier, webhook_id: str) -> WebhookView:
    """One that was disabled is told again: what waits for it, and what comes from now on."""
    await engine.enable_webhook(webhook_id)
    courier.wake()
    waiting: dict[str, int] = await engine.keeper.io(engine.store.waiting_deliveries)
    return _shown(await engine.webhook(webhook_id), waiting.get(webhook_id, 0))


async def _check(wanted: NewWebhook, settings: ServerSettings) -> None:
    """What can be seen to be wrong now; every attempt looks again."""
    private = settings.webhook_private
    try:
        await resolved(read_url(wanted.url, private=private), private=private)
    except BadTarget as bad:
        place = Place("bad_url", "url", str(bad))
        raise Wrong(422, "bad_url", f"url: {bad}", errors=(place,)) from bad
    for n, one in enumerate(wanted.people):
        if not one.name.strip() or not one.name.isprintable() or len(one.name) > NAME_MAX:
            place = Place(
                "bad_name", f"people[{n}].name", "it is empty, too long, or no plain text"
            )
            raise Wrong(422, "bad_name", f"{place.path}: {place.message}", errors=(place,))


def _shown(row: WebhookRow, waiting: int) -> WebhookView:
    return WebhookView(
        id=row.id,
        url=row.url,
        events=kinds_of(row),
        people=msgspec.json.decode(row.people, type=tuple[Linked, ...]),
        enabled=row.disabled_at is None,
        reason=row.reason,
        failures=row.failures,
        waiting=waiting,
        next_at=row.next_at,
        delivered_at=row.delivered_at,
        disabled_at=row.disabled_at,
        created_by=row.created_by,
        created_at=row.created_at,
    )


HANDLERS = [webhooks, make_webhook, remove_webhook, enable_webhook]

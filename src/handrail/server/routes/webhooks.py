"""Webhooks: notify other systems of open approvals, ended runs and channel messages. For admins.

`server/webhook_sender.py` describes deliveries, signatures and retries; docs/review.md describes
how a receiver checks them.
"""

import secrets
from typing import TypeVar

import msgspec
from msgspec.structs import asdict
from uuid_utils import uuid7

from handrail.api.webhooks import MadeWebhook, NewWebhook, WebhookCalls, WebhookView
from handrail.engine.engine import Engine
from handrail.engine.services.webhooks import event_types_of
from handrail.server.access import NAME_CHARS_MAX, Caller
from handrail.server.binding import serves
from handrail.server.problems import HTTPProblemError
from handrail.server.settings import ServerSettings
from handrail.server.webhook_sender import (
    WebhookSender,
    WebhookTargetError,
    parse_target_url,
    resolve_target,
)
from handrail.store.notifications import WebhookRow
from handrail.store.rows import iso
from handrail.views.view_types import Page

WEBHOOK_SECRET_PREFIX = "hrw_"  # noqa: S105 - how secrets begin
V = TypeVar("V", bound=WebhookView)


@serves(WebhookCalls.list)
async def list_webhooks(engine: Engine) -> Page[WebhookView]:
    waiting = await engine.webhooks.pending_counts()
    rows = await engine.webhooks.list()
    return Page(items=tuple(_to_view(row, waiting.get(row.id, 0), WebhookView) for row in rows))


@serves(WebhookCalls.create)
async def create_webhook(
    engine: Engine,
    webhook_sender: WebhookSender,
    caller: Caller,
    settings: ServerSettings,
    data: NewWebhook,
) -> MadeWebhook:
    await _check_new_webhook(data, settings)
    now = iso(engine.clock())
    row = WebhookRow(
        id=uuid7().hex,
        url=data.url,
        events=msgspec.json.encode(tuple(dict.fromkeys(data.events))).decode(),
        people=msgspec.json.encode(data.people).decode(),
        secret=WEBHOOK_SECRET_PREFIX + secrets.token_urlsafe(32),
        since=await engine.feed.last_commit(),
        created_by=caller.name,
        created_at=now,
        failures=0,
        next_at=now,
        busy_until=None,
        delivered_at=None,
        disabled_at=None,
        reason="",
    )
    await engine.webhooks.add(row)
    webhook_sender.wake()
    return _to_view(row, 0, MadeWebhook)


@serves(WebhookCalls.enable)
async def enable_webhook(
    engine: Engine, webhook_sender: WebhookSender, webhook_id: str
) -> WebhookView:
    await engine.webhooks.enable(webhook_id)
    webhook_sender.wake()
    waiting = await engine.webhooks.pending_counts()
    return _to_view(await engine.webhooks.get(webhook_id), waiting.get(webhook_id, 0), WebhookView)


async def _check_new_webhook(new_webhook: NewWebhook, settings: ServerSettings) -> None:
    """Check what can be checked now; every attempt checks again."""
    private = settings.webhook_private
    try:
        await resolve_target(parse_target_url(new_webhook.url, private=private), private=private)
    except WebhookTargetError as error:
        raise HTTPProblemError(
            422, "bad_url", f"the URL is refused: {error}", field="url"
        ) from error
    for n, recipient in enumerate(new_webhook.people):
        name = recipient.name
        if not name.strip() or not name.isprintable() or len(name) > NAME_CHARS_MAX:
            field = f"people[{n}].name"
            message = f"{field} is empty, too long, or not plain text"
            raise HTTPProblemError(422, "bad_name", message, field=field)


def _to_view(row: WebhookRow, waiting: int, view_type: type[V]) -> V:
    fields = {
        **asdict(row),
        "events": event_types_of(row),
        "people": msgspec.json.decode(row.people),
        "enabled": row.disabled_at is None,
        "waiting": waiting,
    }
    return msgspec.convert(fields, view_type)

"""Webhooks, and their deliveries: what waits for people, has ended, or was said in a channel.

Events of the feed become deliveries, rows of their own, in the same transaction in which the
position in the feed moves on: so each is made once, by whichever engine comes first, and a crash
loses none. A delivery's id says what it is about ("approval.opened:RUN.q1"), and is the same
however often it is tried. `server/routes/webhooks.py` sends them; nothing here waits for it.

Reminders are rows too: at half of the time to an approval's deadline, and a day before it. Each
fires once, if the approval is still open then.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import RefusedError, refuse, require_known
from handrail.engine.queries.runs import RunReader
from handrail.store.notifications import WEBHOOKS_MAX, DeliveryRow, ReminderRow, WebhookRow
from handrail.store.rows import iso, parse_iso
from handrail.views.approvals import Approval
from handrail.views.event_view import EventView
from handrail.views.webhooks import CHANNEL_MESSAGE, WebhookEventType

if TYPE_CHECKING:
    from handrail.engine.queries.event_feed import EventFeed
    from handrail.engine.services.approvals import ApprovalService

STATUS_BY_EVENT_TYPE: dict[WebhookEventType, str] = {
    "approval.opened": "open",
    "approval.reminder": "open",
    "approval.answered": "answered",
    "approval.void": "void",
    "approval.expired": "expired",
}
EVENT_TYPE_BY_STATUS: dict[str, WebhookEventType] = {
    "void": "approval.void",
    "expired": "approval.expired",
}
PAGE_EVENTS = 200
"""Events, and reminders, that are read at once."""
PENDING_DELIVERIES_MAX = 10_000
"""Pending deliveries of one webhook; with more it is disabled."""
RESULT_CHARS_MAX = 4_000
"""Characters of the result in a delivery; the approval has all of it."""
DAY = timedelta(days=1)
LAST_INDEX = 2**31

Occurrence = tuple[WebhookEventType, str]
"""The type of an event, and its approval, run or channel."""


class WebhookService:
    """Stores webhooks, and makes their deliveries."""

    def __init__(
        self,
        access: StoreAccess,
        feed: "EventFeed",
        approvals: "ApprovalService",
        reader: RunReader,
        clock: Clock,
    ) -> None:
        self._access, self._store, self._feed = access, access.store, feed
        self._approvals, self._reader, self._clock = approvals, reader, clock

    async def add(self, row: WebhookRow) -> None:
        """Add a webhook. Refused: too_many_webhooks."""
        self._access.check_open()
        await self._skip_past_events()
        if not await self._access.call(self._store.notifications.add_webhook, row):
            refuse("too_many_webhooks", f"there are {WEBHOOKS_MAX} webhooks already", "remove one")

    async def list_enabled(self) -> list[WebhookRow]:
        return [row for row in await self.list() if row.disabled_at is None]

    async def list(self) -> list[WebhookRow]:
        return await self._access.call(self._store.notifications.list_webhooks)

    async def get(self, webhook_id: str) -> WebhookRow:
        """Return a webhook. Refused: unknown_webhook."""
        match = next((row for row in await self.list() if row.id == webhook_id), None)
        return require_known(match, "unknown_webhook", webhook_id)

    async def remove(self, webhook_id: str, *, by: str) -> None:
        """Remove a webhook. Refused: unknown_webhook."""
        await self.get(webhook_id)
        await self._access.call(
            self._store.notifications.remove_webhook, webhook_id, iso(self._clock()), by
        )

    async def enable(self, webhook_id: str) -> None:
        """Re-enable a webhook: it gets pending deliveries, and new ones. Refused:
        unknown_webhook."""
        await self.get(webhook_id)
        await self._skip_past_events()
        at, since = iso(self._clock()), await self._feed.last_commit()
        await self._access.call(self._store.notifications.enable_webhook, webhook_id, at, since)

    async def _skip_past_events(self) -> None:
        """Move to the end of the feed if there was no webhook so far: the past is not delivered."""
        if await self.list_enabled():
            return
        last_position = await self._access.call(self._store.notifications.get_delivery_position)
        position = await self._feed.position()
        if last_position != position:
            await self._access.call(
                self._store.notifications.put_deliveries, last_position, position, ()
            )

    async def make_deliveries(self) -> bool:
        """Make deliveries of the next events in the feed; True if there may be more."""
        hooks = await self.list_enabled()
        last_position = await self._access.call(self._store.notifications.get_delivery_position)
        if not hooks or last_position is None:
            return False
        feed_events = await self._feed.read(last_position, PAGE_EVENTS)
        if not feed_events:
            return False
        await self._disable_overflowing(hooks)
        deliveries: list[DeliveryRow] = []
        reminders: list[ReminderRow] = []
        for position, event in feed_events:
            deliveries += await self._build_deliveries(hooks, position, event)
            reminders += _reminder_rows(event, self._clock())
        await self._access.call(
            self._store.notifications.put_deliveries,
            last_position,
            feed_events[-1][0],
            deliveries,
            reminders,
        )
        return len(feed_events) == PAGE_EVENTS

    async def pending_counts(self) -> dict[str, int]:
        """Count pending deliveries by webhook."""
        return await self._access.call(self._store.notifications.count_pending_deliveries)

    async def take_delivery(self, webhook_id: str, lease: timedelta) -> DeliveryRow | None:
        """Lease the webhook and return its next delivery. None if there is none, or the webhook is
        leased by another server, or not due yet."""
        now = self._clock()
        if await self._access.call(self._store.notifications.get_next_delivery, webhook_id) is None:
            return None
        if not await self._access.call(
            self._store.notifications.lease_webhook, webhook_id, iso(now), iso(now + lease)
        ):
            return None
        delivery = await self._access.call(self._store.notifications.get_next_delivery, webhook_id)
        if delivery is None:  # another server was faster
            await self._access.call(self._store.notifications.release_webhook, webhook_id)
        return delivery

    async def mark_delivered(self, webhook_id: str, delivery_id: str) -> None:
        """Record that the delivery was received; the next may be sent at once."""
        await self._access.call(
            self._store.notifications.record_delivery, webhook_id, delivery_id, iso(self._clock())
        )

    async def mark_failed(
        self, webhook_id: str, reason: str, wait: timedelta, *, disable: bool
    ) -> None:
        """Record a failed attempt: the next is due after `wait`, unless the webhook is disabled."""
        now = self._clock()
        await self._access.call(
            self._store.notifications.record_delivery_failure,
            webhook_id,
            iso(now + wait),
            reason,
            iso(now) if disable else None,
        )

    async def prune(self, age: timedelta) -> None:
        """Delete links, deliveries and reminders that were settled so long ago."""
        await self._access.call(
            self._store.notifications.delete_old_notifications, iso(self._clock() - age)
        )

    async def _disable_overflowing(self, hooks: Sequence[WebhookRow]) -> None:
        """Disable webhooks with too many pending deliveries."""
        waiting = await self.pending_counts()
        for row in hooks:
            if waiting.get(row.id, 0) > PENDING_DELIVERIES_MAX:
                await self.mark_failed(
                    row.id,
                    f"more than {PENDING_DELIVERIES_MAX:,} deliveries wait for it",
                    timedelta(0),
                    disable=True,
                )

    async def _occurrences_of(self, event: EventView) -> Sequence[Occurrence]:
        kind, run_id = event["type"], event.get("execution_id", "")
        if not run_id:
            stream: str = event["stream"]
            is_message = kind == "MessagePosted" and stream.startswith(CHANNEL_STREAM_PREFIX)
            channel_id = stream.removeprefix(CHANNEL_STREAM_PREFIX)
            return [(CHANNEL_MESSAGE, channel_id)] if is_message else []
        if kind == "asked":
            return [("approval.opened", event["question"]["id"])]
        if kind == "reasked":
            return [
                ("approval.void", event["question_id"]),
                ("approval.opened", event["question"]["id"]),
            ]
        if kind == "answered":
            return [("approval.answered", event["question_id"])] if event.get("final", True) else []
        if kind == "ended":
            return [*await self._unanswered_approvals(run_id, event["at"]), ("run.ended", run_id)]
        if kind == "moved" and event.get("cancels"):
            return await self._unanswered_approvals(run_id, event["at"])
        return []

    async def _unanswered_approvals(self, run_id: str, at: str) -> Sequence[Occurrence]:
        """Approvals that were settled without an answer since that moment."""
        rows = await self._access.query(
            lambda store: store.approvals.list_newest(execution_id=run_id, limit=PAGE_EVENTS)
        )
        since = parse_iso(at)
        return [
            (EVENT_TYPE_BY_STATUS[row.status], row.id)
            for row in rows
            if row.status in EVENT_TYPE_BY_STATUS
            and row.settled_at
            and parse_iso(row.settled_at) >= since
        ]

    async def _build_deliveries(
        self, hooks: Sequence[WebhookRow], position: str, event: EventView
    ) -> Sequence[DeliveryRow]:
        n, i = map(int, position.split("-"))
        deliveries: list[DeliveryRow] = []
        for kind, subject in await self._occurrences_of(event):
            subscribers = [row for row in hooks if n > row.since and kind in event_types_of(row)]
            if not subscribers:
                continue
            if kind == CHANNEL_MESSAGE:
                body = _message_body(subject, event)
            else:
                body = await self._delivery_body(kind, subject, event["at"])
            if body is not None:
                deliveries += [self._delivery_row(row, body, n, i) for row in subscribers]
        return deliveries

    def _delivery_row(self, hook: WebhookRow, body: dict[str, Any], n: int, i: int) -> DeliveryRow:
        return DeliveryRow(
            webhook_id=hook.id,
            id=body["id"],
            n=n,
            i=i,
            kind=body["type"],
            body=msgspec.json.encode(body).decode(),
            created_at=iso(self._clock()),
            delivered_at=None,
        )

    async def _delivery_body(
        self, kind: WebhookEventType, subject: str, at: str, reminder: str = ""
    ) -> dict[str, Any] | None:
        """The body of a delivery; None if its subject is gone."""
        head = {"id": f"{kind}:{subject}{f':{reminder}' if reminder else ''}", "type": kind}
        try:
            if kind == "run.ended":
                return {**head, "at": at, "run": await self._run_body(subject)}
            approval = await self._approvals.get(subject)
        except RefusedError:
            return None  # it was archived
        more = {"reminder": reminder} if reminder else {}
        return {
            **head,
            "at": at,
            "title": (await self._reader.state(approval.execution_id)).title,
            **more,
            "approval": _approval_body(approval, kind),
        }

    async def _run_body(self, run_id: str) -> dict[str, Any]:
        run = await self._reader.state(run_id)
        return {
            "id": run.id,
            "bead_id": run.bead_id,
            "workflow_id": run.definition_id,
            "title": run.title,
            "terminal_status": run.terminal_status,
            "rule": run.stop.rule if run.stop is not None else None,
            "reason": run.stop.reason if run.stop is not None else "",
            "ended_at": run.ended_at,
        }

    async def fire_reminders(self) -> None:
        """Fire the reminders that are due, of approvals that are still open."""
        now = iso(self._clock())
        kind: WebhookEventType = "approval.reminder"
        for reminder in await self._access.call(
            self._store.notifications.list_due_reminders, now, PAGE_EVENTS
        ):
            body = await self._delivery_body(kind, reminder.approval_id, now, reminder.kind)
            n = await self._feed.last_commit()
            deliveries = [
                self._delivery_row(row, body, n, LAST_INDEX)
                for row in await self.list_enabled()
                if body is not None and kind in event_types_of(row)
            ]
            await self._access.call(
                self._store.notifications.fire_reminder, reminder, now, deliveries
            )


def event_types_of(row: WebhookRow) -> tuple[WebhookEventType, ...]:
    return msgspec.json.decode(row.events, type=tuple[WebhookEventType, ...])


def _reminder_rows(event: EventView, now: datetime) -> list[ReminderRow]:
    """The reminders of a new approval: the moments that are not over."""
    if "execution_id" not in event or event["type"] not in ("asked", "reasked"):
        return []
    approval = event["question"]
    asked_at, deadline = parse_iso(event["at"]), parse_iso(approval["deadline"])
    due = {"half": asked_at + (deadline - asked_at) / 2, "day": deadline - DAY}
    return [
        ReminderRow(approval_id=approval["id"], kind=kind, due_at=iso(at), fired_at=None)
        for kind, at in due.items()
        if asked_at < at and now < deadline
    ]


def _message_body(channel_id: str, event: EventView) -> dict[str, Any]:
    """The body of a message, by the names of `GET …/messages`."""
    message = {
        "channel": channel_id,
        "id": event["seq"],
        "author": event["author"],
        "human": event["human"],
        "text": event["text"],
        "to": event.get("to"),
    }
    head = {
        "id": f"{CHANNEL_MESSAGE}:{channel_id}.{event['seq']}",
        "type": CHANNEL_MESSAGE,
        "at": event["at"],
    }
    return {**head, "message": message}


def _approval_body(approval: Approval, kind: WebhookEventType) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": approval.id,
        "type": approval.type,
        "status": STATUS_BY_EVENT_TYPE[kind],
        "bead_id": approval.original_bead_id,
        "execution_id": approval.execution_id,
        "node_id": approval.node_id,
        "question": approval.question,
        "result": approval.result[:RESULT_CHARS_MAX],
        "digest": approval.digest,
        "approvers": approval.approvers,
        "quorum": approval.quorum,
        "created_at": approval.created_at,
        "deadline": approval.deadline,
    }
    if kind == "approval.answered":
        body |= {"decision": approval.decision, "answer": approval.answer, "by": approval.by}
    return body

"""Notifications in the store: answer links, webhooks, reminders.

Nothing here takes part in a decision: an answer by link is committed like any other.
"""

from collections.abc import Sequence

from msgspec.structs import asdict

from handrail.store.columns import Row, Time
from handrail.store.database import Subject, Transaction
from handrail.store.record import LINKS, WEBHOOKS, AlteredRowError, Change, is_on_record, record

APPROVAL_LINKS_MAX = 100
"""Links per approval."""
WEBHOOKS_MAX = 50


class AnswerLinkRow(Row):
    """A one-time link for one person's answer to one approval. Only the secret's digest is kept."""

    id: str
    digest: str
    """SHA-256 of the secret, in hex; unique."""
    approval_id: str
    shown: str
    """The digest of what the approval showed when the link was made."""
    name: str
    role: str
    created_by: str
    created_at: Time
    expires_at: Time
    used_at: Time | None


class WebhookRow(Row):
    """A receiver of notifications. `secret` signs each request, so it is kept in plain text."""

    id: str
    url: str
    events: str
    """Kinds of events, as a JSON array."""
    people: str
    """The people for whom it carries links, as a JSON array of {name, role}."""
    secret: str
    since: int
    """The last commit before the webhook was created: it receives later events only."""
    created_by: str
    created_at: Time
    failures: int
    """Consecutive failed attempts."""
    next_at: Time
    """The earliest time of the next attempt."""
    busy_until: Time | None
    """Until then one server sends; if that server dies, another takes over then."""
    delivered_at: Time | None
    disabled_at: Time | None
    reason: str
    """Why the last attempt failed, or why the webhook is disabled."""


class DeliveryRow(Row):
    """A notification for one webhook, delivered once. `id` is the same for every attempt."""

    webhook_id: str
    id: str
    n: int
    """The commit, and the event in it: the order of delivery."""
    i: int
    kind: str
    body: str
    created_at: Time
    delivered_at: Time | None


class ReminderRow(Row):
    """A moment at which people are reminded, once, of an approval that is still open."""

    approval_id: str
    kind: str
    due_at: Time
    fired_at: Time | None


class NotificationStore(Subject):
    """Answer links, webhooks with their deliveries, and reminders."""

    # Links

    def add_answer_link(self, row: AnswerLinkRow) -> bool:
        """Return False if the digest exists, or the approval has APPROVAL_LINKS_MAX links."""
        with self._database.transaction() as transaction:
            if not transaction.execute("insert_link", **asdict(row), links_max=APPROVAL_LINKS_MAX):
                return False
            record(transaction, row.created_at, _link_change(row, "created", row.created_by))
            return True

    def get_answer_link(self, digest: str) -> AnswerLinkRow | None:
        """Return the link, even if used or expired. Raises AlteredRowError for one that was not
        made, or changed, by Handrail."""
        values = self._database.fetch_one("link", digest=digest)
        if values is None:
            return None
        row, body = AnswerLinkRow(*values[:-1]), values[-1]
        if not is_on_record(LINKS, row, body):
            raise AlteredRowError(
                f"the answer link '{row.id}' is not the one on record; "
                "see what else was altered with `handrail verify`"
            )
        return row

    def use_answer_link(self, link_id: str, at: str) -> bool:
        """Mark the link as used. Return False if it was used before."""
        with self._database.transaction() as transaction:
            values = transaction.fetch_one("use_link", id=link_id, at=at)
            if values is not None:
                row = AnswerLinkRow(*values)
                record(transaction, at, _link_change(row, "used", row.name))
        return values is not None

    # Webhooks

    def add_webhook(self, row: WebhookRow) -> bool:
        """Return False if there are WEBHOOKS_MAX already."""
        with self._database.transaction() as transaction:
            if not transaction.execute("insert_webhook", **asdict(row), webhooks_max=WEBHOOKS_MAX):
                return False
            change = Change(table=WEBHOOKS, row=row, type="webhook_created", by=row.created_by)
            record(transaction, row.created_at, change)
            return True

    def list_webhooks(self) -> list[WebhookRow]:
        """List webhooks, the oldest first."""
        return self._fetch_rows(WebhookRow, "webhooks")

    def remove_webhook(self, webhook_id: str, at: str, by: str) -> bool:
        """Remove the webhook and its pending deliveries. Return False if it does not exist."""
        with self._database.transaction() as transaction:
            transaction.execute("remove_deliveries", webhook_id=webhook_id)
            values = transaction.fetch_one("remove_webhook", webhook_id=webhook_id)
            if values is not None:
                row = WebhookRow(*values)
                removed = Change(
                    table=WEBHOOKS, row=row, type="webhook_removed", by=by, removed=True
                )
                record(transaction, at, removed)
        return values is not None

    def enable_webhook(self, webhook_id: str, at: str, since: int) -> bool:
        """Re-enable a disabled webhook for events after that commit; deliveries still pending are
        sent too. Return False if there is no such disabled webhook."""
        return self._update("enable_webhook", webhook_id=webhook_id, at=at, since=since)

    def lease_webhook(self, webhook_id: str, now: str, until: str) -> bool:
        """Lease the webhook for sending. Return False if it is leased, or not due yet."""
        return self._update("lease_webhook", webhook_id=webhook_id, now=now, until=until)

    def record_delivery(self, webhook_id: str, delivery_id: str, at: str) -> None:
        """Record a successful delivery; the next may be sent at once."""
        with self._database.transaction() as transaction:
            transaction.execute("delivery_done", webhook_id=webhook_id, id=delivery_id, at=at)
            transaction.execute("webhook_delivered", webhook_id=webhook_id, at=at)

    def record_delivery_failure(
        self, webhook_id: str, next_at: str, reason: str, disabled_at: str | None
    ) -> None:
        """Record a failed attempt; `disabled_at` disables the webhook."""
        self._database.execute(
            "webhook_failed",
            webhook_id=webhook_id,
            next_at=next_at,
            reason=reason,
            disabled_at=disabled_at,
        )

    def release_webhook(self, webhook_id: str) -> None:
        """Return the lease without having sent anything."""
        self._database.execute("release_webhook", webhook_id=webhook_id)

    # Deliveries

    def get_delivery_position(self) -> str | None:
        """Return the position in the feed up to which events were turned into deliveries."""
        return self._fetch_row(str, "delivery_position")

    def put_deliveries(
        self,
        expected_position: str | None,
        position: str,
        deliveries: Sequence[DeliveryRow],
        reminders: Sequence[ReminderRow] = (),
    ) -> bool:
        """Write the deliveries, reminders and the new position. Return False, and write nothing,
        if the position is no longer the expected one."""
        with self._database.transaction() as transaction:
            if not (
                transaction.execute("insert_delivery_position", position=position)
                if expected_position is None
                else transaction.execute(
                    "advance_delivery_position", position=position, expected=expected_position
                )
            ):
                return False
            _insert_deliveries(transaction, deliveries)
            transaction.write_rows("insert_reminders", reminders)
            return True

    def get_next_delivery(self, webhook_id: str) -> DeliveryRow | None:
        """Return the oldest pending delivery."""
        return self._fetch_row(DeliveryRow, "next_delivery", webhook_id=webhook_id)

    def count_pending_deliveries(self) -> dict[str, int]:
        """Count pending deliveries by webhook."""
        return dict(self._database.fetch_all("pending_deliveries"))

    def list_due_reminders(self, now: str, limit: int) -> list[ReminderRow]:
        """List due reminders of open approvals."""
        return self._fetch_rows(ReminderRow, "due_reminders", now=now, limit=limit)

    def fire_reminder(
        self, reminder: ReminderRow, at: str, deliveries: Sequence[DeliveryRow]
    ) -> bool:
        """Fire the reminder once. Return False if it has fired."""
        with self._database.transaction() as transaction:
            if not transaction.execute(
                "fire_reminder", approval_id=reminder.approval_id, kind=reminder.kind, at=at
            ):
                return False
            _insert_deliveries(transaction, deliveries)
            return True

    def delete_old_notifications(self, before: str) -> None:
        """Delete links expired, deliveries made and reminders of approvals settled before then."""
        with self._database.transaction() as transaction:
            for query in ("delete_old_links", "delete_old_deliveries", "delete_old_reminders"):
                transaction.execute(query, before=before)


def _link_change(row: AnswerLinkRow, what: str, by: str) -> Change:
    about = f"{row.approval_id} by {row.name}"
    return Change(table=LINKS, row=row, type=f"link_{what}", by=by, about=about)


def _insert_deliveries(transaction: Transaction, deliveries: Sequence[DeliveryRow]) -> None:
    for row in deliveries:
        transaction.execute("insert_delivery", **asdict(row))

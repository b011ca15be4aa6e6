"""Notifications in the store: answer links, webhooks, reminders. A part of the `Store`.

Nothing here takes part in a decision: an answer by link is committed like any other.
"""

from collections.abc import Sequence
from typing import Protocol

from handrail.store.engine_store import Row

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
    created_at: str
    expires_at: str
    used_at: str | None


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
    created_at: str
    failures: int
    """Consecutive failed attempts."""
    next_at: str
    """The earliest time of the next attempt."""
    busy_until: str | None
    """Until then one server sends; if that server dies, another takes over then."""
    delivered_at: str | None
    disabled_at: str | None
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
    created_at: str
    delivered_at: str | None


class ReminderRow(Row):
    """A moment at which people are reminded, once, of an approval that is still open."""

    approval_id: str
    kind: str
    due_at: str
    fired_at: str | None


class NotificationStore(Protocol):
    """The store's part for notifications. Every method is one transaction."""

    # Links

    def add_answer_link(self, row: AnswerLinkRow) -> bool:
        """Return False if the digest exists, or the approval has APPROVAL_LINKS_MAX links."""
        ...

    def get_answer_link(self, digest: str) -> AnswerLinkRow | None:
        """Return the link, even if used or expired."""
        ...

    def use_answer_link(self, link_id: str, at: str) -> bool:
        """Mark the link as used. Return False if it was used before."""
        ...

    # Webhooks

    def add_webhook(self, row: WebhookRow) -> bool:
        """Return False if there are WEBHOOKS_MAX already."""
        ...

    def list_webhooks(self) -> list[WebhookRow]:
        """List webhooks, the oldest first."""
        ...

    def remove_webhook(self, webhook_id: str) -> bool:
        """Remove the webhook and its pending deliveries. Return False if it does not exist."""
        ...

    def enable_webhook(self, webhook_id: str, at: str, since: int) -> bool:
        """Re-enable a disabled webhook for events after that commit; deliveries still pending are
        sent too. Return False if there is no such disabled webhook."""
        ...

    def lease_webhook(self, webhook_id: str, now: str, until: str) -> bool:
        """Lease the webhook for sending. Return False if it is leased, or not due yet."""
        ...

    def record_delivery(self, webhook_id: str, delivery_id: str, at: str) -> None:
        """Record a successful delivery; the next may be sent at once."""
        ...

    def record_delivery_failure(
        self, webhook_id: str, next_at: str, reason: str, disabled_at: str | None
    ) -> None:
        """Record a failed attempt; `disabled_at` disables the webhook."""
        ...

    def release_webhook(self, webhook_id: str) -> None:
        """Return the lease without having sent anything."""
        ...

    # Deliveries

    def get_delivery_position(self) -> str | None:
        """Return the position in the feed up to which events were turned into deliveries."""
        ...

    def put_deliveries(
        self,
        expected_position: str | None,
        position: str,
        deliveries: Sequence[DeliveryRow],
        reminders: Sequence[ReminderRow] = (),
    ) -> bool:
        """Write the deliveries, reminders and the new position. Return False, and write nothing,
        if the position is no longer the expected one."""
        ...

    def get_next_delivery(self, webhook_id: str) -> DeliveryRow | None:
        """Return the oldest pending delivery."""
        ...

    def count_pending_deliveries(self) -> dict[str, int]:
        """Count pending deliveries by webhook."""
        ...

    def list_due_reminders(self, now: str, limit: int) -> list[ReminderRow]:
        """List due reminders of open approvals."""
        ...

    def fire_reminder(
        self, reminder: ReminderRow, at: str, deliveries: Sequence[DeliveryRow]
    ) -> bool:
        """Fire the reminder once. Return False if it has fired."""
        ...

    def delete_old_notifications(self, before: str) -> None:
        """Delete links expired, deliveries made and reminders of approvals settled before then."""
        ...

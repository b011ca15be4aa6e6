"""What tells people that something waits for them: answer links, webhooks, reminders.

Nothing here takes part in a decision: an answer that comes by a link is committed like any other.
A part of the `Office`.
"""

from collections.abc import Sequence
from typing import Protocol

from handrail.store.engine_store import Row

APPROVAL_LINKS_MAX = 100
"""Links to one question."""
WEBHOOKS_MAX = 50


class AnswerLinkRow(Row):
    """A one-time link: one person's answer to one question. Its secret is kept as a digest."""

    id: str
    digest: str
    """SHA-256 of the secret, in hex; no two are the same."""
    approval_id: str
    shown: str
    """The digest of what the question showed when the link was made."""
    name: str
    role: str
    created_by: str
    created_at: str
    expires_at: str
    used_at: str | None


class WebhookRow(Row):
    """Somebody outside who is told. `secret` signs what is sent, so it is kept as it is."""

    id: str
    url: str
    events: str
    """Kinds of events, as a JSON array."""
    people: str
    """Whom it brings links for, as a JSON array of {name, role}."""
    secret: str
    since: int
    """The last commit before it was made: it is told of what comes after."""
    created_by: str
    created_at: str
    failures: int
    """Attempts in a row that failed."""
    next_at: str
    """Not before then anything is sent."""
    busy_until: str | None
    """A server sends something now; if it died, another goes on then."""
    delivered_at: str | None
    disabled_at: str | None
    reason: str
    """Why the last attempt failed, or why it is disabled."""


class DeliveryRow(Row):
    """Something to be told to one webhook, once. `id` is the same however often it is tried."""

    webhook_id: str
    id: str
    n: int
    """The commit, and the event in it: the order in which things are told."""
    i: int
    kind: str
    body: str
    created_at: str
    delivered_at: str | None


class ReminderRow(Row):
    """A moment at which people are reminded of a question that is still open, once."""

    approval_id: str
    kind: str
    due_at: str
    fired_at: str | None


class NotificationStore(Protocol):
    """Every method is one transaction."""

    # Links

    def add_answer_link(self, row: AnswerLinkRow) -> bool:
        """False if there is one with that digest, or the question has LINKS_MAX already."""
        ...

    def get_answer_link(self, digest: str) -> AnswerLinkRow | None:
        """Also one that was used, or has expired."""
        ...

    def use_answer_link(self, link_id: str, at: str) -> bool:
        """False if it was used before."""
        ...

    # Webhooks

    def add_webhook(self, row: WebhookRow) -> bool:
        """False if there are WEBHOOKS_MAX already."""
        ...

    def list_webhooks(self) -> list[WebhookRow]:
        """The oldest first."""
        ...

    def remove_webhook(self, webhook_id: str) -> bool:
        """With all that was to be told to it; False if there is none."""
        ...

    def enable_webhook(self, webhook_id: str, at: str, since: int) -> bool:
        """Again, from that commit on; what was left before is still told. False if there is none
        that is disabled."""
        ...

    def lease_webhook(self, webhook_id: str, now: str, until: str) -> bool:
        """For whoever sends; False if somebody else has it, or nothing is to be sent yet."""
        ...

    def record_delivery(self, webhook_id: str, delivery_id: str, at: str) -> None:
        """It was taken; the next may be sent at once."""
        ...

    def record_delivery_failure(
        self, webhook_id: str, next_at: str, reason: str, disabled_at: str | None
    ) -> None:
        """An attempt failed; with `disabled_at` it was the last."""
        ...

    def release_webhook(self, webhook_id: str) -> None:
        """Nothing was sent."""
        ...

    # What is to be told

    def get_delivery_position(self) -> str | None:
        """The position in the feed up to which deliveries were made of events."""
        ...

    def put_deliveries(
        self,
        expected_position: str | None,
        position: str,
        deliveries: Sequence[DeliveryRow],
        reminders: Sequence[ReminderRow] = (),
    ) -> bool:
        """And the new position; nothing, and False, if it is no longer where it was."""
        ...

    def get_next_delivery(self, webhook_id: str) -> DeliveryRow | None:
        """The oldest that was not delivered."""
        ...

    def count_pending_deliveries(self) -> dict[str, int]:
        """How many are to be told yet, by webhook."""
        ...

    def list_due_reminders(self, now: str, limit: int) -> list[ReminderRow]:
        """Of questions that are open."""
        ...

    def fire_reminder(
        self, reminder: ReminderRow, at: str, deliveries: Sequence[DeliveryRow]
    ) -> bool:
        """Once; False if it has fired."""
        ...

    def delete_old_notifications(self, before: str) -> None:
        """Links that expired, deliveries made and reminders of questions settled before then."""
        ...

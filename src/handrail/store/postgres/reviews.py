"""Answer links, webhooks and reminders on PostgreSQL."""

from collections.abc import Sequence

from msgspec.structs import astuple

from handrail.store.postgres.store import PostgresStore, row_of
from handrail.store.postgres.writing import SQL
from handrail.store.reviews import (
    LINKS_MAX,
    WEBHOOKS_MAX,
    DeliveryRow,
    LinkRow,
    ReminderRow,
    WebhookRow,
)


class PostgresReviews(PostgresStore):
    # Links

    def add_link(self, row: LinkRow) -> bool:
        return self._change("add_link", *astuple(row), LINKS_MAX) > 0

    def link(self, digest: str) -> LinkRow | None:
        row = self._one("link", digest)
        return row_of(LinkRow, row) if row is not None else None

    def use_link(self, link_id: str, at: str) -> bool:
        return self._change("use_link", at, link_id) > 0

    # Webhooks

    def add_webhook(self, row: WebhookRow) -> bool:
        return self._change("add_webhook", *astuple(row), WEBHOOKS_MAX) > 0

    def webhooks(self) -> list[WebhookRow]:
        return [row_of(WebhookRow, row) for row in self._all("webhooks")]

    def remove_webhook(self, webhook_id: str) -> bool:
        with self._writing() as db, db.transaction():
            db.execute(SQL["remove_deliveries"], (webhook_id,))
            return db.execute(SQL["remove_webhook"], (webhook_id,)).rowcount > 0

    def enable_webhook(self, webhook_id: str, at: str, since: int) -> bool:
        return self._change("enable_webhook", at, since, webhook_id) > 0

    def take_webhook(self, webhook_id: str, now: str, until: str) -> bool:
        return self._change("take_webhook", until, webhook_id, now) > 0

    def delivered(self, webhook_id: str, delivery_id: str, at: str) -> None:
        with self._writing() as db, db.transaction():
            db.execute(SQL["delivery_done"], (at, webhook_id, delivery_id))
            db.execute(SQL["webhook_delivered"], (at, webhook_id))

    def undelivered(
        self, webhook_id: str, next_at: str, reason: str, disabled_at: str | None
    ) -> None:
        self._change("webhook_failed", next_at, reason, disabled_at, webhook_id)

    def release_webhook(self, webhook_id: str) -> None:
        self._change("release_webhook", webhook_id)

    # What is to be told

    def told_until(self) -> str | None:
        row = self._one("told_until")
        return row[0] if row is not None else None

    def put_deliveries(
        self,
        was: str | None,
        position: str,
        deliveries: Sequence[DeliveryRow],
        reminders: Sequence[ReminderRow] = (),
    ) -> bool:
        step = ("begin_telling", (position,)) if was is None else ("go_on_telling", (position, was))
        with self._writing() as db, db.transaction():
            if not db.execute(SQL[step[0]], step[1]).rowcount:
                return False
            for row in deliveries:
                db.execute(SQL["put_delivery"], astuple(row))
            for one in reminders:
                db.execute(SQL["put_reminder"], astuple(one))
            return True

    def next_delivery(self, webhook_id: str) -> DeliveryRow | None:
        row = self._one("next_delivery", webhook_id)
        return row_of(DeliveryRow, row) if row is not None else None

    def waiting_deliveries(self) -> dict[str, int]:
        return dict(self._all("waiting_deliveries"))

    def due_reminders(self, now: str, limit: int) -> list[ReminderRow]:
        return [row_of(ReminderRow, row) for row in self._all("due_reminders", now, limit)]

    def fire_reminder(
        self, reminder: ReminderRow, at: str, deliveries: Sequence[DeliveryRow]
    ) -> bool:
        with self._writing() as db, db.transaction():
            named = (at, reminder.approval_id, reminder.kind)
            if not db.execute(SQL["fire_reminder"], named).rowcount:
                return False
            for row in deliveries:
                db.execute(SQL["put_delivery"], astuple(row))
            return True

    def forget_reviews(self, before: str) -> None:
        with self._writing() as db, db.transaction():
            for name in ("forget_links", "forget_deliveries", "forget_reminders"):
                db.execute(SQL[name], (before,))

"""Answer links, webhooks and reminders on PostgreSQL."""

from collections.abc import Sequence

from msgspec.structs import astuple

from handrail.store.notifications import (
    APPROVAL_LINKS_MAX,
    WEBHOOKS_MAX,
    AnswerLinkRow,
    DeliveryRow,
    ReminderRow,
    WebhookRow,
)
from handrail.store.postgres.commit import SQL
from handrail.store.postgres.engine_store import PostgresEngineStore, row_of


class PostgresNotificationStore(PostgresEngineStore):
    # Links

    def add_answer_link(self, row: AnswerLinkRow) -> bool:
        return self._execute("add_link", *astuple(row), APPROVAL_LINKS_MAX) > 0

    def get_answer_link(self, digest: str) -> AnswerLinkRow | None:
        row = self._fetch_one("link", digest)
        return row_of(AnswerLinkRow, row) if row is not None else None

    def use_answer_link(self, link_id: str, at: str) -> bool:
        return self._execute("use_link", at, link_id) > 0

    # Webhooks

    def add_webhook(self, row: WebhookRow) -> bool:
        return self._execute("add_webhook", *astuple(row), WEBHOOKS_MAX) > 0

    def list_webhooks(self) -> list[WebhookRow]:
        return [row_of(WebhookRow, row) for row in self._fetch_all("webhooks")]

    def remove_webhook(self, webhook_id: str) -> bool:
        with self._borrow_for_write() as db, db.transaction():
            db.execute(SQL["remove_deliveries"], (webhook_id,))
            return db.execute(SQL["remove_webhook"], (webhook_id,)).rowcount > 0

    def enable_webhook(self, webhook_id: str, at: str, since: int) -> bool:
        return self._execute("enable_webhook", at, since, webhook_id) > 0

    def lease_webhook(self, webhook_id: str, now: str, until: str) -> bool:
        return self._execute("take_webhook", until, webhook_id, now) > 0

    def record_delivery(self, webhook_id: str, delivery_id: str, at: str) -> None:
        with self._borrow_for_write() as db, db.transaction():
            db.execute(SQL["delivery_done"], (at, webhook_id, delivery_id))
            db.execute(SQL["webhook_delivered"], (at, webhook_id))

    def record_delivery_failure(
        self, webhook_id: str, next_at: str, reason: str, disabled_at: str | None
    ) -> None:
        self._execute("webhook_failed", next_at, reason, disabled_at, webhook_id)

    def release_webhook(self, webhook_id: str) -> None:
        self._execute("release_webhook", webhook_id)

    # Deliveries

    def get_delivery_position(self) -> str | None:
        row = self._fetch_one("told_until")
        return row[0] if row is not None else None

    def put_deliveries(
        self,
        expected_position: str | None,
        position: str,
        deliveries: Sequence[DeliveryRow],
        reminders: Sequence[ReminderRow] = (),
    ) -> bool:
        update = (
            ("begin_telling", (position,))
            if expected_position is None
            else ("go_on_telling", (position, expected_position))
        )
        with self._borrow_for_write() as db, db.transaction():
            if not db.execute(SQL[update[0]], update[1]).rowcount:
                return False
            for row in deliveries:
                db.execute(SQL["put_delivery"], astuple(row))
            for reminder in reminders:
                db.execute(SQL["put_reminder"], astuple(reminder))
            return True

    def get_next_delivery(self, webhook_id: str) -> DeliveryRow | None:
        row = self._fetch_one("next_delivery", webhook_id)
        return row_of(DeliveryRow, row) if row is not None else None

    def count_pending_deliveries(self) -> dict[str, int]:
        return dict(self._fetch_all("waiting_deliveries"))

    def list_due_reminders(self, now: str, limit: int) -> list[ReminderRow]:
        return [row_of(ReminderRow, row) for row in self._fetch_all("due_reminders", now, limit)]

    def fire_reminder(
        self, reminder: ReminderRow, at: str, deliveries: Sequence[DeliveryRow]
    ) -> bool:
        with self._borrow_for_write() as db, db.transaction():
            values = (at, reminder.approval_id, reminder.kind)
            if not db.execute(SQL["fire_reminder"], values).rowcount:
                return False
            for row in deliveries:
                db.execute(SQL["put_delivery"], astuple(row))
            return True

    def delete_old_notifications(self, before: str) -> None:
        with self._borrow_for_write() as db, db.transaction():
            for name in ("forget_links", "forget_deliveries", "forget_reminders"):
                db.execute(SQL[name], (before,))

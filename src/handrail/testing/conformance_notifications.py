"""The part of the conformance suite about notifications: answer links, webhooks, reminders."""

from msgspec.structs import replace

from handrail.store.notifications import (
    APPROVAL_LINKS_MAX,
    WEBHOOKS_MAX,
    AnswerLinkRow,
    DeliveryRow,
    ReminderRow,
    WebhookRow,
)
from handrail.store.store import Store
from handrail.testing import row_factories as a
from handrail.testing.conformance_rows import commit_writes

LINK = AnswerLinkRow(
    id="l1",
    digest="d1",
    approval_id="r1.q1",
    shown="abc",
    name="ana",
    role="ceo",
    created_by="adam",
    created_at=a.at(),
    expires_at=a.at(100),
    used_at=None,
)
WEBHOOK = WebhookRow(
    id="w1",
    url="https://example.com/hook",
    events='["run.ended"]',
    people="[]",
    secret="s",  # noqa: S106 - a test's
    since=0,
    created_by="adam",
    created_at=a.at(),
    failures=0,
    next_at=a.at(),
    busy_until=None,
    delivered_at=None,
    disabled_at=None,
    reason="",
)


def delivery_row(name: str, n: int = 1, i: int = 1, webhook_id: str = "w1") -> DeliveryRow:
    return DeliveryRow(
        webhook_id=webhook_id,
        id=name,
        n=n,
        i=i,
        kind="run.ended",
        body="{}",
        created_at=a.at(),
        delivered_at=None,
    )


class NotificationsConformance:
    def test_a_link_is_found_by_its_digest_and_used_once(self, store: Store, second: Store) -> None:
        assert store.notifications.add_answer_link(LINK)
        assert second.notifications.get_answer_link("d1") == LINK
        assert second.notifications.get_answer_link("d2") is None
        assert second.notifications.use_answer_link("l1", a.at(5))
        assert not store.notifications.use_answer_link("l1", a.at(6))
        assert store.notifications.get_answer_link("d1") == replace(LINK, used_at=a.at(5))

    def test_no_two_links_have_the_same_secret(self, store: Store, second: Store) -> None:
        assert store.notifications.add_answer_link(LINK)
        assert not second.notifications.add_answer_link(replace(LINK, id="l2", name="eve"))
        assert store.notifications.get_answer_link("d1") == LINK

    def test_a_question_has_only_so_many_links(self, store: Store, second: Store) -> None:
        for n in range(APPROVAL_LINKS_MAX):
            assert store.notifications.add_answer_link(replace(LINK, id=f"l{n}", digest=f"d{n}"))
        one_more = replace(LINK, id="more", digest="more")
        assert not second.notifications.add_answer_link(one_more)
        assert second.notifications.add_answer_link(replace(one_more, approval_id="r1.q2"))

    def test_webhooks_are_listed_removed_and_bounded(self, store: Store, second: Store) -> None:
        hooks = [replace(WEBHOOK, id=f"w{n:02}") for n in range(WEBHOOKS_MAX)]
        assert all(store.notifications.add_webhook(hook) for hook in hooks)
        assert not second.notifications.add_webhook(replace(WEBHOOK, id="x"))
        assert second.notifications.list_webhooks() == hooks
        assert second.notifications.remove_webhook("w00", a.at(9), "ann")
        assert not store.notifications.remove_webhook("w00", a.at(9), "ann")
        assert store.notifications.list_webhooks() == hooks[1:]

    def test_one_server_sends_to_a_webhook_at_a_time(self, store: Store, second: Store) -> None:
        store.notifications.add_webhook(WEBHOOK)
        assert store.notifications.lease_webhook("w1", a.at(1), a.at(60))
        assert not second.notifications.lease_webhook("w1", a.at(2), a.at(61))
        assert second.notifications.lease_webhook("w1", a.at(60), a.at(120))
        store.notifications.release_webhook("w1")
        assert store.notifications.lease_webhook("w1", a.at(61), a.at(121))

    def test_a_failed_attempt_waits_and_the_last_one_disables(
        self, store: Store, second: Store
    ) -> None:
        store.notifications.add_webhook(WEBHOOK)
        store.notifications.record_delivery_failure("w1", a.at(10), "it answered 500", None)
        (row,) = second.notifications.list_webhooks()
        assert (row.failures, row.next_at, row.reason) == (1, a.at(10), "it answered 500")
        assert not second.notifications.lease_webhook("w1", a.at(9), a.at(69))
        assert second.notifications.lease_webhook("w1", a.at(10), a.at(70))
        second.notifications.record_delivery_failure("w1", a.at(10), "gone", a.at(11))
        assert not store.notifications.lease_webhook("w1", a.at(99), a.at(150))
        assert store.notifications.enable_webhook("w1", a.at(100), 7)
        assert not second.notifications.enable_webhook("w1", a.at(100), 7)
        (row,) = second.notifications.list_webhooks()
        assert row == replace(WEBHOOK, next_at=a.at(100), since=7)

    def test_what_is_told_goes_with_the_position_in_the_feed(
        self, store: Store, second: Store
    ) -> None:
        store.notifications.add_webhook(WEBHOOK)
        assert store.notifications.get_delivery_position() is None
        assert store.notifications.put_deliveries(None, "1-0", [])
        assert not second.notifications.put_deliveries(None, "1-0", [delivery_row("lost")])
        assert second.notifications.put_deliveries(
            "1-0", "2-0", [delivery_row("b", 1, 2), delivery_row("a", 1, 1)]
        )
        assert not store.notifications.put_deliveries("1-0", "2-0", [delivery_row("lost")])
        assert second.notifications.put_deliveries("2-0", "3-0", [delivery_row("a", 2, 1)])
        assert store.notifications.get_delivery_position() == "3-0"
        assert store.notifications.count_pending_deliveries() == {"w1": 2}
        assert second.notifications.get_next_delivery("w1") == delivery_row("a")
        second.notifications.record_delivery("w1", "a", a.at(3))
        assert store.notifications.get_next_delivery("w1") == delivery_row("b", 1, 2)
        store.notifications.record_delivery("w1", "b", a.at(4))
        assert second.notifications.get_next_delivery("w1") is None
        assert second.notifications.count_pending_deliveries() == {}
        (row,) = second.notifications.list_webhooks()
        assert (row.delivered_at, row.failures) == (a.at(4), 0)

    def test_a_webhook_that_is_gone_or_disabled_is_told_nothing(
        self, store: Store, second: Store
    ) -> None:
        store.notifications.add_webhook(WEBHOOK)
        store.notifications.record_delivery_failure("w1", a.at(1), "gone", a.at(1))
        deliveries = [delivery_row("a"), delivery_row("a", webhook_id="w2")]
        assert second.notifications.put_deliveries(None, "1-0", deliveries)
        assert store.notifications.count_pending_deliveries() == {}

    def test_a_reminder_of_an_open_question_fires_once(self, store: Store, second: Store) -> None:
        assert commit_writes(store, a.begin(a.run("r1"), approvals=[a.approval("q1", "r1")])) == [
            True
        ]
        store.notifications.add_webhook(WEBHOOK)
        half = ReminderRow(approval_id="q1", kind="half", due_at=a.at(10), fired_at=None)
        other = replace(half, approval_id="q2")
        assert store.notifications.put_deliveries(None, "1-0", [], [half, other])
        assert second.notifications.put_deliveries(
            "1-0", "1-1", [], [replace(half, due_at=a.at(1))]
        )
        assert second.notifications.list_due_reminders(a.at(9), 10) == []
        assert second.notifications.list_due_reminders(a.at(10), 10) == [half]
        assert second.notifications.fire_reminder(half, a.at(11), [delivery_row("q1/half")])
        assert not store.notifications.fire_reminder(half, a.at(11), [delivery_row("again")])
        assert store.notifications.list_due_reminders(a.at(20), 10) == []
        assert store.notifications.count_pending_deliveries() == {"w1": 1}

    def test_what_is_old_is_forgotten(self, store: Store, second: Store) -> None:
        store.notifications.add_webhook(WEBHOOK)
        store.notifications.add_answer_link(LINK)
        reminder = ReminderRow(approval_id="q9", kind="half", due_at=a.at(1), fired_at=a.at(1))
        store.notifications.put_deliveries(None, "1-0", [delivery_row("a")], [reminder])
        second.notifications.delete_old_notifications(a.at(0))
        assert second.notifications.get_answer_link("d1") == LINK
        assert second.notifications.get_next_delivery("w1") == delivery_row("a")
        second.notifications.delete_old_notifications(a.at(101))
        assert store.notifications.get_answer_link("d1") is None
        assert store.notifications.get_next_delivery("w1") is None
        assert store.notifications.put_deliveries(
            "1-0", "1-1", [], [replace(reminder, fired_at=None)]
        )

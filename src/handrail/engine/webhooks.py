"""Who is told outside that something waits, has ended, or was said in a channel: webhooks, and what
is to be told to each.

Events of the feed become deliveries, rows of their own, in the same transaction in which the
position in the feed moves on: so each is made once, by whichever engine comes first, and none is
lost by a crash. A delivery's id says what it is about ("approval.opened:RUN.q1"), and is the same
however often it is tried. Who sends them stands in `server/courier.py`; nothing here waits for it.

Reminders are rows too: half of the time to a question's deadline, and a day before it. Each fires
once, if the question is still open then.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

import msgspec

from handrail.engine.answer_links import WithLinks
from handrail.engine.channel_work import CHANNEL
from handrail.engine.feed import WithFeed
from handrail.engine.pages import refuse
from handrail.engine.refused import Refused
from handrail.kernel.approval import Approval
from handrail.kernel.event_shown import ShownEvent
from handrail.store.port import ApprovalRow, Commit, iso, moment
from handrail.store.reviews import WEBHOOKS_MAX, DeliveryRow, ReminderRow, WebhookRow

Kind = Literal[
    "approval.opened",
    "approval.reminder",
    "approval.answered",
    "approval.void",
    "approval.expired",
    "run.ended",
    "channel.message",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
TALK: Kind = "channel.message"
UNASKED: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind != TALK)
"""What is told to a webhook that does not say what it wants: everything but talk."""
STANDS: dict[Kind, str] = {
    "approval.opened": "open",
    "approval.reminder": "open",
    "approval.answered": "answered",
    "approval.void": "void",
    "approval.expired": "expired",
}
DROPPED: dict[str, Kind] = {"void": "approval.void", "expired": "approval.expired"}
PAGE = 200
"""Events, and reminders, that are looked at in one go."""
WAITING_MAX = 10_000
"""Deliveries that wait for one webhook; with more it is disabled."""
RESULT_CHARS = 4_000
"""Of the result that is shown; all of it stands in the approval."""
DAY = timedelta(days=1)
LAST = 2**31

Happening = tuple[Kind, str]
"""What happened, to which approval or run, or in which channel."""


class WithWebhooks(WithLinks, WithFeed):
    """An engine that makes deliveries."""

    async def add_webhook(self, row: WebhookRow) -> None:
        """Refused: too_many_webhooks."""
        self._check()
        await self._catch_up()
        if not await self._io(self.store.add_webhook, row):
            told = f"there are {WEBHOOKS_MAX} webhooks already"
            refuse("too_many_webhooks", told, "remove one")

    async def webhooks(self) -> list[WebhookRow]:
        return await self._io(self.store.webhooks)

    async def webhook(self, webhook_id: str) -> WebhookRow:
        """Refused: unknown_webhook."""
        found = next((row for row in await self.webhooks() if row.id == webhook_id), None)
        if found is None:
            told = f"there is no webhook '{webhook_id[:200]}'"
            refuse("unknown_webhook", told, "look at the list of webhooks")
        return found

    async def remove_webhook(self, webhook_id: str) -> None:
        """Refused: unknown_webhook."""
        await self.webhook(webhook_id)
        await self._io(self.store.remove_webhook, webhook_id)

    async def enable_webhook(self, webhook_id: str) -> None:
        """Again: what waits is told, and what comes from now on. Refused: unknown_webhook."""
        await self.webhook(webhook_id)
        await self._catch_up()
        at, since = iso(self.clock()), await self.last_commit()
        await self._io(self.store.enable_webhook, webhook_id, at, since)

    async def last_commit(self) -> int:
        """Its number; 0 before the first."""
        head: Commit | None = await self._io(self.store.head)
        return head.n if head is not None else 0

    async def _catch_up(self) -> None:
        """If nobody listened so far, nothing of the past is told."""
        if not any(row.disabled_at is None for row in await self.webhooks()):
            was, position = await self._io(self.store.told_until), await self.position()
            if was != position:
                await self._io(self.store.put_deliveries, was, position, ())

    async def make_deliveries(self) -> bool:
        """Of the next events in the feed; True if there may be more."""
        hooks = [row for row in await self.webhooks() if row.disabled_at is None]
        was: str | None = await self._io(self.store.told_until)
        if not hooks or was is None:
            return False
        told = await self.feed(was, PAGE)
        if not told:
            return False
        await self._bound(hooks)
        found: list[DeliveryRow] = []
        reminders: list[ReminderRow] = []
        for position, event in told:
            happened = await self._happened(event)
            found += await self._deliveries(hooks, happened, position, event)
            reminders += _reminders(event, self.clock())
        await self._io(self.store.put_deliveries, was, told[-1][0], found, reminders)
        return len(told) == PAGE

    async def _bound(self, hooks: list[WebhookRow]) -> None:
        """Whoever takes nothing for so long is told no more."""
        waiting: dict[str, int] = await self._io(self.store.waiting_deliveries)
        at = iso(self.clock())
        for row in hooks:
            if waiting.get(row.id, 0) > WAITING_MAX:
                reason = f"more than {WAITING_MAX:,} deliveries wait for it"
                await self._io(self.store.undelivered, row.id, at, reason, at)

    async def _happened(self, event: ShownEvent) -> list[Happening]:
        kind, run_id = event["type"], event.get("execution_id", "")
        if not run_id:
            said = kind == "MessagePosted" and event["stream"].startswith(CHANNEL)
            return [(TALK, event["stream"].removeprefix(CHANNEL))] if said else []
        if kind == "asked":
            return [("approval.opened", event["question"]["id"])]
        if kind == "reasked":
            opened = event["question"]["id"]
            return [("approval.void", event["question_id"]), ("approval.opened", opened)]
        if kind == "answered":
            return [("approval.answered", event["question_id"])] if event.get("final", True) else []
        if kind == "ended":
            return [*await self._dropped(run_id, event["at"]), ("run.ended", run_id)]
        if kind == "moved" and event.get("cancels"):
            return await self._dropped(run_id, event["at"])
        return []

    async def _dropped(self, run_id: str, at: str) -> list[Happening]:
        """Questions that nobody will answer since that moment."""
        rows: list[ApprovalRow] = await self._slowly(
            lambda store: store.approvals_page(execution_id=run_id, limit=PAGE)
        )
        since = moment(at)
        settled = [row for row in rows if row.settled_at and moment(row.settled_at) >= since]
        return [(DROPPED[row.status], row.id) for row in settled if row.status in DROPPED]

    async def _deliveries(
        self,
        hooks: list[WebhookRow],
        happened: Iterable[Happening],
        position: str,
        event: ShownEvent,
    ) -> list[DeliveryRow]:
        n, i = map(int, position.split("-"))
        found: list[DeliveryRow] = []
        for kind, subject in happened:
            wanting = [row for row in hooks if n > row.since and kind in kinds_of(row)]
            if kind == TALK:
                body = _message_told(subject, event)
            else:
                body = await self._body(kind, subject, event["at"]) if wanting else None
            if body is not None:
                found += [self._delivery(row, body, n, i) for row in wanting]
        return found

    def _delivery(self, hook: WebhookRow, body: dict[str, Any], n: int, i: int) -> DeliveryRow:
        return DeliveryRow(
            webhook_id=hook.id,
            id=body["id"],
            n=n,
            i=i,
            kind=body["type"],
            body=msgspec.json.encode(body).decode(),
            created_at=iso(self.clock()),
            delivered_at=None,
        )

    async def _body(
        self, kind: Kind, subject: str, at: str, reminder: str = ""
    ) -> dict[str, Any] | None:
        """What is told; None if it is not there any more."""
        head = {"id": f"{kind}:{subject}{f':{reminder}' if reminder else ''}", "type": kind}
        try:
            if kind == "run.ended":
                return {**head, "at": at, "run": await self._run_told(subject)}
            approval = await self.approval(subject)
        except Refused:
            return None  # it was archived
        more = {"reminder": reminder} if reminder else {}
        run = await self.state(approval.execution_id)
        told = _approval_told(approval, kind)
        return {**head, "at": at, "title": run.title, **more, "approval": told}

    async def _run_told(self, run_id: str) -> dict[str, Any]:
        run = await self.state(run_id)
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

    async def remind(self) -> None:
        """Of questions that are open still, if it is time."""
        now = iso(self.clock())
        due: list[ReminderRow] = await self._io(self.store.due_reminders, now, PAGE)
        kind: Kind = "approval.reminder"
        for reminder in due:
            hooks = [row for row in await self.webhooks() if row.disabled_at is None]
            wanting = [row for row in hooks if kind in kinds_of(row)]
            body = await self._body(kind, reminder.approval_id, now, reminder.kind)
            n = await self.last_commit()
            found = [self._delivery(row, body, n, LAST) for row in wanting] if body else []
            await self._io(self.store.fire_reminder, reminder, now, found)


def kinds_of(row: WebhookRow) -> tuple[Kind, ...]:
    return msgspec.json.decode(row.events, type=tuple[Kind, ...])


def _reminders(event: ShownEvent, now: datetime) -> list[ReminderRow]:
    """Of a question that is asked: the moments that are not over."""
    if "execution_id" not in event or event["type"] not in ("asked", "reasked"):
        return []
    question = event["question"]
    asked, deadline = moment(event["at"]), moment(question["deadline"])
    due = {"half": asked + (deadline - asked) / 2, "day": deadline - DAY}
    return [
        ReminderRow(approval_id=question["id"], kind=kind, due_at=iso(at), fired_at=None)
        for kind, at in due.items()
        if asked < at and now < deadline
    ]


def _message_told(channel_id: str, event: ShownEvent) -> dict[str, Any]:
    """What was said, by the names of `GET …/messages`."""
    message = {
        "channel": channel_id,
        "id": event["seq"],
        "author": event["author"],
        "human": event["human"],
        "text": event["text"],
        "to": event.get("to"),
    }
    head = {"id": f"{TALK}:{channel_id}.{event['seq']}", "type": TALK, "at": event["at"]}
    return {**head, "message": message}


def _approval_told(approval: Approval, kind: Kind) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": approval.id,
        "type": approval.type,
        "status": STANDS[kind],
        "bead_id": approval.original_bead_id,
        "execution_id": approval.execution_id,
        "node_id": approval.node_id,
        "question": approval.question,
        "result": approval.result[:RESULT_CHARS],
        "digest": approval.digest,
        "approvers": approval.approvers,
        "quorum": approval.quorum,
        "created_at": approval.created_at,
        "deadline": approval.deadline,
    }
    if kind == "approval.answered":
        told |= {"decision": approval.decision, "answer": approval.answer, "by": approval.by}
    return told

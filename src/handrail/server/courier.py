"""The courier: brings what is to be told to webhooks, beside the engine and never in its way.

Rules
1. A webhook is told one thing at a time, in the order in which things happened. Who sends has taken
   it for LEASE_SECONDS, so several servers on one database do not send the same.
2. What is told is signed: HMAC-SHA256 over "TIMESTAMP.BODY" with the webhook's secret. Its id stays
   the same however often it is tried, so a receiver can tell a repetition.
3. An answer of 2xx is a yes. Anything else is tried again, later each time; after ATTEMPTS_MAX in a
   row, some hours, the webhook is disabled, and says why. A redirect is not followed, and of the
   answer nothing but its status is looked at.
4. Links for people are made when something is sent, from the secret and the delivery's id: the same
   at every attempt, and nowhere on disk.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx
import msgspec

from handrail.engine.engine import Engine
from handrail.engine.refused import Refused
from handrail.engine.vocabulary import tell
from handrail.kernel.approval import Approval
from handrail.kernel.decision import Value, learn
from handrail.kernel.run.state import Person
from handrail.server.access import PersonRole
from handrail.server.links import link_to, path_of
from handrail.server.secrets import PREFIX
from handrail.server.settings import ServerSettings
from handrail.server.targets import BadTarget, read_url, resolved
from handrail.store.port import StoreError, iso
from handrail.store.reviews import DeliveryRow, WebhookRow

log = logging.getLogger("handrail.http")

ATTEMPTS_MAX = 12
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 5.0, 3600.0
"""The first wait, doubled each time up to the longest: some three hours in all."""
SEND_SECONDS = 10.0
TIMEOUT = httpx.Timeout(SEND_SECONDS)
LIMITS = httpx.Limits(max_keepalive_connections=0)
"""A connection is for one name: it goes to an address, which another webhook's name may have too,
and whose certificate was looked at for the first alone."""
LEASE_SECONDS = 60.0
ANSWER_BYTES_MAX = 4_096
AT_ONCE = 8
"""Webhooks that are told something at the same time."""
IN_A_ROW = 50
"""Deliveries to one of them before the others have their turn."""
PAGES_MAX = 20
LOOK_SECONDS = 5.0
PAUSE_SECONDS = 0.2
"""How often the courier looks at most, and at least."""
KEPT_DAYS = 30
PRUNE_SECONDS = 3600
GONE = 410


class Linked(Value):
    """Somebody for whom a webhook brings links."""

    name: str
    role: PersonRole = "operator"


learn(Linked)


class Courier:
    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine, self.settings = engine, settings
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._awake = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._pruned = engine.clock()

    def wake(self) -> None:
        """There is a new webhook."""
        self._awake.set()

    async def go_on(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            try:
                telling = await self.look()
            except Exception as error:  # whatever it is, others are told the next time
                known = isinstance(error, StoreError)
                reason = str(error) if known else f"{type(error).__name__}: {error}"
                tell(log, "webhooks_waiting", reason=reason)
                telling = False
            await asyncio.sleep(PAUSE_SECONDS)
            if telling:
                await self.engine.feed_changed(LOOK_SECONDS)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):  # wait_for may lose a cancellation
                        await self._awake.wait()
                self._awake.clear()

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def look(self) -> bool:
        """At all that is to be told now; False if there is nobody to tell."""
        if not any(row.disabled_at is None for row in await self.engine.webhooks()):
            return False
        for _ in range(PAGES_MAX):
            if not await self.engine.make_deliveries():
                break
        await self.engine.remind()
        rows = await self.engine.webhooks()
        await asyncio.gather(*(self._tell(row) for row in rows if row.disabled_at is None))
        await self._prune()
        return True

    async def _prune(self) -> None:
        now = self.engine.clock()
        if now - self._pruned >= timedelta(seconds=PRUNE_SECONDS):
            self._pruned = now
            before = iso(now - timedelta(days=KEPT_DAYS))
            await self.engine.keeper.io(self.engine.store.forget_reviews, before)

    async def _tell(self, hook: WebhookRow) -> None:
        async with self._slots:
            for _ in range(IN_A_ROW):
                if not await self._tell_next(hook):
                    return

    async def _tell_next(self, hook: WebhookRow) -> bool:
        """True if it was taken, and the next may follow."""
        io, store, now = self.engine.keeper.io, self.engine.store, self.engine.clock()
        if await io(store.next_delivery, hook.id) is None:
            return False
        until = iso(now + timedelta(seconds=LEASE_SECONDS))
        if not await io(store.take_webhook, hook.id, iso(now), until):
            return False
        delivery: DeliveryRow | None = await io(store.next_delivery, hook.id)
        if delivery is None:  # another server was faster
            await io(store.release_webhook, hook.id)
            return False
        status, wrong = await self._send(hook, delivery)
        if not wrong:
            await io(store.delivered, hook.id, delivery.id, iso(self.engine.clock()))
            return True
        await self._failed(hook, status, wrong)
        return False

    async def _failed(self, hook: WebhookRow, status: int, wrong: str) -> None:
        (now_row,) = [r for r in await self.engine.webhooks() if r.id == hook.id] or [hook]
        failures, now = now_row.failures + 1, self.engine.clock()
        last = failures >= ATTEMPTS_MAX or status == GONE
        wait = min(BACKOFF_SECONDS * 2 ** (failures - 1), BACKOFF_SECONDS_MAX)
        reason = f"{failures} attempts in a row failed, the last: {wrong}" if last else wrong
        next_at, disabled_at = iso(now + timedelta(seconds=wait)), iso(now) if last else None
        io, store = self.engine.keeper.io, self.engine.store
        await io(store.undelivered, hook.id, next_at, reason, disabled_at)
        if last:
            tell(log, "webhook_disabled", webhook_id=hook.id, reason=reason)
        else:
            tell(log, "webhook_failed", webhook_id=hook.id, reason=reason)

    async def _send(self, hook: WebhookRow, delivery: DeliveryRow) -> tuple[int, str]:
        """The status of the answer, and what is wrong; nothing is, if it was taken."""
        body = await self._body(hook, delivery)
        at = int(self.engine.clock().timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": "handrail",
            "handrail-event": delivery.kind,
            "handrail-delivery": delivery.id,
            "handrail-signature": f"t={at},v1={signature(hook.secret, at, body)}",
        }
        try:
            async with asyncio.timeout(SEND_SECONDS):
                status = await self._post(hook.url, headers, body)
        except BadTarget as bad:
            return 0, str(bad)
        except TimeoutError:
            return 0, f"it took longer than {SEND_SECONDS:g} s"
        except (httpx.HTTPError, OSError) as error:
            return 0, f"it cannot be reached: {type(error).__name__}"
        return status, "" if 200 <= status < 300 else f"it answered {status}"

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> int:
        private = self.settings.webhook_private
        target = await resolved(read_url(url, private=private), private=private)
        if self._transport is None:  # by hand: a client would log the address, which may be secret
            self._transport = httpx.AsyncHTTPTransport(trust_env=False, limits=LIMITS)
        request = httpx.Request(
            "POST",
            target.url,
            content=body,
            headers={**headers, "host": target.host},
            extensions={"sni_hostname": target.name, "timeout": TIMEOUT.as_dict()},
        )
        answer = await self._transport.handle_async_request(request)
        try:
            size = 0
            async for part in answer.aiter_raw():
                size += len(part)
                if size > ANSWER_BYTES_MAX:
                    break
        finally:
            await answer.aclose()
        return answer.status_code

    # Links for people

    async def _body(self, hook: WebhookRow, delivery: DeliveryRow) -> bytes:
        """As it was kept, and a link for each of the webhook's people who may answer now."""
        people = msgspec.json.decode(hook.people, type=tuple[Linked, ...])
        body: dict[str, Any] = msgspec.json.decode(delivery.body)
        if not people or delivery.kind not in ("approval.opened", "approval.reminder"):
            return delivery.body.encode()
        links: list[dict[str, str]] = []
        with suppress(Refused):  # the question is not there any more
            approval = await self.engine.approval(body["approval"]["id"])
            links = [one for p in people if (one := await self._link(hook, delivery, approval, p))]
        return msgspec.json.encode({**body, "links": links})

    async def _link(
        self, hook: WebhookRow, delivery: DeliveryRow, approval: Approval, linked: Linked
    ) -> dict[str, str] | None:
        person = Person(name=linked.name, role=linked.role)
        secret = link_secret(hook.secret, delivery.id, linked.name)
        row = link_to(secret, approval, person, by=hook.created_by, now=self.engine.clock())
        try:
            await self.engine.check_may_answer(approval.id, person)
            await self.engine.add_link(row)
        except Refused:
            return None
        base = self.settings.public_url
        return {
            "name": linked.name,
            "url": f"{base}{path_of(secret)}",
            "expires_at": row.expires_at,
        }


def signature(secret: str, at: int, body: bytes) -> str:
    """Of a delivery: hexadecimal."""
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


def link_secret(secret: str, delivery_id: str, name: str) -> str:
    """The same for every attempt; nobody without the webhook's secret can make it."""
    said = "\0".join(("answer-link", delivery_id, name)).encode()
    mac = hmac.new(secret.encode(), said, hashlib.sha256).digest()
    return PREFIX + base64.urlsafe_b64encode(mac).decode().rstrip("=")

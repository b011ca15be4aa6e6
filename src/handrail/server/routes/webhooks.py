"""Webhooks: notify other systems of open approvals, ended runs and channel messages. For admins.

Rules
1. Only public addresses over https are targets. Every address of a name is checked, and the
   connection goes to a checked address: a name that resolves differently a moment later gains
   nothing. The setting `webhook_private` also allows internal addresses and plain http.
2. Deliveries are sent beside the engine, and never block it. A webhook receives one delivery at a
   time, in the order of the events. The sending server leases the webhook for LEASE_SECONDS, so
   several servers on one database do not send the same.
3. A delivery is signed: HMAC-SHA256 over "TIMESTAMP.BODY" with the webhook's secret. Its id is the
   same at every attempt, so a receiver can recognise a repetition (docs/review.md).
4. A 2xx response is success. Anything else is retried, later each time; after ATTEMPTS_MAX failures
   in a row, some hours, the webhook is disabled with a reason. Redirects are not followed, and only
   the status of the response is used.
5. Answer links are derived when a delivery is sent, from the secret and the delivery's id: they are
   the same at every attempt, and never on disk.
"""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import logging
import secrets
import socket
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar

import httpx
import msgspec
from msgspec.structs import asdict

from handrail.api.webhooks import LinkRecipient, MadeWebhook, NewWebhook, WebhookCalls, WebhookView
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.engine.ids import uuid7
from handrail.engine.log_events import log_event
from handrail.engine.services.webhooks import event_types_of
from handrail.kernel.decision import prepare_types
from handrail.kernel.run.state import Person
from handrail.server.access import NAME_CHARS_MAX, SECRET_PREFIX, Caller
from handrail.server.answer_links import link_path, make_link_row
from handrail.server.binding import serves
from handrail.server.problems import HTTPProblemError
from handrail.server.settings import ServerSettings
from handrail.store.notifications import DeliveryRow, WebhookRow
from handrail.store.rows import StoreError, iso
from handrail.views.approvals import Approval
from handrail.views.view_types import Page

URL_CHARS_MAX = 2_000
RESOLVE_SECONDS_MAX = 5.0
GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses that are given to hosts of the internet."""
SPECIAL_NETWORKS = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "2001::/32", "2002::/16", "3fff::/20"))
)
"""Of protocols, tunnels to IPv4 addresses, and documentation; `ipaddress` takes them for public."""
"""IPv6 addresses that stand for an arbitrary IPv4 address."""


class WebhookTargetError(Exception):
    """A target is not allowed; the text says why, and what to do."""


class WebhookTarget(NamedTuple):
    """A checked address, and the host name that resolved to it."""

    url: httpx.URL
    host: str
    name: str


def parse_target_url(text: str, *, private: bool) -> httpx.URL:
    """Parse a URL; raises `WebhookTargetError` if it is not allowed."""
    try:
        url = httpx.URL(text)
        port = url.port
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise WebhookTargetError(f"not a URL: {error}; write https://HOST/PATH") from error
    schemes = ("https", "http") if private else ("https",)
    if url.scheme not in schemes or not url.host or len(text) > URL_CHARS_MAX or port == 0:
        raise WebhookTargetError(
            f""
            f"not a URL of at most {URL_CHARS_MAX:,} characters with {' or '.join(schemes)}; write https://HOST/PATH"
        )
    if url.userinfo:
        raise WebhookTargetError(
            "the URL contains a user or a password; leave them out, deliveries are signed"
        )
    return url


async def resolve_target(url: httpx.URL, *, private: bool) -> WebhookTarget:
    """Resolve a URL to the address to connect to now."""
    port = url.port or (443 if url.scheme == "https" else 80)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS_MAX):
            address_infos = await loop.getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise WebhookTargetError(
            f"the host {url.host} cannot be resolved; check its spelling"
        ) from error
    addresses = [str(info[4][0]) for info in address_infos]
    if not private and not all(map(is_public, addresses)):
        raise WebhookTargetError(
            f"{url.host} is inside this network; to allow it, set webhook_private = yes"
        )
    return WebhookTarget(url.copy_with(host=addresses[0]), url.netloc.decode("ascii"), url.host)


def is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    if parsed.version == 6 and parsed not in GLOBAL_UNICAST:
        return False
    is_special = any(parsed in network for network in SPECIAL_NETWORKS)
    return parsed.is_global and not parsed.is_multicast and not is_special


log = logging.getLogger("handrail.http")

ATTEMPTS_MAX = 12
BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX = 5.0, 3600.0
"""The wait doubles from the first to the longest: some three hours in all."""
SEND_SECONDS_MAX = 10.0
TIMEOUT = httpx.Timeout(SEND_SECONDS_MAX)
LIMITS = httpx.Limits(max_keepalive_connections=0)
"""A connection serves one host name: another webhook's name may have the same address, and the
certificate was checked for the first name only."""
LEASE_SECONDS = 60.0
ANSWER_BYTES_MAX = 4_096
WEBHOOKS_AT_ONCE_MAX = 8
DELIVERIES_IN_A_ROW_MAX = 50
"""Deliveries to one webhook before the others go first."""
FEED_PAGES_MAX = 20
POLL_SECONDS_MAX = 5.0
POLL_SECONDS_MIN = 0.2
"""The sender polls at these intervals, at most and at least."""
DELIVERIES_KEPT_DAYS = 30
PRUNE_SECONDS = 3600
STATUS_GONE = 410


prepare_types(LinkRecipient)


class WebhookSender:
    def __init__(self, engine: Engine, settings: ServerSettings) -> None:
        self.engine, self.settings = engine, settings
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._wake_event = asyncio.Event()
        self._slots = asyncio.Semaphore(WEBHOOKS_AT_ONCE_MAX)
        self._pruned_at = engine.clock()

    def wake(self) -> None:
        """Wake the sender, because there is a new webhook."""
        self._wake_event.set()

    async def run(self) -> None:
        """Send due deliveries periodically, until cancelled."""
        while True:
            try:
                has_webhooks = await self.send_due()
            except Exception as error:  # any failure: the next round tries again
                is_store_error = isinstance(error, StoreError)
                reason = str(error) if is_store_error else f"{type(error).__name__}: {error}"
                log_event(log, "webhooks_waiting", reason=reason)
                has_webhooks = False
            await asyncio.sleep(POLL_SECONDS_MIN)
            if has_webhooks:
                await self.engine.feed.wait(POLL_SECONDS_MAX)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(
                        POLL_SECONDS_MAX
                    ):  # wait_for may lose a cancellation
                        await self._wake_event.wait()
                self._wake_event.clear()

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def send_due(self) -> bool:
        """Send all due deliveries; return False if no webhook is enabled."""
        webhooks = self.engine.webhooks
        if not await webhooks.list_enabled():
            return False
        for _ in range(FEED_PAGES_MAX):
            if not await webhooks.make_deliveries():
                break
        await webhooks.fire_reminders()
        await asyncio.gather(*(self._send_pending(row) for row in await webhooks.list_enabled()))
        await self._prune()
        return True

    async def _prune(self) -> None:
        now = self.engine.clock()
        if now - self._pruned_at >= timedelta(seconds=PRUNE_SECONDS):
            self._pruned_at = now
            await self.engine.webhooks.prune(timedelta(days=DELIVERIES_KEPT_DAYS))

    async def _send_pending(self, hook: WebhookRow) -> None:
        async with self._slots:
            for _ in range(DELIVERIES_IN_A_ROW_MAX):
                if not await self._send_next(hook):
                    return

    async def _send_next(self, hook: WebhookRow) -> bool:
        """Send the next delivery; return True if it succeeded, and the next may follow."""
        lease = timedelta(seconds=LEASE_SECONDS)
        delivery = await self.engine.webhooks.take_delivery(hook.id, lease)
        if delivery is None:
            return False
        status, problem = await self._send_delivery(hook, delivery)
        if problem:
            await self._record_failure(hook, status, problem)
            return False
        await self.engine.webhooks.mark_delivered(hook.id, delivery.id)
        return True

    async def _record_failure(self, hook: WebhookRow, status: int, problem: str) -> None:
        webhooks = self.engine.webhooks
        current = next((row for row in await webhooks.list() if row.id == hook.id), hook)
        failures = current.failures + 1
        is_last = failures >= ATTEMPTS_MAX or status == STATUS_GONE
        wait_seconds = min(BACKOFF_SECONDS_FIRST * 2 ** (failures - 1), BACKOFF_SECONDS_MAX)
        reason = f"{failures} attempts in a row failed, the last: {problem}" if is_last else problem
        wait = timedelta(seconds=wait_seconds)
        await webhooks.mark_failed(hook.id, reason, wait, disable=is_last)
        if is_last:
            log_event(log, "webhook_disabled", webhook_id=hook.id, reason=reason)
        else:
            log_event(log, "webhook_failed", webhook_id=hook.id, reason=reason)

    async def _send_delivery(self, hook: WebhookRow, delivery: DeliveryRow) -> tuple[int, str]:
        """Send a delivery; return the response status and the problem (empty on success)."""
        body = await self._build_body(hook, delivery)
        timestamp = int(self.engine.clock().timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": "handrail",
            "handrail-event": delivery.kind,
            "handrail-delivery": delivery.id,
            "handrail-signature": f"t={timestamp},v1={sign(hook.secret, timestamp, body)}",
        }
        try:
            async with asyncio.timeout(SEND_SECONDS_MAX):
                status = await self._post(hook.url, headers, body)
        except WebhookTargetError as bad:
            return 0, str(bad)
        except TimeoutError:
            return 0, f"the receiver took longer than {SEND_SECONDS_MAX:g} s"
        except (httpx.HTTPError, OSError) as error:
            return 0, f"the receiver cannot be reached: {type(error).__name__}"
        return status, "" if 200 <= status < 300 else f"the receiver answered {status}"

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> int:
        private = self.settings.webhook_private
        target = await resolve_target(parse_target_url(url, private=private), private=private)
        if self._transport is None:  # no httpx client: it logs the URL, which may be secret
            self._transport = httpx.AsyncHTTPTransport(trust_env=False, limits=LIMITS)
        request = httpx.Request(
            "POST",
            target.url,
            content=body,
            headers={**headers, "host": target.host},
            extensions={"sni_hostname": target.name, "timeout": TIMEOUT.as_dict()},
        )
        response = await self._transport.handle_async_request(request)
        try:
            size = 0
            async for part in response.aiter_raw():
                size += len(part)
                if size > ANSWER_BYTES_MAX:
                    break
        finally:
            await response.aclose()
        return response.status_code

    # Answer links

    async def _build_body(self, hook: WebhookRow, delivery: DeliveryRow) -> bytes:
        """Return the stored body, with a link for each recipient who may answer now."""
        people = msgspec.json.decode(hook.people, type=tuple[LinkRecipient, ...])
        body: dict[str, Any] = msgspec.json.decode(delivery.body)
        if not people or delivery.kind not in ("approval.opened", "approval.reminder"):
            return delivery.body.encode()
        links: list[dict[str, str]] = []
        with suppress(RefusedError):  # the approval no longer exists
            approval = await self.engine.approvals.get(body["approval"]["id"])
            links = [
                link
                for person in people
                if (link := await self._make_link(hook, delivery, approval, person))
            ]
        return msgspec.json.encode({**body, "links": links})

    async def _make_link(
        self, hook: WebhookRow, delivery: DeliveryRow, approval: Approval, recipient: LinkRecipient
    ) -> dict[str, str] | None:
        person = Person(name=recipient.name, role=recipient.role)
        secret = link_secret(hook.secret, delivery.id, recipient.name)
        row = make_link_row(secret, approval, person, by=hook.created_by, now=self.engine.clock())
        try:
            await self.engine.approvals.check_may_answer(approval.id, person)
            await self.engine.approvals.add_link(row)
        except RefusedError:
            return None
        public_url = self.settings.public_url
        return {
            "name": recipient.name,
            "url": f"{public_url}{link_path(secret)}",
            "expires_at": row.expires_at,
        }


def sign(secret: str, at: int, body: bytes) -> str:
    """Return the hexadecimal signature of a delivery."""
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


def link_secret(secret: str, delivery_id: str, name: str) -> str:
    """Derive the secret of an answer link: the same at every attempt, and only with the webhook's
    secret."""
    message = "\0".join(("answer-link", delivery_id, name)).encode()
    mac = hmac.new(secret.encode(), message, hashlib.sha256).digest()
    return SECRET_PREFIX + base64.urlsafe_b64encode(mac).decode().rstrip("=")


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


@serves(WebhookCalls.remove)
async def remove_webhook(engine: Engine, caller: Caller, webhook_id: str) -> None:
    await engine.webhooks.remove(webhook_id, by=caller.name)


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
            raise HTTPProblemError(
                422, "bad_name", f"{field} is empty, too long, or not plain text", field=field
            )


def _to_view(row: WebhookRow, waiting: int, view_type: type[V]) -> V:
    fields = {
        **asdict(row),
        "events": event_types_of(row),
        "people": msgspec.json.decode(row.people),
        "enabled": row.disabled_at is None,
        "waiting": waiting,
    }
    return msgspec.convert(fields, view_type)

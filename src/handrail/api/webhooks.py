"""Webhooks: they notify other systems of open approvals, ended runs and channel messages."""

# pyright: reportReturnType=false
# A declaration has no body.

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from handrail.api.operation import ADMIN, C_co, CallGroup, PersonRole, Repeat, operation
from handrail.kernel.decision import Value, prepare_types
from handrail.views.view_types import Page, View
from handrail.views.webhooks import DEFAULT_EVENT_TYPES, WEBHOOK_EVENT_TYPES, WebhookEventType

PEOPLE_MAX = 50
URL_CHARS_MAX = 2_000


class LinkRecipient(Value):
    """A person for whom a webhook carries answer links."""

    name: str
    role: PersonRole = "operator"


class NewWebhook(Value):
    """`people` get a one-time link with each approval that they may answer. Default of `events`:
    all but `channel.message`."""

    url: Annotated[str, Meta(min_length=1, max_length=URL_CHARS_MAX, pattern=r"^[\x21-\x7e]+$")]
    events: Annotated[
        tuple[WebhookEventType, ...], Meta(min_length=1, max_length=len(WEBHOOK_EVENT_TYPES))
    ] = DEFAULT_EVENT_TYPES
    people: Annotated[tuple[LinkRecipient, ...], Meta(max_length=PEOPLE_MAX)] = ()


class WebhookView(View):
    """`failures` counts failed attempts in a row, `waiting` the pending deliveries."""

    id: str
    url: str
    events: tuple[Annotated[str, Meta(extra_json_schema={"enum": list(WEBHOOK_EVENT_TYPES)})], ...]
    """A newer server may have further ones."""
    people: tuple[LinkRecipient, ...]
    enabled: bool
    reason: str
    failures: int
    waiting: int
    next_at: datetime
    delivered_at: datetime | None
    disabled_at: datetime | None
    created_by: str
    created_at: datetime


class MadeWebhook(WebhookView):
    secret: str
    """Shown only once."""


prepare_types(LinkRecipient, MadeWebhook)


class WebhookCalls(CallGroup[C_co], subject="webhooks"):
    """Addresses that are told of events."""

    @operation("GET", "/webhooks", access=ADMIN)
    def list(self) -> Page[WebhookView]:
        """List every webhook, and how its last attempts went."""

    @operation(
        "POST",
        "/webhooks",
        body=NewWebhook,
        access=ADMIN,
        status=201,
        problems=(409,),
        repeat=Repeat.ONCE,
    )
    def create(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        people: Sequence[LinkRecipient | Mapping[str, str]] = (),
    ) -> MadeWebhook:
        """Create a webhook: from now on `url` receives these events (default: all but
        `channel.message`). `people` get a link with each approval that they may answer. The secret
        is shown only once."""

    @operation("DELETE", "/webhooks/{webhook_id}", access=ADMIN, problems=(404,))
    def remove(self, webhook_id: str) -> None:
        """Remove a webhook: it receives nothing any more."""

    @operation("POST", "/webhooks/{webhook_id}/enable", access=ADMIN, problems=(404,))
    def enable(self, webhook_id: str) -> WebhookView:
        """Re-enable a disabled webhook: it receives what waits for it, and what comes from now
        on."""

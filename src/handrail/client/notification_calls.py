"""The calls about answer links and webhooks."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from handrail.client.call import Call, decode_nothing, drop_none, join_path, json_get, json_send
from handrail.client.endpoint import endpoint
from handrail.kernel.decision import Value
from handrail.views.approvals import Approval
from handrail.views.pages import Page


class MadeLink(Value):
    """A new answer link, shown only once; `url` is empty if the server has no public URL."""

    id: str
    approval_id: str
    name: str
    path: str
    url: str
    expires_at: datetime


class LinkView(Value):
    """What an answer link will do: `does` has the effect of each decision."""

    approval: Approval
    name: str
    expires_at: datetime
    does: dict[str, str]


class LinkAnswered(Value):
    """The approval after the answer, and the status of its run."""

    approval: Approval
    run_status: str
    terminal_status: str | None


class LinkRecipient(Value):
    """A person for whom a webhook carries answer links."""

    name: str
    role: str = "operator"


class WebhookView(Value):
    """`failures` counts failed attempts in a row, `waiting` the pending deliveries."""

    id: str
    url: str
    events: tuple[str, ...]
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


class MadeWebhook(WebhookView, frozen=True, kw_only=True):
    """A new webhook; `secret` is shown only once."""

    secret: str


class NotificationCalls:
    @endpoint
    def create_answer_link(
        self,
        approval_id: str,
        *,
        name: str | None = None,
        role: str | None = None,
        expires: str | None = None,
    ) -> Call[MadeLink]:
        """Create a one-time link with which one person answers an approval, without a token."""
        body = drop_none(name=name, role=role, expires=expires)
        return json_send("POST", join_path("approvals", approval_id, "links"), MadeLink, body)

    @endpoint
    def get_answer_link(self, secret: str) -> Call[LinkView]:
        """Show what a link will do, without using it. `secret` is the last part of its path."""
        return json_get(join_path("answer-links", secret), LinkView)

    @endpoint
    def use_answer_link(
        self,
        secret: str,
        text: str = "",
        *,
        decision: Literal["approve", "reject", "revise"] | None = None,
    ) -> Call[LinkAnswered]:
        """Answer an approval by its link, once."""
        body = drop_none(text=text or None, decision=decision)
        return json_send("POST", join_path("answer-links", secret), LinkAnswered, body)

    @endpoint
    def list_webhooks(self) -> Call[Page[WebhookView]]:
        """List every webhook, and how its last attempts went."""
        return json_get("/webhooks", Page[WebhookView])

    @endpoint
    def create_webhook(
        self,
        url: str,
        *,
        events: Sequence[str] | None = None,
        people: Mapping[str, str] | None = None,
    ) -> Call[MadeWebhook]:
        """Create a webhook: from now on `url` receives these events (default: all but
        `channel.message`). `people`, names with their roles, get a link with each approval that
        they may answer."""
        recipients = [{"name": name, "role": role} for name, role in (people or {}).items()]
        body = drop_none(
            url=url, events=list(events) if events else None, people=recipients or None
        )
        return json_send("POST", "/webhooks", MadeWebhook, body)

    @endpoint
    def remove_webhook(self, webhook_id: str) -> Call[None]:
        """Remove a webhook: it receives nothing any more."""
        return Call(method="DELETE", path=join_path("webhooks", webhook_id), decode=decode_nothing)

    @endpoint
    def enable_webhook(self, webhook_id: str) -> Call[WebhookView]:
        """Re-enable a disabled webhook."""
        return json_send("POST", join_path("webhooks", webhook_id, "enable"), WebhookView, {})

"""The events that webhooks are called for."""

from typing import Literal, get_args

WebhookEventType = Literal[
    "approval.opened",
    "approval.reminder",
    "approval.answered",
    "approval.void",
    "approval.expired",
    "run.ended",
    "channel.message",
]
WEBHOOK_EVENT_TYPES: tuple[WebhookEventType, ...] = get_args(WebhookEventType)
CHANNEL_MESSAGE: WebhookEventType = "channel.message"
DEFAULT_EVENT_TYPES: tuple[WebhookEventType, ...] = tuple(
    kind for kind in WEBHOOK_EVENT_TYPES if kind != CHANNEL_MESSAGE
)
"""Event types of a webhook that names none: everything but channel messages."""

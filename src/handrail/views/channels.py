"""Channels, turns and messages as they are shown: over HTTP, to workers, on the page."""

from datetime import datetime
from typing import Literal

import msgspec

from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.channel.evolve import Disposition
from handrail.kernel.channel.state import TurnConfig
from handrail.views.view_types import View


class ActiveTurnView(View):
    """The turn in progress. It runs until `timeout_at`, or is paused until `wait_until`."""

    agent_id: str
    number: int
    granted_at: datetime
    timeout_at: datetime | None
    wait_until: datetime | None
    seconds_left: float
    """While the turn is paused: seconds left when it is resumed."""
    interrupted: bool
    """Whether a person paused it."""


class MemberView(View):
    agent_id: str
    state: AgentState
    timeout_seconds: float | None = msgspec.field(name="timeoutSeconds")
    """None: the channel's default."""
    priority: int
    enabled: bool
    busy: bool
    """Whether it works elsewhere: its turn passes, its position stays."""


class ChannelView(View):
    """A channel. `queue` is the turn queue by position, with the holder of the turn; `active` is
    the agent that may respond now."""

    id: str
    turn_config: TurnConfig = msgspec.field(name="turnConfig")
    active: str | None
    turn: ActiveTurnView | None
    queue: tuple[str, ...]
    next: str | None
    """The agent with the next turn; None if a person decides, or no other agent is there."""
    states: dict[str, AgentState]
    members: tuple[MemberView, ...]
    paused: bool
    resting: str
    """Why the channel rests; empty while it does not."""
    messages: int
    turns: int
    position: int
    """For `after`: the messages from now on."""
    created_at: datetime
    updated_at: datetime


class MessageView(View):
    """A message, or a notice to the channel. `id` is for `after`."""

    id: int
    kind: Literal["message", "notice"]
    author: str
    human: bool
    text: str
    to: str | None
    code: str
    """The code of a notice."""
    at: datetime


class PostedMessage(MessageView):
    """`disposition`: the message has reached an agent, waits for its turn to do so, or was only
    logged."""

    disposition: Disposition


class TurnView(View, kw_only=True, tag="turn", tag_field="kind"):
    """A turn as its agent gets it: with all messages since its last one."""

    id: str
    channel_id: str
    agent_id: str
    turn: int
    granted_at: datetime
    timeout_at: datetime | None
    messages: tuple[MessageView, ...]
    position: int
    """For `after`: the messages from now on."""

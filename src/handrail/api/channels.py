"""Channels: people and agents speak in them, and pass the turn."""

# pyright: reportReturnType=false
# A declaration has no body.

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from handrail.api.operation import OPERATOR, VIEWER, Access, C_co, CallGroup, operation
from handrail.api.shared import INTEGER_MAX, NAME_CHARS_MAX, AuthoredBody, NulFreeText, PageQuery
from handrail.kernel.channel.state import AGENT_TURNS_MAX, TURN_SECONDS_MAX, HumanMode, TurnOrder
from handrail.kernel.decision import Value
from handrail.views.channels import ChannelView, MessageView, PostedMessage
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Page

TurnAction = Literal["complete", "wait", "resume", "override", "grant", "pause", "unpause"]
TurnSeconds = Annotated[float, Meta(gt=0, le=TURN_SECONDS_MAX)]
TurnNumber = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
ChannelName = Annotated[NulFreeText, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
MessageText = Annotated[NulFreeText, Meta(min_length=1, max_length=100_000)]
TurnReason = Annotated[NulFreeText, Meta(max_length=2_000)]
MEMBER_READS = Access(
    people="viewer", agents=True, restriction="an agent reads channels of which it is a member"
)


class TurnConfigInput(Value, rename="camel", forbid_unknown_fields=True):
    """Settings of a channel; defaults: those of the installation, else the built-in ones."""

    default_timeout_seconds: TurnSeconds | UnsetType = UNSET
    human_interrupt_mode: HumanMode | UnsetType = UNSET
    announce_timeouts: bool | UnsetType = UNSET
    announce_disconnects: bool | UnsetType = UNSET
    auto_detect_turn_end: bool | UnsetType = UNSET
    auto_detect_silence_seconds: TurnSeconds | UnsetType = UNSET
    wait_timeout_seconds: TurnSeconds | UnsetType = UNSET
    max_agent_turns: Annotated[int, Meta(ge=1, le=AGENT_TURNS_MAX)] | UnsetType = UNSET
    order: TurnOrder | UnsetType = UNSET


class NewChannel(AuthoredBody, kw_only=True):
    id: ChannelName
    turn_config: TurnConfigInput = msgspec.field(name="turnConfig", default=TurnConfigInput())


class ChannelUpdate(AuthoredBody, kw_only=True):
    turn_config: TurnConfigInput = msgspec.field(name="turnConfig")


class NewMember(AuthoredBody, kw_only=True):
    agent_id: ChannelName
    timeout_seconds: TurnSeconds | None = msgspec.field(name="timeoutSeconds", default=None)
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    """Higher goes first, in the order `priority`."""


class NewMessage(AuthoredBody, kw_only=True):
    """`turn` is the number of the turn in which an agent answers."""

    text: MessageText
    to: NulFreeText | None = None
    turn: TurnNumber | None = None
    author: NulFreeText = ""
    agent_id: NulFreeText = ""


class MessageQuery(Value):
    after: Annotated[
        int, Meta(ge=0, le=INTEGER_MAX, description="The `id` of the last one seen.")
    ] = 0
    wait: Annotated[float, Meta(ge=0, description="Seconds to wait for the first one.")] = 0
    limit: Annotated[int, Meta(ge=1, le=PAGE_ITEMS_MAX, description="Items on a page.")] = (
        PAGE_ITEMS_DEFAULT
    )


class TurnControl(AuthoredBody, kw_only=True):
    """`turn` is the number of the turn to act on: an old number is refused."""

    action: TurnAction
    agent_id: NulFreeText = ""
    turn: TurnNumber | None = None
    to: Literal["ACTIVE", "QUEUED"] | None = None
    seconds: TurnSeconds | None = None
    reason: TurnReason = ""


class ChannelCalls(CallGroup[C_co], subject="channels"):
    """Channels, in which agents take turns."""

    @operation("GET", "/channels", query=PageQuery, access=VIEWER)
    def list(self, *, limit: int | None = None, cursor: str = "") -> Page[ChannelView]:
        """List all channels, by id."""

    @operation("POST", "/channels", body=NewChannel, access=OPERATOR, status=201, problems=(409,))
    def create(
        self,
        id: str,  # noqa: A002 - as the API has it
        turn_config: Mapping[str, Any] | None = None,
    ) -> ChannelView:
        """Create a channel; `turn_config` has the field names of `turnConfig`."""

    @operation("GET", "/channels/{channel_id}", access=MEMBER_READS, problems=(404,))
    def get(self, channel_id: str) -> ChannelView:
        """Return a channel: its members, who has the turn, and who is next."""

    @operation(
        "PUT", "/channels/{channel_id}", body=ChannelUpdate, access=OPERATOR, problems=(404,)
    )
    def configure(self, channel_id: str, turn_config: Mapping[str, Any]) -> ChannelView:
        """Replace the settings; a field that is left out returns to its default."""

    @operation("DELETE", "/channels/{channel_id}", access=OPERATOR, problems=(404,))
    def remove(self, channel_id: str) -> None:
        """Remove a channel: all members leave; the messages stay on record."""

    @operation(
        "POST",
        "/channels/{channel_id}/members",
        body=NewMember,
        access=Access(
            people="operator",
            agents=True,
            restriction="an agent assigns itself, where it is a member already",
        ),
        status=201,
        problems=(404, 409),
    )
    def join(
        self,
        channel_id: str,
        agent_id: str,
        *,
        timeout_seconds: float | None = None,
        priority: int | None = None,
    ) -> ChannelView:
        """Assign an agent that is online, at the end of the queue; of one that is assigned already,
        change the settings."""

    @operation(
        "DELETE",
        "/channels/{channel_id}/members/{agent_id}",
        access=Access(people="operator", agents=True, restriction="an agent removes itself"),
        problems=(404,),
    )
    def leave(self, channel_id: str, agent_id: str) -> None:
        """Remove an agent from a channel; its turn ends, if it has one."""

    @operation(
        "POST",
        "/channels/{channel_id}/messages",
        body=NewMessage,
        access=Access(
            people="operator", agents=True, restriction="an agent speaks in its own turn"
        ),
        status=201,
        problems=(404, 409),
    )
    def post(
        self,
        channel_id: str,
        text: str,
        *,
        to: str | None = None,
        turn: int | None = None,
        key: str = "",
    ) -> PostedMessage:
        """Post a message as the token's person, or as the token's agent in its turn. `disposition`
        says whether it has reached an agent."""

    @operation(
        "GET",
        "/channels/{channel_id}/messages",
        query=MessageQuery,
        access=MEMBER_READS,
        problems=(404,),
    )
    def list_messages(
        self, channel_id: str, *, after: int = 0, limit: int | None = None, wait: float = 0
    ) -> Page[MessageView]:
        """List the messages and notices after `after`, in order; wait up to `wait` seconds for the
        first. `next_cursor` is for `after`."""

    @operation(
        "POST",
        "/channels/{channel_id}/turn",
        body=TurnControl,
        access=Access(
            people="operator",
            agents=True,
            restriction="an agent completes, pauses and resumes its own turn; the rest is for "
            "people",
        ),
        problems=(404, 409),
    )
    def control_turn(
        self,
        channel_id: str,
        action: TurnAction,
        *,
        agent_id: str = "",
        turn: int | None = None,
        to: Literal["ACTIVE", "QUEUED"] | None = None,
        seconds: float | None = None,
        reason: str = "",
    ) -> ChannelView:
        """Act on a turn: an agent completes, waits or resumes; a person resumes it, overrides its
        wait (`to` ACTIVE or QUEUED), grants a turn, or pauses or unpauses the channel."""

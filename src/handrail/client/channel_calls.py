"""The calls about channels: their members, messages and turns."""

from collections.abc import Mapping
from typing import Any, Literal

from handrail.client.call import Call, decode_nothing, drop_none, join_path, json_get, json_send
from handrail.client.endpoint import endpoint
from handrail.views.channels import ChannelView, MessageView, PostedMessage
from handrail.views.pages import Page

TurnAction = Literal["complete", "wait", "resume", "override", "grant", "pause", "unpause"]


class ChannelCalls:
    @endpoint
    def create_channel(
        self, channel_id: str, turn_config: Mapping[str, Any] | None = None
    ) -> Call[ChannelView]:
        """Create a channel; `turn_config` has the field names of `turnConfig`."""
        body = {"id": channel_id, "turnConfig": dict(turn_config or {})}
        return json_send("POST", "/channels", ChannelView, body)

    @endpoint
    def configure_channel(
        self, channel_id: str, turn_config: Mapping[str, Any]
    ) -> Call[ChannelView]:
        """Replace the settings; a field that is left out returns to its default."""
        body = {"turnConfig": dict(turn_config)}
        return json_send("PUT", join_path("channels", channel_id), ChannelView, body)

    @endpoint
    def remove_channel(self, channel_id: str) -> Call[None]:
        """Remove a channel: all members leave; the messages stay on record."""
        return Call(method="DELETE", path=join_path("channels", channel_id), decode=decode_nothing)

    @endpoint
    def list_channels(
        self, *, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[ChannelView]]:
        """List all channels, by id."""
        return json_get("/channels", Page[ChannelView], {"limit": limit, "cursor": cursor})

    @endpoint
    def get_channel(self, channel_id: str) -> Call[ChannelView]:
        """Return a channel: its members, who has the turn, and who is next."""
        return json_get(join_path("channels", channel_id), ChannelView)

    @endpoint
    def join_channel(
        self,
        channel_id: str,
        agent_id: str,
        *,
        timeout_seconds: float | None = None,
        priority: int | None = None,
    ) -> Call[ChannelView]:
        """Assign an agent to a channel, at the end of the queue."""
        body = drop_none(agent_id=agent_id, timeoutSeconds=timeout_seconds, priority=priority)
        return json_send("POST", join_path("channels", channel_id, "members"), ChannelView, body)

    @endpoint
    def leave_channel(self, channel_id: str, agent_id: str) -> Call[None]:
        """Remove an agent from a channel; its turn ends, if it has one."""
        url_path = join_path("channels", channel_id, "members", agent_id)
        return Call(method="DELETE", path=url_path, decode=decode_nothing)

    @endpoint
    def post_message(
        self,
        channel_id: str,
        text: str,
        *,
        to: str | None = None,
        turn: int | None = None,
        key: str = "",
    ) -> Call[PostedMessage]:
        """Post a message as the token's person, or as the token's agent in its turn."""
        body = drop_none(text=text, to=to, turn=turn)
        return json_send(
            "POST", join_path("channels", channel_id, "messages"), PostedMessage, body, key=key
        )

    @endpoint
    def list_messages(
        self, channel_id: str, *, after: int = 0, limit: int | None = None, wait: float = 0
    ) -> Call[Page[MessageView]]:
        """List the messages after `after`; wait up to `wait` seconds for the first."""
        query = {"after": after or None, "limit": limit, "wait": wait or None}
        return json_get(
            join_path("channels", channel_id, "messages"), Page[MessageView], query, wait=wait
        )

    @endpoint
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
    ) -> Call[ChannelView]:
        """Act on a turn: an agent completes, waits or resumes; a person resumes, overrides,
        grants, pauses or unpauses."""
        body = drop_none(
            action=action,
            agent_id=agent_id or None,
            turn=turn,
            to=to,
            seconds=seconds,
            reason=reason or None,
        )
        return json_send("POST", join_path("channels", channel_id, "turn"), ChannelView, body)

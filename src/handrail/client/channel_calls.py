"""The calls about channels: made, joined, spoken in; who has the turn."""

from collections.abc import Mapping
from typing import Any, Literal

from handrail.client.call import Call, get, given, nothing, path, send
from handrail.client.endpoint import endpoint
from handrail.engine.channel_views import ChannelView, MessageView, Posted
from handrail.engine.pages import Page

TurnAction = Literal["complete", "wait", "resume", "override", "grant", "pause", "unpause"]


class ChannelCalls:
    @endpoint
    def create_channel(
        self, channel_id: str, turn_config: Mapping[str, Any] | None = None
    ) -> Call[ChannelView]:
        """A new channel; `turn_config` by the names of `turnConfig`."""
        body = {"id": channel_id, "turnConfig": dict(turn_config or {})}
        return send("POST", "/channels", ChannelView, body)

    @endpoint
    def configure_channel(
        self, channel_id: str, turn_config: Mapping[str, Any]
    ) -> Call[ChannelView]:
        """Other settings; what is left out goes back to its default."""
        body = {"turnConfig": dict(turn_config)}
        return send("PUT", path("channels", channel_id), ChannelView, body)

    @endpoint
    def remove_channel(self, channel_id: str) -> Call[None]:
        """Everybody leaves; what was said stays on record."""
        return Call(method="DELETE", path=path("channels", channel_id), read=nothing)

    @endpoint
    def channels(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[ChannelView]]:
        """All of them, by id."""
        return get("/channels", Page[ChannelView], {"limit": limit, "cursor": cursor})

    @endpoint
    def channel(self, channel_id: str) -> Call[ChannelView]:
        """Who is in it, who has the turn, who is next."""
        return get(path("channels", channel_id), ChannelView)

    @endpoint
    def join_channel(
        self,
        channel_id: str,
        agent_id: str,
        *,
        timeout_seconds: float | None = None,
        priority: int | None = None,
    ) -> Call[ChannelView]:
        """Assign an agent, at the end of the queue."""
        body = given(agent_id=agent_id, timeoutSeconds=timeout_seconds, priority=priority)
        return send("POST", path("channels", channel_id, "members"), ChannelView, body)

    @endpoint
    def leave_channel(self, channel_id: str, agent_id: str) -> Call[None]:
        """It is a member no more; a turn that it has ends."""
        where = path("channels", channel_id, "members", agent_id)
        return Call(method="DELETE", path=where, read=nothing)

    @endpoint
    def say(
        self,
        channel_id: str,
        text: str,
        *,
        to: str | None = None,
        turn: int | None = None,
        key: str = "",
    ) -> Call[Posted]:
        """A message: of the person, or of the agent in its turn, that the token is of."""
        body = given(text=text, to=to, turn=turn)
        return send("POST", path("channels", channel_id, "messages"), Posted, body, key=key)

    @endpoint
    def messages(
        self, channel_id: str, *, after: int = 0, limit: int | None = None, wait: float = 0
    ) -> Call[Page[MessageView]]:
        """What was said after that one, waiting for the first so many seconds."""
        query = {"after": after or None, "limit": limit, "wait": wait or None}
        return get(path("channels", channel_id, "messages"), Page[MessageView], query, wait=wait)

    @endpoint
    def turn(
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
        """An agent is done, waits or goes on; a person resumes, overrides, grants, or pauses."""
        body = given(
            action=action,
            agent_id=agent_id or None,
            turn=turn,
            to=to,
            seconds=seconds,
            reason=reason or None,
        )
        return send("POST", path("channels", channel_id, "turn"), ChannelView, body)

"""Channels in the store.

A channel is a stream ("channel:ID") like a run: its events are in the journal, and its row holds
the whole state after the last event. Its members and its log are projections.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from handrail.store.database import Subject
from handrail.store.rows import ChannelLogRow, ChannelMemberRow, ChannelRow

LATE_ANSWERS_MAX = 100
"""Late answers kept as evidence, per channel."""
PresenceChangeKind = Literal["offline", "disabled", "online", "free"]


class AgentLoad(NamedTuple):
    """Turns and dispatches that an agent holds, in all; None for an unknown agent."""

    capacity: int | None
    held: int


class PresenceChange(NamedTuple):
    """A member whose state in its channel differs from the agent's own row."""

    channel_id: str
    agent_id: str
    change: PresenceChangeKind


class ChannelStore(Subject):
    def load(self, ids: Sequence[str]) -> dict[str, ChannelRow]:
        """Load channels by id; ids that do not exist are left out."""
        if not ids:
            return {}
        rows = self._database.fetch_filtered("channels", ids=ids, after=None, open=None, limit=None)
        return {row[0]: ChannelRow(*row) for row in rows}

    def list_due(self, now: str, limit: int) -> list[str]:
        """List channels with an expired clock, the earliest first."""
        rows = self._database.fetch_all("due_channels", now=now, limit=limit)
        return [channel_id for (channel_id,) in rows]

    def get_agent_loads(self, agent_ids: Sequence[str]) -> dict[str, AgentLoad]:
        rows = self._database.fetch_all("agent_loads", agent_ids=agent_ids) if agent_ids else []
        return {agent: AgentLoad(capacity, held) for agent, capacity, held in rows}

    def list_presence_changes(self, silent_since: str, limit: int) -> list[PresenceChange]:
        """List members of open channels that are gone, disabled or back; and members that are free
        again, where a channel waits for a free member."""
        rows = self._database.fetch_all("presence_changes", silent_since=silent_since, limit=limit)
        return [PresenceChange(*row) for row in rows]

    def list_active_turns(self, agent_ids: Sequence[str]) -> list[tuple[str, str, int]]:
        """List (channel, agent, turn number) of those agents that are ACTIVE in a channel."""
        rows = self._database.fetch_all("active_turns", agent_ids=agent_ids) if agent_ids else []
        return [(channel, agent, turn) for channel, agent, turn in rows]

    def list_waiting_for(self, agent_ids: Sequence[str]) -> list[str]:
        """List channels in which no member has the turn and one of these agents is busy."""
        if not agent_ids:
            return []
        rows = self._database.fetch_all("channels_waiting_for", agent_ids=agent_ids)
        return [channel_id for (channel_id,) in rows]

    def has_members(self) -> bool:
        """Return whether any channel has a member."""
        return bool(self._database.fetch_all("has_members"))

    def list_memberships(self, agent_id: str | None = None) -> list[ChannelMemberRow]:
        """List the memberships of one agent, or of all agents, by channel."""
        rows = self._database.fetch_filtered("memberships", agent_id=agent_id)
        return [ChannelMemberRow(*row) for row in rows]

    def list_members(self, channel_id: str) -> list[ChannelMemberRow]:
        rows = self._database.fetch_all("members", channel_id=channel_id)
        return [ChannelMemberRow(*row) for row in rows]

    def read_log(self, channel_id: str, after_seq: int, limit: int) -> list[ChannelLogRow]:
        """Return messages and notices in order."""
        rows = self._database.fetch_all(
            "channel_log", channel_id=channel_id, after_seq=after_seq, limit=limit
        )
        return [ChannelLogRow(*row) for row in rows]

    def list_messages(
        self, channel_id: str, after: int, upto: int, limit: int
    ) -> list[ChannelLogRow]:
        """List the messages with a number in (after, upto]; the last ones if over the limit."""
        rows = self._database.fetch_all(
            "channel_messages", channel_id=channel_id, after=after, upto=upto, limit=limit
        )
        return [ChannelLogRow(*row) for row in reversed(rows)]

    def add_late_answer(self, stream: str, at: str, actor: str, code: str, body: str) -> None:
        """Keep an answer for a turn that is over, as evidence: the first LATE_ANSWERS_MAX of a
        channel. `RunStore.list_notes` reads them."""
        self._database.execute(
            "add_late_answer",
            stream=stream,
            at=at,
            actor=actor,
            code=code,
            body=body,
            answers_max=LATE_ANSWERS_MAX,
        )

    def list_open(self, after: str, limit: int) -> list[ChannelRow]:
        """List open channels, by id."""
        return self._list(after, limit, is_open=True)

    def _list(self, after: str, limit: int, *, is_open: bool | None) -> list[ChannelRow]:
        rows = self._database.fetch_filtered(
            "channels", ids=None, after=after, open=is_open, limit=limit
        )
        return [ChannelRow(*row) for row in rows]

    def list(self, after: str, limit: int) -> list[ChannelRow]:
        """List open and closed channels, by id."""
        return self._list(after, limit, is_open=None)

"""Channels in the store.

A channel is a stream ("channel:ID") like a run: its events are in the journal, and its row holds
the whole state after the last event. Its members and its log are projections.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec.structs import asdict

from handrail.store.database import Subject
from handrail.store.record import kept_note, record
from handrail.store.rows import ChannelLogRow, ChannelMemberRow, ChannelRow, NoteRow

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
        rows = self._fetch_filtered(ChannelRow, "channels", ids=ids) if ids else []
        return {row.id: row for row in rows}

    def list_due(self, now: str, limit: int) -> list[str]:
        """List channels with an expired clock, the earliest first."""
        return self._fetch_rows(str, "due_channels", now=now, limit=limit)

    def get_agent_loads(self, agent_ids: Sequence[str]) -> dict[str, AgentLoad]:
        rows = self._database.fetch_all("agent_loads", agent_ids=agent_ids) if agent_ids else []
        return {agent: AgentLoad(capacity, held) for agent, capacity, held in rows}

    def list_presence_changes(self, silent_since: str, limit: int) -> list[PresenceChange]:
        """List members of open channels that are gone, disabled or back; and members that are free
        again, where a channel waits for a free member."""
        return self._fetch_rows(
            PresenceChange, "presence_changes", silent_since=silent_since, limit=limit
        )

    def list_active_turns(self, agent_ids: Sequence[str]) -> list[tuple[str, str, int]]:
        """List (channel, agent, turn number) of those agents that are ACTIVE in a channel."""
        rows = self._database.fetch_all("active_turns", agent_ids=agent_ids) if agent_ids else []
        return [(channel, agent, turn) for channel, agent, turn in rows]

    def list_waiting_for(self, agent_ids: Sequence[str]) -> list[str]:
        """List channels in which no member has the turn and one of these agents is busy."""
        return (
            self._fetch_rows(str, "channels_waiting_for", agent_ids=agent_ids) if agent_ids else []
        )

    def has_members(self) -> bool:
        """Return whether any channel has a member."""
        return bool(self._database.fetch_all("has_members"))

    def list_memberships(self, agent_id: str | None = None) -> list[ChannelMemberRow]:
        """List the memberships of one agent, or of all agents, by channel."""
        return self._fetch_filtered(ChannelMemberRow, "memberships", agent_id=agent_id)

    def list_members(self, channel_id: str) -> list[ChannelMemberRow]:
        return self._fetch_rows(ChannelMemberRow, "members", channel_id=channel_id)

    def read_log(self, channel_id: str, after_seq: int, limit: int) -> list[ChannelLogRow]:
        """Return messages and notices in order."""
        return self._fetch_rows(
            ChannelLogRow, "channel_log", channel_id=channel_id, after_seq=after_seq, limit=limit
        )

    def list_messages(
        self, channel_id: str, after: int, upto: int, limit: int
    ) -> list[ChannelLogRow]:
        """List the messages with a number in (after, upto]; the last ones if over the limit."""
        return self._fetch_rows(
            ChannelLogRow,
            "channel_messages",
            channel_id=channel_id,
            after=after,
            upto=upto,
            limit=limit,
        )[::-1]

    def add_late_answer(self, stream: str, at: str, actor: str, code: str, body: str) -> None:
        """Keep an answer for a turn that is over, as evidence: the first LATE_ANSWERS_MAX of a
        channel. `RunStore.list_notes` reads them."""
        note = NoteRow(execution_id=stream, at=at, actor=actor, code=code, body=body)
        with self._database.transaction() as transaction:
            transaction.lock("notes", stream)
            if transaction.execute("add_late_answer", **asdict(note), answers_max=LATE_ANSWERS_MAX):
                record(transaction, at, kept_note(note))

    def list_open(self, after: str, limit: int) -> list[ChannelRow]:
        """List open channels, by id."""
        return self._fetch_filtered(ChannelRow, "channels", after=after, open=True, limit=limit)

    def list(self, after: str, limit: int) -> list[ChannelRow]:
        """List open and closed channels, by id."""
        return self._fetch_filtered(ChannelRow, "channels", after=after, limit=limit)

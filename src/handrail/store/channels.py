"""Channels in the store: their rows and queries. A part of the engine's store protocol.

A channel is a stream ("channel:ID") like a run: its events are in the journal, and its row holds
the whole state after the last event. Its members and its log are projections.

Both databases have statements of the same names (`channels.sql`), so one class serves both. Lists
of ids are passed as a JSON array.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from handrail.store.row import Row, row_of

LATE_ANSWERS_MAX = 100
"""Late answers kept as evidence, per channel."""
PresenceChangeKind = Literal["offline", "disabled", "online", "free"]


class ChannelRow(Row):
    """A channel. A closed channel stays, and may be opened again."""

    id: str
    seq: int
    head: bytes
    next_due: str | None
    created_at: str
    updated_at: str
    closed_at: str | None
    state: str


class ChannelMemberRow(Row):
    """An agent in a channel. `busy`: work elsewhere takes up all its capacity. `sole`: the agent
    works on one thing at a time."""

    channel_id: str
    agent_id: str
    state: str
    busy: int
    sole: int
    turn: int | None
    """The number of the turn that the agent holds."""


class ChannelLogRow(Row):
    """A message, with its number among the messages, or a notice, with its code."""

    channel_id: str
    seq: int
    """Sequence number of the event that the entry comes from."""
    kind: str
    number: int | None
    message_id: str
    code: str
    author: str
    human: int
    text: str
    recipient: str | None
    at: str


class LateAnswerRow(Row):
    """Evidence: an answer for a turn that is over, unchanged."""

    at: str
    actor: str
    code: str
    body: str


class ChannelWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rows that a decision about a channel changes, besides the channel's own row."""

    members: Sequence[ChannelMemberRow] = ()
    removed_members: Sequence[tuple[str, str]] = ()
    """(channel, agent) of members that left."""
    log: Sequence[ChannelLogRow] = ()


class AgentLoad(NamedTuple):
    """Turns and dispatches that an agent holds, in all; None for an unknown agent."""

    capacity: int | None
    held: int


class PresenceChange(NamedTuple):
    """A member whose state in its channel differs from the agent's own row."""

    channel_id: str
    agent_id: str
    change: PresenceChangeKind


class ChannelStore(Protocol):
    """Queries about channels; each database has its own statements."""

    def _fetch_all(self, name: str, *values: object) -> list[tuple[Any, ...]]: ...

    def _execute(self, name: str, *values: object) -> int: ...

    def load_channels(self, ids: Sequence[str]) -> dict[str, ChannelRow]:
        """Load channels by id; ids that do not exist are left out."""
        rows = self._fetch_all("channels_by_id", _json_list(ids)) if ids else []
        return {row[0]: row_of(ChannelRow, row) for row in rows}

    def list_due_channels(self, now: str, limit: int) -> list[str]:
        """List channels with an expired clock, the earliest first."""
        return [channel_id for (channel_id,) in self._fetch_all("channels_due", now, limit)]

    def get_agent_loads(self, agent_ids: Sequence[str]) -> dict[str, AgentLoad]:
        rows = self._fetch_all("engaged", _json_list(agent_ids)) if agent_ids else []
        return {agent: AgentLoad(capacity, held) for agent, capacity, held in rows}

    def list_presence_changes(self, silent_since: str, limit: int) -> list[PresenceChange]:
        """List members of open channels that are gone, disabled or back; and members that are free
        again, where a channel waits for a free member."""
        return [PresenceChange(*row) for row in self._fetch_all("presence", silent_since, limit)]

    def list_active_turns(self, agent_ids: Sequence[str]) -> list[tuple[str, str, int]]:
        """List (channel, agent, turn number) of those agents that are ACTIVE in a channel."""
        rows = self._fetch_all("turns", _json_list(agent_ids)) if agent_ids else []
        return [(channel, agent, turn) for channel, agent, turn in rows]

    def list_channels_waiting_for(self, agent_ids: Sequence[str]) -> list[str]:
        """List channels in which no member has the turn and one of these agents is busy."""
        return [channel_id for (channel_id,) in self._fetch_all("busy_in", _json_list(agent_ids))]

    def has_channel_members(self) -> bool:
        """Return whether any channel has a member."""
        return bool(self._fetch_all("has_members"))

    def list_memberships(self, agent_id: str | None = None) -> list[ChannelMemberRow]:
        """List the memberships of one agent, or of all agents, by channel."""
        return [row_of(ChannelMemberRow, row) for row in self._fetch_all("memberships", agent_id)]

    def list_open_channels(self, after: str, limit: int) -> list[ChannelRow]:
        """List open channels, by id."""
        return [row_of(ChannelRow, row) for row in self._fetch_all("channels_page", after, limit)]

    def list_channels(self, after: str, limit: int) -> list[ChannelRow]:
        """List open and closed channels, by id."""
        return [row_of(ChannelRow, row) for row in self._fetch_all("channels_all", after, limit)]

    def list_channel_members(self, channel_id: str) -> list[ChannelMemberRow]:
        return [row_of(ChannelMemberRow, row) for row in self._fetch_all("members_of", channel_id)]

    def read_channel_log(self, channel_id: str, after_seq: int, limit: int) -> list[ChannelLogRow]:
        """Return messages and notices in order."""
        rows = self._fetch_all("channel_log_page", channel_id, after_seq, limit)
        return [row_of(ChannelLogRow, row) for row in rows]

    def list_channel_messages(
        self, channel_id: str, after: int, upto: int, limit: int
    ) -> list[ChannelLogRow]:
        """List the messages with a number in (after, upto]; the last ones if over the limit."""
        rows = self._fetch_all("channel_messages", channel_id, after, upto, limit)
        return [row_of(ChannelLogRow, row) for row in reversed(rows)]

    def add_late_answer(self, stream: str, at: str, actor: str, code: str, body: str) -> None:
        """Keep an answer for a turn that is over, as evidence: the first LATE_ANSWERS_MAX of a
        channel."""
        self._execute("add_late", stream, at, actor, code, body, LATE_ANSWERS_MAX)

    def list_late_answers(self, stream: str) -> list[LateAnswerRow]:
        """List late answers, the oldest first."""
        return [row_of(LateAnswerRow, row) for row in self._fetch_all("late", stream)]


def _json_list(ids: Sequence[str]) -> str:
    return msgspec.json.encode(list(ids)).decode()

"""Channels in the store: their rows, and what is asked about them. A part of the port.

A channel is a stream ("channel:ID") like a run: its events are in the journal, its row holds the
whole state after the last of them, and beside it stand its members and its log, as projections.

Both databases answer the same questions by statements of the same names (`channels.sql`), so there
is one class for both. Lists of ids go to them as a JSON array.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from handrail.store.row import Row, row_of

LATE_ANSWERS_MAX = 100
"""Late answers that are kept as evidence, of one channel."""
PresenceChangeKind = Literal["offline", "disabled", "online", "free"]


class ChannelRow(Row):
    """A channel; one that is closed stays, and may be opened again."""

    id: str
    seq: int
    head: bytes
    next_due: str | None
    created_at: str
    updated_at: str
    closed_at: str | None
    state: str


class ChannelMemberRow(Row):
    """An agent in a channel. `busy`: all that it can work on it holds elsewhere. `sole`: it works
    on one thing at a time."""

    channel_id: str
    agent_id: str
    state: str
    busy: int
    sole: int
    turn: int | None
    """The number of the turn that it holds."""


class ChannelLogRow(Row):
    """A message, with its number among the messages, or a notice, with its code."""

    channel_id: str
    seq: int
    """Of the event that it comes from."""
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
    """Evidence: an answer for a turn that is over, as it came."""

    at: str
    actor: str
    code: str
    body: str


class ChannelWrite(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a decision about a channel changes beside its row."""

    members: Sequence[ChannelMemberRow] = ()
    removed_members: Sequence[tuple[str, str]] = ()
    """(channel, agent) of those that are members no more."""
    log: Sequence[ChannelLogRow] = ()


class AgentLoad(NamedTuple):
    """What an agent holds, turns and dispatches together; None where nobody knows the agent."""

    capacity: int | None
    held: int


class PresenceChange(NamedTuple):
    """A member whose state in its channel is not what the agent's own row says."""

    channel_id: str
    agent_id: str
    change: PresenceChangeKind


class ChannelStore(Protocol):
    """What both databases can say about channels, each by its own statements."""

    def _fetch_all(self, name: str, *values: object) -> list[tuple[Any, ...]]: ...

    def _execute(self, name: str, *values: object) -> int: ...

    def load_channels(self, ids: Sequence[str]) -> dict[str, ChannelRow]:
        """By id; what does not exist is left out."""
        rows = self._fetch_all("channels_by_id", _json_list(ids)) if ids else []
        return {row[0]: row_of(ChannelRow, row) for row in rows}

    def list_due_channels(self, now: str, limit: int) -> list[str]:
        """Channels of which a clock has run out, the earliest first."""
        return [channel_id for (channel_id,) in self._fetch_all("channels_due", now, limit)]

    def get_agent_loads(self, agent_ids: Sequence[str]) -> dict[str, AgentLoad]:
        rows = self._fetch_all("engaged", _json_list(agent_ids)) if agent_ids else []
        return {agent: AgentLoad(capacity, held) for agent, capacity, held in rows}

    def list_presence_changes(self, silent_since: str, limit: int) -> list[PresenceChange]:
        """Members of open channels that are gone, disabled, or back; and those that are free again
        where a channel waits for somebody who is."""
        return [PresenceChange(*row) for row in self._fetch_all("presence", silent_since, limit)]

    def list_active_turns(self, agent_ids: Sequence[str]) -> list[tuple[str, str, int]]:
        """(channel, agent, number) for those of these agents that are ACTIVE somewhere."""
        rows = self._fetch_all("turns", _json_list(agent_ids)) if agent_ids else []
        return [(channel, agent, turn) for channel, agent, turn in rows]

    def list_channels_waiting_for(self, agent_ids: Sequence[str]) -> list[str]:
        """Channels in which nobody has the turn, and one of these agents counts as busy."""
        return [channel_id for (channel_id,) in self._fetch_all("busy_in", _json_list(agent_ids))]

    def has_channel_members(self) -> bool:
        """Whether any channel has one."""
        return bool(self._fetch_all("has_members"))

    def list_memberships(self, agent_id: str | None = None) -> list[ChannelMemberRow]:
        """Of one agent, or of everybody, by channel."""
        return [row_of(ChannelMemberRow, row) for row in self._fetch_all("memberships", agent_id)]

    def list_open_channels(self, after: str, limit: int) -> list[ChannelRow]:
        """Open ones, by id."""
        return [row_of(ChannelRow, row) for row in self._fetch_all("channels_page", after, limit)]

    def list_channels(self, after: str, limit: int) -> list[ChannelRow]:
        """Closed ones too, by id."""
        return [row_of(ChannelRow, row) for row in self._fetch_all("channels_all", after, limit)]

    def list_channel_members(self, channel_id: str) -> list[ChannelMemberRow]:
        return [row_of(ChannelMemberRow, row) for row in self._fetch_all("members_of", channel_id)]

    def read_channel_log(self, channel_id: str, after_seq: int, limit: int) -> list[ChannelLogRow]:
        """Messages and notices in their order."""
        rows = self._fetch_all("channel_log_page", channel_id, after_seq, limit)
        return [row_of(ChannelLogRow, row) for row in rows]

    def list_channel_messages(
        self, channel_id: str, after: int, upto: int, limit: int
    ) -> list[ChannelLogRow]:
        """The messages with a number in (after, upto]; if there are too many, the last ones."""
        rows = self._fetch_all("channel_messages", channel_id, after, upto, limit)
        return [row_of(ChannelLogRow, row) for row in reversed(rows)]

    def add_late_answer(self, stream: str, at: str, actor: str, code: str, body: str) -> None:
        """Evidence: an answer for a turn that is over. The first LATE_MAX of a channel are kept."""
        self._execute("add_late", stream, at, actor, code, body, LATE_ANSWERS_MAX)

    def list_late_answers(self, stream: str) -> list[LateAnswerRow]:
        """What was kept so, the oldest first."""
        return [row_of(LateAnswerRow, row) for row in self._fetch_all("late", stream)]


def _json_list(ids: Sequence[str]) -> str:
    return msgspec.json.encode(list(ids)).decode()

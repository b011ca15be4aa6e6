"""Channels: conversations in which agents take turns, and people join in.

The kernel's machine (`kernel/channel/`) decides everything, and the committer commits it like a
run's step (`commit/channel_change.py`). This module submits commands, notifies waiters, and shows
channels, turns and messages. Rules:

1. The caller vouches for the author: `by` is a person's name, or an agent's id.
2. A late answer (an old turn, a turn that ran out) is refused, changes nothing, and is kept.
3. When an agent is free again, the channels that wait for it are notified at once; maintenance
   finds what is missed (an engine died in between).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import asdict

from handrail.engine.commit.channel_change import (
    CHANNEL_STREAM_PREFIX,
    ChannelRequest,
    ChannelStreamChange,
    CloseChannel,
    Closed,
    Noticed,
    OpenChannel,
    Opened,
    decode_channel,
    turn_id,
    unknown_channel_refusal,
)
from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.commit.gateway import CommandGateway
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import RefusedError, refuse
from handrail.engine.ids import uuid7
from handrail.engine.notifier import TURN_KEY_PREFIX, ChangeNotifier
from handrail.engine.pagination import check_cursor, check_limit, to_page
from handrail.engine.settings import EngineSettings
from handrail.kernel.agent_lifecycle import PROPERTIES, AgentState, Receiving
from handrail.kernel.channel import events as ev
from handrail.kernel.channel.evolve import Disposition, disposition
from handrail.kernel.channel.state import (
    RECENT_MESSAGES_MAX,
    Channel,
    ChannelTurn,
    TurnConfig,
    TurnOrder,
    active_agent_id,
    find_member,
    turn_queue,
)
from handrail.kernel.channel.turns import pick_next
from handrail.kernel.decision import prepare_types
from handrail.store.rows import ChannelLogRow, ChannelRow, StoreError, encode, iso, parse_iso
from handrail.views.channels import (
    ActiveTurnView,
    ChannelView,
    MemberView,
    MessageView,
    PostedMessage,
    TurnView,
)
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page

if TYPE_CHECKING:
    from handrail.engine.dispatch.registry import AgentService

prepare_types(TurnConfig)

CHANNEL_ID_CHARS_MAX = 200
MESSAGE_CHARS_MAX = 100_000
TURN_CHARS_MAX = 1_000_000
"""Characters that an agent says in one turn, in any number of messages."""
SPEAKERS_MAX = 10_000
"""Pairs of channel and agent whose characters are counted in memory."""
TURN_MESSAGES_MAX = 1_000
"""Messages that a turn brings with it; of more, the last."""
LATE_CODES = frozenset({"stale_turn", "turn_expired"})


class ChannelService:
    """The channels of an engine."""

    def __init__(
        self,
        access: StoreAccess,
        gateway: CommandGateway,
        committer: GroupCommitter,
        notifier: ChangeNotifier,
        agents: "AgentService",
        clock: Clock,
        settings: EngineSettings,
        *,
        visiting: bool,
    ) -> None:
        self._access, self._store, self._gateway = access, access.store, gateway
        self._committer, self._changes, self._agents = committer, notifier.changes, agents
        self._clock, self._settings, self._visiting = clock, settings, visiting
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._any_members: bool | None = None
        """Whether any channel has a member, as of the last look; None: look again."""
        self._turn_chars: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        """Characters said here: channel and agent -> the turn, and the characters in it."""

    # The channel

    def turn_config(self, overrides: Mapping[str, object] | None = None) -> TurnConfig:
        """The settings of a channel, by the names of `turnConfig`: the overrides, else the
        installation's."""
        defaults = {
            "defaultTimeoutSeconds": self._settings.turn_timeout,
            "waitTimeoutSeconds": self._settings.wait_timeout,
        }
        return msgspec.convert({**defaults, **(overrides or {})}, TurnConfig)

    async def open(
        self, channel_id: str, config: TurnConfig | None = None, *, by: str
    ) -> ChannelView:
        """Open a new channel, or reopen a closed one. Refused: bad_channel, bad_config,
        channel_exists."""
        if not 0 < len(channel_id) <= CHANNEL_ID_CHARS_MAX or not channel_id.isprintable():
            message = (
                f"{channel_id[:40]!r} is not a channel id: use 1 to {CHANNEL_ID_CHARS_MAX} "
                "plain characters"
            )
            refuse("bad_channel", message, "take another id")
        if "/" in channel_id or channel_id in (".", ".."):
            message = f"'{channel_id}' cannot be part of a URL"
            refuse("bad_channel", message, "take an id without a slash")
        await self._execute(channel_id, OpenChannel(config=config or self.turn_config()), by)
        return await self.get(channel_id)

    async def configure(self, channel_id: str, config: TurnConfig, *, by: str) -> ChannelView:
        """Change the settings, from now on. Refused: unknown_channel, bad_config."""
        return await self.command(channel_id, ev.Configure(config=config), by=by)

    async def close(self, channel_id: str, *, by: str) -> None:
        """Close the channel: all members leave. Its messages stay on record. Refused:
        unknown_channel."""
        await self._execute(channel_id, CloseChannel(), by)

    async def get(self, channel_id: str) -> ChannelView:
        """Return a channel. Refused: unknown_channel."""
        return channel_view(*await self._load(channel_id))

    async def _load(self, channel_id: str) -> tuple[ChannelRow, Channel]:
        row = (await self._access.call(self._store.channels.load, [channel_id])).get(channel_id)
        if row is None or row.closed_at is not None:
            raise RefusedError(unknown_channel_refusal(channel_id))
        return row, decode_channel(row.state)

    # Members

    async def join(
        self,
        channel_id: str,
        agent_id: str,
        *,
        by: str,
        timeout_seconds: float | None = None,
        priority: int | None = None,
    ) -> ChannelView:
        """Assign an agent, at the end of the queue; if it is assigned already, change its settings.
        Refused: unknown_channel, unknown_agent, agent_offline, agent_disabled, channel_full."""
        await self._load(channel_id)
        view = await self._agents.get(agent_id)
        if view.in_process:
            refuse(
                "agent_in_process",
                f"agent '{agent_id}' is a function inside an engine, which takes no turns",
                "name an agent that claims its work",
            )
        return await self.command(
            channel_id,
            ev.AddMember(
                agent_id=agent_id,
                online=view.state is not AgentState.OFFLINE,
                timeout_seconds=timeout_seconds,
                priority=priority,
            ),
            by=by,
        )

    async def leave(self, channel_id: str, agent_id: str, *, by: str) -> ChannelView:
        """Remove a member. Refused: unknown_channel, unknown_agent (not a member)."""
        return await self.command(channel_id, ev.RemoveMember(agent_id=agent_id), by=by)

    async def has_members(self) -> bool:
        """Whether any channel has members: without them channels cost nothing."""
        if self._any_members is None:
            self._any_members = await self._access.call(self._store.channels.has_members)
        return self._any_members is True  # it may have changed meanwhile

    # Turns

    async def command(self, channel_id: str, command: ev.ChannelCommand, *, by: str) -> ChannelView:
        """Execute any command of the kernel; return the channel after it."""
        await self._execute(channel_id, command, by)
        return await self.get(channel_id)

    async def turn_of(self, channel_id: str, agent_id: str) -> TurnView | None:
        """Return the agent's turn in the channel, if it is ACTIVE. Refused: unknown_channel."""
        row, channel = await self._load(channel_id)
        turn = channel.turn
        if turn is None or turn.agent_id != agent_id or turn.wait_until is not None:
            return None
        messages = await self._access.call(
            self._store.channels.list_messages,
            channel_id,
            turn.after,
            next(member.seen for member in channel.members if member.agent_id == agent_id),
            TURN_MESSAGES_MAX,
        )
        return turn_view(row, channel, turn, messages)

    # Messages

    async def post(
        self, channel_id: str, text: str, *, by: str, to: str | None = None, key: str = ""
    ) -> PostedMessage:
        """Post a person's message. The same `key` means the same message. Refused: unknown_channel,
        unknown_agent (`to` is not a member), empty_message, long_message."""
        return await self._post_message(
            channel_id,
            ev.PostMessage(
                message_id=f"{by}:{key}" if key else uuid7().hex,
                author=by,
                text=_check_length(text, channel_id),
                to=to,
            ),
            by,
        )

    async def say(
        self,
        channel_id: str,
        agent_id: str,
        text: str,
        *,
        turn: int | None = None,
        to: str | None = None,
        key: str = "",
    ) -> PostedMessage:
        """Post a message of the active agent. Refused: not_active, stale_turn, turn_expired,
        long_message."""
        await self._check_turn_chars(channel_id, agent_id, text)
        return await self._post_message(
            channel_id,
            ev.Respond(
                message_id=f"{agent_id}:{key}" if key else uuid7().hex,
                agent_id=agent_id,
                text=_check_length(text, channel_id),
                turn=turn,
                to=to,
            ),
            agent_id,
        )

    async def _post_message(
        self, channel_id: str, command: ev.PostMessage | ev.Respond, by: str
    ) -> PostedMessage:
        change = await self._execute(channel_id, command, by)
        count = change.channel.message_count
        rows = await self._access.call(
            self._store.channels.list_messages,
            channel_id,
            count - RECENT_MESSAGES_MAX,
            count,
            RECENT_MESSAGES_MAX,
        )
        row = next(row for row in reversed(rows) if row.message_id == command.message_id)
        if isinstance(command, ev.Respond):
            self._count_turn_chars(change.channel, command)
        return PostedMessage(**asdict(message_view(row)), disposition=_disposition_of(change, row))

    async def _check_turn_chars(self, channel_id: str, agent_id: str, text: str) -> None:
        number, size = self._turn_chars.get((channel_id, agent_id), (0, 0))
        if size + len(text) <= TURN_CHARS_MAX:
            return
        turn = (await self._load(channel_id))[1].turn
        if turn is not None and (turn.agent_id, turn.number) == (agent_id, number):
            refuse(
                "long_message",
                f"'{agent_id}' has said {size:,} characters in this turn of '{channel_id}'",
                f"complete the turn: at most {TURN_CHARS_MAX:,} characters are allowed",
            )

    def _count_turn_chars(self, channel: Channel, response: ev.Respond) -> None:
        key, turn = (channel.id, response.agent_id), channel.turn
        number, size = self._turn_chars.pop(key, (0, 0))
        if turn is not None and turn.agent_id == response.agent_id:
            before = size if turn.number == number else 0
            self._turn_chars[key] = turn.number, before + len(response.text)
        if len(self._turn_chars) > SPEAKERS_MAX:
            self._turn_chars.popitem(last=False)

    async def log(
        self,
        channel_id: str,
        after: int = 0,
        limit: int = PAGE_ITEMS_DEFAULT,
        *,
        wait: float = 0,
        reader: str | None = None,
    ) -> tuple[MessageView, ...]:
        """Return messages and notices after that one, waiting up to `wait` seconds for the first.
        An agent (`reader`) gets what has reached it: refused, not_receiving, if nothing does."""
        self._access.check_open()
        limit, stream = check_limit(limit), CHANNEL_STREAM_PREFIX + channel_id
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        while True:  # until there is a message, or time is up
            with self._changes.subscribe(stream) as changed:
                rows = await self._read_log(channel_id, after, limit, reader)
                seconds_left = deadline - loop.time()
                if rows or seconds_left <= 0:
                    return tuple(message_view(row) for row in rows)
                await asyncio.wait((changed,), timeout=seconds_left)
                if changed.done():
                    changed.result()  # raises if the engine has failed

    async def _read_log(
        self, channel_id: str, after: int, limit: int, reader: str | None
    ) -> list[ChannelLogRow]:
        _, channel = await self._load(channel_id)
        rows = await self._access.call(self._store.channels.read_log, channel_id, after, limit)
        if reader is None:
            return rows
        _check_may_read(channel, reader)
        return list(takewhile(lambda row: can_see(channel, reader, row), rows))

    # Execution and notification

    async def _execute(
        self, channel_id: str, command: ev.ChannelCommand | OpenChannel | CloseChannel, by: str
    ) -> ChannelStreamChange:
        """Execute a command; it is committed on return."""
        stream = CHANNEL_STREAM_PREFIX + channel_id
        try:
            result = await self._gateway.execute(stream, ChannelRequest(command=command, by=by))
        except RefusedError as refused:
            code = refused.refusal.code
            if code in LATE_CODES:
                at, body = iso(self._clock()), encode(command).decode()
                await self._access.call(
                    self._store.channels.add_late_answer, stream, at, by, code, body
                )
            raise
        assert result.channel is not None, "it was about a channel"
        return result.channel

    def on_channel_changed(self, change: ChannelStreamChange) -> None:
        """Handle a changed channel, after the commit."""
        self._any_members = None
        events = [stamped.event for stamped in change.events]
        for event in events:
            if isinstance(event, ev.TurnGranted | ev.TurnResumed):
                self._changes.notify(TURN_KEY_PREFIX + event.agent_id, None)
        freed_agents = {event.agent_id for event in events if isinstance(event, ev.TurnEnded)}
        if freed_agents and not self._visiting:
            task = asyncio.get_running_loop().create_task(self._wake_waiting_channels(freed_agents))
            self._background_tasks.add(task)
            task.add_done_callback(self._background_tasks.discard)

    async def _wake_waiting_channels(self, agents: Iterable[str]) -> None:
        """Wake channels that wait for one of these agents; maintenance makes up for failures."""
        try:
            for channel_id in await self._access.call(
                self._store.channels.list_waiting_for, sorted(agents)
            ):
                await self._committer.execute(
                    CHANNEL_STREAM_PREFIX + channel_id, ChannelRequest(command=ev.ChannelTick())
                )
        except StoreError:
            return

    async def on_foreign_commits(self) -> None:
        """Notify agents that got a turn by another engine's commit."""
        self._any_members = None
        waiting_agents = [
            key.removeprefix(TURN_KEY_PREFIX)
            for key in self._changes.keys()  # noqa: SIM118 - a method of ours
            if key.startswith(TURN_KEY_PREFIX)
        ]
        if waiting_agents:
            turns = await self._access.call(self._store.channels.list_active_turns, waiting_agents)
            for _, agent_id, _ in turns:
                self._changes.notify(TURN_KEY_PREFIX + agent_id, None)

    async def wait_background(self) -> None:
        """Wait until all channels are woken that wait for a free agent."""
        await asyncio.gather(*self._background_tasks, return_exceptions=True)

    async def list(self, cursor: str = "", limit: int = PAGE_ITEMS_DEFAULT) -> Page[ChannelView]:
        """List the open channels, by id."""
        after, limit = check_cursor(cursor), check_limit(limit)
        rows = await self._access.query(lambda store: store.channels.list_open(after, limit + 1))
        return to_page(rows, limit, lambda row: channel_view(row, decode_channel(row.state)))


_SHELL_EVENTS = (Opened, Closed, Noticed)


def _check_length(text: str, channel_id: str) -> str:
    if len(text) > MESSAGE_CHARS_MAX:
        refuse(
            "long_message",
            f"a message to channel '{channel_id}' has {len(text)} characters",
            f"send at most {MESSAGE_CHARS_MAX} characters",
        )
    return text


def _disposition_of(change: ChannelStreamChange, row: ChannelLogRow) -> Disposition:
    """What became of a message; it may have been sent before."""
    channel = change.channel
    if not row.human:
        return Disposition.QUEUED if len(turn_queue(channel)) > 1 else Disposition.LOGGED
    events = [
        stamped.event for stamped in change.events if not isinstance(stamped.event, _SHELL_EVENTS)
    ]
    for event in events:
        if isinstance(event, ev.MessagePosted) and event.number == row.number:
            return disposition(event, events)
    assert row.number is not None, "a message"
    return Disposition.DELIVERED if row.number <= channel.routed else Disposition.QUEUED


def _check_may_read(channel: Channel, reader: str) -> None:
    member = find_member(channel, reader)
    if member is None or PROPERTIES[member.state].receives is Receiving.NO:
        refuse(
            "not_receiving",
            f"agent '{reader}' receives nothing from channel '{channel.id}'",
            "assign the agent to the channel, and start it",
        )


def channel_view(row: ChannelRow, channel: Channel) -> ChannelView:
    return ChannelView(
        id=channel.id,
        turn_config=channel.config,
        active=active_agent_id(channel),
        turn=_active_turn_view(channel.turn),
        queue=tuple(member.agent_id for member in turn_queue(channel)),
        next=_next_agent(channel),
        states={member.agent_id: member.state for member in channel.members},
        members=tuple(
            MemberView(
                agent_id=member.agent_id,
                state=member.state,
                timeout_seconds=member.timeout_seconds,
                priority=member.priority,
                enabled=member.enabled,
                busy=member.busy,
            )
            for member in channel.members
        ),
        paused=channel.paused,
        resting=channel.resting,
        messages=channel.message_count,
        turns=channel.turns,
        position=row.seq,
        created_at=parse_iso(row.created_at),
        updated_at=parse_iso(row.updated_at),
    )


def _next_agent(channel: Channel) -> str | None:
    is_alone = channel.turn is not None and len(turn_queue(channel)) == 1
    choice = None if is_alone or channel.config.order is TurnOrder.MANUAL else pick_next(channel)
    return None if choice is None else choice.member.agent_id


def _active_turn_view(turn: ChannelTurn | None) -> ActiveTurnView | None:
    if turn is None:
        return None
    return ActiveTurnView(
        agent_id=turn.agent_id,
        number=turn.number,
        granted_at=turn.granted_at,
        timeout_at=turn.timeout_at,
        wait_until=turn.wait_until,
        seconds_left=turn.seconds_left,
        interrupted=turn.interrupted,
    )


def message_view(row: ChannelLogRow) -> MessageView:
    return MessageView(
        id=row.seq,
        kind="message" if row.kind == "message" else "notice",
        author=row.author,
        human=bool(row.human),
        text=row.text,
        to=row.recipient,
        code=row.code,
        at=parse_iso(row.at),
    )


def turn_view(
    row: ChannelRow, channel: Channel, turn: ChannelTurn, messages: list[ChannelLogRow]
) -> TurnView:
    """Build the view of a turn. `messages` are all that its agent has not seen; its own are left
    out."""
    return TurnView(
        id=turn_id(channel.id, turn.number),
        channel_id=channel.id,
        agent_id=turn.agent_id,
        turn=turn.number,
        granted_at=turn.granted_at,
        timeout_at=turn.timeout_at,
        messages=tuple(
            message_view(message)
            for message in messages
            if not is_own_message(message, turn.agent_id)
        ),
        position=row.seq,
    )


def is_own_message(row: ChannelLogRow, agent_id: str) -> bool:
    return row.author == agent_id and not row.human


def can_see(channel: Channel, agent_id: str, row: ChannelLogRow) -> bool:
    """Whether a message or notice has reached a member. An observer sees everything; the active
    agent gets messages at once, or not before its next turn."""
    member = find_member(channel, agent_id)
    if member is None or PROPERTIES[member.state].receives is Receiving.NO:
        return False
    if row.number is None or PROPERTIES[member.state].receives is Receiving.OBSERVES:
        return True
    return row.number <= member.seen or is_own_message(row, agent_id)

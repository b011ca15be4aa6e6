"""Channels: conversations in which agents take turns, and people join in.

Everything is decided by the kernel's machine (`kernel/channel.py`) and committed like a run's step
(`channel_work.py`). Here is how it is asked, and what those who wait are told. Rules:

1. Whoever asks is vouched for by the caller: `by` is a person's name, or an agent's id.
2. A late answer (an old turn, a turn that ran out) is refused, changes nothing, and is kept.
3. An agent that registers again begins anew: it has lost its turns, is IDLE in its channels, and is
   not queued again until somebody assigns it (T4).
4. When an agent is free again, the channels that wait for it are told at once; what is missed (an
   engine died in between) the pulse finds.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import msgspec
from uuid_utils import uuid7

from handrail.engine.attendance import AgentView, WithAttendance
from handrail.engine.channel_views import (
    ChannelView,
    MessageView,
    Posted,
    TurnView,
    sees,
    shown_channel,
    shown_message,
    shown_turn,
)
from handrail.engine.channel_work import (
    CHANNEL,
    ENGINE,
    ChannelWork,
    Close,
    Closed,
    Noticed,
    Open,
    Opened,
    Order,
    decode_channel,
    unknown_channel,
)
from handrail.engine.core import ANYTHING
from handrail.engine.pages import LIMIT, Page, checked_cursor, checked_limit, refuse
from handrail.engine.project import encode
from handrail.engine.refused import Refused
from handrail.kernel import channel_events as ev
from handrail.kernel.channel import RECENT_MESSAGES_MAX, Channel, TurnConfig, queue
from handrail.kernel.channel_evolve import Disposition, disposition
from handrail.kernel.decision import Refusal, learn
from handrail.kernel.lifecycle import PROPERTIES, AgentState, Receiving
from handrail.store.channels import ChannelRow, LogRow, MemberRow
from handrail.store.office import Office
from handrail.store.port import StoreError, iso

learn(TurnConfig)

ID_MAX = 200
TEXT_MAX = 100_000
"""Characters of a message."""
TURN_TEXT_MAX = 1_000_000
"""Characters that an agent says in one turn: it may send as many messages as it likes."""
SPEAKERS_MAX = 10_000
"""Agents in channels of whom it is known here how much they have said."""
SAID_MAX = 1_000
"""Messages that a turn brings with it; of more, the last."""
LATE = frozenset({"stale_turn", "turn_expired"})
TURN = "turn:"
"""Before an agent's id: whoever listens for this hears that it has a turn."""


class WithChannels(WithAttendance):
    """An engine with channels."""

    def __init__(self, store: Office, **made: Any) -> None:  # noqa: ANN401 - as Core
        super().__init__(store, **made)
        self.keeper.heard_channel = self._heard_channel
        self._telling: set[asyncio.Task[None]] = set()
        self._peopled: bool | None = None
        """Whether any channel has a member, as of the last look; None: look again."""
        self._said: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()
        """What agents have said here: channel and agent -> the turn, and characters in it."""

    # The channel

    def turn_config(self, given: Mapping[str, object] | None = None) -> TurnConfig:
        """A channel's settings, by the names of `turnConfig`: those that are given, else the
        installation's."""
        ours = {
            "defaultTimeoutSeconds": self.settings.turn_timeout,
            "waitTimeoutSeconds": self.settings.wait_timeout,
        }
        return msgspec.convert({**ours, **(given or {})}, TurnConfig)

    async def open_channel(
        self, channel_id: str, config: TurnConfig | None = None, *, by: str
    ) -> ChannelView:
        """A new channel, or one that was closed. Refused: bad_channel, bad_config,
        channel_exists."""
        if not 0 < len(channel_id) <= ID_MAX or not channel_id.isprintable():
            told = f"{channel_id[:40]!r} is no id for a channel: 1 to {ID_MAX} plain characters"
            refuse("bad_channel", told, "take another id")
        if "/" in channel_id or channel_id in (".", ".."):
            told = f"'{channel_id}' cannot be part of an address"
            refuse("bad_channel", told, "take an id without a slash")
        await self._tell_channel(channel_id, Open(config=config or self.turn_config()), by)
        return await self.channel(channel_id)

    async def configure_channel(
        self, channel_id: str, config: TurnConfig, *, by: str
    ) -> ChannelView:
        """Other settings, from now on. Refused: unknown_channel, bad_config."""
        return await self.order(channel_id, ev.Configure(config=config), by=by)

    async def close_channel(self, channel_id: str, *, by: str) -> None:
        """Everybody leaves. What was said stays on record. Refused: unknown_channel."""
        await self._tell_channel(channel_id, Close(), by)

    async def channel(self, channel_id: str) -> ChannelView:
        """Refused: unknown_channel."""
        return shown_channel(*await self._channel(channel_id))

    async def channels(self, cursor: str = "", limit: int = LIMIT) -> Page[ChannelView]:
        """All that are open, by id."""
        after, limit = checked_cursor(cursor), checked_limit(limit)
        rows = await self._slowly(lambda store: store.channels_page(after, limit + 1))
        items = tuple(shown_channel(row, decode_channel(row.state)) for row in rows[:limit])
        return Page(items=items, next_cursor=rows[limit - 1].id if len(rows) > limit else None)

    async def _channel(self, channel_id: str) -> tuple[ChannelRow, Channel]:
        rows: dict[str, ChannelRow] = await self._io(self.store.load_channels, [channel_id])
        row = rows.get(channel_id)
        if row is None or row.closed_at is not None:
            raise Refused(unknown_channel(channel_id))
        return row, decode_channel(row.state)

    # Members

    async def join_channel(
        self,
        channel_id: str,
        agent_id: str,
        *,
        by: str,
        timeout_seconds: float | None = None,
        priority: int | None = None,
    ) -> ChannelView:
        """Assign an agent, at the end of the queue; of one that is assigned, change the settings.
        Refused: unknown_channel, unknown_agent, agent_offline, agent_disabled, channel_full."""
        await self._channel(channel_id)
        view = await self.agent_view(agent_id)
        if view.in_process:
            told = f"'{agent_id}' is a function of an engine, which takes no turns"
            refuse("agent_in_process", told, "name an agent that claims its work")
        online = view.state is not AgentState.OFFLINE
        command = ev.AddMember(
            agent_id=agent_id, online=online, timeout_seconds=timeout_seconds, priority=priority
        )
        return await self.order(channel_id, command, by=by)

    async def leave_channel(self, channel_id: str, agent_id: str, *, by: str) -> ChannelView:
        """Refused: unknown_channel, unknown_agent (it is no member)."""
        return await self.order(channel_id, ev.RemoveMember(agent_id=agent_id), by=by)

    # Turns

    async def order(self, channel_id: str, command: ev.ChannelCommand, *, by: str) -> ChannelView:
        """Any command of the kernel; the channel after it."""
        await self._tell_channel(channel_id, command, by)
        return await self.channel(channel_id)

    async def turns_of(self, agent_id: str) -> list[TurnView]:
        """The turns that it has now, each with what it has not seen."""
        found: list[TurnView] = []
        for channel_id, _, _ in await self._io(self.store.turns, [agent_id]):
            turn = await self.turn_of(channel_id, agent_id)
            found += [turn] if turn is not None else []
        return found

    async def turn_of(self, channel_id: str, agent_id: str) -> TurnView | None:
        """Its turn there, if it is ACTIVE. Refused: unknown_channel."""
        row, channel = await self._channel(channel_id)
        turn = channel.turn
        if turn is None or turn.agent_id != agent_id or turn.wait_until is not None:
            return None
        seen = next(m.seen for m in channel.members if m.agent_id == agent_id)
        said = await self._io(self.store.channel_messages, channel_id, turn.after, seen, SAID_MAX)
        return shown_turn(row, channel, turn, said)

    # Messages

    async def post(
        self, channel_id: str, text: str, *, by: str, to: str | None = None, key: str = ""
    ) -> Posted:
        """A person says something. Under the same `key` the same message is meant. Refused:
        unknown_channel, unknown_agent (`to` is no member), empty_message, long_message."""
        message_id = f"{by}:{key}" if key else uuid7().hex
        command = ev.PostMessage(
            message_id=message_id, author=by, text=_short(text, channel_id), to=to
        )
        return await self._posted(channel_id, command, by)

    async def say(
        self,
        channel_id: str,
        agent_id: str,
        text: str,
        *,
        turn: int | None = None,
        to: str | None = None,
        key: str = "",
    ) -> Posted:
        """The active agent says something. Refused: not_active, stale_turn, turn_expired,
        long_message."""
        await self._check_said(channel_id, agent_id, text)
        message_id = f"{agent_id}:{key}" if key else uuid7().hex
        command = ev.Respond(
            message_id=message_id,
            agent_id=agent_id,
            text=_short(text, channel_id),
            turn=turn,
            to=to,
        )
        return await self._posted(channel_id, command, agent_id)

    async def _posted(
        self, channel_id: str, command: ev.PostMessage | ev.Respond, by: str
    ) -> Posted:
        work = await self._tell_channel(channel_id, command, by)
        channel, count = work.channel, work.channel.message_count
        rows: list[LogRow] = await self._io(
            self.store.channel_messages,
            channel_id,
            count - RECENT_MESSAGES_MAX,
            count,
            RECENT_MESSAGES_MAX,
        )
        row = next(one for one in reversed(rows) if one.message_id == command.message_id)
        if isinstance(command, ev.Respond):
            self._add_said(channel, command)
        told = [one.event for one in work.events if not isinstance(one.event, _SHELL)]
        new = [e for e in told if isinstance(e, ev.MessagePosted) and e.number == row.number]
        others = len(queue(channel)) > 1
        became = Disposition.QUEUED if others else Disposition.LOGGED
        if row.human:
            became = disposition(new[0], told) if new else _since(channel, row)
        fields = {name: getattr(it, name) for it in (shown_message(row),) for name in _FIELDS}
        return Posted(**fields, disposition=became)

    async def _check_said(self, channel_id: str, agent_id: str, text: str) -> None:
        number, size = self._said.get((channel_id, agent_id), (0, 0))
        if size + len(text) <= TURN_TEXT_MAX:
            return
        turn = (await self._channel(channel_id))[1].turn
        if turn is not None and (turn.agent_id, turn.number) == (agent_id, number):
            told = f"'{agent_id}' has said {size:,} characters in this turn of '{channel_id}'"
            refuse("long_message", told, f"complete it: {TURN_TEXT_MAX:,} are the most")

    def _add_said(self, channel: Channel, said: ev.Respond) -> None:
        who, turn = (channel.id, said.agent_id), channel.turn
        number, size = self._said.pop(who, (0, 0))
        if turn is not None and turn.agent_id == said.agent_id:
            before = size if turn.number == number else 0
            self._said[who] = turn.number, before + len(said.text)
        if len(self._said) > SPEAKERS_MAX:
            self._said.popitem(last=False)

    async def channel_log(
        self,
        channel_id: str,
        after: int = 0,
        limit: int = LIMIT,
        *,
        wait: float = 0,
        reader: str | None = None,
    ) -> tuple[MessageView, ...]:
        """Messages and notices after that one, waiting for the first so many seconds. To an agent
        (`reader`) what has reached it: refused, not_receiving, if nothing does."""
        self._check()
        limit, stream = checked_limit(limit), CHANNEL + channel_id
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while True:  # until something came, or time is up
            changed = self._changes.listen(stream)
            try:
                rows = await self._read_log(channel_id, after, limit, reader)
                left = until - loop.time()
                if rows or left <= 0:
                    return tuple(shown_message(row) for row in rows)
                await asyncio.wait((changed,), timeout=left)
                if changed.done():
                    changed.result()  # raises if the engine has failed
            finally:
                self._changes.forget(stream, changed)

    async def _read_log(
        self, channel_id: str, after: int, limit: int, reader: str | None
    ) -> list[LogRow]:
        _, channel = await self._channel(channel_id)
        rows: list[LogRow] = await self._io(self.store.channel_log, channel_id, after, limit)
        if reader is None:
            return rows
        _may_read(channel, reader)
        return list(takewhile(lambda row: sees(channel, reader, row), rows))

    # What is told

    async def _tell_channel(
        self, channel_id: str, command: ev.ChannelCommand | Open | Close, by: str
    ) -> ChannelWork:
        """Committed when it returns."""
        self._check()
        if self.visiting:  # as for a run
            await self.pulse.after_outage(alone=False)
        order = Order(command=command, by=by)
        answer = await self.keeper.ask(CHANNEL + channel_id, order)
        if answer.refusal is not None:
            await self._keep_late(channel_id, order, answer.refusal)
            raise Refused(answer.refusal)
        assert answer.channel is not None, "it was about a channel"
        return answer.channel

    async def _keep_late(self, channel_id: str, order: Order, refusal: Refusal) -> None:
        if refusal.code in LATE:
            body = encode(order.command).decode()
            values = CHANNEL + channel_id, iso(self.clock()), order.by, refusal.code, body
            await self._io(self.store.add_late, *values)

    def _heard_channel(self, work: ChannelWork) -> None:
        """A channel was changed, and it is on disk."""
        self._peopled = None
        self._changes.ring(work.stream, None)
        self._changes.ring(ANYTHING, None)
        told = [one.event for one in work.events]
        for event in told:
            if isinstance(event, ev.TurnGranted | ev.TurnResumed):
                self._changes.ring(TURN + event.agent_id, None)
        freed = {event.agent_id for event in told if isinstance(event, ev.TurnEnded)}
        if freed and not self.visiting:
            self._soon(self._free(freed))
        if self.listeners:
            self.listeners.tell(work)

    def _soon(self, work: Any) -> None:  # noqa: ANN401 - a coroutine
        task = asyncio.get_running_loop().create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _free(self, agents: Iterable[str]) -> None:
        """Channels that wait for one of them look again; what goes wrong the pulse makes good."""
        try:
            waiting: Sequence[str] = await self._io(self.store.busy_in, sorted(agents))
            for channel_id in waiting:
                await self.keeper.ask(CHANNEL + channel_id, Order(command=ev.Tick()))
        except StoreError:
            return

    async def _has_members(self) -> bool:
        """Where nobody uses channels, nobody pays for them."""
        if self._peopled is None:
            self._peopled = await self._io(self.store.has_members)
        return self._peopled is True

    async def _others_wrote(self) -> None:
        """Agents that wait for a turn, and have one by what another engine wrote."""
        self._peopled = None
        waiting = [n.removeprefix(TURN) for n in self._changes.names() if n.startswith(TURN)]
        for _, agent_id, _ in await self._io(self.store.turns, waiting) if waiting else ():
            self._changes.ring(TURN + agent_id, None)
        await super()._others_wrote()

    async def close(self) -> None:
        await asyncio.gather(*self._telling, return_exceptions=True)
        await super().close()

    # Agents come and go

    async def register(
        self, agent_id: str, roles: Sequence[str], capacity: int = 1, *, key: str = ""
    ) -> AgentView:
        before = await self._io(self.store.agent, agent_id)
        view = await super().register(agent_id, roles, capacity, key=key)
        if not view.channels:
            return view
        after = await self._io(self.store.agent, agent_id)
        if before is not None and after is not None and before.session != after.session:
            gone = ev.TakeOffline(agent_id=agent_id, detail="it registered again")
            await self._tell_all(view.channels, gone, ev.BringOnline(agent_id=agent_id))
        return await self.agent_view(agent_id)

    async def enable(self, agent_id: str, *, enabled: bool) -> AgentView:
        view = await super().enable(agent_id, enabled=enabled)
        if not view.channels:
            return view
        await self.pulse.look_at_members()
        return await self.agent_view(agent_id)

    async def remove(self, agent_id: str) -> None:
        await super().remove(agent_id)
        rows: list[MemberRow] = await self._io(self.store.memberships, agent_id)
        gone = ev.TakeOffline(agent_id=agent_id, detail="it was removed")
        await self._tell_all([row.channel_id for row in rows], gone)

    async def _tell_all(self, channels: Iterable[str], *commands: ev.ChannelCommand) -> None:
        for channel_id in channels:
            for command in commands:
                order = Order(command=command, by=ENGINE)
                await self.keeper.ask(CHANNEL + channel_id, order)


_SHELL = (Opened, Closed, Noticed)
_FIELDS = MessageView.__struct_fields__


def _short(text: str, channel_id: str) -> str:
    if len(text) > TEXT_MAX:
        told = f"a message to channel '{channel_id}' has {len(text)} characters"
        refuse("long_message", told, f"say it in at most {TEXT_MAX}")
    return text


def _since(channel: Channel, row: LogRow) -> Disposition:
    """What became of a message that was sent before."""
    assert row.number is not None, "a message"
    return Disposition.DELIVERED if row.number <= channel.routed else Disposition.QUEUED


def _may_read(channel: Channel, reader: str) -> None:
    receives = any(m.agent_id == reader and _receives(m.state) for m in channel.members)
    if not receives:
        told = f"agent '{reader}' receives nothing from channel '{channel.id}'"
        refuse("not_receiving", told, "it has to be assigned to the channel, and online")


def _receives(state: AgentState) -> bool:
    return PROPERTIES[state].receives is not Receiving.NO

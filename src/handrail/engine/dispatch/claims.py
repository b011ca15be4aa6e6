"""Claims: agents outside of this process ask for work, and wait for it.

Rules
1. An agent never holds more than its capacity, of dispatches and of turns in channels together.
   The database says what it holds; the claims that wait in this engine (`_AgentClaims`) count too,
   each of which may bring one more. A turn that is granted while a claim is on its way to disk
   comes on top: the agent gets it when it has room, or it times out.
2. A dispatch that an agent holds but does not know of is given again: the answer to its claim got
   lost.
3. An agent that waits for work is alive: its sign of life is written again and again meanwhile.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from handrail.engine.commit.channel_change import turn_id
from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.dispatch.matcher import AgentSlot
from handrail.engine.dispatch.registry import AgentService, require_agent
from handrail.engine.environment import StoreAccess
from handrail.engine.errors import refuse
from handrail.engine.notifier import TURN_KEY_PREFIX, ChangeNotifier
from handrail.engine.queries.runs import RunReader
from handrail.engine.settings import EngineSettings
from handrail.kernel.run.state import dispatch_id
from handrail.store.rows import AgentRow, ChannelMemberRow, DispatchRow
from handrail.views.channels import TurnView

if TYPE_CHECKING:
    from handrail.engine.services.channels import ChannelService


class _AgentClaims:
    """The claims of one agent that wait in this engine."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.granted = 0
        self.known_turn_ids: set[str] = set()
        """Of the turns that the agent holds, those that were given to it."""


class _ClaimSlot(AgentSlot):
    """A slot for one dispatch, open while a claim waits for it."""

    def __init__(self, row: AgentRow, claims: _AgentClaims) -> None:
        super().__init__(
            row.id,
            tuple(msgspec.json.decode(row.roles, type=list[str])),
            row.session,
            1,
            self.accept,
        )
        self.claims = claims
        self.claimed: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self.is_waiting = True
        claims.waiting += 1

    def accept(self, run_id: str, fence: int) -> None:
        """Accept a dispatch: its claim is on disk."""
        self.stop_waiting()
        self.claims.granted += 1
        if not self.claimed.done():
            self.claimed.set_result((run_id, fence))

    def stop_waiting(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self.claims.waiting -= 1


class ClaimService:
    """Gives dispatches and turns to agents outside of this process."""

    def __init__(
        self,
        access: StoreAccess,
        reader: RunReader,
        committer: GroupCommitter,
        notifier: ChangeNotifier,
        agents: AgentService,
        channels: "ChannelService",
        settings: EngineSettings,
    ) -> None:
        self._access, self._store, self._reader = access, access.store, reader
        self._committer, self._matcher, self._changes = (
            committer,
            committer.matcher,
            notifier.changes,
        )
        self._agents, self._channels, self._settings = agents, channels, settings
        self._claims_by_agent: dict[str, _AgentClaims] = {}
        self._closing_slots: set[asyncio.Task[None]] = set()

    async def claim(
        self, agent_id: str, wait: float = 0, holding: Sequence[str] | None = None
    ) -> Dispatch | None:
        """Return the next dispatch for a registered agent, waiting up to `wait` seconds; an agent
        never holds more than its capacity. `holding` are the ids that it knows of: a dispatch that
        it holds but does not know of comes first, so that a lost answer is given again. Without
        `holding` that is the oldest, when the agent has no room for another. Refused:
        unknown_agent, agent_disabled."""
        dispatch = await self.claim_next(agent_id, wait, holding, turns=False)
        assert not isinstance(dispatch, TurnView), "it was not asked for"
        return dispatch

    async def claim_next(
        self,
        agent_id: str,
        wait: float = 0,
        holding: Sequence[str] | None = None,
        *,
        turns: bool = True,
    ) -> Dispatch | TurnView | None:
        """Like `claim`, with turns in channels too: a turn that the agent has and does not know of
        comes first, for its time runs."""
        row = await self._load_worker(agent_id)
        claims = self._claims_by_agent.setdefault(agent_id, _AgentClaims())
        with self._changes.subscribe(TURN_KEY_PREFIX + agent_id) as turn_granted:
            async with claims.lock:
                held = await self._held_dispatches(row, claims)
                held_turns = await self._held_turns(agent_id)
                if turns and (
                    turn := await self._unknown_turn(row, claims, held, held_turns, holding)
                ):
                    return turn
                for held_row in _unacknowledged(row, held, holding):
                    dispatch = await self._reader.open_dispatch(
                        held_row.execution_id, held_row.fence
                    )
                    if dispatch is not None:
                        return dispatch
                if len(held) + len(held_turns) + claims.waiting >= row.capacity:
                    return None
                slot = _ClaimSlot(row, claims)
            await self._wait_in_slot(slot, wait, {turn_granted} if turns else set())
        if slot.claimed.done():
            return await self._reader.open_dispatch(*slot.claimed.result())
        held_turns = await self._held_turns(agent_id) if turns else []
        return (
            await self._unknown_turn(row, claims, [], held_turns, holding) if held_turns else None
        )

    async def _load_worker(self, agent_id: str) -> AgentRow:
        """Return a registered agent that may work; this is a sign of life."""
        self._access.check_open()
        await self._agents.note_activity(agent_id)
        row = require_agent(await self._agents.find_remote(agent_id), agent_id)
        if not row.enabled:
            refuse("agent_disabled", f"agent '{agent_id}' is disabled", "have it enabled")
        return row

    async def _held_dispatches(self, row: AgentRow, claims: _AgentClaims) -> list[DispatchRow]:
        """What the agent holds now; read again if it got something meanwhile."""
        while True:  # at most once per waiting claim, so at most its capacity
            granted_before = claims.granted
            held = await self._access.call(self._store.dispatches.list_claimed, row.session)
            if granted_before == claims.granted:
                return held

    async def _held_turns(self, agent_id: str) -> list[ChannelMemberRow]:
        """The turns that the agent holds, paused ones too."""
        if not await self._channels.has_members():
            return []
        rows = await self._access.call(self._store.channels.list_memberships, agent_id)
        return [row for row in rows if row.turn is not None]

    async def _unknown_turn(
        self,
        row: AgentRow,
        claims: _AgentClaims,
        held_dispatches: Sequence[DispatchRow],
        held_turns: Sequence[ChannelMemberRow],
        holding: Sequence[str] | None,
    ) -> TurnView | None:
        """A turn that the agent does not know of. If the agent does not say what it knows: a turn
        that it was not given yet, or, when it has no room, any."""
        turns_by_id = {
            turn_id(member.channel_id, member.turn or 0): member for member in held_turns
        }
        claims.known_turn_ids &= turns_by_id.keys()
        is_full = len(held_dispatches) + len(held_turns) >= row.capacity
        known_ids = (
            holding if holding is not None else () if is_full else tuple(claims.known_turn_ids)
        )
        unknown_ids = sorted(
            turns_by_id.keys() - set(known_ids),
            key=lambda turn_name: turn_name in claims.known_turn_ids,
        )
        for turn_name in unknown_ids:
            turn = await self._channels.turn_of(turns_by_id[turn_name].channel_id, row.id)
            if turn is not None:
                claims.known_turn_ids.add(turn.id)
                return turn
        return None

    async def _wait_in_slot(
        self, slot: _ClaimSlot, wait: float, turn_granted: "set[asyncio.Future[None]]"
    ) -> None:
        self._matcher.add(slot)
        self._committer.wake()
        try:
            await self._committer.flush()  # what is on offer now
            await self._wait_for_work(slot, wait, {slot.claimed, *turn_granted})
            if not slot.claimed.done():
                self._matcher.remove(slot)  # from here on the slot gets nothing
                await self._committer.flush()  # but a claim may be on its way to disk
                slot.stop_waiting()
        finally:
            self._close_slot(slot)

    async def _wait_for_work(
        self, slot: _ClaimSlot, wait: float, futures: "set[asyncio.Future[Any]]"
    ) -> None:
        """Wait until the slot has a dispatch, a turn was granted to the agent, or time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        while not any(future.done() for future in futures) and (left := until - loop.time()) > 0:
            beat = min(left, self._settings.heartbeat)
            await asyncio.wait(futures, timeout=beat, return_when=asyncio.FIRST_COMPLETED)
            await self._agents.note_activity(slot.agent)

    def _close_slot(self, slot: _ClaimSlot) -> None:
        """Close a slot; a claim that is on its way to disk still counts until it is there."""
        self._matcher.remove(slot)
        if slot.is_waiting and not slot.claimed.done():
            task = asyncio.get_running_loop().create_task(self._stop_waiting_after_flush(slot))
            self._closing_slots.add(task)
            task.add_done_callback(self._closing_slots.discard)

    async def _stop_waiting_after_flush(self, slot: _ClaimSlot) -> None:
        try:
            await self._committer.flush()
        finally:
            slot.stop_waiting()


def _unacknowledged(
    row: AgentRow, held: Sequence[DispatchRow], holding: Sequence[str] | None
) -> list[DispatchRow]:
    """The dispatches that the agent holds, and perhaps does not know of."""
    if holding is None:
        return list(held) if len(held) >= row.capacity else []
    return [
        held_row
        for held_row in held
        if dispatch_id(held_row.execution_id, held_row.fence) not in holding
    ]

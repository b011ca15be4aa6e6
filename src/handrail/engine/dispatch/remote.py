"""Work for agents outside of this process: they claim it, keep it alive, report, or hand it back.

A dispatch is known by its id, RUN.dFENCE. Rules:

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
from datetime import datetime
from typing import Any, NoReturn

import msgspec

from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX, turn_id
from handrail.engine.commit.projection import rebuild_run
from handrail.engine.commit.stream_change import LOCK_STREAM_PREFIX, LockChange
from handrail.engine.dispatch.agent_results import NO_USAGE, validate_result
from handrail.engine.dispatch.dispatch import Dispatch, dispatch_view
from handrail.engine.dispatch.matcher import AgentSlot
from handrail.engine.dispatch.registry import refuse_unknown_agent
from handrail.engine.errors import RefusedError
from handrail.engine.pagination import refuse
from handrail.engine.services.channels import TURN_KEY_PREFIX, WithChannels
from handrail.kernel import lock as locks
from handrail.kernel.decision import Value
from handrail.kernel.result import Result, Usage
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import Run
from handrail.kernel.stop.rules import StopRule
from handrail.store.channels import ChannelMemberRow
from handrail.store.engine_store import AgentRow, DispatchRow
from handrail.store.store import Store
from handrail.views.channels import TurnView
from handrail.views.dispatches import DispatchView
from handrail.views.steps import dispatch_id

FENCE_DIGITS_MAX = 15
UNUSABLE_RESULT_CODES = frozenset(
    {
        *("bad_ask", "bad_outcome", "not_multi_dispatch", "unusable"),
        *("result_too_large", "context_too_large"),
    }
)
"""Refusals of input that is not a result at all: the dispatch stays open, and no note is kept."""


class ReportOutcome(Value):
    """The outcome of a result that came in time. Not accepted: it could not be used, the attempt is
    spent, and `reason` goes to the agent with its next dispatch."""

    accepted: bool
    run: Run
    reason: str = ""


class HeartbeatReply(Value):
    """Whether to go on working. `code` says why not: ended, late, foreign."""

    may_continue: bool
    code: str = ""
    message: str = ""
    lease_expires_at: datetime | None = None


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
        roles = tuple(msgspec.json.decode(row.roles, type=list[str]))
        super().__init__(row.id, roles, row.session, 1, self.accept)
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


class WithRemoteAgents(WithChannels):
    """An engine with agents outside of its process."""

    def __init__(self, store: Store, **options: Any) -> None:  # noqa: ANN401 - as Core
        super().__init__(store, **options)
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
        turn_granted = self._change_waiters.subscribe(TURN_KEY_PREFIX + agent_id)
        try:
            async with claims.lock:
                held = await self._held_dispatches(row, claims)
                held_turns = await self._held_turns(agent_id)
                if turns and (
                    turn := await self._unknown_turn(row, claims, held, held_turns, holding)
                ):
                    return turn
                for held_row in self._unacknowledged(row, held, holding):
                    dispatch = await self._open_dispatch(held_row.execution_id, held_row.fence)
                    if dispatch is not None:
                        return dispatch
                if len(held) + len(held_turns) + claims.waiting >= row.capacity:
                    return None
                slot = _ClaimSlot(row, claims)
            await self._wait_in_slot(agent_id, slot, wait, turn_granted if turns else None)
        finally:
            self._change_waiters.unsubscribe(TURN_KEY_PREFIX + agent_id, turn_granted)
        if slot.claimed.done():
            return await self._open_dispatch(*slot.claimed.result())
        held_turns = await self._held_turns(agent_id) if turns else []
        return (
            await self._unknown_turn(row, claims, [], held_turns, holding) if held_turns else None
        )

    async def _held_turns(self, agent_id: str) -> list[ChannelMemberRow]:
        """The turns that the agent holds, paused ones too."""
        if not await self._has_members():
            return []
        rows: list[ChannelMemberRow] = await self._call_store(self.store.list_memberships, agent_id)
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
            turn = await self.turn_of(turns_by_id[turn_name].channel_id, row.id)
            if turn is not None:
                claims.known_turn_ids.add(turn.id)
                return turn
        return None

    async def _wait_in_slot(
        self,
        agent_id: str,
        slot: _ClaimSlot,
        wait: float,
        turn_granted: "asyncio.Future[None] | None",
    ) -> None:
        self.matcher.add(slot)
        self.committer.wake()
        try:
            await self.committer.flush()  # what is on offer now
            await self._wait_for_work(agent_id, slot, wait, turn_granted)
            if not slot.claimed.done():
                self.matcher.remove(slot)  # from here on the slot gets nothing
                await self.committer.flush()  # but a claim may be on its way to disk
                slot.stop_waiting()
        finally:
            self._close_slot(slot)

    async def _load_worker(self, agent_id: str) -> AgentRow:
        """Return a registered agent that may work; this is a sign of life."""
        self._check_open()
        await self.note_activity(agent_id)
        row = await self._remote_agent(agent_id)
        if row is None:
            refuse_unknown_agent(agent_id)
        if not row.enabled:
            message = f"agent '{agent_id}' is disabled"
            refuse("agent_disabled", message, "have it enabled")
        return row

    async def _held_dispatches(self, row: AgentRow, claims: _AgentClaims) -> list[DispatchRow]:
        """What the agent holds now; read again if it got something meanwhile."""
        while True:  # at most once per waiting claim, so at most its capacity
            granted_before = claims.granted
            held: list[DispatchRow] = await self._call_store(
                self.store.list_claimed_dispatches, row.session
            )
            if granted_before == claims.granted:
                return held

    def _unacknowledged(
        self, row: AgentRow, held: Sequence[DispatchRow], holding: Sequence[str] | None
    ) -> list[DispatchRow]:
        if holding is None:
            return list(held) if len(held) >= row.capacity else []
        return [
            held_row
            for held_row in held
            if dispatch_id(held_row.execution_id, held_row.fence) not in holding
        ]

    async def _wait_for_work(
        self,
        agent_id: str,
        slot: _ClaimSlot,
        wait: float,
        turn_granted: "asyncio.Future[None] | None" = None,
    ) -> None:
        """Wait until the slot has a dispatch, a turn was granted to the agent, or time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        futures: set[asyncio.Future[Any]] = {
            slot.claimed,
            *((turn_granted,) if turn_granted is not None else ()),
        }
        while not any(future.done() for future in futures) and (left := until - loop.time()) > 0:
            beat = min(left, self.settings.heartbeat)
            await asyncio.wait(futures, timeout=beat, return_when=asyncio.FIRST_COMPLETED)
            await self.note_activity(agent_id)

    def _close_slot(self, slot: _ClaimSlot) -> None:
        """Close a slot; a claim that is on its way to disk still counts until it is there."""
        self.matcher.remove(slot)
        if slot.is_waiting and not slot.claimed.done():
            task = asyncio.get_running_loop().create_task(self._stop_waiting_after_flush(slot))
            self._closing_slots.add(task)
            task.add_done_callback(self._closing_slots.discard)

    async def _stop_waiting_after_flush(self, slot: _ClaimSlot) -> None:
        try:
            await self.committer.flush()
        finally:
            slot.stop_waiting()

    async def _open_dispatch(self, run_id: str, fence: int) -> Dispatch | None:
        """Return a dispatch, if it is open: from memory, else from the database."""
        cached = self._cached_dispatch(run_id, fence)
        if cached is not None:
            return cached
        loaded_runs = await self._call_store(self.store.load_runs, [run_id])
        if run_id not in loaded_runs:
            return None
        run = rebuild_run(loaded_runs[run_id].row, loaded_runs[run_id].tail)
        position = run.find_position(fence)
        return (
            self._build_dispatch(await self.plan_of(run), run, position)
            if position is not None
            else None
        )

    async def dispatch_of(self, dispatch_id: str) -> Dispatch:
        """Return an open dispatch. Refused: unknown_dispatch."""
        dispatch = await self._open_dispatch(*_parse_dispatch_id(dispatch_id))
        if dispatch is None:
            _refuse_unknown(dispatch_id)
        return dispatch

    async def dispatch_view(self, dispatch: Dispatch) -> DispatchView:
        """Return the dispatch as it goes to its agent, in full."""
        position, row = dispatch.position, await self._remote_agent(dispatch.position.agent)
        lock = None
        if position.lock is not None:
            lock_rows = await self._call_store(self.store.load_locks, [position.repository])
            if position.repository in lock_rows:
                lock = LockChange("", lock_rows[position.repository]).lock
        lease_expires_at = self._lease_expires_at(row) if row is not None else None
        lock_expires_at = locks.next_due(lock) if lock is not None else None
        if self._has_short_history(dispatch.run):
            return dispatch_view(dispatch, lease_expires_at, lock_expires_at)
        return await self._query(
            lambda _: dispatch_view(dispatch, lease_expires_at, lock_expires_at)
        )

    async def heartbeat_dispatch(
        self, dispatch_id: str, agent_id: str, fence: int
    ) -> HeartbeatReply:
        """Record a heartbeat: the agent still works on the dispatch."""
        run_id, own_fence = _parse_dispatch_id(dispatch_id)
        alive = await self.heartbeat_agent(agent_id)
        rows: list[DispatchRow] = await self._call_store(self.store.list_dispatches, run_id)
        row = next((held_row for held_row in rows if held_row.fence == own_fence == fence), None)
        agent = await self._remote_agent(agent_id) if alive else None
        if row is not None and agent is not None and row.session == agent.session:
            return HeartbeatReply(may_continue=True, lease_expires_at=self._lease_expires_at(agent))
        code, message = await self._explain_loss(run_id, row, agent_id, own_fence)
        return HeartbeatReply(may_continue=False, code=code, message=message)

    async def _explain_loss(
        self, run_id: str, row: DispatchRow | None, agent_id: str, fence: int
    ) -> tuple[str, str]:
        subject = f"dispatch {fence} of run '{run_id}'"
        if row is not None and row.agent is None:
            return "late", f"{subject} was lost, and is on offer again"
        if row is not None:
            return (
                "foreign",
                f"{subject} is held by '{row.agent}', not by this stay of '{agent_id}'",
            )
        run = await self.state(run_id)
        if run.has_ended:
            return "ended", f"run '{run_id}' has ended ({run.terminal_status})"
        return "late", f"{subject} was answered, lost, timed out or cancelled"

    async def report(
        self, run_id: str, fence: int, agent: str, result: Result | str, *, trusted: bool = False
    ) -> Run:
        """Report the result of a dispatch. A late, doubled or foreign result is refused, changes
        nothing, and is kept as a note."""
        command = _report_command(result, agent, fence, trusted=trusted)
        try:
            return await self.command(run_id, command)
        except RefusedError as refused:
            code = refused.refusal.code
            if code not in UNUSABLE_RESULT_CODES:
                await self._call_store(
                    self.store.add_note, self._refused_note(run_id, command, code)
                )
            raise

    async def report_dispatch(
        self,
        dispatch_id: str,
        agent_id: str,
        fence: int,
        result: Result | str,
        *,
        trusted: bool = False,
    ) -> ReportOutcome:
        """Report the result of a dispatch. A late, doubled or foreign result is refused, changes
        nothing, and is kept as a note."""
        run_id, own_fence = _parse_dispatch_id(dispatch_id)
        if fence != own_fence:
            command = _report_command(result, agent_id, fence, trusted=trusted)
            await self._call_store(
                self.store.add_note, self._refused_note(run_id, command, "wrong_fence")
            )
            message = f"the result names the fence {fence}, and is for dispatch '{dispatch_id}'"
            refuse("wrong_fence", message, "report with the fence of the dispatch")
        step_id = await self._step_id_of(run_id, fence)
        run = await self.report(run_id, fence, agent_id, result, trusted=trusted)
        position = run.positions.get(step_id)
        if position is not None and position.refusal:
            return ReportOutcome(accepted=False, reason=position.refusal, run=run)
        if run.stop is not None and run.stop.rule is StopRule.PROTOCOL:
            return ReportOutcome(accepted=False, reason=run.stop.reason, run=run)
        return ReportOutcome(accepted=True, run=run)

    async def _step_id_of(self, run_id: str, fence: int) -> str:
        """The step id of an open dispatch; "" if it is not open."""
        run = self.committer.cached_run(run_id)
        position = run.find_position(fence) if run is not None else None
        if position is not None:
            return position.step_id
        rows: list[DispatchRow] = await self._call_store(self.store.list_dispatches, run_id)
        return next((row.place for row in rows if row.fence == fence), "")

    async def hand_back(
        self, dispatch_id: str, agent_id: str, fence: int, reason: str, usage: Usage = NO_USAGE
    ) -> Run:
        """Hand a dispatch back: it is offered again; its usage is counted. Refused: late,
        foreign."""
        run_id, own_fence = _parse_dispatch_id(dispatch_id)
        rows: list[DispatchRow] = await self._call_store(self.store.list_dispatches, run_id)
        row = next((held_row for held_row in rows if held_row.fence == own_fence == fence), None)
        if row is None or row.agent != agent_id:
            code, message = await self._explain_loss(run_id, row, agent_id, own_fence)
            refuse(code, message, "there is nothing to hand back")
        lost_reason = (
            f"{agent_id} handed it back: {reason}" if reason else f"{agent_id} handed it back"
        )
        if usage == NO_USAGE:
            return await self.command(run_id, c.Lose(fence=fence, reason=lost_reason))
        spent = Result(usage=usage)
        return await self.command(
            run_id, c.Report(fence=fence, agent=agent_id, result=spent, malformed=lost_reason)
        )


def _report_command(result: Result | str, agent: str, fence: int, *, trusted: bool) -> c.Report:
    checked_result = validate_result(result, agent, trusted=trusted)
    if isinstance(checked_result, Result):
        return c.Report(fence=fence, agent=agent, result=checked_result)
    return c.Report(fence=fence, agent=agent, malformed=checked_result)


def _parse_dispatch_id(dispatch_id: str) -> tuple[str, int]:
    run_id, separator, fence = dispatch_id.rpartition(".d")
    is_run = bool(separator) and not run_id.startswith(
        (LOCK_STREAM_PREFIX, CHANNEL_STREAM_PREFIX)
    )  # these have no dispatches
    is_fence = fence.isascii() and fence.isdigit() and len(fence) <= FENCE_DIGITS_MAX
    if not is_run or not is_fence:
        _refuse_unknown(dispatch_id)
    return run_id, int(fence)


def _refuse_unknown(dispatch_id: str) -> NoReturn:
    message = f"there is no open dispatch '{dispatch_id[:200]}'"
    refuse("unknown_dispatch", message, "claim another one")

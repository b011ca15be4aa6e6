"""Work for agents outside of this process: they claim it, keep it alive, report, or hand it back.

A dispatch is known by its id, RUN.dFENCE. Rules:

1. An agent never holds more than its capacity, of dispatches and of turns in channels together.
   What it holds is what the database says; beside it count the claims that wait in this engine
   (`_Post`), each of which may bring one more. A turn that is granted while a claim is on its way
   to disk comes on top: the agent is given it when it has room, or it times out.
2. What an agent holds but does not know of is given again: the answer to its claim got lost.
3. Whoever waits for work is alive: a sign of life is written again and again meanwhile.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

import msgspec

from handrail.engine.attendance import unknown_agent
from handrail.engine.channel_views import TurnView
from handrail.engine.channel_work import CHANNEL, turn_id
from handrail.engine.channels import TURN, WithChannels
from handrail.engine.desk import Seat
from handrail.engine.dispatch import Dispatch, DispatchView, shown_dispatch
from handrail.engine.pages import refuse
from handrail.engine.project import loaded
from handrail.engine.refused import Refused
from handrail.engine.returned import NO_USAGE, checked
from handrail.engine.works import LOCK, LockWork
from handrail.kernel import lock as locks
from handrail.kernel.decision import Value
from handrail.kernel.result import Result, Usage
from handrail.kernel.rules import StopRule
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import Run
from handrail.kernel.steps import dispatch_id
from handrail.store.channels import MemberRow
from handrail.store.office import Office
from handrail.store.port import AgentRow, DispatchRow

FENCE_DIGITS_MAX = 15
NO_RESULT = frozenset(
    {
        *("bad_ask", "bad_outcome", "not_multi_dispatch", "unusable"),
        *("result_too_large", "context_too_large"),
    }
)
"""Refusals of what is no result at all: the dispatch stays open, and it is no evidence either."""


class Taken(Value):
    """What became of a result that came in time. Not accepted: it could not be used, the attempt
    is spent, and `reason` goes to the agent with its next turn."""

    accepted: bool
    run: Run
    reason: str = ""


class Beat(Value):
    """Whether to go on working. `code` says why not: ended, late, foreign."""

    go_on: bool
    code: str = ""
    message: str = ""
    lease_expires_at: datetime | None = None


class _Post:
    """The claims of one agent that wait in this engine."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.given = 0
        self.turns: set[str] = set()
        """Turns that were given to it, of those that it holds."""


class _Claim(Seat):
    """A seat for one dispatch, as long as somebody waits for it."""

    def __init__(self, row: AgentRow, post: _Post) -> None:
        roles = tuple(msgspec.json.decode(row.roles, type=list[str]))
        super().__init__(row.id, roles, row.session, 1, self.take)
        self.post = post
        self.got: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self.waits = True
        post.waiting += 1

    def take(self, run_id: str, fence: int) -> None:
        """The claim is on disk."""
        self.leave()
        self.post.given += 1
        if not self.got.done():
            self.got.set_result((run_id, fence))

    def leave(self) -> None:
        if self.waits:
            self.waits = False
            self.post.waiting -= 1


class WithOutside(WithChannels):
    """An engine that agents outside of its process work for."""

    def __init__(self, store: Office, **made: Any) -> None:  # noqa: ANN401 - as Core
        super().__init__(store, **made)
        self._posts: dict[str, _Post] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def claim(
        self, agent_id: str, wait: float = 0, holding: Sequence[str] | None = None
    ) -> Dispatch | None:
        """The next dispatch for a registered agent, waiting for one so many seconds; never more
        than its capacity. `holding` are the ids of those that it knows of: one that it holds but
        does not know of comes first, so that an answer that got lost on the way is given again.
        Without it that is the oldest, when it has no room for another. Refused: unknown_agent,
        agent_disabled."""
        found = await self.next_work(agent_id, wait, holding, turns=False)
        assert not isinstance(found, TurnView), "it was not asked for"
        return found

    async def next_work(
        self,
        agent_id: str,
        wait: float = 0,
        holding: Sequence[str] | None = None,
        *,
        turns: bool = True,
    ) -> Dispatch | TurnView | None:
        """As `claim`, of turns in channels too: a turn that it has and does not know of comes
        first, for its time runs."""
        row = await self._worker(agent_id)
        post = self._posts.setdefault(agent_id, _Post())
        turned = self._changes.listen(TURN + agent_id)
        try:
            async with post.lock:
                held = await self._held(row, post)
                mine = await self._turns(agent_id)
                if turns and (turn := await self._new_turn(row, post, held, mine, holding)):
                    return turn
                for one in self._unknown_to(row, held, holding):
                    dispatch = await self._open(one.execution_id, one.fence)
                    if dispatch is not None:
                        return dispatch
                if len(held) + len(mine) + post.waiting >= row.capacity:
                    return None
                seat = _Claim(row, post)
            await self._sit_and_wait(agent_id, seat, wait, turned if turns else None)
        finally:
            self._changes.forget(TURN + agent_id, turned)
        if seat.got.done():
            return await self._open(*seat.got.result())
        mine = await self._turns(agent_id) if turns else []
        return await self._new_turn(row, post, [], mine, holding) if mine else None

    async def _turns(self, agent_id: str) -> list[MemberRow]:
        """The turns that it holds, paused ones too."""
        if not await self._has_members():
            return []
        rows: list[MemberRow] = await self._io(self.store.memberships, agent_id)
        return [row for row in rows if row.turn is not None]

    async def _new_turn(
        self,
        row: AgentRow,
        post: _Post,
        held: Sequence[DispatchRow],
        mine: Sequence[MemberRow],
        holding: Sequence[str] | None,
    ) -> TurnView | None:
        """A turn that it does not know of. If it does not say what it knows, one that it was not
        given yet, or, when it has no room, any."""
        ids = {turn_id(one.channel_id, one.turn or 0): one for one in mine}
        post.turns &= ids.keys()
        full = len(held) + len(mine) >= row.capacity
        known = holding if holding is not None else () if full else tuple(post.turns)
        unknown = sorted(ids.keys() - set(known), key=lambda name: name in post.turns)
        for name in unknown:
            turn = await self.turn_of(ids[name].channel_id, row.id)
            if turn is not None:
                post.turns.add(turn.id)
                return turn
        return None

    async def _sit_and_wait(
        self, agent_id: str, seat: _Claim, wait: float, turned: "asyncio.Future[None] | None"
    ) -> None:
        self.desk.add(seat)
        self.keeper.wake()
        try:
            await self.keeper.turned()  # what is on offer now
            await self._wait(agent_id, seat, wait, turned)
            if not seat.got.done():
                self.desk.remove(seat)  # from here on nobody can give it anything
                await self.keeper.turned()  # but a claim may be on its way to disk
                seat.leave()
        finally:
            self._go(seat)

    async def _worker(self, agent_id: str) -> AgentRow:
        """A registered agent that may work; this is a sign of life."""
        self._check()
        await self.seen(agent_id)
        row = await self._outsider(agent_id)
        if row is None:
            unknown_agent(agent_id)
        if not row.enabled:
            told = f"agent '{agent_id}' is disabled"
            refuse("agent_disabled", told, "have it enabled")
        return row

    async def _held(self, row: AgentRow, post: _Post) -> list[DispatchRow]:
        """What it holds now; asked again if it was given something meanwhile."""
        while True:  # at most as often as claims wait, which are no more than its capacity
            given = post.given
            held: list[DispatchRow] = await self._io(self.store.held, row.session)
            if given == post.given:
                return held

    def _unknown_to(
        self, row: AgentRow, held: Sequence[DispatchRow], holding: Sequence[str] | None
    ) -> list[DispatchRow]:
        if holding is None:
            return list(held) if len(held) >= row.capacity else []
        return [one for one in held if dispatch_id(one.execution_id, one.fence) not in holding]

    async def _wait(
        self,
        agent_id: str,
        seat: _Claim,
        wait: float,
        turned: "asyncio.Future[None] | None" = None,
    ) -> None:
        """Until it has something, or a turn was granted to it, or time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        both: set[asyncio.Future[Any]] = {seat.got, *((turned,) if turned is not None else ())}
        while not any(one.done() for one in both) and (left := until - loop.time()) > 0:
            beat = min(left, self.settings.heartbeat)
            await asyncio.wait(both, timeout=beat, return_when=asyncio.FIRST_COMPLETED)
            await self.seen(agent_id)

    def _go(self, seat: _Claim) -> None:
        """Nobody waits any more; a claim that is on its way to disk still counts until it is."""
        self.desk.remove(seat)
        if seat.waits and not seat.got.done():
            task = asyncio.get_running_loop().create_task(self._gone(seat))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _gone(self, seat: _Claim) -> None:
        try:
            await self.keeper.turned()
        finally:
            seat.leave()

    async def _open(self, run_id: str, fence: int) -> Dispatch | None:
        """A dispatch, if it is open: from memory, else from the database."""
        known = self._dispatch(run_id, fence)
        if known is not None:
            return known
        found = await self._io(self.store.load, [run_id])
        if run_id not in found:
            return None
        run = loaded(found[run_id].subject, found[run_id].tail)
        token = run.token_of(fence)
        return self._given(await self.plan_of(run), run, token) if token is not None else None

    async def dispatch_of(self, dispatch_id: str) -> Dispatch:
        """An open dispatch. Refused: unknown_dispatch."""
        found = await self._open(*_split(dispatch_id))
        if found is None:
            _unknown(dispatch_id)
        return found

    async def shown(self, dispatch: Dispatch) -> DispatchView:
        """The dispatch as it goes to its agent, in full."""
        token, row = dispatch.token, await self._outsider(dispatch.token.agent)
        lock = None
        if token.lock is not None:
            found = await self._io(self.store.load_locks, [token.repository])
            if token.repository in found:
                lock = LockWork("", found[token.repository]).lock
        lease = self._lease_end(row) if row is not None else None
        expires = locks.next_due(lock) if lock is not None else None
        if self._is_short(dispatch.run):
            return shown_dispatch(dispatch, lease, expires)
        return await self._slowly(lambda _: shown_dispatch(dispatch, lease, expires))

    async def beat_dispatch(self, dispatch_id: str, agent_id: str, fence: int) -> Beat:
        """The agent still works on it: that is a heartbeat."""
        run_id, own = _split(dispatch_id)
        alive = await self.heartbeat_agent(agent_id)
        rows: list[DispatchRow] = await self._io(self.store.dispatches, run_id)
        row = next((one for one in rows if one.fence == own == fence), None)
        agent = await self._outsider(agent_id) if alive else None
        if row is not None and agent is not None and row.session == agent.session:
            return Beat(go_on=True, lease_expires_at=self._lease_end(agent))
        code, message = await self._why_not(run_id, row, agent_id, own)
        return Beat(go_on=False, code=code, message=message)

    async def _why_not(
        self, run_id: str, row: DispatchRow | None, agent_id: str, fence: int
    ) -> tuple[str, str]:
        what = f"dispatch {fence} of run '{run_id}'"
        if row is not None and row.agent is None:
            return "late", f"{what} was lost, and is on offer again"
        if row is not None:
            return "foreign", f"{what} is held by '{row.agent}', not by this stay of '{agent_id}'"
        run = await self.state(run_id)
        if run.ended:
            return "ended", f"run '{run_id}' has ended ({run.terminal_status})"
        return "late", f"{what} was answered, lost, timed out or cancelled"

    async def report(
        self, run_id: str, fence: int, agent: str, result: Result | str, *, trusted: bool = False
    ) -> Run:
        """The result of a dispatch. One that is late, doubled or foreign is refused, changes
        nothing, and is kept as a note."""
        command = _report(result, agent, fence, trusted=trusted)
        try:
            return await self.command(run_id, command)
        except Refused as refused:
            code = refused.refusal.code
            if code not in NO_RESULT:
                await self._io(self.store.add_note, self._note(run_id, command, code))
            raise

    async def report_dispatch(
        self,
        dispatch_id: str,
        agent_id: str,
        fence: int,
        result: Result | str,
        *,
        trusted: bool = False,
    ) -> Taken:
        """Its result. One that is late, doubled or foreign is refused, changes nothing, and is kept
        as a note."""
        run_id, own = _split(dispatch_id)
        if fence != own:
            command = _report(result, agent_id, fence, trusted=trusted)
            await self._io(self.store.add_note, self._note(run_id, command, "wrong_fence"))
            told = f"the result names the fence {fence}, and is for dispatch '{dispatch_id}'"
            refuse("wrong_fence", told, "report with the fence of the dispatch")
        place = await self._place(run_id, fence)
        run = await self.report(run_id, fence, agent_id, result, trusted=trusted)
        token = run.tokens.get(place)
        if token is not None and token.refusal:
            return Taken(accepted=False, reason=token.refusal, run=run)
        if run.stop is not None and run.stop.rule is StopRule.PROTOCOL:
            return Taken(accepted=False, reason=run.stop.reason, run=run)
        return Taken(accepted=True, run=run)

    async def _place(self, run_id: str, fence: int) -> str:
        """Where an open dispatch stands; "" if it is not open."""
        run = self.keeper.run(run_id)
        token = run.token_of(fence) if run is not None else None
        if token is not None:
            return token.place
        rows: list[DispatchRow] = await self._io(self.store.dispatches, run_id)
        return next((row.place for row in rows if row.fence == fence), "")

    async def hand_back(
        self, dispatch_id: str, agent_id: str, fence: int, reason: str, usage: Usage = NO_USAGE
    ) -> Run:
        """The agent will not finish it: it is offered again; what it used is counted. Refused:
        late, foreign."""
        run_id, own = _split(dispatch_id)
        rows: list[DispatchRow] = await self._io(self.store.dispatches, run_id)
        row = next((one for one in rows if one.fence == own == fence), None)
        if row is None or row.agent != agent_id:
            code, message = await self._why_not(run_id, row, agent_id, own)
            refuse(code, message, "there is nothing to hand back")
        told = f"{agent_id} handed it back: {reason}" if reason else f"{agent_id} handed it back"
        if usage == NO_USAGE:
            return await self.command(run_id, c.Lose(fence=fence, reason=told))
        spent = Result(usage=usage)
        return await self.command(
            run_id, c.Report(fence=fence, agent=agent_id, result=spent, malformed=told)
        )


def _report(result: Result | str, agent: str, fence: int, *, trusted: bool) -> c.Report:
    given = checked(result, agent, trusted=trusted)
    if isinstance(given, Result):
        return c.Report(fence=fence, agent=agent, result=given)
    return c.Report(fence=fence, agent=agent, malformed=given)


def _split(dispatch_id: str) -> tuple[str, int]:
    run_id, mark, fence = dispatch_id.rpartition(".d")
    is_run = bool(mark) and not run_id.startswith((LOCK, CHANNEL))  # these have no dispatches
    is_fence = fence.isascii() and fence.isdigit() and len(fence) <= FENCE_DIGITS_MAX
    if not is_run or not is_fence:
        _unknown(dispatch_id)
    return run_id, int(fence)


def _unknown(dispatch_id: str) -> NoReturn:
    told = f"there is no open dispatch '{dispatch_id[:200]}'"
    refuse("unknown_dispatch", told, "claim another one")

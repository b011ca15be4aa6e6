"""What happens by itself: clocks, leases, messages that were left, the engine's own heartbeat.

`beat` is one look at everything; an engine looks every `pulse` seconds, a test whenever it likes.
Looking twice does no harm: whatever is done is decided by the kernel on what is stored. Each query
takes a page; what is left is found the next time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta

from handrail.engine.batch import Answer
from handrail.engine.channel_work import CHANNEL, Order
from handrail.engine.clock import Clock
from handrail.engine.keeper import Busy, Keeper
from handrail.engine.settings import EngineSettings
from handrail.engine.vocabulary import tell
from handrail.engine.works import LOCK, Command, LockWork
from handrail.kernel import channel_events as ev
from handrail.kernel import lock as locks
from handrail.kernel.run import commands as c
from handrail.kernel.run.machine import next_due
from handrail.store.channels import Change, Presence
from handrail.store.port import DefinitionRow, DispatchRow, Store, StoreError, iso, moment

log = logging.getLogger("handrail.engine")

PAGE = 500
BEATS_A_LEASE = 6
"""How often an engine beats within a lease: a busy moment must not look like death."""
PRUNE_SECONDS = 3600
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Pulse:
    def __init__(
        self, keeper: Keeper, clock: Clock, settings: EngineSettings, engine_id: str
    ) -> None:
        self.keeper, self.clock, self.settings, self.engine_id = keeper, clock, settings, engine_id
        self.store: Store = keeper.store
        self.patient_until = clock()
        """Until then agents may be silent: they could not have been heard."""
        self.newest: dict[str, DefinitionRow] = {}
        """Definitions by name as of the last look: another engine may make a new version."""
        self.others = False
        """Whether other engines are alive: then a run may end without a word here."""
        self.noticed: Callable[[], Awaitable[None]] = _unnoticed
        """Called when others may have written something."""
        self._beaten: datetime | None = None
        self._pruned: datetime | None = None

    async def go_on(self) -> None:
        """Look again and again. A database that is away is waited for, at most so long; when it is
        back, the time without it was an outage."""
        loop = asyncio.get_running_loop()
        well, away = loop.time(), False
        while True:
            try:
                if away:
                    await self.after_outage(alone=False)
                await self.beat()
                well, away = loop.time(), False
            except StoreError as error:
                tell(log, "database_away", reason=str(error))
                if loop.time() - well > self.settings.store_patience:
                    raise
                away = True
            await asyncio.sleep(self.settings.pulse)

    async def beat(self) -> None:
        """One look at everything, and all that follows from it."""
        now = self.clock()
        await self._live(now)
        if await self.keeper.io(self.store.changed):
            self.newest.clear()
            self.others = await self.others_live(now)
            await self._know_outages()
            self.keeper.desk.look_behind()
            self.keeper.wake()
            await self.noticed()
        await self._messages()
        await self._locks(now)
        await self._clocks(now)
        await self._leases(now)
        await self._turns(now)
        await self.look_at_members()
        await self._prune(now)

    @property
    def beat_seconds(self) -> float:
        return self.settings.lease / BEATS_A_LEASE

    async def _live(self, now: datetime) -> None:
        if self._beaten is None or now - self._beaten >= timedelta(seconds=self.beat_seconds):
            await self.keeper.io(self.store.beat_engine, self.engine_id, iso(now))
            self._beaten = now

    async def others_live(self, now: datetime) -> bool:
        return bool(await self._living(now) - {self.engine_id})

    async def is_eldest(self) -> bool:
        """Whether no older engine is alive; ids are in the order of time."""
        return min(await self._living(self.clock()) | {self.engine_id}) == self.engine_id

    async def _living(self, now: datetime) -> set[str]:
        lost = iso(now - timedelta(seconds=self.settings.lease))
        known = await self.keeper.io(self.store.engines)
        return {name for name, at in known.items() if name and at > lost}

    async def after_outage(self, *, alone: bool) -> None:
        """If nobody was alive for a while, clocks did not run, and agents could not be heard."""
        now = self.clock()
        last = await self.keeper.io(self.store.last_alive)
        if last is not None and (now - moment(last)).total_seconds() > self.beat_seconds:
            if alone or not await self.others_live(now):
                await self.keeper.io(self.store.add_outage, last, iso(now))
                tell(log, "outage_found", began=last, ended=iso(now))
            self.patient_until = now + timedelta(seconds=self.settings.lease)
        await self._know_outages()

    async def _know_outages(self) -> None:
        known = await self.keeper.io(self.store.outages, iso(LONG_AGO))
        self.keeper.outages = [(moment(began), moment(ended)) for began, ended in known]

    async def _ask(self, jobs: Iterable[tuple[str, Command]]) -> list[Answer]:
        """One run's trouble is not everybody's; a database that is away is."""
        asked = [self.keeper.ask(stream, one) for stream, one in jobs]
        answers: list[Answer] = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, Answer):
                answers.append(answer)
            elif isinstance(answer, Busy) or not isinstance(answer, StoreError):
                tell(log, "look_failed", reason=str(answer))
                answers.append(Answer())
            else:
                raise answer
        return answers

    async def _clocks(self, now: datetime) -> None:
        due = await self.keeper.io(self.store.due, iso(now), PAGE)
        answers = await self._ask((run_id, c.Tick()) for run_id in due)
        early: list[tuple[str, bytes, str]] = []
        found = await self.keeper.io(self.store.load, due) if due else {}
        for run_id, answer in zip(due, answers, strict=True):
            run, stored = answer.run, found.get(run_id)
            if run is None or run.ended or stored is None:
                continue
            if not self.keeper.plans.knows(run.definition_id, run.version):
                continue  # so many are in use that it is in memory no more: the next time
            at = next_due(self.keeper.plan(run), run)
            kept = stored.subject
            if at is not None and at > now and kept.seq == run.seq:
                early.append((run_id, kept.head, iso(at)))
        if early:
            await self.keeper.io(self.store.postpone, early)

    async def _leases(self, now: datetime) -> None:
        """Work of the dead is offered again; work that nobody alive can do is told to a person."""
        since = self._silent_since(now)
        orphans = await self.keeper.io(self.store.orphans, since, PAGE)
        await self._ask((row.execution_id, _lose(row)) for row in orphans)
        await self._doubts()
        grace = iso(now - timedelta(seconds=self.settings.kernel.role_grace))
        unmanned = await self.keeper.io(self.store.unmanned, since, grace, PAGE)
        await self._ask((row.execution_id, c.MissRole(fence=row.fence)) for row in unmanned)
        if orphans:
            self.keeper.wake()

    async def _doubts(self) -> None:
        """Claims from a commit that broke, if they are on disk after all: nobody works on them."""
        if self.keeper.doubtful:
            await self.keeper.io(self.store.at_rest)
        for row in tuple(self.keeper.doubtful):
            known = await self.keeper.io(self.store.dispatches, row.execution_id)
            claim = (row.fence, row.session, row.claimed_at)
            same = [one for one in known if (one.fence, one.session, one.claimed_at) == claim]
            await self._ask((one.execution_id, _lose(one)) for one in same)
            self.keeper.doubtful.remove(row)

    def _silent_since(self, now: datetime) -> str:
        patient = now < self.patient_until
        return iso(LONG_AGO if patient else now - timedelta(seconds=self.settings.lease))

    async def _messages(self) -> None:
        for message in await self.keeper.io(self.store.messages, PAGE):
            self.keeper.deliver(message)

    async def _locks(self, now: datetime) -> None:
        """A holder whose agent is alive, or whose dispatch is still on offer, keeps the lock, well
        before it is stale; a silent one loses it then."""
        soon = iso(now + timedelta(seconds=locks.STALE_SECONDS / 2))
        for name in await self.keeper.io(self.store.locks_due, soon, PAGE):
            found = await self.keeper.io(self.store.load_locks, [name])
            lock = LockWork(LOCK + name, found[name]).lock
            holder = lock.holder
            if holder is not None and await self._is_alive(holder, now):
                request = holder.request
                beat = locks.Heartbeat(run=request.run, step=request.step, fence=holder.fence)
                await self.keeper.ask(LOCK + name, beat)
            else:
                await self.keeper.ask(LOCK + name, locks.Tick())

    async def _is_alive(self, holder: locks.Holder, now: datetime) -> bool:
        since = self._silent_since(now)
        if now >= self.patient_until:  # a lease may be longer than the lock's own patience
            since = max(since, iso(now - timedelta(seconds=locks.STALE_SECONDS / 2)))
        rows = await self.keeper.io(self.store.dispatches, holder.request.run)
        agents = {agent.session: agent for agent in await self.keeper.io(self.store.agents)}
        mine = [row for row in rows if row.place == holder.request.step]
        if any(row.agent is None for row in mine):  # the run's own clock ends that
            return True
        beats = [agents[row.session].beat_at for row in mine if row.session in agents]
        return any(at > since for at in beats)

    async def _turns(self, now: datetime) -> None:
        due = await self.keeper.io(self.store.channels_due, iso(now), PAGE)
        await self._ask((CHANNEL + name, Order(command=ev.Tick())) for name in due)

    async def look_at_members(self) -> None:
        """Channels hear who is gone and who is back; those that wait for somebody, who is free."""
        since = self._silent_since(self.clock())
        found: list[Presence] = await self.keeper.io(self.store.presence, since, PAGE)
        await self._ask(
            (CHANNEL + one.channel_id, Order(command=command))
            for one in found
            for command in _TOLD[one.change](one.agent_id)
        )

    async def _prune(self, now: datetime) -> None:
        if self._pruned is None or now - self._pruned >= timedelta(seconds=PRUNE_SECONDS):
            before = now - timedelta(seconds=self.settings.idempotency_keep)
            await self.keeper.io(self.store.forget_keys, iso(before))
            self._pruned = now


_TOLD: dict[Change, Callable[[str], tuple[ev.ChannelCommand, ...]]] = {
    "offline": lambda agent: (ev.TakeOffline(agent_id=agent, detail="it was silent, or is gone"),),
    "disabled": lambda agent: (ev.Disable(agent_id=agent),),
    "online": lambda agent: (ev.Enable(agent_id=agent), ev.BringOnline(agent_id=agent)),
    "free": lambda _: (ev.Tick(),),
}
"""What a channel is told of a member. What it holds elsewhere is looked up with every command."""


async def _unnoticed() -> None:
    """For an engine whose memory of others matters to nobody."""


def _lose(row: DispatchRow) -> c.Lose:
    return c.Lose(fence=row.fence, reason=f"{row.agent} is gone, or was silent for too long")

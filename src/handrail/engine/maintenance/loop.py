"""Periodic maintenance: clocks, leases, undelivered messages, the engine's own heartbeat, and what
other engines on the same database have committed.

`run_once` checks everything once; an engine does so every `pulse` seconds, a test at any time. A
repeated check does no harm: the kernel decides on what is stored. Each query takes a page; the next
pass finds the rest.

A process that stands still (it is stopped, its machine is paused, its event loop is blocked) hears
no agent. The monotonic clock tells, and before anything else is decided the agents get that time
again; a standstill longer than the engine's own heartbeats is an outage.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from handrail.engine.commit.batch import Command, CommandResult
from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX, ChannelRequest
from handrail.engine.commit.committer import GroupCommitter
from handrail.engine.commit.lock_change import LOCK_STREAM_PREFIX, decode_lock
from handrail.engine.commit.run_change import rebuild_run
from handrail.engine.environment import (
    STANDSTILL_SECONDS_MIN,
    Clock,
    StandstillWatch,
    StoreAccess,
)
from handrail.engine.errors import EngineBusyError
from handrail.engine.log_events import log_event
from handrail.engine.notifier import ANY_STREAM, ChangeNotifier
from handrail.engine.settings import EngineSettings
from handrail.kernel import lock as locks
from handrail.kernel.channel import events as ev
from handrail.kernel.run import commands as c
from handrail.kernel.run.clocks import next_due
from handrail.store.channels import PresenceChangeKind
from handrail.store.rows import DispatchRow, StoreError, iso, parse_iso

log = logging.getLogger("handrail.engine")

FOREIGN_ENTRIES_MAX = 1_000
"""Foreign entries that each maintenance pass reads, to find out whom to notify."""
PAGE_ROWS = 500
HEARTBEATS_PER_LEASE = 6
"""Heartbeats of an engine within a lease: a busy moment must not look like death."""
PRUNE_INTERVAL_SECONDS = 3600
SPENDING_DAYS_KEPT = 62
"""Days after its last spending until a budget's period is forgotten; it is over by then."""
AWAKE_INTERVAL_SECONDS = 0.25
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Maintenance:
    def __init__(
        self,
        access: StoreAccess,
        committer: GroupCommitter,
        notifier: ChangeNotifier,
        clock: Clock,
        settings: EngineSettings,
        engine_id: str,
        standstill: StandstillWatch,
    ) -> None:
        self._access, self._store, self._committer = access, access.store, committer
        self._notifier, self._clock = notifier, clock
        self._settings, self._engine_id = settings, engine_id
        self.leases_extended_until = clock()
        """Until then agents may be silent: they could not have been heard."""
        self._standstill = standstill
        self._heartbeat_at: datetime | None = None
        self._pruned_at: datetime | None = None
        self._notified_commit: int | None = None

    async def run_forever(self) -> None:
        """Check again and again. Wait for an unavailable database, at most `store_patience`; when
        it is back, the time without it was an outage."""
        self._notifier.is_watched = True
        loop = asyncio.get_running_loop()
        last_success, is_away = loop.time(), False
        while True:
            try:
                if is_away:
                    await self.record_outage(is_alone=False)
                await self.record_standstill()
                await self.run_once()
                last_success, is_away = loop.time(), False
            except StoreError as error:
                log_event(log, "database_away", reason=str(error))
                if loop.time() - last_success > self._settings.store_patience:
                    raise
                is_away = True
            await asyncio.sleep(self._settings.pulse)

    async def stay_awake(self) -> None:
        """Note again and again that this process is not standing still."""
        self._standstill.note_awake()
        while True:
            with suppress(StoreError):  # the maintenance loop waits for the database
                await self.record_standstill()
                self._standstill.note_awake()
            await asyncio.sleep(AWAKE_INTERVAL_SECONDS)

    async def record_standstill(self) -> None:
        """If this process has stood still, give agents and clocks that time again; called before
        commands are decided."""
        async with self._standstill.lock:
            seconds = self._standstill.seconds()
            if seconds < STANDSTILL_SECONDS_MIN:
                return
            log_event(log, "stood_still", seconds=round(seconds, 3))
            until = self._clock() + timedelta(seconds=seconds + STANDSTILL_SECONDS_MIN)
            self.leases_extended_until = max(self.leases_extended_until, until)
            await self.record_outage(is_alone=False)
            self._standstill.note_awake()

    async def run_once(self) -> None:
        """Check everything once, and perform all that follows."""
        now = self._clock()
        await self._heartbeat(now)
        if await self._access.call(self._store.has_changed):
            self._committer.plans.newest.clear()
            self._notifier.has_peers = await self.has_live_peers(now)
            await self._load_outages()
            self._committer.matcher.recheck_all()
            self._committer.wake()
            await self._notify_of_foreign_commits()
        await self._deliver_messages()
        await self._check_locks(now)
        await self._fire_timers(now)
        await self._expire_leases(now)
        await self._expire_turns(now)
        await self.update_presence()
        await self._prune(now)

    async def _notify_of_foreign_commits(self) -> None:
        """Notify waiters of what other engines may have changed. If too much was written to read it
        quickly, notify all."""
        for hook in self._notifier.foreign_commit_hooks:
            await hook()
        changes, ends = self._notifier.changes, self._notifier.ends
        keys = changes.keys() | ends.keys()
        if not keys:
            return
        head = await self._access.call(self._store.journal.get_last_commit)
        await self._committer.wait_in_flight()  # so that `own_commits` has all up to the head
        last_commit, notified = head.n if head is not None else 0, self._notified_commit
        if notified is not None and self._committer.own_commits.covers(notified, last_commit):
            self._notified_commit = last_commit
            return
        if notified is not None and keys != {ANY_STREAM}:
            entries = await self._access.call(
                self._store.journal.read_feed, notified, FOREIGN_ENTRIES_MAX
            )
            if 0 < len(entries) < FOREIGN_ENTRIES_MAX:
                keys = {ANY_STREAM, *(entry.stream for entry in entries)}
        self._notified_commit = last_commit
        for key in keys:
            changes.notify(key, None)
        if ended_keys := keys & ends.keys():
            loaded_runs = await self._access.call(self._store.runs.load, list(ended_keys))
            for key, stored in loaded_runs.items():
                if stored.row.ended_at is not None:
                    ends.notify(key, rebuild_run(stored.row, stored.tail))

    @property
    def heartbeat_seconds(self) -> float:
        return self._settings.lease / HEARTBEATS_PER_LEASE

    async def _heartbeat(self, now: datetime) -> None:
        if self._heartbeat_at is None or now - self._heartbeat_at >= timedelta(
            seconds=self.heartbeat_seconds
        ):
            await self._access.call(self._store.engines.heartbeat, self._engine_id, iso(now))
            self._heartbeat_at = now

    async def has_live_peers(self, now: datetime) -> bool:
        return bool(await self._live_engines(now) - {self._engine_id})

    async def is_oldest_engine(self) -> bool:
        """Whether no older engine is alive; ids are in the order of time."""
        return min(await self._live_engines(self._clock()) | {self._engine_id}) == self._engine_id

    async def _live_engines(self, now: datetime) -> set[str]:
        dead_since = iso(now - timedelta(seconds=self._settings.lease))
        beats = await self._access.call(self._store.engines.list)
        return {name for name, at in beats.items() if name and at > dead_since}

    async def record_outage(self, *, is_alone: bool) -> None:
        """Record an outage: while no engine was alive, clocks did not run and agents were not
        heard."""
        now = self._clock()
        last = await self._access.call(self._store.engines.get_last_alive)
        if last is not None and (now - parse_iso(last)).total_seconds() > self.heartbeat_seconds:
            if is_alone or not await self.has_live_peers(now):
                await self._access.call(self._store.engines.add_outage, last, iso(now))
                log_event(log, "outage_found", began=last, ended=iso(now))
            self.leases_extended_until = now + timedelta(seconds=self._settings.lease)
        await self._load_outages()

    async def _load_outages(self) -> None:
        rows = await self._access.call(self._store.engines.list_outages, iso(EPOCH))
        self._committer.outages = [(parse_iso(began), parse_iso(ended)) for began, ended in rows]

    async def _execute_all(self, jobs: Iterable[tuple[str, Command]]) -> list[CommandResult]:
        """Execute the jobs. A failing run fails alone; an unavailable database fails all."""
        requests = [self._committer.execute(stream, command) for stream, command in jobs]
        results: list[CommandResult] = []
        for result in await asyncio.gather(*requests, return_exceptions=True):
            if isinstance(result, CommandResult):
                results.append(result)
            elif isinstance(result, EngineBusyError) or not isinstance(result, StoreError):
                log_event(log, "look_failed", reason=str(result))
                results.append(CommandResult())
            else:
                raise result
        return results

    async def _fire_timers(self, now: datetime) -> None:
        due = await self._access.call(self._store.runs.list_due, iso(now), PAGE_ROWS)
        results = await self._execute_all((run_id, c.Tick()) for run_id in due)
        early: list[tuple[str, bytes, str]] = []
        plans = self._committer.plans
        loaded_runs = await self._access.call(self._store.runs.load, due) if due else {}
        for run_id, result in zip(due, results, strict=True):
            run, stored = result.run, loaded_runs.get(run_id)
            if run is None or run.has_ended or stored is None:
                continue
            version = run.definition_id, run.version
            if not plans.has(*version):
                continue  # too many plans are in use, it was dropped: next pass
            at = next_due(plans.get_for_run(run), run)
            execution = stored.row
            if at is not None and at > now and execution.seq == run.seq:
                early.append((run_id, execution.head, iso(at)))
        if early:
            await self._access.call(self._store.runs.postpone, early)

    async def _expire_leases(self, now: datetime) -> None:
        """Offer the work of dead agents again; tell a person of work that no live agent can do."""
        since = self._silent_since(now)
        orphans = await self._access.call(self._store.dispatches.list_orphaned, since, PAGE_ROWS)
        await self._execute_all((row.execution_id, _lose_command(row)) for row in orphans)
        await self._resolve_uncertain_claims()
        unmanned = await self._access.call(
            self._store.dispatches.list_unmatched,
            since,
            iso(now - timedelta(seconds=self._settings.kernel.role_grace)),
            PAGE_ROWS,
        )
        await self._execute_all((row.execution_id, c.MissRole(fence=row.fence)) for row in unmanned)
        if orphans:
            self._committer.wake()

    async def _resolve_uncertain_claims(self) -> None:
        """Give up uncertain claims that are on disk after all: no agent works on them."""
        if self._committer.uncertain_claims:
            await self._access.call(self._store.check_commit_settled)
        for row in tuple(self._committer.uncertain_claims):
            dispatches = await self._access.call(self._store.dispatches.list, row.execution_id)
            claim = (row.fence, row.session, row.claimed_at)
            matches = [
                match
                for match in dispatches
                if (match.fence, match.session, match.claimed_at) == claim
            ]
            await self._execute_all((match.execution_id, _lose_command(match)) for match in matches)
            self._committer.uncertain_claims.remove(row)

    def _silent_since(self, now: datetime) -> str:
        is_extended = now < self.leases_extended_until
        return iso(EPOCH if is_extended else now - timedelta(seconds=self._settings.lease))

    async def _deliver_messages(self) -> None:
        for message in await self._access.call(self._store.messages.list, PAGE_ROWS):
            self._committer.deliver(message)

    async def _check_locks(self, now: datetime) -> None:
        """Extend a lock well before it is stale while its holder's agent is alive or its dispatch
        is on offer; a silent holder loses it then."""
        for name in await self._access.call(
            self._store.locks.list_due,
            iso(now + timedelta(seconds=locks.STALE_SECONDS / 2)),
            PAGE_ROWS,
        ):
            lock_rows = await self._access.call(self._store.locks.load, [name])
            holder = decode_lock(lock_rows[name].state).holder
            if holder is not None and await self._is_holder_alive(holder, now):
                request = holder.request
                await self._committer.execute(
                    LOCK_STREAM_PREFIX + name,
                    locks.Heartbeat(run=request.run, step=request.step, fence=holder.fence),
                )
            else:
                await self._committer.execute(LOCK_STREAM_PREFIX + name, locks.LockTick())

    async def _is_holder_alive(self, holder: locks.LockHolder, now: datetime) -> bool:
        since = self._silent_since(now)
        if now >= self.leases_extended_until:  # a lease may exceed the lock's own timeout
            since = max(since, iso(now - timedelta(seconds=locks.STALE_SECONDS / 2)))
        rows = await self._access.call(self._store.dispatches.list, holder.request.run)
        agents = {
            agent.session: agent for agent in await self._access.call(self._store.agents.list)
        }
        own_dispatches = [row for row in rows if row.place == holder.request.step]
        if any(row.agent is None for row in own_dispatches):  # the run's own clock ends that
            return True
        beats = [agents[row.session].beat_at for row in own_dispatches if row.session in agents]
        return any(at > since for at in beats)

    async def _expire_turns(self, now: datetime) -> None:
        due = await self._access.call(self._store.channels.list_due, iso(now), PAGE_ROWS)
        await self._execute_all(
            (CHANNEL_STREAM_PREFIX + name, ChannelRequest(command=ev.ChannelTick())) for name in due
        )

    async def update_presence(self) -> None:
        """Tell channels which agents are gone and which are back; waiting channels, which are
        free."""
        changes = await self._access.call(
            self._store.channels.list_presence_changes, self._silent_since(self._clock()), PAGE_ROWS
        )
        await self._execute_all(
            (CHANNEL_STREAM_PREFIX + change.channel_id, ChannelRequest(command=command))
            for change in changes
            for command in _PRESENCE_COMMANDS[change.change](change.agent_id)
        )

    async def _prune(self, now: datetime) -> None:
        if self._pruned_at is None or now - self._pruned_at >= timedelta(
            seconds=PRUNE_INTERVAL_SECONDS
        ):
            await self._access.call(
                self._store.idempotency_keys.delete_before,
                iso(now - timedelta(seconds=self._settings.idempotency_keep)),
            )
            await self._access.call(
                self._store.budgets.delete_spending_before,
                iso(now - timedelta(days=SPENDING_DAYS_KEPT)),
            )
            self._pruned_at = now


_PRESENCE_COMMANDS: dict[PresenceChangeKind, Callable[[str], tuple[ev.ChannelCommand, ...]]] = {
    "offline": lambda agent: (
        ev.TakeOffline(agent_id=agent, detail="the agent is offline, or sent no heartbeat in time"),
    ),
    "disabled": lambda agent: (ev.Disable(agent_id=agent),),
    "online": lambda agent: (ev.Enable(agent_id=agent), ev.BringOnline(agent_id=agent)),
    "free": lambda _: (ev.ChannelTick(),),
}
"""Commands to a channel about a member. Every command looks up what the member holds elsewhere."""


def _lose_command(row: DispatchRow) -> c.Lose:
    return c.Lose(fence=row.fence, reason=f"{row.agent} is offline, or sent no heartbeat in time")

"""Runs: started, awaited, followed and explained, and people's answers to them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from handrail.engine.commit.projection import decode_events
from handrail.engine.errors import RefusedError
from handrail.engine.queries.journal import PAGE_ENTRIES, read_events
from handrail.engine.queries.why import explain_waits
from handrail.engine.services.definitions import WithDefinitions
from handrail.engine.services.run_handle import RunHandle
from handrail.kernel.decision import Refusal
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Person, Run
from handrail.store.engine_store import ApprovalRow, IdempotencyKeyRow, parse_iso
from handrail.views.run_details import WaitReason

OverrideCommand = c.Move | c.Migrate | c.Close | c.Pause | c.Resume
CACHED_RUN_WAIT_SECONDS = 5.0
"""A waiter checks at least this often whether the cached run is out of date."""
SETTLED_CODES = ("ended", "not_open")
"""Refusals of an answer that the approval itself may explain better."""


class WithRuns(WithDefinitions):
    """An engine that starts runs."""

    async def start(
        self,
        definition: str,
        *,
        title: str = "",
        description: str = "",
        context: dict[str, Any] | None = None,
        review: Literal["required", "skip"] | None = None,
        priority: int = 0,
        bead_id: str = "",
        filed_by: str = "",
        from_step_id: str = "",
        paths: tuple[str, ...] | None = None,
        key: str = "",
    ) -> RunHandle:
        """Start a run of the newest version of a definition, by id or name. The same `key` means
        the same run."""
        request = [
            definition,
            title,
            description,
            context,
            review,
            priority,
            bead_id,
            from_step_id,
            paths,
        ]
        run_id = uuid7().hex
        key_row = self._idempotency_row(key, filed_by, request, {"execution_id": run_id})
        command = c.Start(
            run_id=run_id,
            bead_id=bead_id or uuid7().hex,
            title=title,
            description=description,
            filed_by=filed_by,
            context=context or {},
            review=review,
            paths=paths,
            from_step_id=from_step_id,
        )
        started = await self._start_run(definition, command, key_row, priority)
        return RunHandle(self, started["execution_id"])

    async def _start_run(
        self, definition: str, start: c.Start, key: IdempotencyKeyRow | None, priority: int
    ) -> dict[str, str]:
        """Start a run of the newest version; return the first answer under its key."""
        row = self.maintenance.newest_definitions.get(
            definition
        ) or await self._load_newest_definition(definition)
        command = replace(start, definition_id=row.workflow_id, version=row.version)
        result = await self.execute(start.run_id, command, key=key, priority=priority)
        if result.duplicate_of is not None:
            return msgspec.json.decode(result.duplicate_of.answer, type=dict[str, str])
        return {"execution_id": start.run_id, "bead_id": start.bead_id}

    def run(self, run_id: str) -> RunHandle:
        """Return a handle of a run that was started before, here or elsewhere."""
        return RunHandle(self, run_id)

    async def why(self, run_id: str) -> tuple[WaitReason, ...]:
        """Explain what each open position of the run waits for; nothing if it has ended."""
        return await explain_waits(
            self.committer, await self.state(run_id), self.settings.offline_after
        )

    async def wait(self, run_id: str, timeout: float | None = None) -> Run:
        """Wait until the run has ended, or `timeout` seconds; return the run as it stands then.
        Maintenance notices an end at another engine; without maintenance this checks as often."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        cached = None if self.maintenance.has_peers else self.committer.cached_run(run_id)
        while True:
            self._check_open()
            ended = self._end_waiters.subscribe(run_id)
            try:
                run = cached or await self.state(run_id)
                wait_seconds = (
                    self.settings.pulse if not self._has_background else self.settings.heartbeat
                )
                wait_seconds, cached = (
                    wait_seconds if cached is None else min(wait_seconds, CACHED_RUN_WAIT_SECONDS),
                    None,
                )
                wait_seconds = (
                    wait_seconds if deadline is None else min(wait_seconds, deadline - loop.time())
                )
                if run.has_ended or wait_seconds <= 0:
                    return run
                await asyncio.wait((ended,), timeout=wait_seconds)
                if ended.done():
                    return ended.result()
            finally:
                self._end_waiters.unsubscribe(run_id, ended)

    async def changes(self, run_id: str, timeout: float | None = None) -> AsyncIterator[None]:
        """Yield at once, and then whenever the run may have changed, for `timeout` seconds at most.
        Maintenance notices changes by another engine; without maintenance this checks as often."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            self._check_open()
            changed = self._change_waiters.subscribe(run_id)
            try:
                yield
                wait_seconds = (
                    self.settings.heartbeat if self._has_background else self.settings.pulse
                )
                wait_seconds = (
                    wait_seconds if deadline is None else min(wait_seconds, deadline - loop.time())
                )
                if wait_seconds <= 0:
                    return
                await asyncio.wait((changed,), timeout=wait_seconds)
            finally:
                self._change_waiters.unsubscribe(run_id, changed)

    async def events(
        self, run_id: str, after: int = 0, *, follow: bool = True
    ) -> AsyncIterator[tuple[int, RunEvent]]:
        """Yield the run's events with their numbers, from the one after `after`; with `follow`
        until the run has ended."""
        async for _ in self.changes(run_id):
            run = await self.state(run_id)
            while after < run.seq:
                for entry in await self._call_store(
                    self.store.read_journal, run_id, after, PAGE_ENTRIES
                ):
                    events = decode_events(entry.body)
                    for seq, event in enumerate(events, entry.seq - entry.count + 1):
                        if seq > after:
                            yield seq, event
                            after = seq
            if run.has_ended or not follow:
                return

    async def history(self, run_id: str) -> list[RunEvent]:
        """Return all events of the run. Refused: unknown_run."""
        return await self._read_history(await self.state(run_id))

    async def _read_history(self, run: Run) -> list[RunEvent]:
        if self._has_short_history(run):
            return read_events(self.store, run.id, run.seq)
        return await self._query(lambda store: read_events(store, run.id, run.seq))

    async def answer(
        self,
        approval_id: str,
        text: str = "",
        *,
        by: Person | str,
        decision: Literal["approve", "reject", "revise"] | None = None,
        digest: str = "",
        key: str = "",
    ) -> Run:
        """Answer an approval as a person; `digest` is that of what the person saw."""
        person = Person(name=by) if isinstance(by, str) else by
        run_id = approval_id.rpartition(".q")[0]
        command = c.Answer(
            approval_id=approval_id, by=person, text=text, decision=decision, digest=digest
        )
        key_row = self._idempotency_row(key, person.name, [approval_id, text, decision, digest], {})
        try:
            return await self.command(run_id, command, key=key_row)
        except RefusedError as refused:
            row = await self._call_store(self.store.get_approval, approval_id)
            raise RefusedError(_explain_settled(refused.refusal, row)) from None

    async def override(self, run_id: str, command: OverrideCommand, *, key: str = "") -> Run:
        """Override the run as a person. A migration without a step id stays where the run
        stands."""
        request = [run_id, type(command).__name__, command]
        key_row = self._idempotency_row(key, command.by.name, request, {})
        if isinstance(command, c.Migrate) and not command.step_id:
            current = await self.state(run_id)
            command = replace(command, step_id=next(iter(current.positions), ""))
        return await self.command(run_id, command, key=key_row)


def _explain_settled(refusal: Refusal, row: ApprovalRow | None) -> Refusal:
    """Name the answer that stands, if there is one; else keep the refusal."""
    if refusal.code not in SETTLED_CODES or row is None or row.status != "answered":
        return refusal
    assert row.settled_at is not None, "an answer settles it"
    message = f"question '{row.id}' was answered already: {row.decision or 'answer'}"
    message = f"{message} by {row.answered_by} at {parse_iso(row.settled_at):%Y-%m-%d %H:%M:%S} UTC"
    hint = f"`handrail why {row.execution_id}` says what came of it"
    return replace(refusal, message=message, hint=hint)

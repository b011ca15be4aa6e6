"""Runs: begun, waited for, followed, asked why they wait, and a person's answers to them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from handrail.engine.definitions import WithDefinitions
from handrail.engine.handle import RunHandle
from handrail.engine.journal import PAGE, read_events
from handrail.engine.project import decode_events
from handrail.engine.refused import Refused
from handrail.engine.why import Waiting, look
from handrail.kernel.decision import Refusal
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Person, Run
from handrail.store.port import ApprovalRow, KeyRow, moment

Override = c.Move | c.Migrate | c.Close | c.Pause | c.Resume
LOOK_SECONDS = 5.0
"""After so long at most, one who waits looks whether what memory had of the run was old."""
SETTLED = ("ended", "not_open")
"""Refusals of an answer, of which the question itself may know more."""


class WithRuns(WithDefinitions):
    """An engine that runs begin on."""

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
        from_place: str = "",
        paths: tuple[str, ...] | None = None,
        key: str = "",
    ) -> RunHandle:
        """Begin a run of the newest version of a definition, by id or name. Under the same `key`
        the same run is meant."""
        same = [
            definition,
            title,
            description,
            context,
            review,
            priority,
            bead_id,
            from_place,
            paths,
        ]
        run_id = uuid7().hex
        kept = self._key(key, filed_by, [definition, *same], {"execution_id": run_id})
        command = c.Start(
            run_id=run_id,
            bead_id=bead_id or uuid7().hex,
            title=title,
            description=description,
            filed_by=filed_by,
            context=context or {},
            review=review,
            paths=paths,
            from_place=from_place,
        )
        begun = await self._begin(definition, command, kept, priority)
        return RunHandle(self, begun["execution_id"])

    async def _begin(
        self, definition: str, start: c.Start, key: KeyRow | None, priority: int
    ) -> dict[str, str]:
        """A run of the newest version. The answer that its key was given the first time."""
        row = self.pulse.newest.get(definition) or await self._newest(definition)
        command = replace(start, definition_id=row.workflow_id, version=row.version)
        answer = await self._ask(start.run_id, command, key=key, priority=priority, start=True)
        if answer.repeated is not None:
            return msgspec.json.decode(answer.repeated.answer, type=dict[str, str])
        return {"execution_id": start.run_id, "bead_id": start.bead_id}

    def run(self, run_id: str) -> RunHandle:
        """A run that was started before, here or elsewhere."""
        return RunHandle(self, run_id)

    async def why(self, run_id: str) -> tuple[Waiting, ...]:
        """What each open place of the run waits for; nothing if it has ended."""
        return await look(self.keeper, await self.state(run_id), self.settings.offline_after)

    async def wait(self, run_id: str, timeout: float | None = None) -> Run:
        """Until the run has ended, or so many seconds: the run as it stands then. That it ended at
        another engine is told by the pulse; if nobody is, this looks up as often."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        near = None if self.pulse.others else self.keeper.run(run_id)
        while True:
            self._check()
            ended = self._ends.listen(run_id)
            try:
                run = near or await self.state(run_id)
                left = self.settings.pulse if not self._watches else self.settings.heartbeat
                left, near = left if near is None else min(left, LOOK_SECONDS), None
                left = left if deadline is None else min(left, deadline - loop.time())
                if run.ended or left <= 0:
                    return run
                await asyncio.wait((ended,), timeout=left)
                if ended.done():
                    return ended.result()
            finally:
                self._ends.forget(run_id, ended)

    async def changes(self, run_id: str, timeout: float | None = None) -> AsyncIterator[None]:
        """At once, and then whenever the run may have changed, for so many seconds at most. That
        another engine has changed it is told by the pulse; if nobody is, this looks up as often."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            self._check()
            changed = self._changes.listen(run_id)
            try:
                yield
                left = self.settings.heartbeat if self._watches else self.settings.pulse
                left = left if deadline is None else min(left, deadline - loop.time())
                if left <= 0:
                    return
                await asyncio.wait((changed,), timeout=left)
            finally:
                self._changes.forget(run_id, changed)

    async def events(
        self, run_id: str, after: int = 0, *, follow: bool = True
    ) -> AsyncIterator[tuple[int, RunEvent]]:
        """The run's events with their numbers, from the one after `after`; with `follow` until the
        run has ended."""
        async for _ in self.changes(run_id):
            run = await self.state(run_id)
            while after < run.seq:
                for entry in await self._io(self.store.journal, run_id, after, PAGE):
                    events = decode_events(entry.body)
                    for seq, event in enumerate(events, entry.seq - entry.count + 1):
                        if seq > after:
                            yield seq, event
                            after = seq
            if run.ended or not follow:
                return

    async def history(self, run_id: str) -> list[RunEvent]:
        """Everything that has happened to the run. Refused: unknown_run."""
        return await self._story(await self.state(run_id))

    async def _story(self, run: Run) -> list[RunEvent]:
        if self._is_short(run):
            return read_events(self.store, run.id, run.seq)
        return await self._slowly(lambda store: read_events(store, run.id, run.seq))

    async def answer(
        self,
        question_id: str,
        text: str = "",
        *,
        by: Person | str,
        decision: Literal["approve", "reject", "revise"] | None = None,
        digest: str = "",
        key: str = "",
    ) -> Run:
        """A person's answer to a question; `digest` is that of what the person saw."""
        person = Person(name=by) if isinstance(by, str) else by
        run_id = question_id.rpartition(".q")[0]
        command = c.Answer(
            question_id=question_id, by=person, text=text, decision=decision, digest=digest
        )
        kept = self._key(key, person.name, [question_id, text, decision, digest], {})
        try:
            return await self.command(run_id, command, key=kept)
        except Refused as refused:
            row = await self._io(self.store.approval, question_id)
            raise Refused(_answered_before(refused.refusal, row)) from None

    async def override(self, run_id: str, command: Override, *, key: str = "") -> Run:
        """A person takes over. A migration without a place stays where the run stands."""
        asked = [run_id, type(command).__name__, command]
        kept = self._key(key, command.by.name, asked, {})
        if isinstance(command, c.Migrate) and not command.place:
            standing = await self.state(run_id)
            command = replace(command, place=next(iter(standing.tokens), ""))
        return await self.command(run_id, command, key=kept)


def _answered_before(refusal: Refusal, row: ApprovalRow | None) -> Refusal:
    """Whose answer stands, if there is one; else what was said."""
    if refusal.code not in SETTLED or row is None or row.status != "answered":
        return refusal
    assert row.settled_at is not None, "an answer settles it"
    told = f"question '{row.id}' was answered already: {row.decision or 'answer'}"
    told = f"{told} by {row.answered_by} at {moment(row.settled_at):%Y-%m-%d %H:%M:%S} UTC"
    hint = f"`handrail why {row.execution_id}` says what came of it"
    return replace(refusal, message=told, hint=hint)

"""The engine: runs that survive whatever happens to this process. For programs that embed it.

    async with handrail.open("sqlite:///work.db") as engine:
        @engine.agent("backend-engineer")
        async def fix(dispatch): ...

        await engine.define("fix.yaml")
        run = await engine.start("fix", title="500 on /invoices")
        ended = await run.result()

What a method says it did is on disk when it returns. What is refused raises `Refused`; what the
database cannot do, `StoreError`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from uuid_utils import uuid7

from handrail.engine.core import PAGE, Refused
from handrail.engine.documents import load
from handrail.engine.handle import RunHandle
from handrail.engine.project import decode_events
from handrail.engine.why import Waiting, look
from handrail.engine.with_agents import WithAgents
from handrail.kernel.certificate import Bound
from handrail.kernel.decision import Refusal, Value
from handrail.kernel.definition import Problem
from handrail.kernel.plan import check
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Person, Run
from handrail.store.port import DefinitionRow, StoreError, iso

LOOK_SECONDS = 5.0
"""How often one who waits for a run of this engine looks whether it ended elsewhere."""


class InvalidDefinition(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """A document that is no valid definition. `problems` are all of them, each with its place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class Defined(Value):
    """A stored definition: its id and version, and what a run of it can cost at most."""

    id: str
    name: str
    kind: str
    version: int
    bound: Bound
    warnings: tuple[Problem, ...] = ()


class Engine(WithAgents):
    """Made by `handrail.open`."""

    # Definitions

    async def define(
        self, source: Path | str | dict[str, Any], *, by: str = "", workflow_id: str = ""
    ) -> Defined:
        """Store a definition: a document, or a file with one. The same again changes nothing; a
        changed one becomes the next version."""
        document: Any = source
        if not isinstance(source, dict):
            document, problems = load(Path(source))
            if problems:
                raise InvalidDefinition(problems)
        plan, found = check(document, self.settings.kernel)
        if plan is None:
            raise InvalidDefinition(found.errors)
        definition = plan.definition
        workflow_id = workflow_id or definition.id or definition.name
        text = json.dumps(document, ensure_ascii=False, sort_keys=True)
        for _ in range(PAGE):  # another engine may define it at the same moment
            newest = await self._io(self.store.definition, workflow_id)
            if newest is not None and newest.workflow_id != workflow_id:
                newest = None  # another one of that name
            if newest is not None and newest.definition == text:
                break
            newest = DefinitionRow(
                workflow_id=workflow_id,
                version=newest.version + 1 if newest is not None else 1,
                name=definition.name,
                kind=plan.kind,
                definition=text,
                created_by=by,
                created_at=iso(self.clock()),
            )
            self.pulse.newest.clear()
            if await self._io(self.store.put_definition, newest):
                break
        else:
            raise StoreError(f"'{workflow_id}' is defined by others all the time; try again")
        return Defined(
            id=workflow_id,
            name=definition.name,
            kind=plan.kind,
            version=newest.version,
            bound=plan.bound(),
            warnings=found.warnings,
        )

    # Runs

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
        row = self.pulse.newest.get(definition) or await self._newest(definition)
        run_id = uuid7().hex
        command = c.Start(
            run_id=run_id,
            bead_id=bead_id or uuid7().hex,
            definition_id=row.workflow_id,
            version=row.version,
            title=title,
            description=description,
            filed_by=filed_by,
            context=context or {},
            review=review,
            paths=paths,
            from_place=from_place,
        )
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
        kept = self._key(key, filed_by, [definition, *same], {"execution_id": run_id})
        answer = await self._ask(run_id, command, key=kept, priority=priority, start=True)
        if answer.repeated is not None:
            run_id = msgspec.json.decode(answer.repeated.answer)["execution_id"]
        return RunHandle(self, run_id)

    async def _newest(self, definition: str) -> DefinitionRow:
        row = await self._io(self.store.definition, definition)
        if row is None:
            told = f"nothing is defined as '{definition}'"
            raise Refused(Refusal(code="unknown_definition", message=told, hint="define it first"))
        self.pulse.newest[definition] = row
        return row

    def run(self, run_id: str) -> RunHandle:
        """A run that was started before, here or elsewhere."""
        return RunHandle(self, run_id)

    async def why(self, run_id: str) -> tuple[Waiting, ...]:
        """What each open place of the run waits for; nothing if it has ended."""
        return await look(self.keeper, await self.state(run_id), self.settings.lease)

    async def wait(self, run_id: str, timeout: float | None = None) -> Run:
        """Until the run has ended, or so many seconds: the run as it stands then."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        here: Run | None = None
        while True:
            self._check()
            ended = self._ends.listen(run_id)
            try:
                alone = here is None and not self.pulse.others
                here = self.keeper.run(run_id) if alone else None
                run = here or await self.state(run_id)
                # It may also end elsewhere, so whoever waits looks up from time to time.
                left = self.settings.pulse if here is None else LOOK_SECONDS
                left = left if deadline is None else min(left, deadline - loop.time())
                if run.ended or left <= 0:
                    return run
                await asyncio.wait((ended,), timeout=left)
                if ended.done():
                    return ended.result()
            finally:
                self._ends.forget(run_id, ended)

    async def changes(self, run_id: str, timeout: float | None = None) -> AsyncIterator[None]:
        """At once, and then whenever the run may have changed, for so many seconds at most. Another
        engine may change it too, so this looks up once a pulse."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            self._check()
            changed = self._changes.listen(run_id)
            try:
                yield
                left = self.settings.pulse
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
        """Everything that has happened to the run."""
        return [event async for _, event in self.events(run_id, follow=False)]

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
        return await self.command(run_id, command, key=kept)

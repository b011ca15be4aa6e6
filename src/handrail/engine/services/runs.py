"""Runs: started, awaited, followed and overridden. A handle has the calls of one run.

An `InteractiveRun` drives one run with a callback for its approvals, until it ends or an approval
stays unanswered. For `handrail run`, for the demonstration and for tests: the engine does the work;
it hears every event in order, and passes every approval to one function until its answer can be
used.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from handrail.engine.commit.batch import CommandResult
from handrail.engine.commit.gateway import CommandGateway, first_answer
from handrail.engine.commit.run_change import decode_events, new_bead_row
from handrail.engine.dispatch.dispatch import result_text
from handrail.engine.environment import StoreAccess
from handrail.engine.errors import RefusedError
from handrail.engine.ids import uuid7
from handrail.engine.notifier import ChangeNotifier
from handrail.engine.queries.runs import PAGE_ENTRIES, RunReader
from handrail.engine.settings import EngineSettings
from handrail.kernel.decision import Value
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.human_commands import PERSON_LEVELS
from handrail.kernel.run.state import PendingApproval, Person, Run
from handrail.store.rows import IdempotencyKeyRow, NoteRow
from handrail.views.report import RunReport, build_report

if TYPE_CHECKING:
    from handrail.engine.services.approvals import ApprovalService

OverrideCommand = c.Move | c.Migrate | c.Close | c.Pause | c.Resume
CACHED_RUN_WAIT_SECONDS = 5.0
"""A waiter checks at least this often whether the cached run is out of date."""
REFUSED_ANSWERS_MAX = 100
"""Unusable answers to one approval in a row; then the function is not called any more."""


class RunHandle:
    """A run, by its id."""

    def __init__(self, runs: "RunService", approvals: "ApprovalService", run_id: str) -> None:
        self._runs, self._approvals, self.id = runs, approvals, run_id

    async def state(self) -> Run:
        return await self._runs.state(self.id)

    async def result(self, timeout: float | None = None) -> Run:
        """Wait for the ended run: `terminal_status`, and `stop` with the reason. Raises
        `TimeoutError` if it has not ended after `timeout` seconds."""
        run = await self._runs.wait(self.id, timeout)
        if not run.has_ended:
            raise TimeoutError(f"run '{self.id}' is {run.status} after {timeout} s")
        return run

    async def questions(self, timeout: float | None = None) -> list[PendingApproval]:
        """Return the pending approvals; wait until there are any, or the run has ended."""
        async for _ in self.changes(timeout):
            run = await self.state()
            if run.pending_approvals or run.has_ended:
                return list(run.pending_approvals.values())
        return []

    async def answer(
        self,
        approval_id: str,
        text: str = "",
        *,
        by: Person | str,
        decision: Literal["approve", "reject", "revise"] | None = None,
        digest: str = "",
    ) -> Run:
        return await self._approvals.answer(
            approval_id, text, by=by, decision=decision, digest=digest
        )

    def changes(self, timeout: float | None = None) -> AsyncIterator[None]:
        """Yield at once, and then whenever the run may have changed."""
        return self._runs.changes(self.id, timeout)

    def events(self, after: int = 0, *, follow: bool = True) -> AsyncIterator[tuple[int, RunEvent]]:
        return self._runs.events(self.id, after, follow=follow)

    async def history(self) -> list[RunEvent]:
        """All events of the run."""
        return await self._runs.history(self.id)

    async def report(self) -> RunReport:
        """Report what happened and why it stopped, from its events alone."""
        return build_report(await self.history())

    async def pause(self, *, by: Person, reason: str) -> Run:
        return await self._runs.command(self.id, c.Pause(by=by, reason=reason))

    async def resume(self, *, by: Person, reason: str) -> Run:
        return await self._runs.command(self.id, c.Resume(by=by, reason=reason))

    async def move(self, step_id: str, *, by: Person, reason: str) -> Run:
        return await self._runs.command(self.id, c.Move(by=by, step_id=step_id, reason=reason))

    async def close(self, *, by: Person, reason: str) -> Run:
        return await self._runs.command(self.id, c.Close(by=by, reason=reason))


class RunService:
    """Starts and follows runs."""

    def __init__(
        self,
        access: StoreAccess,
        gateway: CommandGateway,
        reader: RunReader,
        notifier: ChangeNotifier,
        approvals: "ApprovalService",
        settings: EngineSettings,
    ) -> None:
        self._access, self._gateway, self._reader = access, gateway, reader
        self._notifier = notifier
        self._approvals, self._settings = approvals, settings

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
        request = [definition, title, description, context, review, priority, bead_id]
        request += [from_step_id, paths]
        run_id = uuid7().hex
        key_row = self._gateway.key_row(key, filed_by, request, {"execution_id": run_id})
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
        bead = new_bead_row(command, priority, at="")  # the run's first commit sets the time
        result = await self._gateway.start(definition, command, key_row, bead)
        first = result.duplicate_of
        return self.handle(run_id if first is None else first_answer(first)["execution_id"])

    def handle(self, run_id: str) -> RunHandle:
        """A handle of a run that was started before, here or elsewhere."""
        return RunHandle(self, self._approvals, run_id)

    async def state(self, run_id: str) -> Run:
        """The run as it stands on disk. Refused: unknown_run."""
        return await self._reader.state(run_id)

    async def command(
        self, run_id: str, command: c.RunCommand, *, key: IdempotencyKeyRow | None = None
    ) -> Run:
        """Execute any command of the kernel; return the run after it. The caller vouches for the
        author."""
        result = await self.execute(run_id, command, key=key)
        return result.run if result.run is not None else await self._reader.state(run_id)

    async def execute(
        self, run_id: str, command: c.RunCommand, *, key: IdempotencyKeyRow | None = None
    ) -> CommandResult:
        """Execute any command of the kernel. Under a key that was used before, the result names the
        first answer."""
        return await self._gateway.execute(run_id, command, key=key)

    async def override(self, run_id: str, command: OverrideCommand, *, key: str = "") -> Run:
        """Override the run as a person. A migration without a step id stays where the run
        stands."""
        key_row = self._gateway.key_row(
            key, command.by.name, [run_id, type(command).__name__, command], {}
        )
        if isinstance(command, c.Migrate) and not command.step_id:
            current = await self._reader.state(run_id)
            command = replace(command, step_id=next(iter(current.positions), ""))
        return await self.command(run_id, command, key=key_row)

    async def wait(self, run_id: str, timeout: float | None = None) -> Run:
        """Wait until the run has ended, or `timeout` seconds; return the run as it stands then.
        Maintenance notices an end at another engine; without maintenance this checks as often."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        cached = None if self._notifier.has_peers else self._reader.cached(run_id)
        while True:
            self._access.check_open()
            with self._notifier.ends.subscribe(run_id) as ended:
                run = cached or await self._reader.state(run_id)
                wait_seconds = self._recheck_seconds
                if cached is not None:
                    wait_seconds, cached = min(wait_seconds, CACHED_RUN_WAIT_SECONDS), None
                if deadline is not None:
                    wait_seconds = min(wait_seconds, deadline - loop.time())
                if run.has_ended or wait_seconds <= 0:
                    return run
                await asyncio.wait((ended,), timeout=wait_seconds)
                if ended.done():
                    return ended.result()

    async def changes(self, run_id: str, timeout: float | None = None) -> AsyncIterator[None]:
        """Yield at once, and then whenever the run may have changed, for `timeout` seconds at most.
        Maintenance notices changes by another engine; without maintenance this checks as often."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            self._access.check_open()
            with self._notifier.changes.subscribe(run_id) as changed:
                yield
                wait_seconds = self._recheck_seconds
                if deadline is not None:
                    wait_seconds = min(wait_seconds, deadline - loop.time())
                if wait_seconds <= 0:
                    return
                await asyncio.wait((changed,), timeout=wait_seconds)

    async def events(
        self, run_id: str, after: int = 0, *, follow: bool = True
    ) -> AsyncIterator[tuple[int, RunEvent]]:
        """Yield the run's events with their numbers, from the one after `after`; with `follow`
        until the run has ended."""
        async for _ in self.changes(run_id):
            run = await self._reader.state(run_id)
            while after < run.seq:
                for entry in await self._access.call(
                    self._access.store.journal.read, run_id, after, PAGE_ENTRIES
                ):
                    for seq, event in enumerate(
                        decode_events(entry.body), entry.seq - entry.count + 1
                    ):
                        if seq > after:
                            yield seq, event
                            after = seq
            if run.has_ended or not follow:
                return

    async def history(self, run_id: str) -> list[RunEvent]:
        """All events of the run. Refused: unknown_run."""
        return await self._reader.history(await self._reader.state(run_id))

    async def add_note(self, note: NoteRow) -> None:
        """Keep a refused input as evidence."""
        await self._access.call(self._access.store.runs.add_note, note)

    @property
    def _recheck_seconds(self) -> float:
        """How often a waiter looks for itself: maintenance notices what other engines commit."""
        return self._settings.heartbeat if self._notifier.is_watched else self._settings.pulse


class ApprovalPrompt(Value):
    """What a person sees: the question, the result it is about, and why it is asked again."""

    approval: PendingApproval
    result: str = ""
    refusal: str = ""


class PromptReply(Value):
    """A text, or an explicit decision."""

    text: str = ""
    decision: Literal["approve", "reject", "revise"] | None = None


AnswerCallback = Callable[[ApprovalPrompt], PromptReply | str | None]
"""Called on a thread of its own. None: nobody answers now, and the run is left open."""
RunEventCallback = Callable[[RunEvent, Run], None]


def answer_nothing(request: ApprovalPrompt) -> None:
    """Callback for runs without people."""


def ignore_event(event: RunEvent, run: Run) -> None:
    """Listener for runs that nobody watches."""


def answering_person(approval: PendingApproval) -> Person:
    """The person at the keyboard answers as each approver: by name, else as you, person 2, 3..."""
    named = [name for name in approval.approvers if name not in PERSON_LEVELS]
    excluded = {*approval.approved_by, *approval.barred}
    numbered = [f"person {i + 2}" for i in range(len(excluded))]
    candidates = (name for name in (*named, "you", *numbered) if name not in excluded)
    return Person(name=next(candidates), role="admin")


class InteractiveRun:
    """A watched run; `events` and `run` are what was heard so far."""

    def __init__(
        self,
        handle: RunHandle,
        *,
        answer: AnswerCallback = answer_nothing,
        on_event: RunEventCallback = ignore_event,
    ) -> None:
        self.handle, self.answer, self.on_event = handle, answer, on_event
        self.events: list[RunEvent] = []
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        assert self._run is not None, "heard of by `to_its_end`"
        return self._run

    async def run_to_end(self) -> None:
        """Run to the end, or to an approval that stays unanswered; look at `run` then."""
        async for _ in self.handle.changes():
            await self._read_events()
            for approval in tuple(self.run.pending_approvals.values()):
                if not await self._prompt(approval):
                    return
                await self._read_events()
            if self.run.has_ended:
                return

    async def _read_events(self) -> None:
        async for _, event in self.handle.events(len(self.events), follow=False):
            self._run = evolve(self._run, event)
            self.events.append(event)
            self.on_event(event, self._run)

    async def _prompt(self, approval: PendingApproval) -> bool:
        """Prompt until there is a usable answer; False if none comes."""
        prompt = ApprovalPrompt(approval=approval, result=result_text(approval, self.events))
        for _ in range(REFUSED_ANSWERS_MAX):
            if self.run.has_ended or approval.id not in self.run.pending_approvals:
                return True  # settled or void: the run went another way meanwhile
            reply = await asyncio.to_thread(self.answer, prompt)
            if reply is None:
                return False
            response = reply if isinstance(reply, PromptReply) else PromptReply(text=reply)
            try:
                await self.handle.answer(
                    approval.id,
                    response.text,
                    by=answering_person(approval),
                    decision=response.decision,
                    digest=approval.digest,
                )
            except RefusedError as refused:
                prompt = replace(
                    prompt, refusal=f"{refused.refusal.message}: {refused.refusal.hint}"
                )
                await self._read_events()
            else:
                return True
        return False

"""A handle of one run: its calls, without naming the run each time."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Person, Run
from handrail.kernel.run.state import PendingApproval
from handrail.views.report import RunReport, build_report

if TYPE_CHECKING:
    from handrail.engine.services.approvals import ApprovalService
    from handrail.engine.services.runs import RunService


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

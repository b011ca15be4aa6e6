"""A run with everything that stands beside it on a page, read once and as of one moment."""

from msgspec.structs import replace

from handrail.engine.beads import BeadView, WithBeads
from handrail.engine.reading import WithReading
from handrail.engine.why import Why
from handrail.kernel.report import Report, report
from handrail.kernel.shown import Shown
from handrail.kernel.steps import FullStep, full_steps
from handrail.kernel.view import RunView, run_view


class WholeRun(Shown):
    """Where the run went stands in the report; the report's own steps are those beside it."""

    run: RunView
    bead: BeadView
    steps: tuple[FullStep, ...]
    report: Report
    why: Why


class WithWholes(WithReading, WithBeads):
    """An engine that shows a run in one answer: whoever follows one asks once after each change."""

    async def whole(self, run_id: str) -> WholeRun:
        """The run, its bead, its steps, its report, and why it stands. Refused: unknown_run."""
        run = await self.state(run_id)
        events = await self._story(run)
        told = report(events)
        return WholeRun(
            run=run_view(await self.plan_of(run), run, events, self.clock()),
            bead=await self.bead(run.bead_id),
            steps=full_steps(events),
            report=replace(told, steps=()),
            why=await self._why(run, told),
        )

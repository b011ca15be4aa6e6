"""A run with everything that stands beside it on a page, read once and as of one moment."""

from msgspec.structs import replace

from handrail.engine.queries.runs import WithRunQueries
from handrail.engine.queries.why import RunExplanation
from handrail.engine.services.beads import BeadView, WithBeads
from handrail.views.report import RunReport, build_report
from handrail.views.run_view import RunView, run_view
from handrail.views.steps import StepDetails, step_details
from handrail.views.view_types import View


class RunDetails(View):
    """Where the run went stands in the report; the report's own steps are those beside it."""

    run: RunView
    bead: BeadView
    steps: tuple[StepDetails, ...]
    report: RunReport
    why: RunExplanation


class WithRunDetails(WithRunQueries, WithBeads):
    """An engine that shows a run in one answer: whoever follows one asks once after each change."""

    async def run_details(self, run_id: str) -> RunDetails:
        """The run, its bead, its steps, its report, and why it stands. Refused: unknown_run."""
        run = await self.state(run_id)
        events = await self._read_history(run)
        run_report = build_report(events)
        return RunDetails(
            run=run_view(await self.plan_of(run), run, events, self.clock()),
            bead=await self.bead(run.bead_id),
            steps=step_details(events),
            report=replace(run_report, steps=()),
            why=await self._explain_run(run, run_report),
        )

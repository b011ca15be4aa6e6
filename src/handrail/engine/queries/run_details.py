"""A run with everything that a page shows beside it, read once and as of one moment."""

from msgspec.structs import replace

from handrail.engine.queries.runs import WithRunQueries
from handrail.engine.services.beads import WithBeads
from handrail.views.report import build_report
from handrail.views.run_details import RunDetails
from handrail.views.run_view import run_view
from handrail.views.steps import step_details


class WithRunDetails(WithRunQueries, WithBeads):
    """An engine that returns a run's details at once: a client that follows a run asks once per
    change."""

    async def run_details(self, run_id: str) -> RunDetails:
        """Return the run, its bead, its steps, its report, and why it waits. Refused:
        unknown_run."""
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

"""The run report (S11). Placeholder interface: report(events) -> Report."""

from collections.abc import Sequence

from handrail.kernel.decision import Value
from handrail.kernel.run.events import RunEvent


class Report(Value):
    run_id: str = ""


def report(events: Sequence[RunEvent]) -> Report:
    return Report()

"""The run's machine: one bead going through one definition, to an end with a reason.

Workflows and teams are the same machine with two ways of choosing the next step (`workflow.py`,
`team.py`); both have the same clocks, people, stop rules and end. Read `state.py`, then
`events.py`, then `decide.py`. The functions take the plan as their first argument, because a
definition is shared by all its runs and is no part of a run's state.
"""

from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import RunDecision, decide
from handrail.kernel.run.evolve import evolve, replay
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Person, Run

__all__ = ["Person", "Run", "RunDecision", "decide", "evolve", "measure", "next_due", "replay"]

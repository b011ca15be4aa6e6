"""The functions of the run's state machine in one place, for shells and tests.

The package itself stays light, so that a guard can import events and ledger without the rest.
"""

from handrail.kernel.run.clocks import next_due
from handrail.kernel.run.decide import RunDecision, decide, decide_and_apply
from handrail.kernel.run.evolve import evolve, replay
from handrail.kernel.run.measure import measure
from handrail.kernel.run.state import Person, Run

__all__ = [
    "Person",
    "Run",
    "RunDecision",
    "decide",
    "decide_and_apply",
    "evolve",
    "measure",
    "next_due",
    "replay",
]

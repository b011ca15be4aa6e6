"""The run's state machine: one bead going through one definition, to an end with a reason.

Workflows and teams are the same machine with two ways of choosing the next step (`workflow.py`,
`team.py`); both have the same clocks, people, stop rules and end. Read `state.py`, then
`events.py`, then `decide.py`. The machine's functions take the plan as their first argument: all
runs of a definition share it, so a run's state does not hold it. The package itself stays light: a
guard imports events and ledger without the rest.
"""

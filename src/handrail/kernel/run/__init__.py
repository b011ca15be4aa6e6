"""The run's machine: one bead going through one definition, to an end with a reason.

Workflows and teams are the same machine with two ways of choosing the next step (`workflow.py`,
`team.py`); both have the same clocks, people, stop rules and end. Read `state.py`, then
`events.py`, then `decide.py`; `machine.py` gathers the machine's functions. They take the plan as
their first argument: a definition is shared by all its runs and is no part of a run's state.
"""

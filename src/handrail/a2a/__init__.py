"""`handrail a2a`: every definition is an agent that others reach by the A2A protocol.

`cards.py` says who such an agent is, `tasks.py` how a run is told as a task, `lists.py` which there
are, `content.py` what a message says, `calls.py` what each call does; `door.py` is the wire. The
other direction, an agent that speaks A2A as a member of a team, is `handrail.agents.a2a`.
"""

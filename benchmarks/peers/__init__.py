"""What one could use instead of the guard, one module each.

Every module has the name of its distribution, `DISTRIBUTION`, and a function `prepare(handoffs)`
that returns one run, ready to start: calling it makes that many handoffs and returns how many it
made. Only the call is measured, so a peer does not pay for building its graph, machine or
application. Each does its least: agents in a ring, no storage, no tracing, and nobody watches for
loops.
"""

AGENTS = ("triage", "billing", "tech")
RING = dict(zip(AGENTS, (*AGENTS[1:], AGENTS[0]), strict=True))

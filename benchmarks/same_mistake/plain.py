"""Plain Python: a loop over functions."""

from benchmarks.same_mistake.scenes import Script
from handrail import Guard, GuardedRun
from handrail.guard import plain

DISTRIBUTION = ""
LIMIT = "none"


def turn(script: Script, name: str) -> str:
    tokens = script.answer()
    plain.used(tokens=tokens)
    if section := script.wants_to_save(name):
        save(section)
    return script.next()


@plain.tool
def save(section: int) -> str:
    return f"section {section} is saved"


def team(script: Script) -> str:
    agents = {
        name: plain.agent(name)(lambda name=name: turn(script, name))
        for name in script.scene.agents
    }
    name = script.agent(0)
    while name:
        name = agents[name]()
    return "done"


def bare(script: Script) -> str:
    return team(script)


def guarded(script: Script, guard: Guard) -> str:
    return plain.guarded(team, guard)(script)


def loop(script: Script, run: GuardedRun | None = None) -> str:
    """As in the README: the loop tells the guard of each handoff itself."""
    name = script.agent(0)
    while to := script.next():
        script.answer()
        if run is not None:
            run.handoff(name, to)
        name = to
    return "done"


def guarded_loop(script: Script, guard: Guard) -> str:
    with guard.run("loop") as run:
        return loop(script, run)

"""python-statemachine: a declared machine, one event."""

from collections.abc import Callable

from statemachine import State, StateMachine

DISTRIBUTION = "python-statemachine"


class Desk(StateMachine):
    triage = State(initial=True)
    billing = State()
    tech = State()
    handoff = triage.to(billing) | billing.to(tech) | tech.to(triage)


def prepare(handoffs: int) -> Callable[[], int]:
    desk = Desk()

    def run() -> int:
        made = 0
        for _ in range(handoffs):
            desk.handoff()
            made += 1
        return made

    return run

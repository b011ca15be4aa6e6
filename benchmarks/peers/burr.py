"""Burr without a persister or tracker: actions joined by transitions."""

from collections.abc import Callable

from burr.core import Application, ApplicationBuilder, State, action, default, when

from benchmarks.peers import AGENTS, RING

DISTRIBUTION = "apache-burr"


@action(reads=["made", "goal"], writes=["made", "over"])
def agent(state: State) -> State:
    made = state["made"] + 1
    return state.update(made=made, over=made > state["goal"])


@action(reads=[], writes=[])
def stop(state: State) -> State:
    return state


def application(handoffs: int) -> Application:
    return (
        ApplicationBuilder()
        .with_actions(stop=stop, **dict.fromkeys(AGENTS, agent))
        .with_transitions(
            *((name, "stop", when(over=True)) for name in AGENTS),
            *((name, target, default) for name, target in RING.items()),
        )
        .with_state(made=0, goal=handoffs, over=False)
        .with_entrypoint(AGENTS[0])
        .build()
    )


def prepare(handoffs: int) -> Callable[[], int]:
    app = application(handoffs)

    def run() -> int:
        app.run(halt_after=["stop"])
        return app.state["made"] - 1  # the first action needs no handoff

    return run

"""What the agents do, the same in every framework: a script that stub models follow.

Every answer of a model is a step. A model either hands over to whoever is next on the route, or
saves a section with a tool and hands over then, or says that it is done.
"""

from collections.abc import Callable
from dataclasses import dataclass

TOKENS = 10
"""Of one answer; in a growing history the nth answer costs n times as many."""
CAP = 200
"""Steps after which a framework that has no limit of its own is stopped from outside."""
GROWN_CAP = 1_000
"""The same for a growing history, which costs more with every step, in every framework."""


class Capped(Exception):  # noqa: N818 - it is what happened to the team
    """The stub models stop the team: the framework would not have."""


@dataclass(frozen=True)
class Scene:
    """`ends`: after so many handoffs the work is done; None: never."""

    name: str
    agents: tuple[str, ...]
    ends: int | None = None
    grows: bool = False
    saves: str = ""
    """The agent that saves a section, a new one each time, before it hands over."""


SCENES = (
    Scene("looping pair", ("planner", "coder")),
    Scene("three-agent cycle", ("triage", "billing", "tech")),
    Scene("growing history", ("planner", "coder"), grows=True),
    Scene("legitimate long run", ("writer", "editor"), ends=16, saves="writer"),
)


@dataclass
class Script:
    """One run of a scene. `route` says who has the turn after so many handoffs."""

    scene: Scene
    cap: int = CAP
    route: Callable[[int], str] | None = None
    steps: int = 0
    handoffs: int = 0
    tokens: int = 0
    saved: int = 0
    far: int = 0
    """Where to put the framework's own limits, if they are to be out of reach."""

    def answer(self) -> int:
        """A model is asked: what the answer costs."""
        if self.steps >= self.cap:
            raise Capped(f"the cap of {self.cap} steps")
        self.steps += 1
        cost = TOKENS * (self.steps if self.scene.grows else 1)
        self.tokens += cost
        return cost

    def agent(self, number: int) -> str:
        if self.route is not None:
            return self.route(number)
        return self.scene.agents[number % len(self.scene.agents)]

    def wants_to_save(self, agent: str) -> int:
        """The number of the section to save now, or 0."""
        if agent != self.scene.saves or self.saved > self.handoffs // 2 or self.done:
            return 0
        self.saved += 1
        return self.saved

    @property
    def done(self) -> bool:
        return self.scene.ends is not None and self.handoffs >= self.scene.ends

    def next(self) -> str:
        """The agent that is handed to; empty when the work is done."""
        if self.done:
            return ""
        self.handoffs += 1
        return self.agent(self.handoffs)

    def text(self) -> str:
        return "word " * (self.steps if self.scene.grows else 1)

"""What a seed stands for: everything that is drawn before the first command.

Not every fault happens in every run. A run in which all of them happen at once ends early, always
in the same ways; so each seed switches some on, with weights of its own, and gives every place a
character. `draw` is a function of the seed alone, and `describe` prints what it drew.
"""

from random import Random
from typing import Any, Literal

import msgspec

from handrail.kernel.decision import Value
from handrail.kernel.definition import Settings
from handrail.testing.generate import random_team, random_workflow
from handrail.testing.shapes import REVISED, SHAPES

CHARACTERS = (
    "diligent",
    "failing",
    "endless",
    "asking",
    "erratic",
    "lying",
    "sleeping",
    "crashing",
    "malformed",
)
"""endless: continues for ever, or hands to the same agent; sleeping: never answers."""
EVIDENCE = ("none", "red", "idle", "flip", "fresh", "score", "mixed")
"""What results rest on: the same red check, nothing changed, back and forth, always new, ..."""
WORK = {"tick": 2, "claim": 16, "report": 16, "grant": 6, "answer": 6}
FAULTS = (
    "claim_without_role",
    "claim_nothing",
    "report_again",
    "report_for_another",
    "report_unclaimed",
    "lose",
    "lose_nothing",
    "miss_role",
    "grant_wrong",
    "push_clocks",
    "start_again",
)
PEOPLE = (
    "answer_again",
    "answer_stale",
    "answer_unclear",
    "answer_without_right",
    "answer_many",
    "revise",
    "reject",
    "move",
    "migrate",
    "pause",
    "resume",
    "patch",
    "close",
    "override_without_right",
)
RARE = frozenset({"reject", "close", "pause"})
THOUSAND = 1_000


class Options(Value):
    """One seed's draw."""

    seed: int
    shape: str
    definition: dict[str, Any]
    settings: Settings
    context: dict[str, Any]
    review: Literal["required", "skip"] | None
    paths: tuple[str, ...] | None
    from_place: str
    commands: int
    """How many the safety phase gives."""
    weights: dict[str, int]
    characters: dict[str, str]
    evidence: str
    measured: float
    """How often evidence was measured by Handrail itself."""
    usage: int
    revisions: int
    """How many raising acts people take at the most."""
    eager: float
    """How often a diligent agent of a team goes straight for the end."""
    pace: float
    """Seconds between commands, about."""
    hurry: float
    """How often the clock jumps to the next deadline."""
    crash: float
    """How often the process is gone after a command."""
    ending: Literal["diligent", "silent", "mixed"]


def draw(seed: int) -> Options:
    rng = Random(seed)
    reviser = rng.random() < 0.0005
    shape, definition = _definition(rng, reviser=reviser)
    is_team = definition["kind"] == "team"
    revisions = THOUSAND if reviser else _revisions(rng)
    weights = {"tick": 1, "claim": 9, "report": 9, "grant": 5, "revise": 5}
    if not reviser:
        weights = WORK | _some(rng, FAULTS) | _some(rng, PEOPLE)
    return Options(
        seed=seed,
        shape=shape,
        definition=definition,
        settings=_settings(rng) if not reviser else Settings(),
        context=_context(rng),
        review=rng.choice((None, None, "skip", "required")) if is_team and not reviser else None,
        paths=rng.choice((None, ("src/a.py",))),
        from_place=rng.choice(_places(definition)) if rng.random() < 0.05 else "",
        commands=THOUSAND * 30 if reviser else rng.choice((30, 150, 300, 600)) + 15 * revisions,
        weights=weights,
        characters=_characters(rng, definition, tame=reviser),
        evidence=rng.choice(EVIDENCE) if not reviser else "none",
        measured=rng.choice((0.0, 0.5, 1.0)),
        usage=rng.choice((0, 0, 0, 10, 50)),
        revisions=revisions,
        eager=rng.choice((0.02, 0.1, 0.4)) if not reviser else 1.0,
        pace=rng.choice((0.01, 0.5, 15.0)) if not reviser else 0.1,
        hurry=rng.choice((0.0, 0.0, 0.005, 0.05)) if not reviser else 0.0,
        crash=rng.choice((0.0, 0.05, 0.3)) if not reviser else 0.01,
        ending=rng.choice(("diligent", "silent", "mixed")),
    )


def _definition(rng: Random, *, reviser: bool) -> tuple[str, dict[str, Any]]:
    if reviser:
        shape = rng.choice(REVISED)
        return shape, SHAPES[shape]
    kind = rng.random()
    if kind < 0.2:
        shape = rng.choice(sorted(SHAPES))
        return shape, SHAPES[shape]
    if kind < 0.65:
        document = random_workflow(
            rng,
            size=rng.choice((3, 6, 10, 16)),
            forks=rng.random() < 0.6,
            limits=rng.random() < 0.4,
            clocks=rng.random() < 0.5,
            shared_keys=rng.random() < 0.5,
        )
        return "workflow", document
    document = random_team(
        rng, agents=rng.randint(2, 6), limits=rng.random() < 0.4, soft_limits=rng.random() < 0.6
    )
    return "team", document


def _revisions(rng: Random) -> int:
    kind = rng.random()
    return rng.choice((0, 1, 3, 6)) if kind < 0.95 else rng.randint(10, 40)


def _some(rng: Random, names: tuple[str, ...]) -> dict[str, int]:
    share = rng.choice((0.0, 0.3, 0.7))
    chosen = [name for name in names if rng.random() < (share / 3 if name in RARE else share)]
    return {name: 1 if name in RARE else rng.randint(1, 4) for name in chosen}


def _settings(rng: Random) -> Settings:
    if rng.random() < 0.5:
        return Settings()
    return Settings(
        role_grace=rng.choice((1, 60)),
        node_timeout=rng.choice((5, 600, 1800)),
        queue_timeout=rng.choice((5, 3600, 86400)),
        human_deadline=rng.choice((60, 86400, 7 * 86400)),
        pause_deadline=rng.choice((60, 86400)),
    )


def _context(rng: Random) -> dict[str, Any]:
    context: dict[str, Any] = {f"k{i}": rng.randint(0, 1) for i in range(1, 9)}
    if rng.random() < 0.7:
        context |= {"severity": rng.randint(0, 5), "area": "web", "tested": rng.random() < 0.5}
    if rng.random() < 0.3:
        context["task_scope"] = rng.choice(("tiny", "small", "large", "absurd"))
    if rng.random() < 0.3:
        context["goal"] = {"command": "pytest"}
    return context


def _characters(rng: Random, definition: dict[str, Any], *, tame: bool) -> dict[str, str]:
    """Mostly diligent, so that runs get somewhere; some seeds are all of one kind."""
    odd = 0.0 if tame else rng.choice((0.1, 0.3, 0.7))
    only = rng.choice(CHARACTERS) if not tame and rng.random() < 0.25 else ""
    return {
        place: only or (rng.choice(CHARACTERS) if rng.random() < odd else "diligent")
        for place in _places(definition)
    }


def _places(definition: dict[str, Any]) -> list[str]:
    parts = definition["nodes"] if definition["kind"] == "workflow" else definition["agents"]
    return [part["id"] for part in parts]


def describe(seed: int) -> str:
    """Everything that the seed stands for, as JSON that people can read."""
    return msgspec.json.format(msgspec.json.encode(draw(seed)), indent=2).decode()

"""The options of a seed: everything that is drawn before the first command.

Not every fault happens in every run. A run with all faults at once ends early, always in the same
ways; so each seed enables some of them, with its own weights, and gives every step a character.
`draw_options` is a function of the seed alone, and `describe_seed` prints the options.
"""

from random import Random
from typing import Any, Literal

import msgspec

from handrail.kernel.decision import Value
from handrail.kernel.definition.model import Settings
from handrail.testing.random_definitions import random_team, random_workflow
from handrail.testing.sample_definitions import REVISABLE_SHAPES, SHAPES

CHARACTERS = (
    "diligent",
    "failing",
    "endless",
    "asking",
    "waiting",
    "erratic",
    "lying",
    "sleeping",
    "crashing",
    "malformed",
)
"""endless: continues for ever, or hands off to the same agent; sleeping: never answers."""
EVIDENCE_KINDS = ("none", "red", "idle", "flip", "fresh", "score", "mixed")
"""Evidence of results: the same red check, nothing changed, back and forth, always new, ..."""
WORK_ACTION_WEIGHTS = {"tick": 2, "claim": 16, "report": 16, "grant": 6, "answer": 6}
FAULT_ACTIONS = (
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
PEOPLE_ACTIONS = (
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
RARE_ACTIONS = frozenset({"reject", "close", "pause"})
REVISER_REVISIONS = 1_000
BUDGET_CHANCE = 0.25
"""How often a definition names a budget."""


class SeedOptions(Value):
    """The options drawn from one seed."""

    seed: int
    shape: str
    definition: dict[str, Any]
    settings: Settings
    context: dict[str, Any]
    review: Literal["required", "skip"] | None
    paths: tuple[str, ...] | None
    from_place: str
    commands: int
    """Commands in the safety phase."""
    weights: dict[str, int]
    characters: dict[str, str]
    evidence: str
    measured: float
    """How often Handrail itself measured the evidence."""
    usage: int
    revisions: int
    """Most acts of people that raise the measure."""
    eager: float
    """How often a diligent agent of a team takes the shortest way to the end."""
    pace: float
    """Seconds between commands, about."""
    hurry: float
    """How often the clock jumps to the next deadline."""
    crash: float
    """How often the process crashes after a command."""
    ending: Literal["diligent", "silent", "mixed"]


def draw_options(seed: int, *, budgets: bool = True) -> SeedOptions:
    """Draw the options; without `budgets` no definition names any, and all else is the same."""
    rng = Random(seed)
    reviser = rng.random() < 0.0005
    shape, definition = _draw_definition(rng, reviser=reviser)
    has_budget = Random(f"names a budget {seed}").random() < BUDGET_CHANCE
    if budgets and has_budget and not reviser:
        rules = {**definition.get("stop_rules", {}), "budgets": [f"shared {seed}"]}
        definition = {**definition, "stop_rules": rules}
    is_team = definition["kind"] == "team"
    revisions = REVISER_REVISIONS if reviser else _draw_revisions(rng)
    weights = {"tick": 1, "claim": 9, "report": 9, "grant": 5, "revise": 5}
    if not reviser:
        weights = (
            WORK_ACTION_WEIGHTS
            | _draw_action_weights(rng, FAULT_ACTIONS)
            | _draw_action_weights(rng, PEOPLE_ACTIONS)
        )
    return SeedOptions(
        seed=seed,
        shape=shape,
        definition=definition,
        settings=_draw_settings(rng) if not reviser else Settings(),
        context=_draw_context(rng),
        review=rng.choice((None, None, "skip", "required")) if is_team and not reviser else None,
        paths=rng.choice((None, ("src/a.py",))),
        from_place=rng.choice(_step_ids(definition)) if rng.random() < 0.05 else "",
        commands=REVISER_REVISIONS * 30
        if reviser
        else rng.choice((30, 150, 300, 600)) + 15 * revisions,
        weights=weights,
        characters=_draw_characters(rng, definition, tame=reviser),
        evidence=rng.choice(EVIDENCE_KINDS) if not reviser else "none",
        measured=rng.choice((0.0, 0.5, 1.0)),
        usage=rng.choice((0, 0, 0, 10, 50)),
        revisions=revisions,
        eager=rng.choice((0.02, 0.1, 0.4)) if not reviser else 1.0,
        pace=rng.choice((0.01, 0.5, 15.0)) if not reviser else 0.1,
        hurry=rng.choice((0.0, 0.0, 0.005, 0.05)) if not reviser else 0.0,
        crash=rng.choice((0.0, 0.05, 0.3)) if not reviser else 0.01,
        ending=rng.choice(("diligent", "silent", "mixed")),
    )


def _draw_definition(rng: Random, *, reviser: bool) -> tuple[str, dict[str, Any]]:
    if reviser:
        shape = rng.choice(REVISABLE_SHAPES)
        return shape, SHAPES[shape]
    chance = rng.random()
    if chance < 0.2:
        shape = rng.choice(sorted(SHAPES))
        return shape, SHAPES[shape]
    if chance < 0.6:
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


def _draw_revisions(rng: Random) -> int:
    chance = rng.random()
    return rng.choice((0, 1, 3, 6)) if chance < 0.95 else rng.randint(10, 40)


def _draw_action_weights(rng: Random, names: tuple[str, ...]) -> dict[str, int]:
    share = rng.choice((0.0, 0.3, 0.7))
    chosen_actions = [
        name for name in names if rng.random() < (share / 3 if name in RARE_ACTIONS else share)
    ]
    return {name: 1 if name in RARE_ACTIONS else rng.randint(1, 4) for name in chosen_actions}


def _draw_settings(rng: Random) -> Settings:
    if rng.random() < 0.5:
        return Settings()
    return Settings(
        role_grace=rng.choice((1, 60)),
        node_timeout=rng.choice((5, 600, 1800)),
        queue_timeout=rng.choice((5, 3600, 86400)),
        human_deadline=rng.choice((60, 86400, 7 * 86400)),
        pause_deadline=rng.choice((60, 86400)),
    )


def _draw_context(rng: Random) -> dict[str, Any]:
    context: dict[str, Any] = {f"k{i}": rng.randint(0, 1) for i in range(1, 9)}
    if rng.random() < 0.7:
        context |= {"severity": rng.randint(0, 5), "area": "web", "tested": rng.random() < 0.5}
    if rng.random() < 0.3:
        context["task_scope"] = rng.choice(("tiny", "small", "large", "absurd"))
    if rng.random() < 0.3:
        context["goal"] = {"command": "pytest"}
    return context


def _draw_characters(rng: Random, definition: dict[str, Any], *, tame: bool) -> dict[str, str]:
    """Draw mostly diligent characters, so that runs make progress; some seeds have only one."""
    odd_chance = 0.0 if tame else rng.choice((0.1, 0.3, 0.7))
    only_character = rng.choice(CHARACTERS) if not tame and rng.random() < 0.25 else ""
    return {
        step_id: only_character
        or (rng.choice(CHARACTERS) if rng.random() < odd_chance else "diligent")
        for step_id in _step_ids(definition)
    }


def _step_ids(definition: dict[str, Any]) -> list[str]:
    parts = definition["nodes"] if definition["kind"] == "workflow" else definition["agents"]
    return [part["id"] for part in parts]


def describe_seed(seed: int) -> str:
    """Return all options of the seed as readable JSON."""
    return msgspec.json.format(msgspec.json.encode(draw_options(seed)), indent=2).decode()

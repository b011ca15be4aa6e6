"""Tools for your own tests: a manual clock, scripted agents, random definitions, the simulator.

Test that a definition does what it should, and that it ends even if its agents do not:

    from handrail.testing import failure, play, success

    def test_a_red_verification_goes_back_to_the_fix():
        fix, green = [success("fixed")], [failure("2 tests red"), success("all green")]
        played = play(definition, {"fix": fix, "verify": green})
        assert played.run.terminal_status == "done_success"

    def test_it_ends_when_nobody_ever_answers():
        played = play(definition, people=lambda approval: None)
        assert played.run.stop.rule == "human_deadline"

`run_seeds(0, 1000)` plays random runs with all kinds of faults; `handrail sim` prints the same.
"""

from handrail.testing.clock import ManualClock
from handrail.testing.invariants import InvariantChecker, InvariantViolationError
from handrail.testing.random_definitions import random_team, random_workflow
from handrail.testing.sample_definitions import SHAPES
from handrail.testing.scripted_runs import (
    PlayedRun,
    ScriptedDefinitionError,
    ScriptedDispatch,
    ask,
    carry_on,
    failure,
    hand_to,
    play,
    success,
    terminate,
)
from handrail.testing.seed_options import SeedOptions, describe_seed, draw_options
from handrail.testing.simulator import SeedResult, SimulationSummary, history, run_seed, run_seeds

__all__ = [
    "SHAPES",
    "InvariantChecker",
    "InvariantViolationError",
    "ManualClock",
    "PlayedRun",
    "ScriptedDefinitionError",
    "ScriptedDispatch",
    "SeedOptions",
    "SeedResult",
    "SimulationSummary",
    "ask",
    "carry_on",
    "describe_seed",
    "draw_options",
    "failure",
    "hand_to",
    "history",
    "play",
    "random_team",
    "random_workflow",
    "run_seed",
    "run_seeds",
    "success",
    "terminate",
]

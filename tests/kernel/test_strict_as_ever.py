"""Profiles `strict` and `yolo` stop exactly where they stopped before findings were judged.

The rules of that time are kept in `frozen_rules`. Random histories pass through both; every
assessment, every ledger and everything that fires must be equal.
"""

import random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.kernel.frozen_rules import ledger as frozen_ledger
from tests.kernel.frozen_rules import progress as frozen_progress
from tests.kernel.frozen_rules import rules as frozen_rules

from handrail.kernel.definition.limits import PROFILES, Limits
from handrail.kernel.result import Check, Evidence, Usage
from handrail.kernel.stop import ledger as ledgers
from handrail.kernel.stop import rules

SEEDS = 400
EVENTS_MAX = 60
AGENTS = ("planner", "coder", "tester")
COMMANDS = ("pytest", "make", "mypy src")
ERRORS = ("KeyError: 'a' at line 7", "KeyError: 'a' at line 9", "AssertionError: 1 != 2", "")


def limits_of(chance: random.Random) -> Limits:
    """A profile, some of its limits changed or off."""
    limits = PROFILES[chance.choice(("strict", "yolo"))]
    changes: dict[str, Any] = {}
    for name in (
        "max_handoffs", "repeat_limit", "max_steps", "max_edge", "same_error_limit",
        "no_change_limit", "research_limit", "oscillation_limit",
    ):  # fmt: skip
        if chance.random() < 0.3:
            changes[name] = chance.choice((None, 2, 3, 5))
    if chance.random() < 0.2:
        changes["max_tokens"] = chance.choice((50, 500))
    return replace(limits, **changes)


def evidence_of(chance: random.Random) -> Evidence:
    """Any mixture of what a result may tell."""
    kinds = chance.sample(("files", "checks", "score", "failures", "ticket"), chance.randint(0, 3))
    return Evidence(
        files={f"{chance.choice('ab')}.py": chance.choice("123")} if "files" in kinds else None,
        checks=tuple(
            Check(
                command=chance.choice(COMMANDS),
                exit_code=chance.choice((0, 1)),
                stderr=chance.choice(ERRORS),
            )
            for _ in range(chance.randint(1, 2))
        )
        if "checks" in kinds
        else (),
        score=chance.choice((0.1, 0.5, 0.52, 0.9)) if "score" in kinds else None,
        failures=tuple(chance.sample("abcd", chance.randint(0, 4)))
        if "failures" in kinds
        else None,
        ticket_state=chance.choice(("open", "fixed")) if "ticket" in kinds else None,
        measured=chance.random() < 0.5,
    )


EXPLAINING_FIELDS = {"alike", "names", "limit_name"}
"""What a rule that fired says beside where and why it did."""


def plain(value: object) -> object:
    return msgspec.to_builtins(value)


def plain_fired(fired: list[Any]) -> object:
    """The fired rules, without the fields that only explain."""
    return [
        {name: field for name, field in rule.items() if name not in EXPLAINING_FIELDS}
        for rule in msgspec.to_builtins(fired)
    ]


class Pair:
    """One history under both sets of rules."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.old: Any = frozen_ledger.Ledger()
        self.new = ledgers.Ledger()

    def hand(self, source: str, target: str) -> bool:
        old = frozen_rules.judge_handoff(
            frozen_rules.RuleContext(
                self.old, self.limits, source=source, target=target,
                edge=frozen_ledger.find_edge(self.old, source, target),
            )
        )  # fmt: skip
        new = rules.judge_handoff(
            rules.RuleContext(
                self.new, self.limits, source=source, target=target,
                edge=ledgers.find_edge(self.new, source, target),
            )
        )  # fmt: skip
        assert plain_fired(old) == plain_fired(new)
        self.old = frozen_ledger.add_handoff(self.old, self.limits, source, target, "because")
        self.new = ledgers.add_handoff(self.new, self.limits, source, target, "because")
        return bool(old)

    def report(self, agent: str, evidence: Evidence, usage: Usage, milestone: str) -> bool:
        step = self.new.steps + 1
        was = frozen_progress.assess_result(
            self.old, self.limits, agent, evidence, milestone=milestone
        )
        now = ledgers.assess_result(self.new, self.limits, agent, evidence, milestone=milestone)
        assert plain(was) == plain(now)
        self.old = frozen_ledger.add_result(
            replace(self.old, steps=step), self.limits, step, evidence, usage, was
        )
        self.new = ledgers.add_result(
            replace(self.new, steps=step), self.limits, step, evidence, usage, now
        )
        old_context = frozen_rules.RuleContext(
            self.old, self.limits, agent=agent, evidence=evidence, step=step
        )
        context = rules.RuleContext(
            self.new, self.limits, agent=agent, evidence=evidence, step=step
        )
        fired = [*frozen_rules.judge_result(old_context), *frozen_rules.judge_step(old_context)]
        new_fired = [*rules.judge_result(context), *rules.judge_step(context)]
        assert plain_fired(fired) == plain_fired(new_fired)
        return bool(fired)

    def renew(self) -> None:
        self.old, self.new = frozen_ledger.renew(self.old), ledgers.renew(self.new)


@pytest.mark.parametrize("seed", range(0, SEEDS, 50))
def test_strict_and_yolo_stop_exactly_where_they_stopped(seed: int) -> None:
    fired = 0
    for number in range(seed, seed + 50):
        chance = random.Random(number)
        pair = Pair(limits_of(chance))
        for _ in range(chance.randint(1, EVENTS_MAX)):
            kind = chance.random()
            if kind < 0.5:
                fired += pair.hand(chance.choice(AGENTS), chance.choice(AGENTS))
            elif kind < 0.97:
                milestone = chance.choice(("", "", "", "built"))
                usage = Usage(tokens=chance.choice((0, 0, 20)))
                fired += pair.report(chance.choice(AGENTS), evidence_of(chance), usage, milestone)
            else:
                pair.renew()
            assert plain(pair.old) == plain(pair.new)
    assert fired > 50, "the histories reach the rules"

"""Profiles `strict` and `yolo` stop exactly where they stopped before findings were judged.

The rules of that time are kept in `frozen_rules`. Random histories pass through both; every
assessment, every ledger and everything that fires must be equal.

One thing changed since: a claim was progress once for each agent and stretch; now it is also if it
is the best so far, a bounded number of times (K32, docs/adr/0014). So the comparison is exact over
histories without such a claim; over all histories nothing fires that did not fire before, and what
no longer fires has such a claim before it.
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


SINCE = ("claims", "claim_refused", "claims_refused")
"""Fields of the bounded claims, which the frozen rules do not have."""


def plain(value: object) -> Any:
    shown = msgspec.to_builtins(value)
    return {k: v for k, v in shown.items() if k not in SINCE} if isinstance(shown, dict) else shown


def fired_rules(fired: Any) -> set[str]:
    return {str(one.rule) for one in fired}


def plain_fired(fired: list[Any]) -> object:
    """The fired rules, without the fields that only explain."""
    return [
        {name: field for name, field in rule.items() if name not in EXPLAINING_FIELDS}
        for rule in msgspec.to_builtins(fired)
    ]


class Pair:
    """One history under both sets of rules: without claims that only K32 counts, or with them."""

    def __init__(self, limits: Limits, *, exact: bool) -> None:
        self.limits, self.exact = limits, exact
        self.claims = self.postponed = 0
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
        self.compare(old, new)
        self.old = frozen_ledger.add_handoff(self.old, self.limits, source, target, "because")
        self.new = ledgers.add_handoff(self.new, self.limits, source, target, "because")
        return bool(old)

    def report(self, agent: str, evidence: Evidence, usage: Usage, milestone: str) -> bool:
        step = self.new.steps + 1
        was = frozen_progress.assess_result(
            self.old, self.limits, agent, evidence, milestone=milestone
        )
        now = ledgers.assess_result(self.new, self.limits, agent, evidence, milestone=milestone)
        if plain(was) != plain(now):
            assert agent in self.old.claimants
            assert now.claims
            assert plain(was) == plain(replace(now, progress=was.progress))
            if self.exact:
                return False  # left out of the history
            self.claims += 1
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
        self.compare(fired, [*rules.judge_result(context), *rules.judge_step(context)])
        return bool(fired)

    def compare(self, old: Any, new: Any) -> None:
        if self.claims == 0:
            assert plain_fired(old) == plain_fired(new)
        assert fired_rules(new) <= fired_rules(old)
        self.postponed += fired_rules(new) != fired_rules(old)

    def renew(self) -> None:
        self.old, self.new = frozen_ledger.renew(self.old), ledgers.renew(self.new)


def play(number: int, *, exact: bool) -> tuple[Pair, int]:
    """One random history, and how often a rule fired in it."""
    chance, fired = random.Random(number), 0
    pair = Pair(limits_of(chance), exact=exact)
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
        if pair.claims == 0:
            assert plain(pair.old) == plain(pair.new)
    return pair, fired


@pytest.mark.parametrize("seed", range(0, SEEDS, 50))
def test_strict_and_yolo_stop_exactly_where_they_stopped(seed: int) -> None:
    fired = sum(play(number, exact=True)[1] for number in range(seed, seed + 50))
    assert fired > 50, "the histories reach the rules"


def test_no_rule_fires_earlier_and_later_only_after_a_claim_that_was_the_best_so_far() -> None:
    pairs = [play(number, exact=False)[0] for number in range(SEEDS)]
    assert sum(pair.claims for pair in pairs) > SEEDS / 2, "the histories have such claims"
    assert sum(pair.postponed for pair in pairs) > 0, "and some of them matter"

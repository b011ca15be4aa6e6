"""The stop rules, each at its edge: what is still allowed, what ends the run, and the evidence."""

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace
from tests.kernel.driven_run import files, green, red

from handrail.kernel.definition.limits import (
    LIMITS,
    PROFILES,
    STRICT,
    Constraints,
    Limits,
    StopRules,
    resolve_limits,
    scale_limits,
)
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.result import TOOL_PATH_PREFIX, Check, Evidence, Usage
from handrail.kernel.stop.constraint_patterns import is_command_forbidden, is_path_forbidden
from handrail.kernel.stop.ledger import (
    CITATIONS_MAX,
    ErrorCount,
    EvidenceState,
    Ledger,
    ResearchScores,
    Tally,
    add_handoff,
    add_result,
    assess_result,
    edge_key,
    find_edge,
    renew,
)
from handrail.kernel.stop.repetition import repetition_period
from handrail.kernel.stop.rules import (
    RULE_ORDER,
    RULES,
    FiredRule,
    RuleContext,
    StopRule,
    judge_handoff,
    judge_result,
    judge_step,
    terminal_status_of,
)

OFF = Limits(
    max_handoffs=None,
    repeat_limit=None,
    max_duration=None,
    max_steps=None,
    max_edge=None,
    same_error_limit=None,
    no_change_limit=None,
    research_limit=None,
    oscillation_limit=None,
)


def only(**given: Any) -> Limits:
    """Every rule off but the given ones."""
    return replace(OFF, **given)


class Bench:
    """A ledger under limits: handoffs and results go in, what fires comes out."""

    def __init__(self, limits: Limits, ledger: Ledger | None = None):
        self.limits = limits
        self.ledger = ledger or Ledger()

    def hand(self, source: str, target: str) -> list[FiredRule]:
        """What the rules say to this handoff; it is made in any case."""
        edge = find_edge(self.ledger, source, target)
        moment = RuleContext(self.ledger, self.limits, source=source, target=target, edge=edge)
        fired = judge_handoff(moment)
        self.ledger = add_handoff(self.ledger, self.limits, source, target, "because")
        return fired

    def result(
        self,
        evidence: Evidence,
        agent: str = "coder",
        usage: Usage | None = None,
        milestone: str = "",
    ) -> list[FiredRule]:
        weighed = assess_result(self.ledger, self.limits, agent, evidence, milestone=milestone)
        step = self.ledger.steps + 1
        self.ledger = replace(self.ledger, steps=step)
        self.ledger = add_result(
            self.ledger, self.limits, step, evidence, usage or Usage(), weighed
        )
        moment = RuleContext(self.ledger, self.limits, agent=agent, evidence=evidence, step=step)
        return judge_result(moment)

    def progress(self, name: str) -> None:
        assert not self.result(Evidence(), milestone=name)

    def step(self, elapsed: float = 0.0) -> list[FiredRule]:
        return judge_step(RuleContext(self.ledger, self.limits, ran=elapsed))


def rules(fired: list[FiredRule]) -> list[str]:
    return [one.rule.value for one in fired]


def walk(bench: Bench, way: str) -> int:
    """Hand along the letters of the way; the number of the first handoff that fires, or 0."""
    for number, (source, target) in enumerate(pairwise(way), start=1):
        if bench.hand(source, target):
            return number
    return 0


# Handoffs


@pytest.mark.requirement("H3.3")
def test_twenty_handoffs_are_allowed_and_the_next_is_refused():
    bench = Bench(only(max_handoffs=20))
    for n in range(20):
        assert not bench.hand("a", f"b{n}")
    fired = bench.hand("a", "c")
    assert rules(fired) == ["max_handoffs"]
    assert (fired[0].limit, fired[0].seen) == (20, 21)
    assert fired[0].evidence == tuple(f"handoff {n}" for n in range(1, 21))
    assert "a proposes one more, to c" in fired[0].reason


def test_a_handoff_limit_of_none_allows_none():
    assert rules(Bench(only(max_handoffs=0)).hand("a", "b")) == ["max_handoffs"]


@pytest.mark.requirement("S7")
def test_eight_uses_of_an_edge_are_allowed_and_the_ninth_is_refused():
    bench = Bench(only(max_edge=8))
    for _ in range(8):
        assert not bench.hand("planner", "researcher")
        assert not bench.hand("researcher", "planner")
    fired = bench.hand("planner", "researcher")
    assert rules(fired) == ["max_edge"]
    assert fired[0].reason.startswith("planner_researcher_loop")
    assert (fired[0].limit, fired[0].seen) == (8, 9)
    assert fired[0].evidence == tuple(f"handoff {n}" for n in range(1, 16, 2))
    assert rules(Bench(only(max_edge=0)).hand("a", "b")) == ["max_edge"]


@pytest.mark.requirement("S7", "S16")
def test_an_edge_counts_since_the_last_progress():
    bench = Bench(only(max_edge=8))
    for n in range(40):
        assert not bench.hand("a", "b")
        if n % 8 == 7:
            bench.progress(f"m{n}")
    assert bench.ledger.edges[edge_key("a", "b")].total == 40


@pytest.mark.requirement("H3.1")
@pytest.mark.parametrize("period", [1, 2, 3, 4, 5, 7, 20, 63, 64])
def test_a_pattern_of_any_period_ends_at_its_third_repetition(period: int):
    bench = Bench(only(repeat_limit=3))
    agents = [f"a{n}" for n in range(period)]
    for n in range(3 * period - 1):
        assert not bench.hand(agents[n % period], agents[(n + 1) % period])
    fired = bench.hand(agents[-1], agents[0])
    assert rules(fired) == ["repeated_pattern"]
    assert fired[0].limit == fired[0].seen == 3
    assert len(fired[0].pattern) == period
    assert fired[0].pattern[-1] == f"{agents[-1]} -> {agents[0]}"
    assert fired[0].evidence == tuple(f"handoff {n}" for n in range(1, 3 * period + 1))


@pytest.mark.requirement("H3.1")
def test_two_agents_that_bounce_end_at_the_sixth_handoff():
    assert walk(Bench(only(repeat_limit=3)), "ab" * 10) == 6


@pytest.mark.requirement("H3.1")
def test_a_pattern_longer_than_the_longest_period_is_not_seen():
    bench = Bench(only(repeat_limit=2, pattern_period_max=3))
    assert walk(bench, "abcd" * 5) == 0
    assert walk(Bench(only(repeat_limit=2, pattern_period_max=4)), "abcd" * 5) == 8


@pytest.mark.requirement("H3.1", "S16")
def test_progress_between_two_repetitions_begins_the_count_again():
    bench = Bench(only(repeat_limit=3))
    for n in range(30):
        assert not bench.hand("a", "b")
        assert not bench.hand("b", "a")
        bench.progress(f"m{n}")


@pytest.mark.requirement("H3.1")
def test_a_pattern_after_some_other_handoffs_is_named_by_its_own():
    bench = Bench(only(repeat_limit=3))
    for target in "xyz":
        assert not bench.hand("a", target)
    last: list[FiredRule] = []
    for _ in range(5):
        last = [*bench.hand("p", "q"), *bench.hand("q", "p")]
        if last:
            break
    assert last[0].pattern == ("p -> q", "q -> p")
    assert last[0].evidence == tuple(f"handoff {n}" for n in range(4, 10))


@pytest.mark.requirement("K22")
def test_a_thue_morse_walk_of_two_agents_is_never_a_pattern():
    bench = Bench(only(repeat_limit=3))
    way = "".join("ab"[n.bit_count() % 2] for n in range(10_001))
    assert walk(bench, way) == 0
    assert bench.ledger.handoffs == 10_000


def brute_force(trail: str, times: int, period_max: int) -> int:
    for period in range(1, period_max + 1):
        if len(trail) >= period * times and trail.startswith(trail[:period] * times):
            return period
    return 0


@pytest.mark.no_cover
@given(
    st.integers(1, 4).flatmap(lambda size: st.text("abcd"[:size], max_size=80)),
    st.integers(2, 5),
    st.sampled_from([1, 2, 3, 4, 5, 8, 64]),
)
@settings(max_examples=600, deadline=None)
def test_the_shortest_period_is_found_in_any_walk(trail: str, times: int, period_max: int):
    assert repetition_period(trail, times, period_max) == brute_force(trail, times, period_max)


@pytest.mark.no_cover
@given(
    st.integers(1, 300).flatmap(lambda size: st.text("abcd", min_size=size, max_size=size)),
    st.integers(2, 5),
    st.text("abcd", max_size=30),
)
@settings(max_examples=300, deadline=None)
def test_a_repeated_walk_is_found_whatever_came_before(block: str, times: int, before: str):
    trail = block * times + before
    found = repetition_period(trail, times, 300)
    assert found == brute_force(trail, times, 300)
    assert 0 < found <= len(block)


def test_the_cost_of_a_handoff_does_not_grow_with_the_run():
    """Late handoffs against early ones of the same run: twice the time is far from growing."""
    bench = Bench(only(repeat_limit=3, max_handoffs=None, max_edge=10**6))
    way = "".join("ab"[n.bit_count() % 2] for n in range(12_001))

    def spent(begin: int) -> float:
        began = time.process_time()
        for n in range(begin, begin + 4_000):
            bench.hand(way[n], way[n + 1])
        return time.process_time() - began

    early, _, late = (spent(begin) for begin in (0, 4_000, 8_000))
    assert late < 3 * early


# Steps, time, budgets


@pytest.mark.requirement("S7")
def test_the_step_after_the_last_allowed_one_is_refused():
    bench = Bench(only(max_steps=3))
    for _ in range(3):
        assert not bench.step()
        bench.result(Evidence())
    fired = bench.step()
    assert rules(fired) == ["max_steps"]
    assert (fired[0].limit, fired[0].seen) == (3, 4)
    assert fired[0].evidence == ("step 1", "step 2", "step 3")


@pytest.mark.requirement("K14", "K19")
def test_limits_are_per_stretch_and_numbers_go_on():
    bench = Bench(only(max_steps=2, max_handoffs=1))
    bench.hand("a", "b")
    bench.result(Evidence())
    bench.result(Evidence())
    assert bench.step()
    fresh = Bench(bench.limits, renew(bench.ledger))
    assert not fresh.step()
    assert not fresh.hand("a", "b")
    fired = fresh.hand("b", "a")
    assert fired[0].evidence == ("handoff 2",)
    fresh.result(Evidence())
    fresh.result(Evidence())
    assert fresh.step()[0].evidence == ("step 3", "step 4")


@pytest.mark.requirement("H3.5")
def test_a_run_may_take_less_than_its_duration():
    bench = Bench(only(max_duration=600))
    assert not bench.step(elapsed=599.9)
    assert rules(bench.step(elapsed=600)) == ["max_duration"]
    assert "600 s" in bench.step(elapsed=600)[0].reason


@pytest.mark.requirement("S14")
@pytest.mark.parametrize("what", ["tokens", "cost"])
def test_a_budget_may_be_spent_but_not_exceeded_and_not_stepped_on(what: str):
    spent = {n: convert({what: n}, Usage) for n in (1, 9)}
    bench = Bench(only(**{f"max_{what}": 10}))
    assert not bench.result(Evidence(), usage=spent[9])
    assert not bench.step()
    assert not bench.result(Evidence(), usage=spent[1])
    assert rules(bench.step()) == ["budget"]
    fired = bench.result(Evidence(), usage=spent[1])
    assert rules(fired) == ["budget"]
    assert (fired[0].limit, fired[0].seen) == (10, 11)
    assert what in fired[0].reason
    assert fired[0].evidence == ("step 3",)


# Errors, files, research


@pytest.mark.requirement("S3", "S9")
def test_the_third_identical_failure_ends_the_run():
    bench = Bench(only(same_error_limit=3))
    assert not bench.result(red(stderr="at 0x7f3a2c1d5e90: boom"))
    assert not bench.result(red(stderr="at 0x7f3a2c1d5e91: boom"))
    fired = bench.result(red(stderr="at 0x7f3a2c1d5e92: boom"))
    assert rules(fired) == ["same_error"]
    assert fired[0].evidence == ("step 1", "step 2", "step 3")
    assert "pytest" in fired[0].reason
    bench.progress("fixed otherwise")


@pytest.mark.requirement("S3")
def test_another_error_or_another_command_is_another_count():
    bench = Bench(only(same_error_limit=3))
    for n in range(2):
        assert not bench.result(red(stderr="KeyError: a"))
        assert not bench.result(red(stderr="TypeError: b"))
        assert not bench.result(red(command=f"make {n}", stderr="KeyError: a"))
    assert rules(bench.result(red(stderr="KeyError: a"))) == ["same_error"]


@pytest.mark.requirement("S3", "S16")
def test_failures_count_since_the_last_progress_and_only_while_they_last():
    bench = Bench(only(same_error_limit=3))
    for n in range(10):
        assert not bench.result(red())
        assert not bench.result(red())
        bench.progress(f"m{n}")
    assert not bench.result(red())
    assert not bench.result(green())
    assert not bench.result(Evidence(measured=True))


@pytest.mark.requirement("S4", "S10")
def test_the_third_turn_without_a_change_ends_the_run():
    bench = Bench(only(no_change_limit=3))
    assert not bench.result(files(app_py="1"))
    assert not bench.result(files(app_py="1"))
    assert not bench.result(Evidence(files={}))
    assert not bench.result(Evidence())
    fired = bench.result(files(app_py="1"))
    assert rules(fired) == ["no_change"]
    assert fired[0].evidence == ("step 2", "step 3", "step 5")
    assert "coder" in fired[0].reason


@pytest.mark.requirement("S10")
def test_the_third_return_to_earlier_contents_ends_the_run():
    bench = Bench(only(oscillation_limit=3, no_change_limit=3))
    for digest in "1212":
        assert not bench.result(files(app_py=digest))
    fired = bench.result(files(app_py="1"))
    assert rules(fired) == ["oscillation"]
    assert fired[0].evidence == ("step 3", "step 4", "step 5")


@pytest.mark.parametrize(("rule", "digests"), [("no_change", "1111"), ("oscillation", "12121")])
def test_turns_of_tools_only_are_told_so(rule: str, digests: str):
    bench = Bench(only(**{f"{rule}_limit": 3}))
    *earlier, last = [Evidence(files={f"{TOOL_PATH_PREFIX}search": digest}) for digest in digests]
    assert not any(bench.result(evidence) for evidence in earlier)
    fired = bench.result(last)
    assert rules(fired) == [rule]
    assert "tools had found" in fired[0].reason
    assert fired[0].remedy == f"a tool that finds something new, or a higher {rule}_limit"


@pytest.mark.requirement("S3", "S4")
def test_a_limit_above_what_evidence_cites_is_reached_as_well():
    bench = Bench(only(no_change_limit=2 * CITATIONS_MAX))
    bench.result(files(app_py="1"))
    for _ in range(2 * CITATIONS_MAX - 1):
        assert not bench.result(files(app_py="1"))
    fired = bench.result(files(app_py="1"))
    assert rules(fired) == ["no_change"]
    assert len(fired[0].evidence) == CITATIONS_MAX


@pytest.mark.requirement("S2")
def test_the_third_visit_without_a_better_score_ends_the_research():
    bench = Bench(only(research_limit=3))
    for value in (0.2, 0.4, 0.41, 0.3):
        assert not bench.result(Evidence(score=value, measured=True), agent="researcher")
    fired = bench.result(Evidence(score=0.4, measured=True), agent="researcher")
    assert rules(fired) == ["research_exhausted"]
    assert "exhausted" in fired[0].reason
    assert fired[0].evidence == ("step 3", "step 4", "step 5")


@pytest.mark.requirement("S2")
def test_research_that_is_good_enough_says_so():
    bench = Bench(only(research_limit=2))
    for value in (0.85, 0.86):
        assert not bench.result(Evidence(score=value, measured=True))
    fired = bench.result(Evidence(score=0.87, measured=True))
    assert "good enough (best 0.85)" in fired[0].reason


@pytest.mark.requirement("S6", "S16", "K22")
def test_a_run_with_progress_each_round_meets_no_soft_rule():
    bench = Bench(replace(STRICT, max_handoffs=None, max_steps=None, max_duration=None))
    for n in range(300):
        for source, target in (
            ("planner", "coder"),
            ("coder", "verifier"),
            ("verifier", "planner"),
        ):
            assert not bench.hand(source, target)
        assert not bench.result(files(app_py=str(n)), agent="coder")
        failing = tuple(f"t{i}" for i in range(400 - n))
        shrinking = red(stderr=f"{400 - n} failed", failures=failing)
        assert not bench.result(shrinking, agent="verifier")


@pytest.mark.parametrize("rule", ["same_error_limit", "no_change_limit", "oscillation_limit"])
def test_a_rule_that_is_off_never_fires(rule: str):
    bench = Bench(replace(STRICT, max_steps=None, **{rule: None}))
    name = rule.removesuffix("_limit")
    for digest in "121212121212":
        assert name not in rules(bench.result(red(files={"app.py": digest})))
    assert not Bench(OFF).hand("a", "b")


def test_evidence_lists_no_more_than_can_be_read():
    bench = Bench(only(max_handoffs=500, max_steps=500))
    for n in range(500):
        bench.hand("a", f"b{n}")
        bench.result(Evidence())
    assert len(bench.hand("a", "b")[0].evidence) == 4 * CITATIONS_MAX
    assert len(bench.step()[0].evidence) == CITATIONS_MAX


# Constraints


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(
    ("path", "rule", "forbidden"),
    [
        ("secrets/key.pem", "secrets/*", True),
        ("secrets/deep/down/key.pem", "secrets/*", True),
        ("secrets/key.pem", "secrets", True),
        ("secrets/key.pem", "secrets/", True),
        ("secrets", "secrets", True),
        ("./secrets/key.pem", "secrets/*", True),
        ("src/../secrets/key.pem", "secrets/*", True),
        ("secrets//key.pem", "secrets/*", True),
        ("secrets\\key.pem", "secrets/*", True),
        (" secrets/key.pem ", "secrets/*", True),
        ("secrets/./key.pem", "./secrets/key.pem", True),
        ("app/.env", "*/.env", True),
        (".env", ".env*", True),
        (".env", "**/.env", True),
        ("deep/down/.env", "**/.env", True),
        ("a[1].py", "a[1].py", False),
        ("a1.py", "a[1].py", True),
        ("secret/key.pem", "secrets/*", False),
        ("mysecrets/key.pem", "secrets/*", False),
        ("secrets/../src/app.py", "secrets/*", False),
        ("src/secrets.py", "secrets", False),
        ("Secrets/key.pem", "secrets/*", False),
    ],
)
def test_paths_are_compared_as_what_they_lead_to(path: str, rule: str, forbidden: bool):
    literal = path == "secrets/../src/app.py"
    assert is_path_forbidden(path, rule) is (forbidden or literal)


@pytest.mark.requirement("S14")
@pytest.mark.parametrize(
    ("command", "rule", "forbidden"),
    [
        ("git push", "git push", True),
        ("git push --force origin", "git push", True),
        ("git   push\torigin", "git push", True),
        ("cd x && git push", "git push", True),
        ("true; git push", "git push", True),
        ("true | git push", "git push", True),
        ("true\ngit push", "git push", True),
        ("(git push)", "git push", True),
        ("echo $(git push)", "git push", True),
        ("echo `git push`", "git push", True),
        ("git push --force", "git push *--force*", True),
        ("rm -rf /", "rm -rf *", True),
        ("make deploy-prod", "*deploy*", True),
        ("sudo git push", "git push", True),
        ("env A=1 B=2 git push", "git push", True),
        ("/usr/bin/git push", "git push", True),
        ("sh -c 'git push'", "git push", True),
        ("git pull", "git push", False),
        ("git pushd", "git push", False),
        ("echo git push", "git push", False),
        ("", "git push", False),
    ],
)
def test_a_command_is_forbidden_alone_or_in_a_chain(command: str, rule: str, forbidden: bool):
    assert is_command_forbidden(command, rule) is forbidden


@pytest.mark.requirement("S14")
def test_a_forbidden_path_or_command_ends_the_run_with_the_evidence():
    bench = Bench(only(constraints=Constraints(paths=("secrets/*",), commands=("git push",))))
    assert not bench.result(files(app_py="1"))
    touched = bench.result(Evidence(files={"app.py": "2", "secrets/key": "1"}))
    assert rules(touched) == ["constraint"]
    assert touched[0].reason == (
        "coder touched 'secrets/key', which the constraint 'secrets/*' forbids"
    )
    assert (touched[0].limit, touched[0].seen) == ("secrets/*", "secrets/key")
    assert touched[0].evidence == ("step 2",)
    ran = bench.result(Evidence(checks=(Check(command="cd a && git push", exit_code=0),)))
    assert "coder ran 'cd a && git push'" in ran[0].reason
    assert judge_result(RuleContext(bench.ledger, bench.limits)) == []


@given(st.text(max_size=20), st.text(max_size=20))
@settings(max_examples=200, deadline=None)
def test_any_text_may_be_a_path_a_command_or_a_constraint(one: str, rule: str):
    assert is_path_forbidden(one, rule) in (True, False)
    assert is_command_forbidden(one, rule) in (True, False)


# Several at once, and statuses


@given(st.data())
def test_a_judgement_is_what_all_its_rules_say(data: st.DataObject):
    small, most = st.integers(0, 4), st.none() | st.integers(0, 4)
    stale = {"a": ResearchScores(best=0.5, stale=Tally(count=data.draw(small)))}
    ledger = Ledger(
        steps=data.draw(small),
        handoffs=data.draw(small),
        tokens=data.draw(small),
        cost=data.draw(small),
        epoch=data.draw(st.integers(0, 1)),
        idle=Tally(count=data.draw(small)),
        returns=Tally(count=data.draw(small)),
        measured=EvidenceState(research=data.draw(st.sampled_from([{}, stale]))),
        errors={"x": ErrorCount(epoch=0, seen=Tally(count=data.draw(small), steps=(1,)))},
    )
    for target in data.draw(st.lists(st.sampled_from("bc"), max_size=4)):
        ledger = add_handoff(ledger, STRICT, "a", target, "")
    every = only(
        **{
            name: data.draw(most)
            for name in (
                "max_handoffs",
                "max_edge",
                "max_steps",
                "max_duration",
                "max_tokens",
                "max_cost",
            )
        },
        **{
            name: data.draw(st.none() | st.integers(1, 4))
            for name in (
                "no_change_limit",
                "oscillation_limit",
                "research_limit",
                "same_error_limit",
            )
        },
        repeat_limit=data.draw(st.none() | st.integers(2, 3)),
        constraints=data.draw(st.sampled_from([Constraints(), Constraints(paths=("*",))])),
    )
    evidence = data.draw(
        st.sampled_from([None, Evidence(), files(a="1"), red("x"), Evidence(score=0.5)])
    )
    moment = RuleContext(
        ledger, every, "a", evidence, "a", "b", find_edge(ledger, "a", "b"), 1, data.draw(small)
    )
    for judge, judged in (
        (judge_handoff, [row.on_handoff for row in RULES]),
        (judge_step, [row.on_step for row in RULES]),
        (judge_result, [row.on_result for row in RULES]),
    ):
        fired = [rule(moment) for rule in judged if rule is not None]
        assert judge(moment) == [one for one in fired if one is not None]


def test_every_rule_has_one_row_in_the_order_of_precedence():
    assert [row.rule for row in RULES] == list(StopRule)
    assert all(row.limit in LIMITS for row in RULES if row.limit)
    assert all(row.limit for row in RULES if row.on_result or row.on_handoff or row.on_step)
    assert all(row.limit for row in RULES if row.count)
    assert set(LIMITS) == set(StopRules.__struct_fields__) == set(Limits.__struct_fields__)


def test_rules_that_fire_together_stand_in_their_order():
    bench = Bench(
        only(same_error_limit=1, no_change_limit=1, max_tokens=1,
             constraints=Constraints(commands=("pytest",)))
    )  # fmt: skip
    fired = bench.result(red(files={}), usage=Usage(tokens=2))
    assert rules(fired) == ["constraint", "budget", "same_error", "no_change"]
    both = Bench(only(repeat_limit=2, max_edge=1, max_handoffs=1))
    both.hand("a", "a")
    together = both.hand("a", "a")
    assert rules(together) == ["repeated_pattern", "max_edge", "max_handoffs"]
    spent = Bench(only(max_steps=0, max_duration=1, max_tokens=0)).step(elapsed=2)
    assert rules(spent) == ["budget", "max_steps", "max_duration"]
    for fired_together in (fired, together, spent):
        order = [RULE_ORDER[one.rule] for one in fired_together]
        assert order == sorted(order)
        assert all(one.reason and one.remedy for one in fired_together)


@pytest.mark.requirement("S14", "S13", "S3")
def test_the_rule_and_the_goal_say_how_a_run_ends():
    partial = {
        StopRule.SAME_ERROR,
        StopRule.NO_CHANGE,
        StopRule.RESEARCH_EXHAUSTED,
        StopRule.MONOLOGUE,
    }
    for rule in StopRule:
        for goal_met in (False, True):
            status = terminal_status_of(rule, goal_met=goal_met)
            if rule in (StopRule.CONSTRAINT, StopRule.BUDGET):
                assert status is TerminalStatus.ABORTED_CONSTRAINT
            elif goal_met and rule in partial:
                assert status is TerminalStatus.DONE_PARTIAL
            else:
                assert status is TerminalStatus.ABORTED_STUCK


# Limits


@pytest.mark.requirement("S13", "S7", "H3.3")
def test_a_profile_fills_what_is_not_set():
    strict = resolve_limits(StopRules())
    assert strict == STRICT == Limits()
    assert (strict.max_handoffs, strict.max_steps, strict.max_edge) == (20, 100, 8)
    yolo = resolve_limits(StopRules(profile="yolo"))
    assert (yolo.same_error_limit, yolo.no_change_limit, yolo.research_limit) == (2, 2, 2)
    assert (yolo.max_edge, yolo.max_steps, yolo.max_handoffs) == (4, 50, 20)
    own = resolve_limits(StopRules(profile="yolo", max_edge=6, max_handoffs=None))
    assert (own.max_edge, own.max_steps, own.max_handoffs) == (6, 50, None)
    assert set(PROFILES) == {"strict", "yolo", "observed", "conversation"}
    assert resolve_limits(StopRules(max_edge=6), profile="observed").max_edge == 6
    assert resolve_limits(StopRules(profile="yolo"), profile="observed").profile == "yolo"


@pytest.mark.requirement("S13")
def test_strict_allows_at_least_as_much_as_yolo():
    strict, yolo = PROFILES["strict"], PROFILES["yolo"]
    for name in ("same_error_limit", "no_change_limit", "research_limit", "max_edge", "max_steps"):
        assert getattr(strict, name) > getattr(yolo, name)


def test_in_a_workflow_the_rules_that_its_structure_replaces_are_off_unless_set():
    off = resolve_limits(StopRules(), "workflow")
    names = ("max_handoffs", "repeat_limit", "max_edge", "max_steps", "max_duration")
    assert all(getattr(off, name) is None for name in names)
    assert off.same_error_limit == 3
    assert resolve_limits(StopRules(max_steps=7), "workflow").max_steps == 7
    constraints = Constraints(paths=("a",))
    assert resolve_limits(StopRules(constraints=constraints), "workflow").constraints == constraints


@pytest.mark.requirement("S13")
@pytest.mark.parametrize(
    ("scope", "steps"),
    [("tiny", 50), ("small", 100), ("large", 200), ("vast", 100), (None, 100), (3, 100), ([], 100)],
)
def test_the_scope_of_a_task_halves_keeps_or_doubles_the_steps(scope: object, steps: int):
    assert scale_limits(STRICT, scope).max_steps == steps
    assert scale_limits(Limits(max_steps=None), scope).max_steps is None
    assert scale_limits(Limits(max_steps=1), "tiny").max_steps == 1

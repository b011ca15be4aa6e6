"""The ledger: what counts as progress, one kind after the other, and that nothing in it grows."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.kernel.driven_run import files, green, red

from handrail.kernel.definition.limits import Limits
from handrail.kernel.result import Check, Evidence, Usage, merge_patch
from handrail.kernel.stop.ledger import (
    CHECKS_KEPT,
    CITATIONS_MAX,
    EDGES_KEPT,
    ERRORS_KEPT,
    FACTS_KEPT,
    PATHS_KEPT,
    REASONS_KEPT,
    VERSIONS_KEPT,
    Assessment,
    Ledger,
    Tally,
    add_handoff,
    add_result,
    assess_result,
    edge_key,
    edge_symbol,
    find_edge,
    renew,
)
from handrail.kernel.stop.rules import RuleContext, StopRule, judge_result

STRICT = Limits()
BYTES_MAX = 200_000


class Book:
    """A ledger that results and handoffs are written into."""

    def __init__(self, limits: Limits = STRICT):
        self.limits = limits
        self.ledger = Ledger()
        self.evidence = Evidence()

    def result(
        self, evidence: Evidence, agent: str = "coder", usage: Usage | None = None, **rest: Any
    ) -> tuple[str, ...]:
        """Take a result in; gives back what of it is progress."""
        return self.weighed(evidence, agent, usage, **rest).progress

    def weighed(
        self, evidence: Evidence, agent: str = "coder", usage: Usage | None = None, **rest: Any
    ) -> Assessment:
        weighed = assess_result(self.ledger, self.limits, agent, evidence, **rest)
        step = self.ledger.steps + 1
        self.evidence = evidence
        self.ledger = replace(self.ledger, steps=step)
        self.ledger = add_result(
            self.ledger, self.limits, step, evidence, usage or Usage(), weighed
        )
        return weighed

    def fired(self) -> list[StopRule]:
        moment = RuleContext(
            self.ledger, self.limits, evidence=self.evidence, step=self.ledger.steps
        )
        return [f.rule for f in judge_result(moment)]


def known(*names: str) -> dict[str, Any]:
    return {"paths": frozenset(names)}


# Checks


@pytest.mark.requirement("S6")
def test_a_check_that_turned_from_failing_to_passing_is_progress():
    book = Book()
    assert not book.result(red())
    assert book.result(green())
    assert book.ledger.last_progress_step == 2
    assert book.ledger.epoch == 1


@pytest.mark.requirement("S6")
def test_a_check_that_passes_from_the_start_or_still_is_no_progress():
    book = Book()
    assert not book.result(green())
    assert not book.result(green())
    assert not book.result(red())
    assert not book.result(green("another command"))


@pytest.mark.requirement("S6", "S16")
def test_a_check_that_flaps_is_progress_once_for_each_error():
    book = Book()
    book.result(red(stderr="KeyError: 'a'"))
    assert book.result(green())
    for _ in range(3):
        book.result(red(stderr="KeyError: 'a'"))
        assert not book.result(green())
    book.result(red(stderr="TypeError: b"))
    assert book.result(green())


# Failure sets


@pytest.mark.requirement("S6")
def test_a_failure_set_smaller_than_any_before_is_progress():
    def failing(*ids: str) -> Evidence:
        return Evidence(failures=ids, measured=True)

    book = Book()
    assert not book.result(failing("a", "b", "c"))
    assert book.result(failing("a", "b"))
    assert not book.result(failing("x", "y"))
    assert not book.result(failing("a", "b", "c", "d"))
    assert not book.result(failing("a", "b", "c"))
    assert not book.result(failing("a", "b", "a"))
    assert book.result(failing("a"))
    assert book.result(failing())
    assert not book.result(failing())


# Scores


def score(value: float, **rest: Any) -> Evidence:
    return Evidence(score=value, measured=True, **rest)


@pytest.mark.requirement("S2", "S6")
def test_a_materially_better_score_is_progress():
    book = Book()
    assert book.result(score(0.5))
    assert not book.result(score(0.54))
    assert book.result(score(0.55))
    assert not book.result(score(0.5))
    assert book.result(score(0.9))
    assert not book.result(score(0.94))


@pytest.mark.requirement("S2")
def test_scores_are_kept_by_agent_and_task():
    book = Book()
    assert book.result(score(0.5), agent="a", task="one")
    assert book.result(score(0.5), agent="a", task="two")
    assert book.result(score(0.5), agent="b")
    assert set(book.ledger.measured.research) == {"a/one", "a/two", "b"}
    assert not book.result(score(0.5), agent="b")
    assert book.ledger.measured.research["b"].stale.steps == (4,)


def test_a_gain_of_nothing_still_asks_for_a_better_score():
    book = Book(Limits(research_gain=0.0))
    assert book.result(score(0.5))
    assert not book.result(score(0.5))


# Milestones and tickets


@pytest.mark.requirement("S6")
def test_a_milestone_is_progress_the_first_time():
    book = Book()
    assert book.result(Evidence(), milestone="analyzed") == ("milestone:analyzed",)
    assert not book.result(Evidence(), milestone="analyzed")
    assert book.result(Evidence(), milestone="resolved")


@pytest.mark.requirement("S6")
def test_a_ticket_state_is_progress_the_first_time_it_is_seen():
    book = Book()
    for state, new in (("open", True), ("open", False), ("fixed", True), ("open", False)):
        assert bool(book.result(Evidence(ticket_state=state, measured=True))) is new


# Files


@pytest.mark.requirement("S6", "S10")
def test_a_path_that_the_task_knows_counts_at_each_new_digest():
    book = Book()
    for digest in "abcde":
        assert book.result(files(app_py=digest), **known("app.py")) == ("files",)
    assert not book.result(files(app_py="e"), **known("app.py"))
    assert not book.result(files(app_py="a"), **known("app.py"))


@pytest.mark.requirement("S6")
def test_a_created_path_counts_once_per_run():
    book = Book()
    assert book.result(files(scratch_txt="1"), **known("app.py"))
    assert not book.result(files(scratch_txt="2"), **known("app.py"))
    for n in range(5):
        created: dict[str, Any] = {f"new{n}_txt": "1"}
        assert not book.result(files(**created), **known("app.py"))
    assert book.result(files(app_py="1", more_txt="1"), **known("app.py"))


@pytest.mark.requirement("S6")
def test_where_nobody_knows_the_paths_the_first_sight_of_one_counts_once_and_changes_count():
    book = Book()
    assert book.result(files(a_py="1"))
    assert not book.result(files(b_py="1"))
    assert book.result(files(b_py="2"))


@pytest.mark.requirement("S6")
def test_a_file_that_gets_another_name_each_turn_is_progress_once():
    book = Book()
    assert book.result(files(app0_py="1"))
    for n in range(1, 6):
        renamed: dict[str, Any] = {f"app{n}_py": "1", f"app{n - 1}_py": ""}
        assert not book.result(files(**renamed))
    assert book.result(files(app5_py=""), **known("app5.py")), "one of the task's that goes"


@pytest.mark.requirement("S16", "S3")
def test_file_changes_under_one_error_buy_no_more_rounds_than_the_limit():
    plain, changing = Book(), Book()
    rounds = {}
    for name, book in (("plain", plain), ("changing", changing)):
        for n in range(1, 20):
            changed = {"app.py": str(n)} if name == "changing" else None
            book.result(red(files=changed), **known("app.py"))
            if StopRule.SAME_ERROR in book.fired():
                rounds[name] = n
                break
    assert rounds["plain"] == 3
    assert 3 < rounds["changing"] <= 3 + 3


@pytest.mark.requirement("S16")
def test_under_a_persisting_error_files_count_again_once_the_error_is_another():
    book = Book()
    for n in range(3):
        assert book.result(red(files={"app.py": f"a{n}"}), **known("app.py"))
    assert not book.result(red(files={"app.py": "a9"}), **known("app.py"))
    book.result(red(stderr="TypeError: new"), **known("app.py"))
    assert book.result(red(stderr="TypeError: new", files={"app.py": "b"}), **known("app.py"))


def test_an_error_persists_into_turns_that_run_no_check():
    book = Book()
    book.result(red())
    for n in range(3):
        assert book.result(files(app_py=str(n)), **known("app.py"))
    assert not book.result(files(app_py="9"), **known("app.py"))
    assert book.result(green())
    assert book.result(files(app_py="10"), **known("app.py"))


def test_with_the_same_error_rule_off_file_changes_always_count():
    book = Book(Limits(same_error_limit=None))
    for n in range(10):
        assert book.result(red(files={"app.py": str(n)}), **known("app.py"))


@pytest.mark.requirement("S10", "S4")
def test_a_turn_that_reports_files_and_changes_none_is_counted():
    book = Book()
    book.result(files(app_py="1"))
    book.result(files(app_py="1"))
    book.result(Evidence(files={}, measured=True))
    book.result(Evidence(measured=True))
    assert book.ledger.idle.steps == (2, 3)
    assert book.ledger.returns.count == 0
    book.result(files(app_py="2"))
    assert book.ledger.idle.count == 0


@pytest.mark.requirement("S10")
def test_going_back_to_earlier_contents_is_oscillation_and_neither_progress_nor_idleness():
    book = Book()
    book.result(files(app_py="1"))
    book.result(files(app_py="2"))
    for n, digest in enumerate("1212"):
        assert not book.result(files(app_py=digest))
        assert book.ledger.returns.count == n + 1
    assert book.ledger.idle.count == 0
    assert book.weighed(files(app_py="1", other_py="1")).returned is False


# Claims


def test_a_claim_of_nothing_new_is_no_progress_and_a_milestone_is_no_claim():
    book = Book()
    assert not book.result(Evidence())
    assert book.result(Evidence(), milestone="m") == ("milestone:m",)
    assert "coder" not in book.ledger.claimants


# Bookkeeping


def test_tokens_and_cost_add_up():
    book = Book()
    book.result(Evidence(), usage=Usage(tokens=3, cost=0.5))
    book.result(Evidence(), usage=Usage(tokens=4))
    assert (book.ledger.tokens, book.ledger.cost) == (7, 0.5)


@pytest.mark.requirement("S9", "S3")
def test_failures_are_counted_by_signature_within_an_epoch():
    book = Book()
    for _ in range(2):
        book.result(red(stderr="Error at 0x7f3a2c1d5e90"))
    book.result(red(stderr="Error at 0x7f99aa001230"))
    assert [held.seen.steps for held in book.ledger.errors.values()] == [(1, 2, 3)]
    book.result(Evidence(), milestone="m")
    book.result(red(stderr="Error at 0x7f99aa001230"))
    assert [held.seen.steps for held in book.ledger.errors.values()] == [(5,)]


def test_several_checks_of_one_result_are_all_kept_and_tell_what_is_red():
    both = Evidence(
        checks=(
            Check(command="lint", exit_code=1, stderr="E1"),
            Check(command="test", exit_code=0),
        ),
        measured=True,
    )
    book = Book()
    weighed = book.weighed(both)
    assert len(weighed.signatures) == 1
    assert book.ledger.measured.checks == {"lint": weighed.signatures[0], "test": ""}
    assert weighed.red == weighed.signatures


@pytest.mark.requirement("S5")
def test_an_edge_keeps_its_counts_its_last_reasons_and_the_handoffs_of_the_epoch():
    book = Book()
    for n in range(7):
        book.ledger = add_handoff(book.ledger, STRICT, "a", "b", f"r{n}")
    book.result(Evidence(), milestone="m")
    book.ledger = add_handoff(book.ledger, STRICT, "a", "b", "last")
    edge = book.ledger.edges[edge_key("a", "b")]
    assert (edge.count, edge.total) == (1, 8)
    assert edge.reasons == ("r3", "r4", "r5", "r6", "last")
    assert len(edge.reasons) == REASONS_KEPT
    assert book.ledger.handoffs == 8


@pytest.mark.requirement("K19")
def test_a_replayed_answer_takes_a_step_with_its_handoff():
    ledger = add_handoff(Ledger(), STRICT, "a", "b", "", steps=1)
    assert (ledger.handoffs, ledger.steps) == (1, 1)


def test_the_trail_is_as_long_as_the_pattern_rule_needs():
    small = Limits(pattern_period_max=2, repeat_limit=3)
    ledger = Ledger()
    for n in range(20):
        ledger = add_handoff(ledger, small, "a", f"b{n % 3}", "")
    assert len(ledger.trail) == 6
    assert len(add_handoff(Ledger(), Limits(repeat_limit=None), "a", "b", "").trail) == 1


def test_every_edge_has_a_character_that_an_encoder_takes():
    seen = [edge_symbol(n) for n in (0, 1, 0xD6FF, 0xD700, 0xD701, 999_999)]
    assert len(set(seen)) == len(seen)
    "".join(seen).encode()


@pytest.mark.requirement("S16", "K22")
def test_progress_opens_a_new_epoch():
    book = Book()
    book.ledger = add_handoff(book.ledger, STRICT, "a", "b", "")
    book.result(files(app_py="1"))
    book.result(files(app_py="1"))
    before = book.ledger
    assert before.idle.count == 1
    book.result(Evidence(), milestone="m")
    assert book.ledger.epoch == before.epoch + 1
    assert (book.ledger.trail, book.ledger.idle, book.ledger.returns) == ("", Tally(), Tally())
    assert book.ledger.last_progress_step == 3


@pytest.mark.requirement("K14")
def test_after_a_raising_act_counters_are_fresh_and_budgets_and_files_go_on():
    book = Book()
    book.result(red(files={"app.py": "1"}), usage=Usage(tokens=5, cost=1.0))
    book.result(score(0.3), milestone="m")
    book.ledger = add_handoff(book.ledger, STRICT, "a", "b", "")
    fresh = renew(book.ledger)
    assert (fresh.steps, fresh.steps_before) == (2, 2)
    assert (fresh.handoffs, fresh.handoffs_before) == (1, 1)
    assert (fresh.tokens, fresh.cost) == (5, 1.0)
    assert fresh.measured.files == book.ledger.measured.files
    assert fresh.measured.checks == book.ledger.measured.checks
    assert fresh.epoch > book.ledger.epoch
    for empty in (fresh.edges, fresh.errors, fresh.facts, fresh.measured.research, fresh.trail):
        assert not empty
    assert fresh.measured.failures_least is None


# Caps


def some_evidence(rng: random.Random, n: int) -> Evidence:
    checks = tuple(
        Check(
            command=f"make target-{rng.randint(0, 400)}",
            exit_code=rng.randint(0, 1),
            stderr=f"ValueError: number {rng.choice('abcdefgh') * rng.randint(1, 30)}",
        )
        for _ in range(rng.randint(0, 2))
    )
    paths = {f"src/{rng.randint(0, 600)}.py": f"{rng.randint(0, 40):016x}" for _ in range(3)}
    return Evidence(
        checks=checks,
        files=rng.choice([None, {}, paths]),
        score=rng.choice([None, rng.random()]),
        ticket_state=rng.choice([None, f"state {rng.randint(0, 3000)}"]),
        failures=rng.choice([None, tuple(f"t{i}" for i in range(rng.randint(0, 50)))]),
        measured=rng.random() < 0.7,
    )


@pytest.mark.requirement("S5", "K22")
def test_the_ledger_stays_small_whatever_the_run_does():
    rng = random.Random(7)
    book = Book()
    for n in range(5_000):
        agent = f"agent-{rng.randint(0, 12)}"
        book.result(some_evidence(rng, n), agent=agent, task=f"t{rng.randint(0, 40)}")
        other = f"agent-{rng.randint(0, 12)}"
        book.ledger = add_handoff(book.ledger, STRICT, agent, other, "a reason of usual length")
    ledger = book.ledger
    assert len(msgspec.json.encode(ledger)) < BYTES_MAX
    assert len(ledger.errors) <= ERRORS_KEPT
    assert len(ledger.facts) <= FACTS_KEPT
    for seen in (ledger.measured, ledger.claimed):
        assert len(seen.checks) <= CHECKS_KEPT
        assert len(seen.files) <= PATHS_KEPT
        assert max(len(versions) for versions in seen.files.values()) <= VERSIONS_KEPT
        assert len(seen.research) <= PATHS_KEPT


def test_lists_of_steps_keep_the_newest():
    book = Book(Limits(same_error_limit=None))
    book.result(files(app_py="1"))
    book.result(score(0.9))
    for _ in range(CITATIONS_MAX * 2):
        book.result(red(files={"app.py": "1"}, score=0.1))
    last = book.ledger.steps
    newest = tuple(range(last - CITATIONS_MAX + 1, last + 1))
    assert book.ledger.idle == Tally(count=2 * CITATIONS_MAX, steps=newest)
    assert next(iter(book.ledger.errors.values())).seen.steps == newest
    assert book.ledger.measured.research["coder"].stale.steps == newest
    book.result(files(app_py="2"))
    for n in range(CITATIONS_MAX * 2):
        book.result(files(app_py=str(1 + n % 2)))
    assert book.ledger.returns.count == 2 * CITATIONS_MAX
    assert len(book.ledger.returns.steps) == CITATIONS_MAX


def test_several_times_within_one_step_count_once():
    tally = Tally().add(3).add(3).add(4)
    assert tally == Tally(count=2, steps=(3, 4))


def test_two_ways_never_share_a_key():
    assert edge_key("a", "b>c") != edge_key("a>b", "c")
    assert edge_key("a_to_b", "c") != edge_key("a", "b_to_c")


def test_of_facts_the_newest_are_kept_and_progress_goes_on():
    book = Book()
    for n in range(FACTS_KEPT + 10):
        assert book.result(Evidence(), milestone=f"m{n}")
    assert len(book.ledger.facts) == FACTS_KEPT
    assert not book.result(Evidence(), milestone=f"m{FACTS_KEPT}")


def test_of_errors_and_checks_the_newest_are_kept():
    book = Book()
    for n in range(CHECKS_KEPT + 10):
        book.result(red(command=f"make {n}"))
    assert len(book.ledger.measured.checks) == CHECKS_KEPT
    assert "make 9" not in book.ledger.measured.checks
    assert "make 10" in book.ledger.measured.checks
    assert len(book.ledger.errors) == ERRORS_KEPT


# Anything at all

texts = st.text(max_size=12)
evidences = st.builds(
    Evidence,
    files=st.none() | st.dictionaries(texts, texts, max_size=3),
    checks=st.lists(
        st.builds(Check, command=texts, exit_code=st.integers(-1, 2), stderr=texts), max_size=3
    ).map(tuple),
    score=st.none() | st.floats(),
    ticket_state=st.none() | texts,
    failures=st.none() | st.lists(texts, max_size=4).map(tuple),
    measured=st.booleans(),
)


@given(st.lists(evidences, max_size=8), st.none() | st.just(frozenset({"a"})))
@settings(max_examples=80, deadline=None)
def test_any_evidence_is_taken_in_and_replay_gives_the_same_ledger(
    results: list[Evidence], paths: frozenset[str] | None
):
    first, second = Book(), Book()
    for evidence in results:
        weighed = first.weighed(evidence, paths=paths)
        step = first.ledger.steps
        second.ledger = replace(second.ledger, steps=step)
        second.ledger = add_result(second.ledger, STRICT, step, evidence, Usage(), weighed)
        assert msgspec.json.encode(first.ledger) == msgspec.json.encode(second.ledger)
        assert first.ledger.last_progress_step <= step


# What a result does to the context


@pytest.mark.parametrize(
    ("context", "patch", "after"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": None}, {}),
        ({}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": 1}, {"a": {"b": None, "c": 2}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": [1, None]}, {"a": [1, None]}),
    ],
)
def test_data_is_merged_into_the_context(
    context: dict[str, Any], patch: dict[str, Any], after: dict[str, Any]
):
    before = msgspec.json.encode(context)
    assert merge_patch(context, patch) == after
    assert msgspec.json.encode(context) == before


def test_of_ever_new_edges_the_newest_are_kept():
    ledger = Ledger()
    for n in range(EDGES_KEPT + 5):
        ledger = add_handoff(ledger, Limits(), "a", f"b{n}", "")
    assert len(ledger.edges) == EDGES_KEPT
    assert find_edge(ledger, "a", "b0") is None
    assert find_edge(ledger, "a", f"b{EDGES_KEPT + 4}") is not None
    symbols = {edge.symbol for edge in ledger.edges.values()}
    assert len(symbols) == EDGES_KEPT

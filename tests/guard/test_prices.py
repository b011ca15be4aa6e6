"""Money under guard: prices of one's own or of the extra, and what is done where there are none."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

import handrail
from handrail import Guard, ModelCall, StopRules
from handrail.guard import prices as pricing
from handrail.guard.adapter import watching
from handrail.guard.prices import ModelPrices, PriceList
from handrail.kernel.run.events import Warned
from handrail.views.report import report_markdown

CALL = ModelCall(model="gpt-4o", provider="openai", input_tokens=1_000, output_tokens=100)


@pytest.fixture
def no_price_list(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the extra were not installed."""
    monkeypatch.setattr(pricing, "_genai_prices", lambda: None)
    pricing._find_reference.cache_clear()
    yield
    pricing._find_reference.cache_clear()


def warnings(run: handrail.GuardedRun) -> list[tuple[str, str]]:
    return [(e.code, e.subject) for e in run.events if isinstance(e, Warned)]


def answer(guard: Guard, *calls: ModelCall) -> handrail.GuardedRun:
    with watching(guard, "r") as watch:
        watch.activate("a")
        for number, call in enumerate(calls):
            watch.begin_step()
            watch.record_answer(f"text {number}", 0, call)
    return watch.run


def test_the_programs_own_prices_are_for_a_million_tokens(no_price_list: None) -> None:
    guard = Guard(StopRules(max_cost=1), prices={"gpt-4o": (2.5, 10)})
    usage = answer(guard, CALL).report().usage
    assert (usage.tokens, usage.input_tokens, usage.output_tokens) == (1_100, 1_000, 100)
    assert usage.cost == pytest.approx(0.0035)
    assert usage.unpriced_calls == 0


def test_a_function_prices_whole_calls(no_price_list: None) -> None:
    guard = Guard(prices=lambda call: 0.25 if call.provider == "openai" else None)
    run = answer(guard, CALL, ModelCall(model="other", input_tokens=1))
    assert (run.report().usage.cost, run.report().usage.unpriced_calls) == (0.25, 1)


def test_the_extra_knows_models_by_the_names_that_frameworks_give_them() -> None:
    known = PriceList(None).cost(CALL)
    assert known is not None
    assert known > 0
    for model, provider in (
        ("gpt-4o", ""),
        ("gpt-4o", "a name of its own"),
        ("openai/gpt-4o", ""),
        ("openai:gpt-4o", ""),
    ):
        call = ModelCall(model=model, provider=provider, input_tokens=1_000, output_tokens=100)
        assert PriceList(None).cost(call) == known
    assert PriceList(None).cost(ModelCall(model="none such", input_tokens=1)) is None


def test_tokens_from_a_cache_cost_what_they_cost() -> None:
    cached = ModelCall(model="gpt-4o", input_tokens=1_000, output_tokens=100, cache_read_tokens=900)
    full, less = PriceList(None).cost(CALL), PriceList(None).cost(cached)
    assert full is not None
    assert less is not None
    assert less < full


def test_max_cost_without_prices_is_refused_with_the_line_that_installs_them(
    no_price_list: None,
) -> None:
    with pytest.raises(ValueError, match=r"max_cost needs the prices.*\[prices\]"):
        Guard(StopRules(max_cost=1))
    Guard(StopRules(max_cost=None))
    guard = Guard(StopRules(max_cost=1), prices={})
    with pytest.raises(handrail.BudgetSpent), guard.run("r") as run:
        run.result("a", usage={"cost": 2})


@pytest.mark.parametrize("wrong", [{"m": (1,)}, {"m": (1, -2)}, {"m": (float("nan"), 1)}])
def test_prices_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"prices\['m'\].*million tokens"):
        Guard(prices=wrong)


def test_a_model_without_a_price_is_warned_of_once_and_its_calls_are_counted() -> None:
    guard = Guard(StopRules(max_cost=1))
    unknown = ModelCall(model="house-model", input_tokens=10, output_tokens=1)
    run = answer(guard, unknown, CALL, unknown, ModelCall(input_tokens=5))
    usage = run.report().usage
    assert (usage.unpriced_calls, usage.tokens) == (3, 1_127)
    assert warnings(run) == [("price_unknown", "house-model"), ("price_unknown", "")]
    assert "3 calls of models without a price" in report_markdown(run.report())


def test_the_models_that_one_run_warns_of_are_bounded(no_price_list: None) -> None:
    calls = [ModelCall(model=f"m{n}", input_tokens=1) for n in range(50)]
    run = answer(Guard(prices={}), *calls)
    assert len(warnings(run)) == pricing.MODELS_WARNED_MAX
    assert run.report().usage.unpriced_calls == 50


def test_without_prices_and_without_a_limit_in_money_nothing_is_priced() -> None:
    run = answer(Guard(), CALL)
    assert (run.report().usage.cost, run.report().usage.unpriced_calls) == (0, 0)
    assert not warnings(run)


def raise_error(call: ModelCall) -> float:
    raise RuntimeError("the price service is away")


@pytest.mark.parametrize(
    "prices", [raise_error, lambda call: float("nan"), lambda call: -1.0, lambda call: "free"]
)
def test_prices_that_fail_break_no_program(
    prices: ModelPrices, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    run = answer(Guard(StopRules(max_cost=1), prices=prices), CALL)
    assert run.report().usage.unpriced_calls == 1


def test_a_run_is_stopped_at_max_cost_with_the_figure() -> None:
    guard = Guard(StopRules(max_cost=0.01), prices={"gpt-4o": (2.5, 10)})
    with pytest.raises(handrail.BudgetSpent) as caught:
        answer(guard, *[CALL] * 9)
    stop = caught.value.stop
    assert (stop.rule, stop.limit, stop.limit_name) == ("budget", 0.01, "max_cost")
    assert stop.seen == pytest.approx(0.0105)
    assert len(caught.value.run.report().steps) == 3


def test_a_host_that_names_the_model_gets_the_cost(no_price_list: None) -> None:
    guard = Guard(StopRules(max_cost=1), prices={"m": (1, 2)})
    with guard.run("r") as run:
        run.result("a", usage={"model": "m", "input_tokens": 1_000, "output_tokens": 1_000})
        run.result("a", usage={"model": "m", "input_tokens": 1_000, "cost": 0.5})
        run.result("a", usage={"tokens": 7})
    usage = run.report().usage
    assert (usage.cost, usage.tokens, usage.unpriced_calls) == (pytest.approx(0.503), 2_007, 0)

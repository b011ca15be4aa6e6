"""What a model's call costs: by the program's own prices, else by the extra `handrail[prices]`.

A price is never guessed. A call of a model whose price nobody knows costs nothing, is counted as
unpriced, and the run warns of its model once.
"""

import functools
import importlib
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from handrail.guard.sanitising import safe_name
from handrail.kernel.result import FIGURE_MAX, Usage
from handrail.kernel.run.events import PRICE_UNKNOWN, Warned

log = logging.getLogger("handrail.guard")

TOKENS_PER_PRICE = 1_000_000
MODELS_WARNED_MAX = 10
"""Models without a price that one run warns of; the calls of others are counted only."""


class ModelCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model, as its framework counts it."""

    model: str = ""
    provider: str = ""
    input_tokens: int = 0
    """All tokens of the input, those of a cache included."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0


ModelPrices = Mapping[str, tuple[float, float]] | Callable[[ModelCall], float | None]
"""By model the prices of a million tokens, of input and output; or what says what a call costs,
None where that is not known."""


class PriceList:
    """Prices the calls of models."""

    def __init__(self, prices: ModelPrices | None) -> None:
        """`prices` come before those of the extra. Raises ValueError for prices that are none."""
        self._function = prices if callable(prices) else None
        self._table = {} if prices is None or callable(prices) else dict(prices)
        for model, pair in self._table.items():
            if len(pair) != 2 or not all(_is_cost(price) for price in pair):
                raise ValueError(
                    f"prices[{model!r}] is {pair!r}; say (input, output), each the price of a "
                    "million tokens"
                )

    def cost(self, call: ModelCall) -> float | None:
        """Return what the call costs; None if nobody knows."""
        cost: float | None = None
        try:
            if self._function is not None:
                cost = self._function(call)
            elif (pair := self._table.get(call.model)) is not None:
                cost = _cost_at(call, *pair)
            cost = _installed_cost(call) if cost is None else float(cost)
        except Exception:  # of the program's own function, or of the price list
            log.exception("the price of a call of '%s' could not be found", call.model)
            return None
        return min(cost, float(FIGURE_MAX)) if cost is not None and _is_cost(cost) else None


def is_installed() -> bool:
    """Whether the extra `handrail[prices]` is there."""
    return _genai_prices() is not None


def choose_prices(prices: ModelPrices | None, money_limit: str) -> PriceList | None:
    """Return the prices of a guard; None if it needs none. `money_limit` names its limit in money,
    if it has one. Raises ValueError if nothing is known of prices then.
    """
    if prices is not None or (money_limit and is_installed()):
        return PriceList(prices)
    if not money_limit:
        return None
    from handrail.engine.errors import install_hint  # imported late: only a refusal needs it

    raise ValueError(
        f"{money_limit} needs the prices of models, and none are known; "
        f"{install_hint('prices')}; or say Guard(prices={{'MODEL': (input, output)}}), the prices "
        "of a million tokens, or Guard(prices={}) where the program itself reports what it spends"
    )


class RunPricing:
    """Prices the calls of one run, and remembers which models have no price."""

    def __init__(self, prices: PriceList | None) -> None:
        self._prices = prices
        self._warned: set[str] = set()
        self.unknown: list[str] = []
        """Models without a price of which the run has to warn."""

    def price(self, call: ModelCall, tokens: int = 0) -> Usage:
        """Return the call as usage, with its cost where the price is known."""
        input_tokens, output_tokens = _figure(call.input_tokens), _figure(call.output_tokens)
        total = max(_figure(tokens), _figure(input_tokens + output_tokens))
        model = call.model and safe_name(call.model)
        cost = self._prices.cost(call) if self._prices is not None and total else 0.0
        if cost is None and model not in self._warned and len(self._warned) < MODELS_WARNED_MAX:
            self._warned.add(model)
            self.unknown.append(model)
        return Usage(
            tokens=total,
            cost=cost or 0.0,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            unpriced_calls=int(cost is None),
            model=model,
            provider=call.provider and safe_name(call.provider),
        )

    def complete(self, usage: Usage) -> Usage:
        """Return what a host reports with its cost, if it names a model and no cost."""
        if not usage.model or usage.cost:
            return usage
        call = ModelCall(
            model=usage.model,
            provider=usage.provider,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )
        return self.price(call, usage.tokens)

    def take_warnings(self, now: datetime, step: int) -> list[Warned]:
        """Return what the run warns of, once for each model."""
        unknown, self.unknown = self.unknown, []
        return [
            Warned(
                at=now,
                code=PRICE_UNKNOWN,
                message=f"the price of model '{model or 'without a name'}' is not known: its "
                "calls count as costing nothing",
                step=step,
                subject=model,
            )
            for model in unknown
        ]


def add_usages(first: Usage, second: Usage) -> Usage:
    """Return the sum of two usages of one step, with the later model."""
    if not first.tokens and not first.unpriced_calls and not first.cost:
        return second
    return Usage(
        tokens=_figure(first.tokens + second.tokens),
        cost=min(first.cost + second.cost, float(FIGURE_MAX)),
        input_tokens=_figure(first.input_tokens + second.input_tokens),
        output_tokens=_figure(first.output_tokens + second.output_tokens),
        unpriced_calls=first.unpriced_calls + second.unpriced_calls,
        model=second.model or first.model,
        provider=second.provider or first.provider,
    )


def _figure(value: float) -> int:
    if type(value) is int and 0 <= value <= FIGURE_MAX:
        return value  # as nearly always
    return int(min(max(value, 0), FIGURE_MAX))


def _is_cost(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def _cost_at(call: ModelCall, input_price: float, output_price: float) -> float:
    price = call.input_tokens * input_price + call.output_tokens * output_price
    return price / TOKENS_PER_PRICE


@functools.cache
def _genai_prices() -> Any:
    with suppress(ImportError):
        return importlib.import_module("genai_prices")
    return None


def _installed_cost(call: ModelCall) -> float | None:
    if not is_installed() or (reference := _find_reference(call.model, call.provider)) is None:
        return None
    cached = min(call.cache_read_tokens, call.input_tokens)
    library = _genai_prices()
    usage = library.Usage(
        input_tokens=call.input_tokens,
        output_tokens=call.output_tokens,
        cache_read_tokens=cached,
        cache_write_tokens=min(call.cache_write_tokens, call.input_tokens - cached),
    )
    model, provider = reference
    return float(library.calc_price(usage, model, provider_id=provider).total_price)


@functools.lru_cache(maxsize=1_000)
def _find_reference(model: str, provider: str) -> tuple[str, str | None] | None:
    """Return model and provider as the price list names them; None if it lacks the model.

    Frameworks write the provider before the model (`openai/gpt-5`, `openai:gpt-5`), or name it in
    their own way, or not at all.
    """
    library = _genai_prices()
    names = [(model, provider)]
    for separator in ("/", ":"):
        before, _, rest = model.partition(separator)
        if rest:
            names.append((rest, before))
    for name, owner in names:
        for candidate in dict.fromkeys((owner or None, None)):
            try:
                library.calc_price(library.Usage(input_tokens=1), name, provider_id=candidate)
            except LookupError:
                continue
            return name, candidate
    return None

"""A stop in lines of text: what a person reads at night, in an error, a report or a terminal.

One function for all of them, so that none says what another does not.
"""

from collections.abc import Iterator, Sequence

from handrail.kernel.stop.best import BestResult
from handrail.views.history import AlikeView, EffectView, StopView

NUMBERS_SHOWN_MAX = 12
"""Numbers of steps in one line; of more, the first and the last are shown."""
FILES_NAMED_MAX = 5
"""Files of the best result that are named."""


def explain_stop(stop: StopView) -> Iterator[tuple[str, str]]:
    """Yield name and text of each line; lines without a text are left out."""
    rule = stop.rule if stop.code == stop.rule else f"{stop.rule} ({stop.code})"
    also = f", and {', '.join(stop.also)}" if stop.also else ""
    lines = [("rule", f"{rule}{also}"), ("limit", _describe_limit(stop))]
    lines.append(("pattern", ", then ".join(stop.pattern)))
    lines += [("alike", text) for text in _describe_alike(stop.alike)]
    lines += [
        ("evidence", "" if stop.alike else ", ".join(stop.evidence)),
        ("tools with effects since the last progress", _describe_effects(stop.effects)),
        ("what would have let it go on", stop.remedy),
        ("to allow more", describe_change(stop)),
        ("left to do", "; ".join(stop.remaining)),
        ("best measured result", _describe_best(stop.best)),
    ]
    yield from ((name, text) for name, text in lines if text)


def describe_change(stop: StopView) -> str:
    """Name the line that raises the limit; empty where no number is the limit."""
    if stop.change is None:
        return ""
    return f"{stop.change.guard} in a program under guard, {stop.change.definition} in a definition"


def _describe_limit(stop: StopView) -> str:
    profile = f", profile {stop.profile}" if stop.profile else ""
    if stop.limit is None:
        return profile.removeprefix(", ")
    name = f"{stop.limit_name} " if stop.limit_name else ""
    return f"{name}{stop.limit}, seen {stop.seen}{profile}"


def _describe_alike(alike: Sequence[AlikeView]) -> Iterator[str]:
    """Yield each thing that was alike, after the numbers of its steps."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for step in alike:
        unit = "handoff" if step.kind == "handoff" else "step"
        numbers.setdefault((unit, step.what), []).append(step.step)
    for (unit, what), steps in numbers.items():
        yield f"{unit}{'s' if len(steps) > 1 else ''} {_join_numbers(steps)}: {what}"


def _describe_effects(effects: Sequence[EffectView]) -> str:
    steps: dict[str, list[int]] = {}
    for call in effects:
        name = f"{call.tool} of {call.agent}" if call.agent else call.tool
        steps.setdefault(name, []).append(call.step)
    return "; ".join(
        f"{name} (step{'s' if len(numbers) > 1 else ''} {_join_numbers(numbers)})"
        for name, numbers in steps.items()
    )


def _join_numbers(numbers: Sequence[int]) -> str:
    if len(numbers) > NUMBERS_SHOWN_MAX:
        return f"{numbers[0]} to {numbers[-1]}, {len(numbers)} in all"
    *first, last = numbers
    return f"{', '.join(map(str, first))} and {last}" if first else str(last)


def _describe_best(best: BestResult | None) -> str:
    if best is None:
        return ""
    failures, score, files = best.failures, best.evidence.score, best.evidence.files
    parts = ["goal met"] if best.goal_met else []
    parts += [f"failures {failures}"] if failures is not None else []
    parts += [f"score {score:g}"] if score is not None else []
    parts += [f"files {', '.join(list(files)[:FILES_NAMED_MAX])}"] if files else []
    return f"step {best.step} of {best.agent}: {', '.join(parts)}"

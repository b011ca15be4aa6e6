"""Handoffs that come again: whether a trail of them repeats itself, and for how long it cannot.

A trail is a text, newest handoff first, with one character for each way of handing over. What it
means that it repeats itself, and how often it may, is for the rules to say.
"""

import functools
import re


def repetition_period(trail: str, times: int, period_max: int) -> int:
    """The shortest period with which the trail (newest first) begins `times` times in a row, or 0.

    A period of n or more repeats the first n * (times - 1); where those do not come again, as most
    often, there is none. Else the regular expression tries each, shortest first. The cost does not
    depend on the length of the run.
    """
    repeats = times - 1
    if (
        trail.find(trail[:repeats], 1, repeats + 3) < 0
        and trail.find(trail[: repeats * 4], 4, repeats * 4 + 15) < 0
        and trail.find(trail[: repeats * 16], 16, repeats * 16 + period_max) < 0
    ):
        return 0
    match = _repetition_regex(times, period_max).match(trail)
    return len(match[1]) if match is not None else 0


@functools.lru_cache(maxsize=64)
def _repetition_regex(times: int, period_max: int) -> re.Pattern[str]:
    repeats = times - 1
    return re.compile(rf"((.).{{0,{period_max - 1}}}?)(?=\2)\1{{{repeats}}}", re.DOTALL)


def unrepeated_handoffs(trail: str, times: int, period_max: int) -> int:
    """How many handoffs complete no repetition: the one that the trail begins with, and those that
    come after it, up to the first that goes the same way as the one before it.

    Of three times two have to be there before the last one begins, `period` handoffs earlier. So
    where the trail begins with no two of any period from 3 on, and the way was gone neither one nor
    two handoffs ago, nothing can have come three times after three more.
    """
    if not times:  # there is no rule against it
        return 1
    if times > 2 and _begun_repetition_regex(period_max).match(trail) is None:
        return 4
    return 0 if repetition_period(trail, times, period_max) else 1


@functools.lru_cache(maxsize=64)
def _begun_repetition_regex(period_max: int) -> re.Pattern[str]:
    return re.compile(rf"(.).?\1|(.{{3,{max(3, period_max)}}}?)\2", re.DOTALL)

"""Finds repetitions in a trail of handoffs, and how many handoffs can pass without one.

A trail is a text, newest handoff first, with one character for each edge. The stop rules decide
what a repetition means and how often a trail may repeat.
"""

import functools
import re

SHORT_PERIOD_MAX = 8
"""Up to here it is as fast to try each period."""


def repetition_period(trail: str, times: int, period_max: int) -> int:
    """Return the shortest period that starts the trail `times` times in a row, or 0.

    A period of n or more repeats the first n * (times - 1) handoffs; if those do not recur, which
    is the usual case, there is no period. Otherwise the regular expression tries each period,
    shortest first. The cost does not depend on the length of the run.
    """
    repeats = times - 1
    if period_max > SHORT_PERIOD_MAX and (
        trail.find(trail[:repeats], 1, repeats + 3) < 0
        and trail.find(trail[: repeats * 4], 4, repeats * 4 + 15) < 0
        and trail.find(trail[: repeats * 16], 16, repeats * 16 + period_max) < 0
    ):
        return 0
    match = repetition_regex(times, period_max).match(trail)
    return len(match[1]) if match is not None else 0


@functools.lru_cache(maxsize=64)
def repetition_regex(times: int, period_max: int) -> re.Pattern[str]:
    repeats = times - 1
    return re.compile(rf"((.).{{0,{period_max - 1}}}?)(?=\2)\1{{{repeats}}}", re.DOTALL)


def unrepeated_handoffs(trail: str, times: int, period_max: int) -> int:
    """Return how many handoffs complete no repetition: the newest of the trail, and later ones up
    to the first that uses the same edge as the handoff before it.

    Three repetitions need two of them before the last begins, `period` handoffs earlier. So if the
    trail starts with no pair of any period from 3 on, and neither of the two handoffs before used
    its first edge, no pattern can be complete three times after three more handoffs.
    """
    if not times:  # the rule is off
        return 1
    if times > 2 and _begun_repetition_regex(period_max).match(trail) is None:
        return 4
    return 0 if repetition_period(trail, times, period_max) else 1


@functools.lru_cache(maxsize=64)
def _begun_repetition_regex(period_max: int) -> re.Pattern[str]:
    return re.compile(rf"(.).?\1|(.{{3,{max(3, period_max)}}}?)\2", re.DOTALL)

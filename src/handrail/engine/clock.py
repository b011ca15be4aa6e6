"""The engine's time: the wall's at the start, then steady.

A wall clock that is set forward must not end every run at once, and one that is set back must
neither fire a clock twice nor put a later event before an earlier one. So the wall is looked at
once, when the engine opens, and never believed to be before what is already recorded; from then on
the monotonic clock counts. A jump while the engine is down looks like an outage, for which every
clock is pushed.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]


def wall() -> datetime:
    return datetime.now(UTC)


def steady_clock(
    not_before: datetime | None = None,
    wall: Clock = wall,
    monotonic: Callable[[], float] = time.monotonic,
) -> Clock:
    """A clock that only goes forward, one second a second."""
    began = wall()
    if not_before is not None:
        began = max(began, not_before)
    since = monotonic()
    return lambda: began + timedelta(seconds=monotonic() - since)

"""The engine's time: the wall clock's at the start, then steady.

A wall clock that is set forward must not end every run at once, and one that is set back must
neither fire a clock twice nor put a later event before an earlier one. So the engine reads the wall
clock once, when it opens, and never takes it for earlier than what is already recorded; from then
on the monotonic clock counts. A jump while the engine is down looks like an outage, for which every
clock is pushed.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]


def wall_clock() -> datetime:
    return datetime.now(UTC)


def steady_clock(
    not_before: datetime | None = None,
    wall: Clock = wall_clock,
    monotonic: Callable[[], float] = time.monotonic,
) -> Clock:
    """A clock that only goes forward, one second a second."""
    started_at = wall()
    if not_before is not None:
        started_at = max(started_at, not_before)
    started_monotonic = monotonic()
    return lambda: started_at + timedelta(seconds=monotonic() - started_monotonic)

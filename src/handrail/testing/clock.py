"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class ManualClock:
    """A clock that a test sets by hand. Pass `clock.now` wherever a clock is expected.

    clock = ManualClock()
    guard = Guard(StopRules(max_duration=600), clock=clock.now)
    clock.advance(minutes=11)
    """

    def __init__(self, now: datetime = NOON) -> None:
        assert now.tzinfo is not None, "times have a zone"
        self._now = now

    def now(self) -> datetime:
        return self._now

    def advance(
        self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0
    ) -> datetime:
        """Move forward by this duration; never back."""
        by = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        assert by >= timedelta(0), "time does not go back"
        self._now += by
        return self._now

    def until(self, moment: datetime) -> datetime:
        """Move forward to that moment; a past moment leaves the clock unchanged."""
        self._now = max(self._now, moment)
        return self._now

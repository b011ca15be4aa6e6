"""Ids that sort by the time at which they were made: UUIDs of version 7 (RFC 9562).

They name things and are no secrets: tokens and links have secrets of their own.
"""

import os
import random
import threading
import time
from uuid import UUID

_TIME_BITS, _HIGH_BITS, _LOW_BITS = 48, 12, 62
"""Of an id: milliseconds; chance before the variant; chance after it."""
_CHANCE_BITS = _HIGH_BITS + _LOW_BITS
_MASK = (1 << _TIME_BITS + _CHANCE_BITS) - 1
_chance = random.Random()  # noqa: S311 - no secrets
os.register_at_fork(after_in_child=_chance.seed)
_lock = threading.Lock()
_last = 0


def uuid7() -> UUID:
    """Return an id that is greater than all that this process made before, also within one
    millisecond and after a step of the clock backwards.
    """
    global _last
    with _lock:
        now = time.time_ns() // 1_000_000 << _CHANCE_BITS | _chance.getrandbits(_CHANCE_BITS)
        _last = max(now, _last + 1 + _chance.getrandbits(32)) & _MASK
        bits = _last
    high, low = bits >> _LOW_BITS, bits & (1 << _LOW_BITS) - 1
    milliseconds, high = high >> _HIGH_BITS, high & (1 << _HIGH_BITS) - 1
    return UUID(int=milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low)

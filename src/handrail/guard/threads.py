"""What the runs of one thread share: soft counts, budgets, and answers to compare with.

A thread is a conversation of several runs, such as a chat with a run for each of its turns. A run
takes the thread's state when it begins and returns it when it ends; so two runs of one thread at
the same time do not mix, and the one that ends last is remembered.
"""

from collections import OrderedDict
from typing import NamedTuple

from handrail.kernel.stop.findings import FindingReader
from handrail.kernel.stop.ledger import Ledger

THREADS_KEPT = 256
"""Threads that a guard remembers; the one that was quiet longest is forgotten first."""


class ThreadState(NamedTuple):
    """Where a thread stands: what its runs counted, None before the first, and what they found."""

    carried: Ledger | None
    reader: FindingReader


class ThreadStates:
    """The states of threads, by team and thread."""

    def __init__(self) -> None:
        self._states: OrderedDict[tuple[str, str], ThreadState] = OrderedDict()

    def take(self, team: str, thread: str) -> ThreadState:
        """Remove and return the thread's state; a new one where there is none."""
        return self._states.pop((team, thread), None) or ThreadState(None, FindingReader())

    def put_back(self, team: str, thread: str, state: ThreadState) -> None:
        self._states[team, thread] = state
        while len(self._states) > THREADS_KEPT:
            self._states.popitem(last=False)

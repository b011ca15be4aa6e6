"""The desk: who could work now, and on what. In memory, one per engine.

A *seat* is an agent that this engine can hand a dispatch to: a function in this process, or a
worker that waits for one (`claim`). Rules:

1. A dispatch that is offered while a seat with its role is free goes to it in the same commit,
   unless others of that role are waiting already; then it waits behind them, by priority and age.
2. `behind` names the roles of which dispatches may be waiting in the database. Only for those does
   a free seat cost a query.
3. A seat is taken when the claim is decided and given back when the result is in, or when the claim
   came to nothing.
4. A dispatch that every free seat was refused for (its run is paused; who committed does not
   verify) is passed over, so that it holds up nobody, until its run changes or a seat is free.
"""

from collections import deque
from collections.abc import Callable, Iterator

TRIES = 20
"""Seats that are tried for one dispatch: a run may refuse some (who committed does not verify)."""


class Seat:
    """An agent with room for `free` more dispatches."""

    only: frozenset[str] = frozenset()
    """The definitions that it works; empty: any."""

    def __init__(
        self,
        agent: str,
        roles: tuple[str, ...],
        session: str,
        free: int,
        begin: Callable[[str, int], None],
    ) -> None:
        self.agent, self.roles, self.session, self.free = agent, roles, session, free
        self.begin = begin
        """Called once the claim is on disk, with the run's id and the fence."""


class Desk:
    def __init__(self) -> None:
        self._seats: dict[str, deque[Seat]] = {}
        self.behind: set[str] = set()
        self.passed: dict[str, set[tuple[str, int]]] = {}
        """By role, the dispatches that were passed over: run and fence."""

    def add(self, seat: Seat) -> None:
        for role in seat.roles:
            self._seats.setdefault(role, deque()).append(seat)
            self.behind.add(role)
            self.passed.pop(role, None)

    def remove(self, seat: Seat) -> None:
        for role in seat.roles:
            row = self._seats.get(role, deque())
            if seat in row:
                row.remove(seat)
            if not row:
                self._seats.pop(role, None)

    def close(self) -> None:
        """Nobody is given anything any more."""
        self._seats.clear()

    def look_behind(self) -> None:
        """Somebody else may have offered something: ask the database once for every role."""
        self.behind.update(self._seats)
        self.passed.clear()

    def give_back(self, seat: Seat) -> None:
        """It has room again."""
        seat.free += 1
        if self.passed:
            for role in seat.roles:
                if self.passed.pop(role, None):
                    self.behind.add(role)

    def pass_over(self, role: str, run_id: str, fence: int) -> None:
        self.passed.setdefault(role, set()).add((run_id, fence))

    def look_at(self, role: str, run_id: str, fence: int) -> None:
        """It is passed over no more: its run has changed."""
        self.passed.get(role, set()).discard((run_id, fence))

    def free(self, role: str) -> Iterator[Seat]:
        """Seats that could take a dispatch of this role, everybody in turn."""
        row = self._seats.get(role)
        if row is None:
            return
        for _ in range(min(len(row), TRIES)):
            seat = row[0]
            row.rotate(-1)
            if seat.free > 0:
                yield seat

    def wants(self) -> dict[str, int]:
        """How many dispatches each role could take that may be waiting in the database."""
        wanted: dict[str, int] = {}
        for role in self.behind:
            free = sum(seat.free for seat in self._seats.get(role, ()))
            if free > 0:
                wanted[role] = free
        return wanted

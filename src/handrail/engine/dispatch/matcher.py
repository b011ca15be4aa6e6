"""Matches offered dispatches to free agents. In memory, one per engine.

A *slot* is an agent that this engine can give a dispatch to: a function in this process, or a
worker that waits for one (`claim`). Rules:

1. A dispatch that is offered while a slot with its role is free goes to it in the same commit,
   unless others of that role are waiting already; then it waits behind them, by priority and age.
2. `maybe_waiting` names the roles of which dispatches may be waiting in the database. Only for
   those does a free slot cost a query.
3. A slot is taken when the claim is decided and released when the result is in, or when the claim
   came to nothing.
4. A dispatch that was refused for every free slot (its run is paused; the agent that committed does
   not verify) is skipped, so that it blocks no other, until its run changes or a slot is free.
"""

from collections import deque
from collections.abc import Callable, Iterator

SLOTS_TRIED_MAX = 20
"""Slots tried for one dispatch: a run may refuse some (the agent that committed does not
verify)."""


class AgentSlot:
    """An agent with room for `free` more dispatches."""

    definitions: frozenset[str] = frozenset()
    """The definitions that it works on; empty: any."""

    def __init__(
        self,
        agent: str,
        roles: tuple[str, ...],
        session: str,
        free_capacity: int,
        on_claimed: Callable[[str, int], None],
    ) -> None:
        self.agent, self.roles, self.session, self.free_capacity = (
            agent,
            roles,
            session,
            free_capacity,
        )
        self.on_claimed = on_claimed
        """Called once the claim is on disk, with the run's id and the fence."""


class DispatchMatcher:
    def __init__(self) -> None:
        self._slots_by_role: dict[str, deque[AgentSlot]] = {}
        self.maybe_waiting: set[str] = set()
        self.skipped: dict[str, set[tuple[str, int]]] = {}
        """By role, the skipped dispatches: run and fence."""

    def add(self, slot: AgentSlot) -> None:
        for role in slot.roles:
            self._slots_by_role.setdefault(role, deque()).append(slot)
            self.maybe_waiting.add(role)
            self.skipped.pop(role, None)

    def remove(self, slot: AgentSlot) -> None:
        for role in slot.roles:
            slots = self._slots_by_role.get(role, deque())
            if slot in slots:
                slots.remove(slot)
            if not slots:
                self._slots_by_role.pop(role, None)

    def close(self) -> None:
        """Give out nothing any more."""
        self._slots_by_role.clear()

    def recheck_all(self) -> None:
        """Query the database once for every role: another engine may have offered dispatches."""
        self.maybe_waiting.update(self._slots_by_role)
        self.skipped.clear()

    def release(self, slot: AgentSlot) -> None:
        """Release a slot: it has room again."""
        slot.free_capacity += 1
        if self.skipped:
            for role in slot.roles:
                if self.skipped.pop(role, None):
                    self.maybe_waiting.add(role)

    def skip(self, role: str, run_id: str, fence: int) -> None:
        self.skipped.setdefault(role, set()).add((run_id, fence))

    def unskip(self, role: str, run_id: str, fence: int) -> None:
        """Stop skipping a dispatch: its run has changed."""
        self.skipped.get(role, set()).discard((run_id, fence))

    def free_slots(self, role: str) -> Iterator[AgentSlot]:
        """Slots that could take a dispatch of this role, in rotation."""
        slots = self._slots_by_role.get(role)
        if slots is None:
            return
        for _ in range(min(len(slots), SLOTS_TRIED_MAX)):
            slot = slots[0]
            slots.rotate(-1)
            if slot.free_capacity > 0:
                yield slot

    def capacity_to_fill(self) -> dict[str, int]:
        """How many dispatches, perhaps waiting in the database, each role could take."""
        capacity: dict[str, int] = {}
        for role in self.maybe_waiting:
            free_capacity = sum(slot.free_capacity for slot in self._slots_by_role.get(role, ()))
            if free_capacity > 0:
                capacity[role] = free_capacity
        return capacity

"""What is on record of channels, read from its first event, beside what everybody knows.

`Notes` is what agents and people tried and were told; `Record` goes through all events in the order
of commits and finds whatever must not be.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from handrail.engine.commit.channel_change import (
    CHANNEL_STREAM_PREFIX,
    decode_channel_events,
    evolve_journaled,
)
from handrail.kernel.agent_lifecycle import AgentState, Trigger
from handrail.kernel.channel import events as ev
from handrail.kernel.channel.state import Channel, check_invariants
from handrail.store.rows import StoredEntry
from handrail.store.urls import open_maintenance_store

COMPLETED = (Trigger.TURN_COMPLETE, Trigger.TURN_COMPLETE_SOLO)
HOLDING = (AgentState.ACTIVE, AgentState.WAITING)
PAGE = 500
Turn = tuple[str, int, str]
"""Channel, number, agent."""


class Notes:
    def __init__(self) -> None:
        self.says: set[tuple[str, str]] = set()
        self.said: set[tuple[str, str]] = set()
        self.completes: set[Turn] = set()
        self.completed: set[Turn] = set()
        self.stops: set[Turn] = set()
        """Turns that a process was stopped in, with their completion ready."""
        self.given: list[tuple[Turn, list[int]]] = []
        """What a turn came with: the ids of its messages."""

    def read(self, files: Iterable[Path]) -> None:
        for file in sorted(files):
            for line in file.read_text(encoding="utf-8").splitlines():
                what, channel, number, agent, more = json.loads(line)
                turn = channel, number, agent
                if what == "given":
                    self.given.append((turn, more))
                elif what in ("says", "said"):
                    getattr(self, what).add((channel, more))
                else:
                    getattr(self, what).add(turn)


class Record:
    def __init__(self, database: str, capacities: dict[str, int], notes: Notes) -> None:
        self.database, self.capacities, self.notes = database, capacities, notes
        self.wrong: list[str] = []
        self.channels: dict[str, Channel] = {}
        self.held: dict[str, set[str]] = defaultdict(set)
        """Agent -> the channels in which it has the turn."""
        self.ended: dict[Turn, Trigger] = {}
        self.granted: dict[Turn, tuple[int, int]] = {}
        """The messages that a turn comes with at least: after, up to."""
        self.messages: dict[str, list[tuple[int, ev.MessagePosted]]] = defaultdict(list)
        """Channel -> (id, message)."""

    def read(self) -> None:
        records, n = open_maintenance_store(self.database), 0
        try:
            while page := records.journal.read_feed(n, PAGE):
                n = page[-1].n
                for entry in page:
                    if entry.stream.startswith(CHANNEL_STREAM_PREFIX):
                        self._take(entry.stream.removeprefix(CHANNEL_STREAM_PREFIX), entry)
        finally:
            records.close()
        self._acknowledged()
        self._delivered()

    def _take(self, name: str, entry: StoredEntry) -> None:
        channel = self.channels.get(name, Channel(id=name))
        events = decode_channel_events(entry.body)
        told = [one.get("by") for one in msgspec.json.decode(entry.body)]
        first = entry.seq - entry.count + 1
        for seq, (event, by) in enumerate(zip(events, told, strict=True), first):
            self._look(channel, seq, event, by)
            channel = evolve_journaled(channel, event)
            if isinstance(event, ev.TurnGranted) and channel.turn is not None:
                self.granted[name, event.turn, event.agent_id] = channel.turn.after, event.upto
            holders = [one.agent_id for one in channel.members if one.state in HOLDING]
            self._expect(len(holders) <= 1, f"{name} at {seq}: {holders} have the turn")
        for broken in check_invariants(channel):
            self._expect(False, f"{entry.seq}: {broken}")
        self.channels[name] = channel

    def _look(self, channel: Channel, seq: int, event: object, by: str) -> None:
        where = f"{channel.id} at {seq}"
        match event:
            case ev.TurnGranted():
                self._expect(event.turn == channel.turns + 1, f"{where}: turn {event.turn} again")
                held, most = self.held[event.agent_id], self.capacities[event.agent_id]
                held.add(channel.id)
                told = f"{where}: {event.agent_id} can have {most} turns, and has {sorted(held)}"
                self._expect(len(held) <= most, told)
            case ev.TurnEnded():
                self._ended(channel, where, event, by)
            case ev.MessagePosted():
                self._posted(channel, where, event)
                self.messages[channel.id].append((seq, event))
            case _:
                pass

    def _ended(self, channel: Channel, where: str, event: ev.TurnEnded, by: str) -> None:
        turn, now = (channel.id, event.turn, event.agent_id), channel.turn
        right = now is not None and (now.number, now.agent_id) == turn[1:]
        self._expect(right, f"{where}: an old token ended a turn: {event}")
        self.held[event.agent_id].discard(channel.id)
        self.ended[turn] = event.trigger
        if event.trigger in COMPLETED:
            asked = turn in self.notes.completes and by == event.agent_id
            self._expect(asked, f"{where}: {by} completed {turn}, which nobody asked for")

    def _posted(self, channel: Channel, where: str, event: ev.MessagePosted) -> None:
        number = channel.message_count + 1
        self._expect(event.number == number, f"{where}: message {event.number} is not {number}")
        if not event.human:
            agent, turn, _ = event.text.rsplit(" ", 2)
            now = channel.turn
            mine = now is not None and (now.agent_id, now.number) == (agent, int(turn))
            self._expect(mine, f"{where}: '{event.text}' was said in another turn")

    def _acknowledged(self) -> None:
        said = Counter((name, one.text) for name, log in self.messages.items() for _, one in log)
        twice = [one for one, count in said.items() if count > 1]
        self._expect(not twice, f"said twice: {twice[:5]}")
        lost = self.notes.said - set(said)
        self._expect(not lost, f"acknowledged and lost: {sorted(lost)[:5]}")
        foreign = set(said) - self.notes.says
        self._expect(not foreign, f"nobody said: {sorted(foreign)[:5]}")
        ended = {turn for turn, how in self.ended.items() if how in COMPLETED}
        undone = self.notes.completed - ended
        self._expect(not undone, f"acknowledged and not completed: {sorted(undone)[:5]}")

    def _delivered(self) -> None:
        """A turn comes with all that others said since the last one, and none of it came before."""
        last: dict[tuple[str, str], tuple[int, int]] = {}
        for turn, ids in sorted(self.notes.given):
            name, number, agent = turn
            after, upto = self.granted[turn]
            rest = [
                (seq, one.number)
                for seq, one in self.messages[name]
                if one.number > after and (one.human or one.author != agent)
            ]
            least = [seq for seq, n in rest if n <= upto]
            whole = ids == [seq for seq, _ in rest[: len(ids)]] and ids[: len(least)] == least
            self._expect(whole, f"{turn} came with {ids}, not with {least}")
            before, seen = last.get((name, agent), (0, 0))
            if ids and before != number:
                self._expect(ids[0] > seen, f"{turn} came with {ids[0]} again")
            last[name, agent] = number, max([seen, *ids])

    def _expect(self, right: bool, told: str) -> None:
        if not right and len(self.wrong) < 100:
            self.wrong.append(told)

    def figures(self) -> dict[str, object]:
        late = self.notes.completes - self.notes.completed
        ended = {turn for turn, how in self.ended.items() if how in COMPLETED}
        return {
            "turns": len(self.granted),
            "messages": sum(map(len, self.messages.values())),
            "ends": Counter(how.value for how in self.ended.values()),
            "late_completions_refused": len(late - ended),
            "stopped_completing": len(self.notes.stops),
        }

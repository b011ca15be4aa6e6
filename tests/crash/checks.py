"""After the faults: is everything that was acknowledged there, once, and did every run end?

Reads the tables and the lines that `load.py` left, with code of its own: nothing here but the last
check uses what the engine uses.
"""

import hashlib
import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

Rows = Callable[[str], list[tuple[Any, ...]]]
SHOWN = 20


@dataclass
class Found:
    kills: int = 0
    runs: int = 0
    acknowledged: int = 0
    executions: int = 0
    lost_attempts: int = 0
    entries: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: "Found") -> None:
        for name, value in vars(other).items():
            mine = getattr(self, name)
            setattr(self, name, mine + value)

    def shown(self) -> dict[str, Any]:
        return {**vars(self), "wrong": self.wrong[:SHOWN], "wrong_count": len(self.wrong)}


def sqlite_rows(path: Path) -> Rows:
    db = sqlite3.connect(path)

    def rows(query: str) -> list[tuple[Any, ...]]:
        return db.execute(query).fetchall()

    return rows


def postgres_rows(db: psycopg.Connection) -> Rows:
    def rows(query: str) -> list[tuple[Any, ...]]:
        return db.execute(query.encode()).fetchall()

    return rows


def lines(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    whole = (line for line in path.read_text().split("\n") if line.endswith(" ."))
    return [line[:-2].split(" ") for line in whole]


def look(folder: Path, rows: Rows, *, ended: bool = True) -> Found:
    """Everything; `ended` says that all runs should have."""
    found = Found()
    acks, effects = lines(folder / "acks"), lines(folder / "effects")
    journal = Journal(rows)
    found.wrong += chain(rows, journal)
    found.wrong += acknowledged(acks, journal, rows)
    for run, events in journal.runs.items():
        found.wrong += [f"run {run}: {what}" for what in once(events)]
    found.wrong += worked(effects, journal)
    found.wrong += locks(effects, journal)
    if ended:
        found.wrong += stuck(rows)
    found.acknowledged = sum(ack[0] != "told" for ack in acks)
    found.told = Counter(" ".join(ack[1:])[:160] for ack in acks if ack[0] == "told")
    found.executions, found.entries = len(effects), len(journal.entries)
    found.runs = len(journal.runs)
    kinds = (event["type"] for events in journal.runs.values() for event in events)
    found.lost_attempts = sum(kind == "lost" for kind in kinds)
    ends = rows("SELECT workflow_id, terminal_status FROM workflow_executions")
    found.ends = Counter(f"{name} {status}" for name, status in ends)
    return found


class Journal:
    """All entries, and the events of each run in order."""

    def __init__(self, rows: Rows) -> None:
        self.entries = rows(
            "SELECT id, batch, stream, seq, count, body, hash FROM journal ORDER BY id"
        )
        self.streams: dict[str, list[tuple[int, int, str, bytes]]] = defaultdict(list)
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.at: dict[tuple[str, int], bytes] = {}
        for _, _, stream, seq, count, body, digest in self.entries:
            self.streams[stream].append((seq, count, body, bytes(digest)))
            self.at[stream, seq] = bytes(digest)
        for stream, entries in self.streams.items():
            if ":" not in stream:  # neither a lock's nor a row's on record
                entries.sort(key=lambda entry: entry[0])
                self.runs[stream] = [event for entry in entries for event in json.loads(entry[2])]


def chain(rows: Rows, journal: Journal) -> Iterable[str]:
    """Both chains, from the bytes on."""
    heads: dict[str, bytes] = {}
    for stream, entries in journal.streams.items():
        head, last = b"", 0
        for seq, count, body, digest in sorted(entries, key=lambda entry: entry[0]):
            if last + count != seq or len(json.loads(body)) != count:
                yield f"{stream}: {count} events after {last} are not {seq}"
            said = b"\n".join((head, stream.encode(), str(seq).encode(), body.encode()))
            head, last = hashlib.sha256(said).digest(), seq
            if head != digest:
                yield f"{stream}: the hash of entry {seq} is another"
                head = digest
        heads[stream] = head
    yield from _commits(rows, journal)
    subjects = rows("SELECT id, head, seq FROM workflow_executions")
    subjects += [
        (f"lock:{n}", h, s) for n, h, s in rows("SELECT repository, head, seq FROM commit_locks")
    ]
    subjects += rows("SELECT name, head, seq FROM streams")
    for name, head, seq in subjects:
        if heads.pop(name, None) != bytes(head) or journal.streams[name][-1][0] != seq:
            yield f"{name} stands elsewhere than its journal"
    yield from (f"{name} has a journal and no row" for name in heads)


def _commits(rows: Rows, journal: Journal) -> Iterable[str]:
    by_batch: dict[int, list[bytes]] = defaultdict(list)
    for _, batch, *_, digest in journal.entries:
        by_batch[batch].append(bytes(digest))
    head, last = b"", 0
    for n, batch, entries, digest in rows("SELECT n, batch, entries, hash FROM commits ORDER BY n"):
        hashes = by_batch.pop(batch, [])
        head = hashlib.sha256(head + hashlib.sha256(b"".join(hashes)).digest()).digest()
        if n != last + 1 or len(hashes) != entries or head != bytes(digest):
            yield f"commit {n} after {last}: {len(hashes)} entries of {entries}, or another hash"
            head = bytes(digest)
        last = n
    yield from (f"entries of batch {batch} belong to no commit" for batch in by_batch)


def acknowledged(acks: list[list[str]], journal: Journal, rows: Rows) -> Iterable[str]:
    """What the engine said it had done is there as it said."""
    keys = {
        key: json.loads(answer) for key, answer in rows("SELECT key, answer FROM idempotency_keys")
    }
    settled = {i for (i,) in rows("SELECT id FROM approvals WHERE status = 'answered'")}
    started: dict[str, set[str]] = defaultdict(set)
    for what, *said in acks:
        if what == "store":
            stream, seq, digest = said
            if journal.at.get((stream, int(seq))) != bytes.fromhex(digest):
                yield f"lost: {stream} {seq} was acknowledged"
        elif what == "start":
            key, run = said
            started[key].add(run)
            if run not in journal.runs or keys.get(key, {}).get("execution_id") != run:
                yield f"lost: run {run} was acknowledged for {key}"
        elif what == "answer" and said[0] not in settled:
            yield f"lost: the answer to {said[0]} was acknowledged"
        elif what == "report":
            run, fence, seq = said
            events = journal.runs.get(run, [])[: int(seq)]
            if not any(e["type"] in REPORTS and e["fence"] == int(fence) for e in events):
                yield f"lost: the result {fence} of run {run} was acknowledged"
    yield from (
        f"doubled: {key} began {len(runs)}" for key, runs in started.items() if len(runs) > 1
    )
    titles = Counter(json.loads(b)[0]["title"] for (b,) in rows(FIRST))
    yield from (f"doubled: {n} runs for {title}" for title, n in titles.items() if n > 1)


REPORTS = ("reported", "faulted")
CLOSING = (*REPORTS, "lost", "timed_out")
FIRST = "SELECT body FROM journal WHERE seq = count AND stream NOT LIKE '%:%'"


def once(events: list[dict[str, Any]]) -> Iterable[str]:
    """In one run: a dispatch is offered, claimed and closed once; times go forward; a lost attempt
    is followed by the next number."""
    seen: Counter[tuple[str, int]] = Counter()
    last, ended, lost = "", False, {}
    for event in events:
        kind, fence = event["type"], event.get("fence")
        if ended:
            yield f"{kind} after the end"
        if event["at"] < last:
            yield f"{kind} at {event['at']} comes after {last}"
        last, ended = event["at"], kind == "ended"
        if fence is None:
            continue
        step = "closed" if kind in CLOSING else kind
        seen[step, fence] += 1
        if seen[step, fence] > 1:
            yield f"doubled: dispatch {fence} was {step} twice"
        place = event["place"]
        if kind == "offered":
            before = lost.pop(place, None)
            if before is not None and event["attempt"] != before + 1:
                yield f"attempt {before} at {place} was lost, then came {event['attempt']}"
            lost[place, fence] = event["attempt"]
        if kind == "lost":
            lost[place] = lost[place, fence]


def worked(effects: list[list[str]], journal: Journal) -> Iterable[str]:
    """No dispatch is worked on twice; nothing is done again after it was reported; nobody reports
    what nobody did."""
    done = Counter((run, int(fence)) for run, _, fence, *_ in effects)
    closed, claimed = _dispatches(journal)
    for (run, fence), times in done.items():
        if times > 1:
            yield f"doubled: {run} fence {fence} was worked on {times} times"
        if (run, fence) not in claimed:
            yield f"{run} fence {fence} was worked on before its claim was on disk"
    for (run, fence), what in closed.items():
        if what in REPORTS and not done[run, fence]:
            yield f"run {run}: {fence} is reported, and nobody worked on it"
    yield from _again(effects, closed)


def _dispatches(journal: Journal) -> tuple[dict[tuple[str, int], str], set[tuple[str, int]]]:
    """How each was closed, and those that were claimed."""
    closed: dict[tuple[str, int], str] = {}
    claimed: set[tuple[str, int]] = set()
    for run, events in journal.runs.items():
        for event in events:
            if event["type"] in CLOSING:
                closed[run, event["fence"]] = event["type"]
            elif event["type"] == "claimed":
                claimed.add((run, event["fence"]))
    return closed, claimed


def _again(effects: list[list[str]], closed: dict[tuple[str, int], str]) -> Iterable[str]:
    """A key is the same until somebody reports under it; from then on nobody works under it."""
    by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
    for run, _, fence, _, key, _ in effects:
        by_key[run, key].append(int(fence))
    for (run, key), fences in by_key.items():
        reported = [fence for fence in fences if closed.get((run, fence)) == "reported"]
        if reported and (len(reported) > 1 or max(fences) > reported[0]):
            yield f"doubled: {key} was reported as {reported}, and worked on as {fences}"


def locks(effects: list[list[str]], journal: Journal) -> Iterable[str]:
    """Every commit was made under a grant to this run, and no grant serves two dispatches."""
    granted: dict[tuple[str, int], int] = {}
    for stream, entries in journal.streams.items():
        if stream.startswith("lock:"):
            for event in (event for entry in entries for event in json.loads(entry[2])):
                if event["type"] == "LockGranted":
                    granted[event["run"], event["fence"]] = 0
    for run, place, fence, _, _, lock in effects:
        if lock == "0":
            continue
        if (run, int(lock)) not in granted:
            yield f"run {run} committed at {place} under lock {lock}, which it was not granted"
        else:
            granted[run, int(lock)] += 1
            if granted[run, int(lock)] > 1:
                yield f"run {run}: lock {lock} serves a second dispatch, {fence}"


def stuck(rows: Rows) -> Iterable[str]:
    """All ended, and nothing is left over."""
    for run, status in rows("SELECT id, status FROM workflow_executions WHERE ended_at IS NULL"):
        yield f"stuck: run {run} is {status}"
    left = {
        "dispatches": "SELECT count(*) FROM dispatches",
        "messages": "SELECT count(*) FROM messages",
        "open questions": "SELECT count(*) FROM approvals WHERE status = 'open'",
        "locks that are held": "SELECT count(*) FROM commit_locks WHERE holder_step IS NOT NULL",
        "beads in work": "SELECT count(*) FROM beads WHERE status NOT IN ('closed', 'error')",
    }
    for what, query in left.items():
        ((count,),) = rows(query)
        if count:
            yield f"stuck: {count} {what} after all runs have ended"


def audited(url: str) -> list[str]:
    """What the engine's own audit says."""
    from handrail.engine.audit.verification import verify
    from handrail.store.urls import open_maintenance_store

    try:
        store = open_maintenance_store(url, read_only=True)
    except ModuleNotFoundError:  # PostgreSQL's is being written
        return []
    try:
        verified = verify(store)
    finally:
        store.close()
    return [f"verify: {found.code} {found.message}" for found in verified.findings]

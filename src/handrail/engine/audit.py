"""`verify`: is the record what was written? Every hash again, every row against the events.

Pass 1 walks the commits in order: each must follow from the one before, have exactly the entries it
says, and each entry must follow from the last one of its stream. Pass 2 replays every run, lock
and channel and compares what is stored about it (`audit_rows.py`, `audit_channels.py`).

What this cannot see by itself: a record whose end was cut off or written anew, with all hashes and
rows to match. Whoever kept a head elsewhere sees it: every head that the database ever had is the
hash of one of its commits.

A finished run may have been archived: its rows and bodies are gone, its hashes are not, and an
event in the stream "care" says who did it, and names the run with its last hash.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from handrail.engine import archive as archives
from handrail.engine.audit_channels import check_channel
from handrail.engine.audit_rows import check_lock, check_run
from handrail.engine.channel_work import CHANNEL
from handrail.engine.findings import Finding, Findings
from handrail.engine.works import LOCK
from handrail.kernel.decision import Value
from handrail.store.chain import START, commit_hash, entry_hash
from handrail.store.port import Commit, Recorded, StoreError
from handrail.store.records import Records

CARE = "care"
FIRST = -(2**62)
EVERYTHING = 2**62
RUNS_A_PAGE = 100
"""Whose states are in memory at once."""


class Archived(Value, tag="archived", tag_field="type"):
    """What the stream "care" says: this run was written to a file, and removed from here."""

    execution_id: str
    seq: int
    head: str
    file: str
    by: str
    at: str


decode_care = msgspec.json.Decoder(list[Archived]).decode


def _going() -> None:
    """For a check that goes on to its end."""


class Verified(Value):
    """What was looked at, and what is wrong with it. `head` is the hash of the last commit: keep it
    elsewhere, and nobody can cut off what came before."""

    head: str
    at: str
    commits: int
    entries: int
    runs: int
    archived: int
    findings: tuple[Finding, ...] = ()
    more: int = 0
    """Findings beyond those that are kept."""

    @property
    def unaltered(self) -> bool:
        return not self.findings


def verify(
    store: Records,
    head: str | None = None,
    archive: Path | None = None,
    going: Callable[[], None] = _going,
) -> Verified:
    """Looks at everything, as of one moment. `head` was kept elsewhere; `archive` is a file that
    finished runs were moved to. `going` is called again and again, and may raise to break off."""
    found = Findings()
    with store.reading():
        chain = _Chain(store, found, bytes.fromhex(head) if head is not None else None, going)
        chain.walk()
        chain.check_bodies()
        rows = _Rows(store, found, chain)
        rows.check_runs()
        rows.check_locks()
        rows.check_channels()
        rows.check_streams()
        rows.check_missing()
        rows.check_strays()
        if archive is not None:
            rows.check_archive(archive)
    return Verified(
        head=chain.head.hex(),
        at=chain.at,
        commits=chain.commits,
        entries=chain.entries,
        runs=rows.runs,
        archived=rows.archived,
        findings=tuple(found.kept),
        more=found.more,
    )


class _Chain:
    """Pass 1: the commits in order, and where every stream ends."""

    def __init__(
        self, store: Records, found: Findings, wanted: bytes | None, going: Callable[[], None]
    ) -> None:
        self.store, self.found, self.wanted, self.going = store, found, wanted, going
        self.n, self.head, self.at = 0, START, ""
        self.commits = self.entries = 0
        self.ends: dict[str, tuple[int, bytes]] = {}
        self.bare: dict[str, int] = {}
        """Streams with an entry that has no body, and the last such entry."""
        self.archived: dict[str, tuple[int, bytes]] = {}

    def walk(self) -> None:
        for commit, entries in self.store.commits(FIRST, EVERYTHING):
            self.going()
            self._commit(commit, entries)
            for entry in entries:
                self._entry(entry)
            self.n, self.head, self.at = commit.n, commit.hash, commit.at
            self.commits += 1
            self.entries += len(entries)
            if commit.hash == self.wanted:
                self.wanted = None
        if self.wanted is not None:
            told = f"no commit has the head {self.wanted.hex()}"
            told += ": the record was cut or replaced after that head was kept"
            self.found.add("head_missing", told)

    def _commit(self, commit: Commit, entries: list[Recorded]) -> None:
        n, wrong = commit.n, len(entries) - commit.entries
        if n != self.n + 1:
            gone = f"{self.n + 1}" if n == self.n + 2 else f"{self.n + 1} to {n - 1}"
            if n > self.n:
                self.found.add("commit_missing", f"of commit {gone} there is nothing left")
            else:
                self.found.add("commit_extra", f"a commit has the number {n}")
        if wrong:
            code = "entry_missing" if wrong < 0 else "entry_extra"
            told = f"commit {n} wrote {commit.entries} entries, and has {len(entries)}"
            self.found.add(code, told)
        elif n == self.n + 1:
            hashes = [entry.hash for entry in entries]
            if commit_hash(self.head, hashes) != commit.hash:
                told = f"commit {n} does not follow from the one before and its entries"
                told += ": one of them, their order or its own hash was changed"
                self.found.add("commit_changed", told, entries[0].stream if entries else "")

    def _entry(self, entry: Recorded) -> None:
        stream, seq = entry.stream, entry.seq
        last, head = self.ends.get(stream, (0, START))
        first = seq - entry.count + 1
        if first > last + 1:
            told = f"of {_called(stream)} the events {last + 1} to {first - 1} are gone"
            self.found.add("entry_missing", told, stream, first - 1)
        elif first != last + 1:
            told = f"{_called(stream)} has events {first} to {seq} after {last}"
            self.found.add("entry_order", f"{told}: inserted, or in another order", stream, seq)
        elif not entry.body:
            self.bare[stream] = seq
        elif not _fits(entry, head):
            told = f"{_called(stream)}: the events {first} to {seq} are not those that were written"
            self.found.add("entry_changed", told, stream, seq)
        self.ends[stream] = (seq, entry.hash)
        if stream == CARE:
            self._care(entry)

    def _care(self, entry: Recorded) -> None:
        try:
            for event in decode_care(entry.body):
                self.archived[event.execution_id] = (event.seq, bytes.fromhex(event.head))
        except (msgspec.DecodeError, ValueError) as error:
            told = f"what was archived cannot be read: {error}"
            self.found.add("unreadable", told, CARE, entry.seq)

    def check_bodies(self) -> None:
        for stream, seq in self.bare.items():
            if not self.is_archived(stream):
                told = f"{_called(stream)}: the events up to {seq} are empty, and nothing on record"
                told += " says that they were archived as they were"
                self.found.add("body_missing", told, stream, seq)

    def is_archived(self, stream: str) -> bool:
        """Whether it ends as it did when it was archived."""
        return stream in self.archived and self.archived[stream] == self.ends.get(stream)


class _Rows:
    """Pass 2: what is stored about each stream, against its events."""

    def __init__(self, store: Records, found: Findings, chain: _Chain) -> None:
        self.store, self.found, self.chain = store, found, chain
        self.runs = self.archived = 0
        self.left = dict(chain.ends)
        """Streams that nothing has been seen of yet."""

    def check_runs(self) -> None:
        after = ""
        while page := self.store.executions(after=after, limit=RUNS_A_PAGE):
            loaded = self.store.load([row.id for row in page])
            for row in page:
                self.runs += 1
                self.chain.going()
                after = row.id
                if not self._known(row.id, "workflow_executions"):
                    continue
                check_run(self.store, self.found, loaded[row.id].subject)

    def _known(self, stream: str, table: str) -> bool:
        """Whether its events can be replayed."""
        if self.left.pop(stream, None) is None:
            told = f"{table} has {_called(stream)}, but there are no events of it"
        elif self.chain.is_archived(stream):
            told = f"{table} has {_called(stream)}, but it was archived"
        else:
            return stream not in self.chain.bare
        self.found.add("row_extra", told, stream)
        return False

    def check_locks(self) -> None:
        for row in self.store.locks():
            stream = LOCK + row.repository
            if self._known(stream, "commit_locks"):
                check_lock(self.store, self.found, row, stream)

    def check_channels(self) -> None:
        after = ""
        while page := self.store.channels_all(after, RUNS_A_PAGE):
            for row in page:
                self.chain.going()
                after = row.id
                if self._known(CHANNEL + row.id, "channels"):
                    check_channel(self.store, self.found, row)

    def check_streams(self) -> None:
        for row in self.store.streams():
            end = self.left.get(row.name)
            if self._known(row.name, "streams") and end != (row.seq, row.head):
                told = f"streams says that {_called(row.name)} ends elsewhere than its events"
                self.found.add("row_changed", told, row.name, row.seq)

    def check_missing(self) -> None:
        for stream, (seq, _) in self.left.items():
            if self.chain.is_archived(stream):
                self.archived += 1
                continue
            told = f"{_called(stream)} has {seq} events, but its row was deleted"
            self.found.add("row_missing", told, stream, seq)

    def check_strays(self) -> None:
        for one in self.store.irregular("stray"):
            name, archived = _called(one.subject), self.chain.is_archived(one.subject)
            if one.code == "entry":
                told = f"{name} has an entry up to event {one.detail} that no commit has written"
                self.found.add("entry_extra", told, one.subject, int(one.detail))
            elif one.code == "chain":
                told = f"the chain went on to commit {one.detail}: the last commits were changed"
                self.found.add("commit_missing", told)
            elif one.code == "bead" and archived:
                continue
            elif one.code == "bead":
                told = f"bead {one.detail} was worked on in {name}, which was deleted"
                self.found.add("row_missing", told, one.subject)
            else:
                told = f"a row ({one.detail}) in the table of {one.code}s is of {name}"
                told += ", which does not exist"
                self.found.add("row_extra", told, one.subject)

    def check_archive(self, file: Path) -> None:
        try:
            for run in archives.check(file):
                if self.chain.archived.get(run.id) != (run.seq, run.head):
                    told = f"{file} has run {run.id} otherwise than it was when it was archived"
                    self.found.add("archive_changed", told, run.id, run.seq)
        except StoreError as error:
            self.found.add("archive_changed", str(error))


def _fits(entry: Recorded, head: bytes) -> bool:
    try:
        return entry_hash(head, entry.stream, entry.seq, entry.body) == entry.hash
    except UnicodeError:  # bytes that are no text
        return False


def _called(stream: str) -> str:
    if stream.startswith(LOCK):
        return f"the commit lock of {stream.removeprefix(LOCK)}"
    if stream.startswith(CHANNEL):
        return f"channel {stream.removeprefix(CHANNEL)}"
    return f"the stream '{stream}'" if stream == CARE or ":" in stream else f"run {stream}"

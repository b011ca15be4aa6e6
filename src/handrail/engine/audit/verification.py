"""`verify`: checks the record. Every hash is computed again, every row compared with the events.

Pass 1 walks the commits in order: each must follow from the one before, have exactly the entries it
says, and each entry must follow from the last one of its stream. Pass 2 replays every run, lock and
channel and compares its rows (`row_checks.py`).

What this cannot see by itself: a record whose end was cut off or written anew, with all hashes and
rows to match. A head that was stored elsewhere shows it: every head that the database ever had is
the hash of one of its commits.

A finished run may have been archived: its rows and bodies are gone, its hashes are not, and an
event in the stream "care" says who did it, and names the run with its last hash.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from handrail.engine.audit.record_checks import RecordCheck, RecordedRows
from handrail.engine.audit.row_checks import ChannelReplay, Findings, LockReplay, RunReplay
from handrail.engine.commit.channel_change import CHANNEL_STREAM_PREFIX
from handrail.engine.commit.lock_change import LOCK_STREAM_PREFIX
from handrail.engine.maintenance.archive_file import (
    RETENTION_STREAM,
    check_archive,
    decode_retention_events,
)
from handrail.store.maintenance import MaintenanceStore
from handrail.store.rows import (
    EMPTY_HEAD,
    CommitRow,
    StoredEntry,
    StoreError,
    commit_hash,
    entry_hash,
)
from handrail.views.audit import Verification

BEFORE_FIRST_COMMIT = -(2**62)
ALL_COMMITS = 2**62
PAGE_RUNS = 100
"""Runs whose states are in memory at once."""


def _continue() -> None:
    """Default progress callback: never breaks off."""


def verify(
    store: MaintenanceStore,
    head: str | None = None,
    archive: Path | None = None,
    on_progress: Callable[[], None] = _continue,
) -> Verification:
    """Check everything, as of one moment. `head` was stored elsewhere; `archive` is a file that
    finished runs were moved to. `on_progress` is called again and again, and may raise to break
    off."""
    findings = Findings()
    with store.snapshot():
        chain = _ChainCheck(
            store, findings, bytes.fromhex(head) if head is not None else None, on_progress
        )
        chain.walk()
        chain.check_bodies()
        rows = _RowCheck(store, findings, chain)
        rows.check_runs()
        rows.check_locks()
        rows.check_channels()
        rows.check_streams()
        rows.check_missing()
        rows.check_strays()
        has_stream = chain.stream_ends.__contains__
        records = RecordCheck(store, findings, chain.recorded, has_stream, on_progress)
        records.check(chain.is_archived)
        if archive is not None:
            rows.check_archive(archive)
    return Verification(
        head=chain.head.hex(),
        at=chain.at,
        commits=chain.commits,
        entries=chain.entries,
        runs=rows.runs,
        archived=rows.archived,
        findings=tuple(findings.items),
        more=findings.dropped,
    )


class _ChainCheck:
    """Pass 1: the commits in order, and where every stream ends."""

    def __init__(
        self,
        store: MaintenanceStore,
        findings: Findings,
        expected_head: bytes | None,
        on_progress: Callable[[], None],
    ) -> None:
        self.store, self.findings, self.expected_head, self.on_progress = (
            store,
            findings,
            expected_head,
            on_progress,
        )
        self.n, self.head, self.at = 0, EMPTY_HEAD, ""
        self.commits = self.entries = 0
        self.stream_ends: dict[str, tuple[int, bytes]] = {}
        self.empty_streams: dict[str, int] = {}
        """Streams with an entry that has no body, and the last such entry."""
        self.archived: dict[str, tuple[int, bytes]] = {}
        self.recorded = RecordedRows(findings)

    def walk(self) -> None:
        for commit, entries in self.store.journal.iter_commits(BEFORE_FIRST_COMMIT, ALL_COMMITS):
            self.on_progress()
            self._check_commit(commit, entries)
            for entry in entries:
                self._check_entry(entry)
            self.n, self.head, self.at = commit.n, commit.hash, commit.at
            self.commits += 1
            self.entries += len(entries)
            if commit.hash == self.expected_head:
                self.expected_head = None
        if self.expected_head is not None:
            message = (
                f"no commit has the head {self.expected_head.hex()}"
                ": the record was cut or replaced after that head was kept"
            )
            self.findings.add("head_missing", message)

    def _check_commit(self, commit: CommitRow, entries: list[StoredEntry]) -> None:
        n, surplus = commit.n, len(entries) - commit.entries
        if n != self.n + 1:
            missing = f"{self.n + 1}" if n == self.n + 2 else f"{self.n + 1} to {n - 1}"
            if n > self.n:
                self.findings.add("commit_missing", f"commit {missing} is missing")
            else:
                self.findings.add("commit_extra", f"a commit has the number {n}")
        if surplus:
            code = "entry_missing" if surplus < 0 else "entry_extra"
            message = f"commit {n} wrote {commit.entries} entries, and has {len(entries)}"
            self.findings.add(code, message)
        elif n == self.n + 1 and commit_hash(self.head, (e.hash for e in entries)) != commit.hash:
            message = (
                f"commit {n} does not follow from the one before and its entries"
                ": one of them, their order or its own hash was changed"
            )
            self.findings.add("commit_changed", message, entries[0].stream if entries else "")

    def _check_entry(self, entry: StoredEntry) -> None:
        stream, seq = entry.stream, entry.seq
        last, head = self.stream_ends.get(stream, (0, EMPTY_HEAD))
        first = seq - entry.count + 1
        if first > last + 1:
            message = f"{_stream_label(stream)}: events {last + 1} to {first - 1} are missing"
            self.findings.add("entry_missing", message, stream, first - 1)
        elif first != last + 1:
            message = f"{_stream_label(stream)} has events {first} to {seq} after {last}"
            self.findings.add(
                "entry_order", f"{message}: inserted, or in another order", stream, seq
            )
        elif not entry.body:
            self.empty_streams[stream] = seq
        elif not _has_valid_hash(entry, head):
            message = (
                f"{_stream_label(stream)}: the events {first} to {seq} are not those that were "
                "written"
            )
            self.findings.add("entry_changed", message, stream, seq)
        self.stream_ends[stream] = (seq, entry.hash)
        self.recorded.read(entry, is_first=first == 1)
        if stream == RETENTION_STREAM:
            self._read_retention(entry)

    def _read_retention(self, entry: StoredEntry) -> None:
        try:
            for event in decode_retention_events(entry.body):
                self.archived[event.execution_id] = (event.seq, bytes.fromhex(event.head))
        except (msgspec.DecodeError, ValueError) as error:
            self.findings.add(
                "unreadable",
                f"what was archived cannot be read: {error}",
                RETENTION_STREAM,
                entry.seq,
            )

    def check_bodies(self) -> None:
        for stream, seq in self.empty_streams.items():
            if not self.is_archived(stream):
                message = (
                    f"{_stream_label(stream)}: the events up to {seq} are empty, and nothing "
                    "on record"
                    " says that they were archived as they were"
                )
                self.findings.add("body_missing", message, stream, seq)

    def is_archived(self, stream: str) -> bool:
        """Whether the stream ends as it did when it was archived."""
        return stream in self.archived and self.archived[stream] == self.stream_ends.get(stream)


class _RowCheck:
    """Pass 2: the rows of each stream, against its events."""

    def __init__(self, store: MaintenanceStore, findings: Findings, chain: _ChainCheck) -> None:
        self.store, self.findings, self.chain = store, findings, chain
        self.runs = self.archived = 0
        self.unseen_streams = dict(chain.stream_ends)
        """Streams of which no row was checked yet."""

    def check_runs(self) -> None:
        after = ""
        while page := self.store.runs.list_by_id(after=after, limit=PAGE_RUNS):
            loaded = self.store.runs.load([row.id for row in page])
            for row in page:
                self.runs += 1
                self.chain.on_progress()
                after = row.id
                if self._is_replayable(row.id, "workflow_executions"):
                    stored = loaded[row.id].row
                    RunReplay(self.store, self.findings, stored, self.chain.recorded).check()

    def _is_replayable(self, stream: str, table: str) -> bool:
        """Whether the stream's events can be replayed."""
        if self.unseen_streams.pop(stream, None) is None:
            message = f"{table} has {_stream_label(stream)}, but there are no events of it"
        elif self.chain.is_archived(stream):
            message = f"{table} has {_stream_label(stream)}, but it was archived"
        else:
            return stream not in self.chain.empty_streams
        self.findings.add("row_extra", message, stream)
        return False

    def check_locks(self) -> None:
        for row in self.store.locks.list(limit=None):
            if self._is_replayable(LOCK_STREAM_PREFIX + row.repository, "commit_locks"):
                LockReplay(self.store, self.findings, row).check()

    def check_channels(self) -> None:
        after = ""
        while page := self.store.channels.list(after, PAGE_RUNS):
            for row in page:
                self.chain.on_progress()
                after = row.id
                if self._is_replayable(CHANNEL_STREAM_PREFIX + row.id, "channels"):
                    ChannelReplay(self.store, self.findings, row).check()

    def check_streams(self) -> None:
        for row in self.store.journal.list_streams():
            end = self.unseen_streams.get(row.name)
            if self._is_replayable(row.name, "streams") and end != (row.seq, row.head):
                self.findings.add(
                    "row_changed",
                    f"streams says that {_stream_label(row.name)} ends elsewhere than its events",
                    row.name,
                    row.seq,
                )

    def check_missing(self) -> None:
        for stream, (seq, _) in self.unseen_streams.items():
            if self.chain.is_archived(stream):
                self.archived += 1
                continue
            self.findings.add(
                "row_missing",
                f"{_stream_label(stream)} has {seq} events, but its row was deleted",
                stream,
                seq,
            )

    def check_strays(self) -> None:
        for stray in self.store.find_irregularities("stray"):
            label, is_archived = _stream_label(stray.subject), self.chain.is_archived(stray.subject)
            if stray.code == "entry":
                message = (
                    f"{label} has an entry up to event {stray.detail} that no commit has written"
                )
                self.findings.add("entry_extra", message, stray.subject, int(stray.detail))
            elif stray.code == "chain":
                message = (
                    f"the chain went on to commit {stray.detail}: the last commits were changed"
                )
                self.findings.add("commit_missing", message)
            elif stray.code == "bead" and is_archived:
                continue
            elif stray.code == "bead":
                message = f"bead {stray.detail} was worked on in {label}, which was deleted"
                self.findings.add("row_missing", message, stray.subject)
            else:
                message = (
                    f"a row ({stray.detail}) in the table of {stray.code}s is of {label}"
                    ", which does not exist"
                )
                self.findings.add("row_extra", message, stray.subject)

    def check_archive(self, file: Path) -> None:
        try:
            for run in check_archive(file):
                if self.chain.archived.get(run.id) != (run.seq, run.head):
                    self.findings.add(
                        "archive_changed",
                        f"{file} has run {run.id} otherwise than it was when it was archived",
                        run.id,
                        run.seq,
                    )
        except StoreError as error:
            self.findings.add("archive_changed", str(error))


def _has_valid_hash(entry: StoredEntry, head: bytes) -> bool:
    try:
        return entry_hash(head, entry.stream, entry.seq, entry.body) == entry.hash
    except UnicodeError:  # bytes that are not text
        return False


def _stream_label(stream: str) -> str:
    if stream.startswith(LOCK_STREAM_PREFIX):
        return f"the commit lock of {stream.removeprefix(LOCK_STREAM_PREFIX)}"
    if stream.startswith(CHANNEL_STREAM_PREFIX):
        return f"channel {stream.removeprefix(CHANNEL_STREAM_PREFIX)}"
    return (
        f"the stream '{stream}'" if stream == RETENTION_STREAM or ":" in stream else f"run {stream}"
    )

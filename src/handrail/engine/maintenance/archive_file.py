"""The archive's file: finished runs as JSON lines, whole and with their hashes, so that each can be
checked on its own against what the database's chain says about it.

    {"type": "archive", "format": 1, "by": …, "at": …}
    {"type": "definition", …}            every version that a run below was on
    {"type": "run", "execution": {…}, "bead": {…}, "notes": N}
    {"type": "entry", …}, {"type": "transition", …}, {"type": "approval", …}, {"type": "note", …}
    {"type": "end", "runs": N}           without it the file is not complete

A name that ends in .gz is compressed. Hashes are hexadecimal.
"""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from handrail.kernel.decision import Value
from handrail.store.columns import Row
from handrail.store.rows import EMPTY_HEAD, StoreError, entry_hash

ARCHIVE_FORMAT = 1
RETENTION_STREAM = "care"
encode = msgspec.json.Encoder().encode


class RunArchived(Value, tag="archived", tag_field="type"):
    """An event of the stream "care": this run was written to a file, and removed from here."""

    execution_id: str
    seq: int
    head: str
    file: str
    by: str
    at: str


decode_retention_events = msgspec.json.Decoder(list[RunArchived]).decode


class ArchivedRun(Row):
    """A run in the file, and where its chain ends."""

    id: str
    seq: int
    head: bytes


class ArchiveWriter:
    """Appends to a file that the caller creates and renames."""

    def __init__(self, file: Path, *, by: str, at: str, compressed: bool) -> None:
        raw = file.open("wb")
        self._out = gzip.GzipFile("", "wb", 6, raw) if compressed else raw
        self._raw = raw
        self._versions: set[tuple[str, int]] = set()
        self.runs = 0
        self.write_line("archive", format=ARCHIVE_FORMAT, by=by, at=at)

    def write_line(self, kind: str, row: Row | None = None, **fields: object) -> None:
        values = row_fields(row) if row is not None else {}
        self._out.write(encode({"type": kind, **values, **fields}) + b"\n")

    def write_rows(self, kind: str, rows: Sequence[Row]) -> None:
        for row in rows:
            self.write_line(kind, row)

    def add_version(self, workflow_id: str, version: int) -> bool:
        """Return whether this version was not written yet, and mark it as written."""
        is_new = (workflow_id, version) not in self._versions
        self._versions.add((workflow_id, version))
        return is_new

    def close(self) -> None:
        self.write_line("end", runs=self.runs)
        self._out.close()
        self._raw.close()


def row_fields(row: Row) -> dict[str, Any]:
    """The columns of a row; bytes as hexadecimal."""
    return {
        name: value.hex() if isinstance(value, bytes) else value
        for name, value in asdict(row).items()
    }


def check_archive(file: Path) -> Iterator[ArchivedRun]:
    """Return the runs of a file, with the events of each hashed again. Raises if a hash differs."""
    run: dict[str, Any] | None = None
    seq, head, runs = 0, EMPTY_HEAD, 0
    for number, line in enumerate(_read_lines(file), 1):
        kind = line.get("type")
        if (number == 1) != (kind == "archive"):
            raise StoreError(f"{file}:{number}: this is not a Handrail archive; name an archive")
        if kind in ("run", "end") and run is not None:
            yield _check_run_end(file, run, seq, head)
            runs += 1
        if kind == "run":
            run, seq, head = line["execution"], 0, EMPTY_HEAD
        elif kind == "entry" and run is not None:
            head = entry_hash(head, line["stream"], line["seq"], line["body"])
            if head.hex() != line["hash"] or line["stream"] != run["id"]:
                message = f"event {line['seq']} of run {run['id']} was changed"
                raise StoreError(f"{file}:{number}: {message}; take another copy of the archive")
            seq = line["seq"]
        elif kind == "end":
            if line["runs"] != runs:
                message = f"it says {line['runs']} runs and has {runs}"
                raise StoreError(f"{file}: {message}; take another copy of the archive")
            return
    raise StoreError(f"{file}: its end is missing; take another copy of the archive")


def _check_run_end(file: Path, run: dict[str, Any], seq: int, head: bytes) -> ArchivedRun:
    if (seq, head.hex()) != (run["seq"], run["head"]):
        raise StoreError(
            f"{file}: run {run['id']} has events up to {seq}, not {run['seq']}; "
            "take another copy of the archive"
        )
    return ArchivedRun(id=run["id"], seq=seq, head=head)


def _read_lines(file: Path) -> Iterator[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    try:
        with file.open("rb") as raw:
            is_compressed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            for line in gzip.GzipFile(fileobj=raw) if is_compressed else raw:
                yield decode(line)
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror or error}; name an archive") from error
    except (msgspec.DecodeError, EOFError, zlib.error, KeyError) as error:
        raise StoreError(f"{file}: this is not a complete Handrail archive ({error})") from error

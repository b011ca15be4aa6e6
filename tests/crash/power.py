"""Power loss: every write of an engine on SQLite is recorded, with every sync and everything that
was acknowledged, and then the disk is made as it could have been when the power went.

    LD_PRELOAD=shim.so python power.py FOLDER FULL     the recorded load

The model is stricter than the usual disk: what was written since the last completed sync of a file
may be there or not, sector by sector, in any order; a file's name is there once its folder has been
synced, and gone only after that too.
"""

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
HEAD = struct.Struct("=4sIQQ")
DATABASE = "power.db"
CHECKPOINT_PAGES = 60
"""Far fewer than usual, so that there are checkpoints to fail in."""
SECONDS = 600
"""For a load that takes two: machines stall."""


def compiled(folder: Path) -> Path:
    library = folder / "shim.so"
    source = str(HERE / "shim.c")
    gcc = shutil.which("gcc") or shutil.which("cc")
    assert gcc, "a C compiler is needed"
    command = [gcc, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(library), source, "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True)
    return library


def preloaded(library: Path, **settings: str) -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": str(library), "SHIM_MATCH": DATABASE, **settings}


def recorded(folder: Path, synchronous: str) -> list["Record"]:
    """The log of a load that was left alone, from an empty folder on."""
    (folder / "lines").mkdir(parents=True)
    library, log = compiled(folder), folder / "log"
    environment = preloaded(library, SHIM_MARK="/lines/", SHIM_LOG=str(log))
    command = [sys.executable, str(HERE / "power.py"), str(folder), synchronous]
    subprocess.run(command, env=environment, check=True, timeout=SECONDS, capture_output=True)
    return list(read(log))


@dataclass(slots=True)
class Record:
    what: str
    path: str
    offset: int
    data: bytes


def read(log: Path) -> Iterator[Record]:
    data, at = log.read_bytes(), 0
    while at < len(data):
        what, path, offset, length = HEAD.unpack_from(data, at)
        at += HEAD.size
        name = data[at : at + path].decode()
        at += path
        kind = what.rstrip(b"\0").decode()
        body = data[at : at + length] if kind in ("W", "M") else b""
        at += len(body)
        yield Record(kind, name, offset, body)


@dataclass
class File:
    """What is certainly on disk, and what was asked for since."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Record] = field(default_factory=list)

    def sync(self) -> None:
        for record in self.pending:
            apply(self.durable, record)
        self.pending = []

    def torn(self, chance: random.Random, sector: int) -> bytes:
        """Some sectors of what is pending, any of them."""
        image = bytearray(self.durable)
        for record in self.pending:
            if record.what == "T":
                if chance.random() < 0.5:
                    apply(image, record)
                continue
            for start in range(0, len(record.data), sector):
                if chance.random() < 0.5:
                    part = record.data[start : start + sector]
                    apply(image, Record("W", record.path, record.offset + start, part))
        return bytes(image)

    def whole(self) -> bytes:
        image = bytearray(self.durable)
        for record in self.pending:
            apply(image, record)
        return bytes(image)


def apply(image: bytearray, record: Record) -> None:
    if record.what == "T":
        if record.offset <= len(image):
            del image[record.offset :]
        else:
            image.extend(bytes(record.offset - len(image)))
        return
    end = record.offset + len(record.data)
    if len(image) < record.offset:
        image.extend(bytes(record.offset - len(image)))
    image[record.offset : end] = record.data


class Disk:
    """Follows the log; `image` is what could be found after a power loss here."""

    def __init__(self) -> None:
        self.names: dict[str, File] = {}
        self.durable_names: dict[str, File] = {}
        self.lines: dict[str, list[bytes]] = {"acks": [], "effects": []}

    def follow(self, record: Record) -> None:
        match record.what:
            case "W" | "T":
                self.names.setdefault(record.path, File()).pending.append(record)
            case "S":
                self.names.setdefault(record.path, File()).sync()
            case "D":
                self.durable_names = dict(self.names)
            case "U":
                self.names.pop(record.path, None)
            case "M":
                self.lines[Path(record.path).name].append(record.data)
            case other:
                raise AssertionError(f"no record is '{other}'")

    def image(self, how: str, chance: random.Random) -> dict[str, bytes]:
        """`dropped`: only what was synced. `kept`: all. `torn`: some of the sectors since."""
        if how == "kept":
            return {_name(path): file.whole() for path, file in self.names.items()}
        if how == "dropped":
            return {_name(path): bytes(f.durable) for path, f in self.durable_names.items()}
        names = self.durable_names if chance.random() < 0.7 else self.names
        sector = chance.choice((512, 4096))
        return {_name(path): file.torn(chance, sector) for path, file in names.items()}


def _name(path: str) -> str:
    return Path(path).name


def cuts(records: list[Record], wanted: int, chance: random.Random) -> set[int]:
    """After how many records the power goes: around syncs and acknowledgements, and anywhere."""
    near: set[int] = set()
    for n, record in enumerate(records):
        if record.what in "SDUM":
            near |= {n, n + 1}
    if wanted >= len(records):
        return set(range(len(records) + 1))
    some = chance.sample(sorted(near), min(len(near), wanted * 2 // 3))
    return {*some, *chance.sample(range(len(records) + 1), wanted // 3), len(records)}


def main(folder: Path, synchronous: str) -> None:
    """Two lives, each to its orderly end, with the settings that are to be tried."""
    import load

    from handrail.store.sqlite import connection

    connect = connection.connect

    def connected(path: str, *, read_only: bool = False):
        db = connect(path, read_only=read_only)
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        return db

    connection.connect = connected
    for life, quota in enumerate((15, 30)):
        url = f"sqlite:///{folder}/{DATABASE}"
        load.main(url, str(folder / "lines"), f"power-{life}", quota)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

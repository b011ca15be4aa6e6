"""`handrail db`: how large it is, finished runs to a file, a copy, and the way back."""

import getpass
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from handrail.cli import words
from handrail.cli.database import FAILED, WRONG_INPUT, InputError, complain, records
from handrail.engine import care
from handrail.kernel.reading import seconds
from handrail.store.port import StoreError
from handrail.store.records import BrokenBackup, Records, Sizes


def show_sizes(database: str, *, as_json: bool) -> int:
    def do() -> tuple[dict[str, Any], list[str]]:
        with records(database) as store:
            sizes, where = store.sizes(), store.where
        return {"database": where, **msgspec.to_builtins(sizes)}, _size_lines(where, sizes)

    return _done("db", do, as_json=as_json)


def archive_runs(database: str, file: str, *, older_than: str, by: str, as_json: bool) -> int:
    def do() -> tuple[dict[str, Any], list[str]]:
        now = datetime.now(UTC)
        age = seconds(older_than)
        if age is None or age > now.timestamp():
            raise InputError(f"--older-than is '{older_than[:80]}'; write 30d, 12h or 0")
        before = now - timedelta(seconds=age)
        who = words.typed(by) or getpass.getuser()
        with records(database, read_only=False) as store:
            kept = care.archive(store, _new(file), by=who, now=now, before=before)
        if not kept.runs:
            lines = [f"no run ended more than {older_than} ago; nothing was archived"]
        else:
            runs, entries = words.count(kept.runs, "run"), f"{kept.entries:,} entries"
            lines = [f"{words.clean(kept.file)}: {runs} with {entries} archived by {who}"]
        return {**msgspec.to_builtins(kept), "by": who}, lines

    return _done("db archive", do, as_json=as_json)


def back_up(database: str, file: str, *, as_json: bool) -> int:
    def do() -> tuple[dict[str, Any], list[str]]:
        path = _new(file)
        with records(database) as store:
            head = care.backup(store, path)
        size = path.stat().st_size
        lines = [f"{words.clean(file)}: {_bytes(size)}"]
        if head is not None:
            lines.append(f"head {head.hash.hex()} of {head.at}")
        said = {"head": head.hash.hex(), "at": head.at} if head is not None else {}
        return {"file": file, "bytes": size, **said}, lines

    return _done("db backup", do, as_json=as_json)


def restore_from(database: str, file: str, *, yes: bool, as_json: bool) -> int:
    def do() -> tuple[dict[str, Any], list[str]]:
        with records(database, read_only=False, make=True) as store:
            _ask(store, yes=yes)
            care.restore(store, Path(file), datetime.now(UTC))
            head, where = store.head(), store.where
        lines = [f"{words.clean(where)}: restored from {words.clean(file)}"]
        if head is not None:
            lines.append(f"head {head.hash.hex()} of {head.at}")
        said = {"head": head.hash.hex(), "at": head.at} if head is not None else {}
        return {"database": where, "file": file, **said}, lines

    return _done("db restore", do, as_json=as_json)


def _ask(store: Records, *, yes: bool) -> None:
    if not yes and not store.is_empty():
        told = f"{store.where} is not empty, and all that is in it would be replaced"
        raise InputError(f"{told}; back it up, then say --yes")


def _new(file: str) -> Path:
    path = Path(file)
    if not file or not path.name or path.is_dir():
        raise InputError(f"'{file}' names no file; name a new one")
    if path.exists():
        raise InputError(f"{file} exists already; name a new file")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{file}: there is no folder {path.parent}; make it first")
    return path


def _done(
    command: str, do: Callable[[], tuple[dict[str, Any], list[str]]], *, as_json: bool
) -> int:
    try:
        document, lines = do()
    except (InputError, BrokenBackup) as error:
        complain(command, error)
        return WRONG_INPUT
    except StoreError as error:
        complain(command, error)
        return FAILED
    except ValueError as error:  # a NUL in a name
        complain(command, InputError(f"{error}; name another file"))
        return WRONG_INPUT
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        print("\n".join(lines))
    return 0


def _size_lines(where: str, sizes: Sizes) -> list[str]:
    log = f", its log {_bytes(sizes.log_bytes)}" if sizes.log_bytes is not None else ""
    free = f", of which {_bytes(sizes.free_bytes)} free" if sizes.free_bytes else ""
    lines = [f"{words.clean(where)}: {_bytes(sizes.bytes)}{free}{log}"]
    wide = max((len(one.name) for one in sizes.tables), default=0)
    for one in sizes.tables:
        size = _bytes(one.bytes) if one.bytes is not None else ""
        lines.append(f"  {one.name:{wide}}  {one.rows:>12,} rows  {size:>10}".rstrip())
    return lines


def _bytes(number: int) -> str:
    if number < 1000:
        return f"{number} B"
    size = number / 1000
    for unit in ("kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"

"""`handrail db`: show the size, archive finished runs to a file, back up, restore."""

import getpass
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from handrail.cli import formatting
from handrail.cli.database import (
    EXIT_FAILED,
    EXIT_WRONG_INPUT,
    InputError,
    open_database,
    print_error,
)
from handrail.engine.maintenance import retention
from handrail.kernel.definition.reader import parse_duration
from handrail.store.engine_store import StoreError
from handrail.store.maintenance import BrokenBackupError, DatabaseSizes, MaintenanceStore


def show_sizes(database: str, *, as_json: bool) -> int:
    def do() -> tuple[dict[str, Any], list[str]]:
        with open_database(database) as store:
            sizes, location = store.measure_sizes(), store.display_name
        return {"database": location, **msgspec.to_builtins(sizes)}, _size_lines(location, sizes)

    return _run_and_print("db", do, as_json=as_json)


def archive_runs(database: str, file: str, *, older_than: str, by: str, as_json: bool) -> int:
    def do() -> tuple[dict[str, Any], list[str]]:
        now = datetime.now(UTC)
        age = parse_duration(older_than)
        if age is None or age > now.timestamp():
            raise InputError(f"--older-than is '{older_than[:80]}'; write 30d, 12h or 0")
        before = now - timedelta(seconds=age)
        who = formatting.decode_argument(by) or getpass.getuser()
        with open_database(database, read_only=False) as store:
            archived = retention.archive(
                store, _check_new_file(file), by=who, now=now, before=before
            )
        if not archived.runs:
            lines = [f"no run ended more than {older_than} ago; nothing was archived"]
        else:
            runs, entries = (
                formatting.format_count(archived.runs, "run"),
                f"{archived.entries:,} entries",
            )
            lines = [
                f"{formatting.printable(archived.file)}: {runs} with {entries} archived by {who}"
            ]
        return {**msgspec.to_builtins(archived), "by": who}, lines

    return _run_and_print("db archive", do, as_json=as_json)


def back_up(database: str, file: str, *, as_json: bool) -> int:
    def do() -> tuple[dict[str, Any], list[str]]:
        path = _check_new_file(file)
        with open_database(database) as store:
            head = retention.backup(store, path)
        size = path.stat().st_size
        lines = [f"{formatting.printable(file)}: {_format_bytes(size)}"]
        if head is not None:
            lines.append(f"head {head.hash.hex()} of {head.at}")
        head_fields = {"head": head.hash.hex(), "at": head.at} if head is not None else {}
        return {"file": file, "bytes": size, **head_fields}, lines

    return _run_and_print("db backup", do, as_json=as_json)


def restore_from(database: str, file: str, *, yes: bool, as_json: bool) -> int:
    def do() -> tuple[dict[str, Any], list[str]]:
        with open_database(database, read_only=False, create=True) as store:
            _require_confirmation(store, yes=yes)
            retention.restore(store, Path(file), datetime.now(UTC))
            head, location = store.get_last_commit(), store.display_name
        lines = [f"{formatting.printable(location)}: restored from {formatting.printable(file)}"]
        if head is not None:
            lines.append(f"head {head.hash.hex()} of {head.at}")
        head_fields = {"head": head.hash.hex(), "at": head.at} if head is not None else {}
        return {"database": location, "file": file, **head_fields}, lines

    return _run_and_print("db restore", do, as_json=as_json)


def _require_confirmation(store: MaintenanceStore, *, yes: bool) -> None:
    if not yes and not store.is_empty():
        message = f"{store.display_name} is not empty, and all that is in it would be replaced"
        raise InputError(f"{message}; back it up, then say --yes")


def _check_new_file(file: str) -> Path:
    path = Path(file)
    if not file or not path.name or path.is_dir():
        raise InputError(f"'{file}' names no file; name a new one")
    if path.exists():
        raise InputError(f"{file} exists already; name a new file")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{file}: there is no folder {path.parent}; make it first")
    return path


def _run_and_print(
    command: str, action: Callable[[], tuple[dict[str, Any], list[str]]], *, as_json: bool
) -> int:
    try:
        document, lines = action()
    except (InputError, BrokenBackupError) as error:
        print_error(command, error)
        return EXIT_WRONG_INPUT
    except StoreError as error:
        print_error(command, error)
        return EXIT_FAILED
    except ValueError as error:  # a NUL in a name
        print_error(command, InputError(f"{error}; name another file"))
        return EXIT_WRONG_INPUT
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        print("\n".join(lines))
    return 0


def _size_lines(location: str, sizes: DatabaseSizes) -> list[str]:
    log = f", its log {_format_bytes(sizes.log_bytes)}" if sizes.log_bytes is not None else ""
    free = f", of which {_format_bytes(sizes.free_bytes)} free" if sizes.free_bytes else ""
    lines = [f"{formatting.printable(location)}: {_format_bytes(sizes.bytes)}{free}{log}"]
    name_columns = max((len(table.name) for table in sizes.tables), default=0)
    for table in sizes.tables:
        size = _format_bytes(table.bytes) if table.bytes is not None else ""
        lines.append(f"  {table.name:{name_columns}}  {table.rows:>12,} rows  {size:>10}".rstrip())
    return lines


def _format_bytes(byte_count: int) -> str:
    if byte_count < 1000:
        return f"{byte_count} B"
    size = byte_count / 1000
    for unit in ("kB", "MB"):
        if size < 1000:
            return f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"

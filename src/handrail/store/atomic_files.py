"""Atomic creation of files: a new file is complete and synced to disk, or absent."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from handrail.store.rows import StoreError


@contextmanager
def write_new_file(file: Path) -> Generator[Path]:
    """Yield a temporary path to write to; on exit, sync the file to disk under its own name. An
    existing file is never touched. After a failure the temporary file is removed."""
    part_file = file.with_name(f".{file.name}.part-{os.getpid()}")
    if file.exists() or file.is_symlink():
        raise StoreError(f"{file} exists already; name a new file")
    try:
        os.close(os.open(part_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        yield part_file
        descriptor = os.open(part_file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if file.exists():
            raise StoreError(f"{file} exists already; name a new file")
        part_file.rename(file)
        fsync_folder(file.absolute().parent)
    except OSError as error:
        reason = error.strerror or error
        raise StoreError(f"{file}: {reason}; name a file that can be written") from error
    finally:
        with suppress(OSError):
            part_file.unlink()


def fsync_folder(folder: Path) -> None:
    """Sync the folder, so that the file's name is on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The folder that a coding run works in, and what may be done in it.

All writes, of an agent's rules or a model's tool, go through a `Workspace`. So paths and
constraints hold for every caller: a path is checked after its links were followed, and a path that
leads out of the folder or is forbidden is not written. It is kept as refused, and the evidence of
the dispatch names it, so that the kernel ends the run (`constraint`).

This module runs no command; that is `checks.py`.
"""

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from handrail.kernel.definition.limits import Constraints
from handrail.kernel.result import Evidence
from handrail.kernel.stop.constraint_patterns import is_command_forbidden, is_path_forbidden

FILES_MAX = 5_000
"""Files of a folder that are read."""
FILE_BYTES_MAX = 1_000_000
"""A larger file is neither read nor written."""
IGNORED_FOLDERS = frozenset(
    {".git", ".handrail", ".venv", "venv", "node_modules", "__pycache__", ".pytest_cache"}
)
CHANGED_MARK = "changed by a command"
"""In place of the digest of a protected file that was changed."""
REFUSED_MARK = "refused: not written"
"""In place of the digest of a file that was not written."""


class NotAllowedError(Exception):
    """One line: what was requested, why it is refused, and what to do."""


class Workspace:
    """A folder, its constraints, and what was done to it in this dispatch."""

    def __init__(
        self,
        root: Path,
        constraints: Constraints,
        *,
        is_sample: bool = False,
        python: tuple[str, ...] = (),
    ) -> None:
        self.root, self.constraints, self.is_sample = (
            root.resolve(strict=True),
            constraints,
            is_sample,
        )
        self.python = python or (sys.executable,)
        """What `python` in a command stands for: the interpreter with the folder's packages."""
        self.written: dict[str, str] = {}
        """Path -> digest of what this dispatch wrote."""
        self.refused: list[str] = []
        """Paths that were not written, as they were requested."""

    def resolve(self, path: str) -> Path:
        """Resolve a path, following links. Raises `NotAllowedError` if it leaves the folder."""
        if not path.strip() or "\0" in path:
            raise NotAllowedError(f"{path!r} is no path; name a file of the folder")
        try:
            resolved_path = (self.root / path).resolve()
        except (OSError, RuntimeError) as error:
            raise NotAllowedError(f"'{path}' leads nowhere: {error}; name another file") from None
        if resolved_path != self.root and self.root not in resolved_path.parents:
            raise NotAllowedError(f"'{path}' leads out of the folder; name a file inside of it")
        return resolved_path

    def relative_path(self, resolved_path: Path) -> str:
        """Return the path as it is shown: from the folder, with slashes."""
        return resolved_path.relative_to(self.root).as_posix()

    def path_constraint(self, path: str) -> str:
        """Return the constraint that a path violates, as written or where it leads; "" if none."""
        target_path = self.relative_path(self.resolve(path))
        written_paths = [path] if not Path(path).is_absolute() else []
        return next(
            (
                r
                for r in self.constraints.paths
                for p in (*written_paths, target_path)
                if is_path_forbidden(p, r)
            ),
            "",
        )

    def command_constraint(self, command: str) -> str:
        return next((r for r in self.constraints.commands if is_command_forbidden(command, r)), "")

    def read(self, path: str) -> str:
        resolved_path = self.resolve(path)
        try:
            if resolved_path.stat().st_size > FILE_BYTES_MAX:
                raise NotAllowedError(
                    f"'{path}' has more than {FILE_BYTES_MAX:,} bytes; read another"
                )
            return resolved_path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise NotAllowedError(
                f"'{path}' cannot be read: {reason}; `list` says what is there"
            ) from None

    def write(self, path: str, text: str) -> str:
        """Write all of the text or nothing; return the digest. A refusal is kept for the
        evidence.
        """
        try:
            resolved_path = self.resolve(path)
        except NotAllowedError:
            self.refused.append(path)
            raise
        if rule := self.path_constraint(path):
            self.refused.append(path)
            raise NotAllowedError(
                f"'{path}' must not be touched: the constraint '{rule}' forbids it"
            )
        body = text.encode("utf-8", "replace")
        if len(body) > FILE_BYTES_MAX:
            raise NotAllowedError(
                f"'{path}' would have more than {FILE_BYTES_MAX:,} bytes; write less"
            )
        try:
            resolved_path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(resolved_path, body)
        except OSError as error:
            raise NotAllowedError(f"'{path}' cannot be written: {error.strerror}") from None
        digest = hashlib.sha256(body).hexdigest()
        self.written[self.relative_path(resolved_path)] = digest
        return digest

    def files(self) -> list[str]:
        """Return the folder's own files in a fixed order; links are not followed."""
        return list(_walk(self.root))

    def python_files(self) -> list[str]:
        return [path for path in self.files() if path.endswith(".py")]

    def protected_files(self) -> dict[str, tuple[int, int, int]]:
        """Return the protected files, each with values that change with the file.

        Of a repository's own folder these are the files that configure what git runs; the others
        change by themselves.
        """
        paths = [path for path in self.files() if self.path_constraint(path)]
        git_files = [
            self.root / ".git" / "config",
            *sorted((self.root / ".git" / "hooks").glob("*")),
        ]
        paths += [
            self.relative_path(git_file)
            for git_file in git_files
            if git_file.is_file() and not git_file.is_symlink()
        ]
        fingerprints: dict[str, tuple[int, int, int]] = {}
        for path in paths:
            with contextlib.suppress(OSError):  # a file that has gone is a change as well
                stat = (self.root / path).stat()
                fingerprints[path] = stat.st_ino, stat.st_size, stat.st_mtime_ns
        return fingerprints

    def evidence(self) -> Evidence:
        """Return what this dispatch did to files, as measured here."""
        return Evidence(
            files={**self.written, **dict.fromkeys(self.refused, REFUSED_MARK)}, measured=True
        )

    def strip_root(self, text: str) -> str:
        """Return the text without this folder's name, which says nothing about a failure."""
        return text.replace(f"{self.root}{os.sep}", "").replace(str(self.root), ".")


def _walk(root: Path) -> Iterator[str]:
    files_left = FILES_MAX
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in IGNORED_FOLDERS)
        for name in sorted(files):
            path = Path(folder) / name
            if path.is_symlink() or not path.is_file():
                continue
            if not files_left:
                return
            files_left -= 1
            yield path.relative_to(root).as_posix()


def replace_file(path: Path, body: bytes) -> None:
    """Replace the whole file, or leave the old one in place."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:50]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

"""The folder that a coding run works in, and what may be done in it.

Whatever writes, an agent's rules or a model's tool, writes through a `Workspace`. So paths and
constraints hold whoever asks: a path is looked at after its links were followed, and what leads
out of the folder or is forbidden is not done. It is kept as refused, and the evidence of the turn
names it, so that the kernel ends the run (`constraint`).

Nothing here runs a command; that is `checks.py`.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from handrail.kernel.definition import Constraints
from handrail.kernel.forbidden import command_forbidden, path_forbidden
from handrail.kernel.result import Evidence

FILES_MAX = 5_000
"""Files of a folder that are looked at."""
FILE_BYTES_MAX = 1_000_000
"""A larger file is neither read nor written."""
PASSED_OVER = frozenset(
    {".git", ".handrail", ".venv", "venv", "node_modules", "__pycache__", ".pytest_cache"}
)
CHANGED = "changed by a command"
"""Stands there for a file that must not be touched, and was."""
REFUSED = "refused: not written"
"""Stands where the digest of a file would, had it been written."""


class NotAllowed(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """One line: what was wanted, why it is not done, and what to do."""


class Workspace:
    """A folder, its constraints, and what was done to it in this turn."""

    def __init__(self, root: Path, constraints: Constraints, *, sample: bool = False) -> None:
        self.root, self.constraints, self.sample = root.resolve(strict=True), constraints, sample
        self.written: dict[str, str] = {}
        """Path -> digest of what this turn wrote."""
        self.refused: list[str] = []
        """Paths that were not written, as they were asked for."""

    def place(self, path: str) -> Path:
        """Where that path leads, links followed. Raises `NotAllowed` if it leaves the folder."""
        if not path.strip() or "\0" in path:
            raise NotAllowed(f"{path!r} is no path; name a file of the folder")
        try:
            place = (self.root / path).resolve()
        except (OSError, RuntimeError) as error:
            raise NotAllowed(f"'{path}' leads nowhere: {error}; name another file") from None
        if place != self.root and self.root not in place.parents:
            raise NotAllowed(f"'{path}' leads out of the folder; name a file inside of it")
        return place

    def name(self, place: Path) -> str:
        """The path as it is shown: from the folder, with slashes."""
        return place.relative_to(self.root).as_posix()

    def forbidden(self, path: str) -> str:
        """The constraint that a path meets, as written or where it leads; "" if none does."""
        where = self.name(self.place(path))
        named = [path] if not Path(path).is_absolute() else []
        return next(
            (r for r in self.constraints.paths for p in (*named, where) if path_forbidden(p, r)), ""
        )

    def forbidden_command(self, command: str) -> str:
        return next((r for r in self.constraints.commands if command_forbidden(command, r)), "")

    def read(self, path: str) -> str:
        place = self.place(path)
        try:
            if place.stat().st_size > FILE_BYTES_MAX:
                raise NotAllowed(f"'{path}' has more than {FILE_BYTES_MAX:,} bytes; read another")
            return place.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise NotAllowed(f"'{path}' cannot be read: {why}; `list` says what is there") from None

    def write(self, path: str, text: str) -> str:
        """All of the text or nothing of it; the digest. A refusal is kept for the evidence."""
        try:
            place = self.place(path)
        except NotAllowed:
            self.refused.append(path)
            raise
        if rule := self.forbidden(path):
            self.refused.append(path)
            raise NotAllowed(f"'{path}' must not be touched: the constraint '{rule}' forbids it")
        body = text.encode("utf-8", "replace")
        if len(body) > FILE_BYTES_MAX:
            raise NotAllowed(f"'{path}' would have more than {FILE_BYTES_MAX:,} bytes; write less")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place, body)
        except OSError as error:
            raise NotAllowed(f"'{path}' cannot be written: {error.strerror}") from None
        digest = hashlib.sha256(body).hexdigest()
        self.written[self.name(place)] = digest
        return digest

    def files(self) -> list[str]:
        """The folder's own files in a fixed order; links are not followed."""
        return list(_walk(self.root))

    def sources(self) -> list[str]:
        return [path for path in self.files() if path.endswith(".py")]

    def protected(self) -> dict[str, tuple[int, int, int]]:
        """The files that must not be touched, each with what changes if somebody does. Of a
        repository's own folder those that say what git runs; the others change by themselves."""
        paths = [path for path in self.files() if self.forbidden(path)]
        own = [self.root / ".git" / "config", *sorted((self.root / ".git" / "hooks").glob("*"))]
        paths += [self.name(place) for place in own if place.is_file() and not place.is_symlink()]
        found: dict[str, tuple[int, int, int]] = {}
        for path in paths:
            with contextlib.suppress(OSError):  # gone meanwhile, which is a change as well
                stat = (self.root / path).stat()
                found[path] = stat.st_ino, stat.st_size, stat.st_mtime_ns
        return found

    def evidence(self) -> Evidence:
        """What this turn did to files, as measured here."""
        return Evidence(
            files={**self.written, **dict.fromkeys(self.refused, REFUSED)}, measured=True
        )

    def without_place(self, text: str) -> str:
        """The text without this folder's name, which says nothing about a failure."""
        return text.replace(f"{self.root}{os.sep}", "").replace(str(self.root), ".")


def _walk(root: Path) -> Iterator[str]:
    left = FILES_MAX
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in PASSED_OVER)
        for name in sorted(files):
            place = Path(folder) / name
            if place.is_symlink() or not place.is_file():
                continue
            if not left:
                return
            left -= 1
            yield place.relative_to(root).as_posix()


def replace_file(place: Path, body: bytes) -> None:
    """The new content is there as a whole, or the old one still is."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:50]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileNotFoundError):
            Path(name).chmod(place.stat().st_mode & 0o777)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

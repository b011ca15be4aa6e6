"""Files of ended runs (S11, S12): the report as Markdown and JSON, and an entry in the issues file.

When a run has ended and that is on disk, its report is written to `runs_folder`; if it was aborted,
an entry is appended to `issues_file`. The JSON comes last and says that the rest is done: a run
without one is done again when an engine opens, and nothing of it is there twice, since an entry is
known by its heading, which no text of a run can forge (`kernel/markdown.py`).

A report that cannot be written (a full disk, a folder that is not there) is a warning in the log;
the run has ended all the same. An engine whose settings name neither place writes nothing.
"""

import asyncio
import fcntl
import logging
import os
import re
import tempfile
from collections import deque
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from handrail.engine.listeners import Heard
from handrail.engine.reading import WithReading
from handrail.engine.vocabulary import tell
from handrail.engine.works import RunWork
from handrail.kernel.report import Report, markdown, snitch_entry
from handrail.store.port import StoreError, iso, moment

log = logging.getLogger("handrail.engine")

WAITING_MAX = 100_000
"""Reports that wait to be written; the oldest beyond that wait for the next opening."""
LOOKED_AT = 500
"""Runs, the newest, that are looked at for reports that an engine owed when it died."""
SETTLE_SECONDS = 10.0
"""How long an engine that closes still writes reports."""
NOWHERE = "-"
SINCE = ".since"
"""Holds when reports were first written here: older runs are owed none."""
_PLAIN = re.compile(r"[A-Za-z0-9][\w-]{0,99}")


class WithReports(WithReading):
    """An engine that leaves a report of every run that ended."""

    _due: deque[str]
    _writing: asyncio.Task[None] | None = None

    async def open(self, *, dead: list[str] | None, background: bool) -> None:
        self._due = deque(maxlen=WAITING_MAX)
        await super().open(dead=dead, background=background)
        if self._places() != ("", ""):
            self.listeners.add(self._run_heard)
            await self._owed()

    async def close(self) -> None:
        if self._writing is not None:
            await asyncio.wait((self._writing,), timeout=SETTLE_SECONDS)
        await super().close()

    async def reports_written(self) -> None:
        """Until the reports of all runs that have ended by now are there."""
        while self._writing is not None:
            await asyncio.wait((self._writing,))

    def _places(self) -> tuple[str, str]:
        """The folder for reports and the issues file; "" for those that are not wanted."""
        wanted = self.settings.runs_folder, self.settings.issues_file
        folder, issues = ("" if one == NOWHERE else one for one in wanted)
        return folder, issues

    def _run_heard(self, heard: Heard) -> None:
        if isinstance(heard, RunWork) and heard.run is not None and heard.run.ended:
            self._report_soon(heard.stream)

    def _report_soon(self, run_id: str) -> None:
        self._due.append(run_id)
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_due())

    async def _write_due(self) -> None:
        try:
            while self._due:
                await self._write_report(self._due.popleft())
        finally:
            self._writing = None

    async def _write_report(self, run_id: str) -> None:
        folder, issues = self._places()
        try:
            report = await self.report_of(run_id)
            await asyncio.to_thread(write_files, report, folder, issues)
        except Exception as error:  # whatever it is, it must not keep others from theirs
            tell(log, "report_not_written", execution_id=run_id, file=folder, reason=str(error))

    async def _owed(self) -> None:
        """What an engine that was killed did not come to write."""
        folder, _ = self._places()
        if not folder:
            return
        try:
            since = moment(began(Path(folder), self.clock()))
            page = await self.executions(status="ended", limit=LOOKED_AT)
        except (OSError, ValueError, StoreError) as error:
            tell(log, "report_not_written", execution_id="", file=folder, reason=str(error))
            return
        for item in reversed(page.items):
            ended = item.ended_at is not None and item.ended_at >= since
            if ended and not (Path(folder) / f"{file_name(item.id)}.json").exists():
                self._report_soon(item.id)


def began(folder: Path, now: datetime) -> str:
    """Since when reports are written to this folder, which is made if need be."""
    marker = folder / SINCE
    if not marker.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(marker, f"{iso(now)}\n")
    return marker.read_text(encoding="utf-8").strip()


def file_name(run_id: str) -> str:
    """The run's id, if it is a plain name, as all ids are that an engine gives."""
    return run_id if _PLAIN.fullmatch(run_id) else run_id.encode().hex()[:100]


def write_files(report: Report, folder: str, issues: str) -> None:
    """Everything that is owed of one run, the JSON last. Doing it twice changes nothing."""
    place = Path(folder) / file_name(report.run_id)
    if folder:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(place.with_suffix(".md"), markdown(report))
    if issues and (entry := snitch_entry(report)):
        append_entry(Path(issues), entry)
    if folder:
        _replace(place.with_suffix(".json"), as_json(report))


def as_json(report: Any) -> str:  # noqa: ANN401 - whatever JSON can say
    encoded = msgspec.json.encode(report, order="deterministic")
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def append_entry(file: Path, entry: str) -> None:
    """The entry at the end of the file, as a whole or not at all, and once."""
    heading = entry.partition("\n")[0]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("a+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # other servers write here as well
        held.seek(0)
        last = b"\n"
        for line in held:
            if line.rstrip(b"\n") == heading.encode():
                return
            last = line
        size = held.seek(0, os.SEEK_END)
        lead = "" if not size else "\n" if last.endswith(b"\n") else "\n\n"
        body = f"{lead}{entry}".encode()
        try:
            written = os.write(held.fileno(), body)
            if written < len(body):
                raise OSError("the disk is full")
            os.fsync(held.fileno())
        except OSError:
            os.ftruncate(held.fileno(), size)
            raise


def _replace(place: Path, text: str) -> None:
    """The new content as a whole, or the old one still."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

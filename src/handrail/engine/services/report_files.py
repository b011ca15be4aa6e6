"""Files of ended runs (S11, S12): the report as Markdown and JSON, and an entry in the issues file.

When the end of a run is on disk, its report is written to `runs_folder`; if the run was aborted, an
entry is appended to `issues_file`. The JSON comes last and says that the rest is done: a run
without one is written again when an engine opens, and nothing is there twice, since an entry is
known by its heading, which no text of a run can forge (`views/markdown.py`).

A report that cannot be written (a full disk, a missing folder) is a warning in the log; the run has
ended all the same. An engine whose settings name neither place writes nothing.
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

from handrail.engine.commit.stream_change import RunChange
from handrail.engine.listeners import EngineNotification
from handrail.engine.log_events import log_event
from handrail.engine.queries.runs import WithRunQueries
from handrail.store.engine_store import StoreError, iso, parse_iso
from handrail.views.report import RunReport, report_markdown, snitch_entry

log = logging.getLogger("handrail.engine")

PENDING_REPORTS_MAX = 100_000
"""Reports that wait to be written; the oldest beyond that wait for the next opening."""
CATCH_UP_RUNS_MAX = 500
"""The newest runs, checked for reports that an engine did not write before it died."""
CLOSE_WAIT_SECONDS = 10.0
"""How long a closing engine still writes reports."""
NO_PATH = "-"
SINCE_FILE = ".since"
"""Holds when reports were first written here: older runs get none."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w-]{0,99}")


class WithReportFiles(WithRunQueries):
    """An engine that writes a report of every ended run."""

    _pending_reports: deque[str]
    _report_task: asyncio.Task[None] | None = None

    async def open(self, *, dead_engines: list[str] | None, background: bool) -> None:
        self._pending_reports = deque(maxlen=PENDING_REPORTS_MAX)
        await super().open(dead_engines=dead_engines, background=background)
        if self._report_paths() != ("", ""):
            self.listeners.add(self._on_run_ended)
            await self._enqueue_missed_reports()

    async def close(self) -> None:
        if self._report_task is not None:
            await asyncio.wait((self._report_task,), timeout=CLOSE_WAIT_SECONDS)
        await super().close()

    async def reports_written(self) -> None:
        """Wait until the reports of all runs that have ended by now are written."""
        while self._report_task is not None:
            await asyncio.wait((self._report_task,))

    def _report_paths(self) -> tuple[str, str]:
        """The folder for reports and the issues file; "" for one that is off."""
        paths = self.settings.runs_folder, self.settings.issues_file
        folder, issues = ("" if path == NO_PATH else path for path in paths)
        return folder, issues

    def _on_run_ended(self, notification: EngineNotification) -> None:
        if (
            isinstance(notification, RunChange)
            and notification.run is not None
            and notification.run.has_ended
        ):
            self._enqueue_report(notification.stream)

    def _enqueue_report(self, run_id: str) -> None:
        self._pending_reports.append(run_id)
        if self._report_task is None:
            self._report_task = asyncio.get_running_loop().create_task(
                self._write_pending_reports()
            )

    async def _write_pending_reports(self) -> None:
        try:
            while self._pending_reports:
                await self._write_report(self._pending_reports.popleft())
        finally:
            self._report_task = None

    async def _write_report(self, run_id: str) -> None:
        folder, issues = self._report_paths()
        try:
            report = await self.report_of(run_id)
            await asyncio.to_thread(write_report_files, report, folder, issues)
        except Exception as error:  # a failing report must not block others
            log_event(
                log, "report_not_written", execution_id=run_id, file=folder, reason=str(error)
            )

    async def _enqueue_missed_reports(self) -> None:
        """Queue the reports that a killed engine did not write."""
        folder, _ = self._report_paths()
        if not folder:
            return
        try:
            since = parse_iso(reports_since(Path(folder), self.clock()))
            page = await self.executions(status="ended", limit=CATCH_UP_RUNS_MAX)
        except (OSError, ValueError, StoreError) as error:
            log_event(log, "report_not_written", execution_id="", file=folder, reason=str(error))
            return
        for item in reversed(page.items):
            is_due = item.ended_at is not None and item.ended_at >= since
            if is_due and not (Path(folder) / f"{report_file_name(item.id)}.json").exists():
                self._enqueue_report(item.id)


def reports_since(folder: Path, now: datetime) -> str:
    """Return since when reports are written to this folder; create it if needed."""
    marker = folder / SINCE_FILE
    if not marker.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace_file(marker, f"{iso(now)}\n")
    return marker.read_text(encoding="utf-8").strip()


def report_file_name(run_id: str) -> str:
    """The run's id, if it is a plain name, as all ids are that an engine gives."""
    return run_id if _PLAIN_NAME.fullmatch(run_id) else run_id.encode().hex()[:100]


def write_report_files(report: RunReport, folder: str, issues: str) -> None:
    """Write all files of one run, the JSON last. Repeating it changes nothing."""
    path = Path(folder) / report_file_name(report.run_id)
    if folder:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace_file(path.with_suffix(".md"), report_markdown(report))
    if issues and (entry := snitch_entry(report)):
        append_issue(Path(issues), entry)
    if folder:
        _replace_file(path.with_suffix(".json"), report_json(report))


def report_json(report: Any) -> str:  # noqa: ANN401 - whatever JSON can say
    encoded = msgspec.json.encode(report, order="deterministic")
    return msgspec.json.format(encoded, indent=2).decode() + "\n"


def append_issue(file: Path, entry: str) -> None:
    """Append the entry to the file, as a whole or not at all, and once."""
    heading = entry.partition("\n")[0]
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("a+b") as locked_file:
        fcntl.flock(locked_file, fcntl.LOCK_EX)  # other servers write here as well
        locked_file.seek(0)
        last = b"\n"
        for line in locked_file:
            if line.rstrip(b"\n") == heading.encode():
                return
            last = line
        size = locked_file.seek(0, os.SEEK_END)
        separator = "" if not size else "\n" if last.endswith(b"\n") else "\n\n"
        body = f"{separator}{entry}".encode()
        try:
            written = os.write(locked_file.fileno(), body)
            if written < len(body):
                raise OSError("the disk is full")
            os.fsync(locked_file.fileno())
        except OSError:
            os.ftruncate(locked_file.fileno(), size)
            raise


def _replace_file(path: Path, text: str) -> None:
    """Replace the file's content as a whole, or leave the old one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise

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

from handrail.engine.commit.run_change import RunChange
from handrail.engine.environment import Clock
from handrail.engine.log_events import log_event
from handrail.engine.notifier import ChangeNotifier, EngineNotification
from handrail.engine.queries.runs import RunQueries
from handrail.engine.settings import EngineSettings
from handrail.store.rows import StoreError, iso, parse_iso
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


class ReportWriter:
    """Writes a report of every ended run."""

    def __init__(
        self,
        run_queries: RunQueries,
        notifier: ChangeNotifier,
        clock: Clock,
        settings: EngineSettings,
    ) -> None:
        self._run_queries, self._notifier, self._clock = run_queries, notifier, clock
        self._folder, self._issues_file = (
            "" if path == NO_PATH else path for path in (settings.runs_folder, settings.issues_file)
        )
        self._pending: deque[str] = deque(maxlen=PENDING_REPORTS_MAX)
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Begin to write, with the reports that a killed engine did not write."""
        if self._folder or self._issues_file:
            self._notifier.listeners.add(self._on_run_ended)
        if self._folder:
            await self._enqueue_missed()

    async def close(self) -> None:
        """Wait for the pending reports, for a while."""
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=CLOSE_WAIT_SECONDS)

    async def wait_written(self) -> None:
        """Wait until the reports of all runs that have ended by now are written."""
        while self._task is not None:
            await asyncio.wait((self._task,))

    def _on_run_ended(self, notification: EngineNotification) -> None:
        if (
            isinstance(notification, RunChange)
            and notification.run is not None
            and notification.run.has_ended
        ):
            self._enqueue(notification.stream)

    def _enqueue(self, run_id: str) -> None:
        self._pending.append(run_id)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_pending())

    async def _write_pending(self) -> None:
        try:
            while self._pending:
                await self._write(self._pending.popleft())
        finally:
            self._task = None

    async def _write(self, run_id: str) -> None:
        try:
            report = await self._run_queries.report(run_id)
            await asyncio.to_thread(write_report_files, report, self._folder, self._issues_file)
        except Exception as error:  # a failing report must not block others
            self._log_failure(run_id, error)

    def _log_failure(self, run_id: str, error: Exception) -> None:
        log_event(
            log, "report_not_written", execution_id=run_id, file=self._folder, reason=str(error)
        )

    async def _enqueue_missed(self) -> None:
        """Queue the reports that a killed engine did not write."""
        folder = Path(self._folder)
        try:
            since = parse_iso(reports_since(folder, self._clock()))
            page = await self._run_queries.list(status="ended", limit=CATCH_UP_RUNS_MAX)
        except (OSError, ValueError, StoreError) as error:
            self._log_failure("", error)
            return
        for item in reversed(page.items):
            is_due = item.ended_at is not None and item.ended_at >= since
            if is_due and not (folder / f"{report_file_name(item.id)}.json").exists():
                self._enqueue(item.id)


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
            if os.write(locked_file.fileno(), body) < len(body):
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

"""Errors that were reported become beads: one for each signature, however often it is seen.

Rules
1. What the caller did wrong (a status below 500) and what is no error is no bug: nothing is filed.
2. While the bead of a signature is worked on, the same error again is counted, and nothing more:
   its context stays as it is, so that no open question about it is voided.
3. Once that bead is closed, the same error is a regression: a new bead, which names the old one.
4. At most FILED_AN_HOUR beads are filed in an hour, whatever is reported, and of one reporter
   FILED_BY_ONE, so that none keeps out the others. Beyond that errors of signatures that are not
   known yet are turned away, and the answer says so.
5. No text is stored as it came: `scrub.py` first.

The bead runs through `auto-bug-workflow` if that is defined, and waits for somebody if not. Which
specialist looks at it stands in ROUTING, unless the report names a role.
"""

import hashlib
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import msgspec

from handrail.engine.beads import WithBeads
from handrail.engine.pages import LIMIT, Page, checked_cursor, checked_limit
from handrail.engine.refused import Refused
from handrail.engine.scrub import scrubbed
from handrail.kernel.decision import Value
from handrail.kernel.shown import Shown
from handrail.kernel.signature import first_error_line, signature
from handrail.store.healing import BugRow
from handrail.store.port import KeyRow, iso, moment

WORKFLOW = "auto-bug-workflow"
FILED_AN_HOUR, FILED_BY_ONE = 100, 50
CLOSED = frozenset({"closed", "error", None})
"""How a bead stands that nobody works on any more; None: it was archived."""
NAME_CHARS = 200
COUNT_MAX = 1_000_000
TRIES = 8
ROUTING: tuple[tuple[str, str], ...] = (
    ("*Template*", "web-designer"),
    ("*Render*", "web-designer"),
    ("*Assertion*", "qa-engineer"),
    ("*", "backend-engineer"),
)
"""A pattern for the error's type, and the role of the specialist; the first that fits."""

Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS)]
Told = Annotated[str, msgspec.Meta(max_length=200_000)]


class ErrorReport(Value):
    """An error of somebody's service. `type` is the exception's, with its module; without one the
    status tells what happened. `specialist` names the role that should look at it."""

    service: Name = ""
    type: Name = ""
    message: Told = ""
    traceback: Told = ""
    method: Name = ""
    route: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    """The template of the path, or the path: never its query."""
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] = 0
    """Of the answer that the error led to; 0 if there was none."""
    level: Name = "error"
    release: Name = ""
    specialist: Name = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] = 1


class BugFiled(Shown):
    """What became of a report. `filed` is None where there is nothing to be worked on."""

    filed: Literal["new", "regression", "known"] | None
    reason: str
    signature: str
    bead_id: str | None
    execution_id: str | None
    count: int
    earlier_bead_id: str | None


class Bug(Shown):
    """A signature with its newest bead, and how often it was seen since that was filed."""

    signature: str
    bead_id: str
    bead_status: str | None
    count: int
    first_seen: datetime
    last_seen: datetime
    earlier_bead_id: str | None


class WithBugs(WithBeads):
    """An engine that errors are reported to."""

    async def report_bug(self, report: ErrorReport, *, by: str) -> BugFiled:
        """One bead for each signature. Nothing is refused: what is no bug is told."""
        told = signature_of(report)
        if reason := _no_bug(report):
            return _answer(None, reason, told)
        digest = hashlib.sha256(told.encode()).hexdigest()
        async with self._one_at_a_time(f"bug:{digest}"):
            for _ in range(TRIES):
                answer = await self._report(report, told, digest, by)
                if answer is not None:
                    return answer
        return _answer(None, "others report it all the time; report it again", told)

    async def bugs(self, *, cursor: str = "", limit: int = LIMIT) -> Page[Bug]:
        """The newest bead first."""
        before, limit = checked_cursor(cursor) or None, checked_limit(limit)
        rows = await self._slowly(lambda store: store.bugs(before=before, limit=limit + 1))
        items = tuple(_shown(row) for row in rows[:limit])
        return Page(items=items, next_cursor=items[-1].bead_id if len(rows) > limit else None)

    async def _report(
        self, report: ErrorReport, told: str, digest: str, by: str
    ) -> BugFiled | None:
        """None if another engine was faster: look again."""
        known: BugRow | None = await self._io(self.store.bug, digest)
        now = self.clock()
        if known is not None and known.bead_status not in CLOSED:
            counted = await self._io(
                self.store.count_bug, digest, known.bead_id, report.count, iso(now)
            )
            if not counted:
                return None
            row = msgspec.structs.replace(known, count=known.count + report.count)
            return _answer("known", "it is worked on already", told, row)
        lately, own = await self._io(self.store.bugs_since, iso(now - timedelta(hours=1)), by)
        if lately >= FILED_AN_HOUR or own >= FILED_BY_ONE:
            filed = f"{lately} bugs were filed within the hour, {own} of them by {by}"
            return _answer(None, filed, told)
        earlier = known.bead_id if known is not None else None
        bead_id, run_id = await self._file(report, told, digest, earlier, by)
        row = BugRow(
            digest=digest,
            signature=told,
            bead_id=bead_id,
            count=report.count,
            first_seen=iso(now),
            last_seen=iso(now),
            earlier=earlier,
        )
        if not await self._io(self.store.put_bug, row):
            return None
        what = "regression" if earlier is not None else "new"
        return _answer(what, f"filed for the {_specialist(report)}", told, row, run_id)

    async def _file(
        self, report: ErrorReport, told: str, digest: str, earlier: str | None, by: str
    ) -> tuple[str, str | None]:
        """The bead, filed once: the key is that of the signature and the bead before."""
        key = f"bug:{digest[:40]}:{earlier or ''}"
        workflow = WORKFLOW if await self._io(self.store.definition, WORKFLOW, None) else ""
        try:
            bead = await self.file_bead(
                title=_title(report),
                description=scrubbed(report.traceback or report.message),
                workflow_id=workflow,
                context=_context(report, told, earlier),
                filed_by=by,
                key=key,
            )
        except Refused as refused:
            kept: KeyRow | None = await self._io(self.store.key, key, by)
            if refused.refusal.code != "key_reused" or kept is None:
                raise
            bead = await self.bead(msgspec.json.decode(kept.answer)["bead_id"])
        return bead.id, bead.execution_id


def signature_of(report: ErrorReport) -> str:
    """What makes two errors the same: service and failure; without a traceback also where."""
    text = scrubbed(report.traceback)
    if not text:
        what = report.type or f"HTTP {report.status} error"
        said = f"{what}: {report.message}" if report.type or report.message else what
        text = scrubbed(f"{report.method} {place(report.route)}\n{said}")
    return signature(report.service or "service", text)


def place(route: str) -> str:
    """A path without its query, and without what names one thing of many: /orders/{}/items."""
    path = route.partition("?")[0].partition("#")[0]
    parts = (
        "{}" if any(c.isdigit() for c in part) or len(part) > 40 else part
        for part in path.split("/")
    )
    return "/".join(parts)[:NAME_CHARS]


def _no_bug(report: ErrorReport) -> str:
    if 0 < report.status < 500:
        return f"a status of {report.status} is the caller's, not the service's"
    if report.level.lower() not in ("error", "fatal", "critical"):
        return f"'{report.level[:40]}' is no error"
    if not (report.type or report.message or report.traceback or report.status):
        return "it says nothing"
    return ""


def _specialist(report: ErrorReport) -> str:
    kind = report.type.rpartition(".")[2]
    return report.specialist or next(role for what, role in ROUTING if fnmatchcase(kind, what))


def _title(report: ErrorReport) -> str:
    what = report.type.rpartition(".")[2] or f"HTTP {report.status or 500}"
    said = first_error_line(scrubbed(report.message)) or place(report.route)
    return f"{what}: {said}"[:NAME_CHARS].strip()


def _context(report: ErrorReport, told: str, earlier: str | None) -> dict[str, Any]:
    error = {
        "service": scrubbed(report.service),
        "type": scrubbed(report.type),
        "message": scrubbed(report.message, 2_000),
        "method": scrubbed(report.method),
        "route": scrubbed(place(report.route)),
        "status": report.status,
        "release": scrubbed(report.release),
        "signature": told,
    }
    again = {"earlier_bead": earlier} if earlier is not None else {}
    return {"error": error, "specialist": _specialist(report), **again}


def _answer(
    filed: Literal["new", "regression", "known"] | None,
    reason: str,
    told: str,
    row: BugRow | None = None,
    run_id: str | None = None,
) -> BugFiled:
    return BugFiled(
        filed=filed,
        reason=reason,
        signature=told,
        bead_id=row.bead_id if row is not None else None,
        execution_id=run_id,
        count=row.count if row is not None else 0,
        earlier_bead_id=row.earlier if row is not None else None,
    )


def _shown(row: BugRow) -> Bug:
    return Bug(
        signature=row.signature,
        bead_id=row.bead_id,
        bead_status=row.bead_status,
        count=row.count,
        first_seen=moment(row.first_seen),
        last_seen=moment(row.last_seen),
        earlier_bead_id=row.earlier,
    )

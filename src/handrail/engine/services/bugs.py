"""Reported errors become beads: one for each signature, however often it occurs.

Rules
1. A client's mistake (a status below 500) and a report without an error are not bugs: nothing is
   filed.
2. While the bead of a signature is worked on, the same error again is counted, and nothing more:
   the context stays as it is, so that no open approval of it is voided.
3. Once that bead is closed, the same error is a regression: a new bead, which names the old one.
4. At most BUGS_PER_HOUR_MAX beads are filed in an hour, whatever is reported, and of one reporter
   BUGS_PER_REPORTER_MAX, so that no reporter keeps out the others. Beyond that errors with new
   signatures are turned away, and the answer says so.
5. Every text is redacted before it is stored (`redaction.py`).

The bead runs through `auto-bug-workflow` if that is defined, and waits for a person if not. ROUTING
names the specialist, unless the report names a role.
"""

import hashlib
from datetime import timedelta
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from handrail.engine.commit.gateway import first_answer
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import RefusedError
from handrail.engine.pagination import check_cursor, check_limit, to_page
from handrail.engine.redaction import redact
from handrail.engine.services.bug_signature import normalize_route, signature_of
from handrail.kernel.stop.error_signature import first_error_line
from handrail.store.bugs import BugRow
from handrail.store.rows import iso, parse_iso
from handrail.views.bugs import NAME_CHARS_MAX, BugReportResult, BugView, ErrorReport
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page

if TYPE_CHECKING:
    from handrail.engine.services.beads import BeadService

BUG_WORKFLOW_ID = "auto-bug-workflow"
BUGS_PER_HOUR_MAX, BUGS_PER_REPORTER_MAX = 100, 50
CLOSED_STATUSES = frozenset({"closed", "error", None})
"""Statuses of a bead that is no longer worked on; None: it was archived."""
WRITE_ATTEMPTS_MAX = 8
ROUTING: tuple[tuple[str, str], ...] = (
    ("*Template*", "web-designer"),
    ("*Render*", "web-designer"),
    ("*Assertion*", "qa-engineer"),
    ("*", "backend-engineer"),
)
"""Patterns for the error's type, and the specialist's role; the first match counts."""


class BugService:
    """Accepts error reports."""

    def __init__(self, access: StoreAccess, beads: "BeadService", clock: Clock) -> None:
        self._access, self._store, self._beads, self._clock = access, access.store, beads, clock

    async def report(self, report: ErrorReport, *, by: str) -> BugReportResult:
        """Report an error: one bead for each signature. Nothing is refused: the answer says what is
        not a bug."""
        signature = signature_of(report)
        if reason := _reject_reason(report):
            return _to_result(None, reason, signature)
        digest = hashlib.sha256(signature.encode()).hexdigest()
        async with self._beads.lock_for(f"bug:{digest}"):
            for _ in range(WRITE_ATTEMPTS_MAX):
                result = await self._count_or_file(report, signature, digest, by)
                if result is not None:
                    return result
        return _to_result(
            None, "other engines count it at the same moment; report it again", signature
        )

    async def list(self, *, cursor: str = "", limit: int = PAGE_ITEMS_DEFAULT) -> Page[BugView]:
        """List the signatures, the newest bead first."""
        before, limit = check_cursor(cursor) or None, check_limit(limit)
        rows = await self._access.query(
            lambda store: store.bugs.list(before=before, limit=limit + 1)
        )
        return to_page(rows, limit, _to_view, attrgetter("bead_id"))

    async def _count_or_file(
        self, report: ErrorReport, signature: str, digest: str, by: str
    ) -> BugReportResult | None:
        """Count the error or file a bead; None if another engine was faster: look again."""
        existing = await self._access.call(self._store.bugs.get, digest)
        now = self._clock()
        if existing is not None and existing.bead_status not in CLOSED_STATUSES:
            counted = await self._access.call(
                self._store.bugs.increment, digest, existing.bead_id, report.count, iso(now)
            )
            if not counted:
                return None
            row = msgspec.structs.replace(existing, count=existing.count + report.count)
            return _to_result("known", "a run works on it already", signature, row)
        recent_count, reporter_count = await self._access.call(
            self._store.bugs.count_since, iso(now - timedelta(hours=1)), by
        )
        if recent_count >= BUGS_PER_HOUR_MAX or reporter_count >= BUGS_PER_REPORTER_MAX:
            return _to_result(
                None,
                f"{recent_count} bugs were filed within the hour, {reporter_count} of them by {by}",
                signature,
            )
        earlier = existing.bead_id if existing is not None else None
        bead_id, run_id = await self._file_bug(report, signature, digest, earlier, by)
        row = BugRow(
            digest=digest,
            signature=signature,
            bead_id=bead_id,
            count=report.count,
            first_seen=iso(now),
            last_seen=iso(now),
            earlier=earlier,
        )
        if not await self._access.call(self._store.bugs.put, row):
            return None
        return _to_result(
            "regression" if earlier is not None else "new",
            f"filed for the {_specialist(report)}",
            signature,
            row,
            run_id,
        )

    async def _file_bug(
        self, report: ErrorReport, signature: str, digest: str, earlier: str | None, by: str
    ) -> tuple[str, str | None]:
        """File the bead once: its key is made of the signature and the bead before."""
        key = f"bug:{digest[:40]}:{earlier or ''}"
        workflow = (
            BUG_WORKFLOW_ID
            if await self._access.call(self._store.definitions.get, BUG_WORKFLOW_ID, None)
            else ""
        )
        try:
            bead = await self._beads.create(
                title=_title(report),
                description=redact(report.traceback or report.message),
                workflow_id=workflow,
                context=_context(report, signature, earlier),
                filed_by=by,
                key=key,
            )
        except RefusedError as refused:
            first = await self._access.call(self._store.idempotency_keys.get, key, by)
            if refused.refusal.code != "key_reused" or first is None:
                raise
            bead = await self._beads.get(first_answer(first)["bead_id"])
        return bead.id, bead.execution_id


def _to_view(row: BugRow) -> BugView:
    return BugView(
        signature=row.signature,
        bead_id=row.bead_id,
        bead_status=row.bead_status,
        count=row.count,
        first_seen=parse_iso(row.first_seen),
        last_seen=parse_iso(row.last_seen),
        earlier_bead_id=row.earlier,
    )


def _reject_reason(report: ErrorReport) -> str:
    if 0 < report.status < 500:
        return f"a status of {report.status} is the caller's, not the service's"
    if report.level.lower() not in ("error", "fatal", "critical"):
        return f"'{report.level[:40]}' is no error"
    if not (report.type or report.message or report.traceback or report.status):
        return "the report has neither a message nor a traceback"
    return ""


def _specialist(report: ErrorReport) -> str:
    error_type = report.type.rpartition(".")[2]
    return report.specialist or next(
        role for pattern, role in ROUTING if fnmatchcase(error_type, pattern)
    )


def _title(report: ErrorReport) -> str:
    error_name = report.type.rpartition(".")[2] or f"HTTP {report.status or 500}"
    summary = first_error_line(redact(report.message)) or normalize_route(report.route)
    return f"{error_name}: {summary}"[:NAME_CHARS_MAX].strip()


def _context(report: ErrorReport, signature: str, earlier: str | None) -> dict[str, Any]:
    error = {
        "service": redact(report.service),
        "type": redact(report.type),
        "message": redact(report.message, 2_000),
        "method": redact(report.method),
        "route": redact(normalize_route(report.route)),
        "path": redact(report.path or report.route.partition("?")[0]),
        "status": report.status,
        "release": redact(report.release),
        "signature": signature,
    }
    earlier_field = {"earlier_bead": earlier} if earlier is not None else {}
    return {"error": error, "specialist": _specialist(report), **earlier_field}


def _to_result(
    filed: Literal["new", "regression", "known"] | None,
    reason: str,
    signature: str,
    row: BugRow | None = None,
    run_id: str | None = None,
) -> BugReportResult:
    return BugReportResult(
        filed=filed,
        reason=reason,
        signature=signature,
        bead_id=row.bead_id if row is not None else None,
        execution_id=run_id,
        count=row.count if row is not None else 0,
        earlier_bead_id=row.earlier if row is not None else None,
    )

"""Beads: the work as people file it, change it, attach files to it, and run it again.

While a run is active it owns the bead's context: a change goes through the kernel, which voids an
approval that showed what changed. Without an active run the row owns it, guarded by what was read.
A run that begins meanwhile gets the change too: merging a patch twice changes nothing.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from handrail.engine.commit.gateway import CommandGateway, check_same_request, first_answer
from handrail.engine.commit.run_change import bead_row, new_bead_row
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import RefusedError, refuse, refuse_unknown, require_known
from handrail.engine.ids import uuid7
from handrail.engine.pagination import check_cursor, check_limit, to_page
from handrail.engine.queries.runs import RunReader
from handrail.kernel.decision import Refusal
from handrail.kernel.definition.model import PERSON_LEVELS
from handrail.kernel.input_checks import find_json_problem
from handrail.kernel.result import merge_patch
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import ENGINE_KEYS, Person, Run
from handrail.store.beads import BEAD_FILES_MAX, BeadItem, BeadOrder, FileRow
from handrail.store.rows import BeadRow, IdempotencyKeyRow, encode, iso, parse_iso
from handrail.views.approvals import Approval
from handrail.views.beads import FILE_BYTES_MAX, PRIORITY_MAX, BeadView, FileInfo
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page

NO_FILES: Mapping[str, str] = {}
FILE_NAME_CHARS_MAX = 200
CONTENT_TYPE_CHARS_MAX = 200
WRITE_ATTEMPTS_MAX = 8
"""Attempts at a change that loses to concurrent writers."""
MICROSECOND = timedelta(microseconds=1)
BEAD_TYPES = ("work", "approval")
BEAD_STATUSES = ("open", "in_progress", "waiting", "closed", "error")
APPROVAL_CONTEXT_FIELDS = (
    *("type", "question", "result", "digest", "original_bead_id", "failure_reason"),
    *("attempt_history", "failed_check", "proposed_next_steps", "proposal"),
)
"""The fields of an approval that its bead's context shows."""


class BeadService:
    """Creates, changes and shows beads."""

    def __init__(
        self,
        access: StoreAccess,
        gateway: CommandGateway,
        reader: RunReader,
        get_approval: Callable[[str], Awaitable[Approval]],
        clock: Clock,
    ) -> None:
        self._access, self._store, self._gateway = access, access.store, gateway
        self._reader, self._get_approval, self._clock = reader, get_approval, clock
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Beads without a run that are being changed or started, one at a time."""

    async def create(
        self,
        *,
        title: str,
        description: str = "",
        workflow_id: str | None = None,
        context: dict[str, Any] | None = None,
        review: Literal["required", "skip"] | None = None,
        priority: int = 0,
        due_at: datetime | None = None,
        filed_by: str = "",
        by: Person | None = None,
        key: str = "",
    ) -> BeadView:
        """Create a bead; with a definition, its id or name, a run of it begins at once. The same
        `key` means the same bead. `by` is the person who files it, where that is not the program
        itself. Refused: unusable, engine_keys, no_workflow, and whatever refuses the start of the
        run."""
        filed_by = by.name if by is not None else filed_by
        _check_context(context or {}, title, description, filed_by)
        if not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
            refuse(
                "bad_priority",
                f"the priority {priority} is not within {-PRIORITY_MAX:,} and {PRIORITY_MAX:,}",
                "use a number in that range",
            )
        self._access.check_open()
        bead_id, run_id = uuid7().hex, uuid7().hex if workflow_id else ""
        request = ["bead", workflow_id or "", title, description, context, review, priority]
        due = _iso_or_none(due_at)
        request += [due] if due is not None else []
        answer = {"execution_id": run_id, "bead_id": bead_id}
        key_row = self._gateway.key_row(key, filed_by, request, answer)
        start = c.Start(
            run_id=run_id,
            bead_id=bead_id,
            title=title,
            description=description,
            filed_by=filed_by,
            context=context or {},
            review=review,
            starter=by,
        )
        bead = replace(new_bead_row(start, priority, iso(self._clock())), due_at=due)
        if not workflow_id:
            return await self._create_idle(bead, key_row, review)
        result = await self._gateway.start(workflow_id, start, key_row, bead)
        if result.duplicate_of is not None:
            return await self.get(first_answer(result.duplicate_of)["bead_id"])
        if result.run is None or result.row is None:  # the connection broke, but the run began
            return await self.get(bead_id)
        return _run_view(result.run, bead_row(result.run, result.row, bead))

    async def _create_idle(
        self,
        bead: BeadRow,
        key_row: IdempotencyKeyRow | None,
        review: Literal["required", "skip"] | None,
    ) -> BeadView:
        """Create a bead without a run."""
        if review is not None:
            refuse(
                "no_workflow",
                f"'{bead.title[:80]}' has `review` but no definition",
                "leave `review` out, or name the definition",
            )
        first = await self._access.call(self._store.beads.create, bead, key_row)
        if first is None:
            return _to_view(bead)
        assert key_row is not None, "it was found by its key"
        check_same_request(first, key_row)
        return await self.get(first_answer(first)["bead_id"])

    async def get(self, bead_id: str) -> BeadView:
        """Return a bead as it stands, with its active run's context; also an approval, by its id.
        Refused: unknown_bead."""
        row = await self._access.call(self._store.beads.get, bead_id)
        if row is None:
            return await self._approval_as_bead(bead_id)
        if row.status not in ("in_progress", "waiting") or row.execution_id is None:
            return _to_view(row)
        return _run_view(await self._reader.state(row.execution_id), row)

    async def _approval_as_bead(self, bead_id: str) -> BeadView:
        try:
            approval = await self._get_approval(bead_id)
        except RefusedError:
            refuse_unknown("unknown_bead", bead_id)
        loaded_runs = await self._access.call(self._store.runs.load, [approval.execution_id])
        execution = loaded_runs[approval.execution_id].row
        return _approval_view(approval, execution.workflow_id, execution.priority)

    async def list(
        self,
        *,
        type: Literal["work", "approval"] | None = None,  # noqa: A002 - as the API has it
        status: str | None = None,
        workflow_id: str | None = None,
        due_before: datetime | None = None,
        sort: BeadOrder = "created_at",
        cursor: str = "",
        limit: int = PAGE_ITEMS_DEFAULT,
    ) -> Page[BeadView]:
        """List beads, the newest, or work with the soonest due date or the highest priority first,
        each as its row has it. Refused: bad_status, bad_type."""
        before, limit = check_cursor(cursor) or None, check_limit(limit)
        if status is not None and status not in BEAD_STATUSES:
            refuse(
                "bad_status",
                f"'{status[:40]}' is not a status of a bead",
                f"it is one of {', '.join(BEAD_STATUSES)}",
            )
        if type is not None and type not in BEAD_TYPES:
            refuse("bad_type", f"'{type[:40]}' is not a type of a bead", "it is work or approval")
        due = _iso_or_none(due_before)
        rows = await self._access.query(
            lambda store: store.beads.list(
                type=type,
                status=status,
                workflow_id=workflow_id,
                due_before=due,
                order=sort,
                before=before,
                limit=limit + 1,
            )
        )
        return to_page(rows, limit, _to_view)

    async def patch(self, bead_id: str, patch: Mapping[str, Any], by: Person) -> BeadView:
        """Merge the patch into the context (RFC 7396). Refused: engine_keys, unusable,
        context_too_large, not_allowed, unknown_bead."""
        context_patch = dict(patch)
        _check_context(context_patch, by.name)
        if PERSON_LEVELS.get(by.role, -1) < PERSON_LEVELS["operator"]:
            message = f"{by.name} ({by.role}) may not change bead '{bead_id}'"
            refuse("not_allowed", message, "it takes an operator or above")
        async with self.lock_for(bead_id):
            for _ in range(WRITE_ATTEMPTS_MAX):
                if await self._patch(bead_id, context_patch, by):
                    return await self.get(bead_id)
        message = f"bead '{bead_id}': {WRITE_ATTEMPTS_MAX} write conflicts in a row"
        raise RefusedError(Refusal(code="bead_busy", message=message, hint="retry"))

    async def _patch(self, bead_id: str, patch: dict[str, Any], by: Person) -> bool:
        """Patch the bead; False if a concurrent writer was faster."""
        active_run_id = await self._access.call(self._store.runs.get_active_id, bead_id)
        if active_run_id is None:
            if not await self._patch_row(bead_id, patch, by.name):
                return False
            active_run_id = await self._access.call(self._store.runs.get_active_id, bead_id)
        return active_run_id is None or await self._patch_run(active_run_id, patch, by)

    async def _patch_run(
        self, run_id: str, patch: dict[str, Any], by: Person, files: Mapping[str, str] = NO_FILES
    ) -> bool:
        """Patch the context of the run; False if the run has ended meanwhile."""
        try:
            await self._gateway.execute(run_id, c.Patch(by=by, patch=patch, files=dict(files)))
        except RefusedError as refused:
            if refused.refusal.code != "ended":
                raise
            return False
        return True

    async def _patch_row(self, bead_id: str, patch: dict[str, Any], by: str) -> bool:
        row = await self._load(bead_id)
        context = merge_patch(msgspec.json.decode(row.context), patch)
        if reason := find_json_problem(context):
            refuse(
                "context_too_large",
                f"the context of bead '{bead_id}' would become too large to store: {reason}",
                "remove keys from the context (send null for a key), or add less",
            )
        at = iso(
            max(self._clock(), parse_iso(row.updated_at) + MICROSECOND)
        )  # never the same as before
        return await self._access.call(
            self._store.beads.update_context,
            replace(row, context=encode(context).decode(), updated_at=at),
            row.updated_at,
            by,
        )

    async def restart(
        self,
        bead_id: str,
        *,
        workflow_id: str = "",
        from_node: str = "",
        by: Person | None = None,
        key: str = "",
    ) -> str:
        """Start another run of the bead, or its first, and return its id. The run is of this
        definition, else of that of its last run. The bead is as it was filed, with its context as
        it is now. Refused: unknown_bead, no_workflow, unknown_place, and while a run is active
        bead_busy."""
        run_id = uuid7().hex
        key_row = self._gateway.key_row(
            key,
            by.name if by is not None else "",
            ["restart", bead_id, workflow_id, from_node],
            {"execution_id": run_id, "bead_id": bead_id},
        )
        async with self.lock_for(bead_id):
            row = await self._load(bead_id)
            definition = workflow_id or row.workflow_id
            if not definition:
                refuse(
                    "no_workflow",
                    f"bead '{bead_id}' has never run, and no definition is named",
                    "name a definition",
                )
            await self._check_no_active_run(bead_id, key_row)
            context = msgspec.json.decode(row.context)
            command = c.Start(
                run_id=run_id,
                bead_id=bead_id,
                title=row.title,
                description=row.description,
                filed_by=row.filed_by,
                context={name: value for name, value in context.items() if name not in ENGINE_KEYS},
                review=await self._last_review(row.execution_id),
                from_step_id=from_node,
                starter=by,
            )
            result = await self._gateway.start(definition, command, key_row, row)
        first = result.duplicate_of
        return run_id if first is None else first_answer(first)["execution_id"]

    async def _last_review(self, run_id: str | None) -> Literal["required", "skip"] | None:
        """The review setting of the bead's last run; unknown once that run was archived."""
        if run_id is None:
            return None
        run = await self._reader.find(run_id)
        return run.review if run is not None else None

    async def _check_no_active_run(self, bead_id: str, key_row: IdempotencyKeyRow | None) -> None:
        """Refuse while a run is active, unless this key started it."""
        active_run_id = await self._access.call(self._store.runs.get_active_id, bead_id)
        if active_run_id is None:
            return
        if (
            key_row is None
            or await self._access.call(self._store.idempotency_keys.get, key_row.key, key_row.actor)
            is None
        ):
            refuse(
                "bead_busy",
                f"bead '{bead_id}' has the active run '{active_run_id}'",
                "wait for its end, or close it",
            )

    def lock_for(self, name: str) -> asyncio.Lock:
        """The lock of a bead or a bug that is being changed."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def put_file(
        self,
        bead_id: str,
        name: str,
        content: bytes,
        *,
        content_type: str = "application/octet-stream",
        by: str = "",
    ) -> FileInfo:
        """Attach a file to the bead, for its agents. The same file again changes nothing; another
        file of that name is refused: file_exists. Also refused: bad_name, bad_content_type,
        file_too_large, too_many_files, unknown_bead."""
        _check_file(name, content, content_type)
        await self._load(bead_id)
        file = FileRow(
            bead_id=bead_id,
            name=name,
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
            content_type=content_type,
            content=content,
            uploaded_by=by,
            created_at=iso(self._clock()),
        )
        self._access.check_open()
        files = await self._access.call(self._store.beads.list_files, bead_id)
        if len(files) < BEAD_FILES_MAX and all(row.name != name for row in files):
            # before the file is stored: the record names the author of every file
            await self._record_files(bead_id, {name: file.sha256}, by)
        if await self._access.call(self._store.beads.put_file, file):
            return _file_info(file)
        files = await self._access.call(self._store.beads.list_files, bead_id)
        existing = next((row for row in files if row.name == name), None)
        if existing is None:
            message = f"bead '{bead_id}' has {BEAD_FILES_MAX} files already"
            refuse("too_many_files", message, "put several into one archive")
        if existing.sha256 != file.sha256:
            message = f"bead '{bead_id}' has another file '{name}'"
            refuse("file_exists", message, "take another name: files do not change")
        return _file_info(existing)

    async def _record_files(self, bead_id: str, files: dict[str, str], by: str) -> None:
        active_run_id = await self._access.call(self._store.runs.get_active_id, bead_id)
        if active_run_id is not None:
            await self._patch_run(active_run_id, {}, Person(name=by or "engine"), files)

    async def files(self, bead_id: str) -> Sequence[FileInfo]:
        """List the files by name. Refused: unknown_bead."""
        rows = await self._access.call(self._store.beads.list_files, bead_id)
        if not rows:
            await self._load(bead_id)
        return [_file_info(row) for row in rows]

    async def file(self, bead_id: str, name: str) -> tuple[FileInfo, bytes]:
        """Return one file with its content. Refused: unknown_bead, unknown_file."""
        row = await self._access.query(lambda store: store.beads.get_file(bead_id, name))
        if row is None:
            await self._load(bead_id)
            refuse(
                "unknown_file",
                f"bead '{bead_id}' has no file '{name[:FILE_NAME_CHARS_MAX]}'",
                "look at the list of its files",
            )
        return _file_info(row), row.content or b""

    async def _load(self, bead_id: str) -> BeadRow:
        return require_known(
            await self._access.call(self._store.beads.get, bead_id), "unknown_bead", bead_id
        )


def _check_context(context: dict[str, Any], *texts: str) -> None:
    reason = find_json_problem([context, *texts])
    if reason:
        refuse(
            "unusable",
            f"a text or the context cannot be stored: {reason}",
            "correct the value and send it again",
        )
    reserved = [name for name in ENGINE_KEYS if name in context]
    if reserved:
        refuse(
            "engine_keys",
            f"{' and '.join(reserved)} of a bead's context are reserved for the engine",
            "leave them out",
        )


def _check_file(name: str, content: bytes, content_type: str) -> None:
    is_plain = name.isprintable() and not {"/", "\\"} & set(name) and name not in (".", "..")
    if not is_plain or not 0 < len(name) <= FILE_NAME_CHARS_MAX or find_json_problem(name):
        message = (
            f"{name[:80]!r} is not a file name: use 1 to {FILE_NAME_CHARS_MAX} printable "
            "characters, no slash"
        )
        refuse("bad_name", message, "take another name")
    if (
        not content_type.isascii()
        or not content_type.isprintable()
        or len(content_type) > CONTENT_TYPE_CHARS_MAX
    ):
        refuse("bad_content_type", f"{content_type[:80]!r} is not a content type")
    if len(content) > FILE_BYTES_MAX:
        message = f"'{name}' has {len(content):,} bytes; a file has at most {FILE_BYTES_MAX:,}"
        refuse(
            "file_too_large", message, "store the file elsewhere and put its URL into the context"
        )


def _iso_or_none(at: datetime | None) -> str | None:
    try:
        return iso(at) if at is not None else None
    except OverflowError:
        refuse("unusable", f"{at} is outside of the years 1 to 9999 in UTC", "take another time")


def _run_view(run: Run, row: BeadRow) -> BeadView:
    """A bead with its active run's context."""
    return replace(_to_view(row), context=run.context)


def _to_view(row: BeadRow) -> BeadView:
    is_approval = isinstance(row, BeadItem) and row.type == "approval"
    return BeadView(
        id=row.id,
        type="approval" if is_approval else "work",
        parent_id=row.parent_id if isinstance(row, BeadItem) else None,
        title=row.title,
        description=row.description,
        status=row.status,
        priority=row.priority,
        filed_by=row.filed_by,
        context=msgspec.json.decode(row.context),
        error=msgspec.json.decode(row.error) if row.error is not None else None,
        workflow_id=row.workflow_id,
        execution_id=row.execution_id,
        created_at=parse_iso(row.created_at),
        updated_at=parse_iso(row.updated_at),
        due_at=parse_iso(row.due_at) if row.due_at is not None else None,
    )


def _approval_view(approval: Approval, workflow_id: str, priority: int) -> BeadView:
    """Return an approval as a bead, with its dossier in the context."""
    fields = msgspec.to_builtins(approval)
    return BeadView(
        id=approval.id,
        type="approval",
        parent_id=approval.original_bead_id,
        title=approval.question,
        description="",
        status="open" if approval.status == "open" else "closed",
        priority=priority,
        filed_by="engine",
        context={name: fields[name] for name in APPROVAL_CONTEXT_FIELDS if name in fields},
        error=None,
        workflow_id=workflow_id,
        execution_id=approval.execution_id,
        created_at=approval.created_at,
        updated_at=approval.created_at,
        due_at=None,
    )


def _file_info(row: FileRow) -> FileInfo:
    return FileInfo(
        name=row.name,
        size=row.size,
        sha256=row.sha256,
        content_type=row.content_type,
        uploaded_by=row.uploaded_by,
        created_at=parse_iso(row.created_at),
    )

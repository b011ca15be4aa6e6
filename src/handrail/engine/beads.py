"""Beads: the work as people file it, change it, hang files on it, and have it run again.

While a run is active the bead's context is the run's: a change goes through the kernel, which voids
a question that had shown what changed. Without one it is the row's, guarded by what was read. One
that begins meanwhile is told too: a patch that is merged twice is merged.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NoReturn
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace
from uuid_utils import uuid7

from handrail.engine.approvals import WithApprovals
from handrail.engine.handle import RunHandle
from handrail.engine.pages import LIMIT, Page, checked_cursor, checked_limit, refuse
from handrail.engine.project import encode, loaded
from handrail.engine.refused import Refused
from handrail.kernel.approval import Approval
from handrail.kernel.decision import Refusal
from handrail.kernel.definition import LEVELS
from handrail.kernel.plain import why_not_plain
from handrail.kernel.result import merged
from handrail.kernel.run import commands as c
from handrail.kernel.run.state import ENGINE_KEYS, Person
from handrail.kernel.shown import Shown
from handrail.store.office import FILES_MAX, BeadItem, FileRow, Office
from handrail.store.port import BeadRow, KeyRow, Loaded, iso, moment

NO_FILES: Mapping[str, str] = {}
FILE_MAX = 10_000_000
"""Bytes of one file."""
NAME_MAX = 200
TYPE_MAX = 200
TRIES = 8
"""Of a change that others are faster than."""
PRIORITY_MAX = 1_000_000_000
TICK = timedelta(microseconds=1)
TYPES = ("work", "approval")
STATUSES = ("open", "in_progress", "waiting", "closed", "error")
DOSSIER = (
    *("type", "question", "result", "digest", "original_bead_id", "failure_reason"),
    *("attempt_history", "proposed_next_steps", "proposal"),
)
"""What of an approval stands in its bead's context."""


class BeadView(Shown):
    """A bead: work, or a question to people about work, which is its parent."""

    id: str
    type: Literal["work", "approval"]
    parent_id: str | None
    title: str
    description: str
    status: str
    priority: int
    filed_by: str
    context: dict[str, Any]
    error: dict[str, Any] | None
    """{rule, reason, pattern, execution_id} of the run that was aborted."""
    workflow_id: str | None
    execution_id: str | None
    """Of the last run."""
    created_at: datetime
    updated_at: datetime


class FileInfo(Shown):
    """A file of a bead, without its content."""

    name: str
    size: int
    sha256: str
    content_type: str
    uploaded_by: str
    created_at: datetime


class WithBeads(WithApprovals):
    """An engine that beads are filed with."""

    def __init__(self, store: Office, **made: Any) -> None:  # noqa: ANN401 - as Core
        super().__init__(store, **made)
        self._changing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Beads without a run that are changed or begun just now, one at a time."""

    async def file_bead(
        self,
        *,
        title: str,
        description: str = "",
        workflow_id: str = "",
        context: dict[str, Any] | None = None,
        review: Literal["required", "skip"] | None = None,
        priority: int = 0,
        filed_by: str = "",
        key: str = "",
    ) -> BeadView:
        """A new bead; with a definition, its id or name, a run of it begins at once. Under the same
        `key` the same bead is meant. Refused: unusable, engine_keys, no_workflow, and whatever
        keeps the run from beginning."""
        _check_context(context or {}, title, description, filed_by)
        if not -PRIORITY_MAX <= priority <= PRIORITY_MAX:
            told = f"a priority is a number up to {PRIORITY_MAX:,}, not {priority}"
            refuse("bad_priority", told, "take a smaller one")
        self._check()
        bead = _new_bead(title, description, context or {}, priority, filed_by, self.clock())
        run_id = uuid7().hex if workflow_id else ""
        asked = ["bead", workflow_id, title, description, context, review, priority]
        kept = self._key(key, filed_by, asked, {"execution_id": run_id, "bead_id": bead.id})
        if not workflow_id:
            return await self._store_bead(bead, review, kept)
        command = c.Start(
            run_id=run_id,
            bead_id=bead.id,
            title=title,
            description=description,
            filed_by=filed_by,
            context=context or {},
            review=review,
        )
        begun = await self._begin(workflow_id, command, kept, priority)
        return await self.bead(begun["bead_id"])

    async def _store_bead(self, bead: BeadRow, review: str | None, kept: KeyRow | None) -> BeadView:
        if review is not None:
            told = f"'{bead.title[:80]}' says how it is reviewed, and names no definition"
            refuse("no_workflow", told, "leave `review` out, or name the definition")
        known = await self._io(self.store.file_bead, bead, kept)
        if known is None:
            return _view(bead)
        if kept is None or known.digest != kept.digest:
            told = f"the key '{known.key}' was used for another request"
            refuse("key_reused", told, "take a new key")
        return await self.bead(msgspec.json.decode(known.answer)["bead_id"])

    async def bead(self, bead_id: str) -> BeadView:
        """A bead as it stands: of a run that goes on the run's context. Also a question to people,
        by its id. Refused: unknown_bead."""
        row = await self._io(self.store.bead, bead_id)
        if row is None:
            return await self._question(bead_id)
        if row.status not in ("in_progress", "waiting") or row.execution_id is None:
            return _view(row)
        run = await self.state(row.execution_id)
        return replace(_view(row), context=run.context)

    async def _question(self, bead_id: str) -> BeadView:
        try:
            approval = await self.approval(bead_id)
        except Refused:
            _unknown(bead_id)
        run = await self._io(self.store.load, [approval.execution_id])
        subject = run[approval.execution_id].subject
        return _approval_bead(approval, subject.workflow_id, subject.priority)

    async def beads(
        self,
        *,
        type: Literal["work", "approval"] | None = None,  # noqa: A002 - as the API has it
        status: str | None = None,
        workflow_id: str | None = None,
        cursor: str = "",
        limit: int = LIMIT,
    ) -> Page[BeadView]:
        """The newest first, each as its row has it. Refused: bad_status, bad_type."""
        before, limit = checked_cursor(cursor) or None, checked_limit(limit)
        if status is not None and status not in STATUSES:
            told = f"'{status[:40]}' is no status of a bead"
            refuse("bad_status", told, f"it is one of {', '.join(STATUSES)}")
        if type is not None and type not in TYPES:
            refuse("bad_type", f"'{type[:40]}' is no type of a bead", "it is work or approval")
        rows = await self._slowly(
            lambda store: store.beads(
                type=type, status=status, workflow_id=workflow_id, before=before, limit=limit + 1
            )
        )
        items = tuple(_view(row) for row in rows[:limit])
        return Page(items=items, next_cursor=items[-1].id if len(rows) > limit else None)

    async def patch_bead(self, bead_id: str, patch: Mapping[str, Any], by: Person) -> BeadView:
        """The patch is merged into the context (RFC 7396). Refused: engine_keys, unusable,
        context_too_large, not_allowed, unknown_bead."""
        wanted = dict(patch)
        _check_context(wanted, by.name)
        if LEVELS.get(by.role, -1) < LEVELS["operator"]:
            told = f"{by.name} ({by.role}) may not change bead '{bead_id}'"
            refuse("not_allowed", told, "it takes an operator or above")
        async with self._one_at_a_time(bead_id):
            for _ in range(TRIES):
                if await self._patch(bead_id, wanted, by):
                    return await self.bead(bead_id)
            told = f"bead '{bead_id}' is changed by others all the time"
            raise Refused(Refusal(code="bead_busy", message=told, hint="try again"))

    async def _patch(self, bead_id: str, patch: dict[str, Any], by: Person) -> bool:
        """False if somebody else was faster."""
        active = await self._io(self.store.active_run, bead_id)
        if active is None:
            if not await self._patch_row(bead_id, patch):
                return False
            active = await self._io(self.store.active_run, bead_id)
        return active is None or await self._patch_run(active, patch, by)

    async def _patch_run(
        self, run_id: str, patch: dict[str, Any], by: Person, files: Mapping[str, str] = NO_FILES
    ) -> bool:
        """False if the run has ended meanwhile."""
        try:
            await self.command(run_id, c.Patch(by=by, patch=patch, files=dict(files)))
        except Refused as refused:
            if refused.refusal.code != "ended":
                raise
            return False
        return True

    async def _patch_row(self, bead_id: str, patch: dict[str, Any]) -> bool:
        row = await self._io(self.store.bead, bead_id)
        if row is None:
            _unknown(bead_id)
        context = merged(msgspec.json.decode(row.context), patch)
        if why := why_not_plain(context):
            told = f"with this the context of bead '{bead_id}' cannot be stored: {why}"
            refuse("context_too_large", told, "take something out of it (a null removes a key)")
        at = iso(max(self.clock(), moment(row.updated_at) + TICK))  # never the same as before
        changed = replace(row, context=encode(context).decode(), updated_at=at)
        return await self._io(self.store.change_bead, changed, row.updated_at)

    async def restart(
        self,
        bead_id: str,
        *,
        workflow_id: str = "",
        from_node: str = "",
        by: str = "",
        key: str = "",
    ) -> RunHandle:
        """Another run of the bead, or its first: of this definition, else of that of its last run.
        It is the bead as it was filed, with its context as it is now. Refused: unknown_bead,
        no_workflow, unknown_place, and while one is active bead_busy."""
        run_id = uuid7().hex
        asked = ["restart", bead_id, workflow_id, from_node]
        kept = self._key(key, by, asked, {"execution_id": run_id, "bead_id": bead_id})
        async with self._one_at_a_time(bead_id):
            row = await self._io(self.store.bead, bead_id)
            if row is None:
                _unknown(bead_id)
            definition = workflow_id or row.workflow_id
            if not definition:
                told = f"bead '{bead_id}' has never run, and no definition is named"
                refuse("no_workflow", told, "name a definition")
            await self._is_free(bead_id, kept)
            context = msgspec.json.decode(row.context)
            command = c.Start(
                run_id=run_id,
                bead_id=bead_id,
                title=row.title,
                description=row.description,
                filed_by=row.filed_by,
                context={name: it for name, it in context.items() if name not in ENGINE_KEYS},
                review=await self._review(row.execution_id),
                from_place=from_node,
            )
            begun = await self._begin(definition, command, kept, row.priority)
        return RunHandle(self, begun["execution_id"])

    async def _review(self, run_id: str | None) -> Literal["required", "skip"] | None:
        """What the bead wanted the last time; unknown once that run was archived."""
        if run_id is None:
            return None
        found: dict[str, Loaded] = await self._io(self.store.load, [run_id])
        return loaded(found[run_id].subject, found[run_id].tail).review if found else None

    async def _is_free(self, bead_id: str, kept: KeyRow | None) -> None:
        """Refused while a run is active, unless it is the one that was asked for with this key."""
        active = await self._io(self.store.active_run, bead_id)
        if active is None:
            return
        if kept is None or await self._io(self.store.key, kept.key, kept.actor) is None:
            told = f"bead '{bead_id}' has the active run '{active}'"
            refuse("bead_busy", told, "wait for its end, or close it")

    def _one_at_a_time(self, bead_id: str) -> asyncio.Lock:
        lock = self._changing.get(bead_id)
        if lock is None:
            lock = self._changing[bead_id] = asyncio.Lock()
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
        """A file of the bead, for its agents. The same file again changes nothing; another one of
        that name is refused: file_exists. Also refused: bad_name, bad_content_type, file_too_large,
        too_many_files, unknown_bead."""
        _check_file(name, content, content_type)
        await self._known(bead_id)
        file = FileRow(
            bead_id=bead_id,
            name=name,
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
            content_type=content_type,
            content=content,
            uploaded_by=by,
            created_at=iso(self.clock()),
        )
        self._check()
        files: list[FileRow] = await self._io(self.store.files, bead_id)
        if len(files) < FILES_MAX and all(one.name != name for one in files):
            # before it is there: nobody hangs one on without being on record for it
            await self._hung_on(bead_id, {name: file.sha256}, by)
        if await self._io(self.store.put_file, file):
            return _info(file)
        files = await self._io(self.store.files, bead_id)
        known = next((one for one in files if one.name == name), None)
        if known is None:
            told = f"bead '{bead_id}' has {FILES_MAX} files already"
            refuse("too_many_files", told, "put several into one archive")
        if known.sha256 != file.sha256:
            told = f"bead '{bead_id}' has another file '{name}'"
            refuse("file_exists", told, "take another name: files do not change")
        return _info(known)

    async def _hung_on(self, bead_id: str, files: dict[str, str], by: str) -> None:
        active = await self._io(self.store.active_run, bead_id)
        if active is not None:
            await self._patch_run(active, {}, Person(name=by or "engine"), files)

    async def files(self, bead_id: str) -> list[FileInfo]:
        """By name. Refused: unknown_bead."""
        rows: list[FileRow] = await self._io(self.store.files, bead_id)
        if not rows:
            await self._known(bead_id)
        return [_info(row) for row in rows]

    async def file(self, bead_id: str, name: str) -> tuple[FileInfo, bytes]:
        """One with its content. Refused: unknown_bead, unknown_file."""
        row = await self._slowly(lambda store: store.file(bead_id, name))
        if row is None:
            await self._known(bead_id)
            told = f"bead '{bead_id}' has no file '{name[:NAME_MAX]}'"
            refuse("unknown_file", told, "look at the list of its files")
        return _info(row), row.content or b""

    async def _known(self, bead_id: str) -> None:
        if await self._io(self.store.bead, bead_id) is None:
            _unknown(bead_id)


def _check_context(context: dict[str, Any], *texts: str) -> None:
    why = why_not_plain([context, *texts])
    if why:
        refuse("unusable", f"this cannot be stored: {why}", "correct it and send it again")
    taken = [name for name in ENGINE_KEYS if name in context]
    if taken:
        told = f"{' and '.join(taken)} of a bead's context are the engine's own"
        refuse("engine_keys", told, "leave them out")


def _check_file(name: str, content: bytes, content_type: str) -> None:
    plain = name.isprintable() and not {"/", "\\"} & set(name) and name not in (".", "..")
    if not plain or not 0 < len(name) <= NAME_MAX or why_not_plain(name):
        told = f"{name[:80]!r} is no name for a file: 1 to {NAME_MAX} plain characters, no slash"
        refuse("bad_name", told, "take another name")
    if not content_type.isascii() or not content_type.isprintable() or len(content_type) > TYPE_MAX:
        refuse("bad_content_type", f"{content_type[:80]!r} is no type of a content")
    if len(content) > FILE_MAX:
        told = f"'{name}' has {len(content):,} bytes; a file has at most {FILE_MAX:,}"
        refuse("file_too_large", told, "put it elsewhere, and its address into the context")


def _new_bead(
    title: str,
    description: str,
    context: dict[str, Any],
    priority: int,
    filed_by: str,
    now: datetime,
) -> BeadRow:
    return BeadRow(
        id=uuid7().hex,
        title=title,
        description=description,
        status="open",
        priority=priority,
        filed_by=filed_by,
        context=encode(context).decode(),
        error=None,
        workflow_id=None,
        execution_id=None,
        created_at=iso(now),
        updated_at=iso(now),
    )


def _view(row: BeadRow) -> BeadView:
    asked = isinstance(row, BeadItem) and row.type == "approval"
    return BeadView(
        id=row.id,
        type="approval" if asked else "work",
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
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
    )


def _approval_bead(approval: Approval, workflow_id: str, priority: int) -> BeadView:
    """A question as a bead, with its dossier in the context."""
    told = msgspec.to_builtins(approval)
    return BeadView(
        id=approval.id,
        type="approval",
        parent_id=approval.original_bead_id,
        title=approval.question,
        description="",
        status="open" if approval.status == "open" else "closed",
        priority=priority,
        filed_by="engine",
        context={name: told[name] for name in DOSSIER if name in told},
        error=None,
        workflow_id=workflow_id,
        execution_id=approval.execution_id,
        created_at=approval.created_at,
        updated_at=approval.created_at,
    )


def _info(row: FileRow) -> FileInfo:
    return FileInfo(
        name=row.name,
        size=row.size,
        sha256=row.sha256,
        content_type=row.content_type,
        uploaded_by=row.uploaded_by,
        created_at=moment(row.created_at),
    )


def _unknown(bead_id: str) -> NoReturn:
    told = f"there is no bead '{bead_id[:200]}'"
    refuse("unknown_bead", told, "look at the list of beads")

"""The one way to change a run or a channel: a command, decided by the kernel, then committed.

A repeated request is known by its idempotency key, and gets the first answer.
"""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec.structs import replace

from handrail.engine.commit.batch import Command, CommandResult
from handrail.engine.environment import Clock, StandstillWatch, StoreAccess
from handrail.engine.errors import RefusedError, refuse
from handrail.kernel.run import commands as c
from handrail.store.rows import (
    BeadRow,
    DefinitionRow,
    IdempotencyKeyRow,
    StoreError,
    encode,
    filed_digest,
    iso,
)

if TYPE_CHECKING:
    from handrail.engine.commit.committer import GroupCommitter

IDEMPOTENCY_KEY_CHARS_MAX = 255


class CommandGateway:
    """Submits commands to the committer. A refusal raises `RefusedError`."""

    def __init__(
        self,
        committer: "GroupCommitter",
        access: StoreAccess,
        clock: Clock,
        before_commit: Callable[[], Awaitable[None]],
        standstill: StandstillWatch | None,
    ) -> None:
        self._committer, self._access, self._clock = committer, access, clock
        self._before_commit, self._standstill = before_commit, standstill

    async def prepare(self) -> None:
        """Get ready for a commit: check that the engine is open, and what the engine has to do
        before."""
        self._access.check_open()
        if self._standstill is None or self._standstill.is_pending():
            await self._before_commit()

    async def execute(
        self,
        stream: str,
        command: Command,
        *,
        key: IdempotencyKeyRow | None = None,
        bead: BeadRow | None = None,
    ) -> CommandResult:
        """Decide and commit a command. Refused: as the kernel says, and key_reused."""
        await self.prepare()
        try:
            result = await self._committer.execute(stream, command, key=key, bead=bead)
        except StoreError:
            if isinstance(command, c.Start) and await self._has_started(command):
                return CommandResult()
            self._access.check_open()
            raise
        if result.duplicate_of is not None and key is not None:
            check_same_request(result.duplicate_of, key)
        elif result.refusal is not None:
            raise RefusedError(result.refusal)
        return result

    async def start(
        self, definition: str, start: c.Start, key: IdempotencyKeyRow | None, bead: BeadRow
    ) -> CommandResult:
        """Start a run of the bead, of the newest version of a definition, by id or name. Refused:
        unknown_definition, and as the kernel says."""
        newest = self._committer.plans.newest.get(definition)
        row = newest or await self.load_newest_definition(definition)
        command = replace(
            start,
            definition_id=row.workflow_id,
            version=row.version,
            filed=filed_digest(bead),
        )
        return await self.execute(start.run_id, command, key=key, bead=bead)

    async def load_newest_definition(self, definition: str) -> DefinitionRow:
        """Load the newest version, by id or name. Refused: unknown_definition."""
        row = await self._access.call(self._access.store.definitions.get, definition)
        if row is None:
            refuse_unknown_definition(definition)
        self._committer.plans.newest[definition] = row
        return row

    async def _has_started(self, start: c.Start) -> bool:
        """Whether the run began after all: the connection broke, but the start was on disk. Refused
        if its bead has another run."""
        try:
            active_run_id = await self._access.call(
                self._access.store.runs.get_active_id, start.bead_id
            )
        except StoreError:
            return False  # the caller raises the first error
        if active_run_id is not None and active_run_id != start.run_id:
            refuse(
                "bead_busy",
                f"bead '{start.bead_id}' has the active run '{active_run_id}'",
                "wait for its end, or close it",
            )
        return active_run_id is not None

    def key_row(
        self, key: str, actor: str, request: object, answer: dict[str, str]
    ) -> IdempotencyKeyRow | None:
        """The row by which a repeated request finds its first answer. Refused: bad_key."""
        if not key:
            return None
        if len(key) > IDEMPOTENCY_KEY_CHARS_MAX or not key.isprintable():
            refuse(
                "bad_key",
                f"the idempotency key {key[:40]!r} has more than {IDEMPOTENCY_KEY_CHARS_MAX} "
                "characters, or control characters",
                "use a UUID",
            )
        return IdempotencyKeyRow(
            key=key,
            actor=actor,
            digest=hashlib.sha256(encode(request)).hexdigest(),
            answer=encode(answer).decode(),
            created_at=iso(self._clock()),
        )


class StoredAnswers:
    """Answers to requests, for repetitions of the same request. `start`, `answer` and others store
    their keys in the same table: give yours a prefix of its own ("http:")."""

    def __init__(self, access: StoreAccess) -> None:
        self._access, self._store = access, access.store

    def row(self, key: str, actor: str, at: datetime, answer: str) -> IdempotencyKeyRow:
        """Make the row of an answer, for `put` or to be written with a command."""
        return IdempotencyKeyRow(key=key, actor=actor, digest="", answer=answer, created_at=iso(at))

    async def get(self, key: str, actor: str) -> IdempotencyKeyRow | None:
        """Return the stored answer to this request."""
        return await self._access.call(self._store.idempotency_keys.get, key, actor)

    async def put(self, rows: Sequence[IdempotencyKeyRow]) -> None:
        """Store answers. Under each key and actor the first answer stands."""
        self._access.check_open()
        await self._access.call(self._store.idempotency_keys.put, rows)


def check_same_request(first: IdempotencyKeyRow, key: IdempotencyKeyRow) -> None:
    """Refuse a key that was used for another request: key_reused."""
    if first.digest != key.digest:
        refuse("key_reused", f"the key '{first.key}' was used for another request", "use a new key")


def first_answer(row: IdempotencyKeyRow) -> dict[str, str]:
    """What the first request under the key was answered."""
    return msgspec.json.decode(row.answer, type=dict[str, str])


def refuse_unknown_definition(workflow_id: str, version: int | None = None) -> NoReturn:
    version_text = "" if version is None else f"version {version} of "
    refuse(
        "unknown_definition",
        f"there is no definition {version_text}'{workflow_id}'",
        "store the definition first",
    )

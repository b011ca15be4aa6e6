"""Definitions: stored, listed, and looked up with all their versions."""

import asyncio
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec.structs import asdict

from handrail.engine.core import Core
from handrail.engine.documents import load
from handrail.engine.pages import LIMIT, Page, checked_cursor, checked_limit, refuse
from handrail.kernel.certificate import Bound
from handrail.kernel.definition import Problem
from handrail.kernel.plan import Checked, Plan, check
from handrail.kernel.shown import Shown
from handrail.store.office import Office
from handrail.store.port import DefinitionRow, StoreError, iso, moment

VERSION_MAX = 2**31 - 1
TRIES = 1_000


class InvalidDefinition(Exception):  # noqa: N818 - an answer, not a mistake of the program
    """A document that is no valid definition. `problems` are all of them, each with its place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


class Defined(Shown):
    """A stored definition: its id and version, and what a run of it can cost at most."""

    id: str
    name: str
    kind: str
    version: int
    bound: Bound
    warnings: tuple[Problem, ...] = ()


class DefinitionItem(Shown):
    """A version of a definition, in lists."""

    id: str
    name: str
    kind: str
    version: int
    created_by: str
    created_at: datetime


class DefinitionView(DefinitionItem):
    """With the document itself, and what a run of it can cost at most."""

    definition: dict[str, Any]
    bound: Bound | None
    """None if the rules have become stricter since, and it is valid no more."""
    warnings: tuple[Problem, ...]


class WithDefinitions(Core):
    """An engine that definitions are stored with."""

    def __init__(self, store: Office, **made: Any) -> None:  # noqa: ANN401 - as Core
        super().__init__(store, **made)
        self._checking = asyncio.Lock()

    async def checked(self, document: object) -> tuple[Plan | None, Checked]:
        """All that is wrong with a document, or its plan. A large one takes seconds: on a thread,
        where nobody else waits for it, and one at a time."""
        async with self._checking:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(None, check, document, self.settings.kernel)

    async def define(
        self, source: Path | str | dict[str, Any], *, by: str = "", workflow_id: str = ""
    ) -> Defined:
        """Store a definition: a document, or a file with one. The same again changes nothing; a
        changed one becomes the next version."""
        document: Any = source
        if not isinstance(source, dict):
            document, problems = load(Path(source))
            if problems:
                raise InvalidDefinition(problems)
        plan, found = await self.checked(document)
        if plan is None:
            raise InvalidDefinition(found.errors)
        assert found.bound is not None, "a plan has its certificate"
        definition = plan.definition
        workflow_id = workflow_id or definition.id or definition.name
        text = json.dumps(document, ensure_ascii=False, sort_keys=True)
        for _ in range(TRIES):  # another engine may define it at the same moment
            newest = await self._io(self.store.definition, workflow_id)
            if newest is not None and newest.workflow_id != workflow_id:
                newest = None  # another one of that name
            if newest is not None and newest.definition == text:
                break
            newest = DefinitionRow(
                workflow_id=workflow_id,
                version=newest.version + 1 if newest is not None else 1,
                name=definition.name,
                kind=plan.kind,
                definition=text,
                created_by=by,
                created_at=iso(self.clock()),
            )
            self.pulse.newest.clear()
            if await self._io(self.store.put_definition, newest):
                break
        else:
            raise StoreError(f"'{workflow_id}' is defined by others all the time; try again")
        return Defined(
            id=workflow_id,
            name=definition.name,
            kind=plan.kind,
            version=newest.version,
            bound=found.bound,
            warnings=found.warnings,
        )

    async def _newest(self, definition: str) -> DefinitionRow:
        row = await self._io(self.store.definition, definition)
        if row is None:
            _unknown(definition)
        self.pulse.newest[definition] = row
        return row

    async def definitions(self, cursor: str = "", limit: int = LIMIT) -> Page[DefinitionItem]:
        """The newest version of each, by id."""
        after, limit = checked_cursor(cursor), checked_limit(limit)
        rows: list[DefinitionRow] = await self._io(self.store.definitions_page, after, limit + 1)
        items = tuple(_item(row) for row in rows[:limit])
        return Page(items=items, next_cursor=items[-1].id if len(rows) > limit else None)

    async def definition(self, workflow_id: str, version: int | None = None) -> DefinitionView:
        """That version, else the newest; by id, else by name. Refused: unknown_definition."""
        known = version is None or 0 < version <= VERSION_MAX
        row = await self._io(self.store.definition, workflow_id, version) if known else None
        if row is None:
            _unknown(workflow_id, version)
        document = msgspec.json.decode(row.definition)
        _, found = await self.checked(document)
        return DefinitionView(
            **asdict(_item(row)),
            definition=document,
            bound=found.bound,
            warnings=found.warnings,
        )

    async def versions(self, workflow_id: str) -> list[DefinitionItem]:
        """The newest first. Refused: unknown_definition."""
        rows: list[DefinitionRow] = await self._io(self.store.versions, workflow_id)
        if not rows:
            _unknown(workflow_id)
        return [_item(row) for row in rows]


def _item(row: DefinitionRow) -> DefinitionItem:
    return DefinitionItem(
        id=row.workflow_id,
        name=row.name,
        kind=row.kind,
        version=row.version,
        created_by=row.created_by,
        created_at=moment(row.created_at),
    )


def _unknown(workflow_id: str, version: int | None = None) -> NoReturn:
    of = "" if version is None else f"version {version} of "
    refuse("unknown_definition", f"nothing is defined as {of}'{workflow_id}'", "define it first")

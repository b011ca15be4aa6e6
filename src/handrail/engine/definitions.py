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
from handrail.kernel.definition import LEVELS, Problem
from handrail.kernel.plan import Checked, Plan, check
from handrail.kernel.run.people import OVERRIDE
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
        self,
        source: Path | str | dict[str, Any],
        *,
        by: str = "",
        role: str = OVERRIDE,
        workflow_id: str = "",
        only_guarded: bool = False,
    ) -> Defined:
        """Store a definition: a document, or a file with one. The same again changes nothing; a
        changed one becomes the next version. `role` is the role of `by`: below ceo, only its own
        definitions, and none that commits. With `only_guarded` the version before is a guarded
        team's. Both are decided with the write itself. Refused: foreign_definition,
        commit_unapproved, not_guarded."""
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
        owner = _owner(plan, by, role)
        workflow_id = workflow_id or definition.id or definition.name
        text = json.dumps(document, ensure_ascii=False, sort_keys=True)
        for _ in range(TRIES):  # another engine may define it at the same moment
            newest = await self._io(self.store.definition, workflow_id)
            if only_guarded and newest is not None:
                check_guarded(newest, workflow_id)
            if newest is not None and newest.workflow_id != workflow_id:
                newest = None  # another one of that name
            if owner is not None:
                await self._check_owner(workflow_id, definition.name, owner)
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
            if await self._io(self.store.put_definition, newest, owner):
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

    async def _check_owner(self, workflow_id: str, name: str, owner: str) -> None:
        """Nobody below ceo edits what others defined, nor takes an id or a name by which something
        of others was found until now: whoever asked for that would be given the new one."""
        foreign = await self._io(self.store.foreign_definition, workflow_id, name, owner)
        if foreign is not None:
            message = f"{owner} did not define '{foreign}'"
            hint = "ask a ceo to edit it, or take another id and name"
            refuse("foreign_definition", message, hint)

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


def check_guarded(row: DefinitionRow, team: str) -> dict[str, Any]:
    """The document of a guarded team of that id. Refused: not_guarded."""
    document = msgspec.json.decode(row.definition, type=dict[str, Any])
    if row.workflow_id != team or not document.get("metadata", {}).get("guarded"):
        message = f"there is a definition '{team}' that is no guarded team"
        refuse("not_guarded", message, "give the guarded run another name")
    return document


def _owner(plan: Plan, by: str, role: str) -> str | None:
    """Whose versions alone may stand below this one; None if anybody's. Refused:
    commit_unapproved."""
    if LEVELS.get(role, -1) >= LEVELS[OVERRIDE]:
        return None
    if plan.commits:
        message = f"{by} ({role}) may not define '{plan.definition.name}': it has a commit node"
        refuse("commit_unapproved", message, "ask a ceo to store it")
    return by


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

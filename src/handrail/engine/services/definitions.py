"""Definitions: stored, listed, and looked up with all their versions."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from handrail.engine.commit.gateway import refuse_unknown_definition
from handrail.engine.commit.plan_cache import PlanCache
from handrail.engine.document_parser import load_document
from handrail.engine.environment import Clock, StoreAccess
from handrail.engine.errors import InvalidDefinitionError, refuse
from handrail.engine.pagination import check_cursor, check_limit, to_page
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.model import (
    OVERRIDE_LEVEL,
    PERSON_LEVELS,
    DocumentProblem,
    Team,
    Workflow,
)
from handrail.kernel.definition.plan import DefinitionCheck, Plan, check_definition
from handrail.store.rows import DefinitionRow, StoreError, iso, parse_iso
from handrail.views.definitions import DefinitionItem, DefinitionView, StoredDefinition
from handrail.views.view_types import PAGE_ITEMS_DEFAULT, Page

VERSION_MAX = 2**31 - 1
STORE_ATTEMPTS_MAX = 1_000


class DefinitionService:
    """Checks, stores and finds definitions."""

    def __init__(
        self, access: StoreAccess, plans: PlanCache, clock: Clock, settings: EngineSettings
    ) -> None:
        self._access, self._store, self._plans = access, access.store, plans
        self._clock, self._settings = clock, settings
        self._check_lock = asyncio.Lock()

    async def check(self, document: object) -> tuple[Plan | None, DefinitionCheck]:
        """Return all problems of a document, or its plan. A large document takes seconds: it is
        checked on a thread, one at a time, so that no other caller waits."""
        async with self._check_lock:
            return await asyncio.get_running_loop().run_in_executor(
                None, check_definition, document, self._settings.kernel
            )

    async def store(
        self,
        source: Path | str | dict[str, Any],
        *,
        by: str = "",
        role: str = OVERRIDE_LEVEL,
        workflow_id: str = "",
        only_guarded: bool = False,
    ) -> StoredDefinition:
        """Store a definition: a document, or a file with one. The same again changes nothing; a
        changed one becomes the next version. `role` is the role of `by`: below ceo, only its own
        definitions, and none that commits. With `only_guarded` the version before is a guarded
        team's. Both are decided with the write itself. Refused: foreign_definition,
        commit_unapproved, not_guarded."""
        document = source if isinstance(source, dict) else _load_definition(Path(source))
        plan, checked = await self.check(document)
        if plan is None:
            raise InvalidDefinitionError(checked.errors)
        assert checked.bound is not None, "a plan has its certificate"
        definition = plan.definition
        await self._check_budgets(definition)
        owner = _required_owner(plan, by, role)
        workflow_id = workflow_id or definition.id or definition.name
        text = json.dumps(document, ensure_ascii=False, sort_keys=True)
        for _ in range(STORE_ATTEMPTS_MAX):  # another engine may define it at the same moment
            newest = await self._access.call(self._store.definitions.get, workflow_id)
            if only_guarded and newest is not None:
                check_guarded(newest, workflow_id)
            if newest is not None and newest.workflow_id != workflow_id:
                newest = None  # another definition of that name
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
                created_at=iso(self._clock()),
            )
            self._plans.newest.clear()
            if await self._access.call(self._store.definitions.put, newest, owner):
                break
        else:
            raise StoreError(
                f"definition '{workflow_id}': {STORE_ATTEMPTS_MAX} write conflicts; retry"
            )
        return StoredDefinition(
            id=workflow_id,
            name=definition.name,
            kind=plan.kind,
            version=newest.version,
            bound=checked.bound,
            warnings=checked.warnings,
        )

    async def _check_budgets(self, definition: Workflow | Team) -> None:
        """Refuse a budget that nobody has set."""
        names = definition.stop_rules.budgets
        problems = [
            DocumentProblem(
                code="unknown_budget",
                path=f"stop_rules.budgets[{number}]",
                message=f"there is no budget '{name}'",
                hint=f"set it: PUT /budgets/{name}, or the setting budgets",
            )
            for number, name in enumerate(names)
            if await self._access.call(self._store.budgets.get, name) is None
        ]
        if problems:
            raise InvalidDefinitionError(problems)

    async def _check_owner(self, workflow_id: str, name: str, owner: str) -> None:
        """Refuse an author below ceo who edits a definition of others, or takes an id or a name
        that until now led to one: callers who use it would get the new one."""
        foreign = await self._access.call(
            self._store.definitions.find_foreign, workflow_id, name, owner
        )
        if foreign is not None:
            refuse(
                "foreign_definition",
                f"'{foreign}' was defined by another user than {owner}",
                "ask a ceo to change it, or use another id and name",
            )

    async def list(self, cursor: str = "", limit: int = PAGE_ITEMS_DEFAULT) -> Page[DefinitionItem]:
        """List the newest version of each definition, by id."""
        after, limit = check_cursor(cursor), check_limit(limit)
        rows = await self._access.call(self._store.definitions.list, after, limit + 1)
        return to_page(rows, limit, _to_item)

    async def get(self, workflow_id: str, version: int | None = None) -> DefinitionView:
        """Return that version, else the newest; by id, else by name. Refused:
        unknown_definition."""
        is_version = version is None or 0 < version <= VERSION_MAX
        row = (
            await self._access.call(self._store.definitions.get, workflow_id, version)
            if is_version
            else None
        )
        if row is None:
            refuse_unknown_definition(workflow_id, version)
        document = msgspec.json.decode(row.definition)
        _, checked = await self.check(document)
        return DefinitionView(
            **asdict(_to_item(row)),
            definition=document,
            bound=checked.bound,
            warnings=checked.warnings,
        )

    async def versions(self, workflow_id: str) -> Sequence[DefinitionItem]:
        """List the versions, the newest first. Refused: unknown_definition."""
        rows = await self._access.call(self._store.definitions.list_versions, workflow_id)
        if not rows:
            refuse_unknown_definition(workflow_id)
        return [_to_item(row) for row in rows]


def check_guarded(row: DefinitionRow, team: str) -> dict[str, Any]:
    """Return the document of the guarded team of that id. Refused: not_guarded."""
    document = msgspec.json.decode(row.definition, type=dict[str, Any])
    if row.workflow_id != team or not document.get("metadata", {}).get("guarded"):
        refuse(
            "not_guarded",
            f"a definition named '{team}' exists and is not of a guarded program",
            "use another name for the guarded run",
        )
    return document


def _load_definition(path: Path) -> Any:  # noqa: ANN401 - any document
    document, problems = load_document(path)
    if problems:
        raise InvalidDefinitionError(problems)
    return document


def _required_owner(plan: Plan, by: str, role: str) -> str | None:
    """The only owner whose versions may stand below this one; None if any may. Refused:
    commit_unapproved."""
    if PERSON_LEVELS.get(role, -1) >= PERSON_LEVELS[OVERRIDE_LEVEL]:
        return None
    if plan.commit_repositories:
        refuse(
            "commit_unapproved",
            f"{by} ({role}) may not define '{plan.definition.name}': it has a commit node",
            "ask a ceo to store it",
        )
    return by


def _to_item(row: DefinitionRow) -> DefinitionItem:
    return DefinitionItem(
        id=row.workflow_id,
        name=row.name,
        kind=row.kind,
        version=row.version,
        created_by=row.created_by,
        created_at=parse_iso(row.created_at),
    )

"""Definitions and their versions in the store."""

from msgspec.structs import asdict

from handrail.store.database import Subject
from handrail.store.record import DEFINITIONS, Change, is_on_record, record
from handrail.store.rows import DefinitionRow


class DefinitionStore(Subject):
    def put(self, row: DefinitionRow, owner: str | None = None) -> bool:
        """Insert a version. Return False, and change nothing, if this version exists, or if
        `find_foreign` finds another owner's. Without `owner`, owners do not matter."""
        with self._database.transaction() as transaction:
            transaction.lock("definitions")
            names = {"id": row.workflow_id, "name": row.name, "owner": owner}
            if owner is not None and transaction.fetch_one("foreign_definition", **names):
                return False
            transaction.execute("put_workflow", **asdict(row))
            if not transaction.write_rows("insert_versions", [row]):
                return False
            about = f"{row.name}, version {row.version}"
            change = Change(
                table=DEFINITIONS,
                row=row,
                type="definition_stored",
                by=row.created_by,
                about=about,
            )
            record(transaction, row.created_at, change)
            return True

    def is_on_record(self, row: DefinitionRow) -> bool:
        """Whether the version is the one that was stored."""
        bodies = self._fetch_rows(str, "definition_record", stream=DEFINITIONS.stream_of(row))
        return any(is_on_record(DEFINITIONS, row, body) for body in bodies)

    def find_foreign(self, workflow_id: str, name: str, owner: str) -> str | None:
        """Return a definition with this id or name that has a version by another owner."""
        return self._fetch_row(str, "foreign_definition", id=workflow_id, name=name, owner=owner)

    def get(self, workflow_id: str, version: int | None = None) -> DefinitionRow | None:
        """Return that version, by default the newest. `workflow_id` may also be a name."""
        wanted = {"newest": True} if version is None else {"version": version}
        return next(
            iter(self._fetch_filtered(DefinitionRow, "definition", id=workflow_id, **wanted)), None
        )

    def list_versions(self, workflow_id: str) -> list[DefinitionRow]:
        """List all versions of a definition, the newest first; by id, not by name."""
        return self._fetch_rows(DefinitionRow, "versions", id=workflow_id)

    def list(self, after: str, limit: int) -> list[DefinitionRow]:
        """List the newest version of each definition, by id."""
        return self._fetch_rows(DefinitionRow, "definitions", after=after, limit=limit)

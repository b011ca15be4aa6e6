"""Idempotency keys in the store: responses for requests that are sent again."""

from collections.abc import Sequence

from handrail.store.database import Subject
from handrail.store.rows import IdempotencyKeyRow

DELETE_BATCH_KEYS = 10_000
"""Keys per statement: a statement must end long before its server is taken for lost."""


class IdempotencyKeyStore(Subject):
    def get(self, key: str, actor: str) -> IdempotencyKeyRow | None:
        return self._fetch_row(IdempotencyKeyRow, "key", key=key, actor=actor)

    def put(self, rows: Sequence[IdempotencyKeyRow]) -> None:
        """Insert keys with their responses; for each key and actor the first response stays."""
        in_one_order = sorted(rows, key=lambda row: (row.key, row.actor))  # for all engines
        self._database.write_rows("insert_new_keys", in_one_order)

    def delete_before(self, before: str) -> int:
        """Delete old keys; return how many."""
        total = 0
        while deleted := self._database.execute(
            "delete_old_keys", before=before, limit=DELETE_BATCH_KEYS
        ):
            total += deleted
        return total

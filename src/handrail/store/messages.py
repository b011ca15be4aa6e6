"""Messages between streams in the store."""

from handrail.store.database import Subject
from handrail.store.rows import MessageRow


class MessageStore(Subject):
    def delete(self, message_id: str) -> None:
        """Delete a message that led to no decision."""
        self._database.write_rows("delete_messages", [(message_id,)])

    def list(self, limit: int) -> list[MessageRow]:
        """List the oldest undelivered messages."""
        return [MessageRow(*row) for row in self._database.fetch_all("messages", limit=limit)]

"""Engines in the store: when each was last alive, and when none was."""

from handrail.store.database import Subject


class EngineLiveness(Subject):
    def heartbeat(self, engine: str, at: str) -> None:
        """Record that this engine and its functions are alive."""
        with self._database.transaction() as transaction:
            transaction.execute("heartbeat_engine", engine=engine, at=at)
            transaction.execute("heartbeat_functions", engine=engine, at=at)

    def delete(self, engine: str) -> None:
        """Delete an engine that closed or is dead, and the agents of its functions."""
        with self._database.transaction() as transaction:
            transaction.execute("delete_engine", engine=engine)
            transaction.execute("delete_functions", engine=engine)

    def find_dead(self) -> list[str] | None:
        """Return the engines still on record if no other engine works on this database: they are
        dead. None if others may be at work. Called once, when an engine opens."""
        return self._database.find_dead_engines()

    def add_outage(self, started_at: str, ended_at: str) -> None:
        """Record that no engine was alive in between, unless another engine did so already."""
        with self._database.transaction() as transaction:
            transaction.lock("outages")
            transaction.execute("add_outage", started_at=started_at, ended_at=ended_at)

    def list_outages(self, since: str) -> list[tuple[str, str]]:
        """List outages that ended after `since`, in order."""
        rows = self._database.fetch_all("outages", since=since)
        return [(started_at, ended_at) for started_at, ended_at in rows]

    def get_last_alive(self) -> str | None:
        """Return when any engine last wrote anything."""
        row = self._database.fetch_one("last_alive")
        return row[0] if row is not None else None

    def list(self) -> dict[str, str]:
        """Return when each engine was last alive."""
        return dict(self._database.fetch_all("engines"))

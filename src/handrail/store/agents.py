"""Agents and engines in the store: who they are, when each was last alive, and when no engine
was."""

from typing import Any

from handrail.store.database import Subject
from handrail.store.rows import AgentRow


class AgentStore(Subject):
    def put(self, agent: AgentRow) -> None:
        self._database.write_rows("put_agents", [agent])

    def register(self, agent: AgentRow) -> bool:
        """Register a remote agent. A disabled agent stays disabled. Return False if a function of
        an engine has that id."""
        return self._database.write_rows("register_agents", [agent]) > 0

    def remove(self, agent_id: str) -> None:
        self._database.execute("remove_agent", id=agent_id)

    def set_enabled(self, agent_id: str, *, enabled: bool) -> bool:
        """Return False if there is no such agent."""
        return self._update("enable_agent", id=agent_id, enabled=enabled)

    def heartbeat(self, session: str, at: str) -> bool:
        """Record that the session is alive. Return False if the agent has another session now."""
        return self._update("heartbeat_session", session=session, at=at)

    def get(self, agent_id: str) -> AgentRow | None:
        return next(iter(self._fetch_filtered(_agent, "agents", id=agent_id)), None)

    def list(self) -> list[AgentRow]:
        return self._fetch_filtered(_agent, "agents")


def _agent(*row: Any) -> AgentRow:  # noqa: ANN401 - the values of the columns
    """Build the row; SQLite has no booleans."""
    agent_id, roles, capacity, enabled, session, engine, beat_at = row
    return AgentRow(agent_id, roles, capacity, bool(enabled), session, engine, beat_at)


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
        """List outages that ended after `since`, in order: (started_at, ended_at)."""
        return [(row[0], row[1]) for row in self._database.fetch_all("outages", since=since)]

    def get_last_alive(self) -> str | None:
        """Return when any engine last wrote anything."""
        row = self._database.fetch_one("last_alive")
        return row[0] if row is not None else None

    def list(self) -> dict[str, str]:
        """Return when each engine was last alive."""
        return dict(self._database.fetch_all("engines"))

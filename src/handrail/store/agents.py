"""Agents in the store."""

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
        return self._database.execute("enable_agent", id=agent_id, enabled=enabled) > 0

    def heartbeat(self, session: str, at: str) -> bool:
        """Record that the session is alive. Return False if the agent has another session now."""
        return self._database.execute("heartbeat_session", session=session, at=at) > 0

    def get(self, agent_id: str) -> AgentRow | None:
        rows = self._database.fetch_filtered("agents", id=agent_id)
        return _agent(rows[0]) if rows else None

    def list(self) -> list[AgentRow]:
        return [_agent(row) for row in self._database.fetch_filtered("agents", id=None)]


def _agent(row: tuple[Any, ...]) -> AgentRow:
    """Build the row; SQLite has no booleans."""
    agent_id, roles, capacity, enabled, session, engine, beat_at = row
    return AgentRow(agent_id, roles, capacity, bool(enabled), session, engine, beat_at)

"""`handrail agents`: the agents, and what they work on."""

from typing import TYPE_CHECKING

from handrail.cli import output
from handrail.cli.api import open_client
from handrail.cli.options import AsJson, Database, Server

if TYPE_CHECKING:
    from handrail.views.agents import AgentView

STATE_STYLES = {"OFFLINE": "red", "ACTIVE": "green"}


async def agents(database: Database = "", server: Server = "", as_json: AsJson = False) -> None:
    """List agents, their state, and what they work on."""
    async with open_client(database, server) as client:
        page = await client.agents.list()
    heads = ("agent", "state", "works as", "at once", "works on", "last seen")
    table = output.TextTable(heads, map(_agent_row, page.items), "no agent is registered")
    output.show(page, table, as_json=as_json)


def _agent_row(agent: "AgentView") -> list[output.Cell]:
    state = agent.state.value if agent.enabled else f"{agent.state.value} (disabled)"
    return [
        agent.id,
        (state, STATE_STYLES.get(agent.state.value, "")),
        ", ".join(agent.roles),
        str(agent.capacity),
        ", ".join(output.short_id(work_id) for work_id in agent.current_work),
        output.format_time(agent.last_seen),
    ]

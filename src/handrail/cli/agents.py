"""`handrail agents`: who is there, and what they work on."""

from handrail.cli import tables
from handrail.cli.asking import Where, ask
from handrail.client.clients import AsyncClient
from handrail.engine.attendance import AgentView

STYLES = {"OFFLINE": "red", "ACTIVE": "green"}


def list_agents(where: Where) -> int:
    async def do(client: AsyncClient) -> None:
        page = await client.agents()
        if where.as_json:
            tables.print_json(page)
            return
        heads = ("agent", "state", "works as", "at once", "works on", "last seen")
        tables.print_table(heads, [_row(agent) for agent in page.items], "no agent is registered")

    return ask(where, do)


def _row(agent: AgentView) -> list[tables.Cell]:
    state = agent.state.value if agent.enabled else f"{agent.state.value} (disabled)"
    return [
        agent.id,
        (state, STYLES.get(agent.state.value, "")),
        ", ".join(agent.roles),
        str(agent.capacity),
        ", ".join(tables.short(work) for work in agent.current_work),
        tables.at(agent.last_seen),
    ]

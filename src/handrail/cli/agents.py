"""`handrail agents`: the agents, and what they work on."""

from handrail.cli import output
from handrail.cli.api import ApiTarget, call_api
from handrail.client.clients import AsyncClient
from handrail.views.agents import AgentView

STATE_STYLES = {"OFFLINE": "red", "ACTIVE": "green"}


def list_agents(target: ApiTarget) -> int:
    async def do(client: AsyncClient) -> None:
        page = await client.list_agents()
        if target.as_json:
            output.print_json(page)
            return
        heads = ("agent", "state", "works as", "at once", "works on", "last seen")
        output.print_table(
            heads, [_agent_row(agent) for agent in page.items], "no agent is registered"
        )

    return call_api(target, do)


def _agent_row(agent: AgentView) -> list[output.Cell]:
    state = agent.state.value if agent.enabled else f"{agent.state.value} (disabled)"
    return [
        agent.id,
        (state, STATE_STYLES.get(agent.state.value, "")),
        ", ".join(agent.roles),
        str(agent.capacity),
        ", ".join(output.short_id(work_id) for work_id in agent.current_work),
        output.format_time(agent.last_seen),
    ]

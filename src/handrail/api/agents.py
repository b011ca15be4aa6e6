"""Agents outside of the server: they register, send heartbeats, and are listed."""

# pyright: reportReturnType=false
# A declaration has no body.

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from handrail.api.access import AGENT, CEO, VIEWER, Access
from handrail.api.operation import C_co, CallGroup, Repeat, operation
from handrail.api.shared import NAME_CHARS_MAX, AuthoredBody, PageQuery, Seconds
from handrail.kernel.agent_lifecycle import AgentState
from handrail.views.agents import AgentView
from handrail.views.pages import Page
from handrail.views.view_types import View

CAPACITY_MAX = 10_000
AGENT_ROLES_MAX = 100
AgentId = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
HeldDispatchIds = Annotated[
    tuple[Annotated[str, Meta(max_length=NAME_CHARS_MAX)], ...], Meta(max_length=CAPACITY_MAX)
]


class NewAgent(AuthoredBody, kw_only=True):
    """`capacity` is how many dispatches the agent works on at once."""

    id: AgentId
    roles: Annotated[tuple[AgentId, ...], Meta(min_length=1, max_length=AGENT_ROLES_MAX)]
    capacity: Annotated[int, Meta(ge=1, le=CAPACITY_MAX)] = 1


class AgentPatch(AuthoredBody, kw_only=True):
    enabled: bool


class HeartbeatRequest(AuthoredBody, kw_only=True):
    """`holding` are the ids of the dispatches that the agent works on. With `wait` the answer is
    held back for so many seconds: the open call tells the server when the agent is cut off."""

    holding: HeldDispatchIds = ()
    wait: Seconds = 0


class AgentHeartbeat(View):
    """`ended` are those of `holding` that are over: stop working on them. `held` is all that the
    agent has claimed, `channels` its state in each of its channels."""

    state: AgentState
    ended: tuple[str, ...]
    held: tuple[str, ...]
    channels: dict[str, AgentState]


class AgentCalls(CallGroup[C_co]):
    subject = "agents"

    @operation("POST", "/agents", body=NewAgent, access=AGENT, status=201, problems=(409,))
    def register(self, id: str, roles: Sequence[str], *, capacity: int = 1) -> AgentView:  # noqa: A002 - as the API has it
        """Register an agent with these roles. It loses what it had claimed before."""

    @operation("GET", "/agents", query=PageQuery, access=VIEWER)
    def list(self, *, limit: int | None = None, cursor: str = "") -> Page[AgentView]:
        """List all agents, by id, and the functions of servers."""

    @operation(
        "GET",
        "/agents/{agent_id}",
        access=Access(people="viewer", agents=True, restriction=AGENT.restriction),
        problems=(404,),
    )
    def get(self, agent_id: str) -> AgentView:
        """Return one agent: whether it is there, and what it works on."""

    @operation("PATCH", "/agents/{agent_id}", body=AgentPatch, access=CEO, problems=(404,))
    def enable(self, agent_id: str, enabled: bool = True) -> AgentView:
        """Enable or disable an agent: one that is disabled loses what it has claimed, and gets
        nothing."""

    @operation(
        "DELETE",
        "/agents/{agent_id}",
        access=Access(people="ceo", agents=True, restriction=AGENT.restriction),
        problems=(404, 409),
    )
    def remove(self, agent_id: str) -> None:
        """Remove an agent; what it has claimed is offered again. A disabled agent cannot remove
        itself: it would come back as a new one."""

    @operation(
        "POST",
        "/agents/{agent_id}/heartbeat",
        body=HeartbeatRequest,
        is_body_optional=True,
        access=AGENT,
        problems=(404, 409),
        repeat=Repeat.MEMORY,
    )
    def heartbeat(
        self, agent_id: str, *, holding: Sequence[str] = (), wait: float = 0
    ) -> AgentHeartbeat:
        """Renew the leases of all that the agent has claimed. `holding` are the ids of what it
        works on: the answer says which of them are over. With `wait` the call stays open, and the
        server notices when the agent is cut off."""

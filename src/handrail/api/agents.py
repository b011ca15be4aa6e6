"""Agents outside of the server: they register, send heartbeats, and are listed.

Dispatches: agents claim them, renew their leases, and report results.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from handrail.api.operation import AGENT, CEO, VIEWER, Access, C_co, CallGroup, Repeat, operation
from handrail.api.shared import INTEGER_MAX, NAME_CHARS_MAX, AuthoredBody, PageQuery, Seconds
from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.decision import Value
from handrail.kernel.result import Result, Usage
from handrail.views.agents import AgentView
from handrail.views.channels import TurnView
from handrail.views.dispatches import DispatchView
from handrail.views.run_view import RunSummary
from handrail.views.view_types import Page, View

# pyright: reportReturnType=false
# A declaration has no body.


CAPACITY_MAX = 10_000
AGENT_ROLES_MAX = 100
AgentId = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
AgentRoles = Annotated[tuple[AgentId, ...], Meta(min_length=1, max_length=AGENT_ROLES_MAX)]
ReleaseText = Annotated[str, Meta(max_length=2_000)]
HeldDispatchIds = Annotated[
    tuple[Annotated[str, Meta(max_length=NAME_CHARS_MAX)], ...], Meta(max_length=CAPACITY_MAX)
]


class NewAgent(AuthoredBody, kw_only=True):
    """`capacity` is how many dispatches the agent works on at once."""

    id: AgentId
    roles: AgentRoles
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


class AgentCalls(CallGroup[C_co], subject="agents"):
    """Agents outside of the server: registered, alive, enabled."""

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


# pyright: reportReturnType=false
# A declaration has no body.


Fence = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
NO_USAGE = Usage()


class ClaimRequest(AuthoredBody, kw_only=True):
    """`wait` is how many seconds to wait for a dispatch. `holding` are the ids of the dispatches
    that the agent knows it holds: a claim whose answer was lost is given again."""

    agent_id: str
    wait: Seconds = 0
    holding: HeldDispatchIds | None = None


class HeldDispatch(Value):
    """A call about a dispatch that the agent holds. The token names the agent."""

    fence: Fence
    reason: ReleaseText = ""
    """Why the agent hands the dispatch back."""
    usage: Usage = NO_USAGE
    """What the attempt has used."""
    agent_id: str = ""
    agent: str = ""
    author: str = ""
    by: str = ""
    actor: str = ""


class DispatchResult(Result, frozen=True, kw_only=True):
    """A result, with the fence of its dispatch. Without an `outcome`, the last line of `text`
    decides."""

    fence: Fence
    agent_id: str = ""
    agent: str = ""
    author: str = ""
    by: str = ""
    actor: str = ""


class DispatchLease(View):
    """`ended`: stop working on the dispatch, for this reason."""

    lease_expires_at: datetime | None
    ended: bool
    reason: str


class DispatchReceipt(View):
    """Not accepted: the result is unusable, the attempt is spent, and the agent's next dispatch
    carries `reason`."""

    accepted: bool
    reason: str
    execution: RunSummary


class DispatchCalls(CallGroup[C_co], subject="dispatches"):
    """Work for agents: claimed, kept alive, handed back, reported."""

    @operation(
        "POST",
        "/dispatches/claim",
        body=ClaimRequest,
        access=AGENT,
        problems=(409,),
        empty="Nothing to do.",
        repeat=Repeat.MEMORY,
    )
    def claim(
        self, agent_id: str, *, wait: float = 0, holding: Sequence[str] | None = None
    ) -> DispatchView | TurnView | None:
        """Claim the next dispatch, or a turn in a channel, never more than the agent's capacity;
        wait up to `wait` seconds. `holding` are the ids that the agent knows it holds: a claim
        whose answer was lost is given again."""

    @operation(
        "POST",
        "/dispatches/{dispatch_id}/heartbeat",
        body=HeldDispatch,
        access=AGENT,
        problems=(404, 409),
        repeat=Repeat.MEMORY,
    )
    def heartbeat(self, dispatch_id: str, fence: int) -> DispatchLease:
        """Renew the lease of one dispatch; the answer says whether to go on."""

    @operation(
        "POST",
        "/dispatches/{dispatch_id}/release",
        body=HeldDispatch,
        access=AGENT,
        problems=(404, 409),
    )
    def release(
        self, dispatch_id: str, fence: int, reason: str, *, usage: Usage = NO_USAGE, key: str = ""
    ) -> DispatchReceipt:
        """Give a dispatch back without a result: the attempt is lost, and the dispatch offered
        again if attempts are left. `usage` is counted."""

    @operation(
        "POST",
        "/dispatches/{dispatch_id}/result",
        body=DispatchResult,
        whole="result",
        access=AGENT,
        problems=(404, 409),
    )
    def report(
        self, dispatch_id: str, fence: int, result: Result | Mapping[str, Any], *, key: str = ""
    ) -> DispatchReceipt:
        """Report the result of a dispatch. What a team's agent may not do (end the run without
        authority, hand to a stranger, say neither) is `accepted: false`; what is late, doubled or
        foreign is 409 and changes nothing. The same `key` again means the same report."""

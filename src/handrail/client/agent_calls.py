"""The calls of agents: register, send heartbeats, claim dispatches, and report results."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from handrail.client.call import Call, decode_nothing, drop_none, join_path, json_get, json_send
from handrail.client.endpoint import endpoint
from handrail.client.shapes import AgentHeartbeat, DispatchLease, DispatchReceipt
from handrail.engine.dispatch.agent_results import NO_USAGE
from handrail.kernel.decision import Value
from handrail.kernel.result import Result, Usage
from handrail.views.agents import AgentView
from handrail.views.channels import TurnView
from handrail.views.dispatches import DispatchView
from handrail.views.pages import Page


class _ClaimedKind(Value):
    kind: str


_decode_kind = msgspec.json.Decoder(_ClaimedKind).decode
_decode_by_kind: dict[str, Callable[[bytes], DispatchView | TurnView]] = {
    "step": msgspec.json.Decoder(DispatchView).decode,
    "turn": msgspec.json.Decoder(TurnView).decode,
}


def _decode_claimed(body: bytes) -> DispatchView | TurnView | None:
    """Return the claimed dispatch or turn; None if there was none."""
    return _decode_by_kind[_decode_kind(body).kind](body) if body else None


class AgentCalls:
    @endpoint
    def register_agent(
        self, agent_id: str, roles: Sequence[str], *, capacity: int = 1
    ) -> Call[AgentView]:
        """Register an agent with these roles. It loses what it had claimed before."""
        body = {"id": agent_id, "roles": list(roles), "capacity": capacity}
        return json_send("POST", "/agents", AgentView, body)

    @endpoint
    def list_agents(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[AgentView]]:
        """List all agents, by id."""
        return json_get("/agents", Page[AgentView], {"limit": limit, "cursor": cursor})

    @endpoint
    def get_agent(self, agent_id: str) -> Call[AgentView]:
        """Return one agent, with what it works on."""
        return json_get(join_path("agents", agent_id), AgentView)

    @endpoint
    def enable_agent(self, agent_id: str, enabled: bool = True) -> Call[AgentView]:
        """Enable or disable an agent."""
        return json_send("PATCH", join_path("agents", agent_id), AgentView, {"enabled": enabled})

    @endpoint
    def remove_agent(self, agent_id: str) -> Call[None]:
        """Remove an agent; it loses what it has claimed."""
        return Call(method="DELETE", path=join_path("agents", agent_id), decode=decode_nothing)

    @endpoint
    def heartbeat_agent(
        self, agent_id: str, *, holding: Sequence[str] = (), wait: float = 0
    ) -> Call[AgentHeartbeat]:
        """Renew the leases of all that the agent has claimed. `holding` are the ids of what it
        works on: the answer says which of them are over. With `wait` the call stays open, and the
        server notices when the agent is cut off."""
        url_path, body = join_path("agents", agent_id, "heartbeat"), {"holding": list(holding)}
        return json_send(
            "POST", url_path, AgentHeartbeat, body | drop_none(wait=wait or None), wait=wait
        )

    @endpoint
    def claim_dispatch(
        self, agent_id: str, *, wait: float = 0, holding: Sequence[str] | None = None
    ) -> Call[DispatchView | TurnView | None]:
        """Claim the next dispatch, or a turn in a channel; wait up to `wait` seconds. `holding` are
        the ids that the agent knows it holds: a claim whose answer was lost is given again."""
        body = drop_none(
            agent_id=agent_id,
            wait=wait or None,
            holding=list(holding) if holding is not None else None,
        )
        content = msgspec.json.encode(body)
        return Call(
            method="POST",
            path="/dispatches/claim",
            decode=_decode_claimed,
            body=content,
            wait_seconds=wait,
        )

    @endpoint
    def heartbeat_dispatch(self, dispatch_id: str, fence: int) -> Call[DispatchLease]:
        """Renew the lease of one dispatch; the answer says whether to go on."""
        url_path = join_path("dispatches", dispatch_id, "heartbeat")
        return json_send("POST", url_path, DispatchLease, {"fence": fence})

    @endpoint
    def report_result(
        self, dispatch_id: str, fence: int, result: Result | Mapping[str, Any], *, key: str = ""
    ) -> Call[DispatchReceipt]:
        """Report the result of a dispatch. The same `key` again means the same report."""
        body = {**msgspec.to_builtins(result), "fence": fence}
        return json_send(
            "POST", join_path("dispatches", dispatch_id, "result"), DispatchReceipt, body, key=key
        )

    @endpoint
    def release_dispatch(
        self,
        dispatch_id: str,
        fence: int,
        reason: str,
        *,
        usage: Usage = NO_USAGE,
        key: str = "",
    ) -> Call[DispatchReceipt]:
        """Give a dispatch back without a result: the attempt is lost, and the dispatch offered
        again if attempts are left. `usage` is counted."""
        body = {"fence": fence, "reason": reason}
        if usage != NO_USAGE:  # older servers do not know this field
            body["usage"] = msgspec.to_builtins(usage)
        return json_send(
            "POST", join_path("dispatches", dispatch_id, "release"), DispatchReceipt, body, key=key
        )

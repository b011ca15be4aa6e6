"""The calls of agents: they register, say that they are alive, take work, and bring results."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from handrail.client.call import Call, get, given, nothing, path, send
from handrail.client.endpoint import endpoint
from handrail.client.shapes import Accepted, Alive, Attendance
from handrail.engine.attendance import AgentView
from handrail.engine.channel_views import TurnView
from handrail.engine.dispatch import DispatchView
from handrail.engine.pages import Page
from handrail.engine.returned import NO_USAGE
from handrail.kernel.decision import Value
from handrail.kernel.result import Result, Usage


class _Kind(Value):
    kind: str


_decode_kind = msgspec.json.Decoder(_Kind).decode
_decode: dict[str, Callable[[bytes], DispatchView | TurnView]] = {
    "step": msgspec.json.Decoder(DispatchView).decode,
    "turn": msgspec.json.Decoder(TurnView).decode,
}


def _work(body: bytes) -> DispatchView | TurnView | None:
    """What a claim gave, if it gave anything."""
    return _decode[_decode_kind(body).kind](body) if body else None


class AgentCalls:
    @endpoint
    def register_agent(
        self, agent_id: str, roles: Sequence[str], *, capacity: int = 1
    ) -> Call[AgentView]:
        """The agent is there, as these roles. What it had claimed before is lost."""
        body = {"id": agent_id, "roles": list(roles), "capacity": capacity}
        return send("POST", "/agents", AgentView, body)

    @endpoint
    def agents(self, *, limit: int | None = None, cursor: str = "") -> Call[Page[AgentView]]:
        """Everybody, by id."""
        return get("/agents", Page[AgentView], {"limit": limit, "cursor": cursor})

    @endpoint
    def agent(self, agent_id: str) -> Call[AgentView]:
        """One, with what it works on."""
        return get(path("agents", agent_id), AgentView)

    @endpoint
    def enable_agent(self, agent_id: str, enabled: bool = True) -> Call[AgentView]:
        """Let it work, or not."""
        return send("PATCH", path("agents", agent_id), AgentView, {"enabled": enabled})

    @endpoint
    def remove_agent(self, agent_id: str) -> Call[None]:
        """It is gone, and loses what it has claimed."""
        return Call(method="DELETE", path=path("agents", agent_id), read=nothing)

    @endpoint
    def heartbeat(
        self, agent_id: str, *, holding: Sequence[str] = (), wait: float = 0
    ) -> Call[Attendance]:
        """It is alive, and with it all that it has claimed. `holding` are the ids of what it works
        on: the answer says which of them are over. While the answer is waited for, the server sees
        when the agent is cut off."""
        where, body = path("agents", agent_id, "heartbeat"), {"holding": list(holding)}
        return send("POST", where, Attendance, body | given(wait=wait or None), wait=wait)

    @endpoint
    def claim(
        self, agent_id: str, *, wait: float = 0, holding: Sequence[str] | None = None
    ) -> Call[DispatchView | TurnView | None]:
        """The next dispatch, or a turn in a channel, waiting so many seconds. `holding` are the ids
        of those that the agent knows of: one that it has and does not know of is given again."""
        body = given(
            agent_id=agent_id,
            wait=wait or None,
            holding=list(holding) if holding is not None else None,
        )
        sent = msgspec.json.encode(body)
        return Call(method="POST", path="/dispatches/claim", read=_work, body=sent, wait=wait)

    @endpoint
    def beat_dispatch(self, dispatch_id: str, fence: int) -> Call[Alive]:
        """It is still worked on; whether to go on."""
        where = path("dispatches", dispatch_id, "heartbeat")
        return send("POST", where, Alive, {"fence": fence})

    @endpoint
    def report_result(
        self, dispatch_id: str, fence: int, result: Result | Mapping[str, Any], *, key: str = ""
    ) -> Call[Accepted]:
        """What came of it. Under the same `key` the same report is meant."""
        body = {**msgspec.to_builtins(result), "fence": fence}
        return send("POST", path("dispatches", dispatch_id, "result"), Accepted, body, key=key)

    @endpoint
    def release(
        self,
        dispatch_id: str,
        fence: int,
        reason: str,
        *,
        usage: Usage = NO_USAGE,
        key: str = "",
    ) -> Call[Accepted]:
        """Nothing will come of it: the attempt is lost, and offered again if there are some left.
        What it used is counted."""
        body = {"fence": fence, "reason": reason}
        if usage != NO_USAGE:  # an older server does not know of it
            body["usage"] = msgspec.to_builtins(usage)
        return send("POST", path("dispatches", dispatch_id, "release"), Accepted, body, key=key)

"""Dispatches: agents claim them, renew their leases, and report results."""

# pyright: reportReturnType=false
# A declaration has no body.

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from handrail.api.access import AGENT
from handrail.api.agents import HeldDispatchIds
from handrail.api.operation import C_co, CallGroup, Repeat, operation
from handrail.api.shared import INTEGER_MAX, AuthoredBody, Seconds
from handrail.kernel.decision import Value
from handrail.kernel.result import Result, Usage
from handrail.views.channels import TurnView
from handrail.views.dispatches import DispatchView
from handrail.views.run_view import RunSummary
from handrail.views.view_types import View

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
    reason: Annotated[str, Meta(max_length=2_000)] = ""
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


class DispatchCalls(CallGroup[C_co]):
    subject = "dispatches"

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

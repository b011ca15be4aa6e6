"""What an agent is given, in one shape: in the engine's process a `Dispatch`, in a worker a
`DispatchView`. Agents that speak to something outside look at the view alone, so that both work.
"""

from collections.abc import Awaitable, Callable

from handrail.engine.dispatch.dispatch import Dispatch, DispatchView, dispatch_view
from handrail.kernel.result import Result

DispatchInput = Dispatch | DispatchView
AgentFunction = Callable[[DispatchInput], Awaitable[Result]]
"""An agent, for an engine and for a worker."""


def as_dispatch_view(dispatch: DispatchInput) -> DispatchView:
    """The dispatch as it goes over a wire. Inside the engine's process nobody loses a lease."""
    return dispatch_view(dispatch, None, None) if isinstance(dispatch, Dispatch) else dispatch


def step_id_of(dispatch: DispatchView) -> str:
    """The agent of a team, or the node of a workflow, that has the turn."""
    return dispatch.agent or dispatch.node or dispatch.role

"""The input of an agent, in one type: in the engine's process a `Dispatch`, in a worker a
`DispatchView`. Agents that call something outside use the view alone, so that both work.
"""

from collections.abc import Awaitable, Callable

from handrail.engine.dispatch.dispatch import Dispatch, dispatch_view
from handrail.kernel.result import Result
from handrail.views.dispatches import DispatchView

DispatchInput = Dispatch | DispatchView
AgentFunction = Callable[[DispatchInput], Awaitable[Result]]
"""An agent, for an engine and for a worker."""


def as_dispatch_view(dispatch: DispatchInput) -> DispatchView:
    """Return the dispatch as it goes over a wire. Inside the engine's process no lease is lost."""
    return dispatch_view(dispatch, None, None) if isinstance(dispatch, Dispatch) else dispatch


def step_id_of(dispatch: DispatchView) -> str:
    """Return the agent of a team, or the node of a workflow, that has the dispatch."""
    return dispatch.agent or dispatch.node or dispatch.role

"""What an agent is given, in one shape: in the engine's process a `Dispatch`, in a worker a
`DispatchView`. Agents that speak to something outside look at the view alone, so that both work.
"""

from collections.abc import Awaitable, Callable

from handrail.engine.dispatch import Dispatch, DispatchView, shown_dispatch
from handrail.kernel.result import Result

Given = Dispatch | DispatchView
Works = Callable[[Given], Awaitable[Result]]
"""An agent, for an engine and for a worker."""


def view(given: Given) -> DispatchView:
    """The dispatch as it goes over a wire. Inside the engine's process nobody loses a lease."""
    return shown_dispatch(given, None, None) if isinstance(given, Dispatch) else given


def who(dispatch: DispatchView) -> str:
    """The agent of a team, or the node of a workflow, that has the turn."""
    return dispatch.agent or dispatch.node or dispatch.role

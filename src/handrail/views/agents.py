"""Agents as they are shown."""

from datetime import datetime

from handrail.kernel.agent_lifecycle import AgentState
from handrail.views.view_types import View


class AgentView(View):
    """An agent as it is shown. `state` is OFFLINE if it is disabled or silent, ACTIVE if it holds a
    dispatch or a turn, else WAITING or QUEUED if it is so in some channel, else IDLE."""

    id: str
    roles: tuple[str, ...]
    capacity: int
    enabled: bool
    state: AgentState
    channels: dict[str, AgentState]
    """Its state in each channel that it is a member of."""
    current_work: tuple[str, ...]
    """Ids of the dispatches that it holds, the oldest first, then of its turns in channels."""
    last_seen: datetime
    in_process: bool
    """Whether it is a function of an engine."""

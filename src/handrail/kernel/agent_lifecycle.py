"""The agent's lifecycle: five states, what each allows, and the only ways between them.

Theory of operation. An agent is in one of five states. OFFLINE: not connected. IDLE: online, with
nothing assigned. QUEUED: assigned, waiting for its turn. ACTIVE: holds the turn. WAITING: holds
the turn, but has paused it. The channel (a conversation) and the lease (a run's step) move an agent
by the same table: a claim of work is IDLE to QUEUED (`assigned`) to ACTIVE (`turn granted`), its
result brings ACTIVE back to IDLE.

Rules of this file:
1. `TRANSITIONS` alone decides which transition is legal. A pair of state and trigger that is not
   in the table is refused, and a refusal changes nothing.
2. One pair has one target. If the same word leads to two states, brackets name the case
   (`TURN_COMPLETE (solo)`); `LOG_NAMES` drops the bracket: the log names the target too.
3. Code reads what a state allows from `PROPERTIES`, and never compares the state's name.
4. A detected silence is a TURN_COMPLETE that the agent forgot to send: it needs no cell of its own.

Not here: turn order, turn numbers, timers, messages (`channel/`); leases (the run).
"""

from enum import StrEnum
from typing import Final

from handrail.kernel.decision import Refusal, Value


class AgentState(StrEnum):
    """Where an agent stands."""

    OFFLINE = "OFFLINE"
    IDLE = "IDLE"
    QUEUED = "QUEUED"
    ACTIVE = "ACTIVE"
    WAITING = "WAITING"


class Receiving(StrEnum):
    """Whether messages reach an agent. `observes` is read-only: it may not answer."""

    NO = "no"
    OBSERVES = "observes"
    YES = "yes"


class Queueing(StrEnum):
    """Whether an agent is in the turn queue, and how."""

    NO = "no"
    YES = "yes"
    CURRENT = "current"
    PAUSED = "paused"


class StateProperties(Value, frozen=True, kw_only=True):
    """What a state allows."""

    receives: Receiving
    responds: bool
    queue: Queueing


PROPERTIES: Final[dict[AgentState, StateProperties]] = {
    AgentState.OFFLINE: StateProperties(receives=Receiving.NO, responds=False, queue=Queueing.NO),
    AgentState.IDLE: StateProperties(receives=Receiving.NO, responds=False, queue=Queueing.NO),
    AgentState.QUEUED: StateProperties(
        receives=Receiving.OBSERVES, responds=False, queue=Queueing.YES
    ),
    AgentState.ACTIVE: StateProperties(
        receives=Receiving.YES, responds=True, queue=Queueing.CURRENT
    ),
    AgentState.WAITING: StateProperties(
        receives=Receiving.OBSERVES, responds=False, queue=Queueing.PAUSED
    ),
}


class Trigger(StrEnum):
    """Causes of transitions. A bracket names the case where one word has two targets."""

    AGENT_STARTS = "agent starts"
    AGENT_STOPS = "agent stops"
    AGENT_DISCONNECTS = "agent disconnects"
    AGENT_CRASHES = "agent crashes"
    DISABLED = "disabled"
    ENABLED = "enabled"
    ASSIGNED = "assigned"
    REMOVED = "removed from channel"
    TURN_GRANTED = "turn granted"
    TURN_COMPLETE = "TURN_COMPLETE"
    TURN_COMPLETE_SOLO = "TURN_COMPLETE (solo)"
    RESULT = "result"
    TIMEOUT = "timeout"
    WAIT_REQUESTED = "wait requested"
    WAIT_RESOLVED = "wait resolved"
    WAIT_TIMEOUT = "wait timeout"
    HUMAN_INTERRUPT = "human_interrupt"
    OVERRIDE_TO_ACTIVE = "human override (to ACTIVE)"
    OVERRIDE_TO_QUEUED = "human override (to QUEUED)"


_OFFLINE, _IDLE, _QUEUED, _ACTIVE, _WAITING = (
    AgentState.OFFLINE,
    AgentState.IDLE,
    AgentState.QUEUED,
    AgentState.ACTIVE,
    AgentState.WAITING,
)

TRANSITIONS: Final[dict[tuple[AgentState, Trigger], AgentState]] = {
    (_OFFLINE, Trigger.AGENT_STARTS): _IDLE,
    (_OFFLINE, Trigger.ENABLED): _IDLE,
    (_OFFLINE, Trigger.DISABLED): _OFFLINE,
    (_IDLE, Trigger.ASSIGNED): _QUEUED,
    (_IDLE, Trigger.AGENT_STOPS): _OFFLINE,
    (_IDLE, Trigger.DISABLED): _OFFLINE,
    (_QUEUED, Trigger.TURN_GRANTED): _ACTIVE,
    (_QUEUED, Trigger.REMOVED): _IDLE,
    (_QUEUED, Trigger.AGENT_DISCONNECTS): _OFFLINE,
    (_QUEUED, Trigger.DISABLED): _OFFLINE,
    (_ACTIVE, Trigger.TURN_COMPLETE): _QUEUED,
    (_ACTIVE, Trigger.TURN_COMPLETE_SOLO): _IDLE,
    (_ACTIVE, Trigger.RESULT): _IDLE,
    (_ACTIVE, Trigger.TIMEOUT): _QUEUED,
    (_ACTIVE, Trigger.WAIT_REQUESTED): _WAITING,
    (_ACTIVE, Trigger.HUMAN_INTERRUPT): _WAITING,
    (_ACTIVE, Trigger.AGENT_CRASHES): _OFFLINE,
    (_ACTIVE, Trigger.REMOVED): _IDLE,
    (_ACTIVE, Trigger.DISABLED): _OFFLINE,
    (_WAITING, Trigger.WAIT_RESOLVED): _ACTIVE,
    (_WAITING, Trigger.WAIT_TIMEOUT): _QUEUED,
    (_WAITING, Trigger.OVERRIDE_TO_ACTIVE): _ACTIVE,
    (_WAITING, Trigger.OVERRIDE_TO_QUEUED): _QUEUED,
    (_WAITING, Trigger.AGENT_DISCONNECTS): _OFFLINE,
    (_WAITING, Trigger.REMOVED): _IDLE,
    (_WAITING, Trigger.DISABLED): _OFFLINE,
}

# The table has a different trigger for a lost connection in each state.
LOST_TRIGGERS: Final[dict[AgentState, Trigger]] = {
    _IDLE: Trigger.AGENT_STOPS,
    _QUEUED: Trigger.AGENT_DISCONNECTS,
    _ACTIVE: Trigger.AGENT_CRASHES,
    _WAITING: Trigger.AGENT_DISCONNECTS,
}


def transition(
    state: AgentState, trigger: Trigger, subject: str = "the agent"
) -> AgentState | Refusal:
    """Return the state after `trigger`, or a refusal if the table does not have the pair."""
    target = TRANSITIONS.get((state, trigger))
    if target is not None:
        return target
    accepted = ", ".join(repr(t.value) for s, t in TRANSITIONS if s is state)
    return Refusal(
        code="transition_refused",
        message=f"{subject} is {state.value} and cannot take {trigger.value!r}",
        hint=f"an agent that is {state.value} takes: {accepted}",
    )


def is_in_queue(state: AgentState) -> bool:
    """Whether an agent in this state is in the turn queue, current and paused included."""
    return PROPERTIES[state].queue is not Queueing.NO


LOG_NAMES: Final = {trigger: trigger.value.partition(" (")[0] for trigger in Trigger}
"""The triggers' names in the log, without the brackets."""

"""Commands, events and effects of a channel. Values only.

Theory of operation. Commands (imperative) come from people, agents and the shell. Events (past
tense) are the truth. The shell carries out the effects after the commit; each could be derived
again from the events. A transition of an agent is always a separate event (`Transitioned`), next to
the event with its cause, so the log needs nothing else.

Rules of this file:
1. Every value carries its class name in `type`, so decoding restores the same class.
2. Messages go to agents as ranges: all of the channel's messages with a number in (after, upto],
   except the agent's own. Ranges of one agent never overlap.
3. Each union consists of groups, and one function handles each group.

Not here: the events of a command (decide.py), the effect of an event on the state (evolve.py), the
state itself (state.py).
"""

from datetime import datetime
from typing import TypeAlias

import msgspec

from handrail.kernel.agent_lifecycle import AgentState, Trigger
from handrail.kernel.channel.state import TurnConfig
from handrail.kernel.decision import Value


class _ChannelValue(Value, frozen=True, kw_only=True, tag=True, tag_field="type"):
    """Base of all members of a tagged union."""


class _AgentValue(_ChannelValue, frozen=True, kw_only=True):
    """Base of what is about one agent."""

    agent_id: str


# ---- commands: membership and connection


class AddMember(_AgentValue, frozen=True, kw_only=True):
    """Assign an agent. `online` and `busy` come from the registry at this moment."""

    online: bool
    busy: bool = False
    timeout_seconds: float | None = None
    priority: int | None = None


class RemoveMember(_ChannelValue, frozen=True, kw_only=True):
    agent_id: str


class TakeOffline(_AgentValue, frozen=True, kw_only=True):
    """The agent stopped, disconnected or crashed. `detail` is the context for the log."""

    detail: str = ""


class BringOnline(_ChannelValue, frozen=True, kw_only=True):
    agent_id: str


class Disable(_ChannelValue, frozen=True, kw_only=True):
    agent_id: str


class Enable(_ChannelValue, frozen=True, kw_only=True):
    agent_id: str


class SetBusy(_AgentValue, frozen=True, kw_only=True):
    """The agent took or finished a turn or a dispatch elsewhere."""

    busy: bool


# ---- commands: the turn. `turn` is the turn number; the default is the turn in progress.


class CompleteTurn(_AgentValue, frozen=True, kw_only=True):
    turn: int | None = None


class RequestWait(_AgentValue, frozen=True, kw_only=True):
    turn: int | None = None
    seconds: float | None = None
    reason: str = ""


class ResumeTurn(_AgentValue, frozen=True, kw_only=True):
    """End the agent's wait. `human`: a person sends this, not the agent itself."""

    turn: int | None = None
    human: bool = False


class OverrideWait(_AgentValue, frozen=True, kw_only=True):
    """A person ends an agent's wait: to ACTIVE with a fresh timeout, or to QUEUED."""

    to: AgentState


class GrantTurn(_ChannelValue, frozen=True, kw_only=True):
    agent_id: str


# ---- commands: messages


class PostMessage(_ChannelValue, frozen=True, kw_only=True):
    """A person writes. `to` names a member; the others see the message too."""

    message_id: str
    author: str
    text: str
    to: str | None = None


class Respond(_ChannelValue, frozen=True, kw_only=True):
    """The active agent writes."""

    message_id: str
    agent_id: str
    text: str
    turn: int | None = None
    to: str | None = None


# ---- commands: the channel


class Configure(_ChannelValue, frozen=True, kw_only=True):
    config: TurnConfig


class PauseChannel(_ChannelValue, frozen=True, kw_only=True):
    """Grant no further turn. The turn in progress goes on to its end."""


class UnpauseChannel(_ChannelValue, frozen=True, kw_only=True):
    """Grant turns again."""


class Rest(_ChannelValue, frozen=True, kw_only=True):
    """A pattern or budget rule fired: rest, at the latest when the turn in progress ends."""

    reason: str


class ChannelTick(_ChannelValue, frozen=True, kw_only=True):
    """Only time has passed."""


class PushChannelClocks(_ChannelValue, frozen=True, kw_only=True):
    """No engine watched the clocks for `seconds`: the turn's deadlines move by that time."""

    seconds: float


MemberCommand: TypeAlias = RemoveMember | TakeOffline | BringOnline | Disable | Enable | SetBusy
TurnCommand: TypeAlias = CompleteTurn | RequestWait | ResumeTurn | OverrideWait | GrantTurn
MessageCommand: TypeAlias = PostMessage | Respond
ControlCommand: TypeAlias = (
    Configure | PauseChannel | UnpauseChannel | Rest | ChannelTick | PushChannelClocks
)
ChannelCommand: TypeAlias = (
    AddMember | MemberCommand | TurnCommand | MessageCommand | ControlCommand
)


# ---- events


class Transitioned(_AgentValue, frozen=True, kw_only=True):
    from_: AgentState = msgspec.field(name="from")
    to: AgentState
    trigger: Trigger
    at: datetime


class MemberAdded(_AgentValue, frozen=True, kw_only=True):
    timeout_seconds: float | None = None
    priority: int = 0
    busy: bool = False


class MemberChanged(_AgentValue, frozen=True, kw_only=True):
    timeout_seconds: float | None = None
    priority: int = 0


class MemberRemoved(_ChannelValue, frozen=True, kw_only=True):
    agent_id: str


class EnabledChanged(_AgentValue, frozen=True, kw_only=True):
    enabled: bool


class BusyChanged(_AgentValue, frozen=True, kw_only=True):
    busy: bool


class TurnGranted(_AgentValue, frozen=True, kw_only=True):
    """`passed` are agents that were due before, but are busy elsewhere."""

    turn: int
    cycle: int
    passed: tuple[str, ...] = ()
    at: datetime
    timeout_at: datetime
    after: int
    upto: int


class TurnPaused(_AgentValue, frozen=True, kw_only=True):
    turn: int
    wait_until: datetime
    seconds_left: float
    interrupted: bool = False
    reason: str = ""


class TurnResumed(_AgentValue, frozen=True, kw_only=True):
    turn: int
    at: datetime
    timeout_at: datetime


class TurnEnded(_AgentValue, frozen=True, kw_only=True):
    turn: int
    trigger: Trigger
    quiet: bool


class ChannelClocksPushed(_ChannelValue, frozen=True, kw_only=True, tag="ClocksPushed"):
    seconds: float


class MessagePosted(_ChannelValue, frozen=True, kw_only=True):
    """`awaits_reader`: a human message that must reach an agent, at once or with a later turn."""

    number: int
    message_id: str
    author: str
    human: bool
    text: str
    to: str | None = None
    at: datetime
    awaits_reader: bool = False


class MessagesDelivered(_AgentValue, frozen=True, kw_only=True):
    after: int
    upto: int


class Configured(_ChannelValue, frozen=True, kw_only=True):
    config: TurnConfig


class ChannelPaused(_ChannelValue, frozen=True, kw_only=True, tag="Paused"):
    """No further turn is granted."""


class ChannelUnpaused(_ChannelValue, frozen=True, kw_only=True, tag="Unpaused"):
    """Turns are granted again."""


class RestOrdered(_ChannelValue, frozen=True, kw_only=True):
    reason: str


class Rested(_ChannelValue, frozen=True, kw_only=True):
    reason: str


class Woken(_ChannelValue, frozen=True, kw_only=True):
    reason: str


class ChannelWarned(_ChannelValue, frozen=True, kw_only=True, tag="Warned"):
    """For the log; changes nothing."""

    code: str
    agent_id: str
    message: str


MemberEvent: TypeAlias = (
    Transitioned | MemberAdded | MemberChanged | MemberRemoved | EnabledChanged | BusyChanged
)
TurnEvent: TypeAlias = TurnGranted | TurnPaused | TurnResumed | TurnEnded | ChannelClocksPushed
MessageEvent: TypeAlias = MessagePosted | MessagesDelivered
ControlEvent: TypeAlias = (
    Configured | ChannelPaused | ChannelUnpaused | RestOrdered | Rested | Woken
)
ChannelEvent: TypeAlias = MemberEvent | TurnEvent | MessageEvent | ControlEvent | ChannelWarned


# ---- effects


class DeliverMessages(_AgentValue, frozen=True, kw_only=True):
    """Deliver the messages in (after, upto] to an agent. `turn` is set if it holds the turn."""

    turn: int | None = None
    after: int
    upto: int


class NotifyTurn(_AgentValue, frozen=True, kw_only=True):
    """Tell an agent that it has the turn, with the messages in (after, upto]."""

    turn: int
    timeout_at: datetime
    after: int
    upto: int


class PostNotice(_ChannelValue, frozen=True, kw_only=True):
    """Show a line in the channel. A notice is not a message: it causes no turn."""

    code: str
    text: str


ChannelEffect: TypeAlias = DeliverMessages | NotifyTurn | PostNotice

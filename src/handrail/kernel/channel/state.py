"""The channel: agents that take turns in one conversation. Its state, its timers, its invariants.

Theory of operation. A channel has members. Those that are QUEUED, ACTIVE or WAITING stand in its
queue, in the order in which they were assigned. At most one of them holds the turn: ACTIVE while
it works, WAITING while it has paused. Turn numbers grow over the channel's life and identify late
answers. A cycle gives each queued agent one turn; `served` is the cycle of a member's last turn, so
positions stay where they are and a newcomer at the end still gets a turn in this cycle. When no
agent holds the turn, the channel is empty, resting (T14), paused, in manual order, or every agent
in the queue is busy elsewhere (T13).

Messages are counted, not stored: the events hold the texts. `message_count` is the number of the
last message, a member's `seen` the last that reached it, `routed` the last that needs no reader any
more. A turn starts with all messages that its agent has not seen: each reaches each agent once.

Rules of this machine (events.py: commands, events, effects; evolve.py: `evolve`; turns.py: the
moves; decide.py and members.py: `decide`):
1. Every change of an agent's state goes through the table of agent_lifecycle.py and is an event.
2. A refusal changes nothing, a repeated command changes nothing.
3. Every decision checks deadlines first: a command that comes too late finds the turn over.
4. The turn always moves on: each turn and each wait has a timeout, and waits are counted.
5. Conversations end: a cycle without a message, or `maxAgentTurns` turns without a human, rest it.

Not here: heartbeats and connections (the shell sends `TakeOffline`, `BringOnline`), work elsewhere
(`SetBusy`), who may send which command (the server's roles), the texts (the store).
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from handrail.kernel.agent_lifecycle import AgentState, is_in_queue
from handrail.kernel.decision import Value

TURN_SECONDS_MAX: Final = 86_400.0  # no turn and no wait is longer than a day
AGENT_TURNS_MAX: Final = 1_000_000
MEMBERS_MAX: Final = 256
WAITS_PER_TURN_MAX: Final = 10  # without it, an agent could wait and resume for ever
RECENT_MESSAGES_MAX: Final = 64  # how far back a repeated message id is recognised


class HumanMode(StrEnum):
    """What a human message does while an agent has the turn."""

    QUEUE = "queue"
    INTERRUPT = "interrupt"
    INJECT = "inject"
    PARALLEL = "parallel"


class TurnOrder(StrEnum):
    """Who is next. In every order each queued agent has one turn per cycle, or (manual) none."""

    ROUND_ROBIN = "round_robin"
    PRIORITY = "priority"
    MANUAL = "manual"


class TurnConfig(
    Value,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=False,
    forbid_unknown_fields=True,
):
    """The channel's settings, by the names of the `turnConfig` object."""

    default_timeout_seconds: float = 60.0
    human_interrupt_mode: HumanMode = HumanMode.INJECT
    announce_timeouts: bool = True
    announce_disconnects: bool = True
    auto_detect_turn_end: bool = False
    auto_detect_silence_seconds: float = 10.0
    wait_timeout_seconds: float = 300.0
    max_agent_turns: int = 50
    order: TurnOrder = TurnOrder.ROUND_ROBIN


class Member(Value, frozen=True, kw_only=True):
    """An agent as this channel knows it."""

    agent_id: str
    state: AgentState = AgentState.IDLE
    assigned: bool = False  # false after a crash: back online it is IDLE, and not queued again
    enabled: bool = True
    busy: bool = False  # it works elsewhere: its turn passes, its position stays
    timeout_seconds: float | None = None  # None: the channel's default
    priority: int = 0  # higher is earlier, in the order `priority` only
    seen: int = 0
    heard: int = 0  # the last message that it had seen when its last turn ended
    served: int = 0
    silent: bool = False  # it has had a turn without any message since the last message


class ChannelTurn(Value, frozen=True, kw_only=True):
    """The turn in progress. It runs (`timeout_at`) or is paused (`wait_until`), never both."""

    agent_id: str
    number: int
    granted_at: datetime
    after: int = 0  # the last message of the agent's previous turn: this turn brings all since
    timeout_at: datetime | None = None
    wait_until: datetime | None = None
    seconds_left: float = 0.0  # what remained of the turn when it was paused
    interrupted: bool = False  # paused by a human, so only a human or the wait's end resumes it
    waits: int = 0
    quiet: bool = True  # no message from anyone in this turn yet
    quiet_since: datetime | None = None  # once the agent has spoken: where its silence began


class Channel(Value, frozen=True, kw_only=True):
    """The whole state of one channel."""

    id: str
    config: TurnConfig = TurnConfig()
    members: tuple[Member, ...] = ()
    turn: ChannelTurn | None = None
    turns: int = 0  # the number of the last turn granted
    cycle: int = 1
    agent_turns: int = 0  # turns since the last human message
    message_count: int = 0
    routed: int = 0
    recent: tuple[str, ...] = ()
    paused: bool = False
    resting: str = ""  # why the channel rests; empty while it does not
    rest_ordered: str = ""  # a rule fired in mid-turn: the channel rests when that turn ends


def find_member(channel: Channel, agent_id: str) -> Member | None:
    """Return the member with this id."""
    for member in channel.members:
        if member.agent_id == agent_id:
            return member
    return None


def turn_queue(channel: Channel) -> tuple[Member, ...]:
    """Return the turn queue by position, the current and the waiting agent included."""
    return tuple(m for m in channel.members if is_in_queue(m.state))


def dormant_members(channel: Channel) -> tuple[Member, ...]:
    """Return members that completed alone: IDLE, still assigned; the next message queues them."""
    return tuple(m for m in channel.members if m.assigned and m.state is AgentState.IDLE)


def has_available_members(channel: Channel) -> bool:
    """Whether a message could reach an agent, now or with a later turn."""
    return bool(turn_queue(channel) or dormant_members(channel))


def has_unread_human_message(channel: Channel) -> bool:
    """Whether a human message still has to reach its first agent."""
    return channel.routed < channel.message_count


def active_agent_id(channel: Channel) -> str | None:
    """Return the agent that is ACTIVE."""
    turn = channel.turn
    return None if turn is None or turn.wait_until is not None else turn.agent_id


def silence_due(channel: Channel) -> datetime | None:
    """Return when the active agent's silence counts as the end of its turn."""
    turn, config = channel.turn, channel.config
    if turn is None or turn.quiet_since is None or not config.auto_detect_turn_end:
        return None
    return turn.quiet_since + timedelta(seconds=config.auto_detect_silence_seconds)


def next_due(channel: Channel) -> datetime | None:
    """Return the earliest moment at which time alone changes something."""
    turn = channel.turn
    if turn is None:
        return None
    if turn.wait_until is not None:
        return turn.wait_until
    return min([due for due in (turn.timeout_at, silence_due(channel)) if due is not None])


def is_valid_seconds(seconds: float) -> bool:
    """Whether a duration may be used for a turn or a wait. NaN compares false, so it may not."""
    return 0 < seconds <= TURN_SECONDS_MAX


def config_errors(config: TurnConfig) -> list[str]:
    """Return every problem of the settings, each by its name."""
    durations = {
        "defaultTimeoutSeconds": config.default_timeout_seconds,
        "autoDetectSilenceSeconds": config.auto_detect_silence_seconds,
        "waitTimeoutSeconds": config.wait_timeout_seconds,
    }
    errors = [
        f"{name} is {seconds}; it must be more than 0 and at most {TURN_SECONDS_MAX:.0f} seconds"
        for name, seconds in durations.items()
        if not is_valid_seconds(seconds)
    ]
    if not 1 <= config.max_agent_turns <= AGENT_TURNS_MAX:
        errors.append(
            f"maxAgentTurns is {config.max_agent_turns}; it must be 1 to {AGENT_TURNS_MAX}"
        )
    return errors


def _turn_holders(channel: Channel) -> list[str]:
    states = (AgentState.ACTIVE, AgentState.WAITING)
    return [m.agent_id for m in channel.members if m.state in states]


def _turn_and_state_differ(channel: Channel) -> bool:
    turn = channel.turn
    return _turn_holders(channel) != ([] if turn is None else [turn.agent_id])


def _timer_and_state_differ(channel: Channel) -> bool:
    turn = channel.turn
    if turn is None:
        return False
    member = find_member(channel, turn.agent_id)
    waiting = member is not None and member.state is AgentState.WAITING
    return (turn.timeout_at is None) is not waiting or (turn.wait_until is None) is waiting


def _is_stalled(channel: Channel) -> bool:
    is_blocked = channel.turn is not None or channel.paused or bool(channel.resting)
    if is_blocked or channel.config.order is TurnOrder.MANUAL:
        return False
    return any(m.state is AgentState.QUEUED and not m.busy for m in channel.members)


_INVARIANTS: Final[tuple[tuple[str, Callable[[Channel], bool]], ...]] = (
    ("more than one agent is ACTIVE", lambda c: len(_turn_holders(c)) > 1),
    ("the turn and the members' states name different agents", _turn_and_state_differ),
    ("the turn's timer does not fit its agent's state", _timer_and_state_differ),
    (
        "the turn is not the last one granted",
        lambda c: c.turn is not None and c.turn.number != c.turns,
    ),
    ("it rests while somebody holds the turn", lambda c: bool(c.resting) and c.turn is not None),
    ("a rest is ordered without a turn", lambda c: bool(c.rest_ordered) and c.turn is None),
    ("somebody could have the turn and nobody has it", _is_stalled),
    ("an agent is a member twice", lambda c: len({m.agent_id for m in c.members}) < len(c.members)),
    (
        "an agent is queued without being assigned",
        lambda c: any(is_in_queue(m.state) and not m.assigned for m in c.members),
    ),
    (
        "an agent that is OFFLINE is assigned",
        lambda c: any(m.state is AgentState.OFFLINE and m.assigned for m in c.members),
    ),
    (
        "a disabled agent is not OFFLINE",
        lambda c: any(not m.enabled and m.state is not AgentState.OFFLINE for m in c.members),
    ),
    (
        "somebody has seen a message that was not posted",
        lambda c: any(m.seen > c.message_count for m in c.members) or c.routed > c.message_count,
    ),
)


def check_invariants(channel: Channel) -> list[str]:
    """Return the invariants that this state breaks; there must be none."""
    return [f"channel {channel.id!r}: {text}" for text, broken in _INVARIANTS if broken(channel)]

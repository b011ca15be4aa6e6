"""The log of agents (T12): a line whenever the state of one changes, by the table of lifecycle.py.

An agent is OFFLINE if it is disabled, gone or silent, ACTIVE while it holds a dispatch, else IDLE;
a claim passes through QUEUED. What is known of each stands in memory, from what this engine
committed and heard, and from a look at everybody now and then.

Several engines on one database: each tells what it committed or heard itself, so a change is told
once. What an event shows of the state before it is believed (whoever reports was ACTIVE). A look
tells nothing but learns, with one exception: that an agent without work fell silent nobody hears,
so the oldest engine that is alive says it.
"""

import asyncio
import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from handrail.engine.attendance import AgentView
from handrail.engine.engine import Engine
from handrail.engine.listeners import AgentHeard, EngineClosed, Heard
from handrail.engine.run_lines import record
from handrail.engine.vocabulary import AGENTS, Said
from handrail.engine.works import RunWork
from handrail.kernel.lifecycle import LOST, TRANSITIONS, AgentState, Trigger, word
from handrail.kernel.run.events import Claimed, Faulted, Lost, Reported, TimedOut
from handrail.kernel.run.state import CLAIMED
from handrail.kernel.steps import dispatch_id
from handrail.store.port import StoreError

log = logging.getLogger("handrail.agents")

NAME = "state_transition"
LEVEL = AGENTS[NAME].level
KNOWN_MAX = 100_000
LOOK_SECONDS = 5.0

OFFLINE, IDLE, ACTIVE = AgentState.OFFLINE, AgentState.IDLE, AgentState.ACTIVE
OVER: dict[type, tuple[Trigger, ...]] = {
    Reported: (Trigger.RESULT,),
    Faulted: (Trigger.RESULT,),
    TimedOut: (Trigger.TIMEOUT, Trigger.REMOVED),
}
"""How an agent's dispatch ends, beside being lost."""


class _Known:
    """What is known of an agent."""

    __slots__ = ("heard", "held", "in_process", "mark", "session", "state")

    def __init__(self, state: AgentState) -> None:
        self.state = state
        self.held: set[str] = set()
        self.heard: datetime | None = None
        self.session = ""
        self.in_process = False
        self.mark = 0


class AgentLines:
    """For `engine.listeners`. `lease` is how long an agent may be silent."""

    def __init__(self, lease: float) -> None:
        self.lease = timedelta(seconds=lease)
        self._known: dict[str, _Known] = {}
        self._mark = 0

    def __call__(self, heard: Heard) -> None:
        if isinstance(heard, RunWork):
            if not heard.plan.guarded:  # whose agents work elsewhere, under whatever names
                self._run(heard)
        elif isinstance(heard, AgentHeard):
            self._agent(heard)
        elif isinstance(heard, EngineClosed):
            for name, one in self._known.items():
                if one.in_process and one.state is not OFFLINE:
                    self._go(name, one, heard.at, LOST[one.state])

    # What happens to runs

    def _run(self, work: RunWork) -> None:
        before = work.kept.run.tokens.values() if work.kept is not None else ()
        held = {token.fence: token.agent for token in before if token.phase is CLAIMED}
        for event in work.events:
            if isinstance(event, Claimed):
                held[event.fence] = event.agent
                self._claimed(event.agent, dispatch_id(work.stream, event.fence), event.at)
            elif isinstance(event, Reported | Faulted | TimedOut | Lost):
                agent = held.pop(event.fence, "")
                if agent:
                    self._over(agent, dispatch_id(work.stream, event.fence), event)
        if held and work.run is not None:
            still = {token.fence for token in work.run.tokens.values() if token.phase is CLAIMED}
            for fence in held.keys() - still:
                name = dispatch_id(work.stream, fence)
                self._done(held[fence], name, work.events[-1].at, (Trigger.REMOVED,))

    def _claimed(self, agent: str, dispatch: str, at: datetime) -> None:
        one = self._of(agent, IDLE)
        if not one.held:
            one.state = IDLE
            self._go(agent, one, at, Trigger.ASSIGNED, Trigger.TURN_GRANTED)
        one.held.add(dispatch)

    def _over(self, agent: str, dispatch: str, event: Reported | Faulted | TimedOut | Lost) -> None:
        if not isinstance(event, Lost):
            self._done(agent, dispatch, event.at, OVER[type(event)])
            return
        one = self._of(agent, ACTIVE)
        if one.in_process or (one.heard is not None and event.at - one.heard < self.lease):
            if dispatch in one.held:  # it gave it back
                self._done(agent, dispatch, event.at, (Trigger.TURN_COMPLETE_SOLO,))
        elif one.state is not OFFLINE:
            one.held.clear()
            one.state = ACTIVE
            self._go(agent, one, event.at, Trigger.AGENT_CRASHES)

    def _done(self, agent: str, dispatch: str, at: datetime, triggers: tuple[Trigger, ...]) -> None:
        one = self._of(agent, ACTIVE)
        one.held.discard(dispatch)
        if not one.held and one.state is not OFFLINE:
            one.state = ACTIVE
            self._go(agent, one, at, *triggers)

    # What agents do

    def _agent(self, heard: AgentHeard) -> None:
        one = self._of(heard.agent, OFFLINE)
        if heard.trigger is Trigger.AGENT_STARTS:
            self._came(heard, one)
        elif heard.trigger is Trigger.AGENT_STOPS:
            self._gone(heard.agent, one, heard.at)
            del self._known[heard.agent]
        else:
            one.held.clear()
            self._go(heard.agent, one, heard.at, heard.trigger)

    def _came(self, heard: AgentHeard, one: _Known) -> None:
        if one.session not in ("", heard.session):  # another stay
            self._gone(heard.agent, one, heard.at)
        one.heard, one.session, one.in_process = heard.at, heard.session, heard.in_process
        if one.state is OFFLINE:
            self._go(heard.agent, one, heard.at, Trigger.AGENT_STARTS)

    def _gone(self, agent: str, one: _Known, at: datetime) -> None:
        one.held.clear()
        if one.state is not OFFLINE:
            self._go(agent, one, at, LOST[one.state])

    # Looking at everybody

    def mark(self) -> int:
        """For `look`: what happens from now on is newer than what it is given."""
        return self._mark

    def look(self, agents: Iterable[AgentView], at: datetime, mark: int, *, tells: bool) -> None:
        """Everybody as they were at the mark. `tells`: that somebody fell silent is ours to say."""
        there: set[str] = set()
        for view in agents:
            there.add(view.id)
            one = self._known.get(view.id)
            if one is None or one.mark <= mark:
                self._seen(view, at, tells=tells)
        for name in [n for n, one in self._known.items() if n not in there and one.mark <= mark]:
            del self._known[name]

    def _seen(self, view: AgentView, at: datetime, *, tells: bool) -> None:
        one = self._of(view.id, view.state)
        silent = view.state is OFFLINE and view.enabled and not view.current_work
        if silent and tells and one.state is not OFFLINE:
            one.held.clear()
            self._go(view.id, one, at, LOST[IDLE])
        elif view.state is not OFFLINE or not view.current_work:
            one.state = view.state  # else what it held is about to be lost, and that is told then
        one.held = set(view.current_work)
        one.in_process = one.in_process and view.in_process

    def _of(self, agent: str, state: AgentState) -> _Known:
        """What is known of it; of one that is new, that it was in that state."""
        one = self._known.get(agent)
        if one is None:
            one = self._known[agent] = _Known(state)
            if len(self._known) > KNOWN_MAX:
                del self._known[next(iter(self._known))]
        self._mark += 1
        one.mark = self._mark
        return one

    def _go(self, agent: str, one: _Known, at: datetime, *triggers: Trigger) -> None:
        """By the table; a trigger that it does not have for this state changes nothing."""
        for trigger in triggers:
            old, new = one.state, TRANSITIONS.get((one.state, trigger), one.state)
            one.state = new
            if new is not old and log.isEnabledFor(LEVEL):
                fields = {
                    "agentId": agent,
                    "from": old.value,
                    "to": new.value,
                    "trigger": word(trigger),
                    "channel": None,
                }
                log.handle(record(log.name, LEVEL, Said(NAME, fields, at)))


async def watch(engine: Engine, lines: AgentLines) -> None:
    """Look at everybody now and then, until cancelled. The first look only learns."""
    tells = False
    while True:
        try:
            await look(engine, lines, tells=tells)
            tells = True
        except StoreError:
            pass  # the engine says so itself
        await asyncio.sleep(LOOK_SECONDS)


async def look(engine: Engine, lines: AgentLines, *, tells: bool = True) -> None:
    mark = lines.mark()
    agents = await engine.agents()
    lines.look(agents, engine.clock(), mark, tells=tells and await engine.pulse.is_eldest())

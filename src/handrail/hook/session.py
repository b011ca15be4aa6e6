"""One conversation with a coding agent: events in, verdicts out, a guarded run for each turn.

A turn begins with what a person says and is a run of the conversation's thread: soft counts and
budgets go on, hard limits begin anew. A subagent is a conversation of its own, since several work
at once. A tool call is `run.called`; what the agent says at the end of its turn is `run.said`.

An end that another hook refuses is a failed call of the tool `END_TOOL`. So an agent that is sent
back again and again and finds nothing new meanwhile is stopped by `no_change`, as after any other
call that brings nothing; one that is busy meanwhile is stopped after `REFUSED_ENDS_MAX`.

After a stop the tool calls of the agent are refused, with the reason, until a person says
something. It may use the turn for its last words; after `DENIALS_MAX` refused calls it is ended
where the agent allows that.

A conversation does no I/O: `record.py` keeps its state, its events and the memory of its reader.
"""

from collections.abc import Callable, Iterable
from pathlib import PurePath

from handrail.engine.redaction import redact
from handrail.guard.run import Guard, GuardedRun, RunSnapshot
from handrail.guard.threads import ThreadState
from handrail.guard.tool_calls import to_text
from handrail.hook.answers import GO_ON, HookVerdict, VerdictKind
from handrail.hook.payloads import EventKind, HookEvent
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.definition.limits import ProfileName
from handrail.kernel.run.events import Reported, RunEvent
from handrail.kernel.run.state import Stop
from handrail.kernel.stop.findings import CallMemory, FindingReader
from handrail.kernel.stop.rules import StopRule

PROFILE: ProfileName = "observed"
END_TOOL = "end the turn"
END_REFUSED = "another hook refused the end"
REFUSED_ENDS_MAX = 8
"""Ends of one turn that other hooks may refuse, whatever the agent does in between."""
DENIALS_MAX = 3
"""Tool calls after a stop that are refused before the agent is ended."""
AGENTS_WITH_NUDGES = frozenset({"claude-code", "codex", "gemini-cli"})
"""Agents that show the model what a hook says after a tool call."""


class ConversationState(Value):
    """A conversation between two hook calls."""

    run_id: str
    title: str
    actor: str
    run: RunSnapshot
    events_count: int = 0
    """Events of the run so far."""
    end_proposed: bool = False
    """Whether the agent has wanted to end this turn before."""
    refused_ends: int = 0
    denials: int = 0


prepare_types(ConversationState, CallMemory)


class NumberedEvent(Value):
    """An event of a run, for the record."""

    run_id: str
    number: int
    event: RunEvent


class Conversation:
    """Judges the events of one conversation."""

    def __init__(
        self,
        guard: Guard,
        new_id: Callable[[], str],
        state: ConversationState | None = None,
        memories: Iterable[tuple[str, CallMemory]] = (),
    ) -> None:
        self._guard, self._new_id = guard, new_id
        self._reader = FindingReader()
        self._reader.remember(memories)
        self.run: GuardedRun | None = None
        """The run of this turn."""
        self.run_id = self.title = self.actor = ""
        self._end_proposed, self._refused_ends, self._denials = False, 0, 0
        self._events_count = self._taken_count = 0
        """Events of the run, and how many of `run.events` have been taken."""
        self._new_events: list[NumberedEvent] = []
        if state is not None:
            self._resume(state)

    def _resume(self, state: ConversationState) -> None:
        self.run_id, self.title, self.actor = state.run_id, state.title, state.actor
        self.run = self._make_run(ThreadState(state.run.ledger, self._reader))
        self.run.resume(state.run)
        self._events_count, self._taken_count = state.events_count, len(self.run.events)
        self._end_proposed, self._refused_ends = state.end_proposed, state.refused_ends
        self._denials = state.denials

    def state(self) -> ConversationState | None:
        """Return what the next process goes on with; None if nothing has begun."""
        if self.run is None:
            return None
        return ConversationState(
            run_id=self.run_id,
            title=self.title,
            actor=self.actor,
            run=self.run.snapshot(),
            events_count=self._events_count,
            end_proposed=self._end_proposed,
            refused_ends=self._refused_ends,
            denials=self._denials,
        )

    def take_events(self) -> list[NumberedEvent]:
        """Return the events since they were taken last."""
        self._collect_events()
        new_events, self._new_events = self._new_events, []
        return new_events

    def memories(self, events: Iterable[NumberedEvent]) -> list[tuple[str, CallMemory]]:
        """Return what the reader remembers of the calls in these events."""
        keys = {
            finding.key: None
            for numbered in events
            if isinstance(numbered.event, Reported)
            for finding in numbered.event.result.evidence.findings
        }
        memories = ((key, self._reader.recall(key)) for key in keys)
        return [(key, memory) for key, memory in memories if memory is not None]

    def handle(self, event: HookEvent) -> HookVerdict:
        """Judge one event."""
        if event.kind is EventKind.OTHER:
            return GO_ON
        if event.kind is EventKind.SESSION_END:
            self.end_turn()
            return GO_ON
        if event.kind is EventKind.PROMPT:
            self._begin_turn(event)
            return GO_ON
        if self.run is not None and self.run.stop is None and self.stop is not None:
            self.run.said(self.actor, "")  # takes over the end that came from the server
        if event.kind is EventKind.TOOL_PROPOSED:
            return GO_ON if self.stop is None else self._deny(self.stop)
        run = self._open_run(event)
        if self.stop is not None:
            return GO_ON if event.kind is EventKind.TOOL_DONE else _stopped(self.stop)
        is_call = event.kind is EventKind.TOOL_DONE
        return self._judge_call(run, event) if is_call else self._judge_end(run, event)

    @property
    def stop(self) -> Stop | None:
        """Why the agent's tool calls are refused, if they are."""
        run = self.run
        if run is None or _is_over(run):
            return None
        return run.stop or (run.server_end[1] if run.server_end is not None else None)

    @property
    def end_proposed(self) -> bool:
        """Whether the agent has wanted to end this turn."""
        return self._end_proposed

    def end_turn(self) -> None:
        """End the run of this turn, if no rule has."""
        if self.run is not None:
            self.run.complete("the turn ended")
            self._collect_events()

    def _open_run(self, event: HookEvent) -> GuardedRun:
        """Return the run of this turn; a new one if the last is over and no rule has stopped it."""
        if self.run is None or _is_over(self.run):
            return self._begin_turn(event)
        return self.run

    def _begin_turn(self, event: HookEvent) -> GuardedRun:
        self.end_turn()
        thread = ThreadState(None, self._reader) if self.run is None else self.run.thread_state()
        folder = PurePath(event.folder).name
        self.run_id, self.actor = self._new_id(), event.actor
        self.title = f"{event.actor} in {folder}" if folder else event.actor
        self._events_count = self._taken_count = self._denials = 0
        self._end_proposed = False
        run = self.run = self._make_run(thread)
        if event.kind is EventKind.PROMPT:
            run.read_prompt(event.text)
        return run

    def _make_run(self, thread: ThreadState) -> GuardedRun:
        run = GuardedRun(self._guard, limits=self._guard.limits(PROFILE), raises=False)
        run.begin(self.title, thread_state=thread)
        run.first_agent = self.actor
        return run

    def _collect_events(self) -> None:
        if self.run is None:
            return
        for event in self.run.events[self._taken_count :]:
            number = self._events_count
            self._new_events.append(NumberedEvent(run_id=self.run_id, number=number, event=event))
            self._events_count += 1
        self._taken_count = len(self.run.events)

    def _judge_call(self, run: GuardedRun, event: HookEvent) -> HookVerdict:
        arguments = event.arguments
        if run.limits.constraints.commands:  # such arguments are kept, for the rule to read
            arguments = redact(to_text(arguments))
        stop = run.called(event.actor, event.tool, arguments, event.result, event.error)
        if stop is not None:
            return _stopped(stop)
        nudge = run.take_nudge() if event.agent in AGENTS_WITH_NUDGES else None
        return HookVerdict(kind=VerdictKind.NUDGE, text=nudge) if nudge else GO_ON

    def _judge_end(self, run: GuardedRun, event: HookEvent) -> HookVerdict:
        is_refused = self._end_proposed if event.end_refused is None else event.end_refused
        self._end_proposed = True
        if not is_refused:
            self._refused_ends = 0
            stop = run.said(event.actor, event.text)
            return GO_ON if stop is None else _stopped(stop)
        self._refused_ends += 1
        stop = run.called(event.actor, END_TOOL, {}, None, END_REFUSED)
        if stop is None and self._refused_ends >= REFUSED_ENDS_MAX:
            run.fail(f"other hooks refused the end of the turn {self._refused_ends} times")
            stop = run.stop
        return GO_ON if stop is None else _stopped(stop)

    def _deny(self, stop: Stop) -> HookVerdict:
        self._denials += 1
        kind = VerdictKind.HALT if self._denials > DENIALS_MAX else VerdictKind.STOPPED
        return HookVerdict(kind=kind, text=describe_stop(stop))


def _is_over(run: GuardedRun) -> bool:
    """Whether the run ended by itself, or the server has lost sight of it."""
    if run.stop is not None:
        return run.stop.rule is StopRule.COMPLETED
    return run.server_end is not None and run.server_end[1].rule is StopRule.AGENT_LOST


def _stopped(stop: Stop) -> HookVerdict:
    return HookVerdict(kind=VerdictKind.STOPPED, text=describe_stop(stop))


def describe_stop(stop: Stop) -> str:
    """Say to the agent and its user why the turn is stopped."""
    limit = f" ({stop.limit_name} {stop.limit}, profile {stop.profile})" if stop.limit_name else ""
    return (
        f"Handrail stopped this turn: {stop.rule}: {stop.reason}{limit}. Further tool calls are "
        "refused until the user says something. Say what was achieved and what is open."
    )

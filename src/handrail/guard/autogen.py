"""AutoGen under guard: a team of AgentChat, or one agent, watched through the messages of a stream.

    team = guarded(swarm)
    await team.run(task="book a flight")

Whoever sends a message has the turn until it has answered; a `HandoffMessage`, or an agent that
begins, is a handoff. Agents that are at work at the same time go on with turns they have. Models'
usage, tools and their results are told by the same messages; what a person says to a
`UserProxyAgent` is something new each time.

A run is ended by its cancellation token, gently: who has the turn comes to its end, and nobody gets
another one. The team is reset, so that it can be run again.

What a stop leaves: a `TaskResult` with the messages so far and the reason, as `partial`.
"""

import functools
import inspect
from asyncio import Future
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import FrameType

from handrail.guard import Guard
from handrail.guard.watch import Theirs, Watch, framework, streaming

EXTRA = "autogen"
OF_TEAMS = ("SelectSpeakerEvent", "SelectorEvent")
"""Whom a team's manager chooses next: no agent speaks."""
OF_TOOLS = ("ToolCallSummaryMessage", "HandoffMessage")
"""What an agent says of the tools it has called: no other answer of its model."""
ASKS = "ToolCallRequestEvent"
USER = "user"
"""Who gives a task; nobody of the team, unless an agent has that name."""


class GuardedTeam:
    """A team with a guard around it."""

    def __init__(self, team: Theirs, guard: Guard, name: str) -> None:
        self.team, self.guard, self.name = team, guard, name

    async def run(self, *, task: Theirs = None, **options: Theirs) -> Theirs:
        """As `team.run(task=task)`; raises `Stopped` when a rule ends the run."""
        result: Theirs = None
        async with aclosing(self.run_stream(task=task, **options)) as messages:
            async for message in messages:
                result = message
        return result

    async def run_stream(
        self, *, task: Theirs = None, **options: Theirs
    ) -> AsyncGenerator[Theirs, None]:
        """As `team.run_stream(task=task)`; raises `Stopped` when a rule ends the run."""
        base = framework("autogen_agentchat.base", EXTRA)
        token = _token_for(options.pop("cancellation_token", None))
        options |= {"task": task, "cancellation_token": token}
        with streaming(self.guard, self.name, task) as watch:
            seen, heard = list[Theirs](), _Heard(watch, outside=not _has(self.team, USER))
            given = _told_first(options)
            drawn: Theirs = watch.drawn_async(self.team.run_stream(**options))
            async with aclosing(drawn) as messages:
                try:
                    async for message in messages:
                        if isinstance(message, base.TaskResult):
                            watch.partial = message
                        else:
                            seen.append(message)
                            if len(seen) > given:
                                heard.message(message)
                        yield message
                        if watch.stop is not None:
                            break
                finally:
                    token.end()
            if watch.stop is not None:
                reason = f"{watch.stop.rule}: {watch.stop.reason}"
                watch.partial = base.TaskResult(messages=seen, stop_reason=reason)
                await _reset(self.team)


def guarded(team: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedTeam:
    return GuardedTeam(team, guard or Guard(), name or team.name)


def _has(team: Theirs, name: str) -> bool:
    """Whether an agent of the team, or of a team in it, has this name."""
    members = getattr(team, "_participants", ())
    return getattr(team, "name", "") == name or any(_has(member, name) for member in members)


def _told_first(options: dict[str, Theirs]) -> int:
    """How many messages of the stream are those of the task."""
    task = options["task"]
    if task is None or not options.get("output_task_messages", True):
        return 0
    one = isinstance(task, str) or hasattr(task, "source")
    return 1 if one else len(task)


async def _reset(team: Theirs) -> None:
    """As it was before it was run; one agent alone is reset by another name."""
    if hasattr(team, "reset"):
        await team.reset()
    else:
        await team.on_reset(framework("autogen_core", EXTRA).CancellationToken())


class Ended(Exception):  # noqa: N818 - the guard's doing, not a failure
    """What an agent meets that would go on after the end; the caller gets the reason itself."""


class _Ending:
    """A cancellation token that can also end a run gently: who has the turn comes to its end, and
    nobody gets another one. A token that is cancelled in the middle of a turn is no end: AutoGen's
    agents wait for ever for a tool that was."""

    ended = False

    def end(self, *_: object) -> None:
        self.ended = True

    def link_future(self, future: "Future[Theirs]") -> "Future[Theirs]":
        if self.ended and not _at_its_turn(inspect.currentframe()):
            future.cancel()
            raise Ended("the guarded run is over")
        future.add_done_callback(self._left)
        return super().link_future(future)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - of the framework's token

    def _left(self, future: "Future[Theirs]") -> None:
        """Who waited for it does so no longer: nobody would see what the team does then."""
        if future.cancelled():
            self.end()


@functools.cache
def _token() -> Theirs:
    base = framework("autogen_core", EXTRA).CancellationToken
    return type("HandrailToken", (_Ending, base), {})


def _token_for(theirs: Theirs) -> Theirs:
    """A token of the guard's own, which is cancelled with the caller's."""
    token = _token()()
    if theirs is not None:
        theirs.add_callback(token.cancel)
    return token


def _at_its_turn(frame: FrameType | None) -> bool:
    """Whether an agent asks here, or a tool for it, and not the team for whoever is next; or the
    team as it begins, whom AutoGen waits for in any case."""
    tools = framework("autogen_core.tools", EXTRA)
    kinds = (framework("autogen_agentchat.base", EXTRA).ChatAgent, tools.BaseTool, tools.Workbench)
    while frame is not None:
        held = frame.f_locals
        if isinstance(held.get("self"), kinds) or getattr(held.get("ctx"), "is_rpc", False):
            return True
        frame = frame.f_back
    return False


class _Heard:
    """From messages to turns, steps and tool calls."""

    def __init__(self, watch: Watch, *, outside: bool) -> None:
        self.watch = watch
        self.user = USER if outside else ""
        """Whose messages are no agent's."""
        self.calls: dict[str, Theirs] = {}
        self.at_work: set[str] = set()
        """Who has begun, and not answered."""
        self.people: dict[str, int] = {}
        """Agents that stand for a person, and how often each was asked."""

    def message(self, message: Theirs) -> None:
        watch, source = self.watch, message.source
        if source == self.user or not hasattr(message, "type") or message.type in OF_TEAMS:
            return
        if source in self.at_work:
            if source != watch.agent:
                watch.resume(source)
        elif source != watch.agent:
            watch.turn(source)
        KINDS.get(message.type, _Heard.said)(self, message)
        if message.type.endswith("Event"):
            self.at_work.add(source)
            return
        self.at_work.discard(source)
        target = getattr(message, "target", "")
        if message.type == "HandoffMessage" and target != self.user and watch.stop is None:
            watch.turn(target, reason=message.content)

    def asked(self, message: Theirs) -> None:
        self.calls |= {call.id: call for call in message.content}
        self.said(message)

    def ran(self, message: Theirs) -> None:
        for done in message.content:
            call = self.calls.pop(done.call_id, None)
            if call is not None and not done.name.startswith("transfer_to_"):
                failed = done.content if done.is_error else None
                self.watch.called(done.name, call.arguments, done.content, failed)

    def asks_a_person(self, message: Theirs) -> None:
        self.people[message.source] = self.people.get(message.source, 0) + 1

    def said(self, message: Theirs) -> None:
        self.watch.step()
        usage = message.models_usage
        tokens = usage.prompt_tokens + usage.completion_tokens if usage is not None else 0
        if tokens or self._answers(message):
            self.watch.answered(text=message.to_text(), tokens=tokens)
        elif message.source in self.people:
            self.watch.called(message.source, self.people[message.source], message.to_text())

    def _answers(self, message: Theirs) -> bool:
        """Whether it is an answer, although nobody says what it has cost."""
        kind, source = message.type, message.source
        if kind.endswith("Event"):
            return kind == ASKS
        return source not in self.people and not (kind in OF_TOOLS and source in self.at_work)


KINDS = {
    ASKS: _Heard.asked,
    "ToolCallExecutionEvent": _Heard.ran,
    "UserInputRequestedEvent": _Heard.asks_a_person,
}

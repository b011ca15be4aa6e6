"""Guard AutoGen: a team of AgentChat, or one agent, watched through the messages of a stream.

    team = guarded(swarm)
    await team.run(task="book a flight")

The sender of a message has the turn until it has answered; a `HandoffMessage`, or an agent that
begins, is a handoff. Agents that work at the same time keep their turns. The same messages carry
models' usage, tools and their results; each answer of a person to a `UserProxyAgent` is new
evidence.

A run is ended by its cancellation token, gently: the agent that has the turn finishes it, and no
agent gets another one. The team is reset, so that it can be run again.

What a stop leaves: a `TaskResult` with the messages so far and the reason, as `partial`.
"""

import functools
import inspect
from asyncio import Future
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import FrameType
from typing import Any

from handrail.guard.adapter import RunWatch, import_framework, watching_stream
from handrail.guard.run import Guard

EXTRA = "autogen"
MANAGER_MESSAGES = ("SelectSpeakerEvent", "SelectorEvent")
"""The manager's choice of the next speaker: no agent speaks."""
TOOL_MESSAGES = ("ToolCallSummaryMessage", "HandoffMessage")
"""An agent's summary of its tool calls: no further answer of its model."""
TOOL_REQUEST_MESSAGE = "ToolCallRequestEvent"
USER = "user"
"""The sender of a task; not a member of the team, unless an agent has that name."""


class GuardedAutoGenTeam:
    """A team with a guard around it."""

    def __init__(self, team: Any, guard: Guard, name: str) -> None:
        self.team, self.guard, self.name = team, guard, name

    async def run(self, *, task: Any = None, **options: Any) -> Any:
        """Like `team.run(task=task)`; raises `Stopped` when a rule ends the run."""
        result: Any = None
        async with aclosing(self.run_stream(task=task, **options)) as messages:
            async for message in messages:
                result = message
        return result

    async def run_stream(self, *, task: Any = None, **options: Any) -> AsyncGenerator[Any, None]:
        """Like `team.run_stream(task=task)`; raises `Stopped` when a rule ends the run."""
        base = import_framework("autogen_agentchat.base", EXTRA)
        token = _make_token(options.pop("cancellation_token", None))
        options |= {"task": task, "cancellation_token": token}
        with watching_stream(self.guard, self.name, task) as watch:
            messages_so_far, recorder = (
                list[Any](),
                _MessageRecorder(watch, ignore_user=not _has_agent(self.team, USER)),
            )
            task_messages = _task_message_count(options)
            stream: Any = watch.iterate_async(self.team.run_stream(**options))
            async with aclosing(stream) as messages:
                try:
                    async for message in messages:
                        if isinstance(message, base.TaskResult):
                            watch.partial = message
                        else:
                            messages_so_far.append(message)
                            if len(messages_so_far) > task_messages:
                                recorder.record_message(message)
                        yield message
                        if watch.stop is not None:
                            break
                finally:
                    token.end()
            if watch.stop is not None:
                reason = f"{watch.stop.rule}: {watch.stop.reason}"
                watch.partial = base.TaskResult(messages=messages_so_far, stop_reason=reason)
                await _reset_team(self.team)


def guarded(team: Any, guard: Guard | None = None, *, name: str = "") -> GuardedAutoGenTeam:
    return GuardedAutoGenTeam(team, guard or Guard(), name or team.name)


def _has_agent(team: Any, name: str) -> bool:
    """Return whether an agent of the team, or of a team in it, has this name."""
    members = getattr(team, "_participants", ())
    return getattr(team, "name", "") == name or any(_has_agent(member, name) for member in members)


def _task_message_count(options: dict[str, Any]) -> int:
    """Count the messages of the stream that are those of the task."""
    task = options["task"]
    if task is None or not options.get("output_task_messages", True):
        return 0
    is_single = isinstance(task, str) or hasattr(task, "source")
    return 1 if is_single else len(task)


async def _reset_team(team: Any) -> None:
    """Reset the team to its state before the run; a single agent has another method for it."""
    if hasattr(team, "reset"):
        await team.reset()
    else:
        await team.on_reset(import_framework("autogen_core", EXTRA).CancellationToken())


class RunEndedError(Exception):
    """Stops an agent that would go on after the end; the caller gets the reason itself."""


class _GentleCancellation:
    """A cancellation token that can also end a run gently.

    The agent that has the turn finishes it, and no agent gets another one. Cancelling in the middle
    of a turn does not end the run: AutoGen's agents wait for ever for a cancelled tool.
    """

    ended = False

    def end(self, *_: object) -> None:
        self.ended = True

    def link_future(self, future: "Future[Any]") -> "Future[Any]":
        if self.ended and not _is_inside_agent(inspect.currentframe()):
            future.cancel()
            raise RunEndedError("the guarded run is over")
        future.add_done_callback(self._end_if_cancelled)
        return super().link_future(future)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - of the framework's token

    def _end_if_cancelled(self, future: "Future[Any]") -> None:
        """End the run when its waiter gives up: no caller would see what the team does then."""
        if future.cancelled():
            self.end()


@functools.cache
def _token_class() -> Any:
    base = import_framework("autogen_core", EXTRA).CancellationToken
    return type("HandrailToken", (_GentleCancellation, base), {})


def _make_token(caller_token: Any) -> Any:
    """Make a token of the guard's own, which is cancelled with the caller's."""
    token = _token_class()()
    if caller_token is not None:
        caller_token.add_callback(token.cancel)
    return token


def _is_inside_agent(frame: FrameType | None) -> bool:
    """Return whether an agent, or a tool for it, asks here, and not the team for the next agent.

    Also true for the team as it begins, for which AutoGen waits in any case.
    """
    tools = import_framework("autogen_core.tools", EXTRA)
    kinds = (
        import_framework("autogen_agentchat.base", EXTRA).ChatAgent,
        tools.BaseTool,
        tools.Workbench,
    )
    while frame is not None:
        frame_locals = frame.f_locals
        if isinstance(frame_locals.get("self"), kinds) or getattr(
            frame_locals.get("ctx"), "is_rpc", False
        ):
            return True
        frame = frame.f_back
    return False


class _MessageRecorder:
    """Maps messages to turns, steps and tool calls."""

    def __init__(self, watch: RunWatch, *, ignore_user: bool) -> None:
        self.watch = watch
        self.user = USER if ignore_user else ""
        """The sender whose messages are no agent's."""
        self.calls: dict[str, Any] = {}
        self.working: set[str] = set()
        """Agents that have begun, and not answered."""
        self.person_asks: dict[str, int] = {}
        """Agents that stand for a person, and how often each was asked."""

    def record_message(self, message: Any) -> None:
        watch, source = self.watch, message.source
        if source == self.user or not hasattr(message, "type") or message.type in MANAGER_MESSAGES:
            return
        if source in self.working:
            if source != watch.active_agent:
                watch.resume(source)
        elif source != watch.active_agent:
            watch.activate(source)
        RECORDERS.get(message.type, _MessageRecorder.record_text)(self, message)
        if message.type.endswith("Event"):
            self.working.add(source)
            return
        self.working.discard(source)
        target = getattr(message, "target", "")
        if message.type == "HandoffMessage" and target != self.user and watch.stop is None:
            watch.activate(target, reason=message.content)

    def record_tool_request(self, message: Any) -> None:
        self.calls |= {call.id: call for call in message.content}
        self.record_text(message)

    def record_tool_results(self, message: Any) -> None:
        for result in message.content:
            call = self.calls.pop(result.call_id, None)
            if call is not None and not result.name.startswith("transfer_to_"):
                error = result.content if result.is_error else None
                self.watch.record_tool_call(result.name, call.arguments, result.content, error)

    def record_person_request(self, message: Any) -> None:
        self.person_asks[message.source] = self.person_asks.get(message.source, 0) + 1

    def record_text(self, message: Any) -> None:
        self.watch.begin_step()
        usage = message.models_usage
        tokens = usage.prompt_tokens + usage.completion_tokens if usage is not None else 0
        if tokens or self._is_answer(message):
            self.watch.record_answer(text=message.to_text(), tokens=tokens)
        elif message.source in self.person_asks:
            self.watch.record_tool_call(
                message.source, self.person_asks[message.source], message.to_text()
            )

    def _is_answer(self, message: Any) -> bool:
        """Return whether the message is an answer, although it has no usage."""
        kind, source = message.type, message.source
        if kind.endswith("Event"):
            return kind == TOOL_REQUEST_MESSAGE
        return source not in self.person_asks and not (
            kind in TOOL_MESSAGES and source in self.working
        )


RECORDERS = {
    TOOL_REQUEST_MESSAGE: _MessageRecorder.record_tool_request,
    "ToolCallExecutionEvent": _MessageRecorder.record_tool_results,
    "UserInputRequestedEvent": _MessageRecorder.record_person_request,
}

"""AutoGen under guard: a team of AgentChat, watched through the messages of its stream.

    team = guarded(swarm)
    await team.run(task="book a flight")

Whoever sends a message has the turn; a `HandoffMessage`, or a message of somebody else, is a
handoff. Models' usage, tools and their results are told by the same messages. A team's run is ended
by its cancellation token when a rule fires: the team is reset, so that it can be run again.

What a stop leaves: a `TaskResult` with the messages so far and the reason, as `partial`.
"""

import asyncio
from collections.abc import AsyncIterator

from handrail.guard import Guard
from handrail.guard.watch import Theirs, Watch, framework, streaming

EXTRA = "autogen"


class GuardedTeam:
    """A team with a guard around it."""

    def __init__(self, team: Theirs, guard: Guard, name: str) -> None:
        self.team, self.guard, self.name = team, guard, name

    async def run(self, *, task: Theirs = None, **options: Theirs) -> Theirs:
        """As `team.run(task=task)`; raises `Stopped` when a rule ends the run."""
        result: Theirs = None
        async for message in self.run_stream(task=task, **options):
            result = message
        return result

    async def run_stream(self, *, task: Theirs = None, **options: Theirs) -> AsyncIterator[Theirs]:
        """As `team.run_stream(task=task)`; raises `Stopped` when a rule ends the run."""
        base = framework("autogen_agentchat.base", EXTRA)
        token = options.pop("cancellation_token", None)
        token = token or framework("autogen_core", EXTRA).CancellationToken()
        options |= {"task": task, "cancellation_token": token}
        with streaming(self.guard, self.name, task) as watch:
            seen: list[Theirs] = []
            heard = _Heard(watch)
            try:
                async for message in watch.drawn_async(self.team.run_stream(**options)):
                    if isinstance(message, base.TaskResult):
                        watch.partial = message
                    else:
                        seen.append(message)
                        heard.message(message)
                    if watch.stop is not None:
                        token.cancel()
                    yield message
            except asyncio.CancelledError:
                if watch.stop is None:
                    raise
            if watch.stop is not None:
                reason = f"{watch.stop.rule}: {watch.stop.reason}"
                watch.partial = base.TaskResult(messages=seen, stop_reason=reason)
                await self.team.reset()


def guarded(team: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedTeam:
    return GuardedTeam(team, guard or Guard(), name or team.name)


class _Heard:
    """From messages to turns, steps and tool calls."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.calls: dict[str, Theirs] = {}
        self.given = ""
        """To whom the turn was handed."""

    def message(self, message: Theirs) -> None:
        watch, source = self.watch, message.source
        if source == "user" or not hasattr(message, "type"):
            return
        if source != watch.agent:
            watch.turn(source)
        KINDS.get(message.type, _Heard.said)(self, message)
        target = getattr(message, "target", "")
        if message.type == "HandoffMessage" and target != "user" and watch.stop is None:
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

    def said(self, message: Theirs) -> None:
        self.watch.step()
        usage = message.models_usage
        tokens = usage.prompt_tokens + usage.completion_tokens if usage is not None else 0
        if tokens:
            self.watch.answered(text=message.to_text(), tokens=tokens)


KINDS = {
    "ToolCallRequestEvent": _Heard.asked,
    "ToolCallExecutionEvent": _Heard.ran,
}

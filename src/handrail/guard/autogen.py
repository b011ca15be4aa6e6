"""Guard AutoGen: a team of AgentChat, or one agent, watched through the messages of a stream.

    team = guarded(swarm)
    await team.run(task="book a flight")

The sender of a message has the turn until it has answered; a `HandoffMessage`, or an agent that
begins, is a handoff. Agents that work at the same time keep their turns. The same messages carry
models' usage, tools and their results; each answer of a person to a `UserProxyAgent` is new
evidence. Where a server records the run, an agent for a person that would ask in the terminal asks
in the inbox. An agent that works like a tool gives plain messages: one that runs code or surfs, or
one without a model. Its message is the result of a call: the tool is the agent, the arguments are
the message before it. Such agents report a failure as a text, which is recognised by how it begins.

A run is ended by its cancellation token, gently: the agent that has the turn finishes it, and no
agent gets another one. The team is reset, so that it can be run again.

What a stop leaves: a `TaskResult` with the messages so far and the reason, as `partial`.
"""

import functools
import inspect
import re
from asyncio import CancelledError, Future
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

from handrail.guard.adapter import (
    RunWatch,
    current_watch,
    import_framework,
    to_text,
    watching_stream,
)
from handrail.guard.approvals import ASKS_PER_RUN_MAX, ask_person_async
from handrail.guard.framework_object import FrameworkObject
from handrail.guard.framework_versions import require_version
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard
from handrail.guard.tool_calls import declares_effect

EXTRA = "autogen"
MANAGER_MESSAGES = ("SelectSpeakerEvent", "SelectorEvent")
"""The manager's choice of the next speaker: no agent speaks."""
TOOL_MESSAGES = ("ToolCallSummaryMessage", "HandoffMessage")
"""An agent's summary of its tool calls: no further answer of its model."""
TOOL_REQUEST_MESSAGE, CODE_MESSAGE = "ToolCallRequestEvent", "CodeGenerationEvent"
SURFERS = ("MultimodalWebSurfer", "FileSurfer")
"""Classes of agents that use a model to choose an action, and show what the action found."""
EXECUTOR_CLASS, PERSON_CLASS = "CodeExecutorAgent", "UserProxyAgent"
MODEL_WORDS = ("model", "client", "llm", "agent", "team")
"""In the names of an agent's attributes: it asks a model, or lets another agent work."""
PLAIN_MESSAGES = ("TextMessage", "MultiModalMessage")
FAILURE_PREFIXES = (
    "Web surfing error",
    "File surfing error",
    "The script ran, then exited with an error",
)
"""How messages begin that report a failure."""
SILENT_FAILURE = re.compile(r"The script ran but produced no output .* exit code was: ([1-9]\d*)")
RUN_IS_OVER = "the guarded run is over"
"""What an agent is told, instead of the result, that would go on after the end."""
NUDGE_SOURCE = "guard"
USER = "user"
"""The sender of a task; not a member of the team, unless an agent has that name."""


class GuardedAutoGenTeam(FrameworkObject):
    """A team, or one agent, with a guard around its runs; in all else it is the team itself."""

    async def run(self, *, task: Any = None, **options: Any) -> Any:
        """Like `team.run(task=task)`; raises `Stopped` when a rule ends the run."""
        result: Any = None
        with _collecting_responses(self.wrapped) as responses:
            async with aclosing(self.run_stream(task=task, **options)) as messages:
                async for message in messages:
                    result = message
        if responses:  # of an agent, whose result is what it responds, not what it streams
            task_messages = result.messages[: _task_message_count({**options, "task": task})]
            answer = [*(responses[-1].inner_messages or ()), responses[-1].chat_message]
            result = type(result)(messages=[*task_messages, *answer])
        return result

    async def run_stream(self, *, task: Any = None, **options: Any) -> AsyncGenerator[Any, None]:
        """Like `team.run_stream(task=task)`; raises `Stopped` when a rule ends the run."""
        base = import_framework("autogen_agentchat.base", EXTRA)
        token: Any = _make_token(options.pop("cancellation_token", None), self.wrapped)
        options |= {"task": task, "cancellation_token": token}
        with watching_stream(self.run_guard, self.run_name, task) as watch:
            messages_so_far, is_broken = list[Any](), False
            recorder: Any = None
            with watch.boundary:
                recorder = _MessageRecorder(watch, self.wrapped, task)
                _add_call_hooks(watch, recorder.agents.values())
            task_messages = _task_message_count(options)
            stream: Any = watch.iterate_async(self.wrapped.run_stream(**options))
            with _asking_in_inbox(watch, recorder):
                async with aclosing(stream) as messages:
                    try:
                        async for message in messages:
                            if getattr(message, "content", None) == RUN_IS_OVER:
                                _end_refused(watch)  # it got this instead of its model's answer
                                break
                            if isinstance(message, base.TaskResult):
                                watch.partial = message
                            else:
                                messages_so_far.append(message)
                                if len(messages_so_far) > task_messages:
                                    await _record(watch, recorder, message)
                            yield message
                            if watch.stop is not None:
                                break
                    except Exception as error:
                        is_broken = True
                        _require_stop(watch, token, error)
                    finally:
                        token.end()
            _end_refused(watch)
            if watch.stop is not None:
                reason = f"{watch.stop.rule}: {watch.stop.reason}"
                watch.partial = base.TaskResult(messages=messages_so_far, stop_reason=reason)
                with watch.run.errors.absorbing("the team could not be reset"):
                    if not is_broken:
                        await _reset_team(self.wrapped)


_responses: ContextVar[list[Any] | None] = ContextVar("handrail_autogen_responses", default=None)
"""Where responses of an agent that runs by itself are collected."""


@contextmanager
def _collecting_responses(team: Any) -> Generator[list[Any]]:
    """Collect the responses of an agent inside the block; of a team there are none. The agent's
    `on_messages_stream` is wrapped in place, and does nothing else outside of such blocks.
    """
    responses: list[Any] = []
    stream = getattr(team, "on_messages_stream", None)
    if stream is not None and not isinstance(stream, _ResponseStream):
        team.on_messages_stream = _ResponseStream(stream)
    reset_token = _responses.set(responses)
    try:
        yield responses
    finally:
        _responses.reset(reset_token)


class _ResponseStream:
    def __init__(self, original: Any) -> None:
        self.original = original

    async def __call__(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        responses = _responses.get()
        async with aclosing(self.original(*args, **options)) as items:
            async for item in items:
                if responses is not None and hasattr(item, "chat_message"):
                    responses.append(item)
                yield item


async def _record(watch: RunWatch, recorder: Any, message: Any) -> None:
    with watch.boundary:
        recorder.record_message(message)
    if watch.run.nudge_text is not None:
        with watch.run.errors.absorbing("a nudge could not be delivered"):
            await recorder.deliver_nudge(message)


@contextmanager
def _asking_in_inbox(watch: RunWatch, recorder: Any) -> Generator[None]:
    """Ask people in the inbox, where there is one, instead of in the terminal; an `input_func` of
    the caller's own stays in use.
    """
    people = list[Any]()
    terminal: Any = None
    with watch.boundary:
        if watch.run.recorder is not None:
            module = "autogen_agentchat.agents._user_proxy_agent"
            terminal = import_framework(module, EXTRA).cancellable_input
            agents = recorder.agents.values()
            people = [agent for agent in agents if getattr(agent, "input_func", None) is terminal]
    for person in people:
        person.input_func = functools.partial(_ask, watch, recorder, person.name, terminal)
    try:
        yield
    finally:
        for person in people:
            person.input_func = terminal


async def _ask(
    watch: RunWatch, recorder: Any, name: str, terminal: Any, prompt: str, token: Any
) -> str:
    """Return what a person answers in the inbox to the last message; if nobody can be asked there,
    in the terminal.
    """
    recorder.questions += 1
    reply = None
    if recorder.questions <= ASKS_PER_RUN_MAX:
        reply = await ask_person_async(watch, f"{name} is asked: {recorder.request}")
    if watch.stop is not None:
        raise RunEndedError(RUN_IS_OVER)
    return await terminal(prompt, token) if reply is None else reply.text or "yes"


def _end_refused(watch: RunWatch) -> None:
    with watch.boundary:
        watch.end_refused()


def _require_stop(watch: RunWatch, token: Any, error: Exception) -> None:
    """Raise the error again, unless the framework raised it because the run was stopped."""
    _end_refused(watch)
    if watch.stop is None and token.ended:
        raise CancelledError from None  # its caller gave up meanwhile
    if watch.stop is None:
        raise error


def _add_call_hooks(watch: RunWatch, agents: Iterable[Any]) -> None:
    """Let the guard refuse calls of the agents' models and tools, where a limit may. The hooks stay
    with them, and do nothing outside a guarded run.
    """
    for agent in agents if watch.run.call_limits.is_set else ():
        client = getattr(agent, "_model_client", None)
        _hook(client, "create", _hook_model)
        _hook(client, "create_stream", _hook_model_stream)
        for workbench in getattr(agent, "_workbench", None) or ():
            _hook(workbench, "call_tool", _hook_tool)
            _hook(workbench, "call_tool_stream", _hook_tool_stream)


def _hook(value: Any, method: str, wrap: Callable[[Any, Any], Any]) -> None:
    original = getattr(value, method, None)
    if original is not None and getattr(original, "__module__", "") != __name__:
        setattr(value, method, wrap(original, value))


def _hook_model(original: Any, client: Any) -> Any:
    async def create(*args: Any, **options: Any) -> Any:
        if _is_refused():
            return _refused_answer()
        return _see_answer(client, await original(*args, **options))

    return create


def _hook_model_stream(original: Any, client: Any) -> Any:
    async def create_stream(*args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        if _is_refused():
            yield _refused_answer()
            return
        async with aclosing(original(*args, **options)) as pieces:
            async for piece in pieces:
                yield _see_answer(client, piece)

    return create_stream


def _hook_tool(original: Any, _: Any) -> Any:
    async def call_tool(name: str, *args: Any, **options: Any) -> Any:
        if _is_refused(name):
            return _refused_result(name)
        return await original(name, *args, **options)

    return call_tool


def _hook_tool_stream(original: Any, _: Any) -> Any:
    async def call_tool_stream(name: str, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
        if _is_refused(name):
            yield _refused_result(name)
            return
        async with aclosing(original(name, *args, **options)) as pieces:
            async for piece in pieces:
                yield piece

    return call_tool_stream


def _is_refused(tool: str = "") -> bool:
    watch, is_refused = current_watch.get(), False
    if watch is not None:
        with watch.tool_boundary:
            is_refused = watch.refuses_call(tool)
    return is_refused


def _refused_answer() -> Any:
    """Return what an agent gets instead of its model's answer, and says. An error would leave the
    team's runtime broken.
    """
    models = import_framework("autogen_core.models", EXTRA)
    usage = models.RequestUsage(prompt_tokens=0, completion_tokens=0)
    return models.CreateResult(finish_reason="stop", content=RUN_IS_OVER, usage=usage, cached=False)


def _refused_result(tool: str) -> Any:
    """Return what an agent gets instead of a tool's result: it waits for ever for one that raises.
    The next call of its model ends its turn.
    """
    tools = import_framework("autogen_core.tools", EXTRA)
    content = tools.TextResultContent(content=RUN_IS_OVER)
    return tools.ToolResult(name=tool, result=[content], is_error=True)


def _see_answer(client: Any, answer: Any) -> Any:
    """Count what an answer has used, before the team reports it."""
    watch, usage = current_watch.get(), getattr(answer, "usage", None)
    if watch is not None and usage is not None:
        with watch.tool_boundary:
            call = _model_call(_model_name(client), usage)
            watch.see_answer(call.input_tokens + call.output_tokens, call)
    return answer


def _model_name(client: Any) -> str:
    """Return a model's name by its client's own configuration; empty if it has none."""
    try:
        config: Any = client.dump_component().config if client is not None else {}
    except Exception:  # a client of one's own need not have a configuration
        config = {}
    return str(config.get("model") or "")


def _model_call(model: str, usage: Any) -> ModelCall:
    if usage is None:
        return ModelCall(model=model)
    return ModelCall(
        model=model, input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens
    )


def guarded(team: Any, guard: Guard | None = None, *, name: str = "") -> GuardedAutoGenTeam:
    require_version(EXTRA)
    return GuardedAutoGenTeam(team, guard or Guard(), name or team.name)


def _agents(team: Any) -> Iterator[tuple[str, Any]]:
    """Yield the team, its agents and those of teams in it, each with its name."""
    yield getattr(team, "name", ""), team
    inner = (getattr(team, name, None) for name in ("_team", "_wrapped_agent"))
    for member in (*getattr(team, "_participants", ()), *filter(None, inner)):
        yield from _agents(member)


def _works_like_tool(agent: Any) -> bool:
    """Return whether an agent's plain messages are what it found, and not what a model said."""
    classes = [cls.__name__ for cls in type(agent).__mro__]
    if any(name in classes for name in SURFERS):
        return True
    if EXECUTOR_CLASS in classes:
        return getattr(agent, "_model_client", None) is None
    if PERSON_CLASS in classes or hasattr(agent, "_participants"):
        return False
    return not any(
        word in name
        for name, value in getattr(agent, "__dict__", {}).items()
        for word in MODEL_WORDS
        if value is not None
    )


def _effect_tools(agent: Any) -> Iterator[str]:
    """Yield the names of an agent's tools that their MCP server calls destructive. A workbench that
    lists its tools at the server alone does not pass on what is said of them.
    """
    for workbench in getattr(agent, "_workbench", None) or ():
        for tool in getattr(workbench, "_tools", ()):
            if declares_effect(getattr(getattr(tool, "_tool", None), "annotations", None)):
                yield tool.name


def _failure_text(text: str) -> str | None:
    """Return what a failure says of itself; None if the message reports none."""
    if text.lstrip().startswith(FAILURE_PREFIXES):
        return text
    silent = SILENT_FAILURE.match(text)
    return f"exit code {silent[1]}" if silent is not None else None


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
    """Stops a team that would go on after the end; the caller gets the reason itself."""


class _GentleCancellation:
    """A cancellation token that can also end a run gently.

    The agent that has the turn finishes it, and no agent gets another one. Cancelling in the middle
    of a turn does not end the run: AutoGen's agents wait for ever for a cancelled tool.

    A team ends when its manager chooses no next speaker, and is free for its next run. A manager
    that chooses in another way is ended by an error.
    """

    ended = False
    shared_runtime: Any = None
    """The runtime of the caller's on which the team runs; None if it has one of its own."""
    manager_type = ""
    """How the team's own manager is called there."""

    def end(self, *_: object) -> None:
        self.ended = True

    def link_future(self, future: "Future[Any]") -> "Future[Any]":
        frame = inspect.currentframe()
        caller = frame.f_back.f_locals.get("self") if frame is not None and frame.f_back else None
        is_cancelled: bool = self.is_cancelled()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - of the framework's token
        if hasattr(caller, "select_speaker"):
            _choosing_nobody_after(self, caller)
        if self.ended and not is_cancelled and not self._ends_by_itself(caller, frame):
            future.cancel()
            raise RunEndedError(RUN_IS_OVER)
        future.add_done_callback(self._end_if_cancelled)
        return super().link_future(future)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType] - of the framework's token

    def _ends_by_itself(self, caller: Any, frame: FrameType | None) -> bool:
        """Return whether the one who waits for something gets no further turn in any case."""
        if hasattr(caller, "select_speaker"):
            is_shared = caller.runtime is self.shared_runtime
            return not is_shared or caller.id.type == self.manager_type
        return hasattr(caller, "run_stream") or _is_inside_agent(frame)

    def _end_if_cancelled(self, future: "Future[Any]") -> None:
        """End the run when its waiter gives up: no caller would see what the team does then."""
        if future.cancelled():
            self.end()


def _choosing_nobody_after(token: _GentleCancellation, manager: Any) -> None:
    """Let the manager choose no next speaker if the run has ended.

    AutoGen links the choice to the token before the choice begins, so that the token in use is
    known then. A choice with which a manager becomes known, and those in runs without the guard,
    are the manager's own.
    """
    choice = manager.select_speaker
    if isinstance(choice, _SpeakerChoice):
        choice.token = token
    else:
        manager.select_speaker = _SpeakerChoice(choice)


class _SpeakerChoice:
    def __init__(self, original: Any) -> None:
        self.original = original
        self.token: Any = None
        """The token of the choice that is about to begin."""

    async def __call__(self, thread: Any) -> Any:
        token, self.token = self.token, None
        if token is not None and token.ended and not token.is_cancelled():
            return []
        return await self.original(thread)


@functools.cache
def _token_class() -> Any:
    base = import_framework("autogen_core", EXTRA).CancellationToken
    return type("HandrailToken", (_GentleCancellation, base), {})


def _make_token(caller_token: Any, team: Any) -> Any:
    """Make a token of the guard's own, which is cancelled with the caller's."""
    token = _token_class()()
    if not getattr(team, "_embedded_runtime", True):
        token.shared_runtime = team._runtime
        token.manager_type = team._group_chat_manager_topic_type
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

    def __init__(self, watch: RunWatch, team: Any, task: Any) -> None:
        self.watch = watch
        self.agents = agents = dict(_agents(team))
        self.user = USER if USER not in agents else ""
        """The sender whose messages are no agent's."""
        self.tools = {name for name in agents if _works_like_tool(agents[name])}
        """Agents that work like a tool."""
        self.effect_tools = {name: set(_effect_tools(agents[name])) for name in agents}
        """By agent, its tools with effects."""
        self.request = to_text(task)
        """The last message: what the next agent is asked."""
        self.code: dict[str, str] = {}
        """By agent, the code that it is about to run."""
        self.calls: dict[str, Any] = {}
        self.models: dict[str, str] = {}
        """By agent, the model that it asks."""
        self.working: set[str] = set()
        """Agents that have begun, and not answered."""
        self.questions = 0
        """Questions to people in the inbox."""
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

    async def deliver_nudge(self, message: Any) -> None:
        """Add a nudge to what an agent's model is given, when the agent has just answered.

        Until its next turn nothing else changes its context: in the midst of a turn, a message
        could come between a tool's call and its result.
        """
        context = getattr(self.agents.get(message.source), "model_context", None)
        if context is None or message.type.endswith("Event") or self.watch.stop is not None:
            return
        texts: list[str] = []
        self.watch.deliver_nudge(texts.append)
        for text in texts:
            user_message = import_framework("autogen_core.models", EXTRA).UserMessage
            await context.add_message(user_message(content=text, source=NUDGE_SOURCE))

    def record_tool_request(self, message: Any) -> None:
        self.calls |= {call.id: call for call in message.content}
        self.record_text(message)

    def record_tool_results(self, message: Any) -> None:
        for result in message.content:
            call = self.calls.pop(result.call_id, None)
            is_made = not (result.is_error and result.content == RUN_IS_OVER)
            if call is not None and is_made and not result.name.startswith("transfer_to_"):
                error = result.content if result.is_error else None
                effect = result.name in self.effect_tools.get(message.source, ())
                self.watch.record_tool_call(
                    result.name, call.arguments, result.content, error, effect=effect
                )

    def record_person_request(self, message: Any) -> None:
        self.person_asks[message.source] = self.person_asks.get(message.source, 0) + 1

    def record_text(self, message: Any) -> None:
        self.watch.begin_step()
        text = message.to_text()
        call = _model_call(self._model_name(message.source), message.models_usage)
        tokens = call.input_tokens + call.output_tokens
        if tokens or self._is_answer(message):
            self.watch.record_answer(text, tokens, call)
        elif message.source in self.person_asks:
            self.watch.record_tool_call(message.source, self.person_asks[message.source], text)
        if not message.type.endswith("Event"):
            self._record_finding(message, text)

    def _record_finding(self, message: Any, text: str) -> None:
        """Record a message as what an agent found, if it works like a tool."""
        source = message.source
        is_finding = source in self.tools and message.type in PLAIN_MESSAGES
        if is_finding and self.watch.judges_findings:
            self.watch.record_tool_call(source, self.request, text, _failure_text(text))
        self.request = text

    def _model_name(self, agent: str) -> str:
        """Return the model that an agent asks."""
        if agent not in self.models:
            client = getattr(self.agents.get(agent), "_model_client", None)
            self.models[agent] = _model_name(client)
        return self.models[agent]

    def record_code(self, message: Any) -> None:
        self.code[message.source] = message.content
        self.record_text(message)

    def record_execution(self, message: Any) -> None:
        """Record code that an agent wrote and ran by itself."""
        source, output = message.source, message.result.output
        error = (_failure_text(output) or output) if message.result.exit_code else None
        self.watch.record_tool_call(source, self.code.pop(source, ""), output, error)

    def _is_answer(self, message: Any) -> bool:
        """Return whether the message is an answer, although it has no usage."""
        kind, source = message.type, message.source
        if kind.endswith("Event"):
            return kind in (TOOL_REQUEST_MESSAGE, CODE_MESSAGE)
        return source not in self.person_asks and not (
            kind in TOOL_MESSAGES and source in self.working
        )


RECORDERS = {
    TOOL_REQUEST_MESSAGE: _MessageRecorder.record_tool_request,
    "ToolCallExecutionEvent": _MessageRecorder.record_tool_results,
    CODE_MESSAGE: _MessageRecorder.record_code,
    "CodeExecutionEvent": _MessageRecorder.record_execution,
    "UserInputRequestedEvent": _MessageRecorder.record_person_request,
}

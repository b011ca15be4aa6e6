"""Guard Microsoft Agent Framework: a workflow or an agent, watched from inside its executors.

    team = guarded(workflow)
    await team.run("draft the contract")

An invoked executor has the turn, from the executor that sent to it. Handoffs are counted along the
longest path: parallel executors, also in sub-workflows, receive the turn at once. Middleware
records model answers and tool calls of agents that executors hold; for agents that run no
middleware, they are read from what the agents send. A refused executor does not begin. The
framework has no hook around executors: `execute` and the runner's `add_event` are wrapped in place,
stay so, and do nothing else outside a guarded run.

After a stop, messages in flight and open requests are restored to those from before the run, so
that the workflow can be run again at once. Its state and the state of its executors stay.

What a stop leaves: a `WorkflowRunResult` with the events so far, or an `AgentResponse` with the
messages so far, as `partial`.
"""

import functools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any, NoReturn

from handrail.guard.adapter import (
    STREAM_END,
    RunWatch,
    import_framework,
    to_text,
    watching,
    watching_stream,
)
from handrail.guard.approvals import ASKS_PER_RUN_MAX, TOOL_OPTIONS, ask_person_async, is_yes
from handrail.guard.framework_object import FrameworkObject, first_argument
from handrail.guard.framework_versions import require_version
from handrail.guard.prices import ModelCall
from handrail.guard.run import Guard

EXTRA = "agent-framework"
MESSAGE_NAMES = ("message", "messages")
"""What workflows and agents call their first parameter."""
INTERNAL_SOURCE_PREFIX = "internal:"
"""The framework's name for the source of a workflow's input, and of an answer to it."""


class GuardedAgentFrameworkTeam(FrameworkObject):
    """A workflow, or an agent, with a guard around its runs; in all else it is the team itself."""

    def run(self, *args: Any, stream: bool = False, **options: Any) -> Any:
        """Like `team.run(message)`, or `team.run(message, stream=True)`; raises `Stopped` when a
        rule ends the run.
        """
        if not stream:
            return self._run_to_end(args, options)
        _add_hooks(self.wrapped, {})
        pieces: Any = self.wrapped.run(*args, stream=True, **options)
        stream_type: Any = import_framework("agent_framework", EXTRA).ResponseStream

        def final_response(_: object) -> Any:
            return pieces.get_final_response()

        stream = stream_type(self._stream(pieces, args, options), finalizer=final_response)
        _hand_over_lock(self.wrapped, pieces, stream)
        return stream

    async def _run_to_end(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        with self._watching(watching, args, options) as watch:
            run = await _begin_run(watch, self.wrapped)
            with run.as_current():
                try:
                    watch.partial = await self.wrapped.run(*args, **options)
                    options = {
                        name: option
                        for name, option in options.items()
                        if name not in MESSAGE_NAMES
                    }
                    async for answers in _answer_requests(watch):
                        resume_options = {**options, "checkpoint_id": None, "responses": answers}
                        watch.partial = await self.wrapped.run(**resume_options)
                    run.end(watch.partial)
                except Exception:
                    if watch.stop is None:
                        raise
            await run.restore()
        return watch.partial

    async def _stream(
        self, pieces: Any, args: tuple[Any, ...], options: dict[str, Any]
    ) -> AsyncIterator[Any]:
        with self._watching(watching_stream, args, options) as watch:
            run = await _begin_run(watch, self.wrapped)
            try:
                while True:
                    with watch.as_current(), run.as_current():
                        piece = await anext(pieces, STREAM_END)
                    if piece is STREAM_END:
                        break
                    yield piece
                run.end(None if run.records_itself else await pieces.get_final_response())
                watch.begin_step()  # so that a stop by the last answer has the partial result, too
            except Exception:
                if watch.stop is None:
                    raise
            finally:
                await _close_stream(pieces)
            await run.restore()

    def _watching(
        self,
        watch_run: Callable[..., AbstractContextManager[RunWatch]],
        args: tuple[Any, ...],
        options: dict[str, Any],
    ) -> AbstractContextManager[RunWatch]:
        message = first_argument(args, options, *MESSAGE_NAMES)
        thread = functools.partial(_thread, options)
        return watch_run(self.run_guard, self.run_name, message, thread)


def _thread(options: dict[str, Any]) -> str:
    """Return the id of an agent's session."""
    return getattr(options.get("session"), "session_id", "")


def _hand_over_lock(team: Any, stream: Any, guarded_stream: Any) -> None:
    """Lock the workflow as long as the caller holds the guarded stream.

    A workflow is locked by a weak reference to its stream, so that a stream that is dropped
    unlocks it at once. The guarded stream holds the workflow's own until the event loop closes it.
    """
    lock = getattr(team, "_active_run", None)
    if lock is not None and lock() is stream:
        team._active_run = weakref.ref(guarded_stream)


async def _close_stream(stream: Any) -> None:
    """Close a stream, also from a foreign context.

    The event loop closes an abandoned stream in a context where the framework cannot reset its
    variables. That is the stream's last act, and no failure.
    """
    try:
        await stream.close()
    except ValueError as error:
        if "different Context" not in str(error):
            raise


def guarded(team: Any, guard: Guard | None = None, *, name: str = "") -> GuardedAgentFrameworkTeam:
    """Put a guard around `team`: a workflow, an agent, or a workflow as an agent.

    The server that records the run asks people for what a workflow requests. Without a server, or
    for a request other than a text, a yes or no, or a tool's approval, the workflow's own result
    shows the request, as without a guard.
    """
    require_version(EXTRA)
    sdk = import_framework("agent_framework", EXTRA)
    if isinstance(team, (sdk.FunctionalWorkflow, sdk.FunctionalWorkflowAgent)):
        hint = "build it with WorkflowBuilder, or guard the agents that it runs"
        raise NotImplementedError(f"a functional workflow cannot be guarded; {hint}")
    return GuardedAgentFrameworkTeam(team, guard or Guard(), name or team.name or "workflow")


async def _answer_requests(watch: RunWatch) -> AsyncIterator[dict[str, Any]]:
    """Yield people's answers to a workflow's requests, up to the limit of approvals.

    No person is asked if some of the open requests are not for people to answer.
    """
    for _ in range(ASKS_PER_RUN_MAX):
        requests: list[Any] = getattr(watch.partial, "get_request_info_events", list)()
        answers = dict[str, Any]()
        for request in requests if all(_is_answerable(candidate) for candidate in requests) else ():
            if not watch.active_agent:  # a request out of a checkpoint: no agent has had the turn
                watch.activate(request.source_executor_id, source="")
            options = TOOL_OPTIONS if _is_approval(request) else ()
            reply = await ask_person_async(watch, _question_text(request), options)
            if reply is None:
                return
            answers[request.request_id] = _to_response(request, reply)
        if not answers:
            return
        yield answers


def _is_answerable(event: Any) -> bool:
    return _is_approval(event) or event.response_type in (str, bool)


def _is_approval(event: Any) -> bool:
    return getattr(event.data, "type", "") == "function_approval_request"


def _question_text(event: Any) -> str:
    if not _is_approval(event):
        return to_text(event.data)
    call = event.data.function_call
    return f"{event.source_executor_id} wants to call {call.name}({to_text(call.arguments)})"


def _to_response(event: Any, reply: Any) -> Any:
    """Convert a person's reply to the workflow's response."""
    if _is_approval(event):
        return event.data.to_function_approval_response(is_yes(reply))
    return is_yes(reply) if event.response_type is bool else reply.text or "yes"


class _WorkflowRun:
    """One guarded run: its executor calls, their depth, and what was in flight before it."""

    def __init__(self, watch: RunWatch) -> None:
        self.watch = watch
        self.handoff_depth = 0
        """Handoffs on the longest path so far."""
        self.ended_calls: dict[str, _ExecutorCall] = {}
        """By executor, its last call that is over."""
        self.partial_items: list[Any] = []
        """Events of the outermost workflow, or messages of a single agent."""
        self.workflows = dict[str, Any]()
        self.records_itself = True
        """Whether hooks tell what happens; otherwise the response of a single agent does."""
        self.in_flight: list[_InFlightState] = []
        self.root = _ExecutorCall(self, "", "", None, 0)

    async def begin(self, team: Any) -> None:
        self.records_itself = _add_hooks(team, self.workflows)
        if not self.workflows:
            self.root.name = team.name or "agent"
            self.watch.activate(self.root.name, source="")
        for workflow in self.workflows.values():
            requests = await workflow._runner.context.get_pending_request_info_events()
            self.in_flight.append(_InFlightState(workflow, requests))

    @contextmanager
    def as_current(self) -> Generator[None]:
        reset_token = _current_call.set(self.root)
        try:
            yield
        finally:
            _current_call.reset(reset_token)

    def begin_call(
        self,
        outer: "_ExecutorCall",
        executor: str,
        sender: str,
        sources: list[str],
        message: Any,
    ) -> "_ExecutorCall":
        """Give the executor the turn.

        The first in a workflow has the turn from the executor that runs the workflow; an executor
        that gets an answer goes on at its own depth, or at the deeper one of that executor by now.
        """
        prefix = f"{outer.name}/" if outer.name else ""
        name, ended_calls = prefix + executor, self.ended_calls
        source = sources[0]
        if source.startswith(INTERNAL_SOURCE_PREFIX):
            depth, source = outer.depth, outer.name
            if (
                name in ended_calls
                and getattr(message, "original_request_info_event", None) is not None
            ):
                depth = max(depth, ended_calls[name].depth) - 1
        elif len(sources) == 1:
            source = prefix + source
            depth, source = (
                ended_calls[source].deepest_end if source in ended_calls else (outer.depth, source)
            )
        else:
            depth, source = self._deepest_source(
                outer, [prefix + source_id for source_id in sources]
            )
        depth += 1
        if depth > self.handoff_depth:
            self.handoff_depth = depth
            self.watch.activate(name, source=source)
        else:
            self.watch.resume(name)
        return _ExecutorCall(self, name, sender, outer, depth)

    def _deepest_source(self, outer: "_ExecutorCall", sources: list[str]) -> tuple[int, str]:
        """Return the deepest of several sources that sent together; of equals, always the same."""
        ended_calls = self.ended_calls
        ends = [
            ended_calls[source].deepest_end if source in ended_calls else (outer.depth, source)
            for source in sources
        ]
        return min(ends, key=lambda end: (-end[0], end[1]))

    def end(self, response: Any) -> None:
        """End the run; for a single agent without middleware, record here what it did."""
        with self.watch.boundary:
            if not self.records_itself:
                _record_response(self.root, response)
            self.root.flush()

    async def restore(self) -> None:
        """After a stop, keep the partial result and make the workflows runnable again."""
        if self.watch.stop is None:
            return
        sdk = import_framework("agent_framework", EXTRA)
        if self.workflows:
            self.watch.partial = sdk.WorkflowRunResult(self.partial_items)
        else:
            self.watch.partial = sdk.AgentResponse(messages=self.partial_items)
        with self.watch.run.errors.absorbing("a workflow could not be made ready for its next run"):
            for state in self.in_flight:
                await state.restore()


async def _begin_run(watch: RunWatch, team: Any) -> _WorkflowRun:
    run = _WorkflowRun(watch)
    with watch.boundary:
        await run.begin(team)
    return run


class _InFlightState:
    """What a workflow keeps from one run for the next: open requests, messages that wait in a
    fan-in, or for an answer in the executor of an agent.
    """

    def __init__(self, workflow: Any, requests: dict[str, Any]) -> None:
        executor_type: type[Any] = import_framework("agent_framework", EXTRA).AgentExecutor
        agents = [
            executor
            for executor in workflow.executors.values()
            if isinstance(executor, executor_type)
        ]
        self.workflow, self.requests, self.status = workflow, requests, workflow.status
        self.edge_states = [
            (edge, edge.snapshot_state()) for edge in workflow._runner._edge_runners
        ]
        self.executor_states = [
            (executor, _pending_attributes(executor.__dict__)) for executor in agents
        ]

    async def restore(self) -> None:
        workflow, context = self.workflow, self.workflow._runner.context
        checkpoint: Any = import_framework("agent_framework", EXTRA).WorkflowCheckpoint(
            workflow_name=workflow.name,
            graph_signature_hash=workflow.graph_signature_hash,
            pending_request_info_events=self.requests,
        )
        await context.apply_checkpoint(checkpoint)
        await context.drain_events()  # drops the request events, which were emitted before
        for edge, messages in self.edge_states:
            edge.restore_state(messages)
        for executor, attributes in self.executor_states:
            executor.__dict__.update(attributes)
        workflow._status = self.status


def _pending_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return those attributes of an agent's executor that hold input for the agent."""
    return {
        name: copy(attributes[name])
        for name in attributes
        if name.startswith(("_cache", "_pending"))
    }


class _ExecutorCall:
    """One call of an executor, from its invocation to its end, or of a single agent.

    Each model answer is recorded together with the tools it called, so that those of parallel
    executors do not come in between.
    """

    __slots__ = (
        "deepest_end",
        "depth",
        "name",
        "outer",
        "pending_answer",
        "pending_tool_calls",
        "run",
        "sender",
    )

    def __init__(
        self, run: _WorkflowRun, name: str, sender: str, outer: "_ExecutorCall | None", depth: int
    ) -> None:
        self.run, self.name, self.sender, self.outer, self.depth = run, name, sender, outer, depth
        """`sender`: the executor whose answers are recorded from what it sends."""
        self.deepest_end = (depth, name)
        """The greatest depth reached, and the last agent there: the executor, or one in its
        workflow.
        """
        self.pending_tool_calls: list[tuple[str, object, object, object]] = []
        self.pending_answer: tuple[str, int, ModelCall] | None = None

    def flush(self) -> None:
        """Record the answer and the tool calls since the last flush."""
        if self.pending_answer is None and not self.pending_tool_calls:
            return
        watch = self.run.watch
        if watch.step_open or watch.active_agent != self.name:
            watch.resume(self.name)
        if self.pending_tool_calls:
            for call in self.pending_tool_calls:
                watch.record_tool_call(*call)
            self.pending_tool_calls = []
        if self.pending_answer is not None:
            watch.record_answer(*self.pending_answer)
            self.pending_answer = None

    def end_call(self) -> None:
        """Remember the last agent in this call as the source of the next handoff."""
        if self.pending_answer is not None or self.pending_tool_calls:
            self.flush()
        deepest_end, outer = self.deepest_end, self.outer
        self.run.ended_calls[self.name] = self
        if outer is not None and deepest_end[0] > outer.deepest_end[0]:
            outer.deepest_end = deepest_end

    def abort(self) -> NoReturn:
        """End the framework's run by the error that none of its layers turns into a result.

        The stop itself is raised when the framework has come to rest.
        """
        raise import_framework("agent_framework", EXTRA).MiddlewareFailure(
            "the guarded run is over"
        )


_current_call: ContextVar[_ExecutorCall | None] = ContextVar(
    "handrail_agent_framework_part", default=None
)
"""The executor call in progress, in a guarded run."""


def _add_hooks(value: Any, workflows: dict[str, Any]) -> bool:
    """Add hooks to a workflow or an agent, if it supports them; collect workflows in it."""
    workflow, workflow_agent, agent = _hookable_types()
    if isinstance(value, workflow_agent):
        value = value.workflow
    if isinstance(value, workflow):
        if value.id not in workflows:
            workflows[value.id] = value
            _hook_workflow(value, workflows)
        return True
    if isinstance(value, agent):
        _add_agent_middleware(value)
        return True
    return False


@functools.cache
def _hookable_types() -> tuple[type[Any], ...]:
    sdk = import_framework("agent_framework", EXTRA)
    return sdk.Workflow, sdk.WorkflowAgent, sdk.AgentMiddlewareLayer


def _hook_workflow(workflow: Any, workflows: dict[str, Any]) -> None:
    """Wrap the workflow's executors and its runner's `add_event`."""
    context = workflow._runner.context
    if not _is_own_hook(context.add_event):
        context.add_event = _wrap_add_event(context.add_event)
    for executor in list(workflow.executors.values()):
        hooked = [_add_hooks(value, workflows) for value in list(executor.__dict__.values())]
        if not _is_own_hook(executor.execute):
            executor.execute = _wrap_execute(executor, "" if any(hooked) else executor.id)


def _is_own_hook(hook: Any) -> bool:
    return getattr(hook, "__module__", "") == __name__


def _wrap_execute(executor: Any, sender: str) -> Any:
    """Return a wrapper for an executor's `execute`."""
    original, name = executor.execute, executor.id

    async def execute(
        message: Any,
        sources: list[str],
        state: Any,
        context: Any,
        trace_contexts: Any = None,
        source_span_ids: Any = None,
    ) -> None:
        outer = _current_call.get()
        if outer is None:
            await original(message, sources, state, context, trace_contexts, source_span_ids)
            return
        watch, executor_call = outer.run.watch, outer
        with watch.boundary:
            executor_call = outer.run.begin_call(outer, name, sender, sources, message)
        if watch.stop is not None:
            executor_call.abort()
        _current_call.set(executor_call)
        try:
            await original(message, sources, state, context, trace_contexts, source_span_ids)
        finally:
            _current_call.set(outer)
            with watch.boundary:
                if executor_call is not outer:
                    executor_call.end_call()

    return execute


def _wrap_add_event(original: Any) -> Any:
    """Return a wrapper for a runner's `add_event`."""

    def add_event(event: Any) -> Awaitable[None]:
        executor_call = _current_call.get()
        if executor_call is not None and executor_call.outer is not None:
            with executor_call.run.watch.boundary:
                if executor_call.outer is executor_call.run.root:
                    executor_call.run.partial_items.append(event)
                if executor_call.sender and event.type == "executor_completed" and event.data:
                    _record_sent_answers(executor_call, event.data)
        return original(event)

    return add_event


def _record_sent_answers(executor_call: _ExecutorCall, messages: list[Any]) -> None:
    """Record answers of the sender's own agent among its messages; not those that it passed on."""
    for message in messages:
        response = getattr(message, "agent_response", None)
        if response is not None and message.executor_id == executor_call.sender:
            if executor_call.pending_answer is not None:
                executor_call.flush()
            _record_response(executor_call, response)


def _record_response(executor_call: _ExecutorCall, response: Any) -> None:
    """Record the answers and tool calls of an agent without middleware."""
    texts = list[str]()
    calls = dict[str, Any]()
    for message in response.messages:
        for content in message.contents:
            kind = content.type
            if kind == "text":
                texts.append(content.text)
            elif kind == "function_call":
                calls[content.call_id] = content
            elif kind == "function_result" and content.call_id in calls:
                call = calls[content.call_id]
                executor_call.pending_tool_calls.append(
                    (call.name, call.arguments, content.result, content.exception)
                )
    _set_answer(executor_call, response, " ".join(texts))


def _set_answer(executor_call: _ExecutorCall, response: Any, text: str | None = None) -> None:
    usage: dict[str, Any] = response.usage_details or {}
    call = ModelCall(
        model=getattr(response, "model", None) or "",
        input_tokens=usage.get("input_token_count") or 0,
        output_tokens=usage.get("output_token_count") or 0,
        cache_read_tokens=usage.get("cache_read_input_token_count") or 0,
        cache_write_tokens=usage.get("cache_creation_input_token_count") or 0,
    )
    answer_text = response.text if text is None else text
    tokens = usage.get("total_token_count") or 0
    executor_call.pending_answer = (answer_text, tokens, call)
    executor_call.run.watch.see_answer(tokens, call)
    if executor_call.outer is None:
        executor_call.run.partial_items.extend(response.messages)


def _add_agent_middleware(agent: Any) -> None:
    """Put the guard's middleware before the agent's own."""
    hooks = _make_middleware()
    existing: list[Any] = list(agent.middleware or ())
    if not any(isinstance(middleware, type(hooks[0])) for middleware in existing):
        agent.middleware = [*hooks, *existing]


@functools.cache
def _make_middleware() -> tuple[Any, ...]:
    """Make the middleware; this works only where the framework is installed."""
    sdk = import_framework("agent_framework", EXTRA)
    chat = type("HandrailModels", (_ModelMiddleware, sdk.ChatMiddleware), {})
    function = type("HandrailTools", (_ToolMiddleware, sdk.FunctionMiddleware), {})
    return chat(), function()


class _ModelMiddleware:
    """Records model calls and answers."""

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        executor_call = _current_call.get()
        if executor_call is not None:
            watch = executor_call.run.watch
            with watch.boundary:
                executor_call.flush()
                watch.begin_step()
                watch.begin_call()
            if watch.stop is not None:
                executor_call.abort()
            watch.deliver_nudge(functools.partial(_add_message, context))
            if context.stream:
                context.stream_result_hooks.append(functools.partial(_read_answer, executor_call))
        await call_next()
        if executor_call is not None and not context.stream:
            _read_answer(executor_call, context.result)


def _read_answer(executor_call: _ExecutorCall, response: Any) -> None:
    with executor_call.run.watch.boundary:
        _set_answer(executor_call, response)


def _add_message(context: Any, text: str) -> None:
    """Add a message to those that the model is given."""
    message = import_framework("agent_framework", EXTRA).Message("user", [text])
    context.messages = [*context.messages, message]


class _ToolMiddleware:
    """Records tool arguments, and what tools return or raise."""

    async def process(self, context: Any, call_next: Callable[[], Awaitable[None]]) -> None:
        executor_call, name, arguments = (
            _current_call.get(),
            context.function.name,
            context.arguments,
        )
        if executor_call is not None:
            watch = executor_call.run.watch
            with watch.tool_boundary:
                watch.begin_call(name, record=executor_call.flush)
            if watch.stop is not None:
                executor_call.abort()
        try:
            await call_next()
        except Exception as error:
            if executor_call is not None and not _is_control_flow(error):
                with executor_call.run.watch.tool_boundary:
                    message = f"{type(error).__name__}: {error}"
                    executor_call.pending_tool_calls.append((name, arguments, "", message))
            raise
        if executor_call is not None:
            with executor_call.run.watch.tool_boundary:
                executor_call.pending_tool_calls.append(
                    (name, arguments, _tool_output(context.result), None)
                )


def _is_control_flow(error: Exception) -> bool:
    """Return whether the error is no failure: it ends a run or a turn, or requests an approval."""
    sdk = import_framework("agent_framework", EXTRA)
    control_errors = (sdk.MiddlewareTermination, sdk.MiddlewareFailure)
    return isinstance(error, control_errors) or type(error).__name__ == "UserInputRequiredException"


def _tool_output(result: Any) -> object:
    """Return a tool's output, as text where there is one."""
    if isinstance(result, list):
        return [getattr(content, "text", None) or content for content in result]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return result

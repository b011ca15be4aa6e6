"""The base of every adapter: records turns, model answers and tool results in a guarded run.

A step is one answer of a model with the tools that it called. The step is recorded when the next
one begins, so that nothing more is spent after a stop. Turns that pass from one agent to another
are handoffs. A step shows what its tools found, or else what the agent said (`tool_calls.py`). So
an agent whose tools find something new makes progress, and an agent that repeats a question and
gets the same answer does not.

Frameworks call from several threads and tasks; one lock serialises them.
"""

import importlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager, nullcontext
from contextvars import ContextVar
from threading import RLock
from typing import Any, NoReturn

from handrail.guard.boundary import NO_USAGE, HookBoundary
from handrail.guard.call_limits import NOT_MADE
from handrail.guard.errors import stop_error
from handrail.guard.prices import ModelCall, add_usages
from handrail.guard.run import Guard, GuardedRun
from handrail.guard.sanitising import describe_text
from handrail.guard.tool_calls import ToolCall, to_text
from handrail.kernel.definition.limits import ProfileName
from handrail.kernel.result import FIGURE_MAX, NO_EVIDENCE, Usage
from handrail.kernel.run.state import Stop
from handrail.kernel.stop.rules import StopRule

ANSWER_CHARS_MAX = 2_000
"""Characters of a model's answer; the framework keeps the rest."""
TITLE_CHARS_MAX = 200
DEFAULT_PROFILE: ProfileName = "observed"
"""What fills the limits that a guard's rules leave open: nobody wrote the program for the rules."""
UNKNOWN_CALL = ModelCall()
STREAM_END = object()
"""Marks the end of a stream."""

current_watch: ContextVar["RunWatch | None"] = ContextVar("handrail_watch", default=None)
"""The run watched in this context, for hooks that a framework keeps longer than a run."""
_agent_chain: ContextVar[tuple[str, ...]] = ContextVar("handrail_asking", default=())
"""The agent that works in this context, after the chain of agents that called it."""


class RunWatch:
    """One guarded run, as adapters see it. Every call returns the stop, once there is one."""

    def __init__(self, run: GuardedRun) -> None:
        self.run = run
        self.active_agent = ""
        """The agent that has the turn."""
        self.partial: Any = None
        self.stop: Stop | None = None
        self.framework_error: type[Exception] | None = None
        """The framework's own error, which a stop is as well."""
        self._lock = RLock()
        self._text = ""
        self._usage = NO_USAGE
        self.step_open = False
        """Whether a step is not recorded yet."""
        self._refused: str | None = None
        """The tool whose call was refused; empty for a model."""
        self._calls: list[ToolCall] = []
        """The tool calls of this step."""
        self._state: Mapping[str, Any] | str | None = None
        """The state that the agent left, where the framework shows it."""
        self.judges_findings = run.limits.judges_findings
        self.records = 0
        """Answers and tool calls recorded so far."""
        self._open_calls: dict[tuple[tuple[str, ...], str], int] = defaultdict(int)
        """Open calls between agents: callers and callee."""
        self.boundary = HookBoundary(self, is_step=True)
        """The block in which a hook works; `tool_boundary`: a hook of tools, of which a step may
        have many.
        """
        self.tool_boundary = HookBoundary(self, is_step=False)

    def activate(self, agent: str, *, source: str | None = None, reason: str = "") -> Stop | None:
        """Give the agent the turn from `source`; by default from the agent that has it.

        An empty `source` means from no agent. From another agent, the change is a handoff.
        """
        with self._lock:
            source = self.active_agent if source is None else source
            if self.step_open and (self._calls or not source or self.judges_findings):
                self._flush_step((agent, reason) if source else None)
            if self.stop is None:
                answering_agent, self.active_agent, run = self.active_agent, agent, self.run
                if not run.first_agent:
                    run.first_agent = source or agent
                reason = run.recorded_text(reason)
                if self.step_open:
                    text, usage = self._take_answer()
                    self._record_handoff(source, agent, reason, answering_agent, text, usage)
                elif source:
                    self._record_handoff(source, agent, reason)
            return self.stop

    def _record_handoff(
        self,
        source: str,
        target: str,
        reason: str,
        answering_agent: str = "",
        text: str = "",
        usage: Usage | None = None,
    ) -> None:
        try:
            self.stop = self.run.record_handoff(
                source, target, reason, answering_agent, text, usage
            )
        except Exception as error:
            what = "a handoff could not be recorded"
            self.run.errors.lose(error, what, steps=1, handoffs=1, usage=usage or NO_USAGE)

    def resume(self, agent: str) -> Stop | None:
        """Return the turn to an agent that had only called another one: no handoff."""
        with self._lock:
            if self.step_open:
                self._flush_step()
            self.active_agent = agent
            return self.stop

    def enter_call(self, callers: tuple[str, ...], agent: str) -> Stop | None:
        """Begin an agent's call by the last of `callers`, a chain of calls, which may be empty.

        Several calls at once are one handoff; a call back to an agent further up in the chain is
        another. An agent that has the turn, and that no agent called, goes on.
        """
        with self._lock:
            self._open_calls[callers, agent] += 1
            if self._open_calls[callers, agent] > 1 or (not callers and self.active_agent == agent):
                return self.resume(agent)
            return self.activate(agent, source=callers[-1] if callers else None)

    def leave_call(self, callers: tuple[str, ...], agent: str) -> None:
        """End an agent's call; the caller gets the turn back."""
        with self._lock:
            self._open_calls[callers, agent] -= 1
            if not self._open_calls[callers, agent]:
                del self._open_calls[callers, agent]
            if callers:
                self.resume(callers[-1])

    def begin_step(self) -> Stop | None:
        """Begin a step, before a model is called, and record the previous one."""
        with self._lock:
            if self.step_open:
                self._flush_step()
            return self.stop

    def begin_call(self, tool: str = "", record: Callable[[], object] | None = None) -> Stop | None:
        """Begin a call of a tool, or of a model after `begin_step`; return the stop if a limit
        refuses it. `record` records what the adapter holds back, before the run ends.
        """
        limits = self.run.call_limits
        if limits.is_set and self.stop is None:
            with self._lock:
                agent = self._calling_agent()
                fired = limits.judge(agent, tool, self._usage, self._calls)
                if fired:
                    if record is not None:
                        record()
                    if any(rule.rule is StopRule.TOOL_LIMIT for rule in fired):
                        self.record_tool_call(tool, "", None, NOT_MADE)
                    if self.step_open:
                        self._flush_step()
                    if self.stop is None:
                        self.stop = limits.end(agent, tool)
                else:
                    limits.begin_call(agent, tool)
        return self.stop

    def refuses_call(self, tool: str = "") -> bool:
        """Like `begin_call`, for frameworks that report a step when they have gone on: once they
        have reported all, `end_refused` ends the run.
        """
        limits = self.run.call_limits
        if self.stop is not None or self._refused is not None:
            return True
        if not limits.is_set:
            return False
        with self._lock:
            if limits.judge(self._calling_agent(), tool, self._usage, self._calls):
                self._refused = tool
            elif tool:
                limits.see_call(tool)
            return self._refused is not None

    def end_refused(self) -> None:
        """End the run if a call was refused in it."""
        if self._refused is not None:
            self.begin_call(self._refused)

    def pause_call(self, tool: str) -> None:
        """Note that a tool's call paused, and will be made again."""
        self.run.call_limits.end_call(self._calling_agent(), tool)

    def see_answer(self, tokens: int, call: ModelCall) -> None:
        """Note what an answer has used that is recorded later."""
        if self.run.call_limits.is_set:
            with self._lock:
                self.run.call_limits.see_answer(self._price(call, tokens))

    def _calling_agent(self) -> str:
        return next(reversed(_agent_chain.get()), self.active_agent)

    def record_answer(
        self, text: str = "", tokens: int = 0, call: ModelCall = UNKNOWN_CALL
    ) -> None:
        """Record a model's answer; `call` says which model, and what its tokens are."""
        with self._lock:
            self.step_open = True
            self.records += 1
            self._usage = add_usages(self._usage, self._price(call, tokens))
            self._text = text[:ANSWER_CHARS_MAX]

    def _price(self, call: ModelCall, tokens: int) -> Usage:
        try:
            return self.run.pricing.price(call, tokens)
        except Exception as error:
            self.run.errors.lose(error, "what a model's answer cost could not be read")
            return Usage(tokens=min(max(int(tokens), 0), FIGURE_MAX))

    def record_state(self, state: Mapping[str, Any] | str, text: str = "") -> None:
        """Record the state that the active agent left, and its text if no model's answer is
        known.
        """
        if self.judges_findings and self.active_agent:
            with self._lock:
                if text and not self.step_open:
                    self._text = text[:ANSWER_CHARS_MAX]
                if state:
                    self._state = state
                self.step_open = self.step_open or bool(state or text)

    def record_tool_call(
        self,
        tool: str,
        arguments: object,
        output: object = "",
        error: object = None,
        *,
        effect: bool = False,
    ) -> None:
        """Record a tool call: its arguments, and what it returned or raised. `effect`: it changed
        something outside of the run.
        """
        with self._lock:
            agent = self._calling_agent()
            self._calls.append(ToolCall(agent, tool, arguments, output, error, effect))
            if self.run.call_limits.is_set:
                self.run.call_limits.end_call(agent, tool)
            self.step_open = True
            self.records += 1

    def _flush_step(self, handoff: tuple[str, str] | None = None) -> None:
        """Record the step that is over; `handoff`: to whom it hands over, and why."""
        if self.stop is not None:
            return
        calls, self._calls = self._calls, []
        state, self._state = self._state, None
        agent, run, evidence = self.active_agent, self.run, NO_EVIDENCE
        text, usage = self._take_answer()
        try:
            evidence = run.step_reader.read_step(agent, text, calls, state, handoff)
        except Exception as error:
            run.errors.lose(error, "what a step showed could not be read")
        try:
            self.stop = run.record_result(agent, text, evidence, usage)
        except Exception as error:
            run.errors.lose(error, "a step could not be recorded", steps=1, usage=usage)

    def _take_answer(self) -> tuple[str, Usage]:
        """Close the step, and return its text and its usage."""
        text, usage = self._text, self._usage
        self._text, self._usage, self.step_open = "", NO_USAGE, False
        return text, usage

    def judge_hard_limits(self) -> None:
        """Stop a run that is unguarded if a hard limit is reached."""
        with self._lock:
            if self.stop is None:
                self.stop = self.run.errors.judge(self._usage)

    def as_current(self, chain: tuple[str, ...] | None = None) -> "CurrentWatch":
        """Make this the watched run inside the block, with this agent at the end of the chain that
        called it; a run that starts its own is not part of it.
        """
        return CurrentWatch(self, chain)

    def iterate(self, pieces: Any) -> Iterator[Any]:
        """Iterate over what a framework yields, and close it, whichever side ends first."""
        with closing(pieces):
            while True:
                with self.as_current():
                    piece = next(pieces, STREAM_END)
                if piece is STREAM_END:
                    return
                yield piece

    async def iterate_async(self, pieces: Any) -> AsyncIterator[Any]:
        """Like `iterate`, for asynchronous iterators; not all of them can be closed."""
        async with aclosing(pieces) if hasattr(pieces, "aclose") else nullcontext():
            while True:
                with self.as_current():
                    piece = await anext(pieces, STREAM_END)
                if piece is STREAM_END:
                    return
                yield piece

    def deliver_nudge(self, deliver: Callable[[str], object]) -> None:
        """Pass what the next model should be told of a rule that is near to the framework, once."""
        if self.run.nudge_text is None:
            return
        with self.run.errors.absorbing("a nudge could not be delivered"):
            with self._lock:
                text = self.run.take_nudge()
            if text is not None:
                deliver(text)

    def raise_if_stopped(self) -> None:
        """Raise the stop, if there is one: for hooks that end a framework's run by an error."""
        if self.stop is not None:
            raise stop_error(self.stop, self.run, self.partial, self.framework_error)


class CurrentWatch:
    """The block inside which a run is the watched one. It is entered for every piece of a stream,
    so it is no generator.
    """

    __slots__ = ("_chain", "_chain_before", "_watch", "_watch_before")

    def __init__(self, watch: RunWatch, chain: tuple[str, ...] | None) -> None:
        self._watch, self._chain = watch, chain

    def __enter__(self) -> None:
        self._watch_before, self._chain_before = current_watch.get(), _agent_chain.get()
        chain = self._chain
        if chain is None:
            chain = self._chain_before if self._watch_before is self._watch else ()
        current_watch.set(self._watch)
        _agent_chain.set(chain)

    def __exit__(self, *_: object) -> None:
        """Restore what was there; perhaps in another context, where a token could not be used."""
        _agent_chain.set(self._chain_before)
        current_watch.set(self._watch_before)


@contextmanager
def watching(
    guard: Guard, name: str, task: object = "", thread: object = ""
) -> Generator[RunWatch]:
    """Watch a run for an adapter.

    When the framework has come to rest, a stop is raised with the partial result; an error of the
    framework passes through and is recorded. `thread` is the framework's own id of the
    conversation, if it has one.
    """
    with watching_stream(guard, name, task, thread) as watch, watch.as_current():
        yield watch


@contextmanager
def watching_stream(
    guard: Guard, name: str, task: object = "", thread: object = ""
) -> Generator[RunWatch]:
    """Like `watching`, for streams: what the caller does between two pieces is outside the run.

    The framework's thread counts only where findings are judged: by names alone, each turn of an
    ordinary chat would repeat the one before. A `thread` that is a function returns the id; it may
    fail.
    """
    early_errors: list[tuple[Exception, str]] = []
    prompt = thread_id = title = ""
    try:
        prompt = to_text(task)
        title = prompt[:TITLE_CHARS_MAX]
        if guard.record_texts != "full" and title:
            title = f"{name} {describe_text(title)}"
    except Exception as error:
        early_errors.append((error, "the input has no text"))
    try:
        thread = thread() if callable(thread) else thread
        if thread and guard.limits(DEFAULT_PROFILE).judges_findings:
            thread_id = to_text(thread)
    except Exception as error:
        early_errors.append((error, "the thread's id could not be read"))
    with guard.run(
        name, task=title, raises=False, team=name, profile=DEFAULT_PROFILE, thread=thread_id
    ) as run:
        for error, what in early_errors:
            run.errors.note(error, what)
        if thread_id:
            with run.errors.absorbing("what a person asks could not be read", missed=True):
                run.read_prompt(prompt)
        watch = RunWatch(run)
        watch.stop = run.stop
        watch.raise_if_stopped()
        try:
            yield watch
            run.is_ending = True
            with watch.boundary:
                watch.begin_step()
        except Exception:
            if watch.stop is None:
                raise
    watch.raise_if_stopped()


@contextmanager
def watching_agent(
    guard: Guard | None, agent: str, task: object = "", thread: object = ""
) -> Generator[RunWatch]:
    """Watch an agent's part in the current run, or else a run of its own.

    For programs that loop over agents themselves, or agents that call others.
    """
    with (
        watching_agent_stream(guard, agent, task, thread) as (watch, chain),
        watch.as_current(chain),
    ):
        yield watch


@contextmanager
def watching_agent_stream(
    guard: Guard | None, agent: str, task: object = "", thread: object = ""
) -> Generator[tuple[RunWatch, tuple[str, ...]]]:
    """Like `watching_agent`, for streams: what the caller does between two pieces is outside the
    agent's part. With the watch comes the agent's chain, for `as_current`.
    """
    watch = current_watch.get()
    if watch is not None:
        with _agent_call(watch, agent, _agent_chain.get()) as chain:
            yield watch, chain
        watch.raise_if_stopped()
        return
    with (
        watching_stream(guard or Guard(), agent, task, thread) as watch,
        _agent_call(watch, agent, ()) as chain,
    ):
        yield watch, chain


@contextmanager
def _agent_call(
    watch: RunWatch, agent: str, callers: tuple[str, ...]
) -> Generator[tuple[str, ...]]:
    """Let an agent work; an agent that another one called gives the turn back at the end."""
    with watch.boundary:
        watch.enter_call(callers, agent)
    try:
        watch.raise_if_stopped()
        yield (*callers, agent)
    finally:
        with watch.boundary:
            watch.leave_call(callers, agent)


def import_framework(module: str, extra: str) -> Any:
    """Import a framework's module on first use."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        from handrail.engine.errors import (
            install_hint,  # imported late: only a failed import needs it
        )

        message = f"'{error.name}' is not installed; {install_hint(extra)}"
        raise ModuleNotFoundError(message, name=error.name) from None


def refuse_stream(call: str, instead: str) -> NoReturn:
    """Refuse a call that would bypass the guard."""
    raise NotImplementedError(f"{call} cannot be guarded, so it is not called; {instead}")

"""The OpenAI Agents SDK under guard: an agent with its handoffs, watched through run hooks.

    team = guarded(triage)
    await team.run("my invoice is wrong")

Agents, handoffs, model calls and tools are told by the SDK's own hooks; hooks of the caller are
called as well. An agent that is a tool of another has a run of its own, with the same configuration
but without the hooks: what its model is given tells of it. It gets the turn, and gives it back.
A run that is resumed begins in the middle: no start hook is called for a tool that goes on, and the
model of a nested agent may be the first that is heard of. So every hook brings what is known of the
run up to date, and a state says before the run starts whose it is and what was used.
An error in the guard's own bookkeeping is logged and goes no further: the SDK would report it to
the model as a failure of a tool that has done its work.
Unless the caller says otherwise there is no `max_turns`: the guard's `max_steps` is the bound, and
says why.

What a stop leaves: the SDK's `RunErrorDetails` (new items, raw responses, last agent), as
`partial`.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Generator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import replace

from handrail.guard import Guard
from handrail.guard.errors import Stopped
from handrail.guard.people import ASKS_MAX, ask, ask_async, is_yes
from handrail.guard.watch import Theirs, Watch, framework, streaming, watching

log = logging.getLogger("handrail.guard")

EXTRA = "openai-agents"
FAILED = "An error occurred while running the tool"
"""How the SDK begins what it tells a model of a tool that raised."""
FILTER = "call_model_input_filter"
CALLED, RETURNED = "function_call", "function_call_output"


class GuardedAgent:
    """The first agent of a team, with a guard around the team's run."""

    def __init__(self, agent: Theirs, guard: Guard, name: str) -> None:
        self.agent, self.guard, self.name = agent, guard, name

    async def run(self, given: Theirs, **options: Theirs) -> Theirs:
        """As `Runner.run(agent, given)`; raises `Stopped` when a rule ends the run."""
        runner = framework("agents", EXTRA).Runner
        with watching(self.guard, self.name, given) as watch:
            told, options = _watched(options, watch)
            try:
                with told.run_of(self.agent, given):
                    watch.partial = await runner.run(self.agent, given, **options)
                for _ in range(ASKS_MAX):
                    wanted = watch.partial.interruptions
                    said = [await ask_async(watch, _question(item)) for item in wanted]
                    if not said or None in said:
                        break
                    state = _decided(watch.partial, said)
                    with told.run_of(self.agent, state):
                        watch.partial = await runner.run(self.agent, state, **options)
            except Exception as error:
                watch.partial = getattr(error, "run_data", None)
                raise
        return watch.partial

    def run_sync(self, given: Theirs, **options: Theirs) -> Theirs:
        """As `Runner.run_sync(agent, given)`; raises `Stopped` when a rule ends the run."""
        runner = framework("agents", EXTRA).Runner
        with watching(self.guard, self.name, given) as watch:
            told, options = _watched(options, watch)
            try:
                with told.run_of(self.agent, given):
                    watch.partial = runner.run_sync(self.agent, given, **options)
                for _ in range(ASKS_MAX):
                    said = [ask(watch, _question(item)) for item in watch.partial.interruptions]
                    if not said or None in said:
                        break
                    state = _decided(watch.partial, said)
                    with told.run_of(self.agent, state):
                        watch.partial = runner.run_sync(self.agent, state, **options)
            except Exception as error:
                watch.partial = getattr(error, "run_data", None)
                raise
        return watch.partial

    def run_streamed(self, given: Theirs, **options: Theirs) -> "GuardedStream":
        """As `Runner.run_streamed(agent, given)`; it begins with `stream_events()`, which raises
        `Stopped` when a rule ends the run."""
        return GuardedStream(self, given, options)


class GuardedStream:
    """A streamed run. Once it has begun, whatever the SDK's result can do else it can do too."""

    def __init__(self, of: GuardedAgent, given: Theirs, options: dict[str, Theirs]) -> None:
        self._of, self._given, self._options = of, given, options
        self._result: Theirs = None

    async def stream_events(self) -> AsyncIterator[Theirs]:
        of, runner = self._of, framework("agents", EXTRA).Runner
        with streaming(of.guard, of.name, self._given) as watch:
            told, options = _watched(self._options, watch)
            with watch.here(), told.run_of(of.agent, self._given):
                watch.partial = runner.run_streamed(of.agent, self._given, **options)
            self._result = watch.partial
            drawn: Theirs = watch.drawn_async(self._result.stream_events())
            async with aclosing(drawn) as pieces:
                try:
                    async for piece in pieces:
                        yield piece
                except GeneratorExit:  # or else the SDK would wait for the run to end
                    self._result.cancel()
                    raise
                finally:
                    told.count_rest()

    def __getattr__(self, name: str) -> Theirs:
        if self._result is None:
            told = f"a streamed run has no '{name}' before it has begun"
            raise AttributeError(f"{told}; iterate over stream_events() first")
        return getattr(self._result, name)


def _question(item: Theirs) -> str:
    """What a tool that wants an approval is to be allowed."""
    given = getattr(item.raw_item, "arguments", "")
    return f"{item.agent.name} wants to call {item.tool_name}({given})"


def _decided(result: Theirs, said: list[Theirs]) -> Theirs:
    """The run's state with what people said: a yes lets the tool run, else it is told why not."""
    state = result.to_state()
    for item, reply in zip(result.interruptions, said, strict=True):
        if is_yes(reply):
            state.approve(item)
        else:
            state.reject(item, rejection_message=reply.text)
    return state


def guarded(agent: Theirs, guard: Guard | None = None, *, name: str = "") -> GuardedAgent:
    return GuardedAgent(agent, guard or Guard(), name or agent.name)


def _watched(options: dict[str, Theirs], watch: Watch) -> tuple["_Told", dict[str, Theirs]]:
    sdk = framework("agents", EXTRA)
    told = _Told(watch, sdk.AgentsException)
    return told, {
        "max_turns": None,
        **options,
        "hooks": _hooks(sdk.RunHooks, told, options.get("hooks")),
        "run_config": _configured(options.get("run_config"), told),
    }


def _configured(theirs: Theirs, told: "_Told") -> Theirs:
    """The caller's configuration, by which the guard hears of every model that is asked."""
    config: Theirs = {} if theirs is None else theirs
    made = hasattr(config, FILTER)  # or else a dictionary
    held: Theirs = getattr(config, FILTER) if made else config.get(FILTER)

    async def heard(data: Theirs) -> Theirs:
        with told.bookkeeping():
            told.model_given(data)
        found = held(data) if held is not None else data.model_data
        return await found if inspect.isawaitable(found) else found

    return replace(config, **{FILTER: heard}) if made else {**config, FILTER: heard}


def _hooks(base: type[Theirs], told: "_Told", theirs: Theirs) -> Theirs:
    """Hooks that tell the guard first, and then those of the caller."""

    class Hooks(base):
        pass

    def hook(name: str) -> Theirs:
        async def both(self: Theirs, *given: Theirs, **named: Theirs) -> None:
            heard = TELLS.get(name)
            if heard is not None:
                with told.bookkeeping():
                    heard(told, *given, **named)
            if theirs is not None:
                await getattr(theirs, name)(*given, **named)

        return both

    for name in (*TELLS, "on_agent_end"):
        setattr(Hooks, name, hook(name))
    return Hooks()


_chain: ContextVar[tuple[str, ...]] = ContextVar("handrail_openai_agents", default=())
"""Whose run this is, after those whose tools it is in."""


class _Told:
    """What the hooks tell the guard."""

    def __init__(self, watch: Watch, error: type[Exception]) -> None:
        self.watch, self.error = watch, error
        self.agent = ""
        """Whose run this is; others that are at work are tools of it."""
        self.asked: set[tuple[str, ...]] = set()
        """Agents that are tools, each after those that it is a tool of."""
        self.heard: set[str] = set()
        """Calls in runs of such agents."""
        self.usage: Theirs = None
        """The SDK's own, of the run and of the agents that are tools in it."""
        self.tokens = 0
        """Of it, those that the guard knows of."""

    @contextmanager
    def run_of(self, first: Theirs, given: Theirs) -> Generator[None]:
        """A run of the SDK begins inside. A state that is resumed has an agent and a usage already,
        and its first model call may be that of a nested agent."""
        agent = getattr(given, "_current_agent", None) or first
        context = getattr(given, "_context", None)
        with self.bookkeeping():
            if context is not None:
                self._update(context, agent)
        before = _chain.set((agent.name,))
        try:
            yield
        finally:
            _chain.reset(before)
            self.count_rest()

    def count_rest(self) -> None:
        """Counts what nested agents have used since the last hook: a run that pauses inside of them
        calls none."""
        with self.bookkeeping():
            used = self._used()
            if used:
                self.watch.answered(tokens=used)

    @contextmanager
    def bookkeeping(self) -> Generator[None]:
        """An error inside is logged, unless it is the end of the run."""
        try:
            yield
        except (self.error, Stopped):
            raise
        except Exception:
            log.exception("the guard could not record what the OpenAI Agents SDK did")

    def _update(self, context: Theirs, agent: Theirs) -> None:
        """Whose run this is, and its usage. Every hook has both; start hooks are not always
        called."""
        self.agent = agent.name
        if self.usage is None:  # or else what an earlier run has used would count again
            self.tokens = context.usage.total_tokens
        self.usage = context.usage
        if not self.watch.agent:
            self.watch.turn(agent.name)

    def agent_started(self, context: Theirs, agent: Theirs) -> None:
        self._update(context, agent)

    def handed_off(self, context: Theirs, from_agent: Theirs, to_agent: Theirs) -> None:
        self._update(context, from_agent)
        self.watch.turn(to_agent.name, source=from_agent.name)
        self._obey()

    def model_asked(self, context: Theirs, agent: Theirs, *_: object) -> None:
        self._update(context, agent)
        self.asked.clear()
        self.watch.resume(self.agent)
        self._obey()

    def model_answered(self, context: Theirs, agent: Theirs, response: Theirs) -> None:
        self._update(context, agent)
        self.watch.answered(text=_said(response), tokens=self._used())

    def tool_started(self, context: Theirs, agent: Theirs, tool: Theirs) -> None:
        self._update(context, agent)

    def tool_ended(self, context: Theirs, agent: Theirs, tool: Theirs, result: object) -> None:
        self._update(context, agent)
        if self.watch.agent != self.agent:
            self.watch.answered(tokens=self._used())
            self.watch.resume(self.agent)
        failed = isinstance(result, str) and result.startswith(FAILED)
        given = getattr(context, "tool_arguments", "")
        self.watch.called(tool.name, given, result, result if failed else None)

    def model_given(self, data: Theirs) -> None:
        """A model is about to be asked. Of agents that are tools nothing else is heard, but what
        their own tools returned is among what it is given."""
        name, chain = data.agent.name, _chain.get()
        if name == self.agent and len(chain) < 2:
            _chain.set((name,))
            return
        if chain[-1:] != (name,):
            chain = (*chain, name)
            _chain.set(chain)
        if chain in self.asked:
            self._returned(name, data.model_data.input)
            self.watch.answered(tokens=self._used())
            self.watch.resume(name)
        else:
            self.asked.add(chain)
            self._skip_history(data.model_data.input)
            used = self._used()
            if used:
                self.watch.answered(tokens=used)
            self.watch.turn(name, source=chain[-2] if len(chain) > 1 else self.agent)
        self._obey()

    def _skip_history(self, items: Theirs) -> None:
        """Results that a nested agent brings along from before a pause were told by that run; those
        at the end have come since."""
        results = [item.get("type") == RETURNED for item in items]
        while results and results[-1]:
            results.pop()
        self.heard.update(item["call_id"] for item, old in zip(items, results, strict=False) if old)

    def _returned(self, agent: str, items: Theirs) -> None:
        calls = {item.get("call_id"): item for item in items if item.get("type") == CALLED}
        for item in items:
            call = calls.get(item.get("call_id"))
            if item.get("type") != RETURNED or call is None or item["call_id"] in self.heard:
                continue
            self.heard.add(item["call_id"])
            found = item["output"]
            failed = found if str(found).startswith(FAILED) else None
            self.watch.called(f"{agent}/{call['name']}", call["arguments"], found, failed)

    def _used(self) -> int:
        """Since it was asked last, by agents that are tools as well."""
        if self.usage is None:
            return 0
        before, self.tokens = self.tokens, self.usage.total_tokens
        return self.tokens - before

    def _obey(self) -> None:
        """An error of the SDK's own kind gets what there is of the run."""
        if self.watch.stop is not None:
            raise self.error(f"{self.watch.stop.rule}: {self.watch.stop.reason}")


TELLS: dict[str, Theirs] = {
    "on_agent_start": _Told.agent_started,
    "on_handoff": _Told.handed_off,
    "on_llm_start": _Told.model_asked,
    "on_llm_end": _Told.model_answered,
    "on_tool_start": _Told.tool_started,
    "on_tool_end": _Told.tool_ended,
}


def _said(response: Theirs) -> str:
    parts = (part for item in response.output for part in getattr(item, "content", None) or ())
    return "".join(getattr(part, "text", "") or "" for part in parts)

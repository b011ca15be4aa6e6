"""The OpenAI Agents SDK under guard: an agent with its handoffs, watched through run hooks.

    team = guarded(triage)
    await team.run("my invoice is wrong")

Agents, handoffs, model calls and tools are told by the SDK's own hooks; hooks of the caller are
called as well. Unless the caller says otherwise there is no `max_turns`: the guard's `max_steps` is
the bound, and says why.

What a stop leaves: the SDK's `RunErrorDetails` (new items, raw responses, last agent), as
`partial`.
"""

from collections.abc import AsyncIterator

from handrail.guard import Guard
from handrail.guard.people import ASKS_MAX, ask, ask_async, is_yes
from handrail.guard.watch import Theirs, Watch, framework, streaming, watching

EXTRA = "openai-agents"
FAILED = "An error occurred while running the tool"
"""How the SDK begins what it tells a model of a tool that raised."""


class GuardedAgent:
    """The first agent of a team, with a guard around the team's run."""

    def __init__(self, agent: Theirs, guard: Guard, name: str) -> None:
        self.agent, self.guard, self.name = agent, guard, name

    async def run(self, given: Theirs, **options: Theirs) -> Theirs:
        """As `Runner.run(agent, given)`; raises `Stopped` when a rule ends the run."""
        runner = framework("agents", EXTRA).Runner
        with watching(self.guard, self.name, given) as watch:
            options = _watched(options, watch)
            try:
                watch.partial = await runner.run(self.agent, given, **options)
                for _ in range(ASKS_MAX):
                    wanted = watch.partial.interruptions
                    said = [await ask_async(watch, _question(item)) for item in wanted]
                    if not said or None in said:
                        break
                    state = _decided(watch.partial, said)
                    watch.partial = await runner.run(self.agent, state, **options)
            except Exception as error:
                watch.partial = getattr(error, "run_data", None)
                raise
        return watch.partial

    def run_sync(self, given: Theirs, **options: Theirs) -> Theirs:
        """As `Runner.run_sync(agent, given)`; raises `Stopped` when a rule ends the run."""
        runner = framework("agents", EXTRA).Runner
        with watching(self.guard, self.name, given) as watch:
            options = _watched(options, watch)
            try:
                watch.partial = runner.run_sync(self.agent, given, **options)
                for _ in range(ASKS_MAX):
                    said = [ask(watch, _question(item)) for item in watch.partial.interruptions]
                    if not said or None in said:
                        break
                    state = _decided(watch.partial, said)
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
            options = _watched(self._options, watch)
            with watch.here():
                watch.partial = runner.run_streamed(of.agent, self._given, **options)
            self._result = watch.partial
            async for piece in watch.drawn_async(self._result.stream_events()):
                yield piece

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


def _watched(options: dict[str, Theirs], watch: Watch) -> dict[str, Theirs]:
    return {"max_turns": None, **options, "hooks": _hooks(watch, options.get("hooks"))}


def _hooks(watch: Watch, theirs: Theirs) -> Theirs:
    """Hooks that tell the guard first, and then those of the caller."""
    sdk = framework("agents", EXTRA)
    base: type[Theirs] = sdk.RunHooks
    told = _Told(watch, sdk.AgentsException)

    class Hooks(base):
        pass

    def hook(name: str) -> Theirs:
        async def both(self: Theirs, *given: Theirs, **named: Theirs) -> None:
            heard = TELLS.get(name)
            if heard is not None:
                heard(told, *given, **named)
            if theirs is not None:
                await getattr(theirs, name)(*given, **named)

        return both

    for name in (*TELLS, "on_tool_start", "on_agent_end"):
        setattr(Hooks, name, hook(name))
    return Hooks()


class _Told:
    """What the hooks tell the guard."""

    def __init__(self, watch: Watch, error: type[Exception]) -> None:
        self.watch, self.error = watch, error

    def agent_started(self, context: Theirs, agent: Theirs) -> None:
        if not self.watch.agent:
            self.watch.turn(agent.name)

    def handed_off(self, context: Theirs, from_agent: Theirs, to_agent: Theirs) -> None:
        self.watch.turn(to_agent.name, source=from_agent.name)
        self._obey()

    def model_asked(self, *_: object) -> None:
        self.watch.step()
        self._obey()

    def model_answered(self, context: Theirs, agent: Theirs, response: Theirs) -> None:
        self.watch.answered(text=_said(response), tokens=response.usage.total_tokens)

    def tool_ended(self, context: Theirs, agent: Theirs, tool: Theirs, result: object) -> None:
        failed = isinstance(result, str) and result.startswith(FAILED)
        given = getattr(context, "tool_arguments", "")
        self.watch.called(tool.name, given, result, result if failed else None)

    def _obey(self) -> None:
        """An error of the SDK's own kind gets what there is of the run."""
        if self.watch.stop is not None:
            raise self.error(f"{self.watch.stop.rule}: {self.watch.stop.reason}")


TELLS: dict[str, Theirs] = {
    "on_agent_start": _Told.agent_started,
    "on_handoff": _Told.handed_off,
    "on_llm_start": _Told.model_asked,
    "on_llm_end": _Told.model_answered,
    "on_tool_end": _Told.tool_ended,
}


def _said(response: Theirs) -> str:
    parts = (part for item in response.output for part in getattr(item, "content", None) or ())
    return "".join(getattr(part, "text", "") or "" for part in parts)

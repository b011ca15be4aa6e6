"""A language model as an agent: any provider that pydantic-ai knows, by name.

    engine.add_agent(model_agent("anthropic:claude-sonnet-4-5"), "planner", "coder")

Keys and addresses come from the provider's own variables (OPENAI_API_KEY, OPENAI_BASE_URL, …).

Rules
1. One turn is one conversation, thrown away after it: what a model has to know stands in the
   dispatch (`prompt.py`). It works any role of any definition.
2. A model that can call tools answers by one (`answers.py`). In a team it may also answer in text,
   whose last line counts (the text protocol); one that has no tools always does. A workflow's node
   takes success or failure, for which there is no last line: there it answers in JSON.
3. Everything is bounded (`ModelLimits`): requests, retries, time, the length of an answer; and by
   what the run's budget has left. Cancelled, it drops the request it is in.
4. What a turn used is counted whatever came of it (`AgentFailed.usage`). A turn without a result
   says which model, what happened, and what to do, and never says a secret.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from handrail.agents import answers, prompt
from handrail.agents.given import Given, Works, view, who
from handrail.agents.model_errors import about
from handrail.agents.secrets import without_secrets
from handrail.engine.dispatch import DispatchView
from handrail.engine.extras import install
from handrail.engine.returned import AgentFailed, told
from handrail.kernel.decision import Value
from handrail.kernel.result import FIGURE_MAX, Result, Usage

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RunUsage

Tools = Callable[[Any], Sequence[Callable[..., object]]]
"""The tools of a turn: functions with annotations and a docstring, by its dispatch."""


class ModelLimits(Value):
    """What one turn may take."""

    seconds: float = 300.0
    """All requests, retries and tools of the turn together."""
    requests: int = 25
    """Answers of the model; each round of tool calls needs one."""
    retries: int = 2
    """Of one request that failed in a way that passes; the provider's Retry-After is kept to."""
    again: int = 1
    """How often a model whose answer cannot be read is asked again in the turn."""
    output_tokens: int = 16_000
    """Of one answer."""
    answer_bytes: int = 200_000
    """Of a whole answer, as JSON."""
    tool_chars: int = 50_000
    """Of what a tool gives; the rest is cut off, and the model is told."""


class BadModel(ValueError):  # noqa: N818 - what it is, in one word
    """A model that cannot be used at all: no such name, no key, a package that is missing."""


def model_agent(
    model: str,
    *,
    instructions: str = "",
    tools: Tools | None = None,
    text_only: bool = False,
    limits: ModelLimits = ModelLimits(),  # noqa: B008 - frozen
) -> Works:
    """An agent that is a language model. `instructions` are added to what the definition says;
    `tools` gives the functions that the model may call in a turn. `text_only`: its server takes no
    tools, although the provider's usually do. Raises `BadModel`."""
    brain = _Brain(model, instructions, tools, limits, text_only=text_only)

    async def model_turn(dispatch: Given) -> Result:
        return await brain.turn(dispatch)

    return model_turn


class _Brain:
    """One model with its bounds; connections are shared by the turns of one event loop."""

    def __init__(
        self,
        name: str,
        instructions: str,
        tools: Tools | None,
        limits: ModelLimits,
        *,
        text_only: bool,
    ) -> None:
        self.name, self.instructions, self.tools, self.limits = name, instructions, tools, limits
        self.text_only = text_only
        self._models: dict[asyncio.AbstractEventLoop, Model] = {}
        _known(name)  # wrong ones are told at once, not in the middle of a run

    async def turn(self, given: Given) -> Result:
        from pydantic_ai.usage import RunUsage

        dispatch, used = view(given), RunUsage()
        model = self._model()
        try:
            async with model:
                said = await self._ask(model, given, dispatch, used)
            return self._result(said, used)
        except AgentFailed:
            raise
        except Exception as error:  # whatever a provider's library raises costs the attempt
            reason = about(error, self.name, who(dispatch), self.limits.seconds)
            raise AgentFailed(reason, usage(used)) from None

    async def _ask(
        self, model: "Model", given: Given, dispatch: DispatchView, used: "RunUsage"
    ) -> object:
        from pydantic_ai.usage import UsageLimits

        limits = self.limits
        answered = await self._agent(model, given, dispatch).run(
            prompt.turn(dispatch),
            usage=used,
            usage_limits=UsageLimits(
                request_limit=limits.requests, total_tokens_limit=_left(dispatch)
            ),
            timeout=limits.seconds,
            model_settings=_settings(model, limits),
        )
        return answered.output

    def _agent(self, model: "Model", given: Given, dispatch: DispatchView) -> "Agent[None, Any]":
        from pydantic_ai import Agent, ModelRetry

        by_tool = not self.text_only and model.profile.get("supports_tools", True)
        functions = self.tools(given) if self.tools is not None and by_tool else ()
        agent: Agent[None, Any] = Agent(
            model,
            output_type=_output(dispatch, by_tool=by_tool),
            instructions=prompt.instructions(dispatch, self.instructions, by_tool=by_tool),
            tools=[_safe(one, self.limits.tool_chars) for one in functions],
            retries=self.limits.again,
            deps_type=type(None),
        )

        def readable(said: Any) -> Any:  # noqa: ANN401 - whatever the model said
            if not isinstance(said, str):
                try:
                    answers.read(said, Usage())
                except ValueError as error:
                    raise ModelRetry(f"That is no answer: {error}. Answer again.") from None
            return said

        agent.output_validator(readable)
        return agent

    def _result(self, said: object, used: "RunUsage") -> Result:
        spent = usage(used)
        length, most = len(msgspec.json.encode(said)), self.limits.answer_bytes
        if length > most:
            raise AgentFailed(
                f"the model '{self.name}' answered with {length} bytes, at most {most} are taken;"
                " ask for less at once, or raise answer_bytes",
                spent,
            )
        return (
            Result(text=said, usage=spent) if isinstance(said, str) else answers.read(said, spent)
        )

    def _model(self) -> "Model":
        loop = asyncio.get_running_loop()
        if loop not in self._models:
            held = {one: model for one, model in self._models.items() if not one.is_closed()}
            self._models = {**held, loop: _known(self.name)}
        return self._models[loop]


def _known(name: str) -> "Model":
    """The model of that name, with what its provider needs."""
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError:
        told = f"the model '{name}' needs a package that is not installed"
        raise BadModel(f"{told}; {install('models')}") from None
    try:
        return infer_model(name)
    except (UserError, ImportError, ValueError) as error:
        said = without_secrets(str(error)).rstrip(".")
        raise BadModel(
            f"the model '{name}' cannot be used: {said}; give PROVIDER:MODEL, its key in the"
            " provider's variable, and install what the provider needs"
        ) from None


def _settings(model: "Model", limits: ModelLimits) -> "ModelSettings":
    """What each request is sent with; what the model does not know it is not told."""
    wanted: ModelSettings = {"max_tokens": limits.output_tokens}
    if "max_retries" not in model.unsupported_settings:
        wanted["max_retries"] = limits.retries
    return wanted


def _left(dispatch: DispatchView) -> int | None:
    """Tokens that the run's budget still has; None if it has none."""
    known = dispatch.briefing
    most = known.limits.get("max_tokens")
    return None if most is None else max(0, most - known.used.tokens)


def _output(dispatch: DispatchView, *, by_tool: bool) -> Any:  # noqa: ANN401 - pydantic-ai's
    """How the model answers: by a tool, in text, or in JSON."""
    from pydantic_ai import PromptedOutput, StructuredDict, ToolOutput

    in_text = bool(prompt.last_lines(dispatch))
    if in_text and not by_tool:
        return str
    shape = StructuredDict(answers.schema(dispatch), name=prompt.ANSWER_TOOL)
    if not by_tool:
        return PromptedOutput(shape)
    tool = ToolOutput(
        shape, name=prompt.ANSWER_TOOL, description="Your answer; it ends the turn.", strict=False
    )
    return [tool, str] if in_text else tool


def _safe(function: Callable[..., object], most: int) -> Callable[..., object]:
    """The tool, so that what goes wrong in it, or is too long, is told to the model."""
    from pydantic_ai import ToolFailed

    def short(gave: object) -> object:
        left = len(gave) - most if isinstance(gave, str) else 0
        return f"{str(gave)[:most]}\n… ({left} more characters)" if left > 0 else gave

    @functools.wraps(function)
    async def in_loop(*args: object, **more: object) -> object:
        try:
            return short(await cast("Awaitable[object]", function(*args, **more)))
        except Exception as error:
            raise ToolFailed(without_secrets(told(error))) from None

    @functools.wraps(function)
    def in_thread(*args: object, **more: object) -> object:
        try:
            return short(function(*args, **more))
        except Exception as error:
            raise ToolFailed(without_secrets(told(error))) from None

    return in_loop if inspect.iscoroutinefunction(function) else in_thread


def usage(used: "RunUsage") -> Usage:
    """What was used, as runs count it; a price that nobody knows is 0."""
    tokens = min(max(0, used.total_tokens), FIGURE_MAX)
    return Usage(tokens=tokens, cost=min(max(0.0, float(used.cost or 0)), float(FIGURE_MAX)))

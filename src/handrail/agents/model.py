"""A language model as an agent: any provider that pydantic-ai knows, by name.

    engine.add_agent(model_agent("anthropic:claude-sonnet-4-5"), "planner", "coder")

Keys and addresses come from the provider's own variables (OPENAI_API_KEY, OPENAI_BASE_URL, …).

Rules
1. One dispatch is one conversation, dropped after it: all that a model has to know stands in the
   dispatch (`prompt.py`). It works any role of any definition.
2. A model that can call tools answers by one (`structured_answers.py`). In a team it may also
   answer in text, whose last line counts (the text protocol); a model without tools always does. A
   workflow's node takes success or failure, for which there is no last line: there it answers in
   JSON.
3. Everything is bounded (`ModelLimits`): requests, retries, time, the length of an answer; and by
   the rest of the run's budget. A cancelled dispatch drops its request.
4. Usage counts whatever the outcome (`AgentFailedError.usage`). A dispatch without a result says
   which model, what happened, and what to do, and never says a secret.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from handrail.agents import prompt, structured_answers
from handrail.agents.dispatch_input import (
    AgentFunction,
    DispatchInput,
    as_dispatch_view,
    step_id_of,
)
from handrail.agents.model_errors import describe_model_error
from handrail.agents.secret_redaction import redact_secrets
from handrail.engine.dispatch.agent_results import AgentFailedError, describe_error
from handrail.engine.errors import install_hint
from handrail.kernel.decision import Value
from handrail.kernel.result import FIGURE_MAX, Result, Usage
from handrail.views.dispatches import DispatchView

if TYPE_CHECKING:
    from pydantic_ai import Agent
    from pydantic_ai.models import Model
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.usage import RunUsage

ToolFactory = Callable[[Any], Sequence[Callable[..., object]]]
"""Makes the tools for a dispatch: functions with annotations and a docstring."""


class ModelLimits(Value):
    """The limits of one dispatch."""

    seconds: float = 300.0
    """All requests, retries and tools of the dispatch together."""
    requests: int = 25
    """Answers of the model; each round of tool calls needs one."""
    retries: int = 2
    """Of one request that failed temporarily; the provider's Retry-After is respected."""
    again: int = 1
    """How often the model is asked again in the dispatch after an unreadable answer."""
    output_tokens: int = 16_000
    """Of one answer."""
    answer_bytes: int = 200_000
    """Of a whole answer, as JSON."""
    tool_chars: int = 50_000
    """Of a tool's output; the rest is cut off, and the model is told."""


class BadModelError(ValueError):
    """A model that cannot be used at all: no such name, no key, a package that is missing."""


def model_agent(
    model: str,
    *,
    instructions: str = "",
    tools: ToolFactory | None = None,
    text_only: bool = False,
    limits: ModelLimits = ModelLimits(),  # noqa: B008 - frozen
) -> AgentFunction:
    """Make an agent that is a language model.

    `instructions` are added to those of the definition; `tools` returns the functions that the
    model may call in a dispatch. `text_only`: its server takes no tools, although the provider's
    usually do. Raises `BadModelError`.
    """
    runner = _ModelRunner(model, instructions, tools, limits, text_only=text_only)

    async def model_turn(dispatch: DispatchInput) -> Result:
        return await runner.run_dispatch(dispatch)

    return model_turn


class _ModelRunner:
    """One model with its limits; the dispatches of one event loop share connections."""

    def __init__(
        self,
        name: str,
        instructions: str,
        tools: ToolFactory | None,
        limits: ModelLimits,
        *,
        text_only: bool,
    ) -> None:
        self.name, self.instructions, self.tools, self.limits = name, instructions, tools, limits
        self.text_only = text_only
        self._models: dict[asyncio.AbstractEventLoop, Model] = {}
        _load_model(name)  # report a wrong name at once, not in the middle of a run

    async def run_dispatch(self, dispatch_input: DispatchInput) -> Result:
        from pydantic_ai.usage import RunUsage

        dispatch, run_usage = as_dispatch_view(dispatch_input), RunUsage()
        model = self._model()
        try:
            async with model:
                output = await self._request_answer(model, dispatch_input, dispatch, run_usage)
            return self._to_result(output, run_usage)
        except AgentFailedError:
            raise
        except Exception as error:  # any error of a provider's library costs the attempt
            reason = describe_model_error(
                error, self.name, step_id_of(dispatch), self.limits.seconds
            )
            raise AgentFailedError(reason, to_usage(run_usage)) from None

    async def _request_answer(
        self,
        model: "Model",
        dispatch_input: DispatchInput,
        dispatch: DispatchView,
        run_usage: "RunUsage",
    ) -> object:
        from pydantic_ai.usage import UsageLimits

        limits = self.limits
        run_result = await self._build_agent(model, dispatch_input, dispatch).run(
            prompt.render_user_prompt(dispatch),
            usage=run_usage,
            usage_limits=UsageLimits(
                request_limit=limits.requests, total_tokens_limit=_tokens_left(dispatch)
            ),
            timeout=limits.seconds,
            model_settings=_request_settings(model, limits),
        )
        return run_result.output

    def _build_agent(
        self, model: "Model", dispatch_input: DispatchInput, dispatch: DispatchView
    ) -> "Agent[None, Any]":
        from pydantic_ai import Agent, ModelRetry

        by_tool = not self.text_only and model.profile.get("supports_tools", True)
        functions = self.tools(dispatch_input) if self.tools is not None and by_tool else ()
        agent: Agent[None, Any] = Agent(
            model,
            output_type=_output_type(dispatch, by_tool=by_tool),
            instructions=prompt.render_instructions(dispatch, self.instructions, by_tool=by_tool),
            tools=[_wrap_tool(function, self.limits.tool_chars) for function in functions],
            retries=self.limits.again,
            deps_type=type(None),
        )

        def check_readable(output: Any) -> Any:  # noqa: ANN401 - whatever the model said
            if not isinstance(output, str):
                try:
                    structured_answers.parse_answer(output, Usage())
                except ValueError as error:
                    raise ModelRetry(f"That is no answer: {error}. Answer again.") from None
            return output

        agent.output_validator(check_readable)
        return agent

    def _to_result(self, output: object, run_usage: "RunUsage") -> Result:
        turn_usage = to_usage(run_usage)
        length, bytes_max = len(msgspec.json.encode(output)), self.limits.answer_bytes
        if length > bytes_max:
            raise AgentFailedError(
                f"the model '{self.name}' answered with {length} bytes, at most "
                f"{bytes_max} are taken;"
                " ask for less at once, or raise answer_bytes",
                turn_usage,
            )
        return (
            Result(text=output, usage=turn_usage)
            if isinstance(output, str)
            else structured_answers.parse_answer(output, turn_usage)
        )

    def _model(self) -> "Model":
        loop = asyncio.get_running_loop()
        if loop not in self._models:
            open_models = {
                other_loop: model
                for other_loop, model in self._models.items()
                if not other_loop.is_closed()
            }
            self._models = {**open_models, loop: _load_model(self.name)}
        return self._models[loop]


def _load_model(name: str) -> "Model":
    """Load the model of that name, with what its provider needs."""
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError:
        message = f"the model '{name}' needs a package that is not installed"
        raise BadModelError(f"{message}; {install_hint('models')}") from None
    try:
        return infer_model(name)
    except (UserError, ImportError, ValueError) as error:
        reason = redact_secrets(str(error)).rstrip(".")
        raise BadModelError(
            f"the model '{name}' cannot be used: {reason}; give PROVIDER:MODEL, its key in the"
            " provider's variable, and install what the provider needs"
        ) from None


def _request_settings(model: "Model", limits: ModelLimits) -> "ModelSettings":
    """Return the settings of each request, without those that the model does not support."""
    settings: ModelSettings = {"max_tokens": limits.output_tokens}
    if "max_retries" not in model.unsupported_settings:
        settings["max_retries"] = limits.retries
    return settings


def _tokens_left(dispatch: DispatchView) -> int | None:
    """Return the tokens left in the run's budget; None if it has no budget."""
    briefing = dispatch.briefing
    tokens_max = briefing.limits.get("max_tokens")
    return None if tokens_max is None else max(0, tokens_max - briefing.used.tokens)


def _output_type(dispatch: DispatchView, *, by_tool: bool) -> Any:  # noqa: ANN401 - pydantic-ai's
    """Return how the model answers: by a tool, in text, or in JSON."""
    from pydantic_ai import PromptedOutput, StructuredDict, ToolOutput

    allows_text = bool(prompt.protocol_lines(dispatch))
    if allows_text and not by_tool:
        return str
    schema = StructuredDict(structured_answers.answer_schema(dispatch), name=prompt.ANSWER_TOOL)
    if not by_tool:
        return PromptedOutput(schema)
    tool = ToolOutput(
        schema, name=prompt.ANSWER_TOOL, description="Your answer; it ends the turn.", strict=False
    )
    return [tool, str] if allows_text else tool


def _wrap_tool(function: Callable[..., object], chars_max: int) -> Callable[..., object]:
    """Wrap the tool so that the model sees its errors, and that its output was cut."""
    from pydantic_ai import ToolFailed

    def truncate(output: object) -> object:
        cut_chars = len(output) - chars_max if isinstance(output, str) else 0
        return (
            f"{str(output)[:chars_max]}\n… ({cut_chars} more characters)"
            if cut_chars > 0
            else output
        )

    @functools.wraps(function)
    async def call_async(*args: object, **kwargs: object) -> object:
        try:
            return truncate(await cast("Awaitable[object]", function(*args, **kwargs)))
        except Exception as error:
            raise ToolFailed(redact_secrets(describe_error(error))) from None

    @functools.wraps(function)
    def call_sync(*args: object, **kwargs: object) -> object:
        try:
            return truncate(function(*args, **kwargs))
        except Exception as error:
            raise ToolFailed(redact_secrets(describe_error(error))) from None

    return call_async if inspect.iscoroutinefunction(function) else call_sync


def to_usage(run_usage: "RunUsage") -> Usage:
    """Return the usage as runs count it; an unknown price is 0."""
    tokens = min(max(0, run_usage.total_tokens), FIGURE_MAX)
    return Usage(tokens=tokens, cost=min(max(0.0, float(run_usage.cost or 0)), float(FIGURE_MAX)))

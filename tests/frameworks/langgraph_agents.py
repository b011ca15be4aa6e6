"""Agents of LangChain's `create_agent` with a stub model, for tests of the LangGraph adapter."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

INPUT = {"messages": [("user", "go")]}


class StubModel(BaseChatModel):
    """Answers from a list, and keeps what it was asked."""

    answers: list[AIMessage] = []
    requests: list[list[Any]] = []

    @property
    def _llm_type(self) -> str:
        return "stub"

    def bind_tools(self, tools: object, **options: object) -> "StubModel":
        return self

    def _generate(self, messages: list[Any], *args: Any, **options: Any) -> ChatResult:
        self.requests.append(messages)
        answer = self.answers[len(self.requests) - 1]
        return ChatResult(generations=[ChatGeneration(message=answer)])

    @property
    def nudges(self) -> list[str]:
        lasts = [messages[-1] for messages in self.requests]
        return [last.content for last in lasts if isinstance(last, HumanMessage)][1:]


def tool_call(number: int, euros: int = 5, name: str = "pay") -> dict[str, Any]:
    return {"name": name, "args": {"euros": euros}, "id": f"c{number}"}


def asks(*calls: dict[str, Any]) -> AIMessage:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return AIMessage("", tool_calls=list(calls), usage_metadata=usage)


def model_of(*answers: AIMessage) -> StubModel:
    return StubModel(answers=list(answers), requests=[])


def endless_model() -> StubModel:
    """A model that calls the same tool with the same arguments for ever."""
    return model_of(*(asks(tool_call(number)) for number in range(99)))


class Till:
    """Payments, and the tool that makes them."""

    def __init__(self) -> None:
        self.payments: list[int] = []

        @tool
        def pay(euros: int) -> str:
            """Pays."""
            self.payments.append(euros)
            return f"{euros} paid"

        self.tool: BaseTool = pay


def paying_agent(till: Till, model: StubModel, *middleware: Any, name: str | None = "clerk") -> Any:
    return create_agent(
        model, [till.tool], middleware=middleware, name=name, checkpointer=InMemorySaver()
    )


def gated_agent(till: Till, *euros: int, allowed: object = True, mode: str = "batched") -> Any:
    """An agent that asks a person before it pays, all sums at once."""
    calls = [tool_call(number, sum_of) for number, sum_of in enumerate(euros)]
    gate = HumanInTheLoopMiddleware({"pay": allowed}, interrupt_mode=mode)
    return paying_agent(till, model_of(asks(*calls), AIMessage("well then")), gate)


def thread(name: str = "1") -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}

"""LangGraph: nodes that send each other on by `Command`, with a stub chat model."""

import os
from typing import Annotated, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command

from benchmarks.same_mistake.scenes import Script
from handrail import Guard
from handrail.guard import langgraph as adapter

os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")
DISTRIBUTION = "langgraph"
LIMIT = "recursion_limit, by default"
CAP = 20_000  # beyond its own


class State(TypedDict):
    messages: Annotated[list[BaseMessage], add_messages]


class Stub(BaseChatModel):
    script: object

    @property
    def _llm_type(self) -> str:
        return "stub"

    def _generate(self, messages, stop=None, run_manager=None, **given):
        tokens = self.script.answer()
        usage = {"input_tokens": 0, "output_tokens": tokens, "total_tokens": tokens}
        answer = AIMessage(self.script.text(), usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def save(section: int) -> str:
    """Saves a section."""
    return f"section {section} is saved"


def graph(script: Script):
    model = Stub(script=script)

    def node(name: str):
        def turn(state: State) -> Command:
            answer = model.invoke(state["messages"][-1:])
            if section := script.wants_to_save(name):
                save.invoke({"section": section})
            update = {"messages": [answer]} if script.scene.grows else {}
            return Command(goto=script.next() or END, update=update)

        return turn

    built = StateGraph(State)
    for name in script.scene.agents:
        built.add_node(name, node(name), destinations=(*script.scene.agents, END))
    built.add_edge(START, script.agent(0))
    return built.compile()


INPUT = {"messages": [("user", "begin")]}


def bare(script: Script) -> str:
    graph(script).invoke(INPUT)
    return "done"


def guarded(script: Script, guard: Guard) -> str:
    adapter.guarded(graph(script), guard).invoke(INPUT)
    return "done"

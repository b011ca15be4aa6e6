"""The shapes of LangGraph's tutorials, with stub models: each ends by itself, and none is stopped.

Each shape is what its tutorial builds, in a few lines. A model is a list of what it answers.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

import pytest

from handrail.guard.errors import StoppedError

pytest.importorskip("langgraph")

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt

from handrail import Guard
from handrail.guard.langgraph import guarded, nudge_messages

Says = Callable[[int], AIMessage]
"""What a stub model answers when it is asked for the nth time."""
CONFIG = {"recursion_limit": 200}
TOPICS = ("oak", "elm", "ash", "fir", "yew", "bay", "fig", "may", "box", "gum", "nut", "sal")


class Model(BaseChatModel):
    """Says what it is told to."""

    says: Any
    asked: int = 0

    @property
    def _llm_type(self) -> str:
        return "stub"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any):
        self.asked += 1
        return ChatResult(generations=[ChatGeneration(message=self.says(self.asked))])


def model(*answers: Any) -> Model:
    """A model that gives these answers in turn, and the last one from then on."""
    return Model(says=lambda n: message(answers[min(n, len(answers)) - 1], n))


def message(answer: Any, n: int = 0) -> AIMessage:
    """A text, or calls of tools: (name, arguments)."""
    if isinstance(answer, str):
        return AIMessage(answer)
    calls = [
        {"name": name, "args": given, "id": f"c{n}-{i}"} for i, (name, given) in enumerate(answer)
    ]
    return AIMessage("", tool_calls=calls)


class Chat(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"a page about {query}: it grows in many places, and is described at length there"


@tool
def run_query(sql: str) -> str:
    """Run SQL."""
    if "nmae" in sql:
        return "Error: no such column: nmae"
    return f"[('Anna', {len(sql)})]"


def react(answers: Sequence[Any], tools: Sequence[Any] = (search,)) -> Any:
    """An agent with tools."""
    llm = model(*answers)
    graph = StateGraph(Chat)
    graph.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(list(tools)))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile()


def react_with_searches() -> Any:
    return react([*([("search", {"query": topic})] for topic in TOPICS), "that is all"])


def react_with_retries() -> Any:
    """The same question twice, as models do, and then another one."""
    asks = ["oak", "oak", "elm", "elm", "oak", "ash"]
    return react([*([("search", {"query": topic})] for topic in asks), "that is all"])


def sql_agent() -> Any:
    """Lists tables, looks at the schema, writes a query, corrects it, answers."""
    queries = [
        "select name from sqlite_master",
        "select sql from sqlite_master",
        "select nmae from customers",
        "select name from customers",
        "select name, count(*) from customers group by name",
    ]
    return react([*([("run_query", {"sql": sql})] for sql in queries), "Anna"], [run_query])


class Rag(TypedDict):
    question: str
    documents: list[str]
    generation: str
    tries: int


def rag(*, grade: Callable[[Rag], bool], accept: Callable[[Rag], bool]) -> Any:
    """Retrieve, grade, rewrite the question or generate, check the answer: agentic, corrective and
    self-RAG differ in what they grade.
    """
    rewriter, writer = model(*(f"better question about {t}" for t in TOPICS)), model("answer", "b")

    def retrieve(state: Rag) -> dict[str, Any]:
        return {"documents": [f"document on {state['question']}"], "tries": state["tries"] + 1}

    def rewrite(state: Rag) -> dict[str, Any]:
        return {"question": rewriter.invoke(state["question"]).content}

    def generate(state: Rag) -> dict[str, Any]:
        return {"generation": writer.invoke(str(state["documents"])).content}

    graph = StateGraph(Rag)
    graph.add_node("retrieve", retrieve)
    graph.add_node("grade_documents", lambda state: {"documents": state["documents"]})
    graph.add_node("rewrite", rewrite)
    graph.add_node("generate", generate)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "grade_documents")
    graph.add_conditional_edges(
        "grade_documents",
        lambda state: "generate" if grade(state) else "rewrite",
        ["generate", "rewrite"],
    )
    graph.add_edge("rewrite", "retrieve")
    graph.add_conditional_edges(
        "generate", lambda state: END if accept(state) else "rewrite", [END, "rewrite"]
    )
    return graph.compile()


class Coding(TypedDict):
    error: str
    code: str
    iterations: int


def code_assistant(tries: int) -> Any:
    """Generates code and checks it until it runs; the errors differ."""
    writer = model(*(f"def solve(): return {topic}" for topic in TOPICS))

    def generate(state: Coding) -> dict[str, Any]:
        code = writer.invoke(state["error"]).content
        return {"code": code, "iterations": state["iterations"] + 1}

    def check(state: Coding) -> dict[str, Any]:
        name = state["code"].rpartition(" ")[2]
        is_good = state["iterations"] >= tries
        return {"error": "" if is_good else f"NameError: name '{name}' is not defined"}

    graph = StateGraph(Coding)
    graph.add_node("generate", generate)
    graph.add_node("check_code", check)
    graph.add_edge(START, "generate")
    graph.add_edge("generate", "check_code")
    graph.add_conditional_edges(
        "check_code", lambda state: "generate" if state["error"] else END, ["generate", END]
    )
    return graph.compile()


class Topics(TypedDict):
    subjects: list[str]
    jokes: Annotated[list[str], operator.add]
    best: str


def map_reduce(width: int) -> Any:
    graph = StateGraph(Topics)
    graph.add_node("topics", lambda state: {"subjects": [f"topic {n}" for n in range(width)]})
    graph.add_node("joke", lambda state: {"jokes": [f"a joke about {state['subject']}"]})
    graph.add_node("best", lambda state: {"best": state["jokes"][0]})
    graph.add_edge(START, "topics")
    graph.add_conditional_edges(
        "topics",
        lambda state: [Send("joke", {"subject": subject}) for subject in state["subjects"]],
        ["joke"],
    )
    graph.add_edge("joke", "best")
    graph.add_edge("best", END)
    return graph.compile()


def network(rounds: int) -> Any:
    """Agents that hand over to each other as they like, by `Command`."""
    texts = {
        name: model(*(f"{name} on {topic}" for topic in TOPICS))
        for name in ("travel", "hotels", "flights")
    }
    order = ("travel", "hotels", "travel", "flights")

    def agent(name: str) -> Any:
        def work(state: Chat) -> Any:
            done = len(state["messages"])
            goto = END if done > rounds else order[done % len(order)]
            return Command(goto=goto, update={"messages": [texts[name].invoke(state["messages"])]})

        return work

    graph = StateGraph(Chat)
    for name in texts:
        graph.add_node(name, agent(name), destinations=(*texts, END))
    graph.add_edge(START, "travel")
    return graph.compile()


def supervisor_with_agents(asks: int) -> Any:
    """A supervisor that lets two agents with tools work, each a graph of its own."""
    workers = {
        name: react(
            [x for topic in TOPICS for x in ([("search", {"query": f"{name} {topic}"})], topic)]
        )
        for name in ("research", "math")
    }

    def supervise(state: Chat) -> Any:
        done = sum(m.content in TOPICS for m in state["messages"])
        goto = END if done >= asks else ("research", "math")[done % 2]
        return Command(goto=goto)

    graph = StateGraph(Chat)
    graph.add_node("supervisor", supervise, destinations=(*workers, END))
    for name, worker in workers.items():
        graph.add_node(name, worker)
        graph.add_edge(name, "supervisor")
    graph.add_edge(START, "supervisor")
    return graph.compile()


class Review(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    revisions: int


def reflexion(rounds: int) -> Any:
    """Drafts, looks up what the critique asks for, revises."""
    writer = model(*(f"draft with {topic}" for topic in TOPICS))

    graph = StateGraph(Review)
    graph.add_node("draft", lambda state: {"messages": [writer.invoke(state["messages"])]})
    graph.add_node(
        "look_up",
        lambda state: {
            "messages": [AIMessage(f"source {state['revisions']}")],
            "revisions": state["revisions"] + 1,
        },
    )
    graph.add_node("revise", lambda state: {"messages": [writer.invoke(state["messages"])]})
    graph.add_edge(START, "draft")
    graph.add_edge("draft", "look_up")
    graph.add_edge("look_up", "revise")
    graph.add_conditional_edges(
        "revise", lambda s: END if s["revisions"] >= rounds else "look_up", ["look_up", END]
    )
    return graph.compile()


def chat(text: str = "please help") -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def rag_input() -> dict[str, Any]:
    return {"question": "trees?", "documents": [], "generation": "", "tries": 0}


FLOWS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "react with searches": (react_with_searches, chat()),
    "react that asks twice": (react_with_retries, chat()),
    "sql agent": (sql_agent, chat()),
    "agentic rag": (lambda: rag(grade=lambda s: s["tries"] > 2, accept=bool), rag_input()),
    "corrective rag": (lambda: rag(grade=lambda s: s["tries"] > 5, accept=bool), rag_input()),
    "self rag": (
        lambda: rag(grade=lambda s: s["tries"] % 2 == 0, accept=lambda s: s["tries"] > 6),
        rag_input(),
    ),
    "code assistant": (lambda: code_assistant(6), {"error": "", "code": "", "iterations": 0}),
    "map-reduce": (lambda: map_reduce(40), {"subjects": [], "jokes": [], "best": ""}),
    "network": (lambda: network(10), chat()),
    "supervisor": (lambda: supervisor_with_agents(8), chat()),
    "reflexion": (lambda: reflexion(7), {**chat(), "revisions": 0}),
}


@pytest.mark.parametrize("name", FLOWS)
def test_a_tutorial_s_flow_ends_by_itself(name: str) -> None:
    make, given = FLOWS[name]
    assert shown(guarded(make()).invoke(given, CONFIG)) == shown(make().invoke(given, CONFIG))


def shown(state: dict[str, Any]) -> dict[str, Any]:
    """Without the random ids of messages."""
    return {
        key: [getattr(item, "content", item) for item in value]
        if isinstance(value, list)
        else value
        for key, value in state.items()
    }


def customer_support(thread: str, guard: Guard) -> tuple[Any, dict[str, Any]]:
    """An assistant whose sensitive tools a person has to approve."""

    @tool
    def book(hotel: str) -> str:
        """Book a hotel."""
        return f"booked {hotel}" if interrupt(f"book {hotel}?") == "yes" else "refused"

    answers = [x for topic in TOPICS for x in ([("book", {"hotel": topic})], f"booked {topic}")]
    llm = model(*answers)
    graph = StateGraph(Chat)
    graph.add_node("assistant", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([book]))
    graph.add_edge(START, "assistant")
    graph.add_conditional_edges("assistant", tools_condition)
    graph.add_edge("tools", "assistant")
    compiled = graph.compile(checkpointer=InMemorySaver())
    config = {**CONFIG, "configurable": {"thread_id": thread}}
    return guarded(compiled, guard, answer=lambda value: "yes"), config


def test_a_chat_with_approvals_goes_on_for_many_turns_of_one_thread() -> None:
    guard = Guard()
    team, config = customer_support("chat 1", guard)
    for topic in TOPICS:
        state = team.invoke(chat(f"book {topic}"), config)
        assert state["messages"][-1].content == f"booked {topic}"


def test_a_chat_that_turns_in_circles_is_stopped_though_every_turn_is_short() -> None:
    llm = model("let me check that for you")
    graph = StateGraph(Chat)
    graph.add_node("assistant", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_edge(START, "assistant")
    graph.add_edge("assistant", END)
    team = guarded(graph.compile(checkpointer=InMemorySaver()))
    turns = 0
    with pytest.raises(StoppedError):
        for turns in range(10):  # noqa: B007 - counted
            team.invoke(chat("and now?"), {"configurable": {"thread_id": "7"}})
    assert turns < 5


def test_the_graph_s_recursion_limit_stays_in_force() -> None:
    errors = pytest.importorskip("langgraph.errors")
    with pytest.raises(errors.GraphRecursionError):
        guarded(react_with_searches()).invoke(chat(), {"recursion_limit": 5})
    with pytest.raises(errors.GraphRecursionError):
        react_with_searches().invoke(chat(), {"recursion_limit": 5})


def test_a_poll_of_fifty_calls_is_no_loop() -> None:
    @tool
    def status(job: str) -> str:
        """Ask for the status of a job."""
        calls.append(job)
        return "running" if len(calls) < 50 else "done: 42"

    calls: list[str] = []
    llm = Model(
        says=lambda n: message([("status", {"job": "7"})] if len(calls) < 50 else "it is 42", n)
    )
    graph = StateGraph(Chat)
    graph.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([status]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    assert guarded(graph.compile()).invoke(chat(), CONFIG)["messages"][-1].content == "it is 42"


def test_undo_check_and_redo_is_no_loop() -> None:
    """A careful engineer undoes the fix, sees the test fail, applies it again, sees it pass."""

    @tool
    def edit(patch: str) -> str:
        """Apply a patch."""
        patches.append(patch)
        return f"{patch} applied"

    @tool
    def run_tests() -> str:
        """Run the tests."""
        return "1 passed" if patches[-1:] == ["fix"] else "E assert 1 == 2\n1 failed"

    patches: list[str] = []
    test = [("run_tests", {})]
    answers = [test, *([("edit", {"patch": p})] for p in ("fix",)), test]
    answers += [[("edit", {"patch": "undo"})], test, [("edit", {"patch": "fix"})], test, "fixed"]
    result = guarded(react(answers, [edit, run_tests])).invoke(chat(), CONFIG)
    assert result["messages"][-1].content == "fixed"


@pytest.mark.parametrize(
    "answer",
    [[("search", {"query": "oak"})], "I will look into it and then write the plan"],
    ids=["the same click", "the same plan"],
)
def test_the_same_again_is_stopped_at_the_tenth_time_at_the_latest(answer: Any) -> None:
    llm = model(answer)
    graph = StateGraph(Chat)
    graph.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([search]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "agent"})
    graph.add_edge("tools", "agent")
    with pytest.raises(StoppedError):
        guarded(graph.compile()).invoke(chat(), CONFIG)
    assert llm.asked <= 10


def test_two_agents_that_say_the_same_to_each_other_are_stopped_by_the_tenth_round() -> None:
    models = {name: model(f"{name}: please go ahead") for name in ("a", "b")}
    graph = StateGraph(Chat)
    for name, llm in models.items():
        graph.add_node(name, lambda state, llm=llm: {"messages": [llm.invoke(state["messages"])]})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", "a")
    with pytest.raises(StoppedError):
        guarded(graph.compile()).invoke(chat(), CONFIG)
    assert models["a"].asked <= 10


def test_a_node_can_tell_its_model_that_a_rule_is_near() -> None:
    inputs: list[str] = []
    llm = model([("search", {"query": "oak"})])

    def agent(state: Chat) -> Any:
        messages = [*state["messages"], *nudge_messages()]
        inputs.append(str(messages))
        return {"messages": [llm.invoke(messages)]}

    graph = StateGraph(Chat)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([search]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    with pytest.raises(StoppedError):
        guarded(graph.compile()).invoke(chat(), CONFIG)
    assert sum("The stop rule" in text for text in inputs) == 1
    assert nudge_messages() == []

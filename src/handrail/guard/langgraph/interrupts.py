"""People in the loop: interrupts of a graph become questions, and answers become what the graph is
resumed with.

LangChain's `HumanInTheLoopMiddleware` asks about actions: each is a question of its own, in words.
A yes approves, a JSON object replaces the arguments, any other text rejects the call and says why,
or responds in the tool's place if that is all that is allowed. Any other interrupt is asked as it
is: a JSON object that a person types is parsed, a yes without text is True, and else the text is
the answer.

An `answer` function is asked the same; what it returns for an interrupt that is not LangChain's is
passed on as it is. The graph is resumed once with all answers, because each resumption runs the
interrupted nodes again. Only interrupts that check their answers are resumed one by one, as
LangChain asks.
"""

import asyncio
import inspect
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from handrail.guard.adapter import RunWatch, import_framework, to_text
from handrail.guard.approvals import (
    ASKS_PER_RUN_MAX,
    TOOL_OPTIONS,
    ask_person,
    ask_person_async,
)
from handrail.guard.langgraph.framework import EXTRA
from handrail.guard.langgraph.nodes import AGENT_NODE
from handrail.kernel.definition.reader import is_mapping
from handrail.kernel.run.answer_text import AnswerIntent, classify_answer

AnswerFunction = Callable[[Any], object]
"""Maps a question to its answer; may be asynchronous."""
DEFAULT_NAME = "LangGraph"
"""What LangGraph calls a graph that nobody named."""
DEFAULT_DESCRIPTION = "Tool execution requires approval"
"""How LangChain's own description of an action begins."""
REASON_CHARS_MAX = 300
"""Characters of the reason why an answer does not fit."""
DECISIONS = ("approve", "edit", "reject", "respond")


class ActionQuestion(str):
    """The question whether an agent may call a tool, in words; `name` and `args` are the call,
    `options` the answers that need no text.
    """

    __slots__ = ("args", "name", "options")

    def __new__(
        cls, text: str, name: str, args: Mapping[str, Any], options: tuple[str, ...] = ()
    ) -> "ActionQuestion":
        question = super().__new__(cls, text)
        question.name, question.args, question.options = name, args, options
        return question


class InterruptAnswer(msgspec.Struct, frozen=True):
    """What came of a question: any value, also None, and whether a person typed it."""

    value: Any
    by_person: bool = False


class InterruptAnswers:
    """Answers the interrupts of one run, at most `ASKS_PER_RUN_MAX` questions."""

    def __init__(self, watch: RunWatch, team: str, answer: AnswerFunction | None) -> None:
        self.watch, self.team, self.answer = watch, team, answer
        self.asked_count, self.refusal = 0, ""
        """How often was asked; why the last answer was not taken, for the person who gave it."""

    def resume_command(self, interrupts: tuple[Any, ...]) -> Any:
        """Return the command that resumes the graph; None if it stays interrupted."""
        steps = self._command_steps(interrupts)
        try:
            question = next(steps)
            while True:
                question = steps.send(self._ask(question))
        except StopIteration as end:
            return end.value

    async def resume_command_async(self, interrupts: tuple[Any, ...]) -> Any:
        """Like `resume_command`, without blocking the event loop while a person thinks."""
        steps = self._command_steps(interrupts)
        try:
            question = next(steps)
            while True:
                question = steps.send(await self._ask_async(question))
        except StopIteration as end:
            return end.value

    def _ask(self, question: object) -> InterruptAnswer | None:
        if self.answer is None:
            reply = ask_person(self.watch, question, getattr(question, "options", ()))
            return None if reply is None else InterruptAnswer(reply.text, by_person=True)
        value = self.answer(question)
        if inspect.isawaitable(value):
            with ThreadPoolExecutor(1) as pool:  # the caller may be in an event loop
                value = pool.submit(asyncio.run, _finish(value)).result()
        self._trace_answer()
        return InterruptAnswer(value)

    async def _ask_async(self, question: object) -> InterruptAnswer | None:
        if self.answer is None:
            options = getattr(question, "options", ())
            reply = await ask_person_async(self.watch, question, options)
            return None if reply is None else InterruptAnswer(reply.text, by_person=True)
        value = self.answer(question)
        value = await value if inspect.isawaitable(value) else value
        self._trace_answer()
        return InterruptAnswer(value)

    def _trace_answer(self) -> None:
        if self.watch.run.trace is not None:
            self.watch.run.trace.add_approval("", answered=True)

    def _command_steps(
        self, interrupts: tuple[Any, ...]
    ) -> Generator[object, InterruptAnswer | None, Any]:
        """Yield each question, receive its answer, and return the command."""
        if not interrupts or self.watch.stop is not None:
            return None
        checks_answers = any(getattr(i, "response_schema", None) for i in interrupts)
        values: dict[str, Any] = {}
        for interrupt in interrupts[:1] if checks_answers else interrupts:
            answer = yield from self._value_steps(interrupt.value, interrupt)
            if answer is None:
                return None
            values[interrupt.id] = answer.value
        return import_framework("langgraph.types", EXTRA).Command(resume=values)

    def _value_steps(
        self, value: Any, interrupt: Any
    ) -> Generator[object, InterruptAnswer | None, InterruptAnswer | None]:
        """Return what one interrupt is resumed with."""
        request: Mapping[str, Any] = value if is_mapping(value) else {}
        actions: Any = request.get("action_requests")
        if request.get("type") == "tool_approval" and _is_action(request):
            allowed = _allowed_by_schema(getattr(interrupt, "response_schema", None))
            return (yield from self._decision_steps(request, allowed))
        if not actions or not _is_list(actions) or not all(map(_is_action, actions)):
            return (yield from self._plain_steps(value))
        decisions: list[Any] = []
        for action in actions:
            allowed = _allowed_in_review(request.get("review_configs"), action["name"])
            answer = yield from self._decision_steps(action, allowed)
            if answer is None:
                return None
            if is_mapping(answer.value) and "decisions" in answer.value:
                return answer  # one answer for all actions
            decisions.append(answer.value)
        return InterruptAnswer({"decisions": decisions})

    def _plain_steps(
        self, value: Any
    ) -> Generator[object, InterruptAnswer | None, InterruptAnswer | None]:
        answer = yield from self._question_steps(value)
        if answer is None or not answer.by_person:
            return answer
        parsed = _parse_object(answer.value)
        return InterruptAnswer(parsed if parsed is not None else answer.value or True)

    def _decision_steps(
        self, action: Mapping[str, Any], allowed: tuple[str, ...]
    ) -> Generator[object, InterruptAnswer | None, InterruptAnswer | None]:
        """Ask about one action until the answer is one that is allowed."""
        text = self._describe(action, allowed)
        while True:
            options = tuple(option for option in TOOL_OPTIONS if option in allowed)
            text_now, self.refusal = self.refusal + text, ""
            question = ActionQuestion(text_now, action["name"], action["args"], options)
            answer = yield from self._question_steps(question)
            if answer is None:
                return None
            decision = _decide(answer.value, action["name"], allowed)
            kind = decision.get("type") if is_mapping(decision) else None
            if kind in allowed or (is_mapping(decision) and "decisions" in decision):
                return InterruptAnswer(decision)
            if not answer.by_person:
                message = f"the answer to {text!r} is {answer.value!r}"
                raise ValueError(f"{message}; it has to mean one of: {', '.join(allowed)}")
            self.refusal = f"{kind!r} is not allowed here. "

    def refuse(self, error: Exception) -> bool:
        """Return whether a person's answer was refused by its schema, and may be given again."""
        errors = import_framework("langgraph.errors", EXTRA)
        is_refusal = getattr(errors, "is_invalid_resume", None)  # schemas are newer than 1.2
        if self.answer is not None or is_refusal is None or not is_refusal(error):
            return False
        reason = " ".join(str(error).splitlines()[:3])
        self.refusal = f"The answer does not fit: {reason[:REASON_CHARS_MAX]}. "
        return True

    def _question_steps(
        self, question: object
    ) -> Generator[object, InterruptAnswer | None, InterruptAnswer | None]:
        if self.asked_count >= ASKS_PER_RUN_MAX:
            return None
        self.asked_count += 1
        refusal, self.refusal = self.refusal, ""
        return (yield refusal + to_text(question) if refusal else question)

    def _describe(self, action: Mapping[str, Any], allowed: tuple[str, ...]) -> str:
        """Return the question in words: who wants to call what, and what may be answered."""
        lines = [f"{self._agent()} wants to call {action['name']}({to_text(action['args'])})"]
        own_words = f"\n\nTool: {action['name']}\nArgs: {action['args']}"
        description = str(action.get("description") or "").removesuffix(own_words)
        if description not in ("", DEFAULT_DESCRIPTION):
            lines.append(description)
        choices = [ANSWER_BY_DECISION[decision] for decision in DECISIONS if decision in allowed]
        return "\n".join([*lines, f"Answer with {', or '.join(choices)}."])

    def _agent(self) -> str:
        """Return the agent that asks; of LangChain's agents the node is called as any other's."""
        path, _, node = self.watch.active_agent.rpartition("/")
        agent = path if node == AGENT_NODE else self.watch.active_agent
        return agent or (self.team if self.team != DEFAULT_NAME else "agent")


ANSWER_BY_DECISION = {
    "approve": "a yes to run it",
    "edit": "a JSON object of other arguments",
    "reject": "the reason why it must not run",
    "respond": "what to say in its place",
}


def _decide(value: Any, name: str, allowed: tuple[str, ...]) -> Any:
    """Return the decision, in LangChain's form, that an answer means."""
    if isinstance(value, str):
        text = value.strip()
        value = _parse_object(text)
        if value is None:
            return _decide_text(text, allowed)
    if isinstance(value, bool):
        return {"type": "approve"} if value else {"type": "reject"}
    if not is_mapping(value) or value.get("type") in DECISIONS or "decisions" in value:
        return value
    if set(value) == {"name", "args"}:
        return {"type": "edit", "edited_action": value}
    return {"type": "edit", "edited_action": {"name": name, "args": value}}


def _decide_text(text: str, allowed: tuple[str, ...]) -> dict[str, str]:
    is_yes = not text or classify_answer(text) is AnswerIntent.APPROVE
    if is_yes and ("approve" in allowed or not text):
        return {"type": "approve"}
    if text == "reject":
        return {"type": "reject"}
    says = "respond" if "reject" not in allowed and "respond" in allowed else "reject"
    return {"type": says, "message": text}


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is, or None."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def _is_list(value: Any) -> bool:
    return type(value) is list


def _is_action(value: Any) -> bool:
    """Return whether a value has the form of LangChain's request for an action."""
    return is_mapping(value) and "name" in value and is_mapping(value.get("args"))


def _allowed_in_review(configs: Any, name: str) -> tuple[str, ...]:
    """Return the decisions that LangChain allows for an action; without a word, all of them."""
    for config in configs if _is_list(configs) else ():
        if is_mapping(config) and config.get("action_name") == name:
            return tuple(config.get("allowed_decisions") or DECISIONS)
    return DECISIONS


def _allowed_by_schema(schema: Any) -> tuple[str, ...]:
    """Return the decisions that the JSON schema of an answer allows."""
    text = to_text(schema)
    allowed = tuple(decision for decision in DECISIONS if f'"const":"{decision}"' in text)
    return allowed or DECISIONS


async def _finish(value: Any) -> Any:
    return await value

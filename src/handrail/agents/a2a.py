"""An agent that speaks A2A as a member of a team, or at a workflow's node.

    worker.add(a2a_agent("https://triage.example.org", token_from="TRIAGE_TOKEN"), "qa-engineer")

Rules
1. A dispatch is a message, and becomes a task over there. While that is submitted or working, the
   turn goes on, and whoever runs it keeps its lease; the task is looked at less and less often.
2. How it ends is the result. Where the agent needs input, a person is asked, and the answer goes to
   the same task with the agent's next turn. Which one that is stands in the bead's context, under
   `a2a`, so that any worker can go on with it.
3. Cancelled, out of time or in trouble, the task over there is cancelled.
4. Only its text counts, as that of a program or a service (`said.py`). How it is asked, and what is
   not taken from it, stands in `a2a_wire.py`. Its token comes from the environment, and stands in
   no message.
"""

import asyncio
import os
from contextlib import suppress
from typing import Any, cast

import httpx
import msgspec

from handrail.agents.a2a_wire import Declined, Remote, Unusable, card_address
from handrail.agents.a2a_words import (
    ASKS,
    ENDED,
    SETTLED,
    TEXT,
    Configuration,
    Message,
    OfTask,
    Part,
    Role,
    SendMessage,
    Sent,
    Task,
    TaskState,
    text_of,
)
from handrail.agents.given import Given, Works, view, who
from handrail.agents.prompt import instructions, turn
from handrail.agents.said import result_of
from handrail.agents.secrets import without_secrets
from handrail.engine.dispatch import DispatchView
from handrail.engine.returned import AgentFailed
from handrail.kernel.decision import Value
from handrail.kernel.result import Outcome, Result

KEPT = "a2a"
"""Where the bead's context has the tasks that wait for an answer: agent -> {task, context}."""
POLL_FIRST, POLL_MORE, POLL_MAX = 0.1, 1.5, 5.0
"""Seconds between two looks at a task, and how they grow."""
TROUBLES_MAX = 5
"""Looks in a row that may fail."""
CANCEL_SECONDS = 2.0
ID_MAX = 200
"""Characters of a name that the agent gave to a task, or to a context."""
TASK_NOT_FOUND, UNSUPPORTED = -32001, -32004
BY_A2A = (
    "You are asked over A2A. Complete the task with your answer as text. Fail it if it cannot be"
    " done. If only a person can say something, ask for input: a person is asked, and you are told"
    " the answer. While you work, nothing else is needed of you."
)
FAILING = {
    TaskState.FAILED: "the agent failed",
    TaskState.REJECTED: "the agent rejected the work",
    TaskState.CANCELED: "the work was cancelled at the agent",
}
"""What such an end says, where the agent says nothing."""
NEEDS = {
    TaskState.INPUT_REQUIRED: "the agent needs input, and does not say which",
    TaskState.AUTH_REQUIRED: "the agent needs an authorization, and does not say which",
}


class RemoteLimits(Value):
    """What one turn may take."""

    seconds: float = 1_500.0
    """Of the whole turn; a node's own time is 30 minutes unless it says otherwise."""
    call_seconds: float = 60.0
    answer_bytes: int = 1_000_000
    text_chars: int = 200_000


def a2a_agent(
    url: str,
    *,
    token_from: str = "",
    limits: RemoteLimits = RemoteLimits(),  # noqa: B008 - frozen
) -> Works:
    """An agent that speaks A2A, by the address of its card or of the place where that lies.
    `token_from` is the variable of the environment that has the token for it."""
    card_address(url)

    async def a2a_turn(dispatch: Given) -> Result:
        given = view(dispatch)
        told = f"the A2A agent {url} of '{who(given)}'"
        token = os.environ.get(token_from, "") if token_from else ""
        if token_from and not token:
            raise AgentFailed(f"{told} needs a token; set {token_from} where its worker runs")
        asked = Remote(url, token, seconds=limits.call_seconds, answer_bytes=limits.answer_bytes)
        try:
            async with asyncio.timeout(limits.seconds), asked as remote:
                return await _Turn(remote, given, limits).taken()
        except TimeoutError:
            wrong = f"has no answer after {limits.seconds:g} s; give it more time, or less to do"
        except httpx.HTTPError as error:
            wrong = f"could not be asked ({type(error).__name__}: {error}); see that it runs"
        except (Unusable, Declined) as error:
            wrong = str(error)
        raise AgentFailed(without_secrets(f"{told} {wrong}", (token,)))

    return a2a_turn


class _Turn:
    """One dispatch at one agent."""

    def __init__(self, remote: Remote, given: DispatchView, limits: RemoteLimits) -> None:
        self.remote, self.given, self.limits = remote, given, limits
        self.known = _kept(given)
        self.sent_to: str | None = None
        """The task that the message went to; None if it begins one."""

    async def taken(self) -> Result:
        sending = asyncio.ensure_future(self._sent())
        try:
            sent = await asyncio.shield(sending)
        except asyncio.CancelledError:
            await self._take_back(sending)
            raise
        if sent.message is not None:
            return self._answered(text_of(sent.message.parts))
        if sent.task is None:
            raise Unusable("answers with neither a task nor a message; see that it speaks A2A")
        task = self._same(sent.task, sent.task.id if self.sent_to is None else self.sent_to)
        try:
            task = await self._settled(task)
        finally:
            if task.status.state not in SETTLED:
                await self._cancel(task.id)
        return self._result(task)

    async def _sent(self) -> Sent:
        """The answer of a person goes to the task that asked for it; if that is gone, or was not
        kept, the work is sent anew, with question and answer in it."""
        if self.known is not None and self.given.answer is not None:
            try:
                sent = await self._send(self.given.answer, **self.known)
            except Declined as error:
                if error.code not in (TASK_NOT_FOUND, UNSUPPORTED):
                    raise
            else:
                self.sent_to = self.known["task"]
                return sent
        said = (instructions(self.given, BY_A2A, by_tool=False), turn(self.given))
        return await self._send("\n\n".join(said))

    async def _send(self, text: str, *, task: str = "", context: str = "") -> Sent:
        message = Message(
            message_id=self.given.key,
            role=Role.USER,
            parts=(Part(text=text, media_type=TEXT),),
            task_id=task,
            context_id=context,
        )
        how = Configuration(
            accepted_output_modes=(TEXT,), return_immediately=True, history_length=0
        )
        params = SendMessage(message=message, configuration=how)
        return await self.remote.call("SendMessage", params, Sent)

    async def _settled(self, task: Task) -> Task:
        """The task once it has ended or asks something."""
        pause, troubles = POLL_FIRST, 0
        asked = OfTask(id=task.id, history_length=0)
        while task.status.state not in SETTLED:  # bounded by the time of the turn
            await asyncio.sleep(pause)
            pause = min(POLL_MAX, pause * POLL_MORE)
            try:
                found = await self.remote.call("GetTask", asked, Task)
            except (httpx.HTTPError, Unusable):
                troubles += 1
                if troubles > TROUBLES_MAX:
                    raise
            else:
                task, troubles = self._same(found, task.id), 0
        return task

    async def _take_back(self, sending: "asyncio.Future[Sent]") -> None:
        """Cancelled before it was known which task became of the message."""
        await asyncio.wait((sending,), timeout=CANCEL_SECONDS)
        sending.cancel()
        (sent,) = await asyncio.gather(sending, return_exceptions=True)
        if isinstance(sent, Sent) and sent.task is not None:
            await self._cancel(sent.task.id)

    async def _cancel(self, task_id: str) -> None:
        """As far as it can be told: whoever cancelled us does not wait for long."""
        with suppress(TimeoutError, httpx.HTTPError, Unusable, Declined):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.remote.call("CancelTask", OfTask(id=task_id), Task)

    def _same(self, task: Task, wanted: str) -> Task:
        """That task, and no other: its names are kept, and it is asked for by them."""
        if task.id != wanted:
            told = f"answers with task '{task.id[:ID_MAX]}' where '{wanted[:ID_MAX]}' was meant"
            raise Unusable(f"{told}; see that it speaks A2A")
        if max(len(task.id), len(task.context_id)) > ID_MAX or "\0" in task.id + task.context_id:
            told = f"names a task or a context with more than {ID_MAX} characters, or odd ones"
            raise Unusable(f"{told}; let it take shorter names")
        return task

    def _result(self, task: Task) -> Result:
        state = TaskState(task.status.state)
        message = text_of(task.status.message.parts) if task.status.message is not None else ""
        made = text_of(part for one in task.artifacts for part in one.parts)
        if state in ASKS:
            kept = {"task": task.id, "context": task.context_id}
            question = self._short(message) or NEEDS[state]
            data = {KEPT: {who(self.given): kept}}
            return Result(outcome=Outcome.ASK, question=question, data=data)
        assert state in ENDED, "settled"
        if state in FAILING:
            text = self._short(message or made) or FAILING[state]
            return Result(outcome=Outcome.FAILURE, text=text, data=self._forgotten())
        return self._answered(made or message)

    def _answered(self, text: str) -> Result:
        try:
            result = result_of(self._short(text).encode(), self.given)
        except ValueError as error:
            told = f"answers what is no result: {error}"
            raise Unusable(f"{told}; let it answer with a text, or a result as JSON") from None
        return msgspec.structs.replace(result, data={**result.data, **self._forgotten()})

    def _forgotten(self) -> dict[str, Any]:
        """The task that had asked has its answer."""
        return {KEPT: {who(self.given): None}} if self.known is not None else {}

    def _short(self, text: str) -> str:
        if len(text) > self.limits.text_chars:
            most = self.limits.text_chars
            raise Unusable(f"answers with more than {most} characters of text; let it say less")
        return text


def _kept(given: DispatchView) -> dict[str, str] | None:
    """The task of this agent that waits for an answer. The context is anybody's to write: what does
    not look like a task is none."""
    tasks = given.bead.context.get(KEPT)
    found = cast("dict[str, Any]", tasks).get(who(given)) if isinstance(tasks, dict) else None
    try:
        kept = msgspec.convert(found, dict[str, str])
    except msgspec.ValidationError:
        return None
    return kept if kept.keys() == {"task", "context"} else None

"""Run a remote agent that speaks A2A as a member of a team, or at a workflow's node.

    worker.add(a2a_agent("https://triage.example.org", token_from="TRIAGE_TOKEN"), "qa-engineer")

Rules
1. A dispatch is a message, and becomes a remote task. While the task is submitted or working, the
   dispatch goes on, and its runner keeps the lease; the task is polled less and less often.
2. The task's end is the result. Where the agent needs input, a person is asked, and the answer goes
   to the same task with the agent's next dispatch. The task's id stands in the bead's context,
   under `a2a`, so that any worker can continue it.
3. After a cancellation, a timeout or an error, the remote task is cancelled.
4. Only its text counts, as that of a program or a service (`output_parser.py`). How it is called,
   and what is not accepted from it, stands in `a2a_transport.py`. Its token comes from the
   environment, and stands in no message.
"""

import asyncio
import os
from contextlib import suppress
from typing import Any, cast

import httpx
import msgspec

from handrail.agents.a2a_transport import A2AClient, RemoteCallError, RemoteReplyError, card_address
from handrail.agents.a2a_types import (
    INTERRUPTED_STATES,
    SETTLED_STATES,
    TERMINAL_STATES,
    TEXT_MEDIA_TYPE,
    A2AMessage,
    A2ATask,
    MessageRole,
    Part,
    SendMessageConfiguration,
    SendMessageRequest,
    SendMessageResponse,
    TaskRequest,
    TaskState,
    join_text,
)
from handrail.agents.dispatch_input import (
    AgentFunction,
    DispatchInput,
    as_dispatch_view,
    step_id_of,
)
from handrail.agents.output_parser import parse_output
from handrail.agents.prompt import render_instructions, render_user_prompt
from handrail.agents.secret_redaction import redact_secrets
from handrail.engine.dispatch.agent_results import AgentFailedError
from handrail.kernel.decision import Value
from handrail.kernel.result import Outcome, Result
from handrail.views.dispatches import DispatchView

CONTEXT_KEY = "a2a"
"""The key of the bead's context for tasks that wait for an answer: agent -> {task, context}."""
POLL_SECONDS_FIRST, POLL_GROWTH, POLL_SECONDS_MAX = 0.1, 1.5, 5.0
"""Seconds between two polls of a task, and how they grow."""
POLL_FAILURES_MAX = 5
"""Polls in a row that may fail."""
CANCEL_SECONDS = 2.0
ID_CHARS_MAX = 200
"""Characters of the agent's id for a task, or for a context."""
TASK_NOT_FOUND, UNSUPPORTED_OPERATION = -32001, -32004
A2A_INSTRUCTIONS = (
    "You are asked over A2A. Complete the task with your answer as text. Fail it if it cannot be"
    " done. If only a person can say something, ask for input: a person is asked, and you are told"
    " the answer. While you work, nothing else is needed of you."
)
FAILURE_TEXTS = {
    TaskState.FAILED: "the agent failed",
    TaskState.REJECTED: "the agent rejected the work",
    TaskState.CANCELED: "the work was cancelled at the agent",
}
"""The text for such an end, where the agent gives none."""
INPUT_TEXTS = {
    TaskState.INPUT_REQUIRED: "the agent needs input, and does not say which",
    TaskState.AUTH_REQUIRED: "the agent needs an authorization, and does not say which",
}


class RemoteLimits(Value):
    """The limits of one dispatch."""

    seconds: float = 1_500.0
    """Of the whole dispatch; a node's own time is 30 minutes unless it says otherwise."""
    call_seconds: float = 60.0
    answer_bytes: int = 1_000_000
    text_chars: int = 200_000


def a2a_agent(
    url: str,
    *,
    token_from: str = "",
    limits: RemoteLimits = RemoteLimits(),  # noqa: B008 - frozen
) -> AgentFunction:
    """Make an agent from the address of an A2A agent's card or of the card's base URL.

    `token_from` is the environment variable that has the token for it.
    """
    card_address(url)

    async def a2a_turn(dispatch: DispatchInput) -> Result:
        dispatch_view = as_dispatch_view(dispatch)
        agent_label = f"the A2A agent {url} of '{step_id_of(dispatch_view)}'"
        token = os.environ.get(token_from, "") if token_from else ""
        if token_from and not token:
            raise AgentFailedError(
                f"{agent_label} needs a token; set {token_from} where its worker runs"
            )
        client = A2AClient(
            url, token, seconds=limits.call_seconds, answer_bytes=limits.answer_bytes
        )
        try:
            async with asyncio.timeout(limits.seconds), client as connected_client:
                return await _RemoteDispatch(connected_client, dispatch_view, limits).run()
        except TimeoutError:
            problem = f"has no answer after {limits.seconds:g} s; give it more time, or less to do"
        except httpx.HTTPError as error:
            problem = f"could not be asked ({type(error).__name__}: {error}); see that it runs"
        except (RemoteReplyError, RemoteCallError) as error:
            problem = str(error)
        raise AgentFailedError(redact_secrets(f"{agent_label} {problem}", (token,)))

    return a2a_turn


class _RemoteDispatch:
    """One dispatch to one remote agent."""

    def __init__(self, client: A2AClient, dispatch: DispatchView, limits: RemoteLimits) -> None:
        self.client, self.dispatch, self.limits = client, dispatch, limits
        self.pending_task = _read_pending_task(dispatch)
        self.continued_task_id: str | None = None
        """The task that the message continues; None if it begins one."""

    async def run(self) -> Result:
        send_future = asyncio.ensure_future(self._send_dispatch())
        try:
            response = await asyncio.shield(send_future)
        except asyncio.CancelledError:
            await self._cancel_sending(send_future)
            raise
        if response.message is not None:
            return self._answer_result(join_text(response.message.parts))
        if response.task is None:
            raise RemoteReplyError(
                "answers with neither a task nor a message; see that it speaks A2A"
            )
        task = self._check_task(
            response.task,
            response.task.id if self.continued_task_id is None else self.continued_task_id,
        )
        try:
            task = await self._poll_until_settled(task)
        finally:
            if task.status.state not in SETTLED_STATES:
                await self._cancel(task.id)
        return self._task_result(task)

    async def _send_dispatch(self) -> SendMessageResponse:
        """Send a person's answer to the task that asked for it, or else the work anew.

        If that task is gone, or was not stored, the message contains question and answer.
        """
        if self.pending_task is not None and self.dispatch.answer is not None:
            try:
                response = await self._send_message(self.dispatch.answer, **self.pending_task)
            except RemoteCallError as error:
                if error.code not in (TASK_NOT_FOUND, UNSUPPORTED_OPERATION):
                    raise
            else:
                self.continued_task_id = self.pending_task["task"]
                return response
        prompt_parts = (
            render_instructions(self.dispatch, A2A_INSTRUCTIONS, by_tool=False),
            render_user_prompt(self.dispatch),
        )
        return await self._send_message("\n\n".join(prompt_parts))

    async def _send_message(
        self, text: str, *, task: str = "", context: str = ""
    ) -> SendMessageResponse:
        message = A2AMessage(
            message_id=self.dispatch.key,
            role=MessageRole.USER,
            parts=(Part(text=text, media_type=TEXT_MEDIA_TYPE),),
            task_id=task,
            context_id=context,
        )
        configuration = SendMessageConfiguration(
            accepted_output_modes=(TEXT_MEDIA_TYPE,), return_immediately=True, history_length=0
        )
        params = SendMessageRequest(message=message, configuration=configuration)
        return await self.client.call("SendMessage", params, SendMessageResponse)

    async def _poll_until_settled(self, task: A2ATask) -> A2ATask:
        """Poll until the task has ended or asks something."""
        delay, failures = POLL_SECONDS_FIRST, 0
        request = TaskRequest(id=task.id, history_length=0)
        while task.status.state not in SETTLED_STATES:  # bounded by the time of the dispatch
            await asyncio.sleep(delay)
            delay = min(POLL_SECONDS_MAX, delay * POLL_GROWTH)
            try:
                polled_task = await self.client.call("GetTask", request, A2ATask)
            except (httpx.HTTPError, RemoteReplyError):
                failures += 1
                if failures > POLL_FAILURES_MAX:
                    raise
            else:
                task, failures = self._check_task(polled_task, task.id), 0
        return task

    async def _cancel_sending(self, send_future: "asyncio.Future[SendMessageResponse]") -> None:
        """Cancel a message whose task id is not known yet."""
        await asyncio.wait((send_future,), timeout=CANCEL_SECONDS)
        send_future.cancel()
        (response,) = await asyncio.gather(send_future, return_exceptions=True)
        if isinstance(response, SendMessageResponse) and response.task is not None:
            await self._cancel(response.task.id)

    async def _cancel(self, task_id: str) -> None:
        """Try to cancel the remote task, briefly: our own caller does not wait for long."""
        with suppress(TimeoutError, httpx.HTTPError, RemoteReplyError, RemoteCallError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.client.call("CancelTask", TaskRequest(id=task_id), A2ATask)

    def _check_task(self, task: A2ATask, expected_id: str) -> A2ATask:
        """Check that the reply is about the expected task: its ids are stored and used in calls."""
        if task.id != expected_id:
            message = (
                f"answers with task '{task.id[:ID_CHARS_MAX]}' where "
                f"'{expected_id[:ID_CHARS_MAX]}' was meant"
            )
            raise RemoteReplyError(f"{message}; see that it speaks A2A")
        if (
            max(len(task.id), len(task.context_id)) > ID_CHARS_MAX
            or "\0" in task.id + task.context_id
        ):
            message = (
                f"names a task or a context with more than {ID_CHARS_MAX} characters, or odd ones"
            )
            raise RemoteReplyError(f"{message}; let it take shorter names")
        return task

    def _task_result(self, task: A2ATask) -> Result:
        state = TaskState(task.status.state)
        status_text = (
            join_text(task.status.message.parts) if task.status.message is not None else ""
        )
        artifact_text = join_text(part for artifact in task.artifacts for part in artifact.parts)
        if state in INTERRUPTED_STATES:
            pending = {"task": task.id, "context": task.context_id}
            question = self._check_length(status_text) or INPUT_TEXTS[state]
            data = {CONTEXT_KEY: {step_id_of(self.dispatch): pending}}
            return Result(outcome=Outcome.ASK, question=question, data=data)
        assert state in TERMINAL_STATES, "settled"
        if state in FAILURE_TEXTS:
            text = self._check_length(status_text or artifact_text) or FAILURE_TEXTS[state]
            return Result(outcome=Outcome.FAILURE, text=text, data=self._clear_pending_task())
        return self._answer_result(artifact_text or status_text)

    def _answer_result(self, text: str) -> Result:
        try:
            result = parse_output(self._check_length(text).encode(), self.dispatch)
        except ValueError as error:
            message = f"answers what is no result: {error}"
            raise RemoteReplyError(
                f"{message}; let it answer with a text, or a result as JSON"
            ) from None
        return msgspec.structs.replace(result, data={**result.data, **self._clear_pending_task()})

    def _clear_pending_task(self) -> dict[str, Any]:
        """Remove the task that now has its answer from the context."""
        return (
            {CONTEXT_KEY: {step_id_of(self.dispatch): None}}
            if self.pending_task is not None
            else {}
        )

    def _check_length(self, text: str) -> str:
        if len(text) > self.limits.text_chars:
            chars_max = self.limits.text_chars
            raise RemoteReplyError(
                f"answers with more than {chars_max} characters of text; let it say less"
            )
        return text


def _read_pending_task(dispatch: DispatchView) -> dict[str, str] | None:
    """Return this agent's task that waits for an answer.

    Anybody can write the context: a value that does not look like a task is ignored.
    """
    tasks = dispatch.bead.context.get(CONTEXT_KEY)
    entry = (
        cast("dict[str, Any]", tasks).get(step_id_of(dispatch)) if isinstance(tasks, dict) else None
    )
    try:
        pending_task = msgspec.convert(entry, dict[str, str])
    except msgspec.ValidationError:
        return None
    return pending_task if pending_task.keys() == {"task", "context"} else None

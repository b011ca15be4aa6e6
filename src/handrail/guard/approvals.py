"""Turn a framework's pause for a person into an approval on the server that records the run.

Without such a server, or while it is unreachable, the pause is the framework's own result, as
without a guard. An approval that expires, or a person who closes the run, is a stop: what was not
allowed does not happen.
"""

import asyncio
from typing import TYPE_CHECKING

from handrail.guard.adapter import RunWatch, to_text
from handrail.kernel.run.answer_text import AnswerIntent, classify_answer

if TYPE_CHECKING:
    from handrail.guard.server_recorder import HumanReply

ASKS_PER_RUN_MAX = 10
"""Approvals in one run, as in the engine's."""
QUESTION_CHARS_MAX = 10_000


TOOL_OPTIONS = ("approve", "reject")
"""What a person can choose for a tool call; any other text is the reason why it must not run."""


def ask_person(
    watch: RunWatch, question: object, options: tuple[str, ...] = ()
) -> "HumanReply | None":
    """Return a person's answer; None if there is none to be had, or the run is stopped."""
    with watch.boundary:
        watch.begin_step()
        watch.run.call_limits.forget_calls()
    if watch.stop is not None or watch.run.recorder is None:
        return None
    reply: HumanReply | None = None
    with watch.run.errors.absorbing("a person could not be asked"):
        reply = watch.run.ask(to_text(question)[:QUESTION_CHARS_MAX], options=options)
        watch.stop = watch.run.stop
    return reply


async def ask_person_async(
    watch: RunWatch, question: object, options: tuple[str, ...] = ()
) -> "HumanReply | None":
    """Like `ask_person`, without blocking the event loop."""
    return await asyncio.to_thread(ask_person, watch, question, options)


def is_yes(reply: "HumanReply") -> bool:
    """Return whether the reply is a bare yes, or words that mean nothing else."""
    return not reply.text.strip() or classify_answer(reply.text) is AnswerIntent.APPROVE


def refusal_reason(reply: "HumanReply") -> str:
    """Return why a tool must not run; empty if the person gave no reason."""
    return "" if reply.text.strip() == TOOL_OPTIONS[1] else reply.text

"""A framework's pause for a person, as a question in the inbox of the server that records the run.

Without such a server, or while it cannot be asked, the pause is the framework's own result, as
ever. Nobody in time, or somebody who closes the run, is a stop: what was not allowed does not
happen.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from handrail.client.errors import ClientError
from handrail.guard.adapter import RunWatch, to_text
from handrail.kernel.run.answer_text import AnswerIntent, classify_answer

if TYPE_CHECKING:
    from handrail.guard.server_recorder import HumanReply

log = logging.getLogger("handrail.guard")

ASKS_PER_RUN_MAX = 10
"""Times that people are asked in one run, as in the engine's."""
QUESTION_CHARS_MAX = 10_000


def ask_person(watch: RunWatch, question: object) -> "HumanReply | None":
    """A person's answer; None if there is none to be had, or the run is stopped."""
    if watch.begin_step() is not None or watch.run.recorder is None:
        return None
    try:
        reply = watch.run.ask(to_text(question)[:QUESTION_CHARS_MAX])
    except ClientError as error:
        log.error("nobody was asked: %s", error)
        return None
    watch.stop = watch.run.stop
    return reply


async def ask_person_async(watch: RunWatch, question: object) -> "HumanReply | None":
    """The same, while the loop goes on."""
    return await asyncio.to_thread(ask_person, watch, question)


def is_yes(reply: "HumanReply") -> bool:
    """A yes without words, or in words that mean nothing else."""
    return not reply.text.strip() or classify_answer(reply.text) is AnswerIntent.APPROVE

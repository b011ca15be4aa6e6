"""A framework's pause for a person, as a question in the inbox of the server that records the run.

Without such a server, or while it cannot be asked, the pause is the framework's own result, as
ever. Nobody in time, or somebody who closes the run, is a stop: what was not allowed does not
happen.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from handrail.client.errors import ClientError
from handrail.guard.watch import Watch, text_of
from handrail.kernel.answers import Answer, read_answer

if TYPE_CHECKING:
    from handrail.guard.live import Reply

log = logging.getLogger("handrail.guard")

ASKS_MAX = 10
"""Times that people are asked in one run, as in the engine's."""
QUESTION_MAX = 10_000


def ask(watch: Watch, question: object) -> "Reply | None":
    """A person's answer; None if there is none to be had, or the run is stopped."""
    if watch.step() is not None or watch.run.live is None:
        return None
    try:
        reply = watch.run.ask(text_of(question)[:QUESTION_MAX])
    except ClientError as error:
        log.error("nobody was asked: %s", error)
        return None
    watch.stop = watch.run.stop
    return reply


async def ask_async(watch: Watch, question: object) -> "Reply | None":
    """The same, while the loop goes on."""
    return await asyncio.to_thread(ask, watch, question)


def is_yes(reply: "Reply") -> bool:
    """A yes without words, or in words that mean nothing else."""
    return not reply.text.strip() or read_answer(reply.text) is Answer.APPROVE

"""A run with somebody who watches it and answers its questions, until it ends or nobody answers.

For `handrail run`, for the demonstration and for tests: the engine does the work; here every event
is heard in order, and every question put to one function until its answer can be used.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from handrail.engine.core import Refused
from handrail.engine.dispatch import shown_result
from handrail.engine.handle import RunHandle
from handrail.kernel.decision import Value
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Person, Run, evolve
from handrail.kernel.run.people import LEVELS
from handrail.kernel.run.state import Question

REFUSED_ANSWERS_MAX = 100
"""Answers that could not be used, to one question in a row; then nobody is asked any more."""


class Request(Value):
    """What a person is shown: the question, the result it is about, and why it is asked again."""

    question: Question
    result: str = ""
    refusal: str = ""


class Reply(Value):
    """A text, or an explicit decision."""

    text: str = ""
    decision: Literal["approve", "reject", "revise"] | None = None


Answerer = Callable[[Request], Reply | str | None]
"""Called on a thread of its own. None: nobody answers now, and the run is left open."""
Listener = Callable[[RunEvent, Run], None]


def nobody(request: Request) -> None:
    """An answerer for runs without people."""


def unheard(event: RunEvent, run: Run) -> None:
    """A listener for runs that nobody watches."""


def stand_in(question: Question) -> Person:
    """The one at the keyboard answers as whoever is asked: by name, else as you, person 2, 3..."""
    named = [name for name in question.approvers if name not in LEVELS]
    taken = {*question.approved_by, *question.barred}
    others = [f"person {i + 2}" for i in range(len(taken))]
    free = (name for name in (*named, "you", *others) if name not in taken)
    return Person(name=next(free), role="admin")


class Attended:
    """A run that is watched; `events` and `run` are what was heard so far."""

    def __init__(
        self, handle: RunHandle, *, answer: Answerer = nobody, listen: Listener = unheard
    ) -> None:
        self.handle, self.answer, self.listen = handle, answer, listen
        self.events: list[RunEvent] = []
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        assert self._run is not None, "heard of by `to_its_end`"
        return self._run

    async def to_its_end(self) -> None:
        """Until the end, or until a question that nobody answers; look at `run` then."""
        async for _ in self.handle.engine.changes(self.handle.id):
            await self._hear()
            for question in tuple(self.run.questions.values()):
                if not await self._ask(question):
                    return
                await self._hear()
            if self.run.ended:
                return

    async def _hear(self) -> None:
        async for _, event in self.handle.events(len(self.events), follow=False):
            self._run = evolve(self._run, event)
            self.events.append(event)
            self.listen(event, self._run)

    async def _ask(self, question: Question) -> bool:
        """Put the question until there is an answer that can be used; False if none comes."""
        shown = Request(question=question, result=shown_result(question, self.events))
        for _ in range(REFUSED_ANSWERS_MAX):
            if self.run.ended or question.id not in self.run.questions:
                return True  # it is over, or void: the run went another way meanwhile
            reply = await asyncio.to_thread(self.answer, shown)
            if reply is None:
                return False
            said = reply if isinstance(reply, Reply) else Reply(text=reply)
            try:
                await self.handle.answer(
                    question.id,
                    said.text,
                    by=stand_in(question),
                    decision=said.decision,
                    digest=question.digest,
                )
            except Refused as refused:
                told = f"{refused.refusal.message}: {refused.refusal.hint}"
                shown = replace(shown, refusal=told)
                await self._hear()
            else:
                return True
        return False

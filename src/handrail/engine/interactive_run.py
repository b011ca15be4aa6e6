"""Drives one run with a callback for its approvals, until it ends or an approval stays unanswered.

For `handrail run`, for the demonstration and for tests: the engine does the work; this module hears
every event in order, and passes every approval to one function until its answer can be used.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from handrail.engine.dispatch.dispatch import result_text
from handrail.engine.errors import RefusedError
from handrail.engine.services.runs import RunHandle
from handrail.kernel.decision import Value
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.human_commands import PERSON_LEVELS
from handrail.kernel.run.state import PendingApproval, Person, Run

REFUSED_ANSWERS_MAX = 100
"""Unusable answers to one approval in a row; then the function is not called any more."""


class ApprovalPrompt(Value):
    """What a person sees: the question, the result it is about, and why it is asked again."""

    approval: PendingApproval
    result: str = ""
    refusal: str = ""


class PromptReply(Value):
    """A text, or an explicit decision."""

    text: str = ""
    decision: Literal["approve", "reject", "revise"] | None = None


AnswerCallback = Callable[[ApprovalPrompt], PromptReply | str | None]
"""Called on a thread of its own. None: nobody answers now, and the run is left open."""
RunEventCallback = Callable[[RunEvent, Run], None]


def answer_nothing(request: ApprovalPrompt) -> None:
    """Callback for runs without people."""


def ignore_event(event: RunEvent, run: Run) -> None:
    """Listener for runs that nobody watches."""


def answering_person(approval: PendingApproval) -> Person:
    """The person at the keyboard answers as each approver: by name, else as you, person 2, 3..."""
    named = [name for name in approval.approvers if name not in PERSON_LEVELS]
    excluded = {*approval.approved_by, *approval.barred}
    numbered = [f"person {i + 2}" for i in range(len(excluded))]
    candidates = (name for name in (*named, "you", *numbered) if name not in excluded)
    return Person(name=next(candidates), role="admin")


class InteractiveRun:
    """A watched run; `events` and `run` are what was heard so far."""

    def __init__(
        self,
        handle: RunHandle,
        *,
        answer: AnswerCallback = answer_nothing,
        on_event: RunEventCallback = ignore_event,
    ) -> None:
        self.handle, self.answer, self.on_event = handle, answer, on_event
        self.events: list[RunEvent] = []
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        assert self._run is not None, "heard of by `to_its_end`"
        return self._run

    async def run_to_end(self) -> None:
        """Run to the end, or to an approval that stays unanswered; look at `run` then."""
        async for _ in self.handle.changes():
            await self._read_events()
            for approval in tuple(self.run.pending_approvals.values()):
                if not await self._prompt(approval):
                    return
                await self._read_events()
            if self.run.has_ended:
                return

    async def _read_events(self) -> None:
        async for _, event in self.handle.events(len(self.events), follow=False):
            self._run = evolve(self._run, event)
            self.events.append(event)
            self.on_event(event, self._run)

    async def _prompt(self, approval: PendingApproval) -> bool:
        """Prompt until there is a usable answer; False if none comes."""
        prompt = ApprovalPrompt(approval=approval, result=result_text(approval, self.events))
        for _ in range(REFUSED_ANSWERS_MAX):
            if self.run.has_ended or approval.id not in self.run.pending_approvals:
                return True  # settled or void: the run went another way meanwhile
            reply = await asyncio.to_thread(self.answer, prompt)
            if reply is None:
                return False
            response = reply if isinstance(reply, PromptReply) else PromptReply(text=reply)
            try:
                await self.handle.answer(
                    approval.id,
                    response.text,
                    by=answering_person(approval),
                    decision=response.decision,
                    digest=approval.digest,
                )
            except RefusedError as refused:
                prompt = replace(
                    prompt, refusal=f"{refused.refusal.message}: {refused.refusal.hint}"
                )
                await self._read_events()
            else:
                return True
        return False

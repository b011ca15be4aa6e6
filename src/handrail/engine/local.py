"""One bead, run to its end in this process, in memory: the forerunner of the durable engine.

The shell of `decide` and `evolve`, and nothing besides: it offers the turn to a function, passes
its result on, grants commit locks at once, and puts questions to `answer`. What it does not do:
keep anything (a crash loses the run), work side by side (branches take turns), or take a turn away
from a function that does not return (clocks are looked at between two steps).

The loop needs no count of its own: every round is an accepted event, and `measure` falls with each
of them, except for a person's acts, each of which somebody has to make.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec.structs import replace

from handrail.engine.dispatch import Dispatch, shown_result
from handrail.engine.returned import told
from handrail.kernel.decision import Refusal, Value
from handrail.kernel.plan import Plan
from handrail.kernel.result import Result
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent
from handrail.kernel.run.machine import Person, Run, decide, evolve
from handrail.kernel.run.people import LEVELS
from handrail.kernel.run.state import Phase, Question, Token

Agent = Callable[[Dispatch], object]
"""Works one turn. It should return a Result; whatever else it does costs it the attempt."""
Staff = Callable[[str], Agent | None]
"""The agent that works as this role, if there is one: a dictionary's `get` will do."""
Clock = Callable[[], datetime]
Listener = Callable[[RunEvent, Run], None]

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
"""None: nobody answers now, and the run is left open."""


def utc_now() -> datetime:
    return datetime.now(UTC)


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


class LocalRun:
    """A run in memory with its history. `trusted` roles are Handrail's own: their evidence counts
    as measured; anybody else's counts as a claim, whatever it says of itself."""

    def __init__(
        self,
        plan: Plan,
        staff: Staff,
        *,
        answer: Answerer = nobody,
        listen: Listener = unheard,
        clock: Clock = utc_now,
        trusted: frozenset[str] = frozenset(),
    ) -> None:
        self.plan, self.staff, self.clock, self.trusted = plan, staff, clock, trusted
        self.answer, self.listen = answer, listen
        self.events: list[RunEvent] = []
        self._run: Run | None = None
        self._locks = 0

    @property
    def run(self) -> Run:
        assert self._run is not None, "started by `to_its_end`"
        return self._run

    def to_its_end(self, start: c.Start) -> Refusal | None:
        """Runs until the end, or until a question that nobody answers; look at `run` then."""
        refusal = self._do(start)
        if refusal is not None:
            return refusal
        while not self.run.ended and self._step():
            pass
        return None

    def _do(self, command: c.RunCommand) -> Refusal | None:
        decision = decide(self.plan, self._run, command, self.clock())
        for event in decision.events:
            self._run = evolve(self._run, event)
            self.events.append(event)
            self.listen(event, self._run)
        return decision.refusal

    def _step(self) -> bool:
        """One step of some token; False if every token waits for somebody who does not come."""
        for token in self.run.tokens.values():
            if token.phase is Phase.OFFERED:
                self._work(token)
                return True
            if token.phase in (Phase.READY, Phase.SETTLED):  # all but commits have gone on
                self._locks, before = self._locks + 1, self.run.seq
                refusal = self._do(c.GrantLock(place=token.place, lock=self._locks))
                assert self.run.seq > before, refusal
                return True
        return any(self._ask(question) for question in tuple(self.run.questions.values()))

    def _work(self, token: Token) -> None:
        role, fence = token.role, token.fence
        if self._do(c.Claim(fence=fence, agent=role, roles=(role,))) is not None:
            return  # a clock fired first: the run goes on from there, or has ended
        agent = self.staff(role)
        if agent is None:
            self._do(c.Lose(fence=fence, reason=f"nobody here works as '{role}'"))
            return
        past = tuple(self.events)
        given = Dispatch(self.plan, self.run, self.run.tokens[token.place], lambda: past)
        try:
            returned = agent(given)
        except (Exception, SystemExit) as error:  # its lost attempt, whatever it is, and not ours
            self._do(c.Lose(fence=fence, reason=told(error)))
            return
        result = self._checked(returned, role)
        if isinstance(result, Result):
            refusal = self._do(c.Report(fence=fence, agent=role, result=result))
            if refusal is None or self.run.ended or self.run.token_of(fence) is None:
                return
            wrong = f"{refusal.message}; {refusal.hint}"
        else:
            wrong = result
        self._do(c.Report(fence=fence, agent=role, malformed=wrong))

    def _checked(self, returned: object, role: str) -> Result | str:
        """The result as it would arrive over a wire, or what is wrong with it."""
        if not isinstance(returned, Result):
            return f"'{role}' returned a {type(returned).__name__}, not a Result"
        try:
            plain = msgspec.json.decode(msgspec.json.encode(returned), type=Result)
        except (TypeError, ValueError, RecursionError) as error:
            return f"'{role}' returned what cannot be sent: {told(error)}"
        measured = plain.evidence.measured and role in self.trusted
        return replace(plain, evidence=replace(plain.evidence, measured=measured))

    def _ask(self, question: Question) -> bool:
        """Put the question until there is an answer that can be used; False if none comes."""
        shown = Request(question=question, result=shown_result(question, self.events))
        for _ in range(REFUSED_ANSWERS_MAX):
            reply = self.answer(shown)
            if reply is None:
                return False
            said = reply if isinstance(reply, Reply) else Reply(text=reply)
            refusal = self._do(
                c.Answer(
                    question_id=question.id,
                    by=stand_in(question),
                    text=said.text,
                    decision=said.decision,
                    digest=question.digest,
                )
            )
            if refusal is None or self.run.ended or question.id not in self.run.questions:
                return True
            shown = replace(shown, refusal=f"{refusal.message}: {refusal.hint}")
        return False

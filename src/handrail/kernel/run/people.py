"""What people may do to a run: answer, move, migrate, close, pause, resume, change the bead.

Who may is a table of levels, never a matter of text. An answer settles an open question once, and
only the question that was shown (its digest). Approve and reject raise nothing; revise, once more,
move and migrate open a new stretch (K13, K14).
"""

from typing import Literal

from handrail.kernel.answers import Answer as Reading
from handrail.kernel.answers import read_answer
from handrail.kernel.decision import Refusal
from handrail.kernel.definition import LEVELS, TerminalStatus
from handrail.kernel.rules import StopRule
from handrail.kernel.run import moves, team
from handrail.kernel.run.book import Book, digest, refuse
from handrail.kernel.run.commands import Answer, Close, Migrate, Move, Patch, Pause, Resume
from handrail.kernel.run.events import (
    Answered,
    Ended,
    Migrated,
    Patched,
    Paused,
    Reasked,
    Resumed,
)
from handrail.kernel.run.state import Person, Question, QuestionKind, Stop, seconds
from handrail.kernel.run.sums import too_large_a_context

NEEDED = {
    QuestionKind.CLARIFICATION: "operator",
    QuestionKind.APPROVAL: "ceo",
    QuestionKind.ESCALATION: "ceo",
}
OVERRIDE = "ceo"
CLOSING = LEVELS[OVERRIDE]
DECISIONS = ("approve", "reject", "revise")
Verdict = Literal["approve", "reject", "revise", "answer"]


def answer(book: Book, command: Answer) -> Refusal | None:
    question = book.run.questions.get(command.question_id)
    if question is None:
        return refuse(
            "not_open",
            f"question '{command.question_id}' is not open in run '{book.run.id}': "
            "it was answered, is void or has expired",
            "look at the open questions of the run",
        )
    refusal = may_answer(question, command.by) or _same_as_shown(question, command)
    if refusal is not None:
        return refusal
    decision = _decision(question, command)
    if isinstance(decision, Refusal):
        return decision
    if decision == "revise" and not _can_revise(book, question):
        return refuse(
            "no_way_back",
            f"'{question.place}' names no revise_to, so it cannot be revised",
            "approve, or reject",
        )
    final = decision != "approve" or len(question.approved_by) + 1 >= question.quorum
    book.emit(
        Answered(
            at=book.now,
            question_id=question.id,
            by=command.by.name,
            role=command.by.role,
            decision=decision,
            text=command.text,
            final=final,
        )
    )
    if final:
        SETTLE[decision](book, question, command)
    return None


def may_answer(question: Question, by: Person) -> Refusal | None:
    """By name, by level, or by the level that this kind of question takes if nobody is named."""
    level = LEVELS.get(by.role, -1)
    levels = [LEVELS[one] for one in question.approvers if one in LEVELS]
    if not question.approvers:
        levels = [LEVELS[NEEDED[question.kind]]]
    named = by.name in question.approvers and by.name not in LEVELS and level >= 0
    if not named and not any(level >= needed for needed in levels):
        asked = ", ".join(question.approvers) or f"{NEEDED[question.kind]} or above"
        told = f"{by.name} ({by.role}) may not answer the {question.kind} '{question.id}'"
        return refuse("not_allowed", told, f"it is for {asked}")
    if by.name in question.barred:
        return refuse(
            "author",
            f"{by.name} had a hand in what '{question.id}' asks about and may not answer it",
            "let somebody else answer",
        )
    if by.name in question.approved_by:
        return refuse("answered_before", f"{by.name} has approved '{question.id}' already")
    return None


def _same_as_shown(question: Question, command: Answer) -> Refusal | None:
    if command.digest and command.digest != question.digest:
        return refuse(
            "changed",
            f"what '{question.id}' shows has changed since {command.by.name} saw it",
            "look at it again, then answer",
        )
    return None


def _decision(question: Question, command: Answer) -> Verdict | Refusal:
    text = command.text.strip()
    if command.decision is not None and command.decision not in DECISIONS:
        return _ambiguous(question)
    if command.decision is not None:
        if command.decision == "revise" and not text:
            return refuse("no_text", f"a revision of '{question.id}' needs a text")
        if question.own and command.decision == "reject" and LEVELS[command.by.role] < CLOSING:
            told = f"{command.by.name} ({command.by.role}) may answer '{question.id}', not close it"
            return refuse("not_allowed", told, f"answer it; closing takes {OVERRIDE} or above")
        return (
            "answer" if question.own and command.decision != "reject" and text else command.decision
        )
    if question.own:
        return "answer" if text else _ambiguous(question)
    reading = read_answer(command.text)
    if reading is Reading.AMBIGUOUS:
        return _ambiguous(question)
    return "approve" if reading is Reading.APPROVE else "revise"


def _ambiguous(question: Question) -> Refusal:
    return refuse(
        "ambiguous_answer",
        f"the answer to '{question.id}' could mean either or nothing",
        f"say which is meant: {', '.join(DECISIONS)}",
    )


def _can_revise(book: Book, question: Question) -> bool:
    if question.own or book.run.kind == "team" or question.kind is QuestionKind.ESCALATION:
        return True
    return book.plan.node(question.place).config.revise_to is not None


def _approved(book: Book, question: Question, command: Answer) -> None:
    by = command.by.name
    if question.own:
        return  # an unconditional yes to an agent's question: its next dispatch tells it
    if book.run.kind == "team":
        reason = f"{by} approved the result"
        stop = Stop(
            rule=StopRule.COMPLETED,
            reason=reason,
            agent=book.run.final_agent,
            remaining=question.remaining,
        )
        book.emit(Ended(at=book.now, status=question.status, stop=stop, by=by))
    else:
        moves.leave(book, question.place, "approve", command.text, by)


def _rejected(book: Book, question: Question, command: Answer) -> None:
    """An approval node's failure edge if it has one; else run and bead are closed (L6.6)."""
    if book.run.kind == "workflow" and question.kind is QuestionKind.APPROVAL:
        graph = book.plan.graph
        links = [x for x in graph.succ[graph.index[question.place]] if x.on_failure]
        if links:
            target = graph.nodes[links[0].node].id
            by = command.by.name
            moves.forward(book, question.place, (target,), "reject", command.text, by)
            return
    _close(book, command.by, command.text or f"{command.by.name} rejected '{question.id}'")


def _revised(book: Book, question: Question, command: Answer) -> None:
    by, text = command.by.name, command.text
    if book.run.kind == "team":
        review = book.plan.team.review
        assert review is not None
        team.place_anew(book, review.back_to, "revise", text, by)
        return
    node = book.plan.node(question.place)
    again = question.kind is QuestionKind.ESCALATION
    target = node.id if again else node.config.revise_to
    assert target is not None
    outcome = "once_more" if again else "revise"
    moves.back(book, node.id, target, outcome, text, by=by, renews=True)


def _answered(book: Book, question: Question, command: Answer) -> None:
    """The agent's next dispatch brings it the answer."""


SETTLE = {"approve": _approved, "reject": _rejected, "revise": _revised, "answer": _answered}


def _may_override(book: Book, by: Person, reason: str, what: str) -> Refusal | None:
    if LEVELS.get(by.role, -1) < LEVELS[OVERRIDE]:
        return refuse(
            "not_allowed",
            f"{by.name} ({by.role}) may not {what} run '{book.run.id}'",
            f"it takes {OVERRIDE} or above",
        )
    if not reason.strip():
        return refuse("no_reason", f"to {what} run '{book.run.id}' takes a reason")
    return None


def _elsewhere(book: Book) -> Refusal | None:
    if not book.plan.guarded:
        return None
    told = f"run '{book.run.id}' goes on in a program elsewhere: nobody here can give it the turn"
    return refuse("guarded", told, "close it, which stops the program at its next step")


def move(book: Book, command: Move) -> Refusal | None:
    refusal = _may_override(book, command.by, command.reason, "move") or _elsewhere(book)
    return refusal or _place(book, command.place, "move", command.reason, command.by.name)


def _place(book: Book, place: str, outcome: str, reason: str, by: str) -> Refusal | None:
    if not book.plan.knows(place):
        what = "agent" if book.run.kind == "team" else "node"
        name = book.plan.definition.name
        return refuse("unknown_place", f"'{place}' is no {what} of '{name}'")
    anew = team.place_anew if book.run.kind == "team" else moves.place_anew
    anew(book, place, outcome, reason, by)
    return None


def migrate(book: Book, command: Migrate) -> Refusal | None:
    """Decided under the new version's plan."""
    refusal = _may_override(book, command.by, command.reason, "migrate") or _elsewhere(book)
    if refusal is not None:
        return refusal
    if book.plan.kind != book.run.kind or not book.plan.knows(command.place):
        return refuse(
            "unknown_place",
            f"version {command.version} of '{book.plan.definition.name}' is a {book.plan.kind} "
            f"and {'has' if book.plan.knows(command.place) else 'lacks'} '{command.place}'",
            "name a node of that version",
        )
    limits = book.plan.limits_for(book.run.context.get("task_scope"))
    book.emit(
        Migrated(
            at=book.now,
            by=command.by.name,
            reason=command.reason,
            definition_id=command.definition_id,
            version=command.version,
            limits=limits,
        )
    )
    return _place(book, command.place, "migrate", command.reason, command.by.name)


def close(book: Book, command: Close) -> Refusal | None:
    """A ceo closes anything; an operator withdraws what it filed itself."""
    own = command.by.role == "operator" and command.by.name == book.run.filed_by != ""
    if not own or not command.reason.strip():
        refusal = _may_override(book, command.by, command.reason, "close")
        if refusal is not None:
            return refusal
    _close(book, command.by, command.reason)
    return None


def _close(book: Book, by: Person, reason: str) -> None:
    stop = Stop(rule=StopRule.CLOSED, reason=reason, agent=book.run.final_agent)
    book.emit(Ended(at=book.now, status=TerminalStatus.CLOSED_BY_HUMAN, stop=stop, by=by.name))


def pause(book: Book, command: Pause) -> Refusal | None:
    refusal = _may_override(book, command.by, command.reason, "pause")
    if refusal is not None:
        return refusal
    if book.run.paused_at is not None:
        return refuse("paused", f"run '{book.run.id}' is paused already")
    deadline = book.now + seconds(book.plan.settings.pause_deadline)
    book.emit(Paused(at=book.now, by=command.by.name, reason=command.reason, deadline=deadline))
    return None


def resume(book: Book, command: Resume) -> Refusal | None:
    refusal = _may_override(book, command.by, command.reason, "resume")
    if refusal is not None:
        return refusal
    if book.run.paused_at is None:
        return refuse("not_paused", f"run '{book.run.id}' is not paused")
    book.emit(Resumed(at=book.now, by=command.by.name, reason=command.reason))
    return None


def patch(book: Book, command: Patch) -> Refusal | None:
    if LEVELS.get(command.by.role, -1) < LEVELS["operator"]:
        return refuse(
            "not_allowed", f"{command.by.name} ({command.by.role}) may not change the bead"
        )
    if (refusal := too_large_a_context(book.run, command.patch)) is not None:
        return refusal
    by, patch, files = command.by.name, command.patch, command.files
    book.emit(Patched(at=book.now, by=by, patch=patch, files=files))
    return None


def _barred(book: Book, question: Question) -> tuple[str, ...]:
    """With four eyes, whoever changed what is shown may not approve it either."""
    run = book.run
    if run.kind == "workflow" and book.plan.node(question.place).config.four_eyes:
        return run.hands
    return question.barred


def ask_again(book: Book) -> None:
    """Questions that showed what has changed since are void; the same is asked anew (K15, K16)."""
    run = book.run
    for question in run.questions.values():
        fresh = digest(run, question.text, question.result)
        if question.own or fresh == question.digest:
            continue
        again = Question(
            id=f"{run.id}.q{book.run.questions_asked + 1}",
            kind=question.kind,
            place=question.place,
            text=question.text,
            digest=fresh,
            asked_at=book.now,
            deadline=question.deadline,
            approvers=question.approvers,
            quorum=question.quorum,
            barred=_barred(book, question),
            result=question.result,
            options=question.options,
            status=question.status,
            remaining=question.remaining,
        )
        reason = "what was shown has changed"
        book.emit(Reasked(at=book.now, question_id=question.id, question=again, reason=reason))

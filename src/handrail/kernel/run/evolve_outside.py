"""evolve, the part of what comes from outside: questions and answers, pauses, changes of the bead,
of the definition and of the clock. No policy: the one path for live and replay.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from handrail.kernel.result import merged
from handrail.kernel.run.events import (
    Answered,
    Asked,
    ClocksPushed,
    HeardOf,
    Migrated,
    Patched,
    Paused,
    Reasked,
    Resumed,
)
from handrail.kernel.run.state import ENGINE_KEYS, Phase, Run, seconds


def once(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)


def _asked(run: Run, event: Asked) -> Run:
    question, held = event.question, run.tokens[event.question.place]
    by_itself = question.own and held.phase is not Phase.ASKING  # a guarded program's
    token = replace(held, phase=Phase.ASKED, question=question.id)
    return replace(
        run,
        seq=run.seq + 1,
        asks=run.asks + by_itself,
        questions={**run.questions, question.id: question},
        questions_asked=run.questions_asked + 1,
        tokens={**run.tokens, question.place: token},
    )


def _answered(run: Run, event: Answered) -> Run:
    question = run.questions[event.question_id]
    if not event.final:
        counted = replace(question, approved_by=(*question.approved_by, event.by))
        return replace(run, seq=run.seq + 1, questions={**run.questions, question.id: counted})
    again = Phase.READY if question.own else Phase.LEAVING
    token = replace(run.tokens[question.place], phase=again, question="", since=event.at)
    questions = {q.id: q for q in run.questions.values() if q.id != question.id}
    tokens = {**run.tokens, question.place: token}
    return replace(run, seq=run.seq + 1, questions=questions, tokens=tokens)


def _reasked(run: Run, event: Reasked) -> Run:
    questions = {q.id: q for q in run.questions.values() if q.id != event.question_id}
    questions[event.question.id] = event.question
    token = replace(run.tokens[event.question.place], question=event.question.id)
    return replace(
        run,
        seq=run.seq + 1,
        questions=questions,
        questions_asked=run.questions_asked + 1,
        tokens={**run.tokens, event.question.place: token},
    )


def _paused(run: Run, event: Paused) -> Run:
    return replace(run, seq=run.seq + 1, paused_at=event.at, pause_deadline=event.deadline)


def _resumed(run: Run, event: Resumed) -> Run:
    assert run.paused_at is not None
    tokens = {
        p: replace(t, since=t.since + (event.at - max(run.paused_at, t.since)))
        for p, t in run.tokens.items()
    }
    questions = {
        i: replace(q, deadline=q.deadline + (event.at - max(run.paused_at, q.asked_at)))
        for i, q in run.questions.items()
    }
    return replace(
        run,
        seq=run.seq + 1,
        tokens=tokens,
        questions=questions,
        paused_at=None,
        pause_deadline=None,
    )


def _patched(run: Run, event: Patched) -> Run:
    patch = {key: value for key, value in event.patch.items() if key not in ENGINE_KEYS}
    context, hands = merged(run.context, patch), once(run.hands, event.by)
    return replace(run, seq=run.seq + 1, context=context, hands=hands)


def _migrated(run: Run, event: Migrated) -> Run:
    return replace(
        run,
        seq=run.seq + 1,
        definition_id=event.definition_id,
        version=event.version,
        limits=event.limits,
    )


def _clocks_pushed(run: Run, event: ClocksPushed) -> Run:
    """Every clock of the run later by so much."""
    by = seconds(event.seconds)
    tokens = {p: replace(t, since=t.since + by) for p, t in run.tokens.items()}
    questions = {i: replace(q, deadline=q.deadline + by) for i, q in run.questions.items()}
    run = replace(run, seq=run.seq + 1, tokens=tokens, questions=questions)
    if run.ran_since is not None:
        run = replace(run, ran_since=min(run.ran_since + by, event.at))
    if run.paused_at is not None and run.pause_deadline is not None:
        run = replace(run, paused_at=run.paused_at + by, pause_deadline=run.pause_deadline + by)
    return run


def _heard_of(run: Run, event: HeardOf) -> Run:
    token = replace(run.tokens[event.place], since=event.at)
    return replace(run, seq=run.seq + 1, tokens={**run.tokens, event.place: token})


OUTSIDE: dict[type[Any], Callable[[Run, Any], Run]] = {
    Asked: _asked,
    Answered: _answered,
    Reasked: _reasked,
    Paused: _paused,
    Resumed: _resumed,
    Patched: _patched,
    Migrated: _migrated,
    ClocksPushed: _clocks_pushed,
    HeardOf: _heard_of,
}

"""decide: what becomes of a command. The one place where a run's commands are taken or refused.

Order: clocks that are due fire first; then the command is taken or refused; then everything that
can go on does; then questions that showed something else are asked again. A refusal changes nothing
by itself. Whatever comes from anybody but the holder of an open dispatch costs nothing and changes
nothing (K21).
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from msgspec.structs import replace

from handrail.kernel.decision import Decision, Refusal
from handrail.kernel.definition import Team
from handrail.kernel.plain import are_plain_texts, why_not_plain
from handrail.kernel.plan import Plan
from handrail.kernel.result import FIGURE_MAX, NO_EVIDENCE, Outcome, Result, Usage
from handrail.kernel.run import clocks, moves, people, team, workflow
from handrail.kernel.run.book import Book, refuse
from handrail.kernel.run.commands import (
    Answer,
    Claim,
    Close,
    GrantLock,
    Lose,
    Migrate,
    MissRole,
    Move,
    Patch,
    Pause,
    PushClocks,
    Report,
    Resume,
    RunCommand,
    Start,
    Tick,
)
from handrail.kernel.run.effects import FreeLock, RunEffect, effects
from handrail.kernel.run.events import Claimed, ClocksPushed, RunEvent, Started
from handrail.kernel.run.state import OFFERED, Person, Phase, Run, Token, seconds
from handrail.kernel.run.sums import too_large_a_result

RunDecision = Decision[RunEvent, RunEffect]
PUSH_MAX = 10 * 365 * 86400.0
WRITTEN = (
    *("agent", "bead_id", "context", "definition_id", "description", "digest", "filed_by"),
    *("files", "from_place", "malformed", "patch", "paths", "place", "question_id", "reason"),
    *("run_id", "text", "title"),
)
"""Fields of commands that come from outside as texts or plain values."""
CHECKS_MAX, FILES_MAX, PATH_MAX = 50, 2_000, 1_000
"""What one result may rest on: every check and path is looked at."""
SAID = ("text", "data", "to", "reason", "task", "remaining", "question", "options", "marker")
"""Fields of results that agents write."""


def decide(plan: Plan, run: Run | None, command: RunCommand, now: datetime) -> RunDecision:
    """Events, effects and perhaps a refusal. Never raises for bad input, never changes `run`."""
    return step(plan, run, command, now)[0]


def step(
    plan: Plan, run: Run | None, command: RunCommand, now: datetime
) -> tuple[RunDecision, Run | None]:
    """The decision, and the run that its events lead to: what evolve makes of them, not made twice.

    Without events it is the very run that was given.
    """
    book = Book(plan, run, now)
    refusal = None if _usable_at_a_glance(command) else _unusable(command)
    if refusal is not None:
        pass
    elif type(command) is Start:
        refusal = _start(book, run, command)
    elif run is None:
        refusal = refuse("unknown_run", f"there is no run to {type(command).__name__}", "start one")
    elif run.terminal_status is not None:
        refusal = _over(run, command)
    else:
        refusal = _take(book, command)
    if not book.events:
        return Decision(refusal=refusal), run
    done = effects(plan, run, book.run, book.events)
    if type(command) is GrantLock and book.run.ended:
        done += _unused_lock(plan, command)
    return Decision(events=tuple(book.events), effects=done, refusal=refusal), book.run


def _unused_lock(plan: Plan, command: GrantLock) -> tuple[RunEffect, ...]:
    """A lock that was granted to a run which ends instead of taking it is given back."""
    if plan.kind == "team" or not plan.knows(command.place):
        return ()
    repository = workflow.repository_of(plan, command.place)
    return (FreeLock(place=command.place, repository=repository, lock=command.lock),)


def _usable_at_a_glance(command: RunCommand) -> bool:
    """Whether it is a claim, a plain result or a plain start, as nearly every command is: a tenth
    of the time."""
    if type(command) is Claim:
        return are_plain_texts(command.agent)
    if type(command) is Start:
        told = command.title, command.description, command.filed_by, command.from_place
        ids = command.run_id, command.bead_id, command.definition_id
        return not command.context and not command.paths and are_plain_texts(*told, *ids)
    if type(command) is not Report:
        return False
    said = command.result
    if type(said.outcome) is not Outcome or said.data or said.remaining or said.options:
        return False
    if said.evidence != NO_EVIDENCE or _bad_usage(said.usage):
        return False
    texts = said.text, said.to, said.reason, said.task, said.question, said.marker
    return are_plain_texts(command.agent, command.malformed, *texts)


def _unusable(command: RunCommand) -> Refusal | None:
    """Values that cannot be stored and read back the same, or that make no sense as figures."""
    values = [getattr(command, name) for name in WRITTEN if name in command.__struct_fields__]
    by: Person | None = getattr(command, "by", None)
    values += [by.name] if by is not None else []
    why = why_not_plain([value for value in values if value])
    if isinstance(command, Report) and not why:
        result = command.result
        if result.outcome is not None and result.outcome not in set(Outcome):
            return refuse("unusable", f"'{result.outcome}' is no outcome", "see the contract")
        values = [getattr(result, name) for name in SAID]
        why = why_not_plain([value for value in values if value]) or bad_figures(result)
    if not why:
        return None
    told = f"the {type(command).__name__} cannot be taken: {why}"
    return refuse("unusable", told, "correct it and send it again")


def bad_figures(result: Result) -> str:
    """What in its usage or its evidence cannot be; empty if all of it can."""
    usage, evidence = result.usage, result.evidence
    if _bad_usage(usage):
        return f"the usage has a figure that is not within 0 and {FIGURE_MAX:,}"
    if evidence.score is not None and not -FIGURE_MAX <= evidence.score <= FIGURE_MAX:
        return f"the score is not within {-FIGURE_MAX:,} and {FIGURE_MAX:,}"
    checks = [value for check in evidence.checks for value in (check.command, check.stderr)]
    if len(evidence.checks) > CHECKS_MAX or len(evidence.files or ()) > FILES_MAX:
        return f"it has more than {CHECKS_MAX} checks or {FILES_MAX} files"
    if any(len(path) > PATH_MAX for path in evidence.files or ()):
        return f"a path is longer than {PATH_MAX} characters"
    texts = [evidence.files, evidence.failures, evidence.ticket_state, checks]
    return why_not_plain([value for value in texts if value])


def _bad_usage(usage: Usage) -> bool:
    """Also if a figure is none: NaN is within nothing."""
    return not (0 <= usage.tokens <= FIGURE_MAX and 0 <= usage.cost <= FIGURE_MAX)


def _take(book: Book, command: RunCommand) -> Refusal | None:
    # An outage pushes the clocks before they fire. A migration is decided under a plan that does
    # not know where the run stands, so the clocks of its dispatches are not looked at.
    kind = type(command)
    if kind is not PushClocks:
        clocks.expire(book, dispatches=kind is not Migrate)
        if book.run.terminal_status is not None:
            return None if kind is Tick else _over(book.run, command)
        if book.events:
            _advance(book)
    context = book.run.context
    refusal = HANDLERS[kind](book, command)
    if kind is Claim:
        return refusal  # who works on it changes nothing for anything else
    if refusal is None and book.run.terminal_status is None:
        _advance(book)
    if book.run.questions and book.run.context is not context:  # an ended run has no questions
        people.ask_again(book)
    return refusal


def _advance(book: Book) -> None:
    (team if book.run.kind == "team" else workflow).advance(book)


def _over(run: Run, command: RunCommand) -> Refusal:
    what = type(command).__name__
    return refuse(
        "ended",
        f"run '{run.id}' has ended ({run.terminal_status}) and takes no {what}",
        "start another run of the bead",
    )


def _start(book: Book, run: Run | None, command: Start) -> Refusal | None:
    if run is not None:
        return refuse("started", f"run '{run.id}' has been started already")
    plan, definition = book.plan, book.plan.definition
    if plan.guarded:
        told = f"the agents of '{definition.name}' work in a program elsewhere, not for this server"
        return refuse("guarded", told, "run that program, under guard")
    is_team = isinstance(definition, Team)
    place = command.from_place
    if place and not plan.knows(place):
        return refuse("unknown_place", f"'{place}' is not in '{definition.name}'")
    review = definition.review if is_team else None
    if command.review == "required" and review is None:
        return refuse(
            "no_review",
            f"bead '{command.bead_id}' requires a review, and '{definition.name}' has none",
            "leave `review` out, or take a definition with one",
        )
    if not place:
        place = definition.start if is_team else plan.graph.nodes[plan.graph.start].id
    book.emit(
        Started(
            at=book.now,
            run_id=command.run_id,
            bead_id=command.bead_id,
            definition_id=command.definition_id or definition.id or definition.name,
            version=command.version,
            kind="team" if is_team else "workflow",
            place=place,
            blocks={} if is_team else moves.blocks_around(plan, place),
            limits=plan.limits_for(command.context.get("task_scope")),
            task=_first_task(plan, place, command) if is_team else "",
            title=command.title,
            description=command.description,
            filed_by=command.filed_by,
            context=command.context,
            review=command.review,
            paths=command.paths,
            phase=definition.initial_phase if is_team else "",
        )
    )
    _advance(book)
    return None


def _first_task(plan: Plan, place: str, command: Start) -> str:
    context = {**command.context, "phase": plan.team.initial_phase}
    tasks = plan.agents[place].tasks
    return next((task.id for task in tasks if plan.holds(task.when, context).holds), "")


def _holder(book: Book, fence: int, agent: str, what: str) -> Token | Refusal:
    """The token of an open, claimed dispatch, if this agent holds it."""
    token = book.run.token_of(fence)
    if token is None:
        return refuse(
            "late",
            f"{what} of '{agent}' for dispatch {fence} of run '{book.run.id}' comes too late: "
            "it was answered, lost, timed out or cancelled",
            "claim again",
        )
    if token.phase is OFFERED:
        told = f"dispatch {fence} of run '{book.run.id}' has not been claimed"
        return refuse("not_claimed", told, "claim it first")
    if token.agent != agent:
        told = f"dispatch {fence} of run '{book.run.id}' is held by '{token.agent}', not '{agent}'"
        return refuse("foreign", told, "report only what you hold")
    return token


def _claim(book: Book, command: Claim) -> Refusal | None:
    token = book.run.token_of(command.fence)
    if token is None or token.phase is not OFFERED:
        told = f"dispatch {command.fence} of run '{book.run.id}' is not on offer"
        return refuse("not_offered", told, "claim another one")
    if book.run.paused_at is not None:
        return refuse("paused", f"run '{book.run.id}' is paused", "wait until it is resumed")
    if token.role not in command.roles:
        told = f"'{token.place}' wants the role '{token.role}'; '{command.agent}' has none such"
        return refuse("wrong_role", told, "register with that role")
    verifying = (
        book.run.kind == "workflow" and book.plan.node(token.place).config.kind == "verification"
    )
    if verifying and command.agent in book.run.committers:
        told = f"'{command.agent}' committed in run '{book.run.id}' and may not verify it"
        return refuse("own_work", told, "let another agent verify")
    book.emit(Claimed(at=book.now, place=token.place, fence=command.fence, agent=command.agent))
    return None


def _report(book: Book, command: Report) -> Refusal | None:
    token = _holder(book, command.fence, command.agent, "the result")
    if isinstance(token, Refusal):
        return token
    if (refusal := too_large_a_result(book, command)) is not None:
        return refusal
    result = command.result
    if result.outcome is not None and type(result.outcome) is not Outcome:
        # a caller in Python may write the word itself
        result = replace(result, outcome=Outcome(result.outcome))
    if command.malformed and book.run.kind == "workflow":
        workflow.malformed(book, token, command.malformed, result)
    elif command.malformed:
        team.fault(book, token, "malformed", command.malformed, result)
    elif book.run.kind == "workflow":
        return workflow.report(book, token, result)
    else:
        team.report(book, token, result)
    return None


def _lose(book: Book, command: Lose) -> Refusal | None:
    token = book.run.token_of(command.fence)
    if token is None or token.phase is not Phase.CLAIMED:
        told = f"dispatch {command.fence} of run '{book.run.id}' is not in anybody's hands"
        return refuse("late", told)
    clocks.lose(book, token, command.reason)
    return None


def _miss_role(book: Book, command: MissRole) -> Refusal | None:
    token = book.run.token_of(command.fence)
    if token is None or token.phase is not Phase.OFFERED or book.run.paused_at is not None:
        told = f"dispatch {command.fence} of run '{book.run.id}' is not on offer"
        return refuse("not_offered", told)
    grace = book.plan.settings.role_grace
    if book.now < token.since + seconds(grace):
        told = f"dispatch {command.fence} has not been on offer for {grace:g} s"
        return refuse("too_early", told, "wait for the grace time")
    clocks.time_out(book, token, "role")
    return None


def _grant_lock(book: Book, command: GrantLock) -> Refusal | None:
    token = book.run.tokens.get(command.place)
    waiting = token is not None and token.phase in workflow.WAITING_TO_GO
    known = book.run.kind == "workflow" and book.plan.knows(command.place)
    if token is None or not waiting or not known or book.run.paused_at is not None:
        told = f"'{command.place}' of run '{book.run.id}' does not wait for a lock"
        return refuse("not_waiting", told, "release the lock")
    node = book.plan.node(command.place)
    assert workflow.needs_lock(node), "what needs no lock has been offered already"
    workflow.offer(book, token, node.role, command.lock)
    return None


def _tick(book: Book, command: Tick) -> Refusal | None:
    return None


def _push_clocks(book: Book, command: PushClocks) -> Refusal | None:
    if not 0 < command.seconds <= PUSH_MAX:
        return refuse("bad_seconds", f"clocks cannot be pushed by {command.seconds} s")
    book.emit(ClocksPushed(at=book.now, seconds=command.seconds))
    return None


HANDLERS = cast(
    "dict[type[RunCommand], Callable[[Book, Any], Refusal | None]]",
    {
        GrantLock: _grant_lock,
        Claim: _claim,
        Report: _report,
        Lose: _lose,
        MissRole: _miss_role,
        Tick: _tick,
        Answer: people.answer,
        Move: people.move,
        Migrate: people.migrate,
        Close: people.close,
        Pause: people.pause,
        Resume: people.resume,
        Patch: people.patch,
        PushClocks: _push_clocks,
    },
)

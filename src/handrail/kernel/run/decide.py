"""decide: accept or refuse a command. Only this module accepts or refuses a run's commands.

Order: due clocks fire first; then `decide` accepts or refuses the command; then the run advances as
far as it can; then approvals whose shown content changed are reopened. A refusal by itself changes
nothing. A result from any agent but the holder of an open dispatch costs nothing and changes
nothing (K21).
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from handrail.kernel.decision import Decision, Refusal, refuse
from handrail.kernel.definition.context_keys import refuse_reserved
from handrail.kernel.definition.model import OVERRIDE_LEVEL, PERSON_LEVELS, NodeType, Team
from handrail.kernel.definition.plan import Plan
from handrail.kernel.input_checks import (
    SMALL_BYTES,
    are_simple_texts,
    check_context_size,
    find_bad_figures,
    find_json_problem,
    is_bad_usage,
    result_bytes_max,
)
from handrail.kernel.result import NO_EVIDENCE, Outcome, Result
from handrail.kernel.run import clocks, guarded, human_commands, team, workflow
from handrail.kernel.run.commands import (
    Answer,
    Ask,
    Claim,
    Close,
    GrantLock,
    Lose,
    Migrate,
    MissRole,
    Move,
    Observe,
    Patch,
    Pause,
    PushClocks,
    Report,
    Resume,
    RunCommand,
    Start,
    StartGuarded,
    Tick,
)
from handrail.kernel.run.decision_builder import (
    DecisionBuilder,
    ReleaseLock,
    RunEffect,
    derive_effects,
)
from handrail.kernel.run.events import Claimed, ClocksPushed, Paused, RunEvent, Started
from handrail.kernel.run.state import OFFERED, Person, Position, PositionPhase, Run, to_timedelta
from handrail.kernel.stop.budgets import BudgetState

_encode = msgspec.json.Encoder().encode
RunDecision = Decision[RunEvent, RunEffect]
PUSH_SECONDS_MAX = 10 * 365 * 86400.0
COMMAND_TEXT_FIELDS = (
    *("agent", "bead_id", "context", "definition_id", "description", "digest", "filed_by"),
    *("files", "from_step_id", "malformed", "patch", "paths", "step_id", "approval_id", "reason"),
    *("run_id", "options", "text", "title"),
)
"""Command fields that callers fill with texts or plain values."""
RESULT_TEXT_FIELDS = (
    "text",
    "data",
    "to",
    "reason",
    "task",
    "remaining",
    "question",
    "options",
    "marker",
    "waits_for",
)
"""Result fields that agents write."""


def decide(
    plan: Plan,
    run: Run | None,
    command: RunCommand,
    now: datetime,
    budgets: tuple[BudgetState, ...] = (),
) -> RunDecision:
    """Return events, effects, perhaps a refusal. Never raise for bad input or change `run`."""
    return decide_and_apply(plan, run, command, now, budgets)[0]


def decide_and_apply(
    plan: Plan,
    run: Run | None,
    command: RunCommand,
    now: datetime,
    budgets: tuple[BudgetState, ...] = (),
) -> tuple[RunDecision, Run | None]:
    """Return the decision and the run after its events, so that callers need not evolve it again.

    Without events, return the same `run` object. `budgets` are those that the definition names, as
    they stand.
    """
    builder = DecisionBuilder(plan, run, now, budgets)
    refusal = None if _is_trivially_valid(command) else _validate_command(command)
    if refusal is not None:
        pass
    elif isinstance(command, Start):
        refusal = _start(builder, run, command)
    elif run is None:
        refusal = refuse(
            "unknown_run", f"{type(command).__name__}: the run does not exist", "start it first"
        )
    elif run.terminal_status is not None:
        refusal = _refuse_ended(builder, command)
    else:
        refusal = _handle(builder, command)
    if not builder.events:
        return Decision(refusal=refusal), run
    run_effects = derive_effects(plan, run, builder.run, builder.events)
    if type(command) is GrantLock and builder.run.has_ended:
        run_effects += _release_unused_lock(plan, command)
    decision = Decision(
        events=tuple(builder.events), effects=run_effects, refusal=refusal, fault=builder.fault
    )
    return decision, builder.run


def _release_unused_lock(plan: Plan, command: GrantLock) -> tuple[RunEffect, ...]:
    """Release a lock granted to a run that ends instead of using it."""
    if plan.kind == "team" or not plan.has_step(command.step_id):
        return ()
    return (
        ReleaseLock(
            step_id=command.step_id,
            repository=plan.commit_repositories.get(command.step_id, "default"),
            lock=command.lock,
        ),
    )


def _is_trivially_valid(command: RunCommand) -> bool:
    """Whether the command is a claim, a plain result or a plain start, as nearly every command is.
    This check takes a tenth of the time of the full validation."""
    if type(command) is Claim:
        return are_simple_texts(command.agent)
    if type(command) is Start:
        start_texts = command.title, command.description, command.filed_by, command.from_step_id
        ids = command.run_id, command.bead_id, command.definition_id
        return not command.context and not command.paths and are_simple_texts(*start_texts, *ids)
    if type(command) is not Report:
        return False
    result = command.result
    if type(result.outcome) is not Outcome or result.data or result.remaining or result.options:
        return False
    if result.waits_for or result.retry_after:
        return False
    if result.evidence != NO_EVIDENCE or is_bad_usage(result.usage):
        return False
    texts = result.text, result.to, result.reason, result.task, result.question, result.marker
    model = result.usage.model, result.usage.provider
    return are_simple_texts(command.agent, command.malformed, *texts, *model)


def _validate_command(command: RunCommand) -> Refusal | None:
    """Refuse values that do not survive storage unchanged, and figures out of range."""
    values = [
        getattr(command, name) for name in COMMAND_TEXT_FIELDS if name in command.__struct_fields__
    ]
    by: Person | str | None = getattr(command, "by", None)
    values += [by.name if isinstance(by, Person) else by] if by is not None else []
    problem = find_json_problem([value for value in values if value])
    if isinstance(command, Report) and not problem:
        result = command.result
        if result.outcome is not None and result.outcome not in set(Outcome):
            return refuse(
                "unusable",
                f"'{result.outcome}' is not an outcome",
                f"use one of {', '.join(Outcome)}",
            )
        values = [getattr(result, name) for name in RESULT_TEXT_FIELDS]
        problem = find_json_problem([value for value in values if value]) or find_bad_figures(
            result
        )
    if not problem:
        return guarded.check_author(command) if isinstance(command, Observe) else None
    return refuse(
        "unusable",
        f"{type(command).__name__} cannot be recorded: {problem}",
        "correct the value and send it again",
    )


def _handle(builder: DecisionBuilder, command: RunCommand) -> Refusal | None:
    # After an outage PushClocks comes before the clocks fire. A migration is decided under a plan
    # that may lack the run's positions, so the clocks of its dispatches are skipped.
    kind = type(command)
    if _is_altered(builder, command):
        return _hold(builder, command)
    if kind is not PushClocks:
        clocks.expire(builder, dispatches=kind is not Migrate)
        if builder.events and builder.run.terminal_status is None:
            _advance(builder)
        if builder.budgets and builder.run.terminal_status is None:
            builder.record_budgets()
            builder.end_if_spent()
        if builder.run.terminal_status is not None:
            return None if kind is Tick else _refuse_ended(builder, command)
    context = builder.run.context
    refusal = HANDLERS[kind](builder, command)
    if kind is Claim:
        return refusal  # a claim changes nothing else in the run
    if refusal is None and builder.run.terminal_status is None:
        _advance(builder)
    if (
        builder.run.pending_approvals and builder.run.context is not context
    ):  # an ended run has no approvals
        human_commands.reopen_approvals(builder)
    return refusal


def _is_altered(builder: DecisionBuilder, command: RunCommand) -> bool:
    """Whether the plan is not that of the text with which the run began. A migration is decided
    under the plan of another version, and may leave an altered one."""
    is_migration = isinstance(command, Migrate) or (
        isinstance(command, Observe) and command.version
    )
    return not is_migration and not builder.plan.is_of(builder.run.definition_digest)


def _hold(builder: DecisionBuilder, command: RunCommand) -> Refusal | None:
    """Under an altered definition nothing goes on: the run is paused, and ends with the pause, or
    when a person closes it. Neither asks the definition."""
    if builder.run.pause_deadline is None:
        builder.emit(
            Paused(
                at=builder.now,
                by="",
                reason=f"the definition is not the one of version {builder.run.version} with which "
                "the run began: it was altered in the database",
                deadline=builder.now + to_timedelta(builder.plan.settings.pause_deadline),
            )
        )
    elif not isinstance(command, PushClocks):
        clocks.expire(builder)
        if builder.run.has_ended:
            return None if isinstance(command, Tick) else _refuse_ended(builder, command)
    if isinstance(command, Close | PushClocks | Tick):
        return HANDLERS[type(command)](builder, command)
    run = builder.run
    return refuse(
        "definition_changed",
        f"version {run.version} of '{run.definition_id}' is not the one with which run '{run.id}' "
        f"began: it was altered in the database, and the run ends at {run.pause_deadline}",
        "close the run, or restore the definition, start again and resume the run",
    )


def _advance(builder: DecisionBuilder) -> None:
    (team if builder.run.kind == "team" else workflow).advance(builder)


def _refuse_ended(builder: DecisionBuilder, command: RunCommand) -> Refusal | None:
    if isinstance(command, Observe | Ask):
        return guarded.check_reporter(builder, command)
    run, command_name = builder.run, type(command).__name__
    return refuse(
        "ended",
        f"run '{run.id}' has ended ({run.terminal_status}) and takes no {command_name}",
        "start another run of the bead",
    )


def _start(builder: DecisionBuilder, run: Run | None, command: Start) -> Refusal | None:
    if run is not None:
        return refuse("started", f"run '{run.id}' has been started already")
    if isinstance(command, StartGuarded):
        return guarded.start(builder, command)
    plan, definition = builder.plan, builder.plan.definition
    if plan.is_guarded:
        return refuse(
            "guarded",
            f"'{definition.name}' describes a guarded program, which this server does not run",
            "run that program under guard",
        )
    is_team = isinstance(definition, Team)
    step_id = command.from_step_id
    if step_id and not plan.has_step(step_id):
        return refuse("unknown_place", f"'{definition.name}' has no step '{step_id}'")
    review = definition.review if is_team else None
    if command.review == "required" and review is None:
        return refuse(
            "no_review",
            f"bead '{command.bead_id}' requires a review, and '{definition.name}' has none",
            "leave `review` out, or take a definition with one",
        )
    if command.starter is not None:
        refusal = _check_starter(plan, command, command.starter)
        if refusal is not None:
            return refusal
    if not step_id:
        step_id = definition.start if is_team else plan.graph.nodes[plan.graph.start].id
    builder.emit(
        Started(
            at=builder.now,
            run_id=command.run_id,
            bead_id=command.bead_id,
            definition_id=command.definition_id or definition.id or definition.name,
            version=command.version,
            kind="team" if is_team else "workflow",
            step_id=step_id,
            blocks={} if is_team else workflow.blocks_around(plan, step_id),
            limits=plan.limits_for(command.context.get("task_scope")),
            task=_choose_first_task(builder, step_id, command) if is_team else "",
            title=command.title,
            description=command.description,
            filed_by=command.filed_by,
            context=command.context,
            review=command.review,
            paths=command.paths,
            phase=definition.initial_phase if is_team else "",
            filed=command.filed,
            definition_digest=plan.digest,
            budgets=builder.budgets,
        )
    )
    _advance(builder)
    return None


def _check_starter(plan: Plan, command: Start, starter: Person) -> Refusal | None:
    """A person below ceo writes no reserved keys, and skips no approval by a start behind it."""
    level, step_id = PERSON_LEVELS.get(starter.role, -1), command.from_step_id
    if step_id and plan.kind == "workflow" and level < PERSON_LEVELS[OVERRIDE_LEVEL]:
        nodes = plan.graph.nodes
        for i in sorted(plan.graph.nodes_before(plan.graph.index[step_id])):
            if nodes[i].type is NodeType.APPROVAL:
                return refuse(
                    "behind_approval",
                    f"{starter.name} ({starter.role}) may not begin at '{step_id}': "
                    f"'{nodes[i].id}' is before it",
                    f"begin before it, or ask a {OVERRIDE_LEVEL}",
                )
    if not plan.reserved_keys:
        return None
    return refuse_reserved(plan.reserved_keys, command.context, starter.name, starter.role)


def _choose_first_task(builder: DecisionBuilder, step_id: str, command: Start) -> str:
    context = {**command.context, "phase": builder.plan.team.initial_phase}
    tasks = builder.plan.agents[step_id].tasks
    return next((task.id for task in tasks if builder.evaluate(task.when, context).holds), "")


def _require_holder(
    builder: DecisionBuilder, fence: int, agent: str, subject: str
) -> Position | Refusal:
    """Return the position of an open, claimed dispatch if this agent holds it, else a refusal."""
    position = builder.run.find_position(fence)
    if position is None:
        return refuse(
            "late",
            f"{subject} of '{agent}' for dispatch {fence} of run '{builder.run.id}' comes "
            "too late: the dispatch was answered, lost, timed out or cancelled",
            "drop the result and claim again",
        )
    if position.phase is OFFERED:
        return refuse(
            "not_claimed",
            f"dispatch {fence} of run '{builder.run.id}' has not been claimed",
            "claim the dispatch first",
        )
    if position.agent != agent:
        return refuse(
            "foreign",
            (
                f"dispatch {fence} of run '{builder.run.id}' is held by '{position.agent}', not "
                f"'{agent}'"
            ),
            "report only dispatches that this agent has claimed",
        )
    return position


def _claim(builder: DecisionBuilder, command: Claim) -> Refusal | None:
    position = builder.run.find_position(command.fence)
    if position is None or position.phase is not OFFERED:
        return refuse(
            "not_offered",
            f"dispatch {command.fence} of run '{builder.run.id}' is not on offer",
            "claim another dispatch",
        )
    if builder.run.paused_at is not None:
        return refuse("paused", f"run '{builder.run.id}' is paused", "wait until it is resumed")
    if position.role not in command.roles:
        return refuse(
            "wrong_role",
            f"'{position.step_id}' needs the role '{position.role}', which '{command.agent}' does "
            "not have",
            "register the agent with that role",
        )
    verifying = (
        builder.run.kind == "workflow"
        and builder.plan.node(position.step_id).config.kind == "verification"
    )
    if verifying and command.agent in builder.run.committers:
        return refuse(
            "own_work",
            f"'{command.agent}' committed in run '{builder.run.id}' and may not verify it",
            "let another agent verify",
        )
    builder.emit(
        Claimed(at=builder.now, step_id=position.step_id, fence=command.fence, agent=command.agent)
    )
    return None


def _report(builder: DecisionBuilder, command: Report) -> Refusal | None:
    position = _require_holder(builder, command.fence, command.agent, "the result")
    if isinstance(position, Refusal):
        return position
    if (refusal := _check_result_size(builder, command)) is not None:
        return refusal
    result = command.result
    if result.outcome is not None and type(result.outcome) is not Outcome:
        # a Python caller may pass the plain string
        result = replace(result, outcome=Outcome(result.outcome))
    if builder.plan.reserved_keys and result.data:
        result = _without_reserved_keys(builder, position, result)
    if builder.run.concluding is not None:
        team.conclude(builder, position, builder.run.concluding, result)
    elif command.malformed and builder.run.kind == "workflow":
        workflow.handle_malformed(builder, position, command.malformed, result)
    elif command.malformed:
        team.handle_fault(builder, position, "malformed", command.malformed, result)
    elif builder.run.kind == "workflow":
        return workflow.report(builder, position, result)
    else:
        return team.report(builder, position, result)
    return None


def _without_reserved_keys(builder: DecisionBuilder, position: Position, result: Result) -> Result:
    """Leave out of an agent's data what only people may write, and warn of it."""
    names = [name for name in result.data if name in builder.plan.reserved_keys]
    if not names:
        return result
    builder.warn(
        "key_reserved",
        f"'{position.step_id}' may not write {', '.join(map(repr, names))} of the bead's context, "
        "which people have reserved; the rest of its data counts",
        position.step_id,
    )
    data = {name: value for name, value in result.data.items() if name not in names}
    return replace(result, data=data)


def _check_result_size(builder: DecisionBuilder, command: Report) -> Refusal | None:
    """Refuse a result that exceeds its share of the run's total."""
    size, context = len(_encode(command.result)) + len(command.malformed), builder.run.context
    if size > SMALL_BYTES:
        dispatches = builder.plan.bound(context.get("task_scope")).dispatches
        share = result_bytes_max(dispatches)
        if size > share:
            return refuse(
                "result_too_large",
                f"the result has {size:,} bytes; in a run of at most {dispatches:,} dispatches "
                f"each may have {share:,}",
                "shorten it: store large contents elsewhere and report where",
            )
    return check_context_size(context, command.result.data)


def _lose(builder: DecisionBuilder, command: Lose) -> Refusal | None:
    position = builder.run.find_position(command.fence)
    if position is None or position.phase is not PositionPhase.CLAIMED:
        return refuse("late", f"dispatch {command.fence} of run '{builder.run.id}' is not claimed")
    clocks.lose_dispatch(builder, position, command.reason)
    return None


def _miss_role(builder: DecisionBuilder, command: MissRole) -> Refusal | None:
    position = builder.run.find_position(command.fence)
    if (
        position is None
        or position.phase is not PositionPhase.OFFERED
        or builder.run.paused_at is not None
    ):
        return refuse(
            "not_offered", f"dispatch {command.fence} of run '{builder.run.id}' is not on offer"
        )
    grace = builder.plan.settings.role_grace
    if builder.now < position.since + to_timedelta(grace):
        return refuse(
            "too_early",
            f"dispatch {command.fence} has been offered for less than {grace:g} s (role_grace)",
            "wait until that time is over",
        )
    clocks.time_out_dispatch(builder, position, "role")
    return None


def _grant_lock(builder: DecisionBuilder, command: GrantLock) -> Refusal | None:
    position = builder.run.positions.get(command.step_id)
    waiting = position is not None and position.phase in workflow.ADVANCEABLE_PHASES
    is_workflow_node = builder.run.kind == "workflow" and builder.plan.has_step(command.step_id)
    if position is None or not waiting or not is_workflow_node or builder.run.paused_at is not None:
        return refuse(
            "not_waiting",
            f"'{command.step_id}' of run '{builder.run.id}' does not wait for a lock",
            "release the lock",
        )
    needs_lock = command.step_id in builder.plan.commit_repositories
    assert needs_lock, "what needs no lock has been offered already"
    builder.offer_dispatch(position, builder.plan.node(command.step_id).role, command.lock)
    return None


def _tick(builder: DecisionBuilder, command: Tick) -> Refusal | None:
    return None


def _push_clocks(builder: DecisionBuilder, command: PushClocks) -> Refusal | None:
    if not 0 < command.seconds <= PUSH_SECONDS_MAX:
        return refuse(
            "bad_seconds",
            f"deadlines cannot be moved by {command.seconds:g} seconds",
            f"use more than 0 and at most {PUSH_SECONDS_MAX:,.0f} seconds",
        )
    builder.emit(ClocksPushed(at=builder.now, seconds=command.seconds))
    return None


HANDLERS = cast(
    "dict[type[RunCommand], Callable[[DecisionBuilder, Any], Refusal | None]]",
    {
        GrantLock: _grant_lock,
        Claim: _claim,
        Observe: guarded.observe,
        Ask: guarded.ask,
        Report: _report,
        Lose: _lose,
        MissRole: _miss_role,
        Tick: _tick,
        Answer: human_commands.answer,
        Move: human_commands.move,
        Migrate: human_commands.migrate,
        Close: human_commands.close,
        Pause: human_commands.pause,
        Resume: human_commands.resume,
        Patch: human_commands.patch,
        PushClocks: _push_clocks,
    },
)

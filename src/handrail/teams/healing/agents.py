"""The agents of `auto-bug-workflow` on a real repository: rules that run what they talk about.

    triage         reproduces the failure; a failure that cannot be reproduced is not guessed at
    investigation  finds where it fails and who wrote that, then tries repairs in the bead's own
                   copy, dispatch by dispatch; a repair that makes all tests pass becomes the
                   proposal. Every dispatch begins on a clean copy: what a lost one left on disk is
                   gone, and what an unfinished one reported is taken from the run's record
    apply          commits what was approved, through the lane
    verification   runs all tests on the pushed commit, in a folder of its own

Each node works out anew which test shows the failure, from what people gave (`human_context`): what
agents wrote into the bead's context decides nothing. What they report was measured here.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from handrail.agents.commands import CommandLimits
from handrail.commits import CommitRejectedError, commit_agent
from handrail.engine.dispatch.agent_results import AgentFailedError
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel.decision import Value, prepare_types
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run.events import Offered, Reported
from handrail.teams.coding.agents import format_checks, human_context, summarize_checks
from handrail.teams.coding.checks import (
    Checks,
    detect_test_commands,
    external_cause,
    run_check,
    run_checks,
)
from handrail.teams.coding.failures import Failure, parse_tracebacks
from handrail.teams.coding.planning import last_result
from handrail.teams.coding.repair_search import search_repair
from handrail.teams.coding.search import is_test
from handrail.teams.coding.workspace import NotAllowedError, Workspace
from handrail.teams.healing.proposal import Cause, assess_risk, encode_proposal, format_proposal
from handrail.teams.healing.reproduction import (
    Reproduction,
    build_reproduction,
    is_same_failure,
    reported_failure,
)
from handrail.teams.healing.reverts import revert_run
from handrail.teams.healing.service import Service
from handrail.teams.scripted import fail, succeed
from handrail.views.approvals import approvals

CONCURRENT_BEADS_MAX = max(2, os.cpu_count() or 1)
"""Beads of one process whose commands run at the same time; others wait."""
INVESTIGATING_ROLES = ("qa-engineer", "backend-engineer", "web-designer", "project-manager")
"""Roles that may investigate; the engineering manager commits, and does nothing else."""
MEASURING_ROLES = frozenset({*INVESTIGATING_ROLES, "engineering-manager"})
RETRYABLE_CODES = frozenset({"busy", "fence_lost", "limit", "git_failed"})
"""Reasons of the lane not to commit, where the same attempt may succeed the next time."""
DRAFT_KEY = "draft"
"""The key of an unfinished change in a result's data and in the bead's context."""
DRAFT_BYTES_MAX = 200_000
"""Below the limit of every result (`kernel/input_checks.py`)."""


class ReproductionSetup(Value):
    """A bead's working copy, what shows its failure there, and the command of all tests."""

    workspace: Workspace
    reproduction: Reproduction
    test_command: str
    original_files: frozenset[str]
    """Files that were there before any change."""

    @property
    def changed_files(self) -> tuple[str, ...]:
        """The files that this dispatch wrote, without the test that shows the failure."""
        return tuple(sorted(set(self.workspace.written) - {self.reproduction.path}))


class ChangeDraft(Value):
    """An unfinished change in the run's record: the patch on the commit that the search is on, and
    its files.
    """

    patch: str = ""
    files: tuple[str, ...] = ()


prepare_types(ChangeDraft)


class InvestigationResult(Value):
    """The outcome of an investigation: a cause, once the copy is repaired; else a message."""

    summary: str
    cause: Cause | None = None
    tried_repairs: int = 0
    has_more: bool = False
    unfinished: bool = False
    """Whether the next dispatch goes on with what it wrote as a draft, unless it is proposed
    now.
    """
    usage: Usage = Usage()


Investigator = Callable[
    ["HealingAgents", Dispatch, ReproductionSetup, Check], Awaitable[InvestigationResult | Result]
]
"""Repairs the copy, or says why not; or asks. Whether it is repaired is measured afterwards."""


class HealingAgents:
    """The agents of one service."""

    def __init__(
        self,
        engine: Engine,
        service: Service,
        *,
        limits: CommandLimits | None = None,
        investigate: Investigator | None = None,
    ) -> None:
        self.engine, self.service = engine, service
        self.working_copies, self.lane = service.working_copies, service.lane
        self.limits = limits or CommandLimits()
        self.slots = asyncio.Semaphore(CONCURRENT_BEADS_MAX)
        self._investigate = investigate or investigate_by_rules
        self._node_handlers: dict[str, Callable[[Dispatch], Awaitable[Result]]] = {
            "triage": self.triage,
            "investigation": self.investigation,
            "apply": self.apply,
            "verification": self.verification,
            "revert": self.revert,
        }

    def agents(self) -> dict[str, Any]:
        """Return the agents by role."""
        return dict.fromkeys((*INVESTIGATING_ROLES, "engineering-manager"), self.run_dispatch)

    async def run_dispatch(self, dispatch: Dispatch) -> Result:
        handler = self._node_handlers.get(dispatch.node)
        if handler is None:
            return fail(f"nobody here knows what to do at '{dispatch.node}'")
        try:
            return await handler(dispatch)
        except (NotAllowedError, CommitRejectedError) as error:
            return fail(str(error))

    async def open_setup(self, dispatch: Dispatch, *, commit: str = "") -> ReproductionSetup:
        """Open a clean copy for the bead, at that commit or as the branch is now, with the test
        that shows its failure. Raises `NotAllowedError`.
        """
        folder = await self.working_copies.open(dispatch.bead.id, fresh=True, commit=commit)
        return await asyncio.to_thread(self._build_setup, dispatch, folder)

    def _build_setup(self, dispatch: Dispatch, folder: Path) -> ReproductionSetup:
        service = self.service
        workspace = Workspace(folder, service.constraints, python=service.python_command)
        files = frozenset(workspace.files())
        failure_test = build_reproduction(
            workspace, human_context(dispatch), dispatch.bead.title, service
        )
        if failure_test.path:
            workspace.write(failure_test.path, failure_test.text)
        test_command = service.tests or next(
            iter(detect_test_commands(workspace)), failure_test.command
        )
        return ReproductionSetup(
            workspace=workspace,
            reproduction=failure_test,
            test_command=test_command,
            original_files=files - {failure_test.path},
        )

    async def run_check(self, workspace: Workspace, command: str) -> Check:
        async with self.slots:
            return await run_check(workspace, command, self.limits)

    async def triage(self, dispatch: Dispatch) -> Result:
        setup = await self.open_setup(dispatch)
        check = await self.run_check(setup.workspace, setup.reproduction.command)
        evidence = Evidence(checks=(check,), measured=True)
        if not check.exit_code:
            message = (
                f"{setup.reproduction.label} does not fail on {self.service.repository.branch}"
            )
            return fail(f"{message}; it is mended, or needs what the report does not say")
        failure, reported = _last_failure(check), reported_failure(dispatch.bead.description)
        if mismatch := _mismatch(setup, reported, failure):
            return fail(mismatch, evidence=evidence)
        specialist = human_context(dispatch).get("specialist")
        role = specialist if specialist in INVESTIGATING_ROLES else "backend-engineer"
        where = f", with {_format_failure(failure)}" if failure is not None else ""
        text = f"Reproduced: {setup.reproduction.label} fails{where}. A {role} should look at it."
        data = {
            "specialist": role,
            "reproduced": setup.reproduction.label,
            "reproduced_on": self.working_copies.base_commit(dispatch.bead.id),
        }
        return succeed(text, data=data, evidence=evidence)

    async def investigation(self, dispatch: Dispatch) -> Result:
        earlier_report = _last_report_in_visit(dispatch)
        setup = await self.open_setup(dispatch, commit=_search_base(earlier_report))
        result = await self._run_investigation(dispatch, setup, _read_draft(earlier_report))
        if DRAFT_KEY in result.data or DRAFT_KEY not in dispatch.bead.context:
            return result
        return replace(result, data={**result.data, DRAFT_KEY: None})

    async def _run_investigation(
        self, dispatch: Dispatch, setup: ReproductionSetup, draft: ChangeDraft
    ) -> Result:
        check = await self.run_check(setup.workspace, setup.reproduction.command)
        if not check.exit_code:
            return await self._result_not_reproduced(dispatch, setup)
        if cause := external_cause(check):
            message = (
                f"{setup.reproduction.label} fails, and no change of this repository mends it: "
                f"{cause}"
            )
            return fail(message, f"{message}\n{_output_tail(check)}")
        if dispatch.attempt == 1:
            return await self._inspect_failure(dispatch, setup, check)
        if draft.patch and await self.working_copies.apply_patch(dispatch.bead.id, draft.patch):
            await asyncio.to_thread(_mark_as_written, setup.workspace, draft.files)
        investigation_result = await self._investigate(self, dispatch, setup, check)
        if isinstance(investigation_result, Result):
            draft_data, draft_note = await self._encode_draft(dispatch, setup)
            data = {**self._search_progress(dispatch, self.tried_repairs(dispatch)), **draft_data}
            return replace(
                investigation_result, text=f"{investigation_result.text}{draft_note}", data=data
            )
        if investigation_result.cause is not None:
            return await self._propose(dispatch, setup, investigation_result)
        outcome = Outcome.CONTINUE if investigation_result.has_more else Outcome.FAILURE
        text = f"{investigation_result.summary}\n{_output_tail(check)}"
        return await self._result_without_proposal(
            dispatch, setup, investigation_result, outcome, text
        )

    async def _result_not_reproduced(self, dispatch: Dispatch, setup: ReproductionSetup) -> Result:
        """Report that the failure does not show on the clean copy, and propose no code."""
        base, label = self.working_copies.base_commit(dispatch.bead.id), setup.reproduction.label
        triaged = last_result(dispatch, "triage")
        if triaged is not None and triaged.data.get("reproduced_on") == base:
            contradiction = (
                f"{label} failed at triage and does not fail now, on the same commit {base[:12]}"
            )
            return fail(f"{contradiction}; nothing is proposed: see what else it depends on")
        branch = self.service.repository.branch
        message = f"{label} does not fail on {branch} any more, at {base[:12]}"
        message = f"{message}; this attempt changed no code"
        try:
            cause = Cause(told=message)
            return await self._propose(
                dispatch, setup, InvestigationResult(summary=message, cause=cause)
            )
        except CommitRejectedError as error:
            if error.code != "nothing":
                raise
            return fail(f"{message}, and there is nothing to propose")

    async def _result_without_proposal(
        self,
        dispatch: Dispatch,
        setup: ReproductionSetup,
        investigation_result: InvestigationResult,
        outcome: Outcome,
        text: str,
    ) -> Result:
        """Report a dispatch without a proposal, and how far the search has come."""
        keeps_draft = investigation_result.unfinished and outcome is Outcome.CONTINUE
        draft_data, draft_note = (
            await self._encode_draft(dispatch, setup) if keeps_draft else ({}, "")
        )
        return Result(
            outcome=outcome,
            text=f"{text}{draft_note}",
            reason=text.partition("\n")[0],
            data={
                **self._search_progress(dispatch, investigation_result.tried_repairs),
                **draft_data,
            },
            usage=investigation_result.usage,
        )

    async def _encode_draft(
        self, dispatch: Dispatch, setup: ReproductionSetup
    ) -> tuple[dict[str, Any], str]:
        """Return what this dispatch has written and not proposed, for the run's record; or why it
        is not kept.
        """
        if not (files := setup.changed_files):
            return {}, ""
        try:
            draft = ChangeDraft(
                patch=await self.working_copies.diff(dispatch.bead.id, files), files=files
            )
        except CommitRejectedError as error:
            return {}, f"\nIts unfinished change is not kept: {error}"
        size = len(msgspec.json.encode(draft))
        if size > DRAFT_BYTES_MAX:
            reason = f"it has {size:,} bytes, more than {DRAFT_BYTES_MAX:,}; change less at once"
            return {}, f"\nIts unfinished change is not kept: {reason}"
        return ({DRAFT_KEY: msgspec.to_builtins(draft)} if draft.patch else {}), ""

    async def _inspect_failure(
        self, dispatch: Dispatch, setup: ReproductionSetup, check: Check
    ) -> Result:
        """Find where it fails, and who wrote that; change nothing."""
        failure = _last_failure(check)
        own_frames = (
            [f for f in failure.frames if f.path in setup.original_files] if failure else []
        )
        own_frames = [frame for frame in own_frames if not is_test(frame.path)]
        lines = [
            f"{setup.reproduction.label} fails: "
            f"{_format_failure(failure) if failure else _output_tail(check)}"
        ]
        for frame in reversed(own_frames):
            lines.append(f"- {frame.path}:{frame.line} {frame.name}")
        blame = ""
        if own_frames:
            blame = await self.working_copies.blame(
                dispatch.bead.id, own_frames[-1].path, own_frames[-1].line
            )
            lines.append(f"The last of them was written by {blame}.")
        inspection = {
            "suspects": [f"{f.path}:{f.line} {f.name}" for f in own_frames],
            "blame": blame,
        }
        data = {
            **self._search_progress(dispatch, self.tried_repairs(dispatch)),
            "looked_at": inspection,
        }
        return Result(outcome=Outcome.CONTINUE, text="\n".join(lines), data=data)

    async def _propose(
        self,
        dispatch: Dispatch,
        setup: ReproductionSetup,
        investigation_result: InvestigationResult,
    ) -> Result:
        """Propose the copy as it is, if all tests pass and no person has rejected it."""
        cause = investigation_result.cause
        assert cause is not None
        evidence = await self._measure(setup)
        if any(check.exit_code for check in evidence.checks):
            state = (
                "it was changed, and is not mended"
                if setup.changed_files
                else investigation_result.summary
            )
            message = f"{state}: {summarize_checks(evidence)}"
            return await self._result_without_proposal(
                dispatch, setup, investigation_result, Outcome.CONTINUE, message
            )
        proposal = await self.working_copies.propose(dispatch.bead.id, run_id=dispatch.run.id)
        if proposal.patch_id in _rejected_patch_ids(dispatch):
            message = "the repair that helps is one that a person has turned down; looking on"
            without_draft = replace(investigation_result, unfinished=False)
            return await self._result_without_proposal(
                dispatch, setup, without_draft, Outcome.CONTINUE, message
            )
        risk = assess_risk(proposal, cause.pattern, setup.original_files)
        return succeed(
            format_proposal(proposal, cause, evidence.checks, risk),
            data={
                **self._search_progress(dispatch, investigation_result.tried_repairs),
                "proposal": encode_proposal(proposal, cause, evidence.checks, risk),
            },
            evidence=evidence,
            usage=investigation_result.usage,
        )

    async def _measure(self, setup: ReproductionSetup) -> Evidence:
        """Run all tests, and the one that shows the failure, whether or not it is among them."""
        commands = tuple(dict.fromkeys((setup.reproduction.command, setup.test_command)))
        async with self.slots:
            return await run_checks(setup.workspace, Checks(commands=commands), self.limits)

    async def apply(self, dispatch: Dispatch) -> Result:
        result = await commit_agent(self.lane, dispatch.position.agent)(dispatch)
        rejection = cast("dict[str, Any]", result.data.get("not_applied") or {})
        if rejection.get("code") in RETRYABLE_CODES:
            raise AgentFailedError(result.text)  # the same attempt again, not another patch
        return result

    async def verification(self, dispatch: Dispatch) -> Result:
        commit = last_commit(dispatch)
        if not commit:
            return fail("nothing was committed in this run; there is nothing to verify")
        async with self.working_copies.checkout(commit) as folder:
            setup = await asyncio.to_thread(self._build_setup, dispatch, folder)
            evidence = await self._measure(setup)
        verdict = f"On {commit[:12]} {summarize_checks(evidence)}."
        if any(check.exit_code for check in evidence.checks):
            return fail(verdict, f"{verdict}\n{format_checks(evidence)}", evidence=evidence)
        return succeed(verdict, evidence=evidence)

    async def revert(self, dispatch: Dispatch) -> Result:
        return await revert_run(self.engine, self.lane, dispatch)

    def tried_repairs(self, dispatch: Dispatch) -> int:
        """Count the repairs tried on this very commit: the search goes on there."""
        earlier_result = last_result(dispatch, "investigation")
        stored_value: object = (
            earlier_result.data.get("investigation") if earlier_result is not None else None
        )
        progress = cast("dict[str, Any]", stored_value) if isinstance(stored_value, dict) else {}
        is_same_base = progress.get("base") == self.working_copies.base_commit(dispatch.bead.id)
        return int(progress.get("tried", 0)) if is_same_base else 0

    def _search_progress(self, dispatch: Dispatch, tried_repairs: int) -> dict[str, Any]:
        base = self.working_copies.base_commit(dispatch.bead.id)
        return {"investigation": {"tried": tried_repairs, "base": base}}


async def investigate_by_rules(
    healing_agents: HealingAgents, dispatch: Dispatch, setup: ReproductionSetup, check: Check
) -> InvestigationResult:
    """Try the next repairs of the library, each in a copy of the copy."""
    scratch = Path(healing_agents.service.home) / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    full_check = await healing_agents.run_check(setup.workspace, setup.test_command)
    command = setup.test_command if full_check.exit_code else setup.reproduction.command
    async with healing_agents.slots:
        search = await search_repair(
            setup.workspace,
            command,
            scratch,
            healing_agents.tried_repairs(dispatch),
            healing_agents.limits,
        )
    if search.repair is None:
        outlook = "there are more to try" if search.has_more else "and there is nothing else to try"
        summary = (
            f"{search.tried_repairs} repairs were tried for {setup.reproduction.label}; none "
            f"helps, {outlook}"
        )
        return InvestigationResult(
            summary=summary, tried_repairs=search.tried_repairs, has_more=search.has_more
        )
    repair = search.repair
    try:
        setup.workspace.write(repair.path, repair.text)
    except NotAllowedError as error:
        summary = f"the repair that helps cannot be proposed: {repair.description}, and {error}"
        return InvestigationResult(
            summary=summary, tried_repairs=search.tried_repairs - 1
        )  # nothing behind it is any better
    cause = Cause(
        told=(
            f"{repair.description} ({repair.pattern}, repair {search.tried_repairs} that was tried)"
        ),
        place=repair.path,
        blame=_recorded_blame(dispatch),
        pattern=repair.pattern,
    )
    return InvestigationResult(
        summary=repair.description, cause=cause, tried_repairs=search.tried_repairs
    )


def _mismatch(setup: ReproductionSetup, reported: Failure | None, failure: Failure | None) -> str:
    """Return why this failure is not the reported one; "" if it may be."""
    if failure is None or (reported is not None and is_same_failure(reported, failure)):
        return ""
    if failure.exception == "ModuleNotFoundError":
        python = " ".join(setup.workspace.python)
        message = f"{setup.reproduction.label} cannot be asked: {failure.message}, with {python}"
        return f"{message}; set `python` in the service's file to the one that has its packages"
    if reported is None:
        return ""
    message = f"{setup.reproduction.label} fails, but with {_format_failure(failure)}, not with"
    return f"{message} {_format_failure(reported)}; it is another bug"


def _last_report_in_visit(dispatch: Dispatch) -> Result | None:
    """Return what the last dispatch of this very visit reported; None if none did, or all were
    lost.
    """
    for event in reversed(dispatch.events):
        if isinstance(event, Reported) and event.step_id == dispatch.node:
            return event.result
        if isinstance(event, Offered) and event.step_id == dispatch.node and event.attempt == 1:
            return None
    return None


def _search_base(result: Result | None) -> str:
    """Return the commit that the search is on; "" for the branch as it is now."""
    progress: object = result.data.get("investigation") if result is not None else None
    base: object = (
        cast("dict[str, Any]", progress).get("base") if isinstance(progress, dict) else None
    )
    return base if isinstance(base, str) else ""


def _read_draft(result: Result | None) -> ChangeDraft:
    try:
        return msgspec.convert(
            result.data.get(DRAFT_KEY) or {} if result is not None else {}, ChangeDraft
        )
    except msgspec.ValidationError:
        return ChangeDraft()


def _mark_as_written(workspace: Workspace, files: tuple[str, ...]) -> None:
    """Mark the files of a draft as written by this dispatch. Raises `NotAllowedError` for a
    protected one.
    """
    present = set(workspace.files())
    for path in files:
        if path in present:
            workspace.write(path, workspace.read(path))


def last_commit(dispatch: Dispatch) -> str:
    """Return the commit that this run pushed last, by its own record."""
    commits = [e for e in dispatch.events if isinstance(e, Reported) and e.committed]
    return str(commits[-1].result.data.get("commit", "")) if commits else ""


def _rejected_patch_ids(dispatch: Dispatch) -> set[str]:
    """Return the ids of patches that a person has rejected."""
    patch_approvals = [
        approval for approval in approvals(dispatch.events) if approval.type == "approval"
    ]
    rejected_proposals = [
        approval.proposal for approval in patch_approvals if approval.decision == "revise"
    ]
    proposals = [
        cast("dict[str, Any]", proposal)
        for proposal in rejected_proposals
        if isinstance(proposal, dict)
    ]
    return {str(proposal.get("patch_id")) for proposal in proposals}


def _recorded_blame(dispatch: Dispatch) -> str:
    stored_value: object = dispatch.bead.context.get("looked_at")
    return (
        str(cast("dict[str, Any]", stored_value).get("blame", ""))
        if isinstance(stored_value, dict)
        else ""
    )


def _last_failure(check: Check) -> Failure | None:
    failures = parse_tracebacks(check.stderr)
    return failures[-1] if failures else None


def _format_failure(failure: Failure) -> str:
    frame = failure.frames[-1] if failure.frames else None
    where = f" in {frame.path} {frame.name}" if frame is not None else ""
    return f"{failure.exception}: {failure.message[:200]}{where}"


def _output_tail(check: Check) -> str:
    return "\n".join(check.stderr.splitlines()[-20:])

"""The agents of `auto-bug-workflow` on a real repository: rules that run what they talk about.

    triage         makes the failure again; what cannot be made again is not guessed at
    investigation  looks where it fails and who wrote that, then tries repairs in the bead's own
                   copy, dispatch by dispatch; what makes all tests pass becomes the proposal.
                   Every dispatch begins on a clean copy: what a lost one left on disk is gone, and
                   what an unfinished one reported is taken from the run's record
    apply          commits what was approved, through the lane
    verification   runs all tests on the pushed commit, in a folder of its own

Which test shows the failure is worked out anew at each node from what people gave (`given`): what
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
from handrail.commits import NotApplied, commit_agent
from handrail.engine.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.returned import AgentFailed
from handrail.kernel.approval import approvals
from handrail.kernel.decision import Value, learn
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run.events import Offered, Reported
from handrail.teams.coding.checks import Checks, detected, is_elsewhere, run_check, run_checks
from handrail.teams.coding.crew import given, told_of, verdict_of
from handrail.teams.coding.failures import Failure, tracebacks
from handrail.teams.coding.mending import mend
from handrail.teams.coding.planning import last
from handrail.teams.coding.search import is_test
from handrail.teams.coding.workspace import NotAllowed, Workspace
from handrail.teams.healing.proposal import Cause, packed, risk_of, shown
from handrail.teams.healing.reproduction import Reproduction, is_same, reported, reproduction
from handrail.teams.healing.service import Service
from handrail.teams.healing.taking_back import take_back
from handrail.teams.scripted import fail, succeed

AT_ONCE = max(2, os.cpu_count() or 1)
"""Beads of one process whose commands run at the same time; others wait for their turn."""
ROLES = ("qa-engineer", "backend-engineer", "web-designer", "project-manager")
"""Who may be asked to investigate; the engineering manager commits, and does nothing else."""
TRUSTED = frozenset({*ROLES, "engineering-manager"})
PASSES = frozenset({"busy", "fence_lost", "limit", "git_failed"})
"""Why the lane did not commit, where the same attempt may get through the next time."""
DRAFT = "draft"
"""Where an unfinished change lies in a result's data and in the bead's context."""
DRAFT_BYTES_MAX = 200_000
"""Below what every result may have (`kernel/run/sums.py`)."""


class Bench(Value):
    """A bead's working copy, what shows its failure there, and the command of all tests."""

    workspace: Workspace
    shows: Reproduction
    tests: str
    files: frozenset[str]
    """Those that were there before anybody changed something."""

    @property
    def changed(self) -> tuple[str, ...]:
        """What this dispatch wrote, without the test that shows the failure."""
        return tuple(sorted(set(self.workspace.written) - {self.shows.path}))


class Draft(Value):
    """An unfinished change that was reported, in the run's record: the patch on the commit that the
    search is on, and its files."""

    patch: str = ""
    files: tuple[str, ...] = ()


learn(Draft)


class Repaired(Value):
    """What an investigation came to: a cause, once the copy is mended; else what to say."""

    told: str
    cause: Cause | None = None
    tried: int = 0
    left: bool = False
    unfinished: bool = False
    """What it wrote is a draft that the next dispatch goes on with, unless it is proposed now."""
    usage: Usage = Usage()


Investigate = Callable[["Healers", Dispatch, Bench, Check], Awaitable[Repaired | Result]]
"""Mends the copy, or says why not; or asks. Whether it is mended is measured afterwards."""


class Healers:
    """The agents of one service."""

    def __init__(
        self,
        engine: Engine,
        service: Service,
        *,
        limits: CommandLimits | None = None,
        investigate: Investigate | None = None,
    ) -> None:
        self.engine, self.service = engine, service
        self.copies, self.lane = service.copies, service.lane
        self.limits = limits or CommandLimits()
        self.room = asyncio.Semaphore(AT_ONCE)
        self._investigate = investigate or by_rules
        self._steps: dict[str, Callable[[Dispatch], Awaitable[Result]]] = {
            "triage": self.triage,
            "investigation": self.investigation,
            "apply": self.apply,
            "verification": self.verification,
            "revert": self.revert,
        }

    def agents(self) -> dict[str, Any]:
        """By role."""
        return dict.fromkeys((*ROLES, "engineering-manager"), self.works)

    async def works(self, dispatch: Dispatch) -> Result:
        step = self._steps.get(dispatch.node)
        if step is None:
            return fail(f"nobody here knows what to do at '{dispatch.node}'")
        try:
            return await step(dispatch)
        except (NotAllowed, NotApplied) as error:
            return fail(str(error))

    async def bench(self, dispatch: Dispatch, *, commit: str = "") -> Bench:
        """A clean copy for the bead, at that commit or as the branch is now, with the test that
        shows its failure. Raises `NotAllowed`."""
        folder = await self.copies.open(dispatch.bead.id, fresh=True, commit=commit)
        return await asyncio.to_thread(self._bench, dispatch, folder)

    def _bench(self, dispatch: Dispatch, folder: Path) -> Bench:
        workspace = Workspace(folder, self.service.constraints)
        files = frozenset(workspace.files())
        service = self.service
        shows = reproduction(
            workspace, given(dispatch), dispatch.bead.title, service.app, service.examples
        )
        if shows.path:
            workspace.write(shows.path, shows.text)
        tests = service.tests or next(iter(detected(workspace)), shows.command)
        return Bench(workspace=workspace, shows=shows, tests=tests, files=files - {shows.path})

    async def run(self, workspace: Workspace, command: str) -> Check:
        async with self.room:
            return await run_check(workspace, command, self.limits)

    async def triage(self, dispatch: Dispatch) -> Result:
        bench = await self.bench(dispatch)
        check = await self.run(bench.workspace, bench.shows.command)
        evidence = Evidence(checks=(check,), measured=True)
        if not check.exit_code:
            told = f"{bench.shows.told} does not fail on {self.service.repository.branch}"
            return fail(f"{told}; it is mended, or needs what the report does not say")
        seen, told = _deepest(check), reported(dispatch.bead.description)
        if seen is not None and told is not None and not is_same(told, seen):
            here = f"{bench.shows.told} fails, but with {_at(seen)}, not with {_at(told)}"
            return fail(f"{here}; it is another bug", evidence=evidence)
        specialist = given(dispatch).get("specialist")
        role = specialist if specialist in ROLES else "backend-engineer"
        where = f", with {_at(seen)}" if seen is not None else ""
        text = f"Reproduced: {bench.shows.told} fails{where}. A {role} should look at it."
        data = {
            "specialist": role,
            "reproduced": bench.shows.told,
            "reproduced_on": self.copies.begun(dispatch.bead.id),
        }
        return succeed(text, data=data, evidence=evidence)

    async def investigation(self, dispatch: Dispatch) -> Result:
        before = _reported_in_visit(dispatch)
        bench = await self.bench(dispatch, commit=_searched_on(before))
        result = await self._investigated(dispatch, bench, _draft_in(before))
        if DRAFT in result.data or DRAFT not in dispatch.bead.context:
            return result
        return replace(result, data={**result.data, DRAFT: None})

    async def _investigated(self, dispatch: Dispatch, bench: Bench, draft: Draft) -> Result:
        check = await self.run(bench.workspace, bench.shows.command)
        if not check.exit_code:
            return await self._not_reproduced(dispatch, bench)
        if why := is_elsewhere(check):
            told = f"{bench.shows.told} fails, and no change of this repository mends it: {why}"
            return fail(told, f"{told}\n{_ending(check)}")
        if dispatch.attempt == 1:
            return await self._look(dispatch, bench, check)
        if draft.patch and await self.copies.patch(dispatch.bead.id, draft.patch):
            await asyncio.to_thread(_count_as_written, bench.workspace, draft.files)
        repaired = await self._investigate(self, dispatch, bench, check)
        if isinstance(repaired, Result):
            kept, why_not = await self._draft(dispatch, bench)
            data = {**self._searched(dispatch, self.tried(dispatch)), **kept}
            return replace(repaired, text=f"{repaired.text}{why_not}", data=data)
        if repaired.cause is not None:
            return await self._propose(dispatch, bench, repaired)
        outcome = Outcome.CONTINUE if repaired.left else Outcome.FAILURE
        text = f"{repaired.told}\n{_ending(check)}"
        return await self._without(dispatch, bench, repaired, outcome, text)

    async def _not_reproduced(self, dispatch: Dispatch, bench: Bench) -> Result:
        """The failure does not show on the clean copy: that is told, and no code is proposed."""
        base, shows = self.copies.begun(dispatch.bead.id), bench.shows.told
        triaged = last(dispatch, "triage")
        if triaged is not None and triaged.data.get("reproduced_on") == base:
            same = f"{shows} failed at triage and does not fail now, on the same commit {base[:12]}"
            return fail(f"{same}; nothing is proposed: see what else it depends on")
        branch = self.service.repository.branch
        told = f"{shows} does not fail on {branch} any more, at {base[:12]}"
        told = f"{told}; this attempt changed no code"
        try:
            cause = Cause(told=told)
            return await self._propose(dispatch, bench, Repaired(told=told, cause=cause))
        except NotApplied as error:
            if error.code != "nothing":
                raise
            return fail(f"{told}, and there is nothing to propose")

    async def _without(
        self, dispatch: Dispatch, bench: Bench, repaired: Repaired, outcome: Outcome, text: str
    ) -> Result:
        """A turn without a proposal, and how far the search has come."""
        goes_on = repaired.unfinished and outcome is Outcome.CONTINUE
        kept, why_not = await self._draft(dispatch, bench) if goes_on else ({}, "")
        return Result(
            outcome=outcome,
            text=f"{text}{why_not}",
            reason=text.partition("\n")[0],
            data={**self._searched(dispatch, repaired.tried), **kept},
            usage=repaired.usage,
        )

    async def _draft(self, dispatch: Dispatch, bench: Bench) -> tuple[dict[str, Any], str]:
        """What this dispatch has written and not proposed, as the run's record keeps it; or why it
        is not kept."""
        if not (files := bench.changed):
            return {}, ""
        try:
            draft = Draft(patch=await self.copies.diff(dispatch.bead.id, files), files=files)
        except NotApplied as error:
            return {}, f"\nIts unfinished change is not kept: {error}"
        size = len(msgspec.json.encode(draft))
        if size > DRAFT_BYTES_MAX:
            why = f"it has {size:,} bytes, more than {DRAFT_BYTES_MAX:,}; change less at once"
            return {}, f"\nIts unfinished change is not kept: {why}"
        return ({DRAFT: msgspec.to_builtins(draft)} if draft.patch else {}), ""

    async def _look(self, dispatch: Dispatch, bench: Bench, check: Check) -> Result:
        """Where it fails, and who wrote that: nothing is changed yet."""
        failure = _deepest(check)
        own = [f for f in failure.frames if f.path in bench.files] if failure else []
        own = [frame for frame in own if not is_test(frame.path)]
        told = [f"{bench.shows.told} fails: {_at(failure) if failure else _ending(check)}"]
        for frame in reversed(own):
            told.append(f"- {frame.path}:{frame.line} {frame.name}")
        blame = ""
        if own:
            blame = await self.copies.blame(dispatch.bead.id, own[-1].path, own[-1].line)
            told.append(f"The last of them was written by {blame}.")
        found = {"suspects": [f"{f.path}:{f.line} {f.name}" for f in own], "blame": blame}
        data = {**self._searched(dispatch, self.tried(dispatch)), "looked_at": found}
        return Result(outcome=Outcome.CONTINUE, text="\n".join(told), data=data)

    async def _propose(self, dispatch: Dispatch, bench: Bench, repaired: Repaired) -> Result:
        """What is in the copy now, if all tests pass and nobody has turned it down."""
        cause = repaired.cause
        assert cause is not None
        evidence = await self._measured(bench)
        if any(one.exit_code for one in evidence.checks):
            what = "it was changed, and is not mended" if bench.changed else repaired.told
            told = f"{what}: {verdict_of(evidence)}"
            return await self._without(dispatch, bench, repaired, Outcome.CONTINUE, told)
        proposal = await self.copies.propose(dispatch.bead.id, run=dispatch.run.id)
        if proposal.patch_id in _turned_down(dispatch):
            told = "the repair that helps is one that a person has turned down; looking on"
            again = replace(repaired, unfinished=False)
            return await self._without(dispatch, bench, again, Outcome.CONTINUE, told)
        risk = risk_of(proposal, cause.pattern, bench.files)
        return succeed(
            shown(proposal, cause, evidence.checks, risk),
            data={
                **self._searched(dispatch, repaired.tried),
                "proposal": packed(proposal, cause, evidence.checks, risk),
            },
            evidence=evidence,
            usage=repaired.usage,
        )

    async def _measured(self, bench: Bench) -> Evidence:
        """All tests, and the one that shows the failure, whether or not it is among them."""
        commands = tuple(dict.fromkeys((bench.shows.command, bench.tests)))
        async with self.room:
            return await run_checks(bench.workspace, Checks(commands=commands), self.limits)

    async def apply(self, dispatch: Dispatch) -> Result:
        result = await commit_agent(self.lane, dispatch.token.agent)(dispatch)
        why = cast("dict[str, Any]", result.data.get("not_applied") or {})
        if why.get("code") in PASSES:
            raise AgentFailed(result.text)  # the same attempt again, not another patch
        return result

    async def verification(self, dispatch: Dispatch) -> Result:
        commit = committed(dispatch)
        if not commit:
            return fail("nothing was committed in this run; there is nothing to verify")
        async with self.copies.at(commit) as folder:
            bench = await asyncio.to_thread(self._bench, dispatch, folder)
            evidence = await self._measured(bench)
        told = f"On {commit[:12]} {verdict_of(evidence)}."
        if any(one.exit_code for one in evidence.checks):
            return fail(told, f"{told}\n{told_of(evidence)}", evidence=evidence)
        return succeed(told, evidence=evidence)

    async def revert(self, dispatch: Dispatch) -> Result:
        return await take_back(self.engine, self.lane, dispatch)

    def tried(self, dispatch: Dispatch) -> int:
        """How many repairs were tried on this very commit: the search goes on there."""
        before = last(dispatch, "investigation")
        said: object = before.data.get("investigation") if before is not None else None
        held = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        same = held.get("base") == self.copies.begun(dispatch.bead.id)
        return int(held.get("tried", 0)) if same else 0

    def _searched(self, dispatch: Dispatch, tried: int) -> dict[str, Any]:
        base = self.copies.begun(dispatch.bead.id)
        return {"investigation": {"tried": tried, "base": base}}


async def by_rules(healers: Healers, dispatch: Dispatch, bench: Bench, check: Check) -> Repaired:
    """The next repairs of the library, each tried in a copy of the copy."""
    scratch = Path(healers.service.home) / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    whole = await healers.run(bench.workspace, bench.tests)
    command = bench.tests if whole.exit_code else bench.shows.command
    async with healers.room:
        mended = await mend(
            bench.workspace, command, scratch, healers.tried(dispatch), healers.limits
        )
    if mended.repair is None:
        more = "there are more to try" if mended.left else "and there is nothing else to try"
        told = f"{mended.tried} repairs were tried for {bench.shows.told}; none helps, {more}"
        return Repaired(told=told, tried=mended.tried, left=mended.left)
    repair = mended.repair
    try:
        bench.workspace.write(repair.path, repair.text)
    except NotAllowed as error:
        told = f"the repair that helps cannot be proposed: {repair.told}, and {error}"
        return Repaired(told=told, tried=mended.tried - 1)  # nothing behind it is any better
    cause = Cause(
        told=f"{repair.told} ({repair.pattern}, repair {mended.tried} that was tried)",
        place=repair.path,
        blame=_blamed(dispatch),
        pattern=repair.pattern,
    )
    return Repaired(told=repair.told, cause=cause, tried=mended.tried)


def _reported_in_visit(dispatch: Dispatch) -> Result | None:
    """What the last dispatch of this very visit reported; None if none did, or all were lost."""
    for event in reversed(dispatch.past):
        if isinstance(event, Reported) and event.place == dispatch.node:
            return event.result
        if isinstance(event, Offered) and event.place == dispatch.node and event.attempt == 1:
            return None
    return None


def _searched_on(result: Result | None) -> str:
    """The commit that the search is on; "" for the branch as it is now."""
    held: object = result.data.get("investigation") if result is not None else None
    base: object = cast("dict[str, Any]", held).get("base") if isinstance(held, dict) else None
    return base if isinstance(base, str) else ""


def _draft_in(result: Result | None) -> Draft:
    try:
        return msgspec.convert(result.data.get(DRAFT) or {} if result is not None else {}, Draft)
    except msgspec.ValidationError:
        return Draft()


def _count_as_written(workspace: Workspace, files: tuple[str, ...]) -> None:
    """The files of a draft are this dispatch's as well. Raises `NotAllowed` for a protected one."""
    present = set(workspace.files())
    for path in files:
        if path in present:
            workspace.write(path, workspace.read(path))


def committed(dispatch: Dispatch) -> str:
    """The commit that this run pushed last, by its own record."""
    done = [e for e in dispatch.past if isinstance(e, Reported) and e.committed]
    return str(done[-1].result.data.get("commit", "")) if done else ""


def _turned_down(dispatch: Dispatch) -> set[str]:
    """The ids of patches that a person did not want."""
    asked = [one for one in approvals(dispatch.past) if one.type == "approval"]
    unwanted = [one.proposal for one in asked if one.decision == "revise"]
    found = [cast("dict[str, Any]", one) for one in unwanted if isinstance(one, dict)]
    return {str(one.get("patch_id")) for one in found}


def _blamed(dispatch: Dispatch) -> str:
    said: object = dispatch.bead.context.get("looked_at")
    return str(cast("dict[str, Any]", said).get("blame", "")) if isinstance(said, dict) else ""


def _deepest(check: Check) -> Failure | None:
    found = tracebacks(check.stderr)
    return found[-1] if found else None


def _at(failure: Failure) -> str:
    place = failure.frames[-1] if failure.frames else None
    where = f" in {place.path} {place.name}" if place is not None else ""
    return f"{failure.kind}: {failure.message[:200]}{where}"


def _ending(check: Check) -> str:
    return "\n".join(check.stderr.splitlines()[-20:])

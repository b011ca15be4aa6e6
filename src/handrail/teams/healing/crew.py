"""The agents of `auto-bug-workflow` on a real repository: rules that run what they talk about.

    triage         makes the failure again; what cannot be made again is not guessed at
    investigation  looks where it fails and who wrote that, then tries repairs in the bead's own
                   copy, dispatch by dispatch; what makes all tests pass becomes the proposal
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

from handrail.agents.commands import CommandLimits
from handrail.commits import NotApplied, commit_agent
from handrail.engine.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.engine.returned import AgentFailed
from handrail.kernel.approval import approvals
from handrail.kernel.decision import Value
from handrail.kernel.result import Check, Evidence, Outcome, Result, Usage
from handrail.kernel.run.events import Reported
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


class Bench(Value):
    """A bead's working copy, what shows its failure there, and the command of all tests."""

    workspace: Workspace
    shows: Reproduction
    tests: str
    files: frozenset[str]
    """Those that were there before anybody changed something."""


class Repaired(Value):
    """What an investigation came to: a cause, once the copy is mended; else what to say."""

    told: str
    cause: Cause | None = None
    tried: int = 0
    left: bool = False
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

    async def bench(self, dispatch: Dispatch, *, fresh: bool) -> Bench:
        """The bead's copy, with the test that shows its failure. Raises `NotAllowed`."""
        folder = await self.copies.open(dispatch.bead.id, fresh=fresh)
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
        bench = await self.bench(dispatch, fresh=True)
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
        return succeed(
            text, data={"specialist": role, "reproduced": bench.shows.told}, evidence=evidence
        )

    async def investigation(self, dispatch: Dispatch) -> Result:
        bench = await self.bench(dispatch, fresh=dispatch.attempt == 1)
        check = await self.run(bench.workspace, bench.shows.command)
        if not check.exit_code:
            gone = Cause(told=f"{bench.shows.told} does not fail any more; its test keeps it so")
            return await self._propose(dispatch, bench, Repaired(told=gone.told, cause=gone))
        if why := is_elsewhere(check):
            told = f"{bench.shows.told} fails, and no change of this repository mends it: {why}"
            return fail(told, f"{told}\n{_ending(check)}")
        if dispatch.attempt == 1:
            return await self._look(dispatch, bench, check)
        repaired = await self._investigate(self, dispatch, bench, check)
        if isinstance(repaired, Result):
            return repaired
        if repaired.cause is not None:
            return await self._propose(dispatch, bench, repaired)
        outcome = Outcome.CONTINUE if repaired.left else Outcome.FAILURE
        text = f"{repaired.told}\n{_ending(check)}"
        return self._without(dispatch, repaired, outcome, text)

    def _without(
        self, dispatch: Dispatch, repaired: Repaired, outcome: Outcome, text: str
    ) -> Result:
        """A turn without a proposal, and how far the search has come."""
        return Result(
            outcome=outcome,
            text=text,
            reason=text.partition("\n")[0],
            data=self._searched(dispatch, repaired.tried),
            usage=repaired.usage,
        )

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
            told = f"it was changed, and is not mended: {verdict_of(evidence)}"
            return self._without(dispatch, repaired, Outcome.CONTINUE, told)
        proposal = await self.copies.propose(dispatch.bead.id, run=dispatch.run.id)
        if proposal.patch_id in _turned_down(dispatch):
            await self.copies.open(dispatch.bead.id, fresh=True)
            told = "the repair that helps is one that a person has turned down; looking on"
            return self._without(dispatch, repaired, Outcome.CONTINUE, told)
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

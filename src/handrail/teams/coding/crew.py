"""The agents of the coding team, offline: rules that work on real files and run real commands.

What they report was measured here, by the workspace and the checks, and nowhere else; so it may be
marked as measured. Commands are run by async functions, so that they end with the run.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from handrail.agents.commands import CommandLimits
from handrail.engine.dispatch import Dispatch
from handrail.kernel.ledger import short
from handrail.kernel.result import Evidence, Result, merged
from handrail.kernel.run.events import Patched, Started
from handrail.teams.coding.checks import Checks, checks_of, run_checks
from handrail.teams.coding.failures import tracebacks
from handrail.teams.coding.mending import mend
from handrail.teams.coding.places import Places, scene_of
from handrail.teams.coding.planning import last, next_step, standing
from handrail.teams.coding.search import research
from handrail.teams.coding.workspace import NotAllowed, Workspace
from handrail.teams.scripted import end, fail, hand

AT_ONCE = max(2, os.cpu_count() or 1)
"""Runs of one process whose commands run at the same time; others wait for their turn."""
NAMED_MAX = 20
"""Of what is named in a text."""
Documents = Callable[[str], Awaitable[Mapping[str, str]]]
"""The texts among a bead's files, by its id."""


async def no_documents(bead_id: str) -> Mapping[str, str]:
    return {}


class Crew:
    """One team's agents, and what they work with."""

    def __init__(
        self,
        places: Places,
        documents: Documents = no_documents,
        limits: CommandLimits | None = None,
    ) -> None:
        self.places, self.documents = places, documents
        self.limits = limits or CommandLimits()
        self._room = asyncio.Semaphore(AT_ONCE)

    def agents(self) -> dict[str, Any]:
        """By role."""
        return {
            "planner": self.planner,
            "researcher": self.researcher,
            "coder": self.coder,
            "verifier": self.verifier,
            "snitch": self.snitch,
            "ticket_closer": self.ticket_closer,
        }

    def task(self, dispatch: Dispatch) -> tuple[Workspace, Checks]:
        """The run's folder and its checks. Raises `NotAllowed`."""
        context = given(dispatch)
        constraints = dispatch.run.limits.constraints
        workspace = self.places.open(dispatch.run.id, context, constraints)
        goal = scene_of(context).goal if workspace.sample else ""
        return workspace, checks_of(workspace, context, goal)

    async def opened(self, dispatch: Dispatch) -> tuple[Workspace, Checks]:
        """As `task`, on a thread."""
        return await asyncio.to_thread(self.task, dispatch)

    async def measured(self, workspace: Workspace, checks: Checks) -> Evidence:
        """What the checks say."""
        async with self._room:
            return await run_checks(workspace, checks, self.limits)

    def planner(self, dispatch: Dispatch) -> Result:
        try:
            _, checks = self.task(dispatch)
        except NotAllowed as error:
            return fail(str(error))
        known = standing(dispatch, checks)
        to, why = next_step(known, dispatch.run.limits)
        red = f" ({', '.join(known.red)})" if known.red else ""
        return hand(to, f"{why}{red}", f"Next: {to}, because {why}{red}.")

    async def researcher(self, dispatch: Dispatch) -> Result:
        try:
            workspace, _ = await self.opened(dispatch)
        except NotAllowed as error:
            return fail(str(error))
        verdict = last(dispatch, "verifier")
        output = "\n".join(one.stderr for one in verdict.evidence.checks) if verdict else ""
        documents = await self.documents(dispatch.bead.id)
        task = f"{dispatch.bead.title}\n{dispatch.bead.description}".strip()
        found = await asyncio.to_thread(research, workspace, task, tracebacks(output), documents)
        told = [f"Found {len(found.places)} of {len(found.places) + len(found.missing)} things:"]
        told += [f"- {place}" for place in found.places[:NAMED_MAX]]
        told += [f"- nothing about {name!r}" for name in found.missing[:NAMED_MAX]]
        return hand(
            "planner",
            f"found {found.score:.0%} of what is named",
            "\n".join(told),
            data={"research": {"score": found.score, "places": list(found.places[:NAMED_MAX])}},
            evidence=Evidence(score=found.score, measured=True),
        )

    async def coder(self, dispatch: Dispatch) -> Result:
        try:
            workspace, checks = await self.opened(dispatch)
            return await self._code(dispatch, workspace, checks)
        except NotAllowed as error:
            return fail(str(error))

    async def _code(self, dispatch: Dispatch, workspace: Workspace, checks: Checks) -> Result:
        measured = dispatch.run.ledger.measured.checks
        red = [one for one in checks.commands if measured.get(short(one))]
        if not red:
            return hand("verifier", "nothing is red that was run", evidence=workspace.evidence())
        failing = measured[short(red[0])]
        tried = _tried(last(dispatch, "coder"), failing)
        scratch = self.places.scratch
        async with self._room:
            mended = await mend(workspace, red[0], scratch, tried, self.limits)
        data = {"coder": {"failing": failing, "tried": mended.tried}}
        if mended.repair is None:
            more = "there are more to try" if mended.left else "and there is nothing else to try"
            told = f"{mended.tried} repairs were tried for {red[0]}; none helps, {more}."
            return hand("planner", "nothing helps", told, data=data, evidence=workspace.evidence())
        told = f"{mended.repair.told} ({mended.repair.pattern}, try {mended.tried})."
        try:
            workspace.write(mended.repair.path, mended.repair.text)
        except NotAllowed as error:
            told = f"{told} It was not written: {error}"
            return hand("planner", str(error), told, data=data, evidence=workspace.evidence())
        return hand("verifier", mended.repair.told, told, data=data, evidence=workspace.evidence())

    async def verifier(self, dispatch: Dispatch) -> Result:
        try:
            workspace, checks = await self.opened(dispatch)
        except NotAllowed as error:
            return fail(str(error))
        evidence = await self.measured(workspace, checks)
        return hand("planner", verdict_of(evidence), told_of(evidence), evidence=evidence)

    async def snitch(self, dispatch: Dispatch) -> Result:
        """Looks once more itself: what it sees is what ends the run."""
        try:
            workspace, checks = await self.opened(dispatch)
        except NotAllowed as error:
            return fail(str(error))
        evidence = await self.measured(workspace, checks)
        if dispatch.run.ledger.idle.count and evidence.files is None:
            evidence = replace(evidence, files={})  # as the coder has left it
        told = [f"Nobody in this run can solve it: {verdict_of(evidence)}."]
        for place in ("researcher", "coder"):
            if (said := last(dispatch, place)) is not None:
                told.append(f"The {place} said: {said.text}")
        return hand("planner", verdict_of(evidence), "\n".join(told), evidence=evidence)

    def ticket_closer(self, dispatch: Dispatch) -> Result:
        try:
            _, checks = self.task(dispatch)
        except NotAllowed as error:
            return fail(str(error))
        known = standing(dispatch, checks)
        closed = Evidence(ticket_state="closed")
        if known.verified and not known.red and known.worked:
            return end("the checks are green", "Closed: every check is green.", evidence=closed)
        if known.verified and not known.red:
            left = ("a check that shows what the task is about: all were green from the start",)
            told = "Closed in part: there was nothing to mend that a check shows."
            return end("nothing is red", told, status="done_partial", remaining=left)
        if known.goal_green:
            left = tuple(_left(last(dispatch, "verifier"), known.red))
            told = "Closed in part: the goal is met, the rest is left to somebody else."
            return end("the goal is met", told, status="done_partial", remaining=left)
        return hand("planner", "the checks are not green", "It stays open: the checks are red.")


def given(dispatch: Dispatch) -> dict[str, Any]:
    """The bead's context as people gave it. What agents have added does not say where the run works
    or what checks it: that would be theirs to choose."""
    context: dict[str, Any] = {}
    for event in dispatch.past:
        if isinstance(event, Started):
            context = event.context
        elif isinstance(event, Patched):
            context = merged(context, event.patch)
    return context


def verdict_of(evidence: Evidence) -> str:
    """In one line: what is red."""
    red = [one.command for one in evidence.checks if one.exit_code]
    if not red:
        return f"all {len(evidence.checks)} checks are green"
    failing = f", failing: {', '.join(evidence.failures[:3])}" if evidence.failures else ""
    more = len(evidence.failures or ()) - 3
    return f"red: {', '.join(red)}{failing}{f' and {more} more' if more > 0 else ''}"


def told_of(evidence: Evidence) -> str:
    """Every check, with the end of what it said."""
    lines: list[str] = []
    for one in evidence.checks:
        lines.append(f"{one.command}: {'green' if not one.exit_code else f'red ({one.exit_code})'}")
        if one.exit_code:
            lines += [f"    {line}" for line in one.stderr.splitlines()[-NAMED_MAX:]]
    return "\n".join(lines)


def _tried(result: Result | None, failing: str) -> int:
    """How many repairs were tried for this very failure: the search goes on there."""
    said: object = result.data.get("coder") if result is not None else None
    held = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    return int(held.get("tried", 0)) if held.get("failing") == failing else 0


def _left(verdict: Result | None, red: tuple[str, ...]) -> list[str]:
    failing = (verdict.evidence.failures or ()) if verdict is not None else ()
    return [f"{name} fails" for name in failing[:NAMED_MAX]] or [f"{one} is red" for one in red]

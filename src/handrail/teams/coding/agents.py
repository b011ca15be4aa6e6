"""The agents of the coding team, offline: rules that work on real files and run real commands.

The workspace and the checks measure all that they report, so it may be marked as measured. Async
functions run the commands, so that these end with the run.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from handrail.agents.commands import CommandLimits
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.result import Evidence, Result, merge_patch
from handrail.kernel.run.events import Patched, Started
from handrail.kernel.stop.ledger import short_key
from handrail.teams.coding.checks import Checks, find_checks, run_checks
from handrail.teams.coding.failures import parse_tracebacks
from handrail.teams.coding.planning import coding_status, last_result, next_step
from handrail.teams.coding.repair_search import search_repair
from handrail.teams.coding.search import research
from handrail.teams.coding.workspace import NotAllowedError, Workspace
from handrail.teams.coding.workspaces import Workspaces, find_scene
from handrail.teams.scripted import fail, hand_off, terminate

CONCURRENT_RUNS_MAX = max(2, os.cpu_count() or 1)
"""Runs of one process whose commands run at the same time; others wait."""
LISTED_ITEMS_MAX = 20
"""Items that a text names at most."""
DocumentLoader = Callable[[str], Awaitable[Mapping[str, str]]]
"""Loads the texts among a bead's files, by its id."""


async def load_no_documents(bead_id: str) -> Mapping[str, str]:
    return {}


class CodingAgents:
    """One team's agents, and what they work with."""

    def __init__(
        self,
        workspaces: Workspaces,
        load_documents: DocumentLoader = load_no_documents,
        limits: CommandLimits | None = None,
    ) -> None:
        self.workspaces, self.load_documents = workspaces, load_documents
        self.limits = limits or CommandLimits()
        self._slots = asyncio.Semaphore(CONCURRENT_RUNS_MAX)

    def agents(self) -> dict[str, Any]:
        """Return the agents by role."""
        return {
            "planner": self.planner,
            "researcher": self.researcher,
            "coder": self.coder,
            "verifier": self.verifier,
            "snitch": self.snitch,
            "ticket_closer": self.ticket_closer,
        }

    def open_task(self, dispatch: Dispatch) -> tuple[Workspace, Checks]:
        """Return the run's folder and its checks. Raises `NotAllowedError`."""
        context = human_context(dispatch)
        constraints = dispatch.run.limits.constraints
        workspace = self.workspaces.open(dispatch.run.id, context, constraints)
        goal = find_scene(context).goal if workspace.is_sample else ""
        return workspace, find_checks(workspace, context, goal)

    async def open_task_in_thread(self, dispatch: Dispatch) -> tuple[Workspace, Checks]:
        """Like `open_task`, on a thread."""
        return await asyncio.to_thread(self.open_task, dispatch)

    async def measure_checks(self, workspace: Workspace, checks: Checks) -> Evidence:
        """Run the checks and return their evidence."""
        async with self._slots:
            return await run_checks(workspace, checks, self.limits)

    def planner(self, dispatch: Dispatch) -> Result:
        try:
            _, checks = self.open_task(dispatch)
        except NotAllowedError as error:
            return fail(str(error))
        status = coding_status(dispatch, checks)
        to, reason = next_step(status, dispatch.run.limits)
        red = f" ({', '.join(status.red)})" if status.red else ""
        return hand_off(to, f"{reason}{red}", f"Next: {to}, because {reason}{red}.")

    async def researcher(self, dispatch: Dispatch) -> Result:
        try:
            workspace, _ = await self.open_task_in_thread(dispatch)
        except NotAllowedError as error:
            return fail(str(error))
        verdict = last_result(dispatch, "verifier")
        output = "\n".join(check.stderr for check in verdict.evidence.checks) if verdict else ""
        documents = await self.load_documents(dispatch.bead.id)
        task = f"{dispatch.bead.title}\n{dispatch.bead.description}".strip()
        research_result = await asyncio.to_thread(
            research, workspace, task, parse_tracebacks(output), documents
        )
        lines = [
            f"Found {len(research_result.locations)} of "
            f"{len(research_result.locations) + len(research_result.missing)} things:"
        ]
        lines += [f"- {location}" for location in research_result.locations[:LISTED_ITEMS_MAX]]
        lines += [
            f"- nothing about {name!r}" for name in research_result.missing[:LISTED_ITEMS_MAX]
        ]
        return hand_off(
            "planner",
            f"found {research_result.score:.0%} of what is named",
            "\n".join(lines),
            data={
                "research": {
                    "score": research_result.score,
                    "places": list(research_result.locations[:LISTED_ITEMS_MAX]),
                }
            },
            evidence=Evidence(score=research_result.score, measured=True),
        )

    async def coder(self, dispatch: Dispatch) -> Result:
        try:
            workspace, checks = await self.open_task_in_thread(dispatch)
            return await self._repair(dispatch, workspace, checks)
        except NotAllowedError as error:
            return fail(str(error))

    async def _repair(self, dispatch: Dispatch, workspace: Workspace, checks: Checks) -> Result:
        measured = dispatch.run.ledger.measured.checks
        red = [command for command in checks.commands if measured.get(short_key(command))]
        if not red:
            return hand_off(
                "verifier", "nothing is red that was run", evidence=workspace.evidence()
            )
        signature = measured[short_key(red[0])]
        tried = _tried_repairs(last_result(dispatch, "coder"), signature)
        scratch = self.workspaces.scratch
        async with self._slots:
            search = await search_repair(workspace, red[0], scratch, tried, self.limits)
        data = {"coder": {"failing": signature, "tried": search.tried_repairs}}
        if search.repair is None:
            outlook = (
                "there are more to try" if search.has_more else "and there is nothing else to try"
            )
            text = f"{search.tried_repairs} repairs were tried for {red[0]}; none helps, {outlook}."
            return hand_off(
                "planner", "nothing helps", text, data=data, evidence=workspace.evidence()
            )
        text = f"{search.repair.description} ({search.repair.pattern}, try {search.tried_repairs})."
        try:
            workspace.write(search.repair.path, search.repair.text)
        except NotAllowedError as error:
            text = f"{text} It was not written: {error}"
            return hand_off("planner", str(error), text, data=data, evidence=workspace.evidence())
        return hand_off(
            "verifier", search.repair.description, text, data=data, evidence=workspace.evidence()
        )

    async def verifier(self, dispatch: Dispatch) -> Result:
        try:
            workspace, checks = await self.open_task_in_thread(dispatch)
        except NotAllowedError as error:
            return fail(str(error))
        evidence = await self.measure_checks(workspace, checks)
        return hand_off(
            "planner", summarize_checks(evidence), format_checks(evidence), evidence=evidence
        )

    async def snitch(self, dispatch: Dispatch) -> Result:
        """Run the checks once more itself: its own evidence ends the run."""
        try:
            workspace, checks = await self.open_task_in_thread(dispatch)
        except NotAllowedError as error:
            return fail(str(error))
        evidence = await self.measure_checks(workspace, checks)
        if dispatch.run.ledger.idle.count and evidence.files is None:
            evidence = replace(evidence, files={})  # as the coder has left it
        lines = [f"Nobody in this run can solve it: {summarize_checks(evidence)}."]
        for agent_id in ("researcher", "coder"):
            if (result := last_result(dispatch, agent_id)) is not None:
                lines.append(f"The {agent_id} said: {result.text}")
        return hand_off("planner", summarize_checks(evidence), "\n".join(lines), evidence=evidence)

    def ticket_closer(self, dispatch: Dispatch) -> Result:
        try:
            _, checks = self.open_task(dispatch)
        except NotAllowedError as error:
            return fail(str(error))
        status = coding_status(dispatch, checks)
        closed = Evidence(ticket_state="closed")
        if status.verified and not status.red and status.was_worked_on:
            return terminate(
                "the checks are green", "Closed: every check is green.", evidence=closed
            )
        if status.verified and not status.red:
            remaining = (
                "a check that shows what the task is about: all were green from the start",
            )
            text = "Closed in part: there was nothing to mend that a check shows."
            return terminate("nothing is red", text, status="done_partial", remaining=remaining)
        if status.goal_met:
            remaining = tuple(_remaining_failures(last_result(dispatch, "verifier"), status.red))
            text = "Closed in part: the goal is met, the rest is left to somebody else."
            return terminate("the goal is met", text, status="done_partial", remaining=remaining)
        return hand_off("planner", "the checks are not green", "It stays open: the checks are red.")


def human_context(dispatch: Dispatch) -> dict[str, Any]:
    """Return the bead's context as people gave it.

    Agents' additions do not decide where the run works or what checks it.
    """
    context: dict[str, Any] = {}
    for event in dispatch.events:
        if isinstance(event, Started):
            context = event.context
        elif isinstance(event, Patched):
            context = merge_patch(context, event.patch)
    return context


def summarize_checks(evidence: Evidence) -> str:
    """Name the failed checks in one line."""
    red = [check.command for check in evidence.checks if check.exit_code]
    if not red:
        return f"all {len(evidence.checks)} checks are green"
    failing = f", failing: {', '.join(evidence.failures[:3])}" if evidence.failures else ""
    more = len(evidence.failures or ()) - 3
    return f"red: {', '.join(red)}{failing}{f' and {more} more' if more > 0 else ''}"


def format_checks(evidence: Evidence) -> str:
    """Show every check, with the end of its output."""
    lines: list[str] = []
    for check in evidence.checks:
        lines.append(
            f"{check.command}: {'green' if not check.exit_code else f'red ({check.exit_code})'}"
        )
        if check.exit_code:
            lines += [f"    {line}" for line in check.stderr.splitlines()[-LISTED_ITEMS_MAX:]]
    return "\n".join(lines)


def _tried_repairs(result: Result | None, signature: str) -> int:
    """Count the repairs tried for this very failure: the search goes on there."""
    stored_value: object = result.data.get("coder") if result is not None else None
    progress = cast("dict[str, Any]", stored_value) if isinstance(stored_value, dict) else {}
    return int(progress.get("tried", 0)) if progress.get("failing") == signature else 0


def _remaining_failures(verdict: Result | None, red: tuple[str, ...]) -> list[str]:
    failing = (verdict.evidence.failures or ()) if verdict is not None else ()
    return [f"{name} fails" for name in failing[:LISTED_ITEMS_MAX]] or [
        f"{command} is red" for command in red
    ]

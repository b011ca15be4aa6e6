"""The coding team with a language model: it plans, searches and writes; rules measure and close.

The model's tools go through the same workspace and the same checks as the rules do, so its writes
and commands meet the same constraints, whatever it was talked into. Its own claims are no evidence:
files, checks and scores are measured here after its dispatch. Verifier and ticket closer stay
rules: nothing red is closed because a model says so.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from handrail.agents.model import model_agent
from handrail.engine.dispatch.agent_results import AgentFailedError
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.result import Check, Evidence, Result
from handrail.teams.coding.agents import CodingAgents
from handrail.teams.coding.checks import EXIT_REFUSED, TEST_COMMAND_PATTERN, Checks, run_check
from handrail.teams.coding.search import find_code_names, research
from handrail.teams.coding.workspace import NotAllowedError, Workspace
from handrail.teams.scripted import fail

LISTED_FILES_MAX = 500
SEARCH_HITS_MAX = 100
TASK_KEYS = frozenset({"folder", "repository", "goal", "checks", "demo", "task_scope"})
"""Keys of the bead's context that are the task, and not the model's to change."""
Tool = Callable[..., object]
ROLE_INSTRUCTIONS = {
    "planner": "Look at what was measured before you choose. You change nothing yourself.",
    "researcher": "Search, then name every file, function and line that matters, in backticks."
    " Your text is scored by how much of what you name is really there.",
    "coder": "Read before you write. Write whole files, change as little as possible, and run the"
    " check before you hand over.",
    "snitch": "Say plainly what was tried, what failed, and what a person should do next.",
}


class WorkspaceTools:
    """One dispatch of a model: its folder, its checks, and the commands that it was refused."""

    def __init__(self, coding_agents: CodingAgents, workspace: Workspace, checks: Checks) -> None:
        self.coding_agents, self.workspace, self.checks = coding_agents, workspace, checks
        self.refused_checks: list[Check] = []

    def tools(self, role: str) -> Sequence[Tool]:
        read_only: list[Tool] = [self.list_files, self.read_file, self.search]
        return [*read_only, self.write_file, self.run_check] if role == "coder" else read_only

    def list_files(self) -> str:
        """List the files of the folder."""
        files = self.workspace.files()
        more = (
            f"\n… and {len(files) - LISTED_FILES_MAX} more" if len(files) > LISTED_FILES_MAX else ""
        )
        return "\n".join(files[:LISTED_FILES_MAX]) + more

    def read_file(self, path: str) -> str:
        """Read one file of the folder, with line numbers."""
        lines = self.workspace.read(path).splitlines()
        return "\n".join(f"{n:5} {line}" for n, line in enumerate(lines, start=1))

    def search(self, text: str) -> str:
        """Find a text, as it is written, in all files of the folder."""
        hits: list[str] = []
        for path in self.workspace.files():
            try:
                lines = self.workspace.read(path).splitlines()
            except NotAllowedError:
                continue
            hits += [f"{path}:{n}: {line[:200]}" for n, line in enumerate(lines, 1) if text in line]
            if len(hits) >= SEARCH_HITS_MAX:
                break
        return "\n".join(hits[:SEARCH_HITS_MAX]) or "nothing found"

    def write_file(self, path: str, text: str) -> str:
        """Write one file of the folder, as a whole."""
        self.workspace.write(path, text)
        return f"{path} is written"

    async def run_check(self, command: str) -> str:
        """Run one of the task's checks, or tests of it: python -m unittest NAME."""
        if self.workspace.command_constraint(command):
            check = await run_check(self.workspace, command, self.coding_agents.limits)
            self.refused_checks.append(check)
        elif command in self.checks.commands or TEST_COMMAND_PATTERN.fullmatch(command):
            check = await run_check(self.workspace, command, self.coding_agents.limits)
        else:
            message = f"not run: it is none of {', '.join(self.checks.commands)}"
            check = Check(command=command, exit_code=EXIT_REFUSED, stderr=message)
        return f"exit code {check.exit_code}\n{check.stderr}"

    async def evidence(self, role: str, dispatch: Dispatch, text: str) -> Evidence:
        """Return what was measured of the dispatch."""
        if role == "coder":
            return replace(self.workspace.evidence(), checks=tuple(self.refused_checks))
        if role == "researcher":
            documents = await self.coding_agents.load_documents(dispatch.bead.id)
            research_text = f"{dispatch.bead.title}\n{dispatch.bead.description}\n{text}"
            research_result = (
                research(self.workspace, research_text, (), documents)
                if find_code_names(text)
                else None
            )
            return Evidence(score=research_result.score if research_result else 0.0, measured=True)
        if role == "snitch":
            return await self.coding_agents.measure_checks(self.workspace, self.checks)
        return Evidence()


def build_model_agents(coding_agents: CodingAgents, model: str) -> dict[str, Any]:
    """Return the agents by role: the model for some, the others as they are offline."""
    tools_by_dispatch: dict[str, WorkspaceTools] = {}

    def build_agent(role: str) -> Callable[[Dispatch], object]:
        ask_model = model_agent(
            model,
            instructions=ROLE_INSTRUCTIONS[role],
            tools=lambda dispatch_input: tools_by_dispatch[dispatch_input.id].tools(role),
        )

        async def run_dispatch(dispatch: Dispatch) -> Result:
            try:
                workspace_tools = tools_by_dispatch[dispatch.id] = WorkspaceTools(
                    coding_agents, *await coding_agents.open_task_in_thread(dispatch)
                )
            except NotAllowedError as error:
                return fail(str(error))
            try:
                result = await ask_model(dispatch)
            except AgentFailedError as error:
                if not workspace_tools.workspace.refused and not workspace_tools.refused_checks:
                    raise
                result = fail(str(error), usage=error.usage)  # its attempts are recorded
            finally:
                del tools_by_dispatch[dispatch.id]
            data = {key: value for key, value in result.data.items() if key not in TASK_KEYS}
            evidence = await workspace_tools.evidence(role, dispatch, result.text)
            return replace(result, data=data, evidence=evidence)

        return run_dispatch

    return {**coding_agents.agents(), **{role: build_agent(role) for role in ROLE_INSTRUCTIONS}}

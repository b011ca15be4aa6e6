"""The coding team with a language model: it plans, searches and writes; rules measure and close.

The model's tools go through the same workspace and the same checks as the rules do, so its writes
and commands meet the same constraints, whatever it was talked into. What it says it did is no
evidence: files, checks and scores are measured here after its turn. Verifier and ticket closer stay
rules: nothing red is closed because a model says so.
"""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from handrail.agents.model import model_agent
from handrail.engine.dispatch import Dispatch
from handrail.engine.returned import AgentFailed
from handrail.kernel.result import Check, Evidence, Result
from handrail.teams.coding.checks import HARMLESS, REFUSED, Checks, run_check
from handrail.teams.coding.crew import Crew
from handrail.teams.coding.search import named, research
from handrail.teams.coding.workspace import NotAllowed, Workspace
from handrail.teams.scripted import fail

LISTED_MAX = 500
HITS_MAX = 100
TASK_KEYS = frozenset({"folder", "repository", "goal", "checks", "demo", "task_scope"})
"""What of the bead's context is the task, and not the model's to change."""
Tool = Callable[..., object]
ABOUT = {
    "planner": "Look at what was measured before you choose. You change nothing yourself.",
    "researcher": "Search, then name every file, function and line that matters, in backticks."
    " Your text is scored by how much of what you name is really there.",
    "coder": "Read before you write. Write whole files, change as little as possible, and run the"
    " check before you hand over.",
    "snitch": "Say plainly what was tried, what failed, and what a person should do next.",
}


class Turn:
    """One turn of a model: its folder, its checks, and the commands that it was refused."""

    def __init__(self, crew: Crew, workspace: Workspace, checks: Checks) -> None:
        self.crew, self.workspace, self.checks = crew, workspace, checks
        self.refused: list[Check] = []

    def tools(self, role: str) -> Sequence[Tool]:
        looking: list[Tool] = [self.list_files, self.read_file, self.search]
        return [*looking, self.write_file, self.run_check] if role == "coder" else looking

    def list_files(self) -> str:
        """List the files of the folder."""
        files = self.workspace.files()
        more = f"\n… and {len(files) - LISTED_MAX} more" if len(files) > LISTED_MAX else ""
        return "\n".join(files[:LISTED_MAX]) + more

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
            except NotAllowed:
                continue
            hits += [f"{path}:{n}: {line[:200]}" for n, line in enumerate(lines, 1) if text in line]
            if len(hits) >= HITS_MAX:
                break
        return "\n".join(hits[:HITS_MAX]) or "nothing found"

    def write_file(self, path: str, text: str) -> str:
        """Write one file of the folder, as a whole."""
        self.workspace.write(path, text)
        return f"{path} is written"

    async def run_check(self, command: str) -> str:
        """Run one of the task's checks, or tests of it: python -m unittest NAME."""
        if self.workspace.forbidden_command(command):
            check = await run_check(self.workspace, command, self.crew.limits)
            self.refused.append(check)
        elif command in self.checks.commands or HARMLESS.fullmatch(command):
            check = await run_check(self.workspace, command, self.crew.limits)
        else:
            told = f"not run: it is none of {', '.join(self.checks.commands)}"
            check = Check(command=command, exit_code=REFUSED, stderr=told)
        return f"exit code {check.exit_code}\n{check.stderr}"

    async def evidence(self, role: str, dispatch: Dispatch, text: str) -> Evidence:
        """What was measured of the turn."""
        if role == "coder":
            return replace(self.workspace.evidence(), checks=tuple(self.refused))
        if role == "researcher":
            documents = await self.crew.documents(dispatch.bead.id)
            asked = f"{dispatch.bead.title}\n{dispatch.bead.description}\n{text}"
            found = research(self.workspace, asked, (), documents) if named(text) else None
            return Evidence(score=found.score if found else 0.0, measured=True)
        if role == "snitch":
            return await self.crew.measured(self.workspace, self.checks)
        return Evidence()


def modelled(crew: Crew, model: str) -> dict[str, Any]:
    """The agents by role: those of ABOUT are the model, the others as they are offline."""
    turns: dict[str, Turn] = {}

    def agent(role: str) -> Callable[[Dispatch], object]:
        asked = model_agent(
            model, instructions=ABOUT[role], tools=lambda given: turns[given.id].tools(role)
        )

        async def works(dispatch: Dispatch) -> Result:
            try:
                turn = turns[dispatch.id] = Turn(crew, *await crew.opened(dispatch))
            except NotAllowed as error:
                return fail(str(error))
            try:
                result = await asked(dispatch)
            except AgentFailed as error:
                if not turn.workspace.refused and not turn.refused:
                    raise
                result = fail(str(error), usage=error.usage)  # what it tried is told all the same
            finally:
                del turns[dispatch.id]
            kept = {key: value for key, value in result.data.items() if key not in TASK_KEYS}
            measured = await turn.evidence(role, dispatch, result.text)
            return replace(result, data=kept, evidence=measured)

        return works

    return {**crew.agents(), **{role: agent(role) for role in ABOUT}}

"""The investigation by a language model, under the rules of the offline one.

The model reads, searches, writes and runs tests in the bead's own copy, through the same workspace:
it cannot touch what the repository protects, whatever it was talked into. Its fix is measured
afterwards, with the test that shows the failure written anew; and a person sees the diff before
anything is committed. What it writes and reports as unfinished (continue, ask, or a success that
the tests deny) is the next dispatch's draft; what it writes before it dies is gone.
"""

from collections.abc import Callable

from handrail.agents.model import model_agent
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.kernel.result import Check, Outcome, Result
from handrail.teams.coding.agents import CodingAgents
from handrail.teams.coding.checks import Checks
from handrail.teams.coding.model_agents import WorkspaceTools
from handrail.teams.coding.workspaces import Workspaces
from handrail.teams.healing.agents import (
    HealingAgents,
    InvestigationResult,
    Investigator,
    ReproductionSetup,
)
from handrail.teams.healing.proposal import Cause

INSTRUCTIONS = (
    "Find the cause of the failure and mend it in the code, changing as little as possible. The"
    " test '{shows}' shows it; it must pass, and so must '{tests}'. Leave the tests as they are."
    " Read before you write; write whole files; run the tests before you answer. Answer success"
    " with the cause in your first line, continue if you need another turn, and failure if no"
    " change of this repository can mend it, with what a person should know."
)


def model_investigator(model: str) -> Investigator:
    """Make an investigator from the model of that name. Raises `BadModelError`."""
    tools_by_dispatch: dict[str, WorkspaceTools] = {}
    model_agent(model)  # report a wrong name at once, not in the middle of a run

    def tools(tool_dispatch: Dispatch) -> list[Callable[..., object]]:
        return list(tools_by_dispatch[tool_dispatch.id].tools("coder"))

    async def investigate(
        healing_agents: HealingAgents, dispatch: Dispatch, setup: ReproductionSetup, check: Check
    ) -> InvestigationResult | Result:
        checks = Checks(commands=(setup.reproduction.command, setup.test_command))
        workspace_tools = WorkspaceTools(
            CodingAgents(Workspaces(), limits=healing_agents.limits), setup.workspace, checks
        )
        tools_by_dispatch[dispatch.id] = workspace_tools
        instructions = INSTRUCTIONS.format(
            shows=setup.reproduction.command, tests=setup.test_command
        )
        try:
            result = await model_agent(model, instructions=instructions, tools=tools)(dispatch)
        finally:
            del tools_by_dispatch[dispatch.id]
        return _to_investigation_result(setup, workspace_tools, result)

    return investigate


def _to_investigation_result(
    setup: ReproductionSetup, workspace_tools: WorkspaceTools, result: Result
) -> InvestigationResult | Result:
    """Decide by what the dispatch left in the copy, and not by what the model says of it."""
    written = set(workspace_tools.workspace.written) - {setup.reproduction.path}
    if setup.reproduction.path:
        setup.workspace.write(setup.reproduction.path, setup.reproduction.text)
    if result.outcome is Outcome.ASK:
        return Result(outcome=result.outcome, question=result.question, options=result.options,
                      usage=result.usage)  # fmt: skip
    refused = [
        *workspace_tools.workspace.refused,
        *(check.command for check in workspace_tools.refused_checks),
    ]
    text = "; ".join(
        (result.text or result.reason, *(f"not done: {refusal}" for refusal in refused))
    )
    if result.outcome is Outcome.FAILURE:
        return InvestigationResult(summary=text, usage=result.usage)
    if not written or result.outcome is Outcome.CONTINUE:
        return InvestigationResult(summary=text, has_more=True, unfinished=True, usage=result.usage)
    first_line = text.strip().partition("\n")[0]
    cause = Cause(told=first_line, place=", ".join(sorted(written)))
    return InvestigationResult(summary=text, cause=cause, unfinished=True, usage=result.usage)

"""The auto-bug workflow, offline: a rehearsal without a repository. `teams/healing` heals in
earnest, with one; an error that somebody reported is never only rehearsed.

Endings: success after one approval. `context.demo`: "rework" (verification fails once, then
passes), "escalate" (verification always fails: after 3 reworks the CEO is asked), "unclear" (the
investigation never ends by itself: after 5 dispatches the CEO is asked).
"""

from typing import Any

from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel.result import Outcome, Result
from handrail.teams.scripted import ScriptedAgent, bead_text, fail, requested_demo, succeed

PAGE_WORDS = ("page", "css", "button", "layout")


def scripted_agents() -> dict[str, ScriptedAgent]:
    return {
        "qa-engineer": _qa_engineer,
        "backend-engineer": _specialist,
        "web-designer": _specialist,
        "engineering-manager": _engineering_manager,
    }


def build_agents(engine: Engine, *, model: str, workspaces: tuple[str, ...]) -> dict[str, Any]:
    """Return the scripted agents, or a language model in their place; it only rehearses, too."""
    if not model:
        return scripted_agents()
    from handrail.agents.model import model_agent

    ask_model = model_agent(model)

    async def run_dispatch(dispatch: Dispatch) -> Result:
        is_reported_error = dispatch.node == "triage" and "error" in dispatch.bead.context
        return _triage(dispatch) if is_reported_error else await ask_model(dispatch)

    return dict.fromkeys(scripted_agents(), run_dispatch)


def _qa_engineer(dispatch: Dispatch) -> Result:
    return (_triage if dispatch.node == "triage" else _verification)(dispatch)


def _triage(dispatch: Dispatch) -> Result:
    if "error" in dispatch.bead.context:
        return fail("nobody has said where the code of this service is; give the setting `service`")
    is_page_bug = any(word in bead_text(dispatch) for word in PAGE_WORDS)
    specialist = "web-designer" if is_page_bug else "backend-engineer"
    text = f"Reproduced: '{dispatch.bead.title}'. A {specialist} should look at it."
    return succeed(text, data={"specialist": specialist})


def _specialist(dispatch: Dispatch) -> Result:
    if dispatch.attempt == 1 or requested_demo(dispatch) == "unclear":
        return Result(outcome=Outcome.CONTINUE, text="The traceback ends in count.py; reading on.")
    revisions = [
        iteration.text for iteration in dispatch.iterations if iteration.decision == "revise"
    ]
    answer = "Cause: an index off by one.\nProposal: in count.py use `range(1, n + 1)`."
    answer += "".join(f"\nAs asked: {text}" for text in revisions)
    return succeed(answer, data={"proposal": answer})


def _engineering_manager(dispatch: Dispatch) -> Result:
    commits = int(dispatch.bead.context.get("commits", 0)) + 1
    return succeed(f"Applied and committed, try {commits}.", data={"commits": commits})


def _verification(dispatch: Dispatch) -> Result:
    commits = int(dispatch.bead.context.get("commits", 0))
    if requested_demo(dispatch) == "escalate" or (
        requested_demo(dispatch) == "rework" and commits < 2
    ):
        return fail("test_total is red on the commit", "expected 3, got 2")
    return succeed("All tests are green on the commit.")

"""The auto-bug workflow, offline: a rehearsal without a repository. What is healed in earnest, with
one, is `teams/healing`; an error that somebody reported is never only rehearsed.

Endings: success after one approval. `context.demo`: "rework" (verification fails once, then
passes), "escalate" (verification always fails: after 3 reworks the CEO is asked), "unclear" (the
investigation never ends by itself: after 5 dispatches the CEO is asked).
"""

from typing import Any

from handrail.engine.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.kernel.result import Outcome, Result
from handrail.teams.scripted import Agent, demo, fail, succeed, words

PAGE = ("page", "css", "button", "layout")


def staff() -> dict[str, Agent]:
    return {
        "qa-engineer": _qa_engineer,
        "backend-engineer": _specialist,
        "web-designer": _specialist,
        "engineering-manager": _engineering_manager,
    }


def employed(engine: Engine, *, model: str, workspaces: tuple[str, ...]) -> dict[str, Any]:
    """As `staff`, or a language model in their place; it rehearses no more than they do."""
    if not model:
        return staff()
    from handrail.agents.model import model_agent

    asked = model_agent(model)

    async def works(dispatch: Dispatch) -> Result:
        reported = dispatch.node == "triage" and "error" in dispatch.bead.context
        return _triage(dispatch) if reported else await asked(dispatch)

    return dict.fromkeys(staff(), works)


def _qa_engineer(dispatch: Dispatch) -> Result:
    return (_triage if dispatch.node == "triage" else _verification)(dispatch)


def _triage(dispatch: Dispatch) -> Result:
    if "error" in dispatch.bead.context:
        return fail("nobody has said where the code of this service is; give the setting `service`")
    page = any(word in words(dispatch) for word in PAGE)
    specialist = "web-designer" if page else "backend-engineer"
    told = f"Reproduced: '{dispatch.bead.title}'. A {specialist} should look at it."
    return succeed(told, data={"specialist": specialist})


def _specialist(dispatch: Dispatch) -> Result:
    if dispatch.attempt == 1 or demo(dispatch) == "unclear":
        return Result(outcome=Outcome.CONTINUE, text="The traceback ends in count.py; reading on.")
    asked = [one.text for one in dispatch.iterations if one.decision == "revise"]
    told = "Cause: an index off by one.\nProposal: in count.py use `range(1, n + 1)`."
    told += "".join(f"\nAs asked: {text}" for text in asked)
    return succeed(told, data={"proposal": told})


def _engineering_manager(dispatch: Dispatch) -> Result:
    commits = int(dispatch.bead.context.get("commits", 0)) + 1
    return succeed(f"Applied and committed, try {commits}.", data={"commits": commits})


def _verification(dispatch: Dispatch) -> Result:
    commits = int(dispatch.bead.context.get("commits", 0))
    if demo(dispatch) == "escalate" or (demo(dispatch) == "rework" and commits < 2):
        return fail("test_total is red on the commit", "expected 3, got 2")
    return succeed("All tests are green on the commit.")

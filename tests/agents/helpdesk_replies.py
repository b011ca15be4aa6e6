"""A helpdesk whose agents are a language model: what the stub says for each of them."""

import re
from collections.abc import Callable
from typing import Any

from tests.agents.model_stub import ModelReply, ModelRequest, call, say

ME = re.compile(r"You are (?:the agent|at the node) '([\w-]+)'")
PHASE = re.compile(r"The phase of the run: '(\w+)'")
MODEL = "openai-chat:stub"
KEY = "sk-stub-0123456789abcdef"
HELPDESK = (
    "orchestrator",
    "memory",
    "ticketing",
    "network",
    "application",
    "cloud",
    "security",
    "summarization",
)


def agent_name(asked: ModelRequest) -> str:
    """Which agent is spoken to."""
    found = ME.search(asked.system)
    assert found is not None, asked.system
    return found[1]


def phase(asked: ModelRequest) -> str:
    found = PHASE.search(asked.prompt)
    return found[1] if found is not None else ""


NEXT = {
    "memory_check_pending": ("memory", "was a ticket like this resolved before?"),
    "ticket_analyzed": ("network", "it concerns networks"),
    "resolution_obtained": ("memory", "keep the resolution"),
    "summary_complete": ("ticketing", "the summary is complete"),
}
"""Phase -> whom the orchestrator hands to; after memory that depends on what was kept."""


def orchestrated(asked: ModelRequest) -> tuple[str, str]:
    if phase(asked) == "memory_checked":
        stored = "Your own words for what is kept: stored" in asked.prompt
        return ("summarization", "sum it up") if stored else ("ticketing", "analyze it")
    return NEXT[phase(asked)]


def by_tool(asked: ModelRequest) -> ModelReply:
    """The team's answers, each by the tool that takes them."""
    agent = agent_name(asked)
    if agent == "orchestrator":
        to, reason = orchestrated(asked)
        return call("answer", outcome="handoff", to=to, reason=reason, text=reason)
    if agent == "ticketing" and phase(asked) == "summary_complete":
        return call("answer", outcome="terminate", reason="ticket resolved", text="Closed.")
    more: dict[str, Any] = {}
    if agent == "summarization":
        more = {"marker": "WORKFLOW_COMPLETE"}
    back = {"outcome": "handoff", "to": "orchestrator", "reason": f"{agent} is done"}
    return call("answer", **back, text=_words(asked), **more)


def in_text(asked: ModelRequest) -> ModelReply:
    """The same in plain text, whose last line counts."""
    agent = agent_name(asked)
    if agent == "orchestrator":
        to, reason = orchestrated(asked)
        return say(f"I have looked at it.\n\n**HANDOFF: {to}: {reason}**")
    if agent == "ticketing" and phase(asked) == "summary_complete":
        return say("Closed.\nTERMINATE_WORKFLOW: ticket resolved")
    if agent == "summarization":
        return say("The tunnel's MTU was too large. WORKFLOW_COMPLETE")
    return say(f"{_words(asked)}\nHANDOFF: orchestrator: {agent} is done")


def _words(asked: ModelRequest) -> str:
    stores = "Your task now: `store`" in asked.prompt
    kept = "Your own words for what is kept: stored" if stores else ""
    return kept or f"{agent_name(asked)} has looked at it."


def never_ending(asked: ModelRequest) -> ModelReply:
    """Nobody ever finishes."""
    to = "memory" if agent_name(asked) == "orchestrator" else "orchestrator"
    return call("answer", outcome="handoff", to=to, reason="once more", text="hm")


Says = Callable[[ModelRequest], ModelReply]

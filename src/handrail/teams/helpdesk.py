"""Helpdesk, offline: keywords choose the specialist, a list of past tickets is the memory.

Endings: success after work, success from memory ("I forgot my password"), partial when no
specialist fits. `context.demo`: "stuck" (the orchestrator asks the same worker for ever), "ask"
(ticketing asks a person first; rejecting that closes the run).
"""

import re

from handrail.engine.dispatch import Dispatch
from handrail.kernel.result import Evidence, Result
from handrail.teams.scripted import Agent, ask, demo, end, hand, words

SPECIALTIES = {
    "security": ("phishing", "virus", "malware", "password", "stolen", "mfa"),
    "network": ("vpn", "wifi", "dns", "network", "proxy", "connection"),
    "cloud": ("bucket", "cluster", "kubernetes", "vm", "cloud", "storage"),
    "application": ("app", "crash", "crashes", "excel", "mail", "browser", "printer"),
}
STEPS = {
    "security": "Disconnect the device, change the password from another one, report to security.",
    "network": "Set the tunnel's MTU to 1400.",
    "cloud": "Check the quota of the project, then restart the failing instance.",
    "application": "Close it, clear its cache, start it once without add-ins.",
}
KNOWN = {"I forgot my password": "Use the self-service page, then sign in again everywhere."}
ALIKE = 0.5
"""Share of words that two tickets have in common when one answers the other."""


def staff() -> dict[str, Agent]:
    """The team's agents, with a memory of their own."""
    kept = dict(KNOWN)

    def memory(dispatch: Dispatch) -> Result:
        return _memory(dispatch, kept)

    workers: dict[str, Agent] = dict.fromkeys(SPECIALTIES, _worker)
    return {
        "orchestrator": _orchestrator,
        "memory": memory,
        "ticketing": _ticketing,
        "summarization": _summarization,
        **workers,
    }


def _orchestrator(dispatch: Dispatch) -> Result:
    context = dispatch.bead.context
    specialty = context.get("specialty", "")
    match dispatch.phase:
        case "memory_check_pending":
            return hand("memory", "was a ticket like this resolved before?")
        case "memory_checked" if context.get("memory") == "stored":
            return hand("summarization", "the resolution is kept; write the summary")
        case "memory_checked" if context.get("memory") == "hit":
            return hand("ticketing", "resolved before: close with the known resolution")
        case "memory_checked":
            return hand("ticketing", "nothing known: analyze the ticket")
        case "ticket_analyzed" if specialty in SPECIALTIES:
            return hand(specialty, f"the ticket concerns {specialty}")
        case "ticket_analyzed":
            return hand("ticketing", "no specialist fits", data={"resolution": "none"})
        case "resolution_obtained" if demo(dispatch) == "stuck":
            return hand(specialty, "is that really all?")
        case "resolution_obtained":
            return hand("memory", "keep the resolution")
        case _:
            return hand("ticketing", "the summary is complete: close the ticket")


def _memory(dispatch: Dispatch, kept: dict[str, str]) -> Result:
    title = dispatch.bead.title
    if dispatch.task == "store":
        kept[title] = str(dispatch.bead.context.get("resolution", ""))
        found = {"memory": "stored", "phase_detail": "stored"}
        return hand("orchestrator", "stored", f"Kept the resolution of '{title}'.", data=found)
    best = max(kept, key=lambda known: _alike(known, title), default="")
    if best and _alike(best, title) >= ALIKE:
        found = {"memory": "hit", "phase_detail": "hit", "resolution": kept[best]}
        return hand("orchestrator", "hit", f"Known from '{best}': {kept[best]}", data=found)
    found = {"memory": "miss", "phase_detail": "miss", "resolution": ""}
    return hand("orchestrator", "miss", "No ticket like this one is known.", data=found)


def _alike(one: str, other: str) -> float:
    a, b = (set(re.findall(r"\w+", text.lower())) for text in (one, other))
    return len(a & b) / len(a | b) if a | b else 0.0


def _ticketing(dispatch: Dispatch) -> Result:
    if dispatch.task == "close":
        return _close(dispatch)
    if demo(dispatch) == "ask" and not dispatch.answer:
        return ask("May a specialist connect to the device?", "yes", "no")
    text = set(re.findall(r"\w+", words(dispatch)))
    fitting = (name for name, keys in SPECIALTIES.items() if text & set(keys))
    specialty = next(fitting, "unknown")
    told = f"The ticket concerns: {specialty}."
    return hand("orchestrator", f"analyzed: {specialty}", told, data={"specialty": specialty})


def _close(dispatch: Dispatch) -> Result:
    resolution = str(dispatch.bead.context.get("resolution", "none"))
    if resolution == "none":
        told = f"'{dispatch.bead.title}' stays open for a person.\nTERMINATE_WORKFLOW"
        left = ("no specialist fits; a person has to look at the ticket",)
        return end("no specialist fits", told, status="done_partial", remaining=left)
    told = f"Ticket resolved: {resolution}\nTERMINATE_WORKFLOW"
    return end("ticket resolved", told, evidence=Evidence(ticket_state="resolved"))


def _worker(dispatch: Dispatch) -> Result:
    steps = STEPS[dispatch.agent]
    return hand("orchestrator", "resolution found", steps, data={"resolution": steps})


def _summarization(dispatch: Dispatch) -> Result:
    resolution = dispatch.bead.context.get("resolution", "")
    told = f"'{dispatch.bead.title}': {resolution}\nWORKFLOW_COMPLETE"
    return hand("orchestrator", "summary written", told, marker="WORKFLOW_COMPLETE")

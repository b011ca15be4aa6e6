"""Coding, offline: a rehearsal without files. Real files and commands come with the real agents.

Endings: success on the second patch. `context.demo`: "partial" (the goal is met, something is
left), "research" (the planner never stops asking the researcher), "same_error" (the tests stay
red the same way), "no_change" (the coder's patches are empty), "constraint" (the coder touches what
it must not).
"""

import hashlib

from handrail.engine.dispatch import Dispatch
from handrail.kernel.result import Check, Evidence, Result
from handrail.teams.scripted import Agent, demo, end, hand

TRUSTED = frozenset({"verifier"})
COMMAND = "pytest"
RED = Check(command=COMMAND, exit_code=1, stderr="AssertionError: expected 3, got 2")
GREEN = Check(command=COMMAND, exit_code=0)
NEVER_GREEN = ("same_error", "no_change")


def staff() -> dict[str, Agent]:
    return {
        "planner": _planner,
        "researcher": _researcher,
        "coder": _coder,
        "verifier": _verifier,
        "snitch": _snitch,
        "ticket_closer": _ticket_closer,
    }


def _planner(dispatch: Dispatch) -> Result:
    context = dispatch.bead.context
    if "research" not in context or demo(dispatch) == "research":
        return hand("researcher", "find out where the counting is done")
    if context.get("checks") == "green":
        return hand("ticket_closer", "the checks are green")
    return hand("coder", "the checks are red" if "checks" in context else "change the counting")


def _researcher(dispatch: Dispatch) -> Result:
    told = "The counting is done in count.py, function total."
    return hand(
        "planner", "found", told, data={"research": "count.py"}, evidence=Evidence(score=0.9)
    )


def _coder(dispatch: Dispatch) -> Result:
    patch = int(dispatch.bead.context.get("patch", 0)) + 1
    files: dict[str, str] = {"count.py": _digest(f"patch {patch}")}
    if demo(dispatch) == "no_change":
        files = {}
    if demo(dispatch) == "constraint":
        files = {".git/config": _digest("hooks off")}
    told = f"Patch {patch}: {', '.join(files) or 'nothing changed'}."
    evidence = Evidence(files=files)
    return hand("verifier", "please check", told, data={"patch": patch}, evidence=evidence)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _verifier(dispatch: Dispatch) -> Result:
    patch = int(dispatch.bead.context.get("patch", 0))
    green = patch >= 2 and demo(dispatch) not in NEVER_GREEN
    state = "green" if green else "red"
    evidence = Evidence(checks=(GREEN if green else RED,), measured=True)
    told = f"{COMMAND} is {state}."
    return hand("planner", f"{COMMAND} is {state}", told, data={"checks": state}, evidence=evidence)


def _snitch(dispatch: Dispatch) -> Result:
    return hand("ticket_closer", "written down", "Nobody in this run can solve it.")


def _ticket_closer(dispatch: Dispatch) -> Result:
    if demo(dispatch) == "partial":
        left = ("the documentation does not mention the change",)
        return end("the goal is met", status="done_partial", remaining=left)
    return end("the checks are green", "Closed.", evidence=Evidence(ticket_state="closed"))

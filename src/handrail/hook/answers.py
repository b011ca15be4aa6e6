"""Verdicts as the JSON that each coding agent reads from a hook program's standard output.

    agent        nudge                    stop: next calls   stop: turn's end     stop at once
    claude-code  additionalContext        denied             continue: false      continue: false
    codex        additionalContext        denied             continue: false      (cannot)
    gemini-cli   additionalContext        denied             continue: false      continue: false
    openhands    (cannot)                 denied             (cannot)             (cannot)

An empty answer lets the agent go on; the exit code is always 0.
"""

from enum import StrEnum
from typing import Any

import msgspec

from handrail.hook.payloads import EventKind, HookEvent
from handrail.kernel.decision import Value

Answer = dict[str, Any]


class VerdictKind(StrEnum):
    GO_ON = "go_on"
    NUDGE = "nudge"
    """The agent hears of a rule that is near."""
    STOPPED = "stopped"
    """The agent's tool calls are refused; it may say its last words."""
    HALT = "halt"
    """The agent has gone on calling tools since the stop: it is ended where that can be done."""


class HookVerdict(Value):
    kind: VerdictKind = VerdictKind.GO_ON
    text: str = ""
    """What the agent, or the user, is told."""
    notice: str = ""
    """What the user alone is told, whatever the verdict."""


GO_ON = HookVerdict()


def format_answer(event: HookEvent, verdict: HookVerdict) -> bytes:
    """Return what the hook program prints; nothing where the agent just goes on."""
    answer = FORMATTERS[event.agent](event, verdict)
    if verdict.notice and event.agent != "openhands":
        answer.setdefault("systemMessage", verdict.notice)
    return msgspec.json.encode(answer) if answer else b""


def _format_claude(event: HookEvent, verdict: HookVerdict) -> Answer:
    if verdict.kind is VerdictKind.GO_ON:
        return {}
    is_stop = verdict.kind is not VerdictKind.NUDGE
    if event.kind is EventKind.TOOL_DONE:
        answer = _with_context(event.name, verdict.text)
        return {**answer, "systemMessage": verdict.text} if is_stop else answer
    if not is_stop:
        return {}
    if event.kind is EventKind.TURN_END:
        return _halted(verdict.text)
    if event.kind is not EventKind.TOOL_PROPOSED:
        return {}
    decision = {"permissionDecision": "deny", "permissionDecisionReason": verdict.text}
    halted = _halted(verdict.text) if verdict.kind is VerdictKind.HALT else {}
    return {**halted, "hookSpecificOutput": {"hookEventName": event.name, **decision}}


def _format_codex(event: HookEvent, verdict: HookVerdict) -> Answer:
    """As Claude Code, but `continue: false` makes the answer to a proposed call invalid."""
    answer = _format_claude(event, verdict)
    if event.kind is EventKind.TOOL_PROPOSED:
        answer.pop("continue", None)
        answer.pop("stopReason", None)
    return answer


def _format_gemini(event: HookEvent, verdict: HookVerdict) -> Answer:
    if event.kind is not EventKind.TOOL_PROPOSED or verdict.kind is VerdictKind.GO_ON:
        return _format_claude(event, verdict)
    if verdict.kind is VerdictKind.NUDGE:
        return {}
    halted = _halted(verdict.text) if verdict.kind is VerdictKind.HALT else {}
    return {**halted, "decision": "deny", "reason": verdict.text}


def _format_openhands(event: HookEvent, verdict: HookVerdict) -> Answer:
    """OpenHands reads answers to proposed calls only; an end that it is refused stays refused."""
    is_stop = verdict.kind in (VerdictKind.STOPPED, VerdictKind.HALT)
    if not is_stop or event.kind is not EventKind.TOOL_PROPOSED:
        return {}
    return {"decision": "deny", "reason": verdict.text}


FORMATTERS = {
    "claude-code": _format_claude,
    "codex": _format_codex,
    "gemini-cli": _format_gemini,
    "openhands": _format_openhands,
}


def _with_context(event_name: str, text: str) -> Answer:
    return {"hookSpecificOutput": {"hookEventName": event_name, "additionalContext": text}}


def _halted(text: str) -> Answer:
    return {"continue": False, "stopReason": text}

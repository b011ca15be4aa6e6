"""What coding agents send to hook programs, read as one kind of event.

Each agent's own documentation or source was followed:

- Claude Code: code.claude.com/docs/en/hooks
- Codex CLI: openai/codex, `codex-rs/hooks/schema`
- Gemini CLI: google-gemini/gemini-cli, `docs/hooks/reference.md`
- OpenHands: OpenHands/software-agent-sdk, `openhands/sdk/hooks`

A payload is hostile: any field may be missing, of another type, or of any length.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Literal, cast, get_args

import msgspec

from handrail.kernel.decision import Value

AgentName = Literal["claude-code", "codex", "gemini-cli", "openhands"]
AGENT_NAMES: tuple[AgentName, ...] = get_args(AgentName)
PAYLOAD_BYTES_MAX = 16 * 1024 * 1024
NAME_CHARS_MAX = 200
Payload = Mapping[str, Any]


class PayloadError(ValueError):
    """A payload that no coding agent is known to send."""


class EventKind(StrEnum):
    PROMPT = "prompt"
    """A person says something: a turn begins."""
    TOOL_PROPOSED = "tool_proposed"
    TOOL_DONE = "tool_done"
    TURN_END = "turn_end"
    """The agent wants to end its turn."""
    SESSION_END = "session_end"
    OTHER = "other"


class HookEvent(Value):
    """One payload, whoever sent it."""

    agent: AgentName
    kind: EventKind
    name: str = ""
    """The agent's own name of the event."""
    session: str = ""
    subagent: str = ""
    """The id of the subagent that acts; empty for the agent itself."""
    actor: str = ""
    """The name of who acts."""
    folder: str = ""
    tool: str = ""
    arguments: Any = None
    result: Any = None
    error: str | None = None
    """How the tool call failed."""
    text: str = ""
    """What the person, or at the end of a turn the agent, said."""
    end_refused: bool | None = None
    """At the end of a turn: whether a hook has refused the end before. None: the agent does not
    say."""


EVENT_KINDS: dict[str, EventKind] = {
    "UserPromptSubmit": EventKind.PROMPT,
    "BeforeAgent": EventKind.PROMPT,
    "PreToolUse": EventKind.TOOL_PROPOSED,
    "BeforeTool": EventKind.TOOL_PROPOSED,
    "PostToolUse": EventKind.TOOL_DONE,
    "PostToolUseFailure": EventKind.TOOL_DONE,
    "AfterTool": EventKind.TOOL_DONE,
    "Stop": EventKind.TURN_END,
    "SubagentStop": EventKind.TURN_END,
    "AfterAgent": EventKind.TURN_END,
    "SessionEnd": EventKind.SESSION_END,
}
GEMINI_EVENTS = frozenset({"BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent"})
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:?) (\d{1,6})\s*$", re.MULTILINE)
"""How Codex reports the exit code of a command."""
_OUTPUT = re.compile(r"^Output:\n?", re.MULTILINE)
"""How Codex ends what it says about a command; the command's output follows."""
HEAD_CHARS = 400
"""Characters of a result in which its exit code stands."""
UNTOLD_ARGUMENTS = ("description", "summary", "security_risk")
"""What a model says beside a command, in other words each time."""
HOST_METADATA = ("metadata", "kind")
"""Fields of an OpenHands observation that describe the host, not the result."""


def read_payload(raw: bytes, agent: AgentName | None = None) -> HookEvent:
    """Read one payload; where the agent is not named, its form tells. Raises PayloadError."""
    if len(raw) > PAYLOAD_BYTES_MAX:
        raise PayloadError(f"the hook payload has more than {PAYLOAD_BYTES_MAX:,} bytes")
    try:
        payload = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise PayloadError(f"the hook payload is not valid JSON: {error}") from None
    if not isinstance(payload, dict):
        raise PayloadError("the hook payload is no JSON object")
    fields = cast("Payload", payload)
    name = agent or detect_agent(fields)
    return READERS[name](fields)


def detect_agent(payload: Payload) -> AgentName:
    """Return whose payload this is, by what only this agent's have."""
    if "event_type" in payload:
        return "openhands"
    if payload.get("hook_event_name") in GEMINI_EVENTS or "timestamp" in payload:
        return "gemini-cli"
    if "turn_id" in payload:
        return "codex"
    if "hook_event_name" in payload:
        return "claude-code"
    raise PayloadError("the hook payload names no event; send `hook_event_name` or `event_type`")


def _read_claude(payload: Payload) -> HookEvent:
    name = _text(payload, "hook_event_name")
    kind = EVENT_KINDS.get(name, EventKind.OTHER)
    failed = name == "PostToolUseFailure"
    return HookEvent(
        agent="claude-code",
        kind=kind,
        name=name,
        session=_name(payload, "session_id"),
        subagent=_name(payload, "agent_id"),
        actor=_name(payload, "agent_type") or "claude-code",
        folder=_text(payload, "cwd"),
        tool=_name(payload, "tool_name"),
        arguments=_arguments(payload),
        result=payload.get("tool_response"),
        error=_text(payload, "error") if failed else None,
        text=_text(payload, "prompt" if kind is EventKind.PROMPT else "last_assistant_message"),
        end_refused=payload.get("stop_hook_active") is True,
    )


def _read_codex(payload: Payload) -> HookEvent:
    event = _read_claude(payload)
    error = _codex_error(event.result) if isinstance(event.result, str) else None
    actor = _name(payload, "agent_type") or "codex"
    return msgspec.structs.replace(event, agent="codex", actor=actor, error=error)


def _codex_error(result: str) -> str | None:
    """Return the output of a command that failed, by the exit code at the head of the result."""
    head = result[:HEAD_CHARS]
    exit_code = _EXIT_CODE.search(head)
    if exit_code is None or int(exit_code[1]) == 0:
        return None
    output = _OUTPUT.search(head)
    return result[output.end() if output else exit_code.end() :]


def _read_gemini(payload: Payload) -> HookEvent:
    name = _text(payload, "hook_event_name")
    kind = EVENT_KINDS.get(name, EventKind.OTHER)
    response = payload.get("tool_response")
    result, failure = response, None
    if isinstance(response, dict):
        answer = cast("Payload", response)
        result = answer.get("llmContent", response)
        failure = answer.get("error")
    return HookEvent(
        agent="gemini-cli",
        kind=kind,
        name=name,
        session=_name(payload, "session_id"),
        actor="gemini-cli",
        folder=_text(payload, "cwd"),
        tool=_name(payload, "tool_name"),
        arguments=_arguments(payload),
        result=result,
        error=_describe(failure) if failure else None,
        text=_text(payload, "prompt" if kind is EventKind.PROMPT else "prompt_response"),
        end_refused=payload.get("stop_hook_active") is True,
    )


def _read_openhands(payload: Payload) -> HookEvent:
    name = _text(payload, "event_type")
    kind = EVENT_KINDS.get(name, EventKind.OTHER)
    response = payload.get("tool_response")
    result, failed = response, False
    if isinstance(response, dict):
        observation = cast("Payload", response)
        result = {key: item for key, item in observation.items() if key not in HOST_METADATA}
        failed = observation.get("is_error") is True or _failed_exit(observation.get("exit_code"))
    return HookEvent(
        agent="openhands",
        kind=kind,
        name=name,
        session=_name(payload, "session_id"),
        actor="openhands",
        folder=_text(payload, "working_dir"),
        tool=_name(payload, "tool_name"),
        arguments=_arguments(payload),
        result=result,
        error=_describe(result) if failed else None,
        text=_text(payload, "message"),
    )


READERS: dict[AgentName, Callable[[Payload], HookEvent]] = {
    "claude-code": _read_claude,
    "codex": _read_codex,
    "gemini-cli": _read_gemini,
    "openhands": _read_openhands,
}


def _failed_exit(exit_code: object) -> bool:
    return isinstance(exit_code, int) and exit_code > 0


def _arguments(payload: Payload) -> object:
    """Return the tool's arguments without what a model says beside a command."""
    arguments = payload.get("tool_input")
    if not isinstance(arguments, dict):
        return arguments
    fields = cast("Payload", arguments)
    if "command" not in fields:
        return fields
    return {key: item for key, item in fields.items() if key not in UNTOLD_ARGUMENTS}


def _describe(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text(payload: Payload, field: str) -> str:
    value = payload.get(field)
    return value if isinstance(value, str) else ""


def _name(payload: Payload, field: str) -> str:
    return _text(payload, field)[:NAME_CHARS_MAX]

"""Payloads in the form of each coding agent, after its documentation, and what its answers mean."""

import json
from typing import Any

from handrail.hook.payloads import AgentName

FOLDER = "/home/ann/shop"


class AgentForm:
    """Writes the payloads of one agent's session, and reads what a hook answers."""

    name: AgentName = "claude-code"
    flags_refused_ends = True
    overrules_other_hooks = True
    """Whether an answer at the end of a turn wins over other hooks."""
    hears_nudges = True
    ends_at_a_call = True
    """Whether an answer to a proposed call can end the agent."""

    def __init__(self, session: str = "5f1c") -> None:
        self.session = session
        self._calls = 0

    def base(self, event: str) -> dict[str, Any]:
        return {
            "session_id": self.session,
            "transcript_path": f"/home/ann/.claude/projects/shop/{self.session}.jsonl",
            "cwd": FOLDER,
            "permission_mode": "default",
            "hook_event_name": event,
        }

    def prompt(self, text: str) -> bytes:
        return self.write(self.base("UserPromptSubmit") | {"prompt": text})

    def proposed(self, tool: str, arguments: Any) -> bytes:
        self._calls += 1
        return self.write(self.base("PreToolUse") | self.call(tool, arguments))

    def done(self, tool: str, arguments: Any, result: str) -> bytes:
        response = {"stdout": result, "stderr": "", "interrupted": False, "isImage": False}
        fields = self.call(tool, arguments) | {"tool_response": response, "duration_ms": 12}
        return self.write(self.base("PostToolUse") | fields)

    def failed(self, tool: str, arguments: Any, error: str) -> bytes:
        fields = {"error": f"Exit code 1\n{error}", "is_interrupt": False, "duration_ms": 4187}
        return self.write(self.base("PostToolUseFailure") | self.call(tool, arguments) | fields)

    def end(self, text: str, *, refused: bool = False) -> bytes:
        fields = {"stop_hook_active": refused, "last_assistant_message": text}
        return self.write(self.base("Stop") | fields | {"background_tasks": []})

    def session_end(self) -> bytes:
        return self.write(self.base("SessionEnd") | {"reason": "other"})

    def call(self, tool: str, arguments: Any) -> dict[str, Any]:
        return {
            "tool_name": tool,
            "tool_input": arguments,
            "tool_use_id": f"toolu_{self._calls:04}",
        }

    def write(self, fields: dict[str, Any]) -> bytes:
        return json.dumps(fields).encode()

    def is_denied(self, answer: bytes) -> bool:
        output = json.loads(answer or b"{}").get("hookSpecificOutput", {})
        return output.get("permissionDecision") == "deny"

    def is_ended(self, answer: bytes) -> bool:
        return json.loads(answer or b"{}").get("continue", True) is False

    def nudge(self, answer: bytes) -> str:
        output = json.loads(answer or b"{}").get("hookSpecificOutput", {})
        return output.get("additionalContext", "")


class CodexForm(AgentForm):
    name = "codex"
    ends_at_a_call = False

    def base(self, event: str) -> dict[str, Any]:
        return super().base(event) | {"turn_id": "turn-1", "model": "gpt-5"}

    def done(self, tool: str, arguments: Any, result: str) -> bytes:
        fields = self.call(tool, arguments) | {"tool_response": result}
        return self.write(self.base("PostToolUse") | fields)

    def end(self, text: str, *, refused: bool = False) -> bytes:
        fields = {"stop_hook_active": refused, "last_assistant_message": text}
        return self.write(self.base("Stop") | fields)

    def session_end(self) -> bytes:
        fields = super().base("SessionEnd") | {"reason": "other"}
        del fields["permission_mode"]
        return self.write(fields)

    def failed(self, tool: str, arguments: Any, error: str) -> bytes:
        return self.done(tool, arguments, f"Exit code: 1\nWall time: 0.3 seconds\nOutput:\n{error}")


class GeminiForm(AgentForm):
    name = "gemini-cli"

    def base(self, event: str) -> dict[str, Any]:
        return {
            "session_id": self.session,
            "transcript_path": "/home/ann/.gemini/tmp/shop/chats/session.json",
            "cwd": FOLDER,
            "hook_event_name": event,
            "timestamp": "2026-11-18T10:00:00.000Z",
        }

    def prompt(self, text: str) -> bytes:
        return self.write(self.base("BeforeAgent") | {"prompt": text})

    def proposed(self, tool: str, arguments: Any) -> bytes:
        return self.write(self.base("BeforeTool") | {"tool_name": tool, "tool_input": arguments})

    def done(self, tool: str, arguments: Any, result: str) -> bytes:
        response = {"llmContent": result, "returnDisplay": result}
        return self._done(tool, arguments, response)

    def failed(self, tool: str, arguments: Any, error: str) -> bytes:
        response = {"llmContent": error, "returnDisplay": error, "error": {"message": error}}
        return self._done(tool, arguments, response)

    def _done(self, tool: str, arguments: Any, response: dict[str, Any]) -> bytes:
        fields = {"tool_name": tool, "tool_input": arguments, "tool_response": response}
        return self.write(self.base("AfterTool") | fields)

    def end(self, text: str, *, refused: bool = False) -> bytes:
        fields = {"prompt": "go", "prompt_response": text, "stop_hook_active": refused}
        return self.write(self.base("AfterAgent") | fields)

    def session_end(self) -> bytes:
        return self.write(self.base("SessionEnd") | {"reason": "exit"})

    def is_denied(self, answer: bytes) -> bool:
        return json.loads(answer or b"{}").get("decision") == "deny"


class OpenHandsForm(AgentForm):
    name = "openhands"
    flags_refused_ends = False
    overrules_other_hooks = False
    hears_nudges = False
    ends_at_a_call = False

    def base(self, event: str) -> dict[str, Any]:
        return {
            "event_type": event,
            "tool_name": None,
            "tool_input": None,
            "tool_response": None,
            "message": None,
            "session_id": self.session,
            "working_dir": FOLDER,
            "metadata": {},
        }

    def prompt(self, text: str) -> bytes:
        return self.write(self.base("UserPromptSubmit") | {"message": text})

    def done(self, tool: str, arguments: Any, result: str) -> bytes:
        return self._done(tool, arguments, result, 0)

    def failed(self, tool: str, arguments: Any, error: str) -> bytes:
        return self._done(tool, arguments, error, 1)

    def _done(self, tool: str, arguments: Any, text: str, exit_code: int) -> bytes:
        self._calls += 1
        response = {
            "content": [{"type": "text", "text": text}],
            "is_error": False,
            "exit_code": exit_code,
            "metadata": {"pid": 4_000 + self._calls, "hostname": "sandbox"},
            "kind": "TerminalObservation",
        }
        fields = {"tool_name": tool, "tool_input": arguments, "tool_response": response}
        return self.write(self.base("PostToolUse") | fields)

    def call(self, tool: str, arguments: Any) -> dict[str, Any]:
        return {"tool_name": tool, "tool_input": arguments}

    def end(self, text: str, *, refused: bool = False) -> bytes:
        return self.write(self.base("Stop") | {"metadata": {"reason": "agent_finished"}})

    def session_end(self) -> bytes:
        return self.write(self.base("SessionEnd"))

    def is_denied(self, answer: bytes) -> bool:
        return json.loads(answer or b"{}").get("decision") == "deny"


FORMS: tuple[type[AgentForm], ...] = (AgentForm, CodexForm, GeminiForm, OpenHandsForm)

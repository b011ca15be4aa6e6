"""What the tools answer with: a struct each, which gives the output schema and the structured
content.

`text` is the whole answer in words: clients show a model either the text or the structured
content, and nothing may be in one of them only.
"""

from typing import Literal

from handrail.views.view_types import View


class ToolOutput(View):
    text: str


class RegisterOutput(ToolOutput):
    agent_id: str
    roles: tuple[str, ...]
    channels: tuple[str, ...]
    """In which the agent takes turns."""


class ClaimOutput(ToolOutput):
    kind: Literal["dispatch", "turn", "nothing"]
    id: str = ""
    """Of the dispatch or the turn."""
    channel: str = ""
    """Of the turn."""


class LeaseOutput(ToolOutput):
    dispatch_id: str
    ended: bool
    """Stop working on it."""


class ReceiptOutput(ToolOutput):
    dispatch_id: str
    accepted: bool
    """If not, an attempt is spent."""
    terminal_status: str | None
    """How the run ended, if it did."""


class ReleaseOutput(ToolOutput):
    dispatch_id: str


class SpeechOutput(ToolOutput):
    channel: str
    turn_over: bool


class MessagesOutput(ToolOutput):
    channel: str
    last: int
    """The number of the newest message."""

"""What is said in A2A, protocol 1.0, over JSON-RPC: the shapes that Handrail sends and reads.

Names and values are the protocol's. What it has beyond these (extensions, signatures) is passed
over. Both sides use them: `agents/a2a.py` asks an agent that speaks A2A, `handrail.a2a` answers as
one.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from handrail.kernel.decision import Value, learn

PROTOCOL = "1.0"
VERSION_HEADER = "A2A-Version"
CARD_PATH = "/.well-known/agent-card.json"
JSON_RPC = "JSONRPC"
"""The binding of the protocol that is spoken here."""
TEXT, DATA, ANY = "text/plain", "application/json", "*/*"
Most = Annotated[int, Meta(ge=0)]
Moment = Annotated[datetime, Meta(tz=True)]


class TaskState(StrEnum):
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    REJECTED = "TASK_STATE_REJECTED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"


ENDED = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
ASKS = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
SETTLED = ENDED | ASKS
"""Nothing more happens to such a task by itself."""


class Role(StrEnum):
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class Said(Value, rename="camel"):
    """Base of the shapes."""


class Part(Said):
    """One of text, data, a file (`raw`, in base64), or where one lies (`url`)."""

    text: str | None = None
    data: Any = UNSET
    raw: str | None = None
    url: str | None = None
    filename: str = ""
    media_type: str = ""


class Message(Said):
    message_id: str
    role: str
    parts: tuple[Part, ...] = ()
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}


class TaskStatus(Said):
    state: str = ""
    """A `TaskState`; one that is none of them is passed on as it is."""
    message: Message | None = None
    timestamp: datetime | None = None


class Artifact(Said):
    artifact_id: str
    name: str = ""
    parts: tuple[Part, ...] = ()


class Task(Said):
    id: str
    context_id: str = ""
    status: TaskStatus = TaskStatus()
    artifacts: tuple[Artifact, ...] = ()


class ToldTask(Task):
    """A task as it is told to others: with what was said in it, which is not read of theirs."""

    history: tuple[Message, ...] = ()


class Tasks(Said, omit_defaults=False):
    """A page of tasks; the token of the next one, or ""."""

    tasks: tuple[ToldTask, ...]
    next_page_token: str
    page_size: int
    total_size: int


class StatusUpdate(Said):
    task_id: str
    context_id: str
    status: TaskStatus


class ArtifactUpdate(Said):
    task_id: str
    context_id: str
    artifact: Artifact
    last_chunk: bool = False


class Sent(Said):
    """What comes of a message, and what a stream tells: one of these."""

    task: Task | None = None
    message: Message | None = None
    status_update: StatusUpdate | None = None
    artifact_update: ArtifactUpdate | None = None


class Configuration(Said):
    accepted_output_modes: tuple[str, ...] = ()
    return_immediately: bool = False
    history_length: Most | None = None
    task_push_notification_config: dict[str, Any] | None = None


class SendMessage(Said):
    message: Message
    configuration: Configuration = Configuration()
    metadata: dict[str, Any] = {}
    tenant: str = ""


class OfTask(Said):
    """The parameters of a call about one task."""

    id: str
    tenant: str = ""
    history_length: Most | None = None


class ListTasks(Said):
    """Which tasks are wanted, and how much of each."""

    context_id: str = ""
    status: TaskState | None = None
    status_timestamp_after: Moment | None = None
    page_size: Annotated[int, Meta(ge=1, le=100)] = 50
    page_token: str = ""
    history_length: Most | None = None
    include_artifacts: bool = False
    tenant: str = ""


class Interface(Said):
    url: str
    protocol_binding: str = ""
    protocol_version: str = ""
    tenant: str = ""


class Capabilities(Said):
    streaming: bool = False
    extended_agent_card: bool = False
    push_notifications: bool | UnsetType = UNSET


class Skill(Said):
    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()


class Card(Said):
    """Who an agent is, and where it is reached."""

    name: str
    supported_interfaces: tuple[Interface, ...] = ()
    description: str = ""
    version: str = ""
    capabilities: Capabilities = Capabilities()
    security_schemes: dict[str, Any] = {}
    security_requirements: tuple[dict[str, Any], ...] = ()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    skills: tuple[Skill, ...] = ()


class Request(Value):
    """A call, as JSON-RPC has it."""

    method: str
    jsonrpc: str = ""
    id: str | int | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Wrong(Value):
    """Why a call came to nothing."""

    code: int
    message: str = ""
    data: Any = None


class Reply(Value):
    """What comes back of a call."""

    result: msgspec.Raw | UnsetType = UNSET
    error: Wrong | None = None


learn(Card, Reply, Sent, Task, Request, SendMessage, OfTask, ListTasks)


def text_of(parts: Iterable[Part]) -> str:
    """What they say in words. A NUL has no place in a database."""
    said = (part.text for part in parts if part.text)
    return "\n".join(said).replace("\0", "")

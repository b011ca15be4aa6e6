"""The types of A2A, protocol 1.0, over JSON-RPC, that Handrail sends and reads.

Names and values are the protocol's. Everything beyond these (extensions, signatures) is ignored.
Both sides use them: `agents/a2a.py` calls a remote agent, `handrail.a2a` serves as one.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from handrail.kernel.decision import Value, prepare_types

PROTOCOL_VERSION = "1.0"
VERSION_HEADER = "A2A-Version"
CARD_PATH = "/.well-known/agent-card.json"
JSONRPC_BINDING = "JSONRPC"
"""The binding of the protocol that Handrail uses."""
TEXT_MEDIA_TYPE, JSON_MEDIA_TYPE, ANY_MEDIA_TYPE = "text/plain", "application/json", "*/*"
NonNegativeInt = Annotated[int, Meta(ge=0)]
AwareDatetime = Annotated[datetime, Meta(tz=True)]


class TaskState(StrEnum):
    SUBMITTED = "TASK_STATE_SUBMITTED"
    WORKING = "TASK_STATE_WORKING"
    COMPLETED = "TASK_STATE_COMPLETED"
    FAILED = "TASK_STATE_FAILED"
    CANCELED = "TASK_STATE_CANCELED"
    REJECTED = "TASK_STATE_REJECTED"
    INPUT_REQUIRED = "TASK_STATE_INPUT_REQUIRED"
    AUTH_REQUIRED = "TASK_STATE_AUTH_REQUIRED"


TERMINAL_STATES = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)
INTERRUPTED_STATES = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
SETTLED_STATES = TERMINAL_STATES | INTERRUPTED_STATES
"""Such a task does not change by itself."""


class MessageRole(StrEnum):
    USER = "ROLE_USER"
    AGENT = "ROLE_AGENT"


class A2AType(Value, rename="camel"):
    """Base of the types."""


class Part(A2AType):
    """One of text, data, a file (`raw`, in base64), or a file's address (`url`)."""

    text: str | None = None
    data: Any = UNSET
    raw: str | None = None
    url: str | None = None
    filename: str = ""
    media_type: str = ""


class A2AMessage(A2AType):
    message_id: str
    role: str
    parts: tuple[Part, ...] = ()
    context_id: str = ""
    task_id: str = ""
    metadata: dict[str, Any] = {}


class TaskStatus(A2AType):
    state: str = ""
    """A `TaskState`; an unknown one is passed on as it is."""
    message: A2AMessage | None = None
    timestamp: datetime | None = None


class Artifact(A2AType):
    artifact_id: str
    name: str = ""
    parts: tuple[Part, ...] = ()


class A2ATask(A2AType):
    id: str
    context_id: str = ""
    status: TaskStatus = TaskStatus()
    artifacts: tuple[Artifact, ...] = ()


class TaskWithHistory(A2ATask):
    """A task as Handrail serves it: with its history, which is not read from other agents."""

    history: tuple[A2AMessage, ...] = ()


class ListTasksResponse(A2AType, omit_defaults=False):
    """A page of tasks; the token of the next page, or ""."""

    tasks: tuple[TaskWithHistory, ...]
    next_page_token: str
    page_size: int
    total_size: int


class TaskStatusUpdateEvent(A2AType):
    task_id: str
    context_id: str
    status: TaskStatus


class TaskArtifactUpdateEvent(A2AType):
    task_id: str
    context_id: str
    artifact: Artifact
    last_chunk: bool = False


class SendMessageResponse(A2AType):
    """The response to a message, and an item of a stream: one of these."""

    task: A2ATask | None = None
    message: A2AMessage | None = None
    status_update: TaskStatusUpdateEvent | None = None
    artifact_update: TaskArtifactUpdateEvent | None = None


class SendMessageConfiguration(A2AType):
    accepted_output_modes: tuple[str, ...] = ()
    return_immediately: bool = False
    history_length: NonNegativeInt | None = None
    task_push_notification_config: dict[str, Any] | None = None


class SendMessageRequest(A2AType):
    message: A2AMessage
    configuration: SendMessageConfiguration = SendMessageConfiguration()
    metadata: dict[str, Any] = {}
    tenant: str = ""


class TaskRequest(A2AType):
    """The parameters of a call about one task."""

    id: str
    tenant: str = ""
    history_length: NonNegativeInt | None = None


class ListTasksRequest(A2AType):
    """A filter for tasks, and how much of each to return."""

    context_id: str = ""
    status: TaskState | None = None
    status_timestamp_after: AwareDatetime | None = None
    page_size: Annotated[int, Meta(ge=1, le=100)] = 50
    page_token: str = ""
    history_length: NonNegativeInt | None = None
    include_artifacts: bool = False
    tenant: str = ""


class AgentInterface(A2AType):
    url: str
    protocol_binding: str = ""
    protocol_version: str = ""
    tenant: str = ""


class AgentCapabilities(A2AType):
    streaming: bool = False
    extended_agent_card: bool = False
    push_notifications: bool | UnsetType = UNSET


class AgentSkill(A2AType):
    id: str
    name: str
    description: str
    tags: tuple[str, ...] = ()


class AgentCard(A2AType):
    """An agent's identity and address."""

    name: str
    supported_interfaces: tuple[AgentInterface, ...] = ()
    description: str = ""
    version: str = ""
    capabilities: AgentCapabilities = AgentCapabilities()
    security_schemes: dict[str, Any] = {}
    security_requirements: tuple[dict[str, Any], ...] = ()
    default_input_modes: tuple[str, ...] = ()
    default_output_modes: tuple[str, ...] = ()
    skills: tuple[AgentSkill, ...] = ()


class JsonRpcRequest(Value):
    """A JSON-RPC call."""

    method: str
    jsonrpc: str = ""
    id: str | int | None = None
    params: msgspec.Raw = msgspec.Raw(b"{}")


class JsonRpcErrorObject(Value):
    """Why a call failed."""

    code: int
    message: str = ""
    data: Any = None


class JsonRpcResponse(Value):
    """The response to a call."""

    result: msgspec.Raw | UnsetType = UNSET
    error: JsonRpcErrorObject | None = None


prepare_types(
    AgentCard,
    JsonRpcResponse,
    SendMessageResponse,
    A2ATask,
    JsonRpcRequest,
    SendMessageRequest,
    TaskRequest,
    ListTasksRequest,
)


def join_text(parts: Iterable[Part]) -> str:
    """Join the texts of the parts. NUL is dropped: no database stores it."""
    texts = (part.text for part in parts if part.text)
    return "\n".join(texts).replace("\0", "")

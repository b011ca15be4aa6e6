"""Response types of the API that are not views of the engine."""

from datetime import datetime
from typing import Any

from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.decision import Value
from handrail.kernel.definition.certificate import Bound
from handrail.kernel.definition.model import DocumentProblem
from handrail.views.approvals import Approval
from handrail.views.audit import Verification
from handrail.views.run_view import RunSummary, RunView


class DefinitionValidation(Value):
    """The check of a definition; without errors it is valid, and has a certificate (`bound`)."""

    valid: bool
    errors: tuple[DocumentProblem, ...] = ()
    bound: Bound | None = None
    warnings: tuple[DocumentProblem, ...] = ()


class ParsedDocument(Value):
    """The document in a text; None, with `errors`, if the text holds none."""

    document: Any = None
    errors: tuple[DocumentProblem, ...] = ()


class AnsweredApproval(Value):
    """The approval and the run after an answer."""

    approval: Approval
    execution: RunView


class AgentHeartbeat(Value):
    """The answer to a heartbeat. `ended`: those of `holding` that are over; stop working on
    them. `held`: all that the agent has claimed. `channels`: its state in each of its channels."""

    state: AgentState
    ended: tuple[str, ...]
    held: tuple[str, ...]
    channels: dict[str, AgentState]


class DispatchLease(Value):
    """The answer to a dispatch's heartbeat. `ended`: stop working on it; `reason` says why."""

    lease_expires_at: datetime | None
    ended: bool
    reason: str = ""


class DispatchReceipt(Value):
    """What became of a result. Not accepted: the result is unusable, the attempt is spent, and
    the agent's next dispatch carries the reason."""

    accepted: bool
    execution: RunSummary
    reason: str = ""


class AuditVerification(Verification, frozen=True, kw_only=True):
    """What was verified of the record, and what is wrong with it; `ok`: nothing is."""

    ok: bool


class Me(Value):
    """The owner of the token: a person's name, or an agent's id."""

    name: str
    role: str


class TokenView(Value):
    """A token without its secret."""

    id: str
    role: str
    name: str
    agent: str | None
    works_as: tuple[str, ...] | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class MadeToken(TokenView, frozen=True, kw_only=True):
    """A new token; the secret `token` is shown only once."""

    token: str


class SignInLink(Value):
    """A link that signs a person in to the web app, once; `path` is a path at the server."""

    path: str
    expires_at: datetime


class SessionView(Value):
    """A web app session. `mine`: the request came with it."""

    id: str
    name: str
    role: str
    created_at: datetime
    expires_at: datetime | None
    mine: bool


class SettingView(Value):
    """A setting with its value, and where the value came from."""

    name: str
    value: Any
    unit: str
    default: Any
    origin: str
    help: str

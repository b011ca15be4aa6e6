"""Answers of the API that are no views of the engine's: what a call gives beside its subject."""

from datetime import datetime
from typing import Any

from handrail.engine.audit.verification import Verification
from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.decision import Value
from handrail.kernel.definition.certificate import Bound
from handrail.kernel.definition.model import DocumentProblem
from handrail.views.approvals import Approval
from handrail.views.run_view import RunSummary, RunView


class DefinitionValidation(Value):
    """What is to be said of a definition; without errors it is valid, and has a certificate."""

    valid: bool
    errors: tuple[DocumentProblem, ...] = ()
    bound: Bound | None = None
    warnings: tuple[DocumentProblem, ...] = ()


class ParsedDocument(Value):
    """The document in a text; None, with what is wrong, where there is none."""

    document: Any = None
    errors: tuple[DocumentProblem, ...] = ()


class AnsweredApproval(Value):
    """The question and the run after an answer."""

    approval: Approval
    execution: RunView


class AgentHeartbeat(Value):
    """The answer to a sign of life. `ended` are those of the dispatches it was said to work on
    that are over: stop. `held` are all that the agent has claimed, `channels` its state in each
    that it is a member of."""

    state: AgentState
    ended: tuple[str, ...]
    held: tuple[str, ...]
    channels: dict[str, AgentState]


class DispatchLease(Value):
    """The same for one dispatch. `ended`: stop working on it, `reason` says why."""

    lease_expires_at: datetime | None
    ended: bool
    reason: str = ""


class DispatchReceipt(Value):
    """What became of a result. Not accepted: it could not be used, the attempt is spent, and the
    reason comes with the agent's next turn."""

    accepted: bool
    execution: RunSummary
    reason: str = ""


class AuditVerification(Verification, frozen=True, kw_only=True):
    """What was looked at of the record, and what is wrong with it; `ok`: nothing."""

    ok: bool


class Me(Value):
    """Whose token it is: a person's name, or an agent's id."""

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
    """A new one: `token` is shown this once."""

    token: str


class SignInLink(Value):
    """A link that signs a person in to the page, once: a path at the server."""

    path: str
    expires_at: datetime


class SessionView(Value):
    """A session of the page. `mine` is the one that asks."""

    id: str
    name: str
    role: str
    created_at: datetime
    expires_at: datetime | None
    mine: bool


class SettingView(Value):
    """A setting with its value, and where that came from."""

    name: str
    value: Any
    unit: str
    default: Any
    origin: str
    help: str

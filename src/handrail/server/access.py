"""The access table: who may make which call. A call that is not in the table is forbidden.

`people` is the lowest role of a person (viewer, operator, ceo, admin, each including the one
before) or None; `agents` and `reporters` allow these tokens, which are outside that order.
`restriction` says what a call is limited to for some callers; the handler checks it against the
object, with the functions below. The test walks the whole table.
"""

from typing import Literal

from handrail.api.access import Access
from handrail.kernel.decision import Value
from handrail.kernel.definition.model import PERSON_LEVELS
from handrail.kernel.run.state import Person
from handrail.server.problems import HTTPProblemError
from handrail.server.web_app import WEB_APP_PATHS

Role = Literal["viewer", "operator", "ceo", "admin", "agent", "reporter"]
PersonRole = Literal["viewer", "operator", "ceo", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "ceo", "admin", "agent", "reporter")
API_PREFIX = "/api/v1"


class Caller(Value):
    """The author of a request, according to its token or session; never to its body."""

    name: str
    """The person's name, or the agent's id."""
    role: Role
    works_as: tuple[str, ...] | None = None
    """The roles that an agent may register; None: any."""
    credential: str = ""
    in_browser: bool = False

    @property
    def person(self) -> Person:
        assert self.role not in ("agent", "reporter"), "no person"
        return Person(name=self.name, role=self.role)

    def is_at_least(self, role: PersonRole) -> bool:
        return PERSON_LEVELS.get(self.role, -1) >= PERSON_LEVELS[role]


VIEWER = Access(people="viewer")
OPERATOR = Access(people="operator")
CEO = Access(people="ceo")
ADMIN = Access(people="admin")
AGENT = Access(agents=True, restriction="an agent's token acts for its own agent id only")
OPEN = Access(open=True)
ANYBODY = Access(people="viewer", agents=True, reporters=True)
CHANNEL_MEMBER = Access(
    people="viewer", agents=True, restriction="an agent reads channels of which it is a member"
)
OWN_SESSIONS = Access(people="viewer", restriction="one's own; an admin those of everybody")

ACCESS_TABLE: dict[tuple[str, str], Access] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): VIEWER,
    ("GET", "/"): OPEN,
    **{("GET", path.replace(":str}", "}")): OPEN for path in WEB_APP_PATHS},
    ("GET", "/sign-in/{code}"): OPEN,
    ("POST", "/sign-in/{code}"): OPEN,
    ("GET", "/assets/{name}"): OPEN,
    ("GET", f"{API_PREFIX}/openapi.json"): OPEN,
    ("GET", f"{API_PREFIX}/me"): ANYBODY,
    ("POST", f"{API_PREFIX}/sign-out"): VIEWER,
    ("GET", f"{API_PREFIX}/workflows"): VIEWER,
    ("POST", f"{API_PREFIX}/workflows"): Access(
        people="operator",
        restriction="an operator takes no id or name of another's definition; a ceo any",
    ),
    ("POST", f"{API_PREFIX}/workflows/validate"): VIEWER,
    ("POST", f"{API_PREFIX}/workflows/read"): VIEWER,
    ("GET", f"{API_PREFIX}/workflows/{{workflow_id}}"): VIEWER,
    ("PUT", f"{API_PREFIX}/workflows/{{workflow_id}}"): Access(
        people="operator", restriction="an operator edits what it defined itself; a ceo edits any"
    ),
    ("GET", f"{API_PREFIX}/workflows/{{workflow_id}}/versions"): VIEWER,
    ("GET", f"{API_PREFIX}/workflows/{{workflow_id}}/tune"): VIEWER,
    ("GET", f"{API_PREFIX}/beads"): VIEWER,
    ("POST", f"{API_PREFIX}/beads"): OPERATOR,
    ("GET", f"{API_PREFIX}/beads/{{bead_id}}"): VIEWER,
    ("PATCH", f"{API_PREFIX}/beads/{{bead_id}}"): OPERATOR,
    ("GET", f"{API_PREFIX}/beads/{{bead_id}}/executions"): VIEWER,
    ("POST", f"{API_PREFIX}/beads/{{bead_id}}/executions"): Access(
        people="operator",
        restriction="an operator does not begin behind an approval; a ceo begins anywhere",
    ),
    ("GET", f"{API_PREFIX}/beads/{{bead_id}}/history"): VIEWER,
    ("GET", f"{API_PREFIX}/beads/{{bead_id}}/files"): VIEWER,
    ("POST", f"{API_PREFIX}/beads/{{bead_id}}/files"): OPERATOR,
    ("GET", f"{API_PREFIX}/beads/{{bead_id}}/files/{{name}}"): Access(
        people="viewer",
        agents=True,
        restriction="an agent reads files of beads it has a dispatch of",
    ),
    ("POST", f"{API_PREFIX}/guarded-runs"): Access(
        people="operator",
        restriction="a guarded team is everybody's, and shows what was seen of it",
    ),
    ("POST", f"{API_PREFIX}/guarded-runs/{{execution_id}}/events"): Access(
        people="operator", restriction="only who began the guarded run tells of it"
    ),
    ("POST", f"{API_PREFIX}/guarded-runs/{{execution_id}}/question"): Access(
        people="operator", restriction="only who began the guarded run asks for it"
    ),
    ("GET", f"{API_PREFIX}/executions"): VIEWER,
    ("POST", f"{API_PREFIX}/executions/replay"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/summaries"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/{{execution_id}}"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/{{execution_id}}/whole"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/{{execution_id}}/transitions"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/{{execution_id}}/steps"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/{{execution_id}}/notes"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/{{execution_id}}/report"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/{{execution_id}}/why"): VIEWER,
    ("GET", f"{API_PREFIX}/executions/{{execution_id}}/events"): VIEWER,
    ("POST", f"{API_PREFIX}/executions/{{execution_id}}/override"): Access(
        people="operator",
        restriction="an operator only closes runs of beads it filed; a ceo does anything",
    ),
    ("GET", f"{API_PREFIX}/events"): VIEWER,
    ("GET", f"{API_PREFIX}/approvals"): VIEWER,
    ("GET", f"{API_PREFIX}/approvals/{{approval_id}}"): VIEWER,
    ("POST", f"{API_PREFIX}/approvals/{{approval_id}}/answer"): Access(
        people="operator",
        restriction="an operator answers clarification requests; a ceo answers any",
    ),
    ("POST", f"{API_PREFIX}/approvals/{{approval_id}}/links"): Access(
        people="viewer",
        restriction="for oneself, by who may answer it; an admin for anybody who may",
    ),
    ("GET", f"{API_PREFIX}/answer-links/{{token}}"): OPEN,
    ("POST", f"{API_PREFIX}/answer-links/{{token}}"): OPEN,
    ("GET", f"{API_PREFIX}/agents"): VIEWER,
    ("POST", f"{API_PREFIX}/agents"): AGENT,
    ("GET", f"{API_PREFIX}/agents/{{agent_id}}"): Access(
        people="viewer", agents=True, restriction=AGENT.restriction
    ),
    ("PATCH", f"{API_PREFIX}/agents/{{agent_id}}"): CEO,
    ("DELETE", f"{API_PREFIX}/agents/{{agent_id}}"): Access(
        people="ceo", agents=True, restriction=AGENT.restriction
    ),
    ("POST", f"{API_PREFIX}/agents/{{agent_id}}/heartbeat"): AGENT,
    ("GET", f"{API_PREFIX}/channels"): VIEWER,
    ("POST", f"{API_PREFIX}/channels"): OPERATOR,
    ("GET", f"{API_PREFIX}/channels/{{channel_id}}"): CHANNEL_MEMBER,
    ("PUT", f"{API_PREFIX}/channels/{{channel_id}}"): OPERATOR,
    ("DELETE", f"{API_PREFIX}/channels/{{channel_id}}"): OPERATOR,
    ("POST", f"{API_PREFIX}/channels/{{channel_id}}/members"): Access(
        people="operator",
        agents=True,
        restriction="an agent assigns itself, where it is a member already",
    ),
    ("DELETE", f"{API_PREFIX}/channels/{{channel_id}}/members/{{agent_id}}"): Access(
        people="operator", agents=True, restriction="an agent removes itself"
    ),
    ("GET", f"{API_PREFIX}/channels/{{channel_id}}/messages"): CHANNEL_MEMBER,
    ("POST", f"{API_PREFIX}/channels/{{channel_id}}/messages"): Access(
        people="operator", agents=True, restriction="an agent speaks in its own turn"
    ),
    ("POST", f"{API_PREFIX}/channels/{{channel_id}}/turn"): Access(
        people="operator",
        agents=True,
        restriction="an agent completes, pauses and resumes its own turn; the rest is for people",
    ),
    ("POST", f"{API_PREFIX}/dispatches/claim"): AGENT,
    ("POST", f"{API_PREFIX}/dispatches/{{dispatch_id}}/heartbeat"): AGENT,
    ("POST", f"{API_PREFIX}/dispatches/{{dispatch_id}}/release"): AGENT,
    ("POST", f"{API_PREFIX}/dispatches/{{dispatch_id}}/result"): AGENT,
    ("GET", f"{API_PREFIX}/memory"): VIEWER,
    ("GET", f"{API_PREFIX}/memory/{{memory_id}}"): VIEWER,
    ("PATCH", f"{API_PREFIX}/memory/{{memory_id}}"): OPERATOR,
    ("DELETE", f"{API_PREFIX}/memory/{{memory_id}}"): OPERATOR,
    ("GET", f"{API_PREFIX}/bugs"): VIEWER,
    ("POST", f"{API_PREFIX}/bugs"): Access(people="operator", reporters=True),
    ("GET", f"{API_PREFIX}/locks"): VIEWER,
    ("GET", f"{API_PREFIX}/audit"): VIEWER,
    ("GET", f"{API_PREFIX}/audit/verify"): VIEWER,
    ("GET", f"{API_PREFIX}/metrics/workflows"): VIEWER,
    ("GET", f"{API_PREFIX}/settings"): ADMIN,
    ("GET", f"{API_PREFIX}/tokens"): ADMIN,
    ("POST", f"{API_PREFIX}/tokens"): ADMIN,
    ("DELETE", f"{API_PREFIX}/tokens/{{token_id}}"): ADMIN,
    ("POST", f"{API_PREFIX}/sign-ins"): ADMIN,
    ("GET", f"{API_PREFIX}/sessions"): OWN_SESSIONS,
    ("DELETE", f"{API_PREFIX}/sessions/{{session_id}}"): OWN_SESSIONS,
    ("GET", f"{API_PREFIX}/webhooks"): ADMIN,
    ("POST", f"{API_PREFIX}/webhooks"): ADMIN,
    ("DELETE", f"{API_PREFIX}/webhooks/{{webhook_id}}"): ADMIN,
    ("POST", f"{API_PREFIX}/webhooks/{{webhook_id}}/enable"): ADMIN,
}


def may_call(access: Access, caller: Caller) -> bool:
    if caller.role == "agent":
        return access.agents
    if caller.role == "reporter":
        return access.reporters
    return access.people is not None and caller.is_at_least(access.people)


def describe_required_role(access: Access) -> str:
    """Return who may make the call, as text."""
    roles = [f"the role {access.people}"] if access.people is not None else []
    roles += ["an agent's token"] if access.agents else []
    roles += ["a reporter's token"] if access.reporters else []
    return " or ".join(roles) or "nobody"


def check_own_agent(caller: Caller, agent_id: str) -> None:
    """Check that an agent acts for itself; people are not limited by this."""
    if caller.role == "agent" and caller.name != agent_id:
        message = (
            f"the token of agent '{caller.name}' cannot act for '{agent_id}'; use its own token"
        )
        raise HTTPProblemError(403, "foreign_agent", message)


def check_same_author(caller: Caller, *names: str | None) -> None:
    """Check that the authors named in a body, if any, are the token's owner."""
    for name in names:
        if name and name != caller.name:
            message = f"the request says it is by '{name}', its token is of '{caller.name}'"
            raise HTTPProblemError(403, "forged_author", f"{message}; leave the name out")


def access_markdown() -> str:
    """Return the table of docs/access.md."""
    rows = [
        f"| `{method} {path}` | {_describe_callers(access)} | {access.restriction} |"
        for (method, path), access in ACCESS_TABLE.items()
    ]
    return "\n".join(["| call | who | limited to |", "|---|---|---|", *rows]) + "\n"


def _describe_callers(access: Access) -> str:
    if access.open:
        return "anybody"
    roles = [access.people] if access.people is not None else []
    roles += ["agent"] if access.agents else []
    return ", ".join([*roles, *(["reporter"] if access.reporters else [])])

"""Who may call what: one table of every call. What is not in it, nobody may.

`people` is the least role of a person (viewer, operator, ceo, admin, each including the one before)
or None; `agents` and `reporters` say whether such a token may, which stand apart. `own` says what a
call is limited to for those that may not do everything with it; the handler checks that against the
object, by the functions below. The test walks the whole table.
"""

from typing import Literal

from handrail.kernel.decision import Value
from handrail.kernel.definition import LEVELS
from handrail.kernel.run.state import Person
from handrail.server.page import ROUTES
from handrail.server.problems import Wrong

Role = Literal["viewer", "operator", "ceo", "admin", "agent", "reporter"]
PersonRole = Literal["viewer", "operator", "ceo", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "ceo", "admin", "agent", "reporter")
API = "/api/v1"


class Caller(Value):
    """Whoever a request comes from, as its token or its session says; never as its text says."""

    name: str
    """The person, or the agent's id."""
    role: Role
    works_as: tuple[str, ...] | None = None
    """The roles that an agent may register; None leaves it free."""
    credential: str = ""
    in_browser: bool = False

    @property
    def person(self) -> Person:
        assert self.role not in ("agent", "reporter"), "no person"
        return Person(name=self.name, role=self.role)

    def is_at_least(self, role: PersonRole) -> bool:
        return LEVELS.get(self.role, -1) >= LEVELS[role]


class Access(Value):
    people: PersonRole | None = None
    agents: bool = False
    reporters: bool = False
    open: bool = False
    """Also without a token."""
    own: str = ""


VIEWER = Access(people="viewer")
OPERATOR = Access(people="operator")
CEO = Access(people="ceo")
ADMIN = Access(people="admin")
AGENT = Access(agents=True, own="an agent's token acts for its own agent id only")
OPEN = Access(open=True)
ANYBODY = Access(people="viewer", agents=True, reporters=True)
IN_CHANNEL = Access(
    people="viewer", agents=True, own="an agent reads channels of which it is a member"
)
OWN_SESSIONS = Access(people="viewer", own="one's own; an admin those of everybody")

TABLE: dict[tuple[str, str], Access] = {
    ("GET", "/healthz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("GET", "/metrics"): VIEWER,
    ("GET", "/"): OPEN,
    **{("GET", path.replace(":str}", "}")): OPEN for path in ROUTES},
    ("GET", "/sign-in/{code}"): OPEN,
    ("POST", "/sign-in/{code}"): OPEN,
    ("GET", "/assets/{name}"): OPEN,
    ("GET", f"{API}/openapi.json"): OPEN,
    ("GET", f"{API}/me"): ANYBODY,
    ("POST", f"{API}/sign-out"): VIEWER,
    ("GET", f"{API}/workflows"): VIEWER,
    ("POST", f"{API}/workflows"): Access(
        people="operator", own="an operator takes no id or name of another's definition; a ceo any"
    ),
    ("POST", f"{API}/workflows/validate"): VIEWER,
    ("POST", f"{API}/workflows/read"): VIEWER,
    ("GET", f"{API}/workflows/{{workflow_id}}"): VIEWER,
    ("PUT", f"{API}/workflows/{{workflow_id}}"): Access(
        people="operator", own="an operator edits what it defined itself; a ceo edits any"
    ),
    ("GET", f"{API}/workflows/{{workflow_id}}/versions"): VIEWER,
    ("GET", f"{API}/workflows/{{workflow_id}}/tune"): VIEWER,
    ("GET", f"{API}/beads"): VIEWER,
    ("POST", f"{API}/beads"): OPERATOR,
    ("GET", f"{API}/beads/{{bead_id}}"): VIEWER,
    ("PATCH", f"{API}/beads/{{bead_id}}"): OPERATOR,
    ("GET", f"{API}/beads/{{bead_id}}/executions"): VIEWER,
    ("POST", f"{API}/beads/{{bead_id}}/executions"): Access(
        people="operator",
        own="an operator does not begin behind an approval; a ceo begins anywhere",
    ),
    ("GET", f"{API}/beads/{{bead_id}}/history"): VIEWER,
    ("GET", f"{API}/beads/{{bead_id}}/files"): VIEWER,
    ("POST", f"{API}/beads/{{bead_id}}/files"): OPERATOR,
    ("GET", f"{API}/beads/{{bead_id}}/files/{{name}}"): Access(
        people="viewer", agents=True, own="an agent reads files of beads it has a dispatch of"
    ),
    ("POST", f"{API}/guarded-runs"): Access(
        people="operator", own="a guarded team is everybody's, and shows what was seen of it"
    ),
    ("POST", f"{API}/guarded-runs/{{execution_id}}/events"): Access(
        people="operator", own="only who began the guarded run tells of it"
    ),
    ("POST", f"{API}/guarded-runs/{{execution_id}}/question"): Access(
        people="operator", own="only who began the guarded run asks for it"
    ),
    ("GET", f"{API}/executions"): VIEWER,
    ("POST", f"{API}/executions/replay"): VIEWER,
    ("GET", f"{API}/executions/summaries"): VIEWER,
    ("GET", f"{API}/executions/{{execution_id}}"): VIEWER,
    ("GET", f"{API}/executions/{{execution_id}}/whole"): VIEWER,
    ("GET", f"{API}/executions/{{execution_id}}/transitions"): VIEWER,
    ("GET", f"{API}/executions/{{execution_id}}/steps"): VIEWER,
    ("GET", f"{API}/executions/{{execution_id}}/notes"): VIEWER,
    ("GET", f"{API}/executions/{{execution_id}}/report"): VIEWER,
    ("GET", f"{API}/executions/{{execution_id}}/why"): VIEWER,
    ("GET", f"{API}/executions/{{execution_id}}/events"): VIEWER,
    ("POST", f"{API}/executions/{{execution_id}}/override"): Access(
        people="operator", own="an operator only closes runs of beads it filed; a ceo does anything"
    ),
    ("GET", f"{API}/events"): VIEWER,
    ("GET", f"{API}/approvals"): VIEWER,
    ("GET", f"{API}/approvals/{{approval_id}}"): VIEWER,
    ("POST", f"{API}/approvals/{{approval_id}}/answer"): Access(
        people="operator", own="an operator answers clarification requests; a ceo answers any"
    ),
    ("POST", f"{API}/approvals/{{approval_id}}/links"): Access(
        people="viewer", own="for oneself, by who may answer it; an admin for anybody who may"
    ),
    ("GET", f"{API}/answer-links/{{token}}"): OPEN,
    ("POST", f"{API}/answer-links/{{token}}"): OPEN,
    ("GET", f"{API}/agents"): VIEWER,
    ("POST", f"{API}/agents"): AGENT,
    ("GET", f"{API}/agents/{{agent_id}}"): Access(people="viewer", agents=True, own=AGENT.own),
    ("PATCH", f"{API}/agents/{{agent_id}}"): CEO,
    ("DELETE", f"{API}/agents/{{agent_id}}"): Access(people="ceo", agents=True, own=AGENT.own),
    ("POST", f"{API}/agents/{{agent_id}}/heartbeat"): AGENT,
    ("GET", f"{API}/channels"): VIEWER,
    ("POST", f"{API}/channels"): OPERATOR,
    ("GET", f"{API}/channels/{{channel_id}}"): IN_CHANNEL,
    ("PUT", f"{API}/channels/{{channel_id}}"): OPERATOR,
    ("DELETE", f"{API}/channels/{{channel_id}}"): OPERATOR,
    ("POST", f"{API}/channels/{{channel_id}}/members"): Access(
        people="operator", agents=True, own="an agent assigns itself, where it is a member already"
    ),
    ("DELETE", f"{API}/channels/{{channel_id}}/members/{{agent_id}}"): Access(
        people="operator", agents=True, own="an agent removes itself"
    ),
    ("GET", f"{API}/channels/{{channel_id}}/messages"): IN_CHANNEL,
    ("POST", f"{API}/channels/{{channel_id}}/messages"): Access(
        people="operator", agents=True, own="an agent speaks in its own turn"
    ),
    ("POST", f"{API}/channels/{{channel_id}}/turn"): Access(
        people="operator",
        agents=True,
        own="an agent completes, pauses and resumes its own turn; the rest is for people",
    ),
    ("POST", f"{API}/dispatches/claim"): AGENT,
    ("POST", f"{API}/dispatches/{{dispatch_id}}/heartbeat"): AGENT,
    ("POST", f"{API}/dispatches/{{dispatch_id}}/release"): AGENT,
    ("POST", f"{API}/dispatches/{{dispatch_id}}/result"): AGENT,
    ("GET", f"{API}/memory"): VIEWER,
    ("GET", f"{API}/memory/{{memory_id}}"): VIEWER,
    ("PATCH", f"{API}/memory/{{memory_id}}"): OPERATOR,
    ("DELETE", f"{API}/memory/{{memory_id}}"): OPERATOR,
    ("GET", f"{API}/bugs"): VIEWER,
    ("POST", f"{API}/bugs"): Access(people="operator", reporters=True),
    ("GET", f"{API}/locks"): VIEWER,
    ("GET", f"{API}/audit"): VIEWER,
    ("GET", f"{API}/audit/verify"): VIEWER,
    ("GET", f"{API}/metrics/workflows"): VIEWER,
    ("GET", f"{API}/settings"): ADMIN,
    ("GET", f"{API}/tokens"): ADMIN,
    ("POST", f"{API}/tokens"): ADMIN,
    ("DELETE", f"{API}/tokens/{{token_id}}"): ADMIN,
    ("POST", f"{API}/sign-ins"): ADMIN,
    ("GET", f"{API}/sessions"): OWN_SESSIONS,
    ("DELETE", f"{API}/sessions/{{session_id}}"): OWN_SESSIONS,
    ("GET", f"{API}/webhooks"): ADMIN,
    ("POST", f"{API}/webhooks"): ADMIN,
    ("DELETE", f"{API}/webhooks/{{webhook_id}}"): ADMIN,
    ("POST", f"{API}/webhooks/{{webhook_id}}/enable"): ADMIN,
}


def may_call(access: Access, caller: Caller) -> bool:
    if caller.role == "agent":
        return access.agents
    if caller.role == "reporter":
        return access.reporters
    return access.people is not None and caller.is_at_least(access.people)


def needs(access: Access) -> str:
    """Who may, in words."""
    found = [f"the role {access.people}"] if access.people is not None else []
    found += ["an agent's token"] if access.agents else []
    found += ["a reporter's token"] if access.reporters else []
    return " or ".join(found) or "nobody"


def only_own_agent(caller: Caller, agent_id: str) -> None:
    """An agent acts for itself; people with the right role are not limited by this."""
    if caller.role == "agent" and caller.name != agent_id:
        told = f"the token of agent '{caller.name}' cannot act for '{agent_id}'; use its own token"
        raise Wrong(403, "foreign_agent", told)


def same_author(caller: Caller, *said: str | None) -> None:
    """Whoever a body says it is from, if it does, has to be who the token says."""
    for name in said:
        if name and name != caller.name:
            told = f"the request says it is by '{name}', its token is of '{caller.name}'"
            raise Wrong(403, "forged_author", f"{told}; leave the name out")


def page() -> str:
    """The table of docs/access.md."""
    rows = [
        f"| `{method} {path}` | {_who(access)} | {access.own} |"
        for (method, path), access in TABLE.items()
    ]
    return "\n".join(["| call | who | limited to |", "|---|---|---|", *rows]) + "\n"


def _who(access: Access) -> str:
    if access.open:
        return "anybody"
    found = [access.people] if access.people is not None else []
    found += ["agent"] if access.agents else []
    return ", ".join([*found, *(["reporter"] if access.reporters else [])])

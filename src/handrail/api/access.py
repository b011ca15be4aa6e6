"""Who may make a call: roles, and what an operation declares about them.

`people` is the lowest role of a person (viewer, operator, ceo, admin, each including the one
before) or None; `agents` and `reporters` allow these tokens, which are outside that order.
`restriction` says what a call is limited to for some callers; its handler checks that.
"""

from typing import Literal

from handrail.kernel.decision import Value

Role = Literal["viewer", "operator", "ceo", "admin", "agent", "reporter"]
PersonRole = Literal["viewer", "operator", "ceo", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "ceo", "admin", "agent", "reporter")


class Access(Value):
    people: PersonRole | None = None
    agents: bool = False
    reporters: bool = False
    open: bool = False
    """Allowed without a token too."""
    restriction: str = ""


NOBODY = Access()
VIEWER = Access(people="viewer")
OPERATOR = Access(people="operator")
CEO = Access(people="ceo")
ADMIN = Access(people="admin")
AGENT = Access(agents=True, restriction="an agent's token acts for its own agent id only")
OPEN = Access(open=True)

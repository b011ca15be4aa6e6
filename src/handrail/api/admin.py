"""Access to the installation: tokens, sign-in links, web app sessions, settings.

The server itself: health, metrics, and the description of the API.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from handrail.api.operation import (
    ADMIN,
    OPEN,
    VIEWER,
    Access,
    C_co,
    CallGroup,
    PersonRole,
    Repeat,
    Role,
    operation,
)
from handrail.api.shared import PlainName
from handrail.kernel.decision import Value
from handrail.views.view_types import Page, View

# pyright: reportReturnType=false
# A declaration has no body.


OWN_SESSIONS = Access(people="viewer", restriction="one's own; an admin those of everybody")


class NewToken(Value):
    """`name` for a person, `agent` for an agent. `expires` such as "30d"; without it, never."""

    role: Role
    name: PlainName = ""
    agent: PlainName = ""
    works_as: tuple[PlainName, ...] | None = None
    expires: str | None = None


class TokenView(View):
    """A token without its secret."""

    id: str
    role: str
    name: str
    agent: str
    works_as: tuple[str, ...] | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class MadeToken(TokenView):
    token: str
    """Shown only once; the server stores only its digest."""


class NewSignIn(Value):
    name: Annotated[PlainName, Meta(min_length=1)]
    role: PersonRole = "viewer"


class SignInLink(View):
    path: str
    """A path on this server, to be opened in a browser, once."""
    expires_at: datetime


class SessionView(View):
    """A web app session. `mine`: this request came with it."""

    id: str
    name: str
    role: str
    created_at: datetime
    expires_at: datetime | None
    mine: bool


class Me(View):
    """The caller. The web app sends `csrf` in the header X-CSRF-Token."""

    name: str
    role: str
    csrf: str | None


class SettingView(View):
    """A setting with its value. `origin`: "default", "handrail.toml", a variable or a flag."""

    name: str
    value: Any
    unit: str
    default: Any
    origin: str
    help: str


class TokenCalls(CallGroup[C_co], subject="tokens"):
    """Credentials of people and programs."""

    @operation(
        "POST",
        "/tokens",
        body=NewToken,
        access=ADMIN,
        status=201,
        problems=(409,),
        repeat=Repeat.ONCE,
    )
    def create(
        self,
        role: str,
        *,
        name: str | None = None,
        agent: str | None = None,
        works_as: Sequence[str] | None = None,
        expires: str | None = None,
    ) -> MadeToken:
        """Create a token for a person (`name`) or an agent (`agent`); it is shown only once."""

    @operation("GET", "/tokens", access=ADMIN)
    def list(self) -> Page[TokenView]:
        """List all tokens, without their secrets."""

    @operation("DELETE", "/tokens/{token_id}", access=ADMIN, problems=(404,))
    def revoke(self, token_id: str) -> None:
        """Revoke a token: the server no longer accepts it."""


class SessionCalls(CallGroup[C_co], subject="sessions"):
    """Signing in to the page and out again; who the caller is."""

    @operation(
        "POST",
        "/sign-ins",
        body=NewSignIn,
        access=ADMIN,
        status=201,
        problems=(409,),
        repeat=Repeat.ONCE,
    )
    def create_sign_in(self, name: str, *, role: str = "viewer") -> SignInLink:
        """Create a one-time link that signs a person in to the web app."""

    @operation("GET", "/sessions", access=OWN_SESSIONS)
    def list(self) -> Page[SessionView]:
        """List the caller's web app sessions, the newest first; an admin sees all."""

    @operation("DELETE", "/sessions/{session_id}", access=OWN_SESSIONS, problems=(404,))
    def end(self, session_id: str) -> None:
        """End a session: its person is signed out."""

    @operation("GET", "/me", access=Access(people="viewer", agents=True, reporters=True))
    def get_me(self) -> Me:
        """Return who the token or the session belongs to."""

    @operation("POST", "/sign-out", access=VIEWER)
    def sign_out(self) -> None:
        """End the session that this request came with."""


class SettingCalls(CallGroup[C_co], subject="settings"):
    """The settings of the installation."""

    @operation("GET", "/settings", access=ADMIN)
    def list(self) -> Page[SettingView]:
        """List settings, each with its value and where the value came from."""


# pyright: reportReturnType=false
# A declaration has no body.


PROMETHEUS_TEXT = "text/plain; version=1.0.0; charset=utf-8"


class Health(Value):
    status: str
    reason: str = ""


class ServerCalls(CallGroup[C_co], subject="server"):
    """Whether the server is well, and its figures."""

    @operation("GET", "/healthz", access=OPEN, prefix="")
    def get_health(self) -> Health:
        """Return 200 while the engine lives; else the process should be ended and started again."""

    @operation("GET", "/readyz", access=OPEN, prefix="")
    def get_readiness(self) -> Health:
        """Return 200 while requests are welcome: the database answers, and the server is not about
        to end."""

    @operation("GET", "/metrics", access=VIEWER, media_types=(PROMETHEUS_TEXT,), prefix="")
    def get_metrics(self) -> str:
        """Return the figures of the server, as Prometheus reads them."""

    @operation("GET", "/openapi.json", access=OPEN)
    def get_openapi(self) -> bytes:
        """Return the OpenAPI document of the API."""

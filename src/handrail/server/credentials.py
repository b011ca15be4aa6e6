"""Issues tokens, sign-in links and browser sessions: shown once, stored only as a digest."""

import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from uuid_utils import uuid7

from handrail.server.access import Caller, Role
from handrail.store.credentials import CredentialRow
from handrail.store.rows import iso

SECRET_PREFIX = "hr_"  # noqa: S105 - of every token
"""Lets secret scanners find a leaked token."""
SIGN_IN_SECONDS = 600
SESSION_SECONDS = 12 * 3600
NAME_CHARS_MAX = 200


def digest_secret(secret: str) -> str:
    """Return the stored digest. A secret has 256 random bits, so one SHA-256 is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def issue_credential(
    kind: Literal["token", "sign_in", "session"],
    *,
    name: str,
    role: Role,
    by: str,
    now: datetime,
    seconds: float | None = None,
    works_as: tuple[str, ...] | None = None,
) -> tuple[str, CredentialRow]:
    """Return a new secret, and its row."""
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    row = CredentialRow(
        id=uuid7().hex,
        kind=kind,
        digest=digest_secret(secret),
        name="" if role == "agent" else name,
        agent=name if role == "agent" else None,
        role=role,
        works_as=msgspec.json.encode(works_as).decode() if works_as is not None else None,
        created_by=by,
        created_at=iso(now),
        expires_at=iso(now + timedelta(seconds=seconds)) if seconds is not None else None,
        revoked_at=None,
    )
    return secret, row


def caller_from_credential(row: CredentialRow, now: datetime) -> Caller | None:
    """Return the owner of a credential; None once it is revoked or expired."""
    if row.revoked_at is not None or (row.expires_at is not None and row.expires_at <= iso(now)):
        return None
    works_as = (
        None if row.works_as is None else msgspec.json.decode(row.works_as, type=tuple[str, ...])
    )
    return Caller(
        name=row.agent or row.name,
        role=msgspec.convert(row.role, Role),
        works_as=works_as,
        credential=row.id,
        in_browser=row.kind == "session",
    )


def csrf_token(session: str) -> str:
    """Return the token with which a page proves that it could read a response of this server."""
    return hmac.new(session.encode(), b"csrf", hashlib.sha256).hexdigest()


def is_valid_csrf(session: str, token: str) -> bool:
    return hmac.compare_digest(csrf_token(session).encode(), token.encode())

"""Reads the bearer token of a request to the A2A and MCP front ends.

A text that does not look like a Handrail token is rejected without asking the server.
"""

import re
from collections.abc import Iterable

TOKEN_PATTERN = re.compile(r"hr_[A-Za-z0-9_-]{20,200}")


def read_bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the token; None without an Authorization header, "" if it holds no valid token."""
    authorizations = [value for name, value in headers if name == b"authorization"]
    if not authorizations:
        return None
    kind, _, token = authorizations[0].decode("latin-1").partition(" ")
    token = token.strip()
    is_valid = (
        len(authorizations) == 1 and kind.lower() == "bearer" and TOKEN_PATTERN.fullmatch(token)
    )
    return token if is_valid else ""

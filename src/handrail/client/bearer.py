"""Whose a request to one of our own doors is: its token, if it looks like one of Handrail's.

What does not is nobody's, and no server is asked about it.
"""

import re
from collections.abc import Iterable

TOKEN_PATTERN = re.compile(r"hr_[A-Za-z0-9_-]{20,200}")


def read_bearer_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """None: it says nothing of who it is from. "": what it says is no token."""
    authorizations = [value for name, value in headers if name == b"authorization"]
    if not authorizations:
        return None
    kind, _, token = authorizations[0].decode("latin-1").partition(" ")
    token = token.strip()
    is_valid = (
        len(authorizations) == 1 and kind.lower() == "bearer" and TOKEN_PATTERN.fullmatch(token)
    )
    return token if is_valid else ""

"""Whose a request to one of our own doors is: its token, if it looks like one of Handrail's.

What does not is nobody's, and no server is asked about it.
"""

import re
from collections.abc import Iterable

TOKEN = re.compile(r"hr_[A-Za-z0-9_-]{20,200}")


def token_in(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """None: it says nothing of who it is from. "": what it says is no token."""
    given = [value for name, value in headers if name == b"authorization"]
    if not given:
        return None
    kind, _, token = given[0].decode("latin-1").partition(" ")
    token = token.strip()
    is_one = len(given) == 1 and kind.lower() == "bearer" and TOKEN.fullmatch(token)
    return token if is_one else ""

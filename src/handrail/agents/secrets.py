"""Keeps secrets out of what is told: errors of models, programs and services are shown to people,
recorded in histories and logged, and a provider may repeat the key it was called with.
"""

import os
import re
from collections.abc import Iterable

HIDDEN = "***"
LEAST = 8
"""Characters of a variable's value that make it worth hiding; shorter ones are words."""
_NAMED = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)
_LOOKS_LIKE = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|xox[abp]|hf|gsk)[-_][\w-]{8,}"
    r"|\b(?:Bearer|Basic)\s+[\w.~+/=-]{8,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    re.IGNORECASE,
)


def without_secrets(text: str, more: Iterable[str] = ()) -> str:
    """The text without what the environment's keys and passwords say, what looks like one, and
    any word of these."""
    held = [value for name, value in os.environ.items() if _NAMED.search(name)]
    words = {word for value in (*held, *more) for word in (value, *value.split())}
    for word in sorted((one for one in words if len(one) >= LEAST), key=len, reverse=True):
        text = text.replace(word, HIDDEN)
    return _LOOKS_LIKE.sub(HIDDEN, text)

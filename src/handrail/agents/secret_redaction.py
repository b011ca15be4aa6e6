"""Keep secrets out of messages: errors of models, programs and services are shown to people,
recorded in histories and logged, and a provider may repeat the key it was called with.
"""

import os
import re
from collections.abc import Iterable

REDACTED = "***"
SECRET_CHARS_MIN = 8
"""Characters of a variable's value that make it worth hiding; shorter ones are words."""
_SECRET_NAME = re.compile(r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)S?$", re.IGNORECASE)
_SECRET_PATTERN = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|xox[abp]|hf|gsk)[-_][\w-]{8,}"
    r"|\b(?:Bearer|Basic)\s+[\w.~+/=-]{8,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    re.IGNORECASE,
)


def redact_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without values of the environment's keys and passwords, what looks like one,
    and any of `secrets`.
    """
    env_values = [value for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    words = {word for value in (*env_values, *secrets) for word in (value, *value.split())}
    for word in sorted(
        (candidate for candidate in words if len(candidate) >= SECRET_CHARS_MIN),
        key=len,
        reverse=True,
    ):
        text = text.replace(word, REDACTED)
    return _SECRET_PATTERN.sub(REDACTED, text)

"""Removes secrets from texts about errors: messages and tracebacks are shown, stored and logged.

By pattern, since this module does not know which words are secret. It removes what looks like a
token, a password in an address, or the value of something that is called a password; numbers that
could be cards and mail addresses too, for an error has no need of them.
"""

import re

HIDDEN = "[hidden]"
TEXT_CHARS_MAX = 20_000
_SENSITIVE_FIELD_NAMES = (
    r"pass(?:word|wd|phrase)?|pwd|secret|token|api[-_]?key|apikey|access[-_]?key|private[-_]?key|"
    r"credentials?|authorization|auth|cookie|session(?:[-_]?id)?|csrf(?:[-_]?token)?|signature"
)
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,10000}(?:-----END[^\n]{0,60})?"),
        HIDDEN,
    ),
    (re.compile(r"\beyJ[\w-]{5,2000}\.[\w-]{5,4000}(?:\.[\w-]{0,2000})?"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic|token)\s+[\w.~+/=:-]{8,4000}"), rf"\1 {HIDDEN}"),
    (re.compile(r"(://)[^/\s:@]{0,200}:[^/\s@]{1,200}@"), rf"\1{HIDDEN}@"),
    (
        re.compile(
            rf"(?i)((?:{_SENSITIVE_FIELD_NAMES})[\w-]{{0,40}}[\"']?\s{{0,3}}[=:]\s{{0,3}})"
            r"(?:[\"'][^\"'\n]{0,2000}[\"']|[^\s,;&)}\]\"']{1,2000})"
        ),
        rf"\1{HIDDEN}",
    ),
    (
        re.compile(
            r"\b(?:sk|pk|rk|ghp|gho|ghs|ghu|glpat|xox[abprs]|hf|gsk|hr[a-z]?)[-_][\w-]{8,400}"
        ),
        HIDDEN,
    ),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), HIDDEN),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}\b"), HIDDEN),
    (re.compile(r"\b(?:\d[ -]?){13,19}\b"), HIDDEN),
    (re.compile(r"(\?)[\w%.~+-]{1,200}=[^\s\"'<>]{0,4000}"), rf"\1{HIDDEN}"),
)


def redact(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Return the text without what looks secret, of a bounded length: its beginning and its end."""
    text = text.replace("\0", "").encode("utf-8", "replace").decode()
    if len(text) > chars_max:
        text = f"{text[: chars_max // 2]}\n…\n{text[-chars_max // 2 :]}"
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text

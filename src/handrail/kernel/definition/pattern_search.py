"""The function `matches` of conditions, on RE2: its time grows with the text, never faster.

The interpreter's own `matches` compiles its pattern anew at every call, and a class of Unicode
characters such as `\\w` takes it half a millisecond, times every counted repeat around it. RE2
bounds the compiled program, and its syntax is what CEL's specification asks for. Every call pays
for the search and the pattern from the budget of its decision. Compiled patterns are cached, but
the price is the same, so that it depends on the input alone.
"""

import functools
import importlib
import re
from collections.abc import Callable
from typing import Protocol

SEARCH_FUNCTION = "find_re2"
PROGRAM_BYTES_MAX = 100_000
"""What RE2 may take for one pattern; it refuses larger ones."""
PATTERNS_CACHED_MAX = 256
CALL_MICROSECONDS, CHARACTER_MICROSECONDS = 30.0, 1.0
"""Of a call, and to compile a character of the pattern."""
COMPILED_MICROSECONDS, SEARCH_MICROSECONDS = 0.6, 0.006
"""Of an instruction of the compiled pattern: to compile it, and for each character of the text."""

REFUSED_MICROSECONDS = 3_000.0
"""Of a pattern that RE2 refuses, perhaps after most of the work."""

_RAW, _ESCAPED = r"(?:[rR][bB]?|[bB][rR])", r"[bB]?"
_QUOTED = "|".join(
    f"{_RAW}{quote}.*?{quote}|{_ESCAPED}{quote}(?:\\\\.|.)*?{quote}"
    for quote in ('"""', "'''", '"', "'")
)
_TEXT_OR_CALL = re.compile(rf"(?P<text>{_QUOTED}|//[^\n]*)|\bmatches(?=\s*\()", re.DOTALL)


def replace_matches(source: str) -> str:
    """Return the expression with its calls of `matches` as calls of `SEARCH_FUNCTION`."""
    return _TEXT_OR_CALL.sub(lambda found: found["text"] or SEARCH_FUNCTION, source)


class PatternSearch:
    """`matches` in one evaluation. What cannot be searched is reported in `problem`: an exception
    would be logged by the interpreter, and swallowed by `||`."""

    def __init__(self, pay: Callable[[float], bool]) -> None:
        self._pay, self.problem = pay, ""

    def __call__(self, text: object, pattern: object) -> bool:
        """Return whether the pattern occurs in the text."""
        if self.problem:
            return False
        if not isinstance(text, str) or not isinstance(pattern, str):
            self.problem = "matches takes a text and a pattern, both texts"
            return False
        if not self._pay(CALL_MICROSECONDS + len(pattern) * CHARACTER_MICROSECONDS):
            return False
        try:
            compiled = _compile(pattern)
        except ValueError as error:
            self._pay(REFUSED_MICROSECONDS)
            self.problem = str(error)
            return False
        searched = text.encode(errors="replace")
        price = COMPILED_MICROSECONDS + len(searched) * SEARCH_MICROSECONDS
        return self._pay(compiled.programsize * price) and compiled.search(searched) is not None


class _CompiledPattern(Protocol):
    programsize: int

    def search(self, text: bytes) -> object: ...


@functools.lru_cache(PATTERNS_CACHED_MAX)
def _compile(pattern: str) -> _CompiledPattern:
    """Compile a pattern; ValueError says what is wrong with it."""
    re2 = importlib.import_module("re2")  # imported late: most definitions have no pattern
    options = re2.Options()
    options.max_mem, options.log_errors = PROGRAM_BYTES_MAX, False
    try:
        return re2.compile(pattern.encode(errors="replace"), options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "it does not compile"
        raise ValueError(f"pattern '{pattern[:40]}': {reason[:100]}") from None

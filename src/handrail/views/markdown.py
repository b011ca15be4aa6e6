"""Renders untrusted text as safe Markdown: one-line fields, tables, fenced blocks.

Texts of agents, tools and people are shown, never interpreted. Rules:
1. A one-line field stays on its line: line breaks become a sign, and every character that could
   begin markup (headings, tables, links, HTML, emphasis, entities) is escaped.
2. A text of several lines goes into a fence longer than any run of backticks inside it.
3. Characters that turn or hide text (controls, direction marks) are spelt out.

So headings, rows and fences in a document come from its template alone.
"""

import re
from collections.abc import Iterable, Sequence

_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069"
    r"\ufeff\ud800-\udfff]"
)
_MARKUP = re.compile(r"[\\`*\[\]<|~$]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")
_LEADING = re.compile(r"^(\d{0,9})(?:([#>=])|([-+](?=[-+\s]|$))|([.)](?=\s|$)))")
_TICKS = re.compile(r"`+")
FENCE_TICKS_MIN = 3


def escape_hidden(text: str) -> str:
    """Replace hidden characters by their code points: {U+202E}."""
    return _HIDDEN.sub(lambda match: f"{{U+{ord(match.group()):04X}}}", text)


def escape_line(text: object) -> str:
    """Return the text as one line without markup."""
    parts = (part.strip() for part in str(text).strip().splitlines())
    text_line = escape_hidden(" ⏎ ".join(parts).replace("\t", " "))
    return _LEADING.sub(r"\1\\\2\3\4", _MARKUP.sub(r"\\\g<0>", text_line))


def code_block(text: str) -> str:
    """Return the text unchanged, in a fence that it cannot close."""
    longest_ticks = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * max(FENCE_TICKS_MIN, longest_ticks + 1)
    body = "\n".join(escape_hidden(part) for part in re.split(r"\r\n|[\n\r]", text))
    return f"{fence}text\n{body}\n{fence}"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; every cell is a one-line field."""
    lines = [
        headers,
        ["---"] * len(headers),
        *([escape_line(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def bullet_list(items: Iterable[tuple[str, object]]) -> str:
    """Return a list of named fields, without empty ones."""
    return "\n".join(
        f"- {name}: {escape_line(value)}" for name, value in items if value not in ("", None)
    )

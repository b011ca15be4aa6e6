"""What a commit of the lane says, and how it is found again by what it says.

The trailers are the last paragraph and come from the engine alone: a title is one line, and no
line of the text can be taken for a trailer.
"""

import re

from handrail.commits.git import Git

SUBJECT_CHARS = 72
BODY_CHARS = 4_000
FOUND_MAX = 50
"""Commits of one run that are looked at."""
_BLANK = re.compile(r"\s+")
_ID = re.compile(r"[\w.:@+-]{1,200}")
_NO_NAME = re.compile(r"[\x00-\x1f\x7f<>]")
MAIL = "handrail.invalid"


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def message(title: str, body: str, trailers: list[tuple[str, str]]) -> str:
    subject = _line(title)[:SUBJECT_CHARS].rstrip() or "A fix"
    indented = "\n".join(f"    {line.rstrip()}" for line in body[:BODY_CHARS].splitlines()).rstrip()
    text = "".join(f"{part}\n\n" for part in (subject, indented) if part.strip())
    return text + "".join(f"{name}: {_line(value)}\n" for name, value in trailers)


def person(name: str, kind: str) -> dict[str, str]:
    """The variables that say who is author or committer."""
    plain = _NO_NAME.sub("", name).strip() or "agent"
    mailbox = re.sub(r"[^\w.+-]", "-", plain)[:64]
    return {f"GIT_{kind}_NAME": plain, f"GIT_{kind}_EMAIL": f"{mailbox}@{MAIL}"}


async def standing(git: Git, among: str, head: str, wanted: dict[str, str]) -> list[str]:
    """Those of them that were not taken back."""
    found = await commits_with(git, among, wanted)
    return [one for one in found if not await taken_back(git, one, head)]


async def taken_back(git: Git, commit: str, head: str) -> str:
    """The commit that takes this one back; "" if none does."""
    found = await commits_with(git, f"{commit}..{head}", {"Reverts": commit})
    return found[0] if found else ""


async def trailers_of(git: Git, commit: str) -> dict[str, str]:
    told = await git.say("show", "-s", "--format=%(trailers:only,unfold)", commit)
    pairs = (line.partition(": ") for line in told.splitlines())
    return {name: value for name, _, value in pairs}


async def commits_with(git: Git, among: str, wanted: dict[str, str]) -> list[str]:
    """Commits that carry these trailers, the newest first; `among` is HEAD, or SINCE..HEAD."""
    grep = [f"--grep={name}: {value}" for name, value in wanted.items()]
    how = ("log", "--format=%H", "--fixed-strings", "--all-match", f"--max-count={FOUND_MAX}")
    told = await git.say(*how, *grep, among)
    found: list[str] = []
    for commit in told.splitlines():
        carried = await trailers_of(git, commit)
        if all(carried.get(name) == value for name, value in wanted.items()):
            found.append(commit)
    return found


def _line(text: str) -> str:
    return _BLANK.sub(" ", "".join(c if c.isprintable() else " " for c in text)).strip()

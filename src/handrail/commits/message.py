"""The message of a commit of the lane, and how the commit is found again by its trailers.

The trailers are the last paragraph and come from the engine alone: a title is one line, and no line
of the text can be taken for a trailer.
"""

import re

from handrail.commits.git import Git

SUBJECT_CHARS_MAX = 72
BODY_CHARS_MAX = 4_000
COMMITS_MAX = 50
"""Commits of one run that are read."""
_WHITESPACE = re.compile(r"\s+")
_ID = re.compile(r"[\w.:@+-]{1,200}")
_NOT_IN_NAME = re.compile(r"[\x00-\x1f\x7f<>]")
MAIL_DOMAIN = "handrail.invalid"


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def format_message(title: str, body: str, trailers: list[tuple[str, str]]) -> str:
    subject = _single_line(title)[:SUBJECT_CHARS_MAX].rstrip() or "A fix"
    indented = "\n".join(
        f"    {line.rstrip()}" for line in body[:BODY_CHARS_MAX].splitlines()
    ).rstrip()
    text = "".join(f"{part}\n\n" for part in (subject, indented) if part.strip())
    return text + "".join(f"{name}: {_single_line(value)}\n" for name, value in trailers)


def identity_variables(name: str, git_role: str) -> dict[str, str]:
    """Return the variables that name the author or committer."""
    clean_name = _NOT_IN_NAME.sub("", name).strip() or "agent"
    mailbox = re.sub(r"[^\w.+-]", "-", clean_name)[:64]
    return {f"GIT_{git_role}_NAME": clean_name, f"GIT_{git_role}_EMAIL": f"{mailbox}@{MAIL_DOMAIN}"}


async def find_unreverted(
    git: Git, revision_range: str, head: str, trailers: dict[str, str]
) -> list[str]:
    """Return those of the commits that were not reverted."""
    commits = await find_commits(git, revision_range, trailers)
    return [commit for commit in commits if not await find_revert(git, commit, head)]


async def find_revert(git: Git, commit: str, head: str) -> str:
    """Return the commit that reverts this one; "" if none does."""
    reverts = await find_commits(git, f"{commit}..{head}", {"Reverts": commit})
    return reverts[0] if reverts else ""


async def read_trailers(git: Git, commit: str) -> dict[str, str]:
    output = await git.check_output("show", "-s", "--format=%(trailers:only,unfold)", commit)
    pairs = (line.partition(": ") for line in output.splitlines())
    return {name: value for name, _, value in pairs}


async def find_commits(git: Git, revision_range: str, trailers: dict[str, str]) -> list[str]:
    """Return commits with these trailers, the newest first; the range is HEAD, or SINCE..HEAD."""
    grep = [f"--grep={name}: {value}" for name, value in trailers.items()]
    options = ("log", "--format=%H", "--fixed-strings", "--all-match", f"--max-count={COMMITS_MAX}")
    output = await git.check_output(*options, *grep, revision_range)
    matches: list[str] = []
    for commit in output.splitlines():
        commit_trailers = await read_trailers(git, commit)
        if all(commit_trailers.get(name) == value for name, value in trailers.items()):
            matches.append(commit)
    return matches


def _single_line(text: str) -> str:
    return _WHITESPACE.sub(" ", "".join(c if c.isprintable() else " " for c in text)).strip()

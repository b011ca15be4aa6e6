"""A proposal: a patch, what it is based on, and the id by which people approve it.

The id is git's patch-id, taken verbatim, with what git leaves out of it. Verbatim, because the
usual one passes over white space, which is meaning in Python; a rebase to other line numbers keeps
it. Left out are the modes of files, and the content of those that are no text.
"""

import hashlib

from handrail.commits.git import Git
from handrail.commits.trouble import NotApplied, last_words
from handrail.kernel.decision import Value

PATCH_BYTES_MAX = 1_000_000
"""It is read by people before it is approved."""
FILES_MAX = 200
DIFF = (
    *("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color"),
    *("--no-ext-diff", "--no-textconv", "--unified=3", "--diff-algorithm=myers"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--submodule=short"),
)
"""The same text for the same change, whatever is configured."""

BINARY = b"\nGIT binary patch\n"
"""Only git writes it at the beginning of a line: every line of a file has a sign before it."""


class Proposal(Value):
    """What somebody wants to be committed. It lies in the bead's context under `proposal`. `commit`
    is for people: the run has committed it already, and nobody was told."""

    patch: str
    base: str
    patch_id: str
    files: tuple[str, ...]
    commit: str = ""


async def propose(git: Git, base: str, tree: str) -> Proposal:
    """The way from the base to that tree."""
    files = await touched(git, base, tree)
    ran = await git.run(*DIFF, base, tree)
    if ran.exit_code:
        raise NotApplied("git_failed", last_words(ran.stderr), "see that the base is still there")
    if len(ran.stdout) > PATCH_BYTES_MAX or len(files) > FILES_MAX:
        told = f"the patch has {len(ran.stdout):,} bytes in {len(files)} files"
        most = f"at most {PATCH_BYTES_MAX:,} in {FILES_MAX} can be approved; propose less"
        raise NotApplied("too_large", told, most)
    try:
        patch = ran.stdout.decode("utf-8")
    except UnicodeDecodeError:
        told = "the patch has bytes that are no UTF-8, which nobody could read and approve"
        raise NotApplied("no_text", told, "a person commits this one") from None
    patch_id = await identify(git, base, tree)
    return Proposal(patch=patch, base=base, patch_id=patch_id, files=tuple(sorted(files)))


async def tree_of(git: Git, proposal: Proposal) -> str:
    """The tree that the patch makes of its base. Raises if the patch does not fit it."""
    index = {"GIT_INDEX_FILE": str(git.folder / "index.proposal")}
    await git.say("read-tree", proposal.base, variables=index)
    ran = await git.run(
        *("apply", "--cached", "--whitespace=nowarn", "-"),
        stdin=proposal.patch.encode(),
        variables=index,
    )
    if ran.exit_code:
        told = f"the patch does not fit its own base: {last_words(ran.stderr)}"
        raise NotApplied("patch_changed", told, "propose it again, and have that approved")
    return await git.say("write-tree", variables=index)


async def identify(git: Git, before: str, after: str) -> str:
    """The id of the change between two commits or trees."""
    diff = await git.run(*DIFF, before, after)
    told = await git.say("patch-id", "--verbatim", stdin=diff.stdout)
    listed = await _listed(git, before, after)
    binary = await _binary(git, before, after) if BINARY in diff.stdout else set[bytes]()
    parts = [told.partition(" ")[0].encode()]
    for path, (old, new, blob) in sorted(listed.items()):
        content = blob.encode() if path in binary else b""
        parts.append(b"\0".join((path, old.encode(), new.encode(), content)))
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:40]


async def touched(git: Git, before: str, after: str) -> dict[str, tuple[str, str]]:
    """Path -> mode before and after. Raises for a name that is no UTF-8."""
    listed = await _listed(git, before, after)
    try:
        return {path.decode(): (old, new) for path, (old, new, _) in listed.items()}
    except UnicodeDecodeError:
        told = "the patch touches a file whose name is no UTF-8"
        raise NotApplied("guarded", told, "a person commits this one") from None


async def _binary(git: Git, before: str, after: str) -> set[bytes]:
    ran = await git.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", before, after)
    return {line[4:] for line in ran.stdout.split(b"\0") if line.startswith(b"-\t-\t")}


async def _listed(git: Git, before: str, after: str) -> dict[bytes, tuple[str, str, str]]:
    ran = await git.run(
        "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", before, after
    )
    if ran.exit_code:
        told = f"'{before}' and '{after}' cannot be compared: {last_words(ran.stderr)}"
        raise NotApplied("git_failed", told, "see that the base is still there")
    fields = ran.stdout.split(b"\0")
    found: dict[bytes, tuple[str, str, str]] = {}
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        old, new, _, blob, _ = about.decode().lstrip(":").split(" ")
        found[path] = old, new, blob
    return found

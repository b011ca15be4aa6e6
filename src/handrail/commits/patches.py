"""A proposal: a patch, its base, and the id by which people approve it.

The id is git's patch-id, taken verbatim, together with what git leaves out of it: the modes of
files, and the content of those that are no text. Verbatim, because the usual one ignores white
space, which is meaning in Python; a rebase to other line numbers keeps it.
"""

import hashlib

from handrail.commits.errors import CommitRejectedError, output_tail
from handrail.commits.git import Git
from handrail.kernel.decision import Value

PATCH_BYTES_MAX = 1_000_000
"""People read it before they approve."""
FILES_MAX = 200
DIFF_ARGS = (
    *("diff-tree", "-r", "-p", "--binary", "--full-index", "--no-renames", "--no-color"),
    *("--no-ext-diff", "--no-textconv", "--unified=3", "--diff-algorithm=myers"),
    *("--src-prefix=a/", "--dst-prefix=b/", "--no-relative", "--submodule=short"),
)
"""The same text for the same change, whatever the configuration."""

BINARY_MARKER = b"\nGIT binary patch\n"
"""Only git writes it at the beginning of a line: every line of a file has a sign before it."""


class PatchProposal(Value):
    """A proposed change, stored in the bead's context under `proposal`. `commit` is for people: the
    run has committed it already, and could not report it.
    """

    patch: str
    base: str
    patch_id: str
    files: tuple[str, ...]
    commit: str = ""


async def build_proposal(git: Git, base: str, tree: str) -> PatchProposal:
    """Build the proposal from the base to that tree."""
    files = await list_changed_files(git, base, tree)
    completed = await git.run(*DIFF_ARGS, base, tree)
    if completed.exit_code:
        raise CommitRejectedError(
            "git_failed", output_tail(completed.stderr), "see that the base is still there"
        )
    if len(completed.stdout) > PATCH_BYTES_MAX or len(files) > FILES_MAX:
        message = f"the patch has {len(completed.stdout):,} bytes in {len(files)} files"
        hint = f"at most {PATCH_BYTES_MAX:,} in {FILES_MAX} can be approved; propose less"
        raise CommitRejectedError("too_large", message, hint)
    try:
        patch = completed.stdout.decode("utf-8")
    except UnicodeDecodeError:
        message = "the patch has bytes that are no UTF-8, which nobody could read and approve"
        raise CommitRejectedError("no_text", message, "a person commits this one") from None
    patch_id = await compute_patch_id(git, base, tree)
    return PatchProposal(patch=patch, base=base, patch_id=patch_id, files=tuple(sorted(files)))


async def build_tree(git: Git, proposal: PatchProposal) -> str:
    """Return the tree that the patch makes of its base. Raises if the patch does not fit it."""
    index = {"GIT_INDEX_FILE": str(git.folder / "index.proposal")}
    await git.check_output("read-tree", proposal.base, variables=index)
    completed = await git.run(
        *("apply", "--cached", "--whitespace=nowarn", "-"),
        stdin=proposal.patch.encode(),
        variables=index,
    )
    if completed.exit_code:
        message = f"the patch does not fit its own base: {output_tail(completed.stderr)}"
        raise CommitRejectedError(
            "patch_changed", message, "propose it again, and have that approved"
        )
    return await git.check_output("write-tree", variables=index)


async def compute_patch_id(git: Git, before: str, after: str) -> str:
    """Return the id of the change between two commits or trees."""
    diff = await git.run(*DIFF_ARGS, before, after)
    output = await git.check_output("patch-id", "--verbatim", stdin=diff.stdout)
    entries = await _list_raw_diff(git, before, after)
    binary_paths = (
        await _list_binary_paths(git, before, after)
        if BINARY_MARKER in diff.stdout
        else set[bytes]()
    )
    parts = [output.partition(" ")[0].encode()]
    for path, (old, new, blob) in sorted(entries.items()):
        content = blob.encode() if path in binary_paths else b""
        parts.append(b"\0".join((path, old.encode(), new.encode(), content)))
    return hashlib.sha256(b"\n".join(parts)).hexdigest()[:40]


async def list_changed_files(git: Git, before: str, after: str) -> dict[str, tuple[str, str]]:
    """Return path -> mode before and after. Raises for a name that is not UTF-8."""
    entries = await _list_raw_diff(git, before, after)
    try:
        return {path.decode(): (old, new) for path, (old, new, _) in entries.items()}
    except UnicodeDecodeError:
        message = "the patch touches a file whose name is no UTF-8"
        raise CommitRejectedError("guarded", message, "a person commits this one") from None


async def _list_binary_paths(git: Git, before: str, after: str) -> set[bytes]:
    completed = await git.run("diff-tree", "-r", "-z", "--numstat", "--no-renames", before, after)
    return {line[4:] for line in completed.stdout.split(b"\0") if line.startswith(b"-\t-\t")}


async def _list_raw_diff(git: Git, before: str, after: str) -> dict[bytes, tuple[str, str, str]]:
    completed = await git.run(
        "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", before, after
    )
    if completed.exit_code:
        message = f"'{before}' and '{after}' cannot be compared: {output_tail(completed.stderr)}"
        raise CommitRejectedError("git_failed", message, "see that the base is still there")
    fields = completed.stdout.split(b"\0")
    entries: dict[bytes, tuple[str, str, str]] = {}
    for header, path in zip(fields[::2], fields[1::2], strict=False):
        old, new, _, blob, _ = header.decode().lstrip(":").split(" ")
        entries[path] = old, new, blob
    return entries

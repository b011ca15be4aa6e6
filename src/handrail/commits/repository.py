"""A repository that the lane commits to, as its operator describes it, and what patches must not
touch there.

Nothing of this comes from a bead, an agent or the repository's own content.
"""

import re
from pathlib import Path

from handrail.commits.errors import CommitRejectedError
from handrail.kernel.decision import Value

GUARDED_FILE_NAMES = frozenset({".gitattributes", ".gitmodules", ".lfsconfig"})
"""In every folder: these files configure git itself."""
GUARDED_PATHS = (".pre-commit-config.yaml", ".husky/")
"""These configure hooks."""
REGULAR_FILE_MODES = frozenset({"000000", "100644", "100755"})
"""Files. A link leads elsewhere, a submodule brings another repository: people commit those."""
PATH_CHARS_MAX = 4_096
_BRANCH_NAME = re.compile(r"(?!.*(?:\.\.|//|@\{|\.lock$))[A-Za-z0-9_][\w./+-]{0,199}(?<![./])")


class Repository(Value):
    """`url` is a path, or an address that git reads; `branch` what is committed to.

    `hooks` are a folder of the repository (".githooks"), taken from the branch and never from the
    patch, or a folder of this machine ("/etc/handrail/hooks"); "" for a local repository means its
    own. A hook in `required_hooks` that is not there refuses every commit. `protected` are paths,
    or folders ("tools/"), that hooks rely on: a patch that touches one is refused. `variables` name
    what git needs of this process's environment to reach it, such as SSH_AUTH_SOCK.
    """

    url: str
    branch: str = "main"
    hooks: str = ""
    required_hooks: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    hook_seconds: float = 240.0

    def __post_init__(self) -> None:
        if not self.url or self.url.startswith("-") or "\0" in self.url or "::" in self.url:
            raise ValueError(f"{self.url!r} is no address of a repository")
        if not _BRANCH_NAME.fullmatch(self.branch):
            raise ValueError(f"{self.branch!r} is no branch that the lane commits to")
        reserved_names = [name for name in self.variables if name.upper().startswith("GIT_")]
        if reserved_names:
            raise ValueError(f"{', '.join(reserved_names)}: variables of git are the lane's own")

    @property
    def fence_ref(self) -> str:
        """The ref that holds the fence of the last holder."""
        return f"refs/handrail/fence/{self.branch}"

    @property
    def head_ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def tracked_hooks_folder(self) -> str:
        """The folder of the repository that has the hooks; "" if they are elsewhere."""
        is_tracked = self.hooks and not Path(self.hooks).is_absolute()
        return self.hooks.strip("/") + "/" if is_tracked else ""

    def check_files(self, files: dict[str, tuple[str, str]]) -> None:
        """Raise if a patch with these files, and their modes before and after, must not be applied,
        whoever approved it.
        """
        for path, modes in files.items():
            reason = self._refusal_reason(path, modes)
            if reason:
                message = f"the patch touches {path!r}, and {reason}"
                raise CommitRejectedError(
                    "guarded", message, "a person commits this one", files=[path]
                )

    def _refusal_reason(self, path: str, modes: tuple[str, str]) -> str:
        guarded = (
            *GUARDED_PATHS,
            *self.protected,
            *([self.tracked_hooks_folder] if self.tracked_hooks_folder else []),
        )
        is_deceptive = not path.isprintable() or "\\" in path or len(path) > PATH_CHARS_MAX
        folded = path.casefold()
        rules = {
            "its name has characters that hide": is_deceptive,
            "links and submodules lead elsewhere": not set(modes) <= REGULAR_FILE_MODES,
            "it says what git does": folded.rpartition("/")[2] in GUARDED_FILE_NAMES,
            "it is in git's own folder": ".git" in folded.split("/"),
            "hooks rely on it": any(
                _is_guarded_by(folded, guarded_path.casefold()) for guarded_path in guarded
            ),
        }
        return next((rule for rule, applies in rules.items() if applies), "")


def _is_guarded_by(path: str, guarded: str) -> bool:
    """Return whether the path is guarded; a file in place of a guarded folder is, too."""
    return path in (guarded, guarded.rstrip("/")) or (
        guarded.endswith("/") and path.startswith(guarded)
    )

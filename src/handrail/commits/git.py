"""Run git in a folder of the lane's own, so that only its arguments decide what it does.

Rules
1. The environment is made anew: no variable of git comes in from outside, no system or user
   configuration is read, git asks for no password, and only named protocols are allowed.
2. The repository's own configuration is written before every command. What a hook, or code that a
   hook ran, wrote there (an alias, a filter, another `core.hooksPath`) is gone before it counts.
3. Hooks run where the caller says so and nowhere else; then from the folder that the lane laid out.
4. Every command has limits of time, memory and output (`agents/commands.py`).

The folder borrows objects from a store beside it (`alternates`), and shares nothing else: no lock
file of a killed process can be in its way.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from handrail.agents.commands import CommandLimits, CompletedCommand, run_command
from handrail.commits.errors import CommitRejectedError, output_tail

ALLOWED_PROTOCOLS = "file:https:ssh"
GIT_LIMITS = CommandLimits(seconds=120, output_bytes=4_000_000)
NO_HOOKS = os.devnull
GIT_CONFIG = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = {bare}
\tfsmonitor = false
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tsshCommand = ssh -oBatchMode=yes
\tquotePath = true
\tautocrlf = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[submodule]
\trecurse = false
[commit]
\tgpgSign = false
[push]
\tgpgSign = false
\trecurseSubmodules = no
"""
REMOVED_GIT_FILES = (
    "config.worktree",
    "info/attributes",
    "info/exclude",
    "info/grafts",
    "commondir",
)
"""Files of a git folder that configure git; the lane writes none of them."""


def find_git() -> str:
    """Return the path of git. Raises `CommitRejectedError` if it is missing."""
    program = shutil.which("git")
    if program is None:
        raise CommitRejectedError(
            "no_git", "there is no command 'git'", "install git 2.39 or newer"
        )
    return program


class Git:
    """Runs git in one folder. `tree` is None for a store without files."""

    def __init__(
        self, folder: Path, tree: Path | None, inherited_names: tuple[str, ...] = ()
    ) -> None:
        self.folder, self.tree, self.program = folder, tree, find_git()
        self.inherited_variables = {
            name: os.environ[name] for name in inherited_names if name in os.environ
        }

    def init(self, alternate: Path | None = None) -> None:
        """Create an empty repository by hand: no template of this machine gets into it."""
        for name in ("objects/info", "objects/pack", "refs/heads", "info"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if alternate is not None:
            alternates = f"{alternate / 'objects'}\n"
            (self.folder / "objects/info/alternates").write_text(alternates, encoding="utf-8")
        (self.folder / "HEAD").write_text("ref: refs/heads/lane\n", encoding="utf-8")
        self._restore_config()

    async def run(
        self,
        *args: str,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        hooks: Path | None = None,
        limits: CommandLimits = GIT_LIMITS,
    ) -> CompletedCommand:
        """Run the command to its end, whatever its exit code; raise only if a limit ended it."""
        self._restore_config()
        hooks_setting = f"core.hooksPath={hooks or NO_HOOKS}"
        completed = await run_command(
            (self.program, "-c", hooks_setting, "--no-pager", "--literal-pathspecs", *args),
            self.tree or self.folder,
            limits=limits,
            stdin=stdin,
            variables={**self.inherited_variables, **self._variables(), **(variables or {})},
        )
        if completed.ended_by:
            message = f"'git {args[0]}' met its limit of {completed.ended_by}"
            raise CommitRejectedError(
                "limit", message, "try again, or give the repository more room"
            )
        return completed

    async def check_output(
        self, *args: str, stdin: bytes = b"", variables: Mapping[str, str] | None = None
    ) -> str:
        """Return the output of a command that must succeed, without the last newline."""
        completed = await self.run(*args, stdin=stdin, variables=variables)
        if completed.exit_code:
            message = f"'git {args[0]}' failed: {output_tail(completed.stderr)}"
            raise CommitRejectedError(
                "git_failed", message, "see that the repository can be reached"
            )
        return completed.stdout.decode("utf-8", "replace").removesuffix("\n")

    async def succeeds(self, *args: str) -> bool:
        return (await self.run(*args)).exit_code == 0

    def _variables(self) -> dict[str, str]:
        tree = {"GIT_WORK_TREE": str(self.tree)} if self.tree is not None else {}
        home = {"HOME": str(self.folder)} if "HOME" not in self.inherited_variables else {}
        return {
            "GIT_DIR": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_ALLOW_PROTOCOL": ALLOWED_PROTOCOLS,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ADVICE": "0",
            "LC_ALL": "C",
            **home,
            **tree,
        }

    def _restore_config(self) -> None:
        config = self.folder / "config"
        expected_text = GIT_CONFIG.format(bare="true" if self.tree is None else "false")
        if (
            config.is_symlink()
            or not config.is_file()
            or config.read_text("utf-8") != expected_text
        ):
            config.unlink(missing_ok=True)
            config.write_text(expected_text, encoding="utf-8")
        for name in REMOVED_GIT_FILES:
            (self.folder / name).unlink(missing_ok=True)

"""Runs the git command in a folder of the lane's own, so that nothing but its words decides what it
does.

Rules
1. The environment is made anew: no variable of git comes in from outside, no system or user
   configuration is read, nobody is asked for a password, and only named protocols are spoken.
2. The repository's own configuration is written before every command. What a hook, or code that a
   hook ran, wrote there (an alias, a filter, another `core.hooksPath`) is gone before it counts.
3. Hooks run where the caller says so and nowhere else; then from the folder that the lane laid out.
4. Every command has limits of time, memory and output (`agents/commands.py`).

The folder borrows objects from a store beside it (`alternates`), and shares nothing else with
anybody: no lock that somebody left when they were killed can be in its way.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from handrail.agents.commands import CommandLimits, Ran, run_command
from handrail.commits.trouble import NotApplied, last_words

PROTOCOLS = "file:https:ssh"
LIMITS = CommandLimits(seconds=120, output_bytes=4_000_000)
NO_HOOKS = os.devnull
CONFIG = """\
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
TAMPERED = ("config.worktree", "info/attributes", "info/exclude", "info/grafts", "commondir")
"""Files of a git folder that say what git does; the lane writes none of them."""


def git_program() -> str:
    """Where git is. Raises `NotApplied` if it is not."""
    found = shutil.which("git")
    if found is None:
        raise NotApplied("no_git", "there is no command 'git'", "install git 2.39 or newer")
    return found


class Git:
    """One folder, and the commands in it. `tree` is None for a store without files."""

    def __init__(self, folder: Path, tree: Path | None, passed: tuple[str, ...] = ()) -> None:
        self.folder, self.tree, self.program = folder, tree, git_program()
        self.passed = {name: os.environ[name] for name in passed if name in os.environ}

    def lay_out(self, borrows: Path | None = None) -> None:
        """An empty repository, by hand: no template of this machine gets into it."""
        for name in ("objects/info", "objects/pack", "refs/heads", "info"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if borrows is not None:
            told = f"{borrows / 'objects'}\n"
            (self.folder / "objects/info/alternates").write_text(told, encoding="utf-8")
        (self.folder / "HEAD").write_text("ref: refs/heads/lane\n", encoding="utf-8")
        self._settle()

    async def run(
        self,
        *words: str,
        stdin: bytes = b"",
        variables: Mapping[str, str] | None = None,
        hooks: Path | None = None,
        limits: CommandLimits = LIMITS,
    ) -> Ran:
        """The command to its end, whatever its exit code; raises only if a limit ended it."""
        self._settle()
        configured = f"core.hooksPath={hooks or NO_HOOKS}"
        ran = await run_command(
            (self.program, "-c", configured, "--no-pager", "--literal-pathspecs", *words),
            self.tree or self.folder,
            limits=limits,
            stdin=stdin,
            variables={**self.passed, **self._variables(), **(variables or {})},
        )
        if ran.ended_by:
            told = f"'git {words[0]}' met its limit of {ran.ended_by}"
            raise NotApplied("limit", told, "try again, or give the repository more room")
        return ran

    async def say(
        self, *words: str, stdin: bytes = b"", variables: Mapping[str, str] | None = None
    ) -> str:
        """What a command that must succeed prints, without the last newline."""
        ran = await self.run(*words, stdin=stdin, variables=variables)
        if ran.exit_code:
            told = f"'git {words[0]}' failed: {last_words(ran.stderr)}"
            raise NotApplied("git_failed", told, "see that the repository can be reached")
        return ran.stdout.decode("utf-8", "replace").removesuffix("\n")

    async def finds(self, *words: str) -> bool:
        return (await self.run(*words)).exit_code == 0

    def _variables(self) -> dict[str, str]:
        tree = {"GIT_WORK_TREE": str(self.tree)} if self.tree is not None else {}
        home = {"HOME": str(self.folder)} if "HOME" not in self.passed else {}
        return {
            "GIT_DIR": str(self.folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_ALLOW_PROTOCOL": PROTOCOLS,
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ADVICE": "0",
            "LC_ALL": "C",
            **home,
            **tree,
        }

    def _settle(self) -> None:
        config = self.folder / "config"
        wanted = CONFIG.format(bare="true" if self.tree is None else "false")
        if config.is_symlink() or not config.is_file() or config.read_text("utf-8") != wanted:
            config.unlink(missing_ok=True)
            config.write_text(wanted, encoding="utf-8")
        for name in TAMPERED:
            (self.folder / name).unlink(missing_ok=True)

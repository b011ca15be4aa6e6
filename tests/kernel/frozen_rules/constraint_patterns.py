"""Matches paths and commands against the patterns of constraints."""

import re
from fnmatch import fnmatchcase
from posixpath import normpath

COMMAND_WRAPPERS = ("sudo", "env", "nohup", "time", "command", "exec")


def is_path_forbidden(path: str, pattern: str) -> bool:
    """Whether the glob matches the path as written, normalized ('..' resolved), or a folder above.

    A leading `**/` stands for any folder, or none.
    """
    normalized = normpath(path.strip().replace("\\", "/"))
    rule = normpath(pattern.strip())
    parts = normalized.split("/")
    candidates = ["/".join(parts[:i]) for i in range(1, len(parts) + 1)]
    if normalized.startswith("/"):  # the run's folder is unknown: try every part
        depth = rule.count("/") + 1
        candidates += ["/".join(parts[i : i + depth]) for i in range(1, len(parts))]
    rules = (rule, rule.removeprefix("**/"))
    return any(fnmatchcase(candidate, r) for r in rules for candidate in candidates) or fnmatchcase(
        path, pattern
    )


def is_command_forbidden(command: str, pattern: str) -> bool:
    """Whether the glob matches the command, or a command within it begins with these words.

    Within: chained, in a subshell, in quotes (`sh -c "..."`), behind `sudo`, `env`, assignments,
    with or without the program's folder. Best effort: do not install what must never run.
    """
    words = pattern.split()
    if not words:
        return False
    for part in re.split(r"[;&|\n(){}`$\"']+", command):
        argv = part.split()
        while argv and (argv[0] in COMMAND_WRAPPERS or re.fullmatch(r"\w+=\S*", argv[0])):
            argv = argv[1:]
        bare_argv = [argv[0].rsplit("/", 1)[-1], *argv[1:]] if argv else []
        for candidate in (argv, bare_argv):
            if candidate[: len(words)] == words or fnmatchcase(
                " ".join(candidate), " ".join(words)
            ):
                return True
    return fnmatchcase(command.strip(), pattern.strip())

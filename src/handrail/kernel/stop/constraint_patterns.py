"""What constraints forbid: whether a path or a command is meant by a pattern."""

import re
from fnmatch import fnmatchcase
from posixpath import normpath

COMMAND_WRAPPERS = ("sudo", "env", "nohup", "time", "command", "exec")


def is_path_forbidden(path: str, pattern: str) -> bool:
    """The glob matches the path, a folder above it, or it as written; '..' leads nowhere else.

    A leading `**/` stands for any folder, none included.
    """
    normalized = normpath(path.strip().replace("\\", "/"))
    rule = normpath(pattern.strip())
    parts = normalized.split("/")
    candidates = ["/".join(parts[:i]) for i in range(1, len(parts) + 1)]
    if normalized.startswith("/"):  # where the run's folder lies is not known: look at every part
        depth = rule.count("/") + 1
        candidates += ["/".join(parts[i : i + depth]) for i in range(1, len(parts))]
    rules = (rule, rule.removeprefix("**/"))
    return any(fnmatchcase(candidate, r) for r in rules for candidate in candidates) or fnmatchcase(
        path, pattern
    )


def is_command_forbidden(command: str, pattern: str) -> bool:
    """The glob matches the command, or a command within it begins with these words.

    Within: chained, in a subshell, in quotes (`sh -c "..."`), behind `sudo`, `env`, assignments,
    with or without the program's folder. Best effort: what may never run must not be installed.
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

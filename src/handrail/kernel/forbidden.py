"""What constraints forbid: whether a path or a command is meant by a pattern."""

import re
from fnmatch import fnmatchcase
from posixpath import normpath

WRAPPERS = ("sudo", "env", "nohup", "time", "command", "exec")


def path_forbidden(path: str, forbidden: str) -> bool:
    """The glob matches the path, a folder above it, or it as written; '..' leads nowhere else.

    A leading `**/` stands for any folder, none included.
    """
    plain = normpath(path.strip().replace("\\", "/"))
    rule = normpath(forbidden.strip())
    parts = plain.split("/")
    above = ["/".join(parts[:i]) for i in range(1, len(parts) + 1)]
    if plain.startswith("/"):  # where the run's folder lies is not known: look at every part
        deep = rule.count("/") + 1
        above += ["/".join(parts[i : i + deep]) for i in range(1, len(parts))]
    rules = (rule, rule.removeprefix("**/"))
    return any(fnmatchcase(one, r) for r in rules for one in above) or fnmatchcase(path, forbidden)


def command_forbidden(command: str, forbidden: str) -> bool:
    """The glob matches the command, or a command within it begins with these words.

    Within: chained, in a subshell, in quotes (`sh -c "..."`), behind `sudo`, `env`, assignments,
    with or without the program's folder. Best effort: what may never run must not be installed.
    """
    words = forbidden.split()
    if not words:
        return False
    for part in re.split(r"[;&|\n(){}`$\"']+", command):
        ran = part.split()
        while ran and (ran[0] in WRAPPERS or re.fullmatch(r"\w+=\S*", ran[0])):
            ran = ran[1:]
        bare = [ran[0].rsplit("/", 1)[-1], *ran[1:]] if ran else []
        for said in (ran, bare):
            if said[: len(words)] == words or fnmatchcase(" ".join(said), " ".join(words)):
                return True
    return fnmatchcase(command.strip(), forbidden.strip())

"""Read what an argument names: a time, a file with a document, stop rules, a Python object."""

import importlib
import sys
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from handrail.cli.command import InputError
from handrail.cli.formatting import printable
from handrail.kernel.definition.limits import PROFILES
from handrail.kernel.definition.reader import parse_duration


def parse_since(since: str) -> datetime | None:
    """Parse an age or a time; without a time zone it is UTC."""
    if not since:
        return None
    now = datetime.now(UTC)
    try:
        ago = parse_duration(since)
        start = datetime.fromisoformat(since) if ago is None else now - timedelta(seconds=ago)
    except (ValueError, OverflowError):
        message = f"--since is '{printable(since)[:80]}'"
        raise InputError(f"{message}; write how long ago, such as 2h or 7d, or a date") from None
    return start if start.tzinfo is not None else start.replace(tzinfo=UTC)


def read_context(text: str) -> dict[str, Any]:
    """Read a JSON object, or @FILE with one."""
    from handrail.engine.document_parser import load_document

    if not text:
        return {}
    document, problems = load_document(Path(text[1:]) if text.startswith("@") else text)
    if problems:
        message = f"--context {printable(text)[:80]}: {problems[0].message}"
        raise InputError(f"{message}; give a JSON object")
    if not isinstance(document, dict):
        raise InputError(
            f"--context {printable(text)[:80]}: is no JSON object; give one such as {{}}"
        )
    return document


def read_rules(rules: str) -> dict[str, Any] | str:
    """Return the file's content; else the name of a profile."""
    from handrail.engine.document_parser import load_document

    path = Path(rules)
    if not path.is_file():
        if rules in PROFILES:
            return rules
        message = f"--rules is '{printable(rules)[:80]}', which is neither a file nor a profile"
        raise InputError(f"{message}; profiles are {' and '.join(PROFILES)}")
    document, problems = load_document(path)
    if problems:
        problem = problems[0]
        raise InputError(
            f"{printable(rules)}: at {problem.path}: {problem.message}; {problem.hint}"
        )
    if not isinstance(document, dict):
        raise InputError(f"{printable(rules)}: no object; write lines such as max_edge: 4")
    return document


def import_object(target: str, example: str, noun: str) -> object:
    """Import what MODULE:NAME names, from the current folder or from installed packages."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        file_name = f"{example.partition(':')[0]}.py"
        raise InputError(f"'{target}' is not MODULE:NAME; write {example} for {file_name}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # any error of the user's module on import
        raise InputError(_import_error_message(module_name, error)) from error
    value = getattr(module, name, None)
    if value is None:
        raise InputError(f"module '{module_name}' has no '{name}'; name {noun} in it")
    return value


def _import_error_message(module: str, error: Exception) -> str:
    """Say that there is no such module, or where in it the import failed."""
    is_missing = isinstance(error, ModuleNotFoundError)
    if is_missing and error.name and f"{module}.".startswith(f"{error.name}."):
        message = f"there is no module '{error.name}' here or among the installed ones"
        return f"{message}; start it where {module}.py is"
    message = f"module '{module}' cannot be imported: {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # it says itself where
        return f"{message}; fix it"
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{message} ({Path(last.filename).name}, line {last.lineno})"
    hint = f"install it into the environment of handrail: {sys.prefix}"
    return f"{message}; {hint if is_missing else 'fix it'}"

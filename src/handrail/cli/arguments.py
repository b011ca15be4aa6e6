"""Arguments and options that several commands have, and what their texts name: a time, a file, a
Python object, an id or enough of its beginning or end.
"""

import importlib
import re
import sys
import traceback
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from handrail.cli.command import InputError
from handrail.cli.output import printable
from handrail.cli.parameters import Argument, Option
from handrail.kernel.definition.limits import PROFILES
from handrail.kernel.definition.reader import parse_duration

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient

AsJson = Annotated[bool, Option("--json", help="Print one JSON document on standard output.")]
Database = Annotated[
    str,
    Option(
        metavar="URL",
        help="sqlite:///FILE or postgresql://…; default: HANDRAIL_DATABASE, else the one in the "
        "folder .handrail.",
    ),
]
Server = Annotated[
    str,
    Option(
        metavar="URL",
        help="Use this server instead, with the token in HANDRAIL_TOKEN; default: HANDRAIL_SERVER.",
    ),
]
RunId = Annotated[
    str, Argument(metavar="RUN", help="The run's id, or a unique beginning or end of it.")
]
Since = Annotated[
    str, Option(metavar="WHEN", help="Only runs since then: 2h or 7d ago, or a date.")
]
WorkflowName = Annotated[
    str,
    Option("--workflow", metavar="NAME", help="Only runs of this definition, by id or name."),
]
RunStatusFilter = Literal[
    "running",
    "waiting",
    "paused",
    "ended",
    "done_success",
    "done_partial",
    "aborted_stuck",
    "aborted_constraint",
    "closed_by_human",
]
ApprovalDecision = Literal["approve", "reject", "revise"]
ReviewMode = Literal["required", "skip"]
OverrideAction = Literal["move", "close", "pause", "resume", "migrate"]


def decode_argument(text: str) -> str:
    """Return the user's argument, with a sign for bytes that are not UTF-8, which cannot be
    stored.
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def parse_since(since: str) -> datetime | None:
    """Parse an age or a time; without a time zone it is UTC."""
    if not since:
        return None
    try:
        ago = parse_duration(since)
        start = (
            datetime.fromisoformat(since)
            if ago is None
            else datetime.now(UTC) - timedelta(seconds=ago)
        )
    except (ValueError, OverflowError):
        raise InputError(
            f"--since is '{printable(since)[:80]}'; write how long ago, such as 2h or 7d, or a date"
        ) from None
    return start if start.tzinfo is not None else start.replace(tzinfo=UTC)


def read_context(text: str) -> dict[str, Any]:
    """Read a JSON object, or @FILE with one."""
    from handrail.engine.document_parser import load_document

    if not text:
        return {}
    document, problems = load_document(Path(text[1:]) if text.startswith("@") else text)
    if problems:
        raise InputError(
            f"--context {printable(text)[:80]}: {problems[0].message}; give a JSON object"
        )
    if not isinstance(document, dict):
        raise InputError(
            f"--context {printable(text)[:80]}: is not a JSON object; write one such as {{}}"
        )
    return document


def read_rules(rules: str) -> dict[str, Any] | str:
    """Return the file's content; else the name of a profile."""
    from handrail.engine.document_parser import load_document

    path = Path(rules)
    if not path.is_file():
        if rules in PROFILES:
            return rules
        raise InputError(
            f"--rules is '{printable(rules)[:80]}', which is neither a file nor a profile; "
            f"profiles are {', '.join(PROFILES)}"
        )
    document, problems = load_document(path)
    if problems:
        problem = problems[0]
        raise InputError(
            f"{printable(rules)}: at {problem.path}: {problem.message}; {problem.hint}"
        )
    if not isinstance(document, dict):
        raise InputError(f"{printable(rules)}: is not an object; write lines such as max_edge: 4")
    return document


def import_object(target: str, example: str, noun: str) -> object:
    """Import what MODULE:NAME names, from the current folder or from installed packages."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise InputError(
            f"'{target}' is not MODULE:NAME; write {example} for {example.partition(':')[0]}.py"
        )
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
        return (
            f"there is no module '{error.name}' here or among the installed ones; start it where "
            f"{module}.py is"
        )
    message = f"module '{module}' cannot be imported: {type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):  # it says itself where
        return f"{message}; fix it"
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{message} ({Path(last.filename).name}, line {last.lineno})"
    hint = f"install it into the environment of handrail: {sys.prefix}"
    return f"{message}; {hint if is_missing else 'fix it'}"


T = TypeVar("T")
ID_CHARS = 32
"""Characters of a run's or a token's id."""
APPROVAL_ID_PATTERN = re.compile(r"[0-9a-f]{32}\.q\d+")
RUNS_SEARCHED_MAX = 5_000
"""The newest runs that are searched for an id with this end."""
PAGE_ITEMS = 500
MATCHES_SHOWN_MAX = 3


async def find_run_id(client: "AsyncClient", partial_id: str) -> str:
    """Return the run's id. A full id is used without a search."""
    partial_id = decode_argument(partial_id)
    if len(partial_id) == ID_CHARS:
        return partial_id
    page = await client.runs.list(q=partial_id, limit=PAGE_ITEMS)
    newest = await take(client.each(client.runs.list, limit=PAGE_ITEMS), RUNS_SEARCHED_MAX)
    run_ids = {run.id for run in (*page.items, *newest)}
    return require_one_match(partial_id, sorted(run_ids), "run", "`handrail runs` lists them")


async def take(items: AsyncIterator[T], count: int) -> list[T]:
    """Return the first items; the pages after them are not requested."""
    taken: list[T] = []
    async for item in items:
        taken.append(item)
        if len(taken) >= count:
            break
    return taken


async def find_approval_id(client: "AsyncClient", partial_id: str) -> str:
    """Return the open approval's id, from its own id or from that of its run. A full id is used
    without a search: the API explains one that is not open.
    """
    partial_id = decode_argument(partial_id)
    if APPROVAL_ID_PATTERN.fullmatch(partial_id):
        return partial_id
    each_open = client.each(client.approvals.list, status="open", limit=PAGE_ITEMS)
    return require_one_match(
        partial_id,
        [approval.id async for approval in each_open],
        "open question",
        "`handrail answer` lists them",
    )


def require_one_match(partial_id: str, full_ids: Iterable[str], noun: str, hint: str) -> str:
    """Return the one id that the partial id can mean."""
    partial_id = decode_argument(partial_id)
    matches = [full_id for full_id in full_ids if partial_id and _matches(full_id, partial_id)]
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise InputError(f"there is no {noun} '{printable(partial_id)[:80]}'; {hint}")
    shown_ids = ", ".join(matches[:MATCHES_SHOWN_MAX]) + (
        ", …" if len(matches) > MATCHES_SHOWN_MAX else ""
    )
    raise InputError(
        f"'{printable(partial_id)}' matches {len(matches)} {noun}s: {shown_ids}; type more of the "
        "id"
    )


def _matches(full_id: str, partial_id: str) -> bool:
    """Return whether the id begins or ends so, or, of an approval, whether its run's id ends so."""
    return (
        full_id.startswith(partial_id)
        or full_id.endswith(partial_id)
        or full_id.partition(".")[0].endswith(partial_id)
    )

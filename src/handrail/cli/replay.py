"""`handrail replay`: which runs other stop rules would have ended where, and what that saves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from handrail.cli import ids, tables
from handrail.cli.asking import Where, ask
from handrail.cli.database import InputError
from handrail.cli.words import clean, count, duration, typed
from handrail.client.clients import AsyncClient
from handrail.engine.documents import load
from handrail.engine.replaying import RUNS_MAX, Replays
from handrail.kernel.limits import PROFILES
from handrail.kernel.replayed import Replayed, Saved, Verdict

STYLES = {Verdict.SOONER: "yellow", Verdict.BEYOND: "cyan", Verdict.UNLIKE: "red"}
CUT = "red"


class Wanted(NamedTuple):
    """These runs, or the newest ended ones of a definition, under these rules."""

    runs: Sequence[str]
    workflow: str
    rules: str


def replay_runs(where: Where, wanted: Wanted) -> int:
    async def do(client: AsyncClient) -> None:
        rules = rules_of(wanted.rules)
        found = await client.replay(await _runs(client, wanted), rules)
        if where.as_json:
            tables.print_json(found)
        else:
            _print(found)

    return ask(where, do)


def rules_of(given: str) -> dict[str, Any] | str:
    """What is in the file; else the name of a profile."""
    path = Path(given)
    if not path.is_file():
        if given in PROFILES:
            return given
        told = f"--rules is '{clean(given)[:80]}', which is no file and no profile"
        raise InputError(f"{told}; profiles are {' and '.join(PROFILES)}")
    document, problems = load(path)
    if not problems and not isinstance(document, dict):
        raise InputError(f"{clean(given)}: no object; write lines such as max_edge: 4")
    if problems:
        wrong = problems[0]
        raise InputError(f"{clean(given)}: at {wrong.path}: {wrong.message}; {wrong.hint}")
    return cast("dict[str, Any]", document)


async def _runs(client: AsyncClient, wanted: Wanted) -> list[str]:
    if bool(wanted.runs) == bool(wanted.workflow):
        raise InputError("name runs, or with --workflow the definition whose ended runs are meant")
    if wanted.runs:
        return [await ids.run_id(client, run) for run in wanted.runs]
    known = await client.workflow(typed(wanted.workflow))
    page = await client.executions(status="ended", workflow_id=known.id, limit=RUNS_MAX)
    if not page.items:
        raise InputError(f"no run of '{known.id}' has ended; there is nothing to replay")
    return [run.id for run in page.items]


def _print(found: Replays) -> None:
    tables.print_table(("run", "under these rules it", "saved"), [_row(one) for one in found.items])
    summary = found.summary
    verdicts = ", ".join(f"{n} {name}" for name, n in summary.verdicts.items())
    cut = f"{summary.cut} of {count(summary.good, 'good run')} cut"
    saved = _saved(summary.saved) or "nothing"
    tables.print_line(f"{count(summary.runs, 'run')}: {verdicts}; {cut}; saved: {saved}")


def _row(one: Replayed) -> list[tables.Cell]:
    style = CUT if one.cut else STYLES.get(one.verdict, "")
    return [tables.short(one.execution_id), (one.told, style), _saved(one.saved)]


def _saved(saved: Saved) -> str:
    parts = [
        count(saved.steps, "step") if saved.steps else "",
        count(saved.tokens, "token") if saved.tokens else "",
        f"cost {saved.cost:g}" if saved.cost else "",
        duration(saved.seconds) if saved.seconds else "",
    ]
    return ", ".join(part for part in parts if part)

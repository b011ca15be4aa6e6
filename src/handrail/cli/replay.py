"""`handrail replay`: which runs other stop rules would have ended where, and what that saves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from handrail.cli import ids, output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.database import InputError
from handrail.cli.formatting import decode_argument, format_count, format_duration, printable
from handrail.client.clients import AsyncClient
from handrail.engine.document_parser import load_document
from handrail.kernel.definition.limits import PROFILES
from handrail.replay.replay_report import (
    REPLAYED_RUNS_MAX,
    ReplayReport,
    ReplayResults,
    Savings,
    Verdict,
)

VERDICT_STYLES = {Verdict.SOONER: "yellow", Verdict.BEYOND: "cyan", Verdict.UNLIKE: "red"}
CUT_STYLE = "red"


class ReplayOptions(NamedTuple):
    """These runs, or the newest ended ones of a definition, under these rules."""

    runs: Sequence[str]
    workflow: str
    rules: str


def replay_runs(target: ApiTarget, options: ReplayOptions) -> int:
    async def do(client: AsyncClient) -> None:
        rules = read_rules(options.rules)
        replays = await client.replay_runs(await _find_run_ids(client, options), rules)
        if target.as_json:
            output.print_json(replays)
        else:
            _print_replays(replays)

    return call_api(target, do)


def read_rules(rules: str) -> dict[str, Any] | str:
    """Return the file's content; else the name of a profile."""
    path = Path(rules)
    if not path.is_file():
        if rules in PROFILES:
            return rules
        message = f"--rules is '{printable(rules)[:80]}', which is no file and no profile"
        raise InputError(f"{message}; profiles are {' and '.join(PROFILES)}")
    document, problems = load_document(path)
    if not problems and not isinstance(document, dict):
        raise InputError(f"{printable(rules)}: no object; write lines such as max_edge: 4")
    if problems:
        problem = problems[0]
        raise InputError(
            f"{printable(rules)}: at {problem.path}: {problem.message}; {problem.hint}"
        )
    return cast("dict[str, Any]", document)


async def _find_run_ids(client: AsyncClient, options: ReplayOptions) -> list[str]:
    if bool(options.runs) == bool(options.workflow):
        raise InputError("name runs, or with --workflow the definition whose ended runs are meant")
    if options.runs:
        return [await ids.find_run_id(client, run) for run in options.runs]
    definition = await client.get_definition(decode_argument(options.workflow))
    page = await client.list_runs(
        status="ended", workflow_id=definition.id, limit=REPLAYED_RUNS_MAX
    )
    if not page.items:
        raise InputError(f"no run of '{definition.id}' has ended; there is nothing to replay")
    return [run.id for run in page.items]


def _print_replays(replays: ReplayResults) -> None:
    output.print_table(
        ("run", "under these rules it", "saved"), [_replay_row(replay) for replay in replays.items]
    )
    summary = replays.summary
    verdicts = ", ".join(f"{n} {name}" for name, n in summary.verdicts.items())
    cut = f"{summary.cut} of {format_count(summary.good, 'good run')} cut"
    savings = _format_savings(summary.saved) or "nothing"
    output.print_line(f"{format_count(summary.runs, 'run')}: {verdicts}; {cut}; saved: {savings}")


def _replay_row(replay: ReplayReport) -> list[output.Cell]:
    style = CUT_STYLE if replay.cut else VERDICT_STYLES.get(replay.verdict, "")
    return [
        output.short_id(replay.execution_id),
        (replay.told, style),
        _format_savings(replay.saved),
    ]


def _format_savings(savings: Savings) -> str:
    parts = [
        format_count(savings.steps, "step") if savings.steps else "",
        format_count(savings.tokens, "token") if savings.tokens else "",
        f"cost {savings.cost:g}" if savings.cost else "",
        format_duration(savings.seconds) if savings.seconds else "",
    ]
    return ", ".join(part for part in parts if part)

"""Recorded runs under other stop rules: `handrail replay` shows what these would have ended where,
also of runs that other programs recorded; `handrail tune` proposes limits, with lines to copy.
"""

import gzip
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from handrail.cli import output
from handrail.cli.arguments import (
    PAGE_ITEMS,
    AsJson,
    Database,
    Server,
    decode_argument,
    find_run_id,
    read_rules,
)
from handrail.cli.command import InputError
from handrail.cli.connection import open_client
from handrail.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from handrail.client.clients import AsyncClient
    from handrail.kernel.definition.limits import Limits, ProfileName
    from handrail.replay.replay_report import ReplayReport, ReplayResults, Savings
    from handrail.replay.trace_judgement import TraceJudgements
    from handrail.replay.trace_tuning import TraceTuningReport
    from handrail.replay.traces.model import TraceView
    from handrail.replay.traces.reader import TraceFormat
    from handrail.replay.tuning import LimitProposal, TuningReport

VERDICT_STYLES = {"sooner": "yellow", "beyond": "cyan", "unlike": "red"}


TraceFiles = Annotated[
    bool,
    Option("--traces", help="Take runs that other programs recorded: .jsonl, .jsonl.gz, .json."),
]
TraceProfile = Annotated[
    Literal["observed", "conversation", "strict", "yolo"],
    Option("--profile", help="With --traces: the profile that fills what --rules leave open."),
]
TraceViewOption = Annotated[
    Literal["A", "B"],
    Option("--view", help="With --traces: what messages alone show, or what the host knows."),
]
TraceRules = Annotated[
    str,
    Option(
        "--rules",
        metavar="FILE|PROFILE",
        help="With --traces: the rules in force, a file with fields of stop_rules or a profile.",
    ),
]
TraceFormatOption = Annotated[
    Literal["neutral", "openai", "autogen", "otlp"] | None,
    Option("--format", help="With --traces: their format; default: recognised."),
]


async def replay(
    runs: Annotated[
        list[str] | None,
        Argument(
            metavar="RUN…",
            help="Run ids, or unique beginnings or ends of them; with --traces, files.",
        ),
    ] = None,
    rules: Annotated[
        str,
        Option(
            metavar="FILE|PROFILE", help="A file with fields of stop_rules, or a profile's name."
        ),
    ] = "",
    traces: TraceFiles = False,
    profile: TraceProfile = "observed",
    view: TraceViewOption = "B",
    trace_format: TraceFormatOption = None,
    workflow: Annotated[
        str,
        Option(metavar="NAME", help="Instead of RUN: the newest ended runs of this definition."),
    ] = "",
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Show what other stop rules would have done to recorded runs.

    Prints where each would have stopped, by which rule, what that saves, and which good runs would
    have been cut. Rules that are not named stay as in the definition. No agent is run.
    """
    if traces:
        limits = _trace_limits(runs or [], rules, profile)
        judgements = _judge_traces(runs or [], limits, view, trace_format)
        if as_json:
            output.print_json(judgements)
        else:
            _print_judgements(judgements)
        return
    async with open_client(database, server) as client:
        overrides = read_rules(rules) if rules else {}
        if bool(runs) == bool(workflow):
            raise InputError("name runs, or a definition with --workflow")
        run_ids = (
            [await find_run_id(client, run) for run in runs]
            if runs
            else await _list_ended_run_ids(client, workflow)
        )
        replays = await client.runs.replay(run_ids, overrides)
    if as_json:
        output.print_json(replays)
    else:
        _print_replays(replays)


def _judge_traces(
    files: list[str],
    limits: "Limits",
    view: "TraceView",
    trace_format: "TraceFormat | None",
) -> "TraceJudgements":
    from handrail.replay.trace_judgement import judge_traces
    from handrail.replay.traces.model import TraceFormatError

    contents = ((file, read_trace_lines(file)) for file in files)
    try:
        return judge_traces(contents, limits, view=view, format_=trace_format)
    except TraceFormatError as error:
        raise InputError(str(error)) from None


def _tune_traces(
    files: list[str],
    limits: "Limits",
    view: "TraceView",
    trace_format: "TraceFormat | None",
) -> "TraceTuningReport":
    from handrail.replay.trace_tuning import tune_traces
    from handrail.replay.traces.model import TraceFormatError
    from handrail.replay.traces.reader import read_traces

    traces = (
        trace
        for file in files
        for trace in read_traces(read_trace_lines(file), file, format_=trace_format, view=view)
    )
    try:
        return tune_traces(traces, limits, view)
    except TraceFormatError as error:
        raise InputError(str(error)) from None


def _trace_limits(files: list[str], rules: str, profile: "ProfileName") -> "Limits":
    """Return the limits for recorded runs; raise InputError if there are no files."""
    from handrail.kernel.definition.limits import StopRules, resolve_limits
    from handrail.replay.rule_overrides import read_overrides

    if not files:
        raise InputError("name the files of recorded runs after --traces")
    overrides, problems = read_overrides(read_rules(rules) if rules else {})
    if overrides is None:
        raise InputError(f"{problems[0].path}: {problems[0].message}; {problems[0].hint}")
    return resolve_limits(StopRules(**overrides), profile=profile)


def read_trace_lines(file: str) -> Iterator[bytes]:
    """Yield the lines of a file, unpacked if its name ends with .gz."""
    from handrail.replay.traces.reader import DOCUMENT_BYTES_MAX

    try:
        with gzip.open(file) if file.endswith(".gz") else Path(file).open("rb") as lines:
            while line := lines.readline(DOCUMENT_BYTES_MAX + 1):
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot read '{output.printable(file)}': {error}") from None


def _print_judgements(judgements: "TraceJudgements") -> None:
    rows = [
        [
            item.id,
            {True: "good", False: "failed", None: ""}[item.success],
            (
                f"stopped at {item.step} of {item.steps}: {item.rule}",
                "red" if item.success else "",
            )
            if item.stopped
            else f"ended by itself after {item.steps}",
        ]
        for item in judgements.items
    ]
    output.print_table(output.TextTable(("run", "was", "under these rules it"), rows))
    for group in judgements.groups:
        saved = 100 * group.steps_saved / group.steps_failed if group.steps_failed else 0
        output.print_line(
            f"{group.dataset}: {group.cut} of {output.format_count(group.good, 'good run')} cut, "
            f"{group.caught} of {output.format_count(group.failed, 'failed run')} stopped, which "
            f"saves {saved:.1f}% of their steps"
        )


async def _list_ended_run_ids(client: "AsyncClient", workflow: str) -> list[str]:
    from handrail.replay.replay_report import REPLAYED_RUNS_MAX

    definition = await client.definitions.get(decode_argument(workflow))
    page = await client.runs.list(
        status="ended", workflow_id=definition.id, limit=REPLAYED_RUNS_MAX
    )
    if not page.items:
        raise InputError(f"no run of '{definition.id}' has ended; there is nothing to replay")
    return [run.id for run in page.items]


def _print_replays(replays: "ReplayResults") -> None:
    output.print_table(
        output.TextTable(("run", "under these rules it", "saved"), map(_replay_row, replays.items))
    )
    summary = replays.summary
    verdicts = ", ".join(f"{n} {name}" for name, n in summary.verdicts.items())
    cut = f"{summary.cut} of {output.format_count(summary.good, 'good run')} cut"
    savings = _format_savings(summary.saved) or "nothing"
    output.print_line(
        f"{output.format_count(summary.runs, 'run')}: {verdicts}; {cut}; saved: {savings}"
    )


def _replay_row(replay: "ReplayReport") -> list[output.Cell]:
    return [
        output.short_id(replay.execution_id),
        (replay.told, "red" if replay.cut else VERDICT_STYLES.get(replay.verdict, "")),
        _format_savings(replay.saved),
    ]


def _format_savings(savings: "Savings") -> str:
    parts = [
        output.format_count(savings.steps, "step") if savings.steps else "",
        output.format_count(savings.tokens, "token") if savings.tokens else "",
        f"cost {savings.cost:g}" if savings.cost else "",
        output.format_duration(savings.seconds) if savings.seconds else "",
    ]
    return ", ".join(part for part in parts if part)


async def tune(
    definition: Annotated[
        list[str] | None,
        Argument(
            metavar="DEFINITION",
            help="A definition, by id or name; default: all of them. With --traces, files.",
        ),
    ] = None,
    share: Annotated[
        float, Option(min=0, max=1, help="The share of good runs that a limit may cut.")
    ] = 0.0,
    runs: Annotated[
        int, Option(min=1, max=500, help="How many ended runs to use, the newest first.")
    ] = 100,
    traces: TraceFiles = False,
    rules: TraceRules = "",
    profile: TraceProfile = "observed",
    view: TraceViewOption = "B",
    trace_format: TraceFormatOption = None,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Propose limits from the runs that have ended.

    Each comes with the good runs that it would have cut and the steps that it would have saved.
    Nothing is changed: copy what you want into the definition's stop_rules.
    """
    names = definition or []
    if traces:
        report = _tune_traces(names, _trace_limits(names, rules, profile), view, trace_format)
        if as_json:
            output.print_json(report)
        else:
            _print_trace_tuning(report)
        return
    if len(names) > 1:
        raise InputError("name one definition, or none for all of them")
    async with open_client(database, server) as client:
        definition_ids = [decode_argument(name) for name in names]
        if not names:
            each_definition = client.each(client.definitions.list, limit=PAGE_ITEMS)
            definition_ids = [stored.id async for stored in each_definition]
        tunings = [
            await client.definitions.tune(definition_id, share=share, runs=runs)
            for definition_id in definition_ids
        ]
    if as_json:
        output.print_json(tunings[0] if names else {"items": tunings})
        return
    for tuning in tunings:
        _print_tuning(tuning)
    if not tunings:
        output.print_line("nothing is defined yet; `handrail bead create` files a first bead")


def _print_trace_tuning(report: "TraceTuningReport") -> None:
    output.print_line(report.summary)
    rows = [
        [
            proposal.limit,
            _format_limit(proposal.now),
            _format_limit(proposal.proposed),
            f"{proposal.figures.cut} of {report.good}",
            f"{proposal.figures.steps_saved} of {report.steps_failed}",
        ]
        for proposal in report.proposals
    ]
    if rows:
        columns = ("limit", "now", "tried", "good runs cut", "steps of failed runs saved")
        output.print_table(output.TextTable(columns, rows))
    _print_rules(report.rules)


def _print_tuning(tuning: "TuningReport") -> None:
    output.print_line(f"{tuning.workflow_id}, version {tuning.workflow_version}: {tuning.told}")
    if not tuning.proposals:
        return
    output.print_table(
        output.TextTable(
            ("limit", "now", "proposed", "good runs cut", "wasted steps", "because"),
            [_proposal_row(proposal, tuning) for proposal in tuning.proposals],
            no_wrap_columns=5,
        )
    )
    _print_rules(tuning.rules)


def _print_rules(rules: Mapping[str, int | float | None]) -> None:
    """Print the limits that change as lines to copy; nothing if there are none."""
    if rules:
        output.print_line("stop_rules:")
        for limit, value in rules.items():
            output.print_line(f"  {limit}: {_format_limit(value)}")


def _proposal_row(proposal: "LimitProposal", tuning: "TuningReport") -> list[output.Cell]:
    return [
        proposal.limit,
        _format_limit(proposal.now),
        (_format_limit(proposal.proposed), "green" if proposal.limit in tuning.rules else ""),
        f"{proposal.cut} of {tuning.good}, at most {proposal.cut_at_most:.1%}",
        f"{proposal.wasted_now} -> {proposal.wasted}"
        if proposal.wasted != proposal.wasted_now
        else f"{proposal.wasted}",
        proposal.why,
    ]


def _format_limit(value: float | None) -> str:
    return "off" if value is None else f"{value:.10g}"

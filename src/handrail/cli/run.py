"""`handrail run`: run one bead to its end in this process, with a person to ask."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO, cast

import msgspec

from handrail.agents.model import BadModelError
from handrail.cli import formatting
from handrail.cli.database import InputError, load_settings, print_error
from handrail.cli.definitions import DefinitionSource, find_definition, read_context
from handrail.cli.live_view import EventFormatter, LiveView, PlainView, RichView
from handrail.engine.core import RefusedError
from handrail.engine.engine import Engine
from handrail.engine.interactive_run import ApprovalPrompt, InteractiveRun, PromptReply
from handrail.engine.opening import open as open_engine
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.certificate import Bound
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.run.state import ApprovalKind, PendingApproval
from handrail.server.configuration import Configuration
from handrail.store.engine_store import StoreError
from handrail.teams import load_agents
from handrail.teams.scripted import generic_agents
from handrail.views.report import RunReport, build_report, report_markdown

IN_MEMORY_URL = "sqlite://"
EXIT_UNFINISHED, EXIT_WRONG_INPUT = 1, 2
DECISION_COMMANDS = {"/approve": "approve", "/reject": "reject", "/revise": "revise"}
ReviewChoice = Literal["", "required", "skip"]
REVIEW_CHOICES: tuple[ReviewChoice, ...] = ("", "required", "skip")


class RunOptions(NamedTuple):
    """The command's options as given."""

    definition: str
    title: str = ""
    description: str = ""
    context: str = ""
    review: str = ""
    answers: str = ""
    report: str = ""
    database: str = ""


class StartArguments(NamedTuple):
    """The bead to file."""

    title: str
    description: str
    context: dict[str, Any]
    review: Literal["required", "skip"] | None


def run_bead(options: RunOptions, *, as_json: bool) -> int:
    """Run and print; return the exit code."""
    try:
        source = find_definition(options.definition)
        plan = _check_plan(source)
        start = _start_arguments(options, plan)
        answers = _read_answers(options.answers)
        view = _open_view(
            EventFormatter(_bound(plan, start), plan.kind), sys.stderr if as_json else sys.stdout
        )
        person = TerminalPerson(
            view, answers, is_present=options.answers != "-" and sys.stdin.isatty()
        )
        return asyncio.run(_run(options, source, plan, start, person, as_json=as_json))
    except (InputError, StoreError, RefusedError, BadModelError) as error:
        print_error("run", error)
        return EXIT_WRONG_INPUT


async def _run(
    options: RunOptions,
    source: DefinitionSource,
    plan: Plan,
    start: StartArguments,
    person: "TerminalPerson",
    *,
    as_json: bool,
) -> int:
    view, bound = person.view, _bound(plan, start)
    view.write(
        f"{formatting.printable(plan.definition.name)}: {formatting.first_line(start.title)}"
    )
    view.write(f"  {formatting.format_certificate(bound, plan.kind)}")
    try:
        configuration = load_settings()
        engine_settings = EngineSettings(
            runs_folder=configuration["runs_folder"], issues_file=configuration["issues_file"]
        )
        async with open_engine(
            options.database or IN_MEMORY_URL, settings=engine_settings
        ) as engine:
            await _require_idle_database(engine, options.database)
            definition = await engine.define(cast("dict[str, Any]", source.document))
            _add_agents(engine, source, plan, configuration)
            handle = await engine.start(definition.id, **start._asdict())
            interactive_run = InteractiveRun(handle, answer=person.answer, on_event=view.show_event)
            await interactive_run.run_to_end()
            if as_json:
                print(await _run_document(engine, interactive_run))
    finally:
        view.close()
    return _print_end(interactive_run, person, bound, options.report)


async def _require_idle_database(engine: Engine, database: str) -> None:
    """Refuse a database that is at work: the agents here rehearse, and must not get real work."""
    running = await engine.executions(status="running", limit=1)
    if running.items or await engine.maintenance.has_live_peers(engine.clock()):
        message = f"{database} is at work, and the agents of `handrail run` only rehearse"
        raise InputError(f"{message}; name a database of its own, or file a bead at the server")


def _add_agents(
    engine: Engine, source: DefinitionSource, plan: Plan, configuration: Configuration
) -> None:
    """Add the agents. The caller's permission covers the coding team, in the current folder."""
    agents, trusted = generic_agents(plan), frozenset[str]()
    if source.builtin:
        folders = (str(Path.cwd()), *configuration["workspaces"])
        agents, trusted = load_agents(
            source.builtin, engine, model=configuration["model"], workspaces=folders
        )
    for role, agent in agents.items():
        engine.add_agent(agent, role, name=role, trusted=role in trusted)


def _bound(plan: Plan, start: StartArguments) -> Bound:
    return plan.bound(start.context.get("task_scope"))


def _check_plan(source: DefinitionSource) -> Plan:
    problems = source.problems
    if not problems:
        plan, checked = check_definition(source.document)
        if plan is not None:
            for line in source.format_problems(checked.warnings, "warning"):
                print_error("run", line.replace("\n   ", ";"))
            return plan
        problems = list(checked.errors)
    message = source.format_problems(problems[:1], "error")[0].replace("\n   ", ";")
    more = f" (and {len(problems) - 1} more: handrail check {source.label})" if problems[1:] else ""
    raise InputError(f"{message}{more}")


def _start_arguments(options: RunOptions, plan: Plan) -> StartArguments:
    review: ReviewChoice | None = next(
        (choice for choice in REVIEW_CHOICES if choice == options.review), None
    )
    if review is None:
        raise InputError(f"--review is '{options.review}'; say required or skip")
    sample = plan.definition.metadata.get("sample")
    sample_fields = cast("dict[str, Any]", sample) if isinstance(sample, dict) else {}
    title_default = str(sample_fields.get("title") or "a bead to try it with")
    return StartArguments(
        title=formatting.decode_argument(options.title) or title_default,
        description=formatting.decode_argument(options.description),
        context=read_context(options.context),
        review=review or None,
    )


def _read_answers(path: str) -> list[str] | None:
    if not path:
        return None
    if path == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace").splitlines()
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"--answers {path}: {reason}; name a file with one answer a line"
        ) from None


def _open_view(formatter: EventFormatter, out: TextIO) -> LiveView:
    return RichView(formatter, out) if out.isatty() else PlainView(formatter, out)


class TerminalPerson:
    """Answers approvals: the lines of a file first, then the terminal if there is one."""

    def __init__(self, view: LiveView, answers: list[str] | None, *, is_present: bool) -> None:
        self.view, self.answers, self.is_present = view, list(answers or ()), is_present
        self.answer_count = None if answers is None else len(answers)

    def answer(self, request: ApprovalPrompt) -> PromptReply | None:
        if not request.refusal:
            for line in approval_lines(request):
                self.view.write(line)
        else:
            self.view.write(f"  {formatting.printable(request.refusal)}")
        if self.answers:
            line = self.answers.pop(0)
            self.view.write(f"  > {formatting.printable(line)}")
            return read_reply(line)
        if not self.is_present:
            return None
        try:
            return read_reply(formatting.decode_argument(self.view.read("  > ")))
        except EOFError:
            return None

    def explain_open_approval(self, approval_id: str) -> str:
        """Explain why an approval stays open, and what to do."""
        if self.answer_count is None:
            message = f"'{approval_id}' is open and nobody is here to answer it"
            return f"{message}; start it in a terminal, or give --answers FILE"
        message = f"the answers given by --answers are used up ({self.answer_count})"
        return f"{message}, and '{approval_id}' is open; give one more line"


def approval_lines(request: ApprovalPrompt) -> list[str]:
    """Return the result above, the question below it, and how to answer."""
    approval = request.approval
    result = [f"  | {line}" for line in formatting.printable(request.result).splitlines()]
    head = f"{approval.kind.value} at {formatting.printable(approval.step_id)}:"
    return [
        "",
        *result,
        f"  {head} {formatting.printable(approval.text)}",
        f"  {answer_hint(approval)}",
    ]


def answer_hint(approval: PendingApproval) -> str:
    if approval.own:
        options = (
            f" ({', '.join(map(formatting.printable, approval.options))})"
            if approval.options
            else ""
        )
        return f"answer{options}, or /reject to close the run"
    if approval.kind is ApprovalKind.ESCALATION:
        step_id = formatting.printable(approval.step_id)
        skip_hint = f"OK goes on without it, as if '{step_id}' had succeeded"
        return (
            f"{skip_hint}; any other text has it tried again with that; or /reject to close the run"
        )
    return "OK approves, any other text says what to change; or /approve, /reject, /revise TEXT"


def read_reply(line: str) -> PromptReply:
    """Parse a text as it is, or an explicit decision: /approve, /reject [why], /revise TEXT."""
    first, _, rest = line.strip().partition(" ")
    decision = DECISION_COMMANDS.get(first.lower())
    if decision is None:
        return PromptReply(text=line)
    return PromptReply(
        text=rest.strip(), decision=cast("Literal['approve', 'reject', 'revise']", decision)
    )


def _print_end(
    interactive_run: InteractiveRun, person: "TerminalPerson", bound: Bound, path: str
) -> int:
    """Print the report in short, write all of it to a file if wanted; return 0 only for
    done_success.
    """
    view, run, run_report = person.view, interactive_run.run, build_report(interactive_run.events)
    status = run.terminal_status
    good = status in (TerminalStatus.DONE_SUCCESS, TerminalStatus.DONE_PARTIAL)
    view.write("")
    view.write(formatting.printable(run_report.why), "good" if good else "bad")
    for line in summary_lines(run_report, bound):
        view.write(f"  {formatting.printable(line)}")
    if path and not _write_report(run_report, path):
        return EXIT_WRONG_INPUT
    if not run.has_ended:
        approval = next(iter(run.pending_approvals.values()))
        print(f"handrail run: {person.explain_open_approval(approval.id)}", file=sys.stderr)
    return 0 if status is TerminalStatus.DONE_SUCCESS else EXIT_UNFINISHED


def summary_lines(run_report: RunReport, bound: Bound) -> Iterator[str]:
    """Yield what the end of a run should show, beyond why."""
    stop, totals = run_report.stop, run_report.totals
    if stop is not None:
        yield (
            f"{run_report.terminal_status} ({stop.rule}), the last one was {run_report.final_agent}"
        )
    moves = ("transitions", totals.transitions - 1, bound.transitions)
    if run_report.kind == "team":
        moves = ("handoffs", totals.handoffs, bound.handoffs)
    used = f"{totals.dispatches} of {bound.dispatches} dispatches, {moves[1]} of {moves[2]}"
    stretches = f" in {totals.stretches} stretches" if totals.stretches > 1 else ""
    yield f"{used} {moves[0]}{stretches}, {formatting.format_duration(run_report.duration)}"
    if stop is not None and stop.evidence:
        yield f"evidence: {', '.join(stop.evidence)}"
    if stop is not None and stop.remedy:
        yield f"what would have let it go on: {stop.remedy}"
    if run_report.warnings:
        yield formatting.format_count(len(run_report.warnings), "warning")


def _write_report(run_report: RunReport, path: str) -> bool:
    text = report_markdown(run_report)
    if path.lower().endswith(".json"):
        text = msgspec.json.format(msgspec.json.encode(run_report), indent=2).decode() + "\n"
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        print(f"handrail run: --report {path}: {reason}; name a file to write", file=sys.stderr)
        return False
    return True


async def _run_document(engine: Engine, interactive_run: InteractiveRun) -> str:
    """Return the run as the API returns it, with its open approvals."""
    document = msgspec.to_builtins(await engine.view(interactive_run.run.id), str_keys=True)
    document["questions"] = [
        msgspec.to_builtins(approval) for approval in interactive_run.run.pending_approvals.values()
    ]
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()

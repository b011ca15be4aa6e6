"""Run one bead in this process, for `handrail run`: its agents, the person to ask, its end."""

from pathlib import Path
from typing import Any, NamedTuple, TextIO, cast

import msgspec

from handrail.cli import output
from handrail.cli.arguments import ApprovalDecision, ReviewMode, decode_argument
from handrail.cli.command import EXIT_FAILED, InputError, file_as_input, print_error
from handrail.cli.connection import load_settings
from handrail.cli.definitions import DefinitionSource
from handrail.cli.run_view import EventFormatter, PlainView, RichView, summary_lines
from handrail.engine.engine import Engine
from handrail.engine.opening import open as open_engine
from handrail.engine.services.runs import ApprovalPrompt, InteractiveRun, PromptReply
from handrail.engine.settings import EngineSettings
from handrail.kernel.definition.certificate import Bound
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.definition.plan import Plan, check_definition
from handrail.kernel.run.state import ApprovalKind, PendingApproval
from handrail.server.settings import Configuration
from handrail.teams import load_agents
from handrail.teams.scripted import generic_agents
from handrail.views.report import build_report, report_markdown

IN_MEMORY_URL = "sqlite://"
DECISION_COMMANDS: dict[str, ApprovalDecision] = {
    "/approve": "approve",
    "/reject": "reject",
    "/revise": "revise",
}


class LocalBead(NamedTuple):
    """The bead to file."""

    title: str
    description: str
    context: dict[str, Any]
    review: ReviewMode | None

    @property
    def scope(self) -> Any:  # noqa: ANN401 - a part of the context
        return self.context.get("task_scope")


def check_plan(source: DefinitionSource) -> Plan:
    """Return the plan of a valid definition, and print its warnings."""
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


def sample_title(plan: Plan, context: dict[str, Any]) -> str:
    """Return the title that the definition proposes for a trial, or for the demo of the context."""
    sample = plan.definition.metadata.get("sample")
    fields = cast("dict[str, Any]", sample) if isinstance(sample, dict) else {}
    demos = fields.get("demos")
    of_demos = cast("dict[Any, Any]", demos) if isinstance(demos, dict) else {}
    title = of_demos.get(str(context.get("demo"))) or fields.get("title")
    return str(title or "a bead to try it with")


def open_view(plan: Plan, bead: LocalBead, out: TextIO) -> PlainView:
    formatter = EventFormatter(plan.bound(bead.scope), plan.kind)
    return RichView(formatter, out) if out.isatty() else PlainView(formatter, out)


async def run_bead(
    source: DefinitionSource,
    plan: Plan,
    bead: LocalBead,
    person: "TerminalPerson",
    *,
    database: str,
    as_json: bool,
) -> InteractiveRun:
    """Run the bead until it has ended, or waits for an answer that nobody gives."""
    view = person.view
    view.write(f"{output.printable(plan.definition.name)}: {output.first_line(bead.title)}")
    view.write(f"  {output.format_certificate(plan.bound(bead.scope), plan.kind)}")
    try:
        configuration = load_settings()
        async with open_engine(
            database or IN_MEMORY_URL,
            settings=EngineSettings(
                runs_folder=configuration["runs_folder"], issues_file=configuration["issues_file"]
            ),
        ) as engine:
            await _require_idle_database(engine, database)
            definition = await engine.define(cast("dict[str, Any]", source.document))
            _add_agents(engine, source, plan, configuration)
            interactive_run = InteractiveRun(
                await engine.start(definition.id, **bead._asdict()),
                answer=person.answer,
                on_event=lambda event, _: view.show_event(event),
            )
            await interactive_run.run_to_end()
            if as_json:
                output.print_json(await _run_document(engine, interactive_run))
    finally:
        view.close()
    return interactive_run


async def _require_idle_database(engine: Engine, database: str) -> None:
    """Refuse a database that is at work: the agents here rehearse, and must not get real work."""
    running = await engine.run_queries.list(status="running", limit=1)
    if running.items or await engine.has_live_peers():
        raise InputError(
            f"{database} is in use, and the agents of `handrail run` are scripted; name another "
            "database, or file a bead at the server"
        )


def _add_agents(
    engine: Engine, source: DefinitionSource, plan: Plan, configuration: Configuration
) -> None:
    """Add the agents. The caller's permission covers the coding team, in the current folder."""
    agents, trusted = generic_agents(plan), frozenset[str]()
    if source.builtin:
        agents, trusted = load_agents(
            source.builtin,
            engine,
            model=configuration["model"],
            workspaces=(str(Path.cwd()), *configuration["workspaces"]),
        )
    for role, agent in agents.items():
        engine.add_agent(agent, role, name=role, trusted=role in trusted)


class TerminalPerson:
    """Answers approvals: the lines of a file first, then the terminal if there is one."""

    def __init__(self, view: PlainView, answers: list[str] | None, *, is_present: bool) -> None:
        self.view, self.answers, self.is_present = view, list(answers or ()), is_present
        self.answer_count = None if answers is None else len(answers)

    def answer(self, request: ApprovalPrompt) -> PromptReply | None:
        if not request.refusal:
            for line in approval_lines(request):
                self.view.write(line)
        else:
            self.view.write(f"  {output.printable(request.refusal)}")
        if self.answers:
            line = self.answers.pop(0)
            self.view.write(f"  > {output.printable(line)}")
            return read_reply(line)
        if not self.is_present:
            return None
        try:
            return read_reply(decode_argument(self.view.read("  > ")))
        except EOFError:
            return None

    def explain_open_approval(self, approval_id: str) -> str:
        """Explain why an approval stays open, and what to do."""
        if self.answer_count is None:
            return (
                f"approval '{approval_id}' is open, and there is no terminal to ask in; "
                "run it in a terminal, or give --answers FILE"
            )
        return (
            f"all {self.answer_count} answers of --answers are used, and approval "
            f"'{approval_id}' is open; add a line"
        )


def approval_lines(request: ApprovalPrompt) -> list[str]:
    """Return the result above, the question below it, and how to answer."""
    approval = request.approval
    return [
        "",
        *[f"  | {line}" for line in output.printable(request.result).splitlines()],
        f"  {approval.kind.value} at {output.printable(approval.step_id)}: "
        f"{output.printable(approval.text)}",
        f"  {answer_hint(approval)}",
    ]


def answer_hint(approval: PendingApproval) -> str:
    if approval.own:
        options = (
            f" ({', '.join(map(output.printable, approval.options))})" if approval.options else ""
        )
        return f"answer{options}, or /reject to close the run"
    if approval.stop is not None:
        return "'go on' gives it the turn again, any other text too, with that; 'stop' ends the run"
    if approval.kind is ApprovalKind.ESCALATION:
        return (
            f"OK goes on without it, as if '{output.printable(approval.step_id)}' had succeeded; "
            "any other text has it tried again with that; or /reject to close the run"
        )
    return "OK approves, any other text says what to change; or /approve, /reject, /revise TEXT"


def read_reply(line: str) -> PromptReply:
    """Parse a text as it is, or an explicit decision: /approve, /reject [why], /revise TEXT."""
    first, _, rest = line.strip().partition(" ")
    decision = DECISION_COMMANDS.get(first.lower())
    if decision is None:
        return PromptReply(text=line)
    return PromptReply(text=rest.strip(), decision=decision)


def print_end(
    interactive_run: InteractiveRun, person: TerminalPerson, bound: Bound, path: str
) -> int:
    """Print the report in short, write all of it to a file if wanted; return 0 only for
    done_success.
    """
    view, run, run_report = person.view, interactive_run.run, build_report(interactive_run.events)
    status = run.terminal_status
    good = status in (TerminalStatus.DONE_SUCCESS, TerminalStatus.DONE_PARTIAL)
    view.write("")
    view.write(output.printable(run_report.why), "good" if good else "bad")
    for line in summary_lines(run_report, bound):
        view.write(f"  {output.printable(line)}")
    if path:
        text = report_markdown(run_report)
        if path.lower().endswith(".json"):
            text = msgspec.json.format(msgspec.json.encode(run_report), indent=2).decode() + "\n"
        with file_as_input(f"--report {path}", "name a file to write"):
            Path(path).write_text(text, encoding="utf-8")
    if not run.has_ended:
        approval = next(iter(run.pending_approvals.values()))
        print_error("run", person.explain_open_approval(approval.id))
    return 0 if status is TerminalStatus.DONE_SUCCESS else EXIT_FAILED


async def _run_document(engine: Engine, interactive_run: InteractiveRun) -> dict[str, Any]:
    """Return the run as the API returns it, with its open approvals."""
    document = msgspec.to_builtins(
        await engine.run_queries.view(interactive_run.run.id), str_keys=True
    )
    document["questions"] = [
        msgspec.to_builtins(approval) for approval in interactive_run.run.pending_approvals.values()
    ]
    return document

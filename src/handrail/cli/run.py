"""`handrail run`: one bead to its end in this process, watched, with a person to ask."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO, cast

import msgspec

from handrail.agents.model import BadModel
from handrail.cli import words
from handrail.cli.database import InputError, complain, settings
from handrail.cli.definitions import Found, context_of, find
from handrail.cli.view import Lines, PlainView, RichView, View
from handrail.engine.attend import Attended, Reply, Request
from handrail.engine.core import Refused
from handrail.engine.engine import Engine
from handrail.engine.opening import open as open_engine
from handrail.engine.settings import EngineSettings
from handrail.kernel.certificate import Bound
from handrail.kernel.definition import TerminalStatus
from handrail.kernel.plan import Plan, check
from handrail.kernel.report import Report, markdown, report
from handrail.kernel.run.state import Question, QuestionKind
from handrail.server.configuration import Configuration
from handrail.store.port import StoreError
from handrail.teams import staff_of
from handrail.teams.scripted import anybody

IN_MEMORY = "sqlite://"
UNFINISHED, WRONG_INPUT = 1, 2
DECISIONS = {"/approve": "approve", "/reject": "reject", "/revise": "revise"}
Review = Literal["", "required", "skip"]
REVIEWS: tuple[Review, ...] = ("", "required", "skip")


class Wanted(NamedTuple):
    """The command's options as given."""

    definition: str
    title: str = ""
    description: str = ""
    context: str = ""
    review: str = ""
    answers: str = ""
    report: str = ""
    database: str = ""


class Begin(NamedTuple):
    """What the bead is."""

    title: str
    description: str
    context: dict[str, Any]
    review: Literal["required", "skip"] | None


def run_one(wanted: Wanted, *, as_json: bool) -> int:
    """Runs and prints; the exit code."""
    try:
        found = find(wanted.definition)
        plan = _plan(found)
        start = _start(wanted, plan)
        given = _answers(wanted.answers)
        view = _view(Lines(_bound(plan, start), plan.kind), sys.stderr if as_json else sys.stdout)
        person = Person(view, given, present=wanted.answers != "-" and sys.stdin.isatty())
        return asyncio.run(_run(wanted, found, plan, start, person, as_json=as_json))
    except (InputError, StoreError, Refused, BadModel) as error:
        complain("run", error)
        return WRONG_INPUT


async def _run(
    wanted: Wanted, found: Found, plan: Plan, start: Begin, person: "Person", *, as_json: bool
) -> int:
    view, bound = person.view, _bound(plan, start)
    view.write(f"{words.clean(plan.definition.name)}: {words.first_line(start.title)}")
    view.write(f"  {words.certificate(bound, plan.kind)}")
    try:
        given = settings()
        files = EngineSettings(runs_folder=given["runs_folder"], issues_file=given["issues_file"])
        async with open_engine(wanted.database or IN_MEMORY, settings=files) as engine:
            await _alone(engine, wanted.database)
            defined = await engine.define(cast("dict[str, Any]", found.document))
            _employ(engine, found, plan, given)
            handle = await engine.start(defined.id, **start._asdict())
            attended = Attended(handle, answer=person.answer, listen=view.heard)
            await attended.to_its_end()
            if as_json:
                print(await _as_json(engine, attended))
    finally:
        view.close()
    return _finish(attended, person, bound, wanted.report)


async def _alone(engine: Engine, database: str) -> None:
    """The agents here rehearse: they must not be given anybody's real work."""
    going = await engine.executions(status="running", limit=1)
    if going.items or await engine.pulse.others_live(engine.clock()):
        told = f"{database} is at work, and the agents of `handrail run` only rehearse"
        raise InputError(f"{told}; name a database of its own, or file a bead at the server")


def _employ(engine: Engine, found: Found, plan: Plan, given: Configuration) -> None:
    """Whoever calls the command may work here: the coding team, in the current folder."""
    staff, trusted = anybody(plan), frozenset[str]()
    if found.builtin:
        folders = (str(Path.cwd()), *given["workspaces"])
        staff, trusted = staff_of(found.builtin, engine, model=given["model"], workspaces=folders)
    for role, agent in staff.items():
        engine.add_agent(agent, role, name=role, trusted=role in trusted)


def _bound(plan: Plan, start: Begin) -> Bound:
    return plan.bound(start.context.get("task_scope"))


def _plan(found: Found) -> Plan:
    problems = found.problems
    if not problems:
        plan, checked = check(found.document)
        if plan is not None:
            for line in found.told(checked.warnings, "warning"):
                complain("run", line.replace("\n   ", ";"))
            return plan
        problems = list(checked.errors)
    told = found.told(problems[:1], "error")[0].replace("\n   ", ";")
    more = f" (and {len(problems) - 1} more: handrail check {found.label})" if problems[1:] else ""
    raise InputError(f"{told}{more}")


def _start(wanted: Wanted, plan: Plan) -> Begin:
    review: Review | None = next((one for one in REVIEWS if one == wanted.review), None)
    if review is None:
        raise InputError(f"--review is '{wanted.review}'; say required or skip")
    sample = plan.definition.metadata.get("sample")
    held = cast("dict[str, Any]", sample) if isinstance(sample, dict) else {}
    plain = str(held.get("title") or "a bead to try it with")
    return Begin(
        title=words.typed(wanted.title) or plain,
        description=words.typed(wanted.description),
        context=context_of(wanted.context),
        review=review or None,
    )


def _answers(path: str) -> list[str] | None:
    if not path:
        return None
    if path == "-":
        return sys.stdin.buffer.read().decode("utf-8", "replace").splitlines()
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"--answers {path}: {why}; name a file with one answer a line") from None


def _view(lines: Lines, out: TextIO) -> View:
    return RichView(lines, out) if out.isatty() else PlainView(lines, out)


class Person:
    """Whoever answers: the lines of a file first, then the terminal if there is one."""

    def __init__(self, view: View, given: list[str] | None, *, present: bool) -> None:
        self.view, self.given, self.present = view, list(given or ()), present
        self.lines = None if given is None else len(given)

    def answer(self, request: Request) -> Reply | None:
        if not request.refusal:
            for line in shown(request):
                self.view.write(line)
        else:
            self.view.write(f"  {words.clean(request.refusal)}")
        if self.given:
            line = self.given.pop(0)
            self.view.write(f"  > {words.clean(line)}")
            return read_reply(line)
        if not self.present:
            return None
        try:
            return read_reply(words.typed(self.view.read("  > ")))
        except EOFError:
            return None

    def left(self, question: str) -> str:
        """Why a question stays open, and what to do."""
        if self.lines is None:
            told = f"'{question}' is open and nobody is here to answer it"
            return f"{told}; start it in a terminal, or give --answers FILE"
        told = f"the answers given by --answers are used up ({self.lines})"
        return f"{told}, and '{question}' is open; give one more line"


def shown(request: Request) -> list[str]:
    """The result above, the question below it, and how to answer."""
    question = request.question
    result = [f"  | {line}" for line in words.clean(request.result).splitlines()]
    head = f"{question.kind.value} at {words.clean(question.place)}:"
    return ["", *result, f"  {head} {words.clean(question.text)}", f"  {how(question)}"]


def how(question: Question) -> str:
    if question.own:
        options = f" ({', '.join(map(words.clean, question.options))})" if question.options else ""
        return f"answer{options}, or /reject to close the run"
    if question.kind is QuestionKind.ESCALATION:
        place = words.clean(question.place)
        skips = f"OK goes on without it, as if '{place}' had succeeded"
        return f"{skips}; any other text has it tried again with that; or /reject to close the run"
    return "OK approves, any other text says what to change; or /approve, /reject, /revise TEXT"


def read_reply(line: str) -> Reply:
    """A text as it is, or an explicit decision: /approve, /reject [why], /revise TEXT."""
    first, _, rest = line.strip().partition(" ")
    decision = DECISIONS.get(first.lower())
    if decision is None:
        return Reply(text=line)
    return Reply(
        text=rest.strip(), decision=cast("Literal['approve', 'reject', 'revise']", decision)
    )


def _finish(attended: Attended, person: "Person", bound: Bound, path: str) -> int:
    """The report in short, the whole of it in a file if wanted; 0 only for done_success."""
    view, run, done = person.view, attended.run, report(attended.events)
    status = run.terminal_status
    good = status in (TerminalStatus.DONE_SUCCESS, TerminalStatus.DONE_PARTIAL)
    view.write("")
    view.write(words.clean(done.why), "good" if good else "bad")
    for line in in_short(done, bound):
        view.write(f"  {words.clean(line)}")
    if path and not _written(done, path):
        return WRONG_INPUT
    if not run.ended:
        question = next(iter(run.questions.values()))
        print(f"handrail run: {person.left(question.id)}", file=sys.stderr)
    return 0 if status is TerminalStatus.DONE_SUCCESS else UNFINISHED


def in_short(done: Report, bound: Bound) -> Iterator[str]:
    """What the last line of a run should tell, beyond why."""
    stop, totals = done.stop, done.totals
    if stop is not None:
        yield f"{done.terminal_status} ({stop.rule}), the last one was {done.final_agent}"
    moves = ("transitions", totals.transitions - 1, bound.transitions)
    if done.kind == "team":
        moves = ("handoffs", totals.handoffs, bound.handoffs)
    used = f"{totals.dispatches} of {bound.dispatches} dispatches, {moves[1]} of {moves[2]}"
    stretches = f" in {totals.stretches} stretches" if totals.stretches > 1 else ""
    yield f"{used} {moves[0]}{stretches}, {words.duration(done.duration)}"
    if stop is not None and stop.evidence:
        yield f"evidence: {', '.join(stop.evidence)}"
    if stop is not None and stop.remedy:
        yield f"what would have let it go on: {stop.remedy}"
    if done.warnings:
        yield words.count(len(done.warnings), "warning")


def _written(done: Report, path: str) -> bool:
    text = markdown(done)
    if path.lower().endswith(".json"):
        text = msgspec.json.format(msgspec.json.encode(done), indent=2).decode() + "\n"
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        print(f"handrail run: --report {path}: {why}; name a file to write", file=sys.stderr)
        return False
    return True


async def _as_json(engine: Engine, attended: Attended) -> str:
    """The run as the API gives it, with its open questions."""
    document = msgspec.to_builtins(await engine.view(attended.run.id), str_keys=True)
    document["questions"] = [msgspec.to_builtins(q) for q in attended.run.questions.values()]
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()

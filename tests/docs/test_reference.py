"""The reference is complete: whatever the code can say or be told stands in the documentation.

The names are collected from the code itself: a new command, option, call, setting, status, stop
rule, code, figure, variable or log event fails here until somebody has explained it.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, get_args

import pytest
from tests.docs import generated_parts as written
from tests.server.calls import ACCESS_TABLE

from handrail.api.operation import API_PREFIX
from handrail.cli.arguments import RunStatusFilter as ListedStatus
from handrail.engine.log_events import LOG_EVENTS
from handrail.engine.services import approvals, beads
from handrail.kernel.agent_lifecycle import AgentState
from handrail.kernel.channel.state import TurnConfig
from handrail.kernel.definition.limits import StopRules
from handrail.kernel.definition.model import TerminalStatus
from handrail.kernel.run.state import ApprovalKind, RunStatus
from handrail.kernel.stop.rules import StopRule
from handrail.server.problems import STATUS_BY_REFUSAL_CODE
from handrail.server.prometheus import METRICS
from handrail.server.settings import SETTINGS as SETTINGS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src/handrail"
AGAIN = "run `uv run python -m tests.docs.generated_parts`"
MAKERS = {
    "refuse_unknown": 0,
    "require_known": 1,
    "HTTPProblemError": 1,
    "FieldError": 0,
    "refuse": 0,
    "warn": 0,
    "handle_fault": 2,
}
"""What makes a code, and which of its arguments is the code. Whatever else has one names it:
`code=…`."""
RETURNED = ("find_fault", "_find_handoff_fault", "_find_task_fault", "_explain_loss")
"""Functions that return a code first."""
OF_DEFINITIONS = tuple(
    f"kernel/definition/{name}.py"
    for name in ("reader", "plan", "feasibility", "workflow_checks", "team_checks")
)
"""Their codes are asked for by tests/docs/test_definitions_page.py."""
NOT_TOLD = ("testing/", *OF_DEFINITIONS, "engine/document_parser.py", "cli/definitions.py")
VARIABLE = re.compile(r"\bHANDRAIL_[A-Z_]*[A-Z]\b")


@cache
def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def rows(name: str) -> dict[str, list[str]]:
    """The cells after the first of a table's row, by every code in that; the first row counts."""
    found: dict[str, list[str]] = {}
    for line in page(name).splitlines():
        first, *rest = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `"):
            for code in re.findall(r"`([^`]+)`", first):
                found.setdefault(code, rest)
    return found


class Coded(NamedTuple):
    code: str
    status: int | None
    file: str


def texts(expression: ast.expr) -> Iterator[str]:
    match expression:
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.IfExp(body=yes, orelse=no):
            yield from (*texts(yes), *texts(no))
        case ast.Tuple(elts=[first, *_]):
            yield from texts(first)
        case _:
            return


def literal_status(argument: ast.expr) -> int | None:
    match argument:
        case ast.Constant(value=int() as status):
            return status
        case _:
            return None


def codes_in(source: str) -> Iterator[tuple[str, int | None]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=func, args=args, keywords=keywords):
                name = ast.unparse(func).rpartition(".")[2]
                at = MAKERS.get(name, len(args))
                status = literal_status(args[0]) if name == "HTTPProblemError" else None
                for given in (*args[at : at + 1], *(k.value for k in keywords if k.arg == "code")):
                    yield from ((code, status) for code in texts(given))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in RETURNED:
                inner = (one for one in ast.walk(node) if isinstance(one, ast.Return))
                for one in inner:
                    if one.value is not None:
                        yield from ((code, None) for code in texts(one.value))
            case _:
                pass


@cache
def codes() -> list[Coded]:
    found: list[Coded] = []
    for file in sorted(SOURCE.rglob("*.py")):
        name = file.relative_to(SOURCE).as_posix()
        if not name.startswith(NOT_TOLD):
            found += [Coded(*one, name) for one in codes_in(file.read_text(encoding="utf-8"))]
    return found


def test_the_codes_are_found_in_the_code():
    raising = 'raise HTTPProblemError(409, "b" if x else "c", "told")'
    source = f'def f(x):\n    refuse("a", "told")\n    {raising}\n'
    assert set(codes_in(source)) == {("a", None), ("b", 409), ("c", 409)}
    assert {"no_token", "late", "bead_busy", "malformed", "terminate_refused", "stale_turn"} <= {
        one.code for one in codes()
    }


def test_every_code_is_documented():
    known = {*rows("errors"), *rows("definitions"), *re.findall(r"`(\w+)`", page("errors"))}
    missing = sorted({f"{one.code} ({one.file})" for one in codes() if one.code not in known})
    assert not missing, f"say in docs/errors.md what is wrong: {missing}"


def test_every_code_has_the_status_that_it_is_answered_with():
    listed = rows("errors")
    for one in codes():
        if one.status is not None:
            row = " ".join(listed[one.code])
            assert str(one.status) in row, f"{one.code} is {one.status} in {one.file}"
    for code, status in STATUS_BY_REFUSAL_CODE.items():
        assert listed[code][0] == str(status), f"{code} is {status}"


def test_every_code_of_the_page_is_used():
    used = {one.code for one in codes()} | set(STATUS_BY_REFUSAL_CODE) | set(rows("definitions"))
    http = {HTTPStatus(status).phrase.lower().replace(" ", "_") for status in (404, 405)}
    answers = page("errors").partition("## Answers of the API")[2].partition("## Warnings")[0]
    told = set(re.findall(r"^\| `(\w+)` \|", answers, flags=re.M))
    assert len(told) > 100
    assert told - used - http == set(), "remove from docs/errors.md"


@pytest.mark.parametrize("part", written.PARTS)
def test_what_the_code_writes_stands_in_the_page(part: str):
    file, write = written.PARTS[part]
    text = (ROOT / file).read_text(encoding="utf-8")
    begin, end = written.marks(part)
    assert begin in text
    assert end in text
    assert written.with_part(text, part, write()) == text, AGAIN


COMMANDS = dict(written.commands())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_is_on_the_page(name: str):
    assert re.search(rf"`{name}[ `]", page("cli"))
    for one in COMMANDS[name].params:
        for option in one.opts if one.param_type_name == "option" else ():
            assert option in page("cli"), f"{name} {option}"


def test_every_call_of_the_api_is_on_its_page():
    for method, path in ACCESS_TABLE:
        if path.startswith(API_PREFIX) and not path.endswith(("openapi.json", "/sign-out")):
            assert f"### `{method} {path.removeprefix(API_PREFIX)}`" in page("api"), AGAIN


def test_every_status_and_every_stop_rule_is_on_the_page():
    told = set(re.findall(r"`(\w+)`", page("statuses")))
    assert set(rows("statuses")) >= {*map(str, TerminalStatus), *map(str, StopRule)}
    wanted = {
        *map(str, RunStatus),
        *beads.BEAD_STATUSES,
        *approvals.APPROVAL_STATUSES,
        *map(str, ApprovalKind),
    }
    assert wanted | set(get_args(ListedStatus)) <= told
    fields = set(StopRules.__struct_fields__) - {"profile"}
    assert fields <= told, "say which rule the limit sets"
    order = [row for row in rows("statuses") if row in set(map(str, StopRule))]
    assert order == list(map(str, StopRule)), "the order is the one in which rules are named"


def test_every_state_of_an_agent_and_every_setting_of_a_channel_is_on_its_page():
    channels = page("channels")
    assert all(f"| {state} |" in channels for state in AgentState)
    names = re.findall(r"`(\w+)`", channels)
    assert set(TurnConfig.__struct_encode_fields__) <= set(names)


def test_every_setting_figure_and_log_event_is_on_its_page():
    for row in SETTINGS:
        assert f"| `{row.name}` |" in page("cli")
    for name in (*METRICS, *LOG_EVENTS):
        assert f"| `{name}` |" in page("observability")


def test_every_variable_of_the_environment_is_on_the_page():
    told = {row.variable for row in SETTINGS} | set(VARIABLE.findall(page("cli")))
    used = {
        (name, file.relative_to(ROOT).as_posix())
        for folder in ("src", "scripts", "deploy", "tests")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in ("", ".py", ".service", ".yaml") and file.is_file()
        for name in VARIABLE.findall(file.read_text(encoding="utf-8", errors="replace"))
    }
    strange = {"HANDRAIL_LEESE"}
    missing = {(name, file) for name, file in used if name not in told | strange}
    assert not missing, f"say in docs/cli.md what it is for: {missing}"

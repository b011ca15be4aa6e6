"""Diagrams: drawn from values and tables, and unbreakable by names."""

import re
import runpy
from itertools import chain as flatten
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from tests.kernel import histories

from handrail.kernel import agent_lifecycle, lock
from handrail.kernel.run.evolve import evolve
from handrail.kernel.run.state import PositionPhase, RunStatus
from handrail.kernel.run.workflow import ROUTES
from handrail.kernel.stop.rules import TABLE, StopRule
from handrail.views import diagrams
from handrail.views.diagrams import (
    OUTSIDE_STATE,
    PHASE_TRANSITIONS,
    STATUS_TRANSITIONS,
    escape_label,
    machine_diagrams,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "diagrams.md"


HOSTILE = [
    'x"] --> evil["pwned',
    "a\nclick n0 href 'javascript:alert(1)'",
    "%%{init: {'theme': 'dark'}}%%",
    "end",
    "subgraph x",
    "`md` **b** <script>alert(1)</script>",
    "#quot;]#34;",
    "a;b|c{d}e[f]g(h)",
    "\u202edlrow\u2028",
    "x" * 500,
    "",
    " ",
    "__proto__",
]
LINE = re.compile(
    r"flowchart (?:TD|LR)"
    r'|    n\d+(?:\(\[|\[/|\[\\|\[|\{\{|\{)"[^"]*"(?:\]\)|/\]|\\\]|\]|\}\}|\})'
    r'|    n\d+ (?:-->|==>|-\.->)(?:\|"[^"]*"\|)? n\d+'
)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_label_is_one_short_line_without_meaning(text: str):
    found = escape_label(text)
    assert "\n" not in found
    assert len(re.sub(r"#\d+;", "x", found)) <= diagrams.LABEL_CHARS_MAX
    assert not set(re.sub(r"#\d+;", "", found)) & set('"#;<>{}[]|`%')


def arrows(title: str) -> set[tuple[str, str, str]]:
    """(from, to, how) of a state diagram."""
    lines = machine_diagrams()[title].splitlines()[1:]
    parts = [re.fullmatch(r"    (\S+) --> (\S+): (.*)", line) for line in lines]
    return {(p[1], p[2], how) for p in parts if p is not None for how in p[3].split(", ")}


def test_the_lifecycle_diagram_has_exactly_the_rows_of_the_table():
    rows = {(a.value, b.value, t.value) for (a, t), b in agent_lifecycle.TRANSITIONS.items()}
    assert arrows("The agent's lifecycle") == rows


def test_the_lock_diagram_has_exactly_the_rows_of_the_table():
    rows = {
        (a.value, b.value, event.__name__)
        for a, row in lock.TRANSITIONS.items()
        for event, b in row.items()
    }
    assert arrows("The commit lock") == rows


def observed() -> tuple[set[tuple[str, str, str]], set[tuple[str, str, str]]]:
    """Changes of status and of phases in all histories: (from, to, event)."""
    status: set[tuple[str, str, str]] = set()
    phases: set[tuple[str, str, str]] = set()
    for make in histories.DRIVEN:
        run = None
        for event in make().events:
            before, run = run, evolve(run, event)
            how = type(event).__name__
            was = before.status.value if before is not None else OUTSIDE_STATE
            if was != run.status.value:
                status.add((was, run.status.value, how))
            old = {p: t.phase.value for p, t in before.positions.items()} if before else {}
            new = {p: t.phase.value for p, t in run.positions.items()}
            phases |= {
                (old.get(p, OUTSIDE_STATE), new.get(p, OUTSIDE_STATE), how)
                for p in {*old, *new}
                if old.get(p) != new.get(p)
            }
    return status, phases


def test_status_and_phases_are_those_that_driven_runs_go_through():
    status, phases = observed()
    assert arrows("A run's status") == status
    assert arrows("A token's phase") == phases


def test_no_status_and_no_phase_is_left_out():
    assert {a for a, _, _ in STATUS_TRANSITIONS} | {b for _, b, _ in STATUS_TRANSITIONS} == {
        OUTSIDE_STATE,
        *RunStatus,
    }
    assert {a for a, _, _ in PHASE_TRANSITIONS} | {b for _, b, _ in PHASE_TRANSITIONS} == {
        OUTSIDE_STATE,
        *PositionPhase,
    }


def test_every_answer_to_the_end_of_an_attempt_is_drawn_in_its_order():
    text = machine_diagrams()["How an attempt ends in a workflow"]
    names = re.findall(r'n\d+\["([^"]*)"\]', text)
    tables = flatten.from_iterable(ROUTES.values())
    assert names == [answer.__name__.strip("_").replace("_", " ") for answer in tables]


def test_every_stop_rule_is_drawn_in_its_order_and_where_it_is_judged():
    order = machine_diagrams()["The order of the stop rules"]
    assert re.findall(r'\["(\w+)<br/>', order) == [rule.value for rule in StopRule]
    judged = machine_diagrams()["When the stop rules are judged"]
    rules = (*TABLE.on_result, *TABLE.on_handoff, *TABLE.on_step)
    assert len(re.findall(r"n\d+\[", judged)) == len({rule.__name__ for rule in rules})


def test_machine_diagrams_read_as_they_do_here():
    texts = machine_diagrams()
    assert texts["How an attempt ends in a workflow"] == snapshot("""\
flowchart LR
    n0(["success"])
    n1["take success edge"]
    n0 --> n1
    n2(["failure"])
    n3["take failure edge"]
    n2 --> n3
    n4["rework"]
    n3 -->|"if not"| n4
    n5["escalate after rework"]
    n4 -->|"if not"| n5
    n6["retry"]
    n5 -->|"if not"| n6
    n7["escalate"]
    n6 -->|"if not"| n7
    n8(["again"])
    n9["retry"]
    n8 --> n9
    n10["escalate"]
    n9 -->|"if not"| n10
    n11(["timed out"])
    n12["escalate"]
    n11 --> n12
""")
    assert texts["The commit lock"] == snapshot("""\
stateDiagram-v2
    absent --> waiting: LockRequested
    waiting --> holding: LockGranted
    waiting --> absent: LockWithdrawn
    holding --> holding: LockExtended
    holding --> absent: LockReleased, LockExpired, LockWithdrawn
""")
    assert texts["A run's status"] == snapshot("""\
stateDiagram-v2
    [*] --> running: Started
    running --> waiting: Asked, Moved
    waiting --> running: Answered, Moved
    running --> paused: Paused
    waiting --> paused: Paused
    paused --> running: Resumed
    paused --> waiting: Resumed
    running --> ended: Ended
    waiting --> ended: Ended
    paused --> ended: Ended
""")


def test_the_page_of_diagrams_is_up_to_date():
    told = "uv run python -m handrail.views.diagrams > docs/diagrams.md"
    assert PAGE.read_text(encoding="utf-8") == diagrams.render_page(), told
    assert told in diagrams.render_page()


def test_running_the_module_writes_the_page(capsys: pytest.CaptureFixture[str]):
    runpy.run_path(diagrams.__file__, run_name="__main__")
    assert capsys.readouterr().out == diagrams.render_page()

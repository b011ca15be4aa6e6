"""Draws mermaid diagrams of the state machines from the tables that they run by.

Theory of operation. A flowchart's nodes get generated ids (n0, n1, ...). Their text goes into a
quoted label, with a character code for every character that has a meaning in mermaid.

The diagrams show the agent's lifecycle, the answers to the end of an attempt (K3), the stop rules,
the commit lock. A run's status and a position's phase follow from events (`run/evolve.py`), without
a table; `STATUS_TRANSITIONS` and `PHASE_TRANSITIONS` list what can be observed, and the tests check
them against driven runs.

`python -m handrail.views.diagrams` writes docs/diagrams.md to standard output.
"""

import re
import sys
from collections.abc import Iterable
from itertools import pairwise

from handrail.kernel import agent_lifecycle, lock
from handrail.kernel.run.state import PositionPhase, RunStatus
from handrail.kernel.run.workflow import ROUTES
from handrail.kernel.stop.rules import (
    TABLE,
    Rule,
    StopRule,
    terminal_status_of,
)

LABEL_CHARS_MAX = 80
_SPECIAL = re.compile(r"[^\w .,:/()=+→-]|[\x00-\x1f]|_(?=_)")

ROUNDED, BOX = ("([", "])"), ("[", "]")
"""Shapes of nodes: where a drawing begins, and all others."""

OUTSIDE_STATE = "[*]"
STATUS_TRANSITIONS: tuple[tuple[str, str, str], ...] = (
    (OUTSIDE_STATE, RunStatus.RUNNING, "Started"),
    (RunStatus.RUNNING, RunStatus.WAITING, "Asked, Moved"),
    (RunStatus.WAITING, RunStatus.RUNNING, "Answered, Moved"),
    (RunStatus.RUNNING, RunStatus.PAUSED, "Paused"),
    (RunStatus.WAITING, RunStatus.PAUSED, "Paused"),
    (RunStatus.PAUSED, RunStatus.RUNNING, "Resumed"),
    (RunStatus.PAUSED, RunStatus.WAITING, "Resumed"),
    (RunStatus.RUNNING, RunStatus.ENDED, "Ended"),
    (RunStatus.WAITING, RunStatus.ENDED, "Ended"),
    (RunStatus.PAUSED, RunStatus.ENDED, "Ended"),
)
"""Of a run: from, to, the events. A run waits while every position waits for a person."""

PHASE_TRANSITIONS: tuple[tuple[str, str, str], ...] = (
    (OUTSIDE_STATE, PositionPhase.READY, "Started, Moved, HandedOff"),
    (PositionPhase.READY, PositionPhase.OFFERED, "Offered"),
    (PositionPhase.READY, PositionPhase.ASKED, "Asked"),
    (PositionPhase.READY, OUTSIDE_STATE, "Moved, Ended"),
    (PositionPhase.OFFERED, PositionPhase.CLAIMED, "Claimed"),
    (PositionPhase.OFFERED, PositionPhase.READY, "TimedOut, Moved"),
    (PositionPhase.OFFERED, OUTSIDE_STATE, "Moved, Ended"),
    (PositionPhase.CLAIMED, PositionPhase.SETTLED, "Reported"),
    (PositionPhase.CLAIMED, PositionPhase.ASKING, "Reported"),
    (PositionPhase.CLAIMED, PositionPhase.WAITING, "Reported"),
    (PositionPhase.CLAIMED, PositionPhase.READY, "Faulted, Lost, TimedOut, Moved"),
    (PositionPhase.CLAIMED, OUTSIDE_STATE, "Moved, Ended"),
    (PositionPhase.SETTLED, PositionPhase.OFFERED, "Offered"),
    (PositionPhase.SETTLED, PositionPhase.ASKED, "Asked"),
    (PositionPhase.SETTLED, PositionPhase.READY, "HandedOff, Moved"),
    (PositionPhase.SETTLED, OUTSIDE_STATE, "HandedOff, Moved, Ended"),
    (PositionPhase.ASKING, PositionPhase.ASKED, "Asked"),
    (PositionPhase.ASKING, OUTSIDE_STATE, "Ended"),
    (PositionPhase.ASKED, PositionPhase.READY, "Answered, Moved"),
    (PositionPhase.ASKED, PositionPhase.LEAVING, "Answered"),
    (PositionPhase.ASKED, OUTSIDE_STATE, "Moved, Ended"),
    (PositionPhase.WAITING, PositionPhase.OFFERED, "Offered"),
    (PositionPhase.WAITING, PositionPhase.ASKED, "Asked"),
    (PositionPhase.WAITING, PositionPhase.READY, "Moved"),
    (PositionPhase.WAITING, OUTSIDE_STATE, "Moved, Ended"),
    (PositionPhase.LEAVING, PositionPhase.READY, "Moved"),
    (PositionPhase.LEAVING, OUTSIDE_STATE, "Moved, Ended"),
)
"""Of a position: from, to, the events. A step left and entered at once is ready again."""


def escape_label(text: str) -> str:
    """Return the text as a mermaid label: one line, bounded, without mermaid syntax."""
    one_line = " ".join(text.split())
    if len(one_line) > LABEL_CHARS_MAX:
        one_line = f"{one_line[: LABEL_CHARS_MAX - 1]}…"
    return _SPECIAL.sub(lambda match: f"#{ord(match.group())};", one_line)


class _Flowchart:
    """The lines of a flowchart."""

    def __init__(self, direction: str) -> None:
        self.lines = [f"flowchart {direction}"]
        self.ids: dict[str, str] = {}

    def add_node(self, name: str, parts: Iterable[str], shape: tuple[str, str]) -> None:
        self.ids[name] = self.ids.get(name, f"n{len(self.ids)}")
        text = "<br/>".join(escape_label(part) for part in parts if part.strip()) or " "
        self.lines.append(f'    {self.ids[name]}{shape[0]}"{text}"{shape[1]}')

    def add_edge(self, source: str, target: str, arrow: str, text: str = "") -> None:
        label_text = f'|"{escape_label(text)}"|' if text else ""
        self.lines.append(f"    {self.ids[source]} {arrow}{label_text} {self.ids[target]}")

    def render(self) -> str:
        return "\n".join(self.lines) + "\n"


def machine_diagrams() -> dict[str, str]:
    """Return the diagram of every machine, by title."""
    return {
        "The agent's lifecycle": _state_diagram(
            (source, target, trigger.value)
            for (source, trigger), target in agent_lifecycle.TRANSITIONS.items()
        ),
        "A run's status": _state_diagram(STATUS_TRANSITIONS),
        "A token's phase": _state_diagram(PHASE_TRANSITIONS),
        "How an attempt ends in a workflow": _answers_diagram(),
        "When the stop rules are judged": _rules_diagram(),
        "The order of the stop rules": _rule_order_diagram(),
        "The commit lock": _state_diagram(
            (source, target, event.__name__)
            for source, row in lock.TRANSITIONS.items()
            for event, target in row.items()
        ),
    }


def _state_diagram(rows: Iterable[tuple[str, str, str]]) -> str:
    """Return a state diagram; all causes between the same two states share an arrow."""
    by_pair: dict[tuple[str, str], list[str]] = {}
    for source, target, cause in rows:
        by_pair.setdefault((str(source), str(target)), []).append(escape_label(cause))
    lines = [f"    {a} --> {b}: {', '.join(causes)}" for (a, b), causes in by_pair.items()]
    return "\n".join(["stateDiagram-v2", *lines]) + "\n"


def _answers_diagram() -> str:
    drawing = _Flowchart("LR")
    for ending, answers in ROUTES.items():
        names = [_humanize(answer.__name__) for answer in answers]
        drawing.add_node(ending, (_humanize(ending),), ROUNDED)
        previous_key = ending
        for i, name in enumerate(names):
            key = f"{ending} {i}"
            drawing.add_node(key, (name,), BOX)
            drawing.add_edge(previous_key, key, "-->", "" if i == 0 else "if not")
            previous_key = key
    return drawing.render()


def _rules_diagram() -> str:
    drawing = _Flowchart("LR")
    rules_by_moment: dict[str, tuple[Rule, ...]] = {
        "a result came": TABLE.on_result,
        "a handoff is proposed": TABLE.on_handoff,
        "a step is next": TABLE.on_step,
    }
    for moment, rules in rules_by_moment.items():
        drawing.add_node(moment, (moment,), ROUNDED)
        for rule in rules:
            drawing.add_node(rule.__name__, (_humanize(rule.__name__),), BOX)
            drawing.add_edge(moment, rule.__name__, "-->")
    return drawing.render()


UNFORCED_STATUSES = {
    StopRule.CLOSED: "closed_by_human",
    StopRule.TERMINATED: "done_success or done_partial",
    StopRule.COMPLETED: "as the end says",
}
"""Ends that no rule forces."""


def _rule_order_diagram() -> str:
    drawing = _Flowchart("TD")
    rules = list(StopRule)
    for rule in rules:
        status_unmet, status_met = (
            terminal_status_of(rule, goal_met=goal_met).value for goal_met in (False, True)
        )
        drawing.add_node(
            rule,
            (
                rule.value,
                UNFORCED_STATUSES.get(
                    rule,
                    status_unmet
                    if status_unmet == status_met
                    else f"{status_unmet}, or {status_met}",
                ),
            ),
            BOX,
        )
    for before, after in pairwise(rules):
        drawing.add_edge(before, after, "-->")
    return drawing.render()


def _humanize(name: str) -> str:
    return name.strip("_").replace("_", " ")


def render_page() -> str:
    """Return the text of docs/diagrams.md."""
    parts = [
        "# Diagrams",
        "Generated from the tables of the kernel; do not edit. To write this page again:",
        "```sh\nuv run python -m handrail.views.diagrams > docs/diagrams.md\n```",
    ]
    for title, text in machine_diagrams().items():
        parts += [f"## {title}", f"```mermaid\n{text}```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render_page())

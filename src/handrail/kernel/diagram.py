"""Diagrams (mermaid) of definitions and of the machines, drawn from the values and the tables.

Theory of operation. A definition is drawn as a flowchart. Nodes get ids of our own (n0, n1, ...)
and everything that somebody wrote stands in a quoted label in which every character that means
something to mermaid is spelt as a character code: no name can break, extend or forge a diagram.
Names that a definition uses but does not declare are drawn, marked as unknown.

    shapes   start and end rounded, task a box, approval a hexagon, decision a rhombus,
             fork and merge a parallelogram leaning either way
    arrows   --> success, ==> a fork's branches, -.-> a way back (rework with its bound, revision)

Machines are drawn from the tables they run by: the agent's lifecycle, the answers to the end of an
attempt (K3), the stop rules, the commit lock. A run's status and a token's phase follow from events
(`run/evolve.py`) and have no table there; `STATUS` and `PHASES` say what can be seen, and the tests
hold them against driven runs.

`python -m handrail.kernel.diagram` writes docs/diagrams.md to standard output.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise

from handrail.kernel import lifecycle, lock
from handrail.kernel.definition import (
    REVIEW_SEAT,
    Agent,
    Definition,
    Edge,
    Node,
    NodeType,
    Team,
    TerminalStatus,
    Workflow,
)
from handrail.kernel.rules import ON_HANDOFF, ON_RESULT, ON_STEP, Rule, StopRule, status_of
from handrail.kernel.run.state import Phase, RunStatus
from handrail.kernel.run.workflow import ANSWERS

LABEL_CHARS = 80
_SPECIAL = re.compile(r"[^\w .,:/()=+→-]|[\x00-\x1f]|_(?=_)")

SHAPES = {
    NodeType.START: ("([", "])"),
    NodeType.END: ("([", "])"),
    NodeType.TASK: ("[", "]"),
    NodeType.APPROVAL: ("{{", "}}"),
    NodeType.DECISION: ("{", "}"),
    NodeType.MERGE: ("[\\", "\\]"),
}
FORK = ("[/", "/]")

OUTSIDE = "[*]"
STATUS: tuple[tuple[str, str, str], ...] = (
    (OUTSIDE, RunStatus.RUNNING, "Started"),
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
"""Of a run: from, to, the events that do it. It waits while every token waits for a person."""

PHASES: tuple[tuple[str, str, str], ...] = (
    (OUTSIDE, Phase.READY, "Started, Moved, HandedOff"),
    (Phase.READY, Phase.OFFERED, "Offered"),
    (Phase.READY, Phase.ASKED, "Asked"),
    (Phase.READY, OUTSIDE, "Moved, Ended"),
    (Phase.OFFERED, Phase.CLAIMED, "Claimed"),
    (Phase.OFFERED, Phase.READY, "TimedOut, Moved"),
    (Phase.OFFERED, OUTSIDE, "Moved, Ended"),
    (Phase.CLAIMED, Phase.SETTLED, "Reported"),
    (Phase.CLAIMED, Phase.ASKING, "Reported"),
    (Phase.CLAIMED, Phase.READY, "Faulted, Lost, TimedOut, Moved"),
    (Phase.CLAIMED, OUTSIDE, "Moved, Ended"),
    (Phase.SETTLED, Phase.OFFERED, "Offered"),
    (Phase.SETTLED, Phase.ASKED, "Asked"),
    (Phase.SETTLED, Phase.READY, "HandedOff, Moved"),
    (Phase.SETTLED, OUTSIDE, "HandedOff, Moved, Ended"),
    (Phase.ASKING, Phase.ASKED, "Asked"),
    (Phase.ASKING, OUTSIDE, "Ended"),
    (Phase.ASKED, Phase.READY, "Answered, Moved"),
    (Phase.ASKED, Phase.LEAVING, "Answered"),
    (Phase.ASKED, OUTSIDE, "Moved, Ended"),
    (Phase.LEAVING, Phase.READY, "Moved"),
    (Phase.LEAVING, OUTSIDE, "Moved, Ended"),
)
"""Of a token: from, to, the events that do it. A place left and entered at once is ready again."""


def label(text: str) -> str:
    """A text as a mermaid label: one line, not too long, nothing in it that mermaid reads."""
    one = " ".join(text.split())
    if len(one) > LABEL_CHARS:
        one = f"{one[: LABEL_CHARS - 1]}…"
    return _SPECIAL.sub(lambda found: f"#{ord(found.group())};", one)


Key = str | tuple[str]


class _Drawing:
    """Lines of a flowchart. A name that was not declared gets a box when it is first drawn to."""

    def __init__(self, direction: str) -> None:
        self.lines = [f"flowchart {direction}"]
        self.ids: dict[Key, str] = {}

    def declare(self, name: Key, parts: Iterable[str], shape: tuple[str, str]) -> None:
        self.ids[name] = self.ids.get(name, f"n{len(self.ids)}")
        text = "<br/>".join(label(part) for part in parts if part.strip()) or " "
        self.lines.append(f'    {self.ids[name]}{shape[0]}"{text}"{shape[1]}')

    def draw(self, source: Key, target: Key, arrow: str, text: str = "") -> None:
        for name in (source, target):
            if name not in self.ids:
                self.declare(name, (str(name), "unknown"), ("[", "]"))
        told = f'|"{label(text)}"|' if text else ""
        self.lines.append(f"    {self.ids[source]} {arrow}{told} {self.ids[target]}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def definition_diagram(definition: Definition) -> str:
    """The definition as a flowchart. It need not be valid."""
    return _team(definition) if isinstance(definition, Team) else _workflow(definition)


def _workflow(workflow: Workflow) -> str:
    drawing = _Drawing("TD")
    forks = {node.id for node in workflow.nodes if node.config.parallel}
    for node in workflow.nodes:
        shape = FORK if node.id in forks else SHAPES[node.type]
        drawing.declare(node.id, _node_parts(node), shape)
    for edge in workflow.edges:
        arrow = "==>" if edge.from_node_id in forks else "-->"
        drawing.draw(edge.from_node_id, edge.to_node_id, arrow, _edge_text(edge))
    for node in workflow.nodes:
        rework, revise_to = node.config.on_failure, node.config.revise_to
        if rework is not None:
            drawing.draw(node.id, rework.rework, "-.->", f"on failure, max {rework.max}")
        if revise_to is not None:
            drawing.draw(node.id, revise_to, "-.->", "revise, by a person")
    return drawing.text()


def _node_parts(node: Node) -> Iterator[str]:
    config = node.config
    yield node.id
    if node.type is NodeType.TASK:
        role = f"role in {config.role_from}" if config.role_from else node.role
        kind = f", {config.kind}" if config.kind else ""
        yield f"{role}{kind}"
        many = "dispatches" if config.multi_dispatch else "attempts"
        yield f"max {node.max_attempts} {many}"
    elif node.type is NodeType.APPROVAL:
        quorum = f"{config.quorum} of " if config.quorum > 1 else ""
        yield f"asks {quorum}{', '.join(config.approvers) or node.role}"
    elif node.type is NodeType.MERGE:
        yield f"waits for {config.wait}"
    elif node.type is NodeType.END and config.status is not TerminalStatus.DONE_SUCCESS:
        yield config.status.value


def _edge_text(edge: Edge) -> str:
    return "failure" if edge.on_failure else edge.expression


START, END = ("start",), ("end",)  # keys of no agent, whatever an agent is called


def _team(team: Team) -> str:
    drawing = _Drawing("LR")
    drawing.declare(START, START, SHAPES[NodeType.START])
    for agent in team.agents:
        drawing.declare(agent.id, _agent_parts(agent, team), SHAPES[NodeType.TASK])
    seat = team.review
    if seat is not None:
        by = f"{seat.quorum} of {', '.join(seat.approvers) or 'the people who may'}"
        asked = (REVIEW_SEAT, f"a person decides: {by}", "" if seat.required else "may be skipped")
        drawing.declare(REVIEW_SEAT, asked, SHAPES[NodeType.APPROVAL])
    drawing.declare(END, END, SHAPES[NodeType.END])
    drawing.draw(START, team.start, "-->")
    for agent in team.agents:
        for target in agent.hands_off_to:
            drawing.draw(agent.id, target, "-->")
    if team.terminator is not None:
        drawing.draw(team.terminator, END, "==>", "terminate")
    if seat is not None:
        for name in seat.after:
            drawing.draw(name, REVIEW_SEAT, "==>", "result")
        drawing.draw(REVIEW_SEAT, END, "==>", "approve")
        drawing.draw(REVIEW_SEAT, seat.back_to, "-.->", "revise, any number of times")
    return drawing.text()


def _agent_parts(agent: Agent, team: Team) -> Iterator[str]:
    yield agent.id
    if agent.works_as != agent.id:
        yield f"role {agent.works_as}"
    if agent.id == team.terminator:
        yield "alone may end the run"
    for task in agent.tasks:
        once = ", once" if task.once else ""
        reached = f" → {task.milestone}" if task.milestone else ""
        yield f"task {task.id}{once}{reached}"


def machine_diagrams() -> dict[str, str]:
    """Every machine by its title."""
    return {
        "The agent's lifecycle": _states(
            (source, target, trigger.value)
            for (source, trigger), target in lifecycle.TRANSITIONS.items()
        ),
        "A run's status": _states(STATUS),
        "A token's phase": _states(PHASES),
        "How an attempt ends in a workflow": _answers(),
        "When the stop rules are judged": _judged(),
        "The order of the stop rules": _order(),
        "The commit lock": _states(
            (source, target, event.__name__)
            for source, row in lock.TRANSITIONS.items()
            for event, target in row.items()
        ),
    }


def _states(rows: Iterable[tuple[str, str, str]]) -> str:
    """A state diagram; what leads from one state to one other shares an arrow."""
    by_pair: dict[tuple[str, str], list[str]] = {}
    for source, target, how in rows:
        by_pair.setdefault((str(source), str(target)), []).append(label(how))
    lines = [f"    {a} --> {b}: {', '.join(hows)}" for (a, b), hows in by_pair.items()]
    return "\n".join(["stateDiagram-v2", *lines]) + "\n"


def _answers() -> str:
    drawing = _Drawing("LR")
    for ending, answers in ANSWERS.items():
        names = [_spoken(answer.__name__) for answer in answers]
        drawing.declare(ending, (_spoken(ending),), SHAPES[NodeType.START])
        before = ending
        for i, name in enumerate(names):
            key = f"{ending} {i}"
            drawing.declare(key, (name,), SHAPES[NodeType.TASK])
            drawing.draw(before, key, "-->", "" if i == 0 else "if not")
            before = key
    return drawing.text()


def _judged() -> str:
    drawing = _Drawing("LR")
    when: dict[str, tuple[Rule, ...]] = {
        "a result came": ON_RESULT,
        "a handoff is proposed": ON_HANDOFF,
        "a step is next": ON_STEP,
    }
    for moment, rules in when.items():
        drawing.declare(moment, (moment,), SHAPES[NodeType.START])
        for rule in rules:
            drawing.declare(rule.__name__, (_spoken(rule.__name__),), SHAPES[NodeType.TASK])
            drawing.draw(moment, rule.__name__, "-->")
    return drawing.text()


OWN_ENDS = {
    StopRule.CLOSED: "closed_by_human",
    StopRule.TERMINATED: "done_success or done_partial",
    StopRule.COMPLETED: "as the end says",
}
"""Ends that no rule forces."""


def _order() -> str:
    drawing = _Drawing("TD")
    rules = list(StopRule)
    for rule in rules:
        forced, met = (status_of(rule, goal_met=goal).value for goal in (False, True))
        status = OWN_ENDS.get(rule, forced if forced == met else f"{forced}, or {met}")
        drawing.declare(rule, (rule.value, status), SHAPES[NodeType.TASK])
    for before, after in pairwise(rules):
        drawing.draw(before, after, "-->")
    return drawing.text()


def _spoken(name: str) -> str:
    return name.strip("_").replace("_", " ")


def page() -> str:
    """docs/diagrams.md."""
    parts = [
        "# Diagrams",
        "Generated from the tables of the kernel; do not edit. To write this page again:",
        "```sh\nuv run python -m handrail.kernel.diagram > docs/diagrams.md\n```",
    ]
    for title, text in machine_diagrams().items():
        parts += [f"## {title}", f"```mermaid\n{text}```"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())

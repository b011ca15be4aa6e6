"""Draws mermaid diagrams of definitions and of the state machines, from their values and tables.

Theory of operation. A definition becomes a flowchart. Nodes get generated ids (n0, n1, ...). Text
from outside goes into a quoted label, with a character code for every character that has a meaning
in mermaid: no name can break, extend or forge a diagram. Names that a definition uses but does not
declare are drawn and marked as unknown.

    shapes   start and end rounded, task a box, approval a hexagon, decision a rhombus,
             fork and merge a parallelogram leaning either way
    arrows   --> success, ==> a fork's branches, -.-> a way back (rework with its bound, revision)

Machines are drawn from the tables they run by: the agent's lifecycle, the answers to the end of an
attempt (K3), the stop rules, the commit lock. A run's status and a position's phase follow from
events (`run/evolve.py`), without a table; `STATUS_TRANSITIONS` and `PHASE_TRANSITIONS` list what
can be observed, and the tests check them against driven runs.

`python -m handrail.views.diagrams` writes docs/diagrams.md to standard output.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise

from handrail.kernel import agent_lifecycle, lock
from handrail.kernel.definition.model import (
    REVIEW_STEP_ID,
    Agent,
    Definition,
    Edge,
    Node,
    NodeType,
    Team,
    TerminalStatus,
    Workflow,
)
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

SHAPES = {
    NodeType.START: ("([", "])"),
    NodeType.END: ("([", "])"),
    NodeType.TASK: ("[", "]"),
    NodeType.APPROVAL: ("{{", "}}"),
    NodeType.DECISION: ("{", "}"),
    NodeType.MERGE: ("[\\", "\\]"),
}
FORK_SHAPE = ("[/", "/]")

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


NodeKey = str | tuple[str]


class _Flowchart:
    """The lines of a flowchart. The first edge of an undeclared name draws a box for it."""

    def __init__(self, direction: str) -> None:
        self.lines = [f"flowchart {direction}"]
        self.ids: dict[NodeKey, str] = {}

    def add_node(self, name: NodeKey, parts: Iterable[str], shape: tuple[str, str]) -> None:
        self.ids[name] = self.ids.get(name, f"n{len(self.ids)}")
        text = "<br/>".join(escape_label(part) for part in parts if part.strip()) or " "
        self.lines.append(f'    {self.ids[name]}{shape[0]}"{text}"{shape[1]}')

    def add_edge(self, source: NodeKey, target: NodeKey, arrow: str, text: str = "") -> None:
        for name in (source, target):
            if name not in self.ids:
                self.add_node(name, (str(name), "unknown"), ("[", "]"))
        label_text = f'|"{escape_label(text)}"|' if text else ""
        self.lines.append(f"    {self.ids[source]} {arrow}{label_text} {self.ids[target]}")

    def render(self) -> str:
        return "\n".join(self.lines) + "\n"


def definition_diagram(definition: Definition) -> str:
    """Return the definition as a flowchart. The definition need not be valid."""
    return (
        _team_diagram(definition) if isinstance(definition, Team) else _workflow_diagram(definition)
    )


def _workflow_diagram(workflow: Workflow) -> str:
    drawing = _Flowchart("TD")
    forks = {node.id for node in workflow.nodes if node.config.parallel}
    for node in workflow.nodes:
        shape = FORK_SHAPE if node.id in forks else SHAPES[node.type]
        drawing.add_node(node.id, _node_parts(node), shape)
    for edge in workflow.edges:
        arrow = "==>" if edge.from_node_id in forks else "-->"
        drawing.add_edge(edge.from_node_id, edge.to_node_id, arrow, _edge_text(edge))
    for node in workflow.nodes:
        rework, revise_to = node.config.on_failure, node.config.revise_to
        if rework is not None:
            drawing.add_edge(node.id, rework.rework, "-.->", f"on failure, max {rework.max}")
        if revise_to is not None:
            drawing.add_edge(node.id, revise_to, "-.->", "revise, by a person")
    return drawing.render()


def _node_parts(node: Node) -> Iterator[str]:
    config = node.config
    yield node.id
    if node.type is NodeType.TASK:
        role = f"role in {config.role_from}" if config.role_from else node.role
        kind = f", {config.kind}" if config.kind else ""
        yield f"{role}{kind}"
        unit = "dispatches" if config.multi_dispatch else "attempts"
        yield f"max {node.max_attempts} {unit}"
    elif node.type is NodeType.APPROVAL:
        quorum = f"{config.quorum} of " if config.quorum > 1 else ""
        yield f"asks {quorum}{', '.join(config.approvers) or node.role}"
    elif node.type is NodeType.MERGE:
        yield f"waits for {config.wait}"
    elif node.type is NodeType.END and config.status is not TerminalStatus.DONE_SUCCESS:
        yield config.status.value


def _edge_text(edge: Edge) -> str:
    return "failure" if edge.is_failure else edge.expression


START_KEY, END_KEY = ("start",), ("end",)  # no agent has a tuple as its key


def _team_diagram(team: Team) -> str:
    drawing = _Flowchart("LR")
    drawing.add_node(START_KEY, START_KEY, SHAPES[NodeType.START])
    for agent in team.agents:
        drawing.add_node(agent.id, _agent_parts(agent, team), SHAPES[NodeType.TASK])
    review = team.review
    if review is not None:
        approvers_text = f"{review.quorum} of {', '.join(review.approvers) or 'the people who may'}"
        parts = (
            REVIEW_STEP_ID,
            f"a person decides: {approvers_text}",
            "" if review.required else "may be skipped",
        )
        drawing.add_node(REVIEW_STEP_ID, parts, SHAPES[NodeType.APPROVAL])
    drawing.add_node(END_KEY, END_KEY, SHAPES[NodeType.END])
    drawing.add_edge(START_KEY, team.start, "-->")
    for agent in team.agents:
        for target in agent.hands_off_to:
            drawing.add_edge(agent.id, target, "-->")
    if team.terminator is not None:
        drawing.add_edge(team.terminator, END_KEY, "==>", "terminate")
    if review is not None:
        for name in review.after:
            drawing.add_edge(name, REVIEW_STEP_ID, "==>", "result")
        drawing.add_edge(REVIEW_STEP_ID, END_KEY, "==>", "approve")
        drawing.add_edge(REVIEW_STEP_ID, review.back_to, "-.->", "revise, any number of times")
    return drawing.render()


def _agent_parts(agent: Agent, team: Team) -> Iterator[str]:
    yield agent.id
    if agent.effective_role != agent.id:
        yield f"role {agent.effective_role}"
    if agent.id == team.terminator:
        yield "alone may end the run"
    for task in agent.tasks:
        once = ", once" if task.once else ""
        milestone_text = f" → {task.milestone}" if task.milestone else ""
        yield f"task {task.id}{once}{milestone_text}"


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
        drawing.add_node(ending, (_humanize(ending),), SHAPES[NodeType.START])
        previous_key = ending
        for i, name in enumerate(names):
            key = f"{ending} {i}"
            drawing.add_node(key, (name,), SHAPES[NodeType.TASK])
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
        drawing.add_node(moment, (moment,), SHAPES[NodeType.START])
        for rule in rules:
            drawing.add_node(rule.__name__, (_humanize(rule.__name__),), SHAPES[NodeType.TASK])
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
        status = UNFORCED_STATUSES.get(
            rule, status_unmet if status_unmet == status_met else f"{status_unmet}, or {status_met}"
        )
        drawing.add_node(rule, (rule.value, status), SHAPES[NodeType.TASK])
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

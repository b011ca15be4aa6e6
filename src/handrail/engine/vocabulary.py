"""What is logged, and what it means: the one table of every line that Handrail writes.

A line has a name (`event`), a level and fields. Rules:

1. A line is a row of LINES, and has the fields of its row, each of which is a row of FIELDS; a test
   looks at every call. So whoever searches the log finds everything in this file.
2. What happens to a run is logged under the name of its event, with the event's number in its run:
   log, history and audit say the same words.
3. Lines about runs and agents are made from what is on disk, after the commit. The others are about
   this process.
4. What is written where, and that no secret is, is the business of whoever sets up logging
   (`server/logs.py`). Embedded in another program, lines are plain records of Python's `logging`
   that read `name field=value …`.
"""

import logging
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

TEXT_MAX = 500
"""Characters of a text in a line."""


class Line(msgspec.Struct, frozen=True):
    """One kind of line. `fields` are names; in a line about a run's event `name=path` says where
    the event has it, and `name=` that it is worked out."""

    level: int
    meaning: str
    fields: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.partition("=")[0] for field in self.fields)


def _line(level: int, fields: str, meaning: str) -> Line:
    return Line(level, meaning, tuple(fields.split()))


DEBUG, INFO, WARNING, ERROR, CRITICAL = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
    logging.CRITICAL,
)

RUNS: dict[str, Line] = {
    "started": _line(
        INFO,
        "bead_id workflow_id=definition_id workflow_version=version first_agent=place title"
        " actor=filed_by",
        "A run began, with its first agent or node.",
    ),
    "offered": _line(DEBUG, "place role attempt fence", "A dispatch is on offer."),
    "claimed": _line(DEBUG, "place fence agent", "An agent took it."),
    "reported": _line(
        DEBUG,
        "place fence agent outcome=result.outcome text=result.text tokens=result.usage.tokens"
        " cost=result.usage.cost",
        "An agent's result was accepted.",
    ),
    "faulted": _line(
        WARNING, "place fence agent fault message", "An answer could not be used; it cost a try."
    ),
    "lost": _line(
        WARNING, "place fence agent reason", "An agent lost its dispatch, or gave it back."
    ),
    "timed_out": _line(WARNING, "place fence agent clock", "A clock of a dispatch ran out."),
    "handed_off": _line(
        INFO,
        "source target reason task accepted already_done number",
        "An agent of a team handed off; a refused handoff is not `accepted`.",
    ),
    "moved": _line(
        INFO,
        "from_node_id= to_node_id= outcome= reason= actor=",
        "A run went from one node to another; one line for each branch of a fork.",
    ),
    "asked": _line(
        INFO,
        "question_id=question.id place=question.place kind=question.kind question=question.text"
        " deadline=question.deadline",
        "A person is asked.",
    ),
    "answered": _line(INFO, "question_id actor=by decision final", "A person answered."),
    "reasked": _line(
        INFO,
        "question_id=question.id place=question.place reason",
        "What had been shown has changed, and the question is asked again.",
    ),
    "paused": _line(INFO, "actor=by reason deadline", "A person paused a run."),
    "resumed": _line(INFO, "actor=by reason", "A person let it go on."),
    "patched": _line(
        INFO,
        "actor=by keys=",
        "A bead was changed from outside; only the keys, and names of files.",
    ),
    "migrated": _line(
        INFO,
        "actor=by reason workflow_id=definition_id workflow_version=version",
        "A run goes on under another version.",
    ),
    "clocks_pushed": _line(
        INFO, "seconds", "Nobody was alive so long; the run's clocks did not run meanwhile."
    ),
    "heard_of": _line(
        DEBUG, "place", "A sign of life of a guarded program in which nothing happened."
    ),
    "warned": _line(WARNING, "code message place", "Something doubtful that did not stop a run."),
    "ended": _line(
        INFO,
        "terminal_status=status rule=stop.rule reason=stop.reason actor=by bead_id= workflow_id="
        " final_agent= seconds= steps=",
        "A run ended: how, by which rule, why, with which agent, after how long.",
    ),
    "loop_detected": _line(
        WARNING,
        "rule=stop.rule pattern=stop.pattern limit=stop.limit seen=stop.seen reason=stop.reason",
        "A run ended because it went in circles: the repeating pattern. Follows `ended`.",
    ),
}

AGENTS: dict[str, Line] = {
    "state_transition": _line(
        INFO,
        "agentId from to trigger channel",
        "An agent's state changed. The line has `timestamp`, `event` and these, and nothing else.",
    ),
}

CHANNELS: dict[str, Line] = {
    "channel_warned": _line(
        WARNING, "channel code agent message", "Something doubtful in a channel: an agent was lost."
    ),
    "channel_noticed": _line(
        INFO, "channel code text", "A channel was told something: a timeout, that it rests."
    ),
}

ENGINE: dict[str, Line] = {
    "engine_failed": _line(
        CRITICAL, "reason exception", "A loop of the engine died, and the engine with it."
    ),
    "database_away": _line(WARNING, "reason", "The database could not be used now."),
    "commit_unsure": _line(
        WARNING, "", "The connection broke during a commit; what became of it is looked up."
    ),
    "outage_found": _line(
        WARNING, "began ended", "Nobody was alive in between; clocks are pushed by that time."
    ),
    "run_broken": _line(
        ERROR,
        "execution_id reason exception",
        "A run could not be worked on, and was left as it was; all others went on.",
    ),
    "look_failed": _line(WARNING, "reason", "A run whose clock was due could not be looked at."),
    "result_refused": _line(
        INFO, "execution_id code reason", "A function's result came too late; kept as a note."
    ),
    "result_lost": _line(
        ERROR, "execution_id agent reason", "A result could not be handed in before the end."
    ),
    "report_not_written": _line(
        WARNING,
        "execution_id file reason",
        "The files of a run that ended could not be written; the run has ended all the same.",
    ),
    "listener_failed": _line(
        ERROR,
        "listener reason exception",
        "Whoever listens to the engine made a mistake; told once for each listener.",
    ),
}

SERVER: dict[str, Line] = {
    "server_started": _line(INFO, "url engine_id", "The server listens."),
    "server_draining": _line(INFO, "seconds", "It was told to end, and still takes requests."),
    "server_ended": _line(INFO, "reason", "It is over; without a reason, as it was told to."),
    "request": _line(DEBUG, "method path status seconds actor role", "A request was answered."),
    "request_failed": _line(
        ERROR, "method path exception", "A mistake of ours; the answer was 500."
    ),
    "forged_author": _line(
        WARNING,
        "actor role execution_id reason",
        "A request said that it is by somebody else, and was refused; kept as a note of its run.",
    ),
    "replayed_answer": _line(
        WARNING,
        "actor role execution_id reason",
        "An answer to a question that is settled, or shows something else by now; kept as a note.",
    ),
    "answers_not_kept": _line(
        WARNING, "reason", "Answers under an Idempotency-Key could not be written down yet."
    ),
    "webhook_failed": _line(
        WARNING, "webhook_id reason", "Something could not be told to a webhook; it is tried again."
    ),
    "webhook_disabled": _line(
        WARNING, "webhook_id reason", "A webhook is told nothing any more, until it is enabled."
    ),
    "webhooks_waiting": _line(
        WARNING, "reason", "What is to be told to webhooks waits; it is looked at again."
    ),
    "lines_dropped": _line(
        WARNING, "count", "So many lines were not written: whoever reads the log is too slow."
    ),
    "message": _line(
        INFO, "message", "What a library said, in its own words; `logger` says which."
    ),
}

WORKER: dict[str, Line] = {
    "worker_started": _line(INFO, "agent roles count", "It has registered, and works on so many."),
    "worker_disabled": _line(
        WARNING, "agent reason", "It is given nothing until somebody enables it."
    ),
    "worker_stopping": _line(
        INFO, "count seconds", "It was told to end; what it has in hand has so long."
    ),
    "server_lost": _line(WARNING, "reason", "No server answers; the worker tries on."),
    "server_back": _line(INFO, "", "One answers again."),
    "dispatch_cancelled": _line(
        INFO, "dispatch_id reason", "What the worker has in hand counts no more, and is stopped."
    ),
    "dispatch_given_back": _line(
        WARNING, "dispatch_id reason", "Nothing will come of it here; it is offered again."
    ),
    "result_not_accepted": _line(
        WARNING, "dispatch_id reason", "A result could not be used; it cost a try."
    ),
    "result_dropped": _line(
        WARNING, "dispatch_id reason", "What came of a dispatch came too late."
    ),
    "channel_not_joined": _line(
        WARNING, "channel reason", "A worker takes no turns in this channel until it may."
    ),
    "turn_lost": _line(WARNING, "channel reason", "A turn was over before it was complete."),
    "turn_passed": _line(
        WARNING, "channel reason", "A function said nothing in its turn, which went on to the next."
    ),
    "not_handed_back": _line(
        WARNING, "reason", "A worker ended with work in hand, and no server heard of it."
    ),
}

GROUPS = {
    "Runs": RUNS,
    "Agents": AGENTS,
    "Channels": CHANNELS,
    "The engine": ENGINE,
    "The server": SERVER,
    "Workers": WORKER,
}
LINES: dict[str, Line] = {name: line for group in GROUPS.values() for name, line in group.items()}

COMMON = {
    "timestamp": "When, in UTC: for runs and agents as recorded, else when it was said.",
    "level": "debug, info, warning, error or critical.",
    "event": "The name of the line.",
    "logger": "Which part said it.",
}
FIELDS: dict[str, str] = {
    "accepted": "Whether the handoff was made.",
    "actor": "Who did it: a person, or nothing if it was the engine or an agent's result.",
    "agent": "An agent's id.",
    "agentId": "An agent's id.",
    "already_done": "Whether the target had done it before, and gave its earlier answer.",
    "attempt": "Which try of this visit it is, from 1.",
    "bead_id": "The ticket, bug or other unit of work.",
    "began": "When the last engine was last alive.",
    "channel": "The channel; null for work on a dispatch.",
    "clock": "queue, role or work.",
    "code": "What it is, for programs.",
    "cost": "What the result cost.",
    "count": "How many.",
    "deadline": "When the run will no longer wait.",
    "decision": "approve, reject, revise or answer.",
    "ended": "When an engine was alive again.",
    "dispatch_id": "The dispatch.",
    "engine_id": "The engine in this process.",
    "exception": "Where it was raised.",
    "execution_id": "The run.",
    "fault": "What was wrong with the answer, for programs.",
    "fence": "The number of the dispatch in its run.",
    "file": "The folder for reports.",
    "final": "Whether the question is settled by it.",
    "final_agent": "The agent or node at which the run ended.",
    "first_agent": "The agent or node at which the run begins.",
    "from": "The state before.",
    "from_node_id": "Where the run was.",
    "keys": "Names of what was changed.",
    "kind": "clarification_request, approval or escalation.",
    "limit": "What the rule allows.",
    "listener": "Which one.",
    "message": "In words.",
    "method": "GET, POST, …",
    "number": "Which accepted handoff of the run it is; 0 if it was refused.",
    "outcome": "What the agent said of its work; of a move, which way it was.",
    "path": "The path's template, never the path itself.",
    "pattern": "What was repeated.",
    "place": "The node, or the agent of a team.",
    "question": "What is asked.",
    "question_id": "The question, which is also an approval and a bead.",
    "reason": "Why, in words.",
    "role": "The role that is needed; of a request, the caller's.",
    "roles": "The roles that an agent works as.",
    "rule": "The stop rule.",
    "seconds": "How long; of a run, from its start to its end.",
    "seen": "What the rule saw.",
    "seq": "The event's number in its run.",
    "source": "Who hands off.",
    "status": "The HTTP status.",
    "steps": "Steps of the run.",
    "target": "Whom to.",
    "task": "The task that is handed over.",
    "terminal_status": "How the run ended.",
    "text": "What the agent said.",
    "title": "The bead's title.",
    "to": "The state after.",
    "to_node_id": "Where the run went.",
    "tokens": "What the result used.",
    "trigger": "What moved the agent.",
    "url": "Where the server listens.",
    "webhook_id": "The webhook.",
    "workflow_id": "The definition.",
    "workflow_version": "Its version.",
}


class Said:
    """One line: the message of a record of Python's `logging`."""

    __slots__ = ("at", "fields", "name")

    def __init__(self, name: str, fields: Mapping[str, Any], at: datetime | None = None) -> None:
        self.name, self.fields, self.at = name, fields, at

    def __str__(self) -> str:
        given = {name: value for name, value in self.fields.items() if value is not None}
        return " ".join((self.name, *(f"{name}={fit(str(v))}" for name, v in given.items())))


def fit(text: str) -> str:
    """The text as it may stand in a line: cut, and with escapes for what does not print."""
    cut = f"{text[:TEXT_MAX]}… {len(text) - TEXT_MAX} more" if len(text) > TEXT_MAX else text
    return cut if cut.isprintable() else escaped(cut)


def escaped(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def tell(
    log: logging.Logger,
    name: str,
    *,
    at: datetime | None = None,
    error: BaseException | None = None,
    **fields: object,
) -> None:
    """Write that line. `error` is what was raised, for those that have an `exception`."""
    level = LINES[name].level
    if log.isEnabledFor(level):
        log.log(level, Said(name, fields, at), exc_info=error)


def page() -> str:
    """The section of docs/observability.md about the log."""
    parts: list[str] = []
    for title, lines in GROUPS.items():
        rows = [
            f"| `{name}` | {logging.getLevelName(line.level).lower()} | {line.meaning} |"
            f" {', '.join(f'`{field}`' for field in line.names)} |"
            for name, line in lines.items()
        ]
        parts += [f"### {title}", _table("event | level | when | fields", rows)]
        if lines is RUNS:
            parts[-1:-1] = ["Every line about a run also has `execution_id` and `seq`."]
    everywhere = [f"| `{name}` | {meaning} |" for name, meaning in COMMON.items()]
    known = [f"| `{name}` | {meaning} |" for name, meaning in sorted(FIELDS.items())]
    parts += ["### Fields of every line", _table("field | meaning", everywhere)]
    parts += ["### Fields", _table("field | meaning", known)]
    return "\n\n".join(parts) + "\n"


def _table(head: str, rows: list[str]) -> str:
    under = "|".join("---" for _ in head.split("|"))
    return "\n".join((f"| {head} |", f"|{under}|", *rows))


if __name__ == "__main__":
    sys.stdout.write(page())

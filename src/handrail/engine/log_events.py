"""The log event catalogue: the one table of every line that Handrail writes, with its meaning.

A line has a name (`event`), a level and fields. Rules:

1. A line is a row of LOG_EVENTS, and has the fields of its row, each of which is a row of FIELDS; a
   test checks every call. So a search of the log finds everything in this file.
2. An event of a run is logged under its own name, with its number in the run: log, history and
   audit use the same words.
3. Lines about runs and agents are made from what is on disk, after the commit. The others are about
   this process.
4. The logging set-up (`server/logs.py`) decides where lines go, and keeps secrets out. Embedded in
   another program, lines are plain records of Python's `logging` that read `name field=value …`.
"""

import logging
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

TEXT_CHARS_MAX = 500


class LogEventSpec(msgspec.Struct, frozen=True):
    """One kind of line. `fields` are names; in a line about a run's event `name=path` says where
    the event has the value, and `name=` that it is computed."""

    level: int
    meaning: str
    fields: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.partition("=")[0] for field in self.fields)


def _spec(level: int, fields: str, meaning: str) -> LogEventSpec:
    return LogEventSpec(level, meaning, tuple(fields.split()))


DEBUG, INFO, WARNING, ERROR, CRITICAL = (
    logging.DEBUG,
    logging.INFO,
    logging.WARNING,
    logging.ERROR,
    logging.CRITICAL,
)

RUN_EVENTS: dict[str, LogEventSpec] = {
    "started": _spec(
        INFO,
        "bead_id workflow_id=definition_id workflow_version=version first_agent=step_id title"
        " actor=filed_by",
        "A run began, with its first agent or node.",
    ),
    "offered": _spec(DEBUG, "place=step_id role attempt fence", "A dispatch is on offer."),
    "claimed": _spec(DEBUG, "place=step_id fence agent", "An agent claimed a dispatch."),
    "reported": _spec(
        DEBUG,
        "place=step_id fence agent outcome=result.outcome text=result.text "
        "tokens=result.usage.tokens"
        " cost=result.usage.cost",
        "An agent's result was accepted.",
    ),
    "faulted": _spec(
        WARNING,
        "place=step_id fence agent fault message",
        "An answer could not be used; it cost a try.",
    ),
    "lost": _spec(
        WARNING, "place=step_id fence agent reason", "An agent lost its dispatch, or gave it back."
    ),
    "timed_out": _spec(
        WARNING, "place=step_id fence agent clock", "A clock of a dispatch ran out."
    ),
    "handed_off": _spec(
        INFO,
        "source target reason task accepted already_done number",
        "An agent of a team handed off; a refused handoff is not `accepted`.",
    ),
    "moved": _spec(
        INFO,
        "from_node_id= to_node_id= outcome= reason= actor=",
        "A run went from one node to another; one line for each branch of a fork.",
    ),
    "asked": _spec(
        INFO,
        "question_id=approval.id place=approval.step_id kind=approval.kind question=approval.text"
        " deadline=approval.deadline",
        "A person is asked.",
    ),
    "answered": _spec(
        INFO, "question_id=approval_id actor=by decision final", "A person answered."
    ),
    "reasked": _spec(
        INFO,
        "question_id=approval.id place=approval.step_id reason",
        "The content of an approval has changed, and it is opened again.",
    ),
    "paused": _spec(INFO, "actor=by reason deadline", "A person paused a run."),
    "resumed": _spec(INFO, "actor=by reason", "A person resumed a run."),
    "patched": _spec(
        INFO,
        "actor=by keys=",
        "A bead was changed from outside; only the keys, and names of files.",
    ),
    "migrated": _spec(
        INFO,
        "actor=by reason workflow_id=definition_id workflow_version=version",
        "A run was migrated to another version of its definition.",
    ),
    "clocks_pushed": _spec(
        INFO,
        "seconds",
        "No engine was alive for so long; the run's deadlines were moved by that time.",
    ),
    "heard_of": _spec(DEBUG, "place=step_id", "A heartbeat of a guarded program without events."),
    "warned": _spec(
        WARNING, "code message place=step_id", "Something doubtful that did not stop a run."
    ),
    "ended": _spec(
        INFO,
        "terminal_status=status rule=stop.rule reason=stop.reason actor=by bead_id= workflow_id="
        " final_agent= seconds= steps=",
        "A run ended: how, by which rule, why, with which agent, after how long.",
    ),
    "loop_detected": _spec(
        WARNING,
        "rule=stop.rule pattern=stop.pattern limit=stop.limit seen=stop.seen reason=stop.reason",
        "A run ended because it went in circles: the repeating pattern. Follows `ended`.",
    ),
}

AGENT_EVENTS: dict[str, LogEventSpec] = {
    "state_transition": _spec(
        INFO,
        "agentId from to trigger channel",
        "An agent's state changed. The line has `timestamp`, `event` and these, and nothing else.",
    ),
}

CHANNEL_EVENTS: dict[str, LogEventSpec] = {
    "channel_warned": _spec(
        WARNING, "channel code agent message", "Something doubtful in a channel: an agent was lost."
    ),
    "channel_noticed": _spec(
        INFO, "channel code text", "A notice was written to a channel: a timeout, that it rests."
    ),
}

ENGINE_EVENTS: dict[str, LogEventSpec] = {
    "engine_failed": _spec(
        CRITICAL, "reason exception", "A loop of the engine died, and the engine with it."
    ),
    "database_away": _spec(WARNING, "reason", "The database could not be used now."),
    "row_altered": _spec(
        ERROR, "reason", "A row is not as it was recorded: somebody wrote to the database directly."
    ),
    "commit_unsure": _spec(
        WARNING, "", "The connection broke during a commit; what became of it is looked up."
    ),
    "outage_found": _spec(
        WARNING, "began ended", "No engine was alive in between; deadlines are moved by that time."
    ),
    "stood_still": _spec(
        WARNING,
        "seconds",
        "This process stood still, so it heard no agent; agents and deadlines get that time again.",
    ),
    "run_broken": _spec(
        ERROR,
        "execution_id reason exception",
        "A run could not be processed and was left as it was; all other runs went on.",
    ),
    "look_failed": _spec(
        WARNING, "reason", "A run whose deadline has passed could not be processed."
    ),
    "result_refused": _spec(
        INFO, "execution_id code reason", "A function's result came too late; kept as a note."
    ),
    "result_lost": _spec(
        ERROR,
        "execution_id agent reason",
        "A result could not be reported before the engine closed.",
    ),
    "report_not_written": _spec(
        WARNING,
        "execution_id file reason",
        "The files of a run that ended could not be written; the run has ended all the same.",
    ),
    "listener_failed": _spec(
        ERROR,
        "listener reason exception",
        "A listener of the engine raised; logged once for each listener.",
    ),
}

SERVER_EVENTS: dict[str, LogEventSpec] = {
    "server_started": _spec(INFO, "url engine_id", "The server listens."),
    "server_draining": _spec(
        INFO, "seconds", "The server was told to stop, and still takes requests."
    ),
    "server_ended": _spec(
        INFO, "reason", "The server has stopped; without a reason, because it was told to."
    ),
    "request": _spec(DEBUG, "method path status seconds actor role", "A request was answered."),
    "request_failed": _spec(
        ERROR, "method path exception", "A defect in the server; the answer was 500."
    ),
    "forged_author": _spec(
        WARNING,
        "actor role execution_id reason",
        "A request named another author than its token and was refused; kept as a note of its run.",
    ),
    "replayed_answer": _spec(
        WARNING,
        "actor role execution_id reason",
        "An answer to an approval that is settled or has changed; kept as a note.",
    ),
    "answers_not_kept": _spec(
        WARNING, "reason", "Answers under an Idempotency-Key could not be written down yet."
    ),
    "webhook_failed": _spec(
        WARNING, "webhook_id reason", "A delivery to a webhook failed; it is tried again."
    ),
    "webhook_disabled": _spec(
        WARNING,
        "webhook_id reason",
        "A webhook was disabled; it gets no deliveries until it is enabled.",
    ),
    "webhooks_waiting": _spec(
        WARNING, "reason", "Deliveries to webhooks are delayed; they are tried again."
    ),
    "lines_dropped": _spec(
        WARNING, "count", "So many lines were not written: the reader of the log is too slow."
    ),
    "message": _spec(
        INFO, "message", "A message of a library, in its own words; `logger` names the library."
    ),
}

WORKER_EVENTS: dict[str, LogEventSpec] = {
    "worker_started": _spec(
        INFO,
        "agent roles count",
        "The worker has registered, and takes so many dispatches at once.",
    ),
    "worker_disabled": _spec(
        WARNING, "agent reason", "The agent is disabled and gets no work until it is enabled."
    ),
    "worker_stopping": _spec(
        INFO, "count seconds", "The worker was told to stop; its dispatches have so long to finish."
    ),
    "server_lost": _spec(WARNING, "reason", "No server answers; the worker keeps trying."),
    "server_back": _spec(INFO, "", "A server answers again."),
    "dispatch_cancelled": _spec(
        INFO,
        "dispatch_id reason",
        "A dispatch of the worker was taken away, and its function is stopped.",
    ),
    "dispatch_given_back": _spec(
        WARNING, "dispatch_id reason", "The worker gave a dispatch back; it is offered again."
    ),
    "result_not_accepted": _spec(
        WARNING, "dispatch_id reason", "A result could not be used; it cost a try."
    ),
    "result_dropped": _spec(
        WARNING, "dispatch_id reason", "What came of a dispatch came too late."
    ),
    "channel_not_joined": _spec(
        WARNING, "channel reason", "A worker takes no turns in this channel until it may."
    ),
    "turn_lost": _spec(WARNING, "channel reason", "A turn was over before it was complete."),
    "turn_passed": _spec(
        WARNING, "channel reason", "A function said nothing in its turn, which went on to the next."
    ),
    "not_handed_back": _spec(
        WARNING, "reason", "A worker ended with work in hand, and no server heard of it."
    ),
}

EVENT_GROUPS = {
    "Runs": RUN_EVENTS,
    "Agents": AGENT_EVENTS,
    "Channels": CHANNEL_EVENTS,
    "The engine": ENGINE_EVENTS,
    "The server": SERVER_EVENTS,
    "Workers": WORKER_EVENTS,
}
LOG_EVENTS: dict[str, LogEventSpec] = {
    name: line for group in EVENT_GROUPS.values() for name, line in group.items()
}

COMMON_FIELDS = {
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


class LogMessage(msgspec.Struct):
    """One line: the message of a record of Python's `logging`."""

    name: str
    fields: Mapping[str, Any]
    at: datetime | None = None

    def __str__(self) -> str:
        present = {name: value for name, value in self.fields.items() if value is not None}
        return " ".join((self.name, *(f"{name}={fit_text(str(v))}" for name, v in present.items())))


def fit_text(text: str) -> str:
    """Return the text as it may stand in a line: cut, and with escapes for what does not print."""
    fitted = (
        f"{text[:TEXT_CHARS_MAX]}… {len(text) - TEXT_CHARS_MAX} more"
        if len(text) > TEXT_CHARS_MAX
        else text
    )
    return fitted if fitted.isprintable() else escape(fitted)


def escape(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def log_event(
    log: logging.Logger,
    name: str,
    *,
    at: datetime | None = None,
    error: BaseException | None = None,
    **fields: object,
) -> None:
    """Write the line. `error` is the exception, for lines that have an `exception` field."""
    level = LOG_EVENTS[name].level
    if log.isEnabledFor(level):
        log.log(level, LogMessage(name, fields, at), exc_info=error)


def render_reference() -> str:
    """Return the section of docs/observability.md about the log."""
    parts: list[str] = []
    for title, specs in EVENT_GROUPS.items():
        rows = [
            f"| `{name}` | {logging.getLevelName(spec.level).lower()} | {spec.meaning} |"
            f" {', '.join(f'`{field}`' for field in spec.names)} |"
            for name, spec in specs.items()
        ]
        parts += [f"### {title}", _table("event | level | when | fields", rows)]
        if specs is RUN_EVENTS:
            parts[-1:-1] = ["Every line about a run also has `execution_id` and `seq`."]
    common_rows = [f"| `{name}` | {meaning} |" for name, meaning in COMMON_FIELDS.items()]
    field_rows = [f"| `{name}` | {meaning} |" for name, meaning in sorted(FIELDS.items())]
    parts += ["### Fields of every line", _table("field | meaning", common_rows)]
    parts += ["### Fields", _table("field | meaning", field_rows)]
    return "\n\n".join(parts) + "\n"


def _table(head: str, rows: list[str]) -> str:
    under = "|".join("---" for _ in head.split("|"))
    return "\n".join((f"| {head} |", f"|{under}|", *rows))


if __name__ == "__main__":
    sys.stdout.write(render_reference())

"""Every call of the API, described once: its arguments, what is sent, what comes back.

Both clients have these as methods (`endpoint.py`). Lists come in pages; `client.each` goes through
all of them. Waits are in seconds.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

from handrail.client.agent_calls import AgentCalls
from handrail.client.call import (
    EVENTS,
    MARKDOWN,
    Call,
    Script,
    as_bytes,
    as_text,
    get,
    given,
    nothing,
    path,
    reader,
    send,
)
from handrail.client.channel_calls import ChannelCalls
from handrail.client.endpoint import endpoint, stream
from handrail.client.errors import wrong_file
from handrail.client.guard_calls import GuardCalls
from handrail.client.healing_calls import HealingCalls
from handrail.client.memory_calls import MemoryCalls
from handrail.client.review_calls import ReviewCalls
from handrail.client.shapes import (
    Answered,
    Checked,
    MadeToken,
    Me,
    ReadText,
    SessionView,
    SettingView,
    SignIn,
    TokenView,
    Validated,
)
from handrail.client.stream import LAST, Stream
from handrail.engine.beads import BeadView, FileInfo
from handrail.engine.definitions import Defined, DefinitionItem, DefinitionView
from handrail.engine.figures import WorkflowFigures
from handrail.engine.pages import Page
from handrail.engine.reading import NoteView, RunItem
from handrail.engine.replaying import Replays
from handrail.engine.whole import WholeRun
from handrail.engine.why import Why
from handrail.kernel.approval import Approval
from handrail.kernel.event_shown import ShownEvent
from handrail.kernel.report import Report
from handrail.kernel.shown import Transition
from handrail.kernel.steps import FullStep
from handrail.kernel.tune import Tuning
from handrail.kernel.view import RunSummary, RunView

WAIT_MAX = 60.0
"""The longest that a server keeps an answer back; a longer wait is several calls."""
VERIFY_SECONDS = 3600.0
"""The longest that a check of the whole record may take."""
THINK_SECONDS = 600.0
"""The longest that replaying recorded runs may take."""
Document = dict[str, Any]
Status = Literal["running", "waiting", "paused", "ended"]
BeadStatus = Literal["open", "in_progress", "waiting", "closed", "error"]
Decision = Literal["approve", "reject", "revise"]
Override = Literal["move", "close", "pause", "resume", "migrate"]


class DefinitionCalls:
    @endpoint
    def create_workflow(self, definition: Document | Path | str) -> Call[Defined]:
        """Store a definition: a document, or a file with one."""
        return send("POST", "/workflows", Defined, _document(definition))

    @endpoint
    def validate_workflow(self, definition: Document | Path | str) -> Call[Validated]:
        """What is wrong or doubtful with it; nothing is stored."""
        return send("POST", "/workflows/validate", Validated, _document(definition))

    @endpoint
    def read_workflow(self, text: str) -> Call[ReadText]:
        """The document that a JSON or YAML text holds, as `handrail check` reads it."""
        return send("POST", "/workflows/read", ReadText, {"text": text})

    @endpoint
    def update_workflow(self, workflow_id: str, definition: Document | Path | str) -> Call[Defined]:
        """A new version; runs keep theirs."""
        return send("PUT", path("workflows", workflow_id), Defined, _document(definition))

    @endpoint
    def workflows(
        self, *, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[DefinitionItem]]:
        """The newest version of each."""
        return get("/workflows", Page[DefinitionItem], {"limit": limit, "cursor": cursor})

    @endpoint
    def workflow(self, workflow_id: str, *, version: int | None = None) -> Call[DefinitionView]:
        """By id or name; that version, else the newest."""
        return get(path("workflows", workflow_id), DefinitionView, {"version": version})

    @endpoint
    def workflow_versions(self, workflow_id: str) -> Call[Page[DefinitionItem]]:
        """All of them, the newest first."""
        return get(path("workflows", workflow_id, "versions"), Page[DefinitionItem])

    @endpoint
    def tune(
        self, workflow_id: str, *, share: float | None = None, runs: int | None = None
    ) -> Call[Tuning]:
        """Limits proposed from its ended runs; none that cuts more than that share of good ones."""
        query = {"share": share, "runs": runs}
        return get(path("workflows", workflow_id, "tune"), Tuning, query, wait=THINK_SECONDS)


class BeadCalls:
    @endpoint
    def create_bead(
        self,
        title: str,
        *,
        description: str = "",
        workflow_id: str | None = None,
        context: Document | None = None,
        review: Literal["required", "skip"] | None = None,
        priority: int | None = None,
        key: str = "",
    ) -> Call[BeadView]:
        """File a bead; with a definition, its id or name, a run begins at once. Under the same
        `key` the same bead is meant."""
        body = given(
            title=title,
            description=description or None,
            workflow_id=workflow_id,
            context=context,
            review=review,
            priority=priority,
        )
        return send("POST", "/beads", BeadView, body, key=key)

    @endpoint
    def beads(
        self,
        *,
        status: BeadStatus | None = None,
        type: Literal["work", "approval"] | None = None,  # noqa: A002 - as the API has it
        workflow_id: str | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> Call[Page[BeadView]]:
        """The newest first."""
        query = {"status": status, "type": type, "workflow_id": workflow_id}
        return get("/beads", Page[BeadView], {**query, "limit": limit, "cursor": cursor})

    @endpoint
    def bead(self, bead_id: str) -> Call[BeadView]:
        """As it stands; also a question to people, by its id."""
        return get(path("beads", bead_id), BeadView)

    @endpoint
    def patch_bead(self, bead_id: str, context: Document) -> Call[BeadView]:
        """Merge this into its context (RFC 7396)."""
        return send("PATCH", path("beads", bead_id), BeadView, {"context": context})

    @endpoint
    def start_execution(
        self, bead_id: str, *, workflow_id: str | None = None, from_node: str | None = None
    ) -> Call[RunView]:
        """Another run of the bead, or its first."""
        body = given(workflow_id=workflow_id, from_node=from_node)
        return send("POST", path("beads", bead_id, "executions"), RunView, body)

    @endpoint
    def bead_executions(
        self, bead_id: str, *, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[RunItem]]:
        """Its runs, the newest first."""
        query = {"limit": limit, "cursor": cursor}
        return get(path("beads", bead_id, "executions"), Page[RunItem], query)

    @endpoint
    def bead_history(
        self, bead_id: str, *, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[ShownEvent]]:
        """Everything that happened to it, over all its runs."""
        query = {"limit": limit, "cursor": cursor}
        return get(path("beads", bead_id, "history"), Page[ShownEvent], query)

    @endpoint
    def add_file(
        self,
        bead_id: str,
        name: str,
        content: bytes,
        *,
        content_type: str = "application/octet-stream",
    ) -> Call[FileInfo]:
        """A file for the bead's agents. The same again changes nothing."""
        return Call(
            method="POST",
            path=path("beads", bead_id, "files"),
            read=reader(FileInfo),
            query={"name": name},
            body=content,
            media_type=content_type,
        )

    @endpoint
    def files(self, bead_id: str) -> Call[Page[FileInfo]]:
        """By name, without their contents."""
        return get(path("beads", bead_id, "files"), Page[FileInfo])

    @endpoint
    def file(self, bead_id: str, name: str) -> Call[bytes]:
        """The content of one."""
        where = path("beads", bead_id, "files", name)
        return Call(method="GET", path=where, read=as_bytes, accept="*/*")


class RunCalls:
    @endpoint
    def executions(
        self,
        *,
        status: Status | None = None,
        terminal_status: str | None = None,
        workflow_id: str | None = None,
        q: str | None = None,
        since: datetime | str | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> Call[Page[RunItem]]:
        """The newest first. `q` is in the title, or begins an id; `since` is when it began."""
        query = {
            "status": status,
            "terminal_status": terminal_status,
            "workflow_id": workflow_id,
            "q": q,
            "since": _moment(since),
            "limit": limit,
            "cursor": cursor,
        }
        return get("/executions", Page[RunItem], query)

    @endpoint
    def execution(self, execution_id: str, *, wait: float = 0) -> Call[RunView]:
        """The run; with `wait` at its end, or after so many seconds."""
        return _waiting(execution_id, wait)

    @endpoint
    def whole_execution(self, execution_id: str) -> Call[WholeRun]:
        """The run with its bead, its steps, its report, and why it stands there."""
        return get(path("executions", execution_id, "whole"), WholeRun)

    @endpoint
    def summaries(self, execution_ids: Sequence[str]) -> Call[Page[RunSummary]]:
        """Of these runs, 100 at most, their steps, what they may still use, and their cost."""
        query = {"ids": ",".join(execution_ids)}
        return get("/executions/summaries", Page[RunSummary], query)

    @endpoint
    def result(self, execution_id: str, *, timeout: float | None = None) -> Script[RunView]:
        """The ended run. Raises `TimeoutError` if it has not ended after so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_MAX if until is None else max(0.0, until - time.monotonic())
            run: RunView = yield _waiting(execution_id, min(left, WAIT_MAX))
            if run.status == "ended":
                return run
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"run '{execution_id}' is {run.status} after {timeout} s")

    @endpoint
    def transitions(self, execution_id: str) -> Call[tuple[Transition, ...]]:
        """Where it went, and who sent it."""
        return get(path("executions", execution_id, "transitions"), tuple[Transition, ...])

    @endpoint
    def steps(self, execution_id: str) -> Call[Page[FullStep]]:
        """Every dispatch with its result in full."""
        return get(path("executions", execution_id, "steps"), Page[FullStep])

    @endpoint
    def notes(self, execution_id: str) -> Call[Page[NoteView]]:
        """What was refused, changed nothing and is kept as evidence."""
        return get(path("executions", execution_id, "notes"), Page[NoteView])

    @endpoint
    def report(self, execution_id: str) -> Call[Report]:
        """What happened, and why it stopped."""
        return get(path("executions", execution_id, "report"), Report)

    @endpoint
    def report_markdown(self, execution_id: str) -> Call[str]:
        """The same as text."""
        where = path("executions", execution_id, "report")
        return Call(method="GET", path=where, read=as_text, accept=MARKDOWN)

    @endpoint
    def override(
        self,
        execution_id: str,
        action: Override,
        reason: str,
        *,
        node: str | None = None,
        version: int | None = None,
    ) -> Call[RunView]:
        """Move, close, pause, resume or migrate it, for a reason."""
        body = given(action=action, reason=reason, node=node, version=version)
        return send("POST", path("executions", execution_id, "override"), RunView, body)

    @endpoint
    def why(self, execution_id: str) -> Call[Why]:
        """Why it stopped, waits, or is not worked on."""
        return get(path("executions", execution_id, "why"), Why)

    @endpoint
    def replay(self, execution_ids: Sequence[str], rules: Document | str) -> Call[Replays]:
        """What other stop rules, or a profile, would have made of these runs."""
        body = {"ids": list(execution_ids), "rules": rules}
        return send("POST", "/executions/replay", Replays, body, wait=THINK_SECONDS)

    @stream
    def events(self, execution_id: str, after: int = 0) -> Stream:
        """What happens to the run, from the event after that one to its end."""
        where = path("executions", execution_id, "events")
        call = Call(method="GET", path=where, read=nothing, accept=EVENTS)
        return Stream(call, str(after) if after else "", LAST)

    @stream
    def feed(self, after: str = "") -> Stream:
        """What happens to all runs, from the event after that position on, without an end."""
        return Stream(Call(method="GET", path="/events", read=nothing, accept=EVENTS), after)


class ApprovalCalls:
    @endpoint
    def approvals(
        self,
        *,
        status: Literal["open", "answered", "void", "expired"] | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> Call[Page[Approval]]:
        """Questions to people, those asked last first."""
        query = {"status": status, "limit": limit, "cursor": cursor}
        return get("/approvals", Page[Approval], query)

    @endpoint
    def approval(self, approval_id: str) -> Call[Approval]:
        """One, with all that belongs to it."""
        return get(path("approvals", approval_id), Approval)

    @endpoint
    def answer(
        self,
        approval_id: str,
        text: str = "",
        *,
        decision: Decision | None = None,
        digest: str = "",
    ) -> Call[Answered]:
        """Answer it by a text, or by a decision; `digest` is that of what was shown."""
        body = given(text=text or None, decision=decision, digest=digest or None)
        return send("POST", path("approvals", approval_id, "answer"), Answered, body)


class OfficeCalls:
    @endpoint
    def audit(
        self,
        *,
        execution_id: str | None = None,
        actor: str | None = None,
        people: bool = False,
        limit: int | None = None,
        cursor: str = "",
    ) -> Call[Page[ShownEvent]]:
        """The record, the last first: of one run, by one actor, or only what people did. A page may
        be short, or empty, and not be the last."""
        query = {
            "execution_id": execution_id,
            "actor": actor,
            "people": "true" if people else None,
            "limit": limit,
            "cursor": cursor,
        }
        return get("/audit", Page[ShownEvent], query)

    @endpoint
    def verify_audit(self, *, head: str | None = None) -> Call[Checked]:
        """Whether the record is unaltered; it is read as a whole, and that takes its time. `head`
        was kept elsewhere, and must be among those the record had."""
        return get("/audit/verify", Checked, {"head": head}, wait=VERIFY_SECONDS)

    @endpoint
    def metrics(
        self, *, workflow_id: str | None = None, since: datetime | str | None = None
    ) -> Call[Page[WorkflowFigures]]:
        """Figures per definition, of the runs that ended since then."""
        query = {"workflow_id": workflow_id, "since": _moment(since)}
        return get("/metrics/workflows", Page[WorkflowFigures], query)

    @endpoint
    def create_token(
        self,
        role: str,
        *,
        name: str | None = None,
        agent: str | None = None,
        works_as: Sequence[str] | None = None,
        expires: str | None = None,
    ) -> Call[MadeToken]:
        """A new token for a person (`name`) or an agent (`agent`); it is shown this once."""
        body = given(role=role, name=name, agent=agent, works_as=works_as, expires=expires)
        return send("POST", "/tokens", MadeToken, body)

    @endpoint
    def tokens(self) -> Call[Page[TokenView]]:
        """All of them, without their secrets."""
        return get("/tokens", Page[TokenView])

    @endpoint
    def revoke_token(self, token_id: str) -> Call[None]:
        """Nobody gets in with it any more."""
        return Call(method="DELETE", path=path("tokens", token_id), read=nothing)

    @endpoint
    def create_sign_in(self, name: str, *, role: str = "viewer") -> Call[SignIn]:
        """A one-time link to the page for a person."""
        return send("POST", "/sign-ins", SignIn, {"name": name, "role": role})

    @endpoint
    def sessions(self) -> Call[Page[SessionView]]:
        """One's own sessions of the page; an admin sees all."""
        return get("/sessions", Page[SessionView])

    @endpoint
    def end_session(self, session_id: str) -> Call[None]:
        """Whoever is signed in by it is signed out."""
        return Call(method="DELETE", path=path("sessions", session_id), read=nothing)

    @endpoint
    def settings(self) -> Call[Page[SettingView]]:
        """Each with its value, and where that came from."""
        return get("/settings", Page[SettingView])

    @endpoint
    def me(self) -> Call[Me]:
        """Whose token this is."""
        return get("/me", Me)


class Calls(
    DefinitionCalls,
    BeadCalls,
    RunCalls,
    ApprovalCalls,
    AgentCalls,
    GuardCalls,
    ChannelCalls,
    MemoryCalls,
    HealingCalls,
    ReviewCalls,
    OfficeCalls,
):
    """All of them."""


def _document(source: Document | Path | str) -> Document:
    if isinstance(source, dict):
        return source
    from handrail.engine.documents import load  # only files need it

    document, problems = load(Path(source))
    if problems:
        raise wrong_file(str(source), problems)
    return cast("Document", document)  # what is no object, the server tells


def _waiting(execution_id: str, seconds: float) -> Call[RunView]:
    query = {"wait": seconds or None}
    return get(path("executions", execution_id), RunView, query, wait=seconds)


def _moment(at: datetime | str | None) -> str | None:
    return at.isoformat() if isinstance(at, datetime) else at

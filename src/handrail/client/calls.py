"""Every call of the API, described once: its arguments, its request and its response type.

Both clients have these as methods (`endpoint.py`). Lists come in pages; `client.each` iterates over
all of them. Waits are in seconds.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, cast

from handrail.client.agent_calls import AgentCalls
from handrail.client.bug_calls import BugCalls
from handrail.client.call import (
    EVENT_STREAM,
    MARKDOWN,
    Call,
    CallSequence,
    decode_bytes,
    decode_nothing,
    decode_text,
    drop_none,
    join_path,
    json_decoder,
    json_get,
    json_send,
)
from handrail.client.channel_calls import ChannelCalls
from handrail.client.endpoint import endpoint, stream_endpoint
from handrail.client.errors import unreadable_file
from handrail.client.guard_calls import GuardCalls
from handrail.client.memory_calls import MemoryCalls
from handrail.client.notification_calls import NotificationCalls
from handrail.client.shapes import (
    AnsweredApproval,
    AuditVerification,
    DefinitionValidation,
    MadeToken,
    Me,
    ParsedDocument,
    SessionView,
    SettingView,
    SignInLink,
    TokenView,
)
from handrail.client.sse import LAST_EVENT_TYPE, EventSubscription
from handrail.replay.replay_report import ReplayResults
from handrail.replay.tuning import TuningReport
from handrail.views.approvals import Approval
from handrail.views.beads import BeadView, FileInfo
from handrail.views.definition_statistics import DefinitionStatistics
from handrail.views.definitions import DefinitionItem, DefinitionView, StoredDefinition
from handrail.views.event_view import EventView
from handrail.views.pages import Page
from handrail.views.report import RunReport
from handrail.views.run_details import RunDetails, RunExplanation
from handrail.views.run_view import NoteView, RunItem, RunSummary, RunView
from handrail.views.steps import StepDetails
from handrail.views.view_types import TransitionView

WAIT_SECONDS_MAX = 60.0
"""The longest wait of one call; a longer wait takes several calls."""
VERIFY_SECONDS_MAX = 3600.0
"""The longest that verifying the whole audit record may take."""
REPLAY_SECONDS_MAX = 600.0
"""The longest that replaying recorded runs may take."""
Document = dict[str, Any]
Status = Literal["running", "waiting", "paused", "ended"]
BeadStatus = Literal["open", "in_progress", "waiting", "closed", "error"]
ApprovalDecision = Literal["approve", "reject", "revise"]
OverrideAction = Literal["move", "close", "pause", "resume", "migrate"]


class DefinitionCalls:
    @endpoint
    def create_definition(self, definition: Document | Path | str) -> Call[StoredDefinition]:
        """Store a definition, given as a document or as the path of a file."""
        return json_send("POST", "/workflows", StoredDefinition, _load_document(definition))

    @endpoint
    def validate_definition(self, definition: Document | Path | str) -> Call[DefinitionValidation]:
        """Return the errors and warnings of a definition; nothing is stored."""
        return json_send(
            "POST", "/workflows/validate", DefinitionValidation, _load_document(definition)
        )

    @endpoint
    def parse_definition(self, text: str) -> Call[ParsedDocument]:
        """Parse a JSON or YAML text into a document, as `handrail check` does."""
        return json_send("POST", "/workflows/read", ParsedDocument, {"text": text})

    @endpoint
    def update_definition(
        self, workflow_id: str, definition: Document | Path | str
    ) -> Call[StoredDefinition]:
        """Store a new version; existing runs keep theirs."""
        return json_send(
            "PUT", join_path("workflows", workflow_id), StoredDefinition, _load_document(definition)
        )

    @endpoint
    def list_definitions(
        self, *, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[DefinitionItem]]:
        """List the newest version of each definition."""
        return json_get("/workflows", Page[DefinitionItem], {"limit": limit, "cursor": cursor})

    @endpoint
    def get_definition(
        self, workflow_id: str, *, version: int | None = None
    ) -> Call[DefinitionView]:
        """Return a definition by id or name: the given version, else the newest."""
        return json_get(join_path("workflows", workflow_id), DefinitionView, {"version": version})

    @endpoint
    def list_definition_versions(self, workflow_id: str) -> Call[Page[DefinitionItem]]:
        """List all versions, the newest first."""
        return json_get(join_path("workflows", workflow_id, "versions"), Page[DefinitionItem])

    @endpoint
    def tune_definition(
        self, workflow_id: str, *, share: float | None = None, runs: int | None = None
    ) -> Call[TuningReport]:
        """Propose limits from its ended runs; none cuts more than `share` of the good runs."""
        query = {"share": share, "runs": runs}
        return json_get(
            join_path("workflows", workflow_id, "tune"),
            TuningReport,
            query,
            wait=REPLAY_SECONDS_MAX,
        )


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
        """File a bead. With a definition (id or name), a run begins at once. The same `key` again
        means the same bead."""
        body = drop_none(
            title=title,
            description=description or None,
            workflow_id=workflow_id,
            context=context,
            review=review,
            priority=priority,
        )
        return json_send("POST", "/beads", BeadView, body, key=key)

    @endpoint
    def list_beads(
        self,
        *,
        status: BeadStatus | None = None,
        type: Literal["work", "approval"] | None = None,  # noqa: A002 - as the API has it
        workflow_id: str | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> Call[Page[BeadView]]:
        """List beads, the newest first."""
        query = {"status": status, "type": type, "workflow_id": workflow_id}
        return json_get("/beads", Page[BeadView], {**query, "limit": limit, "cursor": cursor})

    @endpoint
    def get_bead(self, bead_id: str) -> Call[BeadView]:
        """Return a bead as it stands; an approval's id works too."""
        return json_get(join_path("beads", bead_id), BeadView)

    @endpoint
    def patch_bead(self, bead_id: str, context: Document) -> Call[BeadView]:
        """Merge `context` into the bead's context (RFC 7396)."""
        return json_send("PATCH", join_path("beads", bead_id), BeadView, {"context": context})

    @endpoint
    def start_run(
        self, bead_id: str, *, workflow_id: str | None = None, from_node: str | None = None
    ) -> Call[RunView]:
        """Start another run of the bead, or its first."""
        body = drop_none(workflow_id=workflow_id, from_node=from_node)
        return json_send("POST", join_path("beads", bead_id, "executions"), RunView, body)

    @endpoint
    def list_bead_runs(
        self, bead_id: str, *, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[RunItem]]:
        """List the bead's runs, the newest first."""
        query = {"limit": limit, "cursor": cursor}
        return json_get(join_path("beads", bead_id, "executions"), Page[RunItem], query)

    @endpoint
    def list_bead_history(
        self, bead_id: str, *, limit: int | None = None, cursor: str = ""
    ) -> Call[Page[EventView]]:
        """List all events of the bead, over all its runs."""
        query = {"limit": limit, "cursor": cursor}
        return json_get(join_path("beads", bead_id, "history"), Page[EventView], query)

    @endpoint
    def add_bead_file(
        self,
        bead_id: str,
        name: str,
        content: bytes,
        *,
        content_type: str = "application/octet-stream",
    ) -> Call[FileInfo]:
        """Add a file for the bead's agents. Adding the same file again changes nothing."""
        return Call(
            method="POST",
            path=join_path("beads", bead_id, "files"),
            decode=json_decoder(FileInfo),
            query={"name": name},
            body=content,
            media_type=content_type,
        )

    @endpoint
    def list_bead_files(self, bead_id: str) -> Call[Page[FileInfo]]:
        """List the bead's files by name, without their contents."""
        return json_get(join_path("beads", bead_id, "files"), Page[FileInfo])

    @endpoint
    def get_bead_file(self, bead_id: str, name: str) -> Call[bytes]:
        """Return the content of one file."""
        url_path = join_path("beads", bead_id, "files", name)
        return Call(method="GET", path=url_path, decode=decode_bytes, accept="*/*")


class RunCalls:
    @endpoint
    def list_runs(
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
        """List runs, the newest first. `q` matches part of the title or the start of an id;
        `since` compares with the run's start."""
        query = {
            "status": status,
            "terminal_status": terminal_status,
            "workflow_id": workflow_id,
            "q": q,
            "since": _iso_time(since),
            "limit": limit,
            "cursor": cursor,
        }
        return json_get("/executions", Page[RunItem], query)

    @endpoint
    def get_run(self, execution_id: str, *, wait: float = 0) -> Call[RunView]:
        """Return the run; with `wait`, when it ends or after that many seconds."""
        return _get_run_call(execution_id, wait)

    @endpoint
    def get_run_details(self, execution_id: str) -> Call[RunDetails]:
        """Return the run with its bead, steps, report and explanation."""
        return json_get(join_path("executions", execution_id, "whole"), RunDetails)

    @endpoint
    def list_run_summaries(self, execution_ids: Sequence[str]) -> Call[Page[RunSummary]]:
        """Return the steps, remaining limits and cost of these runs, at most 100."""
        query = {"ids": ",".join(execution_ids)}
        return json_get("/executions/summaries", Page[RunSummary], query)

    @endpoint
    def result(self, execution_id: str, *, timeout: float | None = None) -> CallSequence[RunView]:
        """Wait for the run to end and return it. Raises `TimeoutError` after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            wait_seconds = (
                WAIT_SECONDS_MAX if deadline is None else max(0.0, deadline - time.monotonic())
            )
            run: RunView = yield _get_run_call(execution_id, min(wait_seconds, WAIT_SECONDS_MAX))
            if run.status == "ended":
                return run
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"run '{execution_id}' is {run.status} after {timeout} s")

    @endpoint
    def list_transitions(self, execution_id: str) -> Call[tuple[TransitionView, ...]]:
        """List the run's transitions, and who caused each."""
        return json_get(
            join_path("executions", execution_id, "transitions"), tuple[TransitionView, ...]
        )

    @endpoint
    def list_steps(self, execution_id: str) -> Call[Page[StepDetails]]:
        """List every dispatch with its full result."""
        return json_get(join_path("executions", execution_id, "steps"), Page[StepDetails])

    @endpoint
    def list_notes(self, execution_id: str) -> Call[Page[NoteView]]:
        """List refused attempts: they changed nothing and are kept as evidence."""
        return json_get(join_path("executions", execution_id, "notes"), Page[NoteView])

    @endpoint
    def get_report(self, execution_id: str) -> Call[RunReport]:
        """Return the report: what happened, and why the run stopped."""
        return json_get(join_path("executions", execution_id, "report"), RunReport)

    @endpoint
    def get_report_markdown(self, execution_id: str) -> Call[str]:
        """Return the report as Markdown."""
        url_path = join_path("executions", execution_id, "report")
        return Call(method="GET", path=url_path, decode=decode_text, accept=MARKDOWN)

    @endpoint
    def override_run(
        self,
        execution_id: str,
        action: OverrideAction,
        reason: str,
        *,
        node: str | None = None,
        version: int | None = None,
    ) -> Call[RunView]:
        """Move, close, pause, resume or migrate the run, with a reason."""
        body = drop_none(action=action, reason=reason, node=node, version=version)
        return json_send("POST", join_path("executions", execution_id, "override"), RunView, body)

    @endpoint
    def explain_run(self, execution_id: str) -> Call[RunExplanation]:
        """Explain why the run stopped, waits, or is not worked on."""
        return json_get(join_path("executions", execution_id, "why"), RunExplanation)

    @endpoint
    def replay_runs(
        self, execution_ids: Sequence[str], rules: Document | str
    ) -> Call[ReplayResults]:
        """Replay these runs under other stop rules, or under a profile."""
        body = {"ids": list(execution_ids), "rules": rules}
        return json_send("POST", "/executions/replay", ReplayResults, body, wait=REPLAY_SECONDS_MAX)

    @stream_endpoint
    def follow_run(self, execution_id: str, after: int = 0) -> EventSubscription:
        """Follow the run's events, from the one after `after` to the last."""
        url_path = join_path("executions", execution_id, "events")
        call = Call(method="GET", path=url_path, decode=decode_nothing, accept=EVENT_STREAM)
        return EventSubscription(call, str(after) if after else "", LAST_EVENT_TYPE)

    @stream_endpoint
    def follow_events(self, after: str = "") -> EventSubscription:
        """Follow the events of all runs, from the one after position `after` on, without end."""
        return EventSubscription(
            Call(method="GET", path="/events", decode=decode_nothing, accept=EVENT_STREAM), after
        )


class ApprovalCalls:
    @endpoint
    def list_approvals(
        self,
        *,
        status: Literal["open", "answered", "void", "expired"] | None = None,
        limit: int | None = None,
        cursor: str = "",
    ) -> Call[Page[Approval]]:
        """List approvals, the newest first."""
        query = {"status": status, "limit": limit, "cursor": cursor}
        return json_get("/approvals", Page[Approval], query)

    @endpoint
    def get_approval(self, approval_id: str) -> Call[Approval]:
        """Return one approval in full."""
        return json_get(join_path("approvals", approval_id), Approval)

    @endpoint
    def answer_approval(
        self,
        approval_id: str,
        text: str = "",
        *,
        decision: ApprovalDecision | None = None,
        digest: str = "",
    ) -> Call[AnsweredApproval]:
        """Answer with a text or a decision; `digest` is the digest of what the person saw."""
        body = drop_none(text=text or None, decision=decision, digest=digest or None)
        return json_send(
            "POST", join_path("approvals", approval_id, "answer"), AnsweredApproval, body
        )


class AdminCalls:
    @endpoint
    def list_audit_events(
        self,
        *,
        execution_id: str | None = None,
        actor: str | None = None,
        people: bool = False,
        limit: int | None = None,
        cursor: str = "",
    ) -> Call[Page[EventView]]:
        """List audit events, the newest first: of one run, by one actor, or by people only. A page
        may be short, or empty, without being the last."""
        query = {
            "execution_id": execution_id,
            "actor": actor,
            "people": "true" if people else None,
            "limit": limit,
            "cursor": cursor,
        }
        return json_get("/audit", Page[EventView], query)

    @endpoint
    def verify_audit(self, *, head: str | None = None) -> Call[AuditVerification]:
        """Verify that the record is unaltered. The server reads the whole record, which takes time.
        `head` was saved elsewhere, and must be one of the record's heads."""
        return json_get("/audit/verify", AuditVerification, {"head": head}, wait=VERIFY_SECONDS_MAX)

    @endpoint
    def get_definition_metrics(
        self, *, workflow_id: str | None = None, since: datetime | str | None = None
    ) -> Call[Page[DefinitionStatistics]]:
        """Return statistics per definition, over the runs that ended since `since`."""
        query = {"workflow_id": workflow_id, "since": _iso_time(since)}
        return json_get("/metrics/workflows", Page[DefinitionStatistics], query)

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
        """Create a token for a person (`name`) or an agent (`agent`); it is shown only once."""
        body = drop_none(role=role, name=name, agent=agent, works_as=works_as, expires=expires)
        return json_send("POST", "/tokens", MadeToken, body)

    @endpoint
    def list_tokens(self) -> Call[Page[TokenView]]:
        """List all tokens, without their secrets."""
        return json_get("/tokens", Page[TokenView])

    @endpoint
    def revoke_token(self, token_id: str) -> Call[None]:
        """Revoke a token: the server no longer accepts it."""
        return Call(method="DELETE", path=join_path("tokens", token_id), decode=decode_nothing)

    @endpoint
    def create_sign_in(self, name: str, *, role: str = "viewer") -> Call[SignInLink]:
        """Create a one-time link that signs a person in to the web app."""
        return json_send("POST", "/sign-ins", SignInLink, {"name": name, "role": role})

    @endpoint
    def list_sessions(self) -> Call[Page[SessionView]]:
        """List the caller's web app sessions; an admin sees all."""
        return json_get("/sessions", Page[SessionView])

    @endpoint
    def end_session(self, session_id: str) -> Call[None]:
        """End a session: its person is signed out."""
        return Call(method="DELETE", path=join_path("sessions", session_id), decode=decode_nothing)

    @endpoint
    def list_settings(self) -> Call[Page[SettingView]]:
        """List settings, each with its value and where the value came from."""
        return json_get("/settings", Page[SettingView])

    @endpoint
    def get_me(self) -> Call[Me]:
        """Return who the token belongs to."""
        return json_get("/me", Me)


class Calls(
    DefinitionCalls,
    BeadCalls,
    RunCalls,
    ApprovalCalls,
    AgentCalls,
    GuardCalls,
    ChannelCalls,
    MemoryCalls,
    BugCalls,
    NotificationCalls,
    AdminCalls,
):
    """All calls of the API."""


def _load_document(source: Document | Path | str) -> Document:
    if isinstance(source, dict):
        return source
    from handrail.engine.document_parser import load_document  # only files need it

    document, problems = load_document(Path(source))
    if problems:
        raise unreadable_file(str(source), problems)
    return cast("Document", document)  # the server rejects a non-object


def _get_run_call(execution_id: str, seconds: float) -> Call[RunView]:
    query = {"wait": seconds or None}
    return json_get(join_path("executions", execution_id), RunView, query, wait=seconds)


def _iso_time(time: datetime | str | None) -> str | None:
    return time.isoformat() if isinstance(time, datetime) else time

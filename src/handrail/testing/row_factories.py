"""Rows for tests of a store: small, valid, and chained as an engine chains them.

    begun = begin(run("r1"))
    moved = follow(begun, dispatches=[dispatch("r1", 1)])
    store.commit([begun], at())
    store.commit([moved], at(1))

`apply_write` returns a stream's row once a write has won: what a store must return.
"""

from datetime import timedelta
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from handrail.store.beads import FileRow
from handrail.store.credentials import CredentialRow
from handrail.store.rows import (
    EMPTY_HEAD,
    AgentRow,
    ApprovalRow,
    BeadRow,
    ChannelRow,
    DefinitionRow,
    DispatchRow,
    IdempotencyKeyRow,
    JournalEntry,
    LockRow,
    MessageRow,
    NoteRow,
    RunRow,
    StreamRow,
    StreamWrite,
    TransitionRow,
    entry_hash,
    iso,
)
from handrail.store.stats import NodeStatsRow, RunStatsRow
from handrail.store.store import Store
from handrail.testing.clock import NOON

StreamStateRow = RunRow | LockRow | ChannelRow | StreamRow


def at(seconds: float = 0) -> str:
    """Return the moment so many seconds after noon, in the format of rows."""
    return iso(NOON + timedelta(seconds=seconds))


def stream_of(subject: StreamStateRow) -> str:
    if isinstance(subject, RunRow):
        return subject.id
    if isinstance(subject, ChannelRow):
        return f"channel:{subject.id}"
    return f"lock:{subject.repository}" if isinstance(subject, LockRow) else subject.name


def entry(subject: StreamStateRow, *, count: int = 1, body: str | None = None) -> JournalEntry:
    """Return the stream's next journal entry, with `count` events."""
    stream, seq = stream_of(subject), subject.seq + count
    if body is None:
        body = "[" + ",".join(f'{{"e":{n}}}' for n in range(subject.seq + 1, seq + 1)) + "]"
    new_head = entry_hash(subject.head, stream, seq, body)
    return JournalEntry(stream=stream, seq=seq, count=count, body=body, hash=new_head)


def begin(
    subject: StreamStateRow, *, count: int = 1, body: str | None = None, **parts: object
) -> StreamWrite:
    """Return the write that creates the stream."""
    return _write(subject, entry(subject, count=count, body=body), {}, parts)


def follow(
    before: StreamWrite | StreamStateRow,
    *,
    count: int = 1,
    body: str | None = None,
    changes: dict[str, Any] | None = None,
    **parts: object,
) -> StreamWrite:
    """Return the next write: `changes` to the stream row's columns, `parts` of the write."""
    subject = before.row if isinstance(before, StreamWrite) else before
    return _write(subject, entry(subject, count=count, body=body), changes or {}, parts)


def _write(
    subject: StreamStateRow, new: JournalEntry, changes: dict[str, Any], parts: dict[str, object]
) -> StreamWrite:
    write_parts: dict[str, Any] = {**parts}
    new_fields: dict[str, Any] = {"seq": new.seq, "head": new.hash, **changes}
    if isinstance(subject, RunRow):
        if subject.head == EMPTY_HEAD or new_fields.get("state") is not None:
            new_fields.setdefault("state_seq", new.seq)
        else:
            new_fields["state"] = None
    return StreamWrite(
        expected_head=subject.head, entry=new, row=replace(subject, **new_fields), **write_parts
    )


def apply_write(stored: StreamStateRow | None, write: StreamWrite) -> StreamStateRow:
    """Return the stream's row as stored once this write has won."""
    new = write.row
    if not isinstance(new, RunRow) or not isinstance(stored, RunRow):
        return new
    if write.position_only:
        node, updated_at = new.current_node_id, new.updated_at
        return replace(
            stored, current_node_id=node, seq=new.seq, head=new.head, updated_at=updated_at
        )
    if new.state is None:
        return replace(new, state=stored.state, state_seq=stored.state_seq)
    return new


ENDED_RUN_CHANGES = {
    "status": "ended",
    "terminal_status": "done_success",
    "stop_rule": "goal",
    "next_due": None,
    "ended_at": at(99),
    "current_node_id": None,
}
"""The changes to a run that ends."""


def run(run_id: str = "r1", **changes: object) -> RunRow:
    """Return a run that is about to begin; its bead is by default `b-` and its id."""
    fields: dict[str, Any] = {
        "id": run_id,
        "bead_id": f"b-{run_id}",
        "workflow_id": "w1",
        "workflow_version": 1,
        "current_node_id": "start",
        "status": "running",
        "terminal_status": None,
        "stop_rule": None,
        "priority": 0,
        "seq": 0,
        "head": EMPTY_HEAD,
        "next_due": at(600),
        "created_at": at(),
        "updated_at": at(),
        "ended_at": None,
        "state": '{"run":"state"}',
        "state_seq": 0,
    }
    fields.update(changes)
    return RunRow(**fields)


def lock(repository: str = "repo", **changes: object) -> LockRow:
    fields: dict[str, Any] = {
        "repository": repository,
        "holder_execution_id": "r1",
        "holder_step": "commit",
        "fence": 1,
        "seq": 0,
        "head": EMPTY_HEAD,
        "next_due": at(300),
        "updated_at": at(),
        "state": '{"lock":"state"}',
    }
    fields.update(changes)
    return LockRow(**fields)


def stream(name: str = "care") -> StreamRow:
    return StreamRow(name=name, seq=0, head=EMPTY_HEAD)


def transition(run_id: str = "r1", seq: int = 1, **changes: object) -> TransitionRow:
    fields: dict[str, Any] = {
        "execution_id": run_id,
        "seq": seq,
        "from_node_id": "start",
        "to_node_id": "fix",
        "outcome": "success",
        "reason": "it worked",
        "actor": "agent:ada",
        "timestamp": at(1),
    }
    fields.update(changes)
    return TransitionRow(**fields)


def approval(approval_id: str = "q1", run_id: str = "r1", **changes: object) -> ApprovalRow:
    """Return an open approval."""
    fields: dict[str, Any] = {
        "id": approval_id,
        "execution_id": run_id,
        "bead_id": f"b-{run_id}",
        "node_id": "ask",
        "type": "approval",
        "status": "open",
        "question": "May it?",
        "digest": "d" * 64,
        "deadline": at(3600),
        "created_at": at(),
        "decision": None,
        "answer": None,
        "answered_by": None,
        "settled_at": None,
    }
    fields.update(changes)
    return ApprovalRow(**fields)


def answered_approval(
    approval_row: ApprovalRow, name: str = "ola", decision: str = "approve"
) -> ApprovalRow:
    return replace(
        approval_row,
        status="answered",
        decision=decision,
        answer="yes",
        answered_by=name,
        settled_at=at(60),
    )


def dispatch(run_id: str = "r1", fence: int = 1, **changes: object) -> DispatchRow:
    """Return a dispatch offered to the role `coder`, each fence at its own step."""
    fields: dict[str, Any] = {
        "execution_id": run_id,
        "fence": fence,
        "place": f"p{fence}",
        "role": "coder",
        "priority": 0,
        "offered_at": at(),
        "agent": None,
        "session": None,
        "claimed_at": None,
    }
    fields.update(changes)
    return DispatchRow(**fields)


def claimed_dispatch(
    dispatch_row: DispatchRow, agent_id: str = "ada", session: str = "s1"
) -> DispatchRow:
    return replace(dispatch_row, agent=agent_id, session=session, claimed_at=at(5))


def bead(bead_id: str = "b-r1", **changes: object) -> BeadRow:
    fields: dict[str, Any] = {
        "id": bead_id,
        "title": "A bug",
        "description": "It is slow.",
        "status": "open",
        "priority": 1,
        "filed_by": "ola",
        "context": '{"k":1}',
        "error": None,
        "workflow_id": None,
        "execution_id": None,
        "created_at": at(),
        "updated_at": at(),
    }
    fields.update(changes)
    return BeadRow(**fields)


def message(message_id: str = "m1", target: str = "r2", body: str = '{"m":1}') -> MessageRow:
    return MessageRow(id=message_id, target=target, body=body, created_at=at())


def key(name: str = "k1", actor: str = "ola", **changes: object) -> IdempotencyKeyRow:
    fields: dict[str, Any] = {"digest": "d1", "answer": '{"ok":true}', "created_at": at()}
    fields.update(changes)
    return IdempotencyKeyRow(key=name, actor=actor, **fields)


def agent(agent_id: str = "ada", **changes: object) -> AgentRow:
    """Return an agent; its session is by default `s-` and its id."""
    fields: dict[str, Any] = {
        "roles": '["coder"]',
        "capacity": 1,
        "enabled": True,
        "session": f"s-{agent_id}",
        "engine": None,
        "beat_at": at(),
    }
    fields.update(changes)
    return AgentRow(id=agent_id, **fields)


def definition(workflow_id: str = "w1", version: int = 1, **changes: object) -> DefinitionRow:
    fields: dict[str, Any] = {
        "name": f"name of {workflow_id}",
        "kind": "workflow",
        "definition": f'{{"version":{version}}}',
        "created_by": "ola",
        "created_at": at(version),
    }
    fields.update(changes)
    return DefinitionRow(workflow_id=workflow_id, version=version, **fields)


def file(bead_id: str, name: str, content: bytes, **changes: object) -> FileRow:
    fields: dict[str, Any] = {
        "sha256": sha256(content).hexdigest(),
        "size": len(content),
        "content_type": "text/plain",
        "uploaded_by": "ola",
        "created_at": at(),
    }
    fields.update(changes)
    return FileRow(bead_id=bead_id, name=name, content=content, **fields)


def credential(credential_id: str = "c1", **changes: object) -> CredentialRow:
    """Return a token of ola's."""
    fields: dict[str, Any] = {
        "kind": "token",
        "digest": sha256(credential_id.encode()).hexdigest(),
        "name": "ola",
        "agent": None,
        "role": "operator",
        "works_as": None,
        "created_by": "root",
        "created_at": at(),
        "expires_at": None,
        "revoked_at": None,
    }
    fields.update(changes)
    return CredentialRow(id=credential_id, **fields)


def run_stats(run_id: str = "r1", **changes: object) -> RunStatsRow:
    fields: dict[str, Any] = {
        "workflow_id": "w1",
        "ended_at": at(99),
        "seconds": 1.5,
        "terminal_status": "done_success",
        "escalations": 0,
        "tokens": 10,
        "cost": 0.25,
    }
    fields.update(changes)
    return RunStatsRow(execution_id=run_id, **fields)


def node_stats(run_id: str, node: str, dispatches: int, visits: int = 1) -> NodeStatsRow:
    return NodeStatsRow(execution_id=run_id, node=node, visits=visits, dispatches=dispatches)


def note(run_id: str = "r1", number: int = 1, body: str = '{"late":true}') -> NoteRow:
    return NoteRow(execution_id=run_id, at=at(number), actor="agent:ada", code="late", body=body)


def snapshot(store: Store) -> dict[str, Any]:
    """Return all that a store has about runs, so that two moments can be compared."""
    runs = [run.id for run in store.runs.list_by_id()]
    return {
        "runs": store.runs.load(runs),
        "beads": [store.beads.get(run.bead_id) for run in store.runs.list_by_id()],
        "transitions": [store.runs.list_transitions(run_id) for run_id in runs],
        "dispatches": [store.dispatches.list(run_id) for run_id in runs],
        "approvals": store.approvals.list(),
        "messages": store.messages.list(1_000),
        "feed": store.journal.read_feed(0, 1_000),
        "head": store.journal.get_last_commit(),
        "due": store.runs.list_due(at(1_000_000), 1_000),
        "locks": store.locks.load(store.locks.list_due(at(1_000_000), 1_000)),
    }

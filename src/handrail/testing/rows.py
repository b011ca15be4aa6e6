"""Rows for tests of a store: small, valid, and chained as an engine chains them.

    begun = begin(execution("r1"))
    moved = follow(begun, dispatches=[dispatch("r1", 1)])
    store.commit([begun], at())
    store.commit([moved], at(1))

`after` says how a stored subject looks once a write has won: what a store must give back.
"""

from datetime import timedelta
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from handrail.store.chain import START, entry_hash
from handrail.store.channels import ChannelRow
from handrail.store.office import CredentialRow, FileRow, NodeFigures, RunFigures
from handrail.store.port import (
    AgentRow,
    ApprovalRow,
    BeadRow,
    DefinitionRow,
    DispatchRow,
    Entry,
    Execution,
    KeyRow,
    LockState,
    Message,
    Note,
    Store,
    Stream,
    Transition,
    Write,
    iso,
)
from handrail.testing.clock import NOON

Subject = Execution | LockState | ChannelRow | Stream


def at(seconds: float = 0) -> str:
    """So long after noon, as rows have it."""
    return iso(NOON + timedelta(seconds=seconds))


def stream_of(subject: Subject) -> str:
    if isinstance(subject, Execution):
        return subject.id
    if isinstance(subject, ChannelRow):
        return f"channel:{subject.id}"
    return f"lock:{subject.repository}" if isinstance(subject, LockState) else subject.name


def entry(subject: Subject, *, count: int = 1, body: str | None = None) -> Entry:
    """What is recorded next of it: `count` events."""
    stream, seq = stream_of(subject), subject.seq + count
    if body is None:
        body = "[" + ",".join(f'{{"e":{n}}}' for n in range(subject.seq + 1, seq + 1)) + "]"
    hashed = entry_hash(subject.head, stream, seq, body)
    return Entry(stream=stream, seq=seq, count=count, body=body, hash=hashed)


def begin(subject: Subject, *, count: int = 1, body: str | None = None, **parts: object) -> Write:
    """The write that makes it."""
    return _write(subject, entry(subject, count=count, body=body), {}, parts)


def follow(
    before: Write | Subject,
    *,
    count: int = 1,
    body: str | None = None,
    changes: dict[str, Any] | None = None,
    **parts: object,
) -> Write:
    """The write that comes next: `changes` to the subject's columns, `parts` of the write."""
    subject = before.subject if isinstance(before, Write) else before
    return _write(subject, entry(subject, count=count, body=body), changes or {}, parts)


def _write(
    subject: Subject, new: Entry, changes: dict[str, Any], parts: dict[str, object]
) -> Write:
    given: dict[str, Any] = {**parts}
    moved: dict[str, Any] = {"seq": new.seq, "head": new.hash, **changes}
    if isinstance(subject, Execution):
        if subject.head == START or moved.get("state") is not None:
            moved.setdefault("state_seq", new.seq)
        else:
            moved["state"] = None
    return Write(expected=subject.head, entry=new, subject=replace(subject, **moved), **given)


def after(stored: Subject | None, write: Write) -> Subject:
    """The subject as a store has it once this write has won."""
    new = write.subject
    if not isinstance(new, Execution) or not isinstance(stored, Execution):
        return new
    if write.light:
        node, changed = new.current_node_id, new.updated_at
        return replace(stored, current_node_id=node, seq=new.seq, head=new.head, updated_at=changed)
    if new.state is None:
        return replace(new, state=stored.state, state_seq=stored.state_seq)
    return new


ENDED = {
    "status": "ended",
    "terminal_status": "done_success",
    "stop_rule": "goal",
    "next_due": None,
    "ended_at": at(99),
    "current_node_id": None,
}
"""The changes to a run that ends."""


def execution(run_id: str = "r1", **changes: object) -> Execution:
    """A run that is about to begin; its bead is `b-` and its id unless told otherwise."""
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
        "head": START,
        "next_due": at(600),
        "created_at": at(),
        "updated_at": at(),
        "ended_at": None,
        "state": '{"run":"state"}',
        "state_seq": 0,
    }
    fields.update(changes)
    return Execution(**fields)


def lock(repository: str = "repo", **changes: object) -> LockState:
    fields: dict[str, Any] = {
        "repository": repository,
        "holder_execution_id": "r1",
        "holder_step": "commit",
        "fence": 1,
        "seq": 0,
        "head": START,
        "next_due": at(300),
        "updated_at": at(),
        "state": '{"lock":"state"}',
    }
    fields.update(changes)
    return LockState(**fields)


def stream(name: str = "care") -> Stream:
    return Stream(name=name, seq=0, head=START)


def transition(run_id: str = "r1", seq: int = 1, **changes: object) -> Transition:
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
    return Transition(**fields)


def approval(approval_id: str = "q1", run_id: str = "r1", **changes: object) -> ApprovalRow:
    """An open question."""
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


def answered(question: ApprovalRow, who: str = "ola", decision: str = "approve") -> ApprovalRow:
    return replace(
        question,
        status="answered",
        decision=decision,
        answer="yes",
        answered_by=who,
        settled_at=at(60),
    )


def dispatch(run_id: str = "r1", fence: int = 1, **changes: object) -> DispatchRow:
    """On offer for the role `coder`, each fence at a place of its own."""
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


def claimed(offer: DispatchRow, by: str = "ada", session: str = "s1") -> DispatchRow:
    return replace(offer, agent=by, session=session, claimed_at=at(5))


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


def message(message_id: str = "m1", target: str = "r2", body: str = '{"m":1}') -> Message:
    return Message(id=message_id, target=target, body=body, created_at=at())


def key(name: str = "k1", actor: str = "ola", **changes: object) -> KeyRow:
    fields: dict[str, Any] = {"digest": "d1", "answer": '{"ok":true}', "created_at": at()}
    fields.update(changes)
    return KeyRow(key=name, actor=actor, **fields)


def agent(agent_id: str = "ada", **changes: object) -> AgentRow:
    """Its session is `s-` and its id unless told otherwise."""
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
    """A token of ola's."""
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


def figures(run_id: str = "r1", **changes: object) -> RunFigures:
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
    return RunFigures(execution_id=run_id, **fields)


def node_figures(run_id: str, node: str, dispatches: int, visits: int = 1) -> NodeFigures:
    return NodeFigures(execution_id=run_id, node=node, visits=visits, dispatches=dispatches)


def note(run_id: str = "r1", number: int = 1, body: str = '{"late":true}') -> Note:
    return Note(execution_id=run_id, at=at(number), actor="agent:ada", code="late", body=body)


def everything(store: Store) -> dict[str, Any]:
    """All that a store gives about runs, so that two moments can be compared."""
    runs = [run.id for run in store.executions()]
    return {
        "runs": store.load(runs),
        "beads": [store.bead(run.bead_id) for run in store.executions()],
        "transitions": [store.transitions(run_id) for run_id in runs],
        "dispatches": [store.dispatches(run_id) for run_id in runs],
        "approvals": store.approvals(),
        "messages": store.messages(1_000),
        "feed": store.feed(0, 1_000),
        "head": store.head(),
        "due": store.due(at(1_000_000), 1_000),
        "locks": store.load_locks(store.locks_due(at(1_000_000), 1_000)),
    }

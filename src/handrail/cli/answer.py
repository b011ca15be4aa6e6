"""`handrail answer`: open approvals, and people's answers."""

from typing import TYPE_CHECKING, Annotated

import typer

from handrail.cli import output
from handrail.cli.arguments import (
    PAGE_ITEMS,
    ApprovalDecision,
    AsJson,
    Database,
    Server,
    decode_argument,
    find_approval_id,
)
from handrail.cli.command import InputError
from handrail.cli.connection import open_client
from handrail.client.errors import InvalidRequestError
from handrail.kernel.run.state import STOP_OPTIONS, ApprovalKind

if TYPE_CHECKING:
    from handrail.api.approvals import AnsweredApproval
    from handrail.client.clients import AsyncClient
    from handrail.views.approvals import Approval


async def answer(
    approval: Annotated[
        str,
        typer.Argument(
            metavar="APPROVAL", help="The question's id, or a unique part of it or of its run's id."
        ),
    ] = "",
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="OK approves; any other text asks for a revision.")
    ] = "",
    decision: Annotated[
        ApprovalDecision | None, typer.Option(help="The explicit decision, with or without a text.")
    ] = None,
    database: Database = "",
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """List open questions, show one, or answer it.

    Without arguments, lists the open questions; without a text, shows one. An ambiguous text (no,
    wait, hm) is refused: the question stays open, exit code 2.
    """
    async with open_client(database, server) as client:
        if not approval:
            await _list_open(client, as_json=as_json)
            return
        approval_id = await find_approval_id(client, approval)
        if not text and decision is None:
            shown = await client.approvals.get(approval_id)
            output.show(shown, _approval_lines(shown), as_json=as_json)
            return
        answered = await _send_answer(client, approval_id, text, decision)
    output.show(answered, [_answered_line(answered)], as_json=as_json)


async def _list_open(client: "AsyncClient", *, as_json: bool) -> None:
    page = await client.approvals.list(status="open", limit=PAGE_ITEMS)
    note = f"only {PAGE_ITEMS} questions are listed; answer some to see the others"
    output.show(
        page,
        output.TextTable(
            ("question", "kind", "at", "asked", "until", "what is asked"),
            map(_approval_row, page.items),
            "no question is open",
        ),
        as_json=as_json,
        note=note if page.next_cursor else "",
    )


def _answered_line(answered: "AnsweredApproval") -> str:
    approval, run = answered.approval, answered.execution
    approval_id = output.short_id(approval.id)
    if approval.status == "open":
        return f"{approval_id}: noted; {_quorum_progress(approval)}"
    at = f" at {', '.join(run.current_node_ids)}" if run.current_node_ids else ""
    return (
        f"{approval_id}: {approval.decision or approval.status} by {approval.by}"
        f"{_skip_note(approval)}; the run is {run.terminal_status or run.status}{at}"
    )


async def _send_answer(
    client: "AsyncClient", approval_id: str, text: str, decision: ApprovalDecision | None
) -> "AnsweredApproval":
    try:
        return await client.approvals.answer(approval_id, decode_argument(text), decision=decision)
    except InvalidRequestError as error:
        if error.code != "ambiguous_answer":
            raise
        raise InputError(f"{error.detail}, with --decision") from error


def _skip_note(approval: "Approval") -> str:
    """Return a note where an "OK" approves no result: an escalation has none."""
    if approval.type is not ApprovalKind.ESCALATION or approval.decision != "approve":
        return ""
    if approval.options == STOP_OPTIONS:
        return f", so '{approval.node_id}' gets the turn again"
    return f", so it goes on as if '{approval.node_id}' had succeeded"


def _quorum_progress(approval: "Approval") -> str:
    """Return who has approved, and who still has to."""
    by = f" ({', '.join(approval.approved_by)})" if approval.approved_by else ""
    return (
        f"{len(approval.approved_by)} of {approval.quorum} have approved{by}; "
        f"asked still: {', '.join(approval.waits_for)}"
    )


def _approval_row(approval: "Approval") -> list[output.Cell]:
    return [
        output.short_id(approval.id),
        approval.type.value,
        approval.node_id,
        output.format_time(approval.created_at),
        output.format_time(approval.deadline),
        approval.question,
    ]


def _approval_lines(approval: "Approval") -> list[str]:
    """Return the result above, the question below it, and the possible answers."""
    lines = [f"  | {line}" for line in approval.result.splitlines()]
    for attempt in approval.attempt_history:
        visit = f"visit {attempt.visit}, " if approval.attempt_history[-1].visit > 1 else ""
        who = f"{visit}attempt {attempt.n} by {attempt.agent}"
        lines.append(f"  {who}: {attempt.outcome}: {attempt.text}")
    if (check := approval.failed_check) is not None:
        lines.append(
            f"  last failed check, at {check.node_id}: {check.command}: exit code {check.exit_code}"
        )
        lines += [f"  | {line}" for line in check.output.splitlines()]
    lines.append(f"{approval.type.value} at {approval.node_id}: {approval.question}")
    lines += [f"  {step}" for step in approval.proposed_next_steps]
    answer_line = f"answered by {approval.by}: {approval.decision} {approval.answer}".rstrip()
    status = (
        f"open until {output.format_time(approval.deadline)}"
        if approval.status == "open"
        else approval.status
    )
    lines += (
        [f"  {_quorum_progress(approval)}"]
        if approval.status == "open" and approval.quorum > 1
        else []
    )
    return [*lines, answer_line if approval.status == "answered" else status]

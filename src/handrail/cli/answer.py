"""`handrail answer`: open approvals, and people's answers."""

from typing import Literal

from handrail.cli import ids, output
from handrail.cli.api import ApiTarget, call_api
from handrail.cli.database import InputError
from handrail.cli.formatting import decode_argument
from handrail.client.clients import AsyncClient
from handrail.client.errors import InvalidRequestError
from handrail.client.shapes import AnsweredApproval
from handrail.kernel.run.state import ApprovalKind
from handrail.views.approvals import Approval

ApprovalDecision = Literal["approve", "reject", "revise"]
PAGE_ITEMS = 500


def list_open_approvals(target: ApiTarget) -> int:
    """List the open approvals."""

    async def do(client: AsyncClient) -> None:
        page = await client.list_approvals(status="open", limit=PAGE_ITEMS)
        if target.as_json:
            output.print_json(page)
            return
        heads = ("question", "kind", "at", "asked", "until", "what is asked")
        output.print_table(
            heads, [_approval_row(approval) for approval in page.items], "nobody is asked anything"
        )
        if page.next_cursor:
            output.print_note(f"these are the last {PAGE_ITEMS}, and there are more; answer some")

    return call_api(target, do)


def show_approval(target: ApiTarget, partial_id: str) -> int:
    """Show an open approval with all that belongs to it."""

    async def do(client: AsyncClient) -> None:
        approval = await client.get_approval(await ids.find_approval_id(client, partial_id))
        if target.as_json:
            output.print_json(approval)
            return
        for line in _approval_lines(approval):
            output.print_line(line)

    return call_api(target, do)


def answer_approval(
    target: ApiTarget, partial_id: str, text: str, decision: ApprovalDecision | None
) -> int:
    async def do(client: AsyncClient) -> None:
        approval_id = await ids.find_approval_id(client, partial_id)
        answered = await _send_answer(client, approval_id, text, decision)
        if target.as_json:
            output.print_json(answered)
            return
        approval, run = answered.approval, answered.execution
        at = f" at {', '.join(run.current_node_ids)}" if run.current_node_ids else ""
        if approval.status == "open":
            output.print_line(
                f"{output.short_id(approval.id)}: noted; {_quorum_progress(approval)}"
            )
            return
        outcome = approval.decision or approval.status
        message = (
            f"{output.short_id(approval.id)}: {outcome} by {approval.by}{_skip_note(approval)}"
        )
        output.print_line(f"{message}; the run is {run.terminal_status or run.status}{at}")

    return call_api(target, do)


async def _send_answer(
    client: AsyncClient, approval_id: str, text: str, decision: ApprovalDecision | None
) -> AnsweredApproval:
    try:
        return await client.answer_approval(approval_id, decode_argument(text), decision=decision)
    except InvalidRequestError as error:
        if error.code != "ambiguous_answer":
            raise
        raise InputError(f"{error.detail}, with --decision") from error


def _skip_note(approval: Approval) -> str:
    """Return a note where an "OK" approves no result: an escalation has none."""
    if approval.type is not ApprovalKind.ESCALATION or approval.decision != "approve":
        return ""
    return f", so it goes on as if '{approval.node_id}' had succeeded"


def _quorum_progress(approval: Approval) -> str:
    """Return who has approved, and who still has to."""
    by = f" ({', '.join(approval.approved_by)})" if approval.approved_by else ""
    waiting = f"asked still: {', '.join(approval.waits_for)}"
    return f"{len(approval.approved_by)} of {approval.quorum} have approved{by}; {waiting}"


def _approval_row(approval: Approval) -> list[output.Cell]:
    return [
        output.short_id(approval.id),
        approval.type.value,
        approval.node_id,
        output.format_time(approval.created_at),
        output.format_time(approval.deadline),
        approval.question,
    ]


def _approval_lines(approval: Approval) -> list[str]:
    """Return the result above, the question below it, and the possible answers."""
    lines = [f"  | {line}" for line in approval.result.splitlines()]
    for attempt in approval.attempt_history:
        lines.append(f"  attempt {attempt.n} by {attempt.agent}: {attempt.outcome}: {attempt.text}")
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

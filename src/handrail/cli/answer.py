"""`handrail answer`: what people are asked, and their answers."""

from typing import Literal

from handrail.cli import ids, tables
from handrail.cli.asking import Where, ask
from handrail.cli.database import InputError
from handrail.cli.words import typed
from handrail.client.clients import AsyncClient
from handrail.client.errors import Invalid
from handrail.client.shapes import Answered
from handrail.kernel.approval import Approval
from handrail.kernel.run.state import QuestionKind

Decision = Literal["approve", "reject", "revise"]
PAGE = 500


def list_open(where: Where) -> int:
    """The inbox."""

    async def do(client: AsyncClient) -> None:
        page = await client.approvals(status="open", limit=PAGE)
        if where.as_json:
            tables.print_json(page)
            return
        heads = ("question", "kind", "at", "asked", "until", "what is asked")
        tables.print_table(heads, [_row(one) for one in page.items], "nobody is asked anything")
        if page.next_cursor:
            tables.note(f"these are the last {PAGE}, and there are more; answer some")

    return ask(where, do)


def show_one(where: Where, given: str) -> int:
    """A question with all that belongs to it: there is no answer yet."""

    async def do(client: AsyncClient) -> None:
        found = await client.approval(await ids.approval_id(client, given))
        if where.as_json:
            tables.print_json(found)
            return
        for line in _lines(found):
            tables.print_line(line)

    return ask(where, do)


def answer_one(where: Where, given: str, text: str, decision: Decision | None) -> int:
    async def do(client: AsyncClient) -> None:
        asked = await ids.approval_id(client, given)
        done = await _answered(client, asked, text, decision)
        if where.as_json:
            tables.print_json(done)
            return
        approval, run = done.approval, done.execution
        at = f" at {', '.join(run.current_node_ids)}" if run.current_node_ids else ""
        if approval.status == "open":
            tables.print_line(f"{tables.short(approval.id)}: noted; {_asked(approval)}")
            return
        said = approval.decision or approval.status
        told = f"{tables.short(approval.id)}: {said} by {approval.by}{_skipped(approval)}"
        tables.print_line(f"{told}; the run is {run.terminal_status or run.status}{at}")

    return ask(where, do)


async def _answered(
    client: AsyncClient, asked: str, text: str, decision: Decision | None
) -> Answered:
    try:
        return await client.answer(asked, typed(text), decision=decision)
    except Invalid as error:
        if error.code != "ambiguous_answer":
            raise
        raise InputError(f"{error.detail}, with --decision") from error


def _skipped(one: Approval) -> str:
    """An "OK" to an escalation approves no result: there is none."""
    if one.type is not QuestionKind.ESCALATION or one.decision != "approve":
        return ""
    return f", so it goes on as if '{one.node_id}' had succeeded"


def _asked(one: Approval) -> str:
    """Who has approved, and who is asked still."""
    by = f" ({', '.join(one.approved_by)})" if one.approved_by else ""
    still = f"asked still: {', '.join(one.waits_for)}"
    return f"{len(one.approved_by)} of {one.quorum} have approved{by}; {still}"


def _row(one: Approval) -> list[tables.Cell]:
    return [
        tables.short(one.id),
        one.type.value,
        one.node_id,
        tables.at(one.created_at),
        tables.at(one.deadline),
        one.question,
    ]


def _lines(one: Approval) -> list[str]:
    """The result above, the question below it, and what can be said."""
    lines = [f"  | {line}" for line in one.result.splitlines()]
    for tried in one.attempt_history:
        lines.append(f"  attempt {tried.n} by {tried.agent}: {tried.outcome}: {tried.text}")
    lines.append(f"{one.type.value} at {one.node_id}: {one.question}")
    lines += [f"  {step}" for step in one.proposed_next_steps]
    answered = f"answered by {one.by}: {one.decision} {one.answer}".rstrip()
    status = f"open until {tables.at(one.deadline)}" if one.status == "open" else one.status
    lines += [f"  {_asked(one)}"] if one.status == "open" and one.quorum > 1 else []
    return [*lines, answered if one.status == "answered" else status]

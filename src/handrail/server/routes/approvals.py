"""Approvals: the answers of people, with their token or by a link.

The kernel decides who may answer, and what an answer means. This module takes the author from the
token, and stores a replayed answer, to an approval that is settled or has changed, as evidence.

An answer link lets one person answer one approval from a mail or a chat, once. GET shows what the
link will do, and does nothing, however often mail programs prefetch it. POST answers, once, under
the same rules as `POST /approvals/{id}/answer`: a link that is used or expired, or whose approval
is settled or has changed, changes nothing. The link is the authority: no token is needed, and the
person of a session does not count.
"""

import html
from typing import Any
from urllib.parse import parse_qs

import msgspec
from litestar import MediaType, Response

from handrail.api.approvals import (
    AnsweredApproval,
    AnswerLinkCalls,
    ApprovalAnswer,
    ApprovalCalls,
    LinkAnswer,
    LinkAnswered,
    LinkView,
    MadeLink,
    NewLink,
)
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.kernel.definition.reader import parse_duration
from handrail.kernel.run.state import STOP_OPTIONS, ApprovalKind, Person, Run
from handrail.server.access import Caller, HTTPRequest, check_same_site, record_refused_attempt
from handrail.server.answer_links import (
    LINK_SECONDS_MAX,
    current_person,
    find_valid_link,
    link_path,
    make_link_row,
    make_link_secret,
)
from handrail.server.binding import decode_body, serves
from handrail.server.problems import FieldError, HTTPProblemError, problem_from
from handrail.server.settings import ServerSettings
from handrail.store.notifications import AnswerLinkRow
from handrail.store.rows import iso, parse_iso
from handrail.views.approvals import Approval

DECISION_EFFECTS = {
    "approve": "it goes on",
    "revise": "it goes back, with your text",
    "reject": "it ends here, or takes the way that is there for failure",
}
REPLAYED_ANSWER_CODES = ("not_open", "changed", "ended", "answered_before")
"""Refusals of an answer to an approval that is not open, or has changed."""
FORM_TYPE = "application/x-www-form-urlencoded"
PAGE_HTML = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title} - Handrail</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><link rel="stylesheet" href="/assets/sign-in.css"></head>
<body><main><h1>{title}</h1>
{body}
</main></body>
</html>
"""
APPROVAL_HTML = """<pre>{result}</pre>
<p><strong>{question}</strong></p>
<p>You answer as {person}, once, until {until}. What is shown has the digest
<code>{digest}</code>; if it changes, this link does nothing.</p>
{forms}"""
BUTTON_HTML = """<form method="post"><input type="hidden" name="decision" value="{decision}">{field}
<p><button>{label}</button> {told}</p></form>"""
FIELD_HTML = """<p><label>{label}<br>
<textarea name="text" rows="4" cols="60"{required}></textarea></label></p>"""


@serves(ApprovalCalls.answer)
async def answer_approval(
    engine: Engine, caller: Caller, key: str, approval_id: str, data: ApprovalAnswer
) -> AnsweredApproval:
    approval = await engine.approvals.get(approval_id)
    evidence = {"digest": data.digest, "decision": data.decision or ""}
    await _answer(engine, approval, caller, data, data.digest, key, evidence)
    return AnsweredApproval(
        approval=await engine.approvals.get(approval_id),
        execution=await engine.run_queries.view(approval.execution_id),
    )


async def _answer(
    engine: Engine,
    approval: Approval,
    caller: Caller,
    answer: ApprovalAnswer | LinkAnswer,
    digest: str,
    key: str,
    evidence: dict[str, str],
) -> Run:
    """Answer; `evidence` is stored with a replayed answer."""
    try:
        return await engine.approvals.answer(
            approval.id,
            answer.text,
            by=caller.person,
            decision=answer.decision,
            digest=digest,
            key=key,
        )
    except RefusedError as refused:
        code, reason = refused.refusal.code, refused.refusal.message
        if code == "ambiguous_answer":
            choices = tuple(
                FieldError("choice", "decision", name, effect)
                for name, effect in DECISION_EFFECTS.items()
            )
            raise HTTPProblemError(422, code, str(refused), errors=choices) from refused
        if code in REPLAYED_ANSWER_CODES:
            fields = {"approval_id": approval.id, "text": answer.text, **evidence, "refused": code}
            run_id = approval.execution_id
            await record_refused_attempt(engine, caller, "replayed_answer", reason, run_id, fields)
        raise


@serves(AnswerLinkCalls.create)
async def create_answer_link(
    engine: Engine, caller: Caller, settings: ServerSettings, approval_id: str, data: NewLink
) -> MadeLink:
    person = _link_person(caller, data)
    approval = await engine.approvals.get(approval_id)
    await engine.approvals.check_may_answer(approval_id, person)
    link_seconds = parse_duration(data.expires) if data.expires else LINK_SECONDS_MAX
    if not link_seconds:
        raise HTTPProblemError(
            422,
            "bad_value",
            f"'{data.expires}' is not a duration",
            "write 2d or 12h",
            field="expires",
        )
    secret, now = make_link_secret(), engine.clock()
    row = make_link_row(secret, approval, person, by=caller.name, now=now, seconds=link_seconds)
    await engine.approvals.add_link(row)
    path = link_path(secret)
    return MadeLink(
        id=row.id,
        approval_id=approval_id,
        name=row.name,
        path=path,
        url=f"{settings.public_url}{path}" if settings.public_url else "",
        expires_at=parse_iso(row.expires_at),
    )


def _link_person(caller: Caller, new_link: NewLink) -> Person:
    if not new_link.name or new_link.name == caller.name:
        return caller.person
    if not caller.is_at_least("admin"):
        raise HTTPProblemError(
            403,
            "foreign_link",
            f"{caller.name} ({caller.role}) makes links for itself, not for '{new_link.name}'",
            "an admin makes them for others",
        )
    return Person(name=new_link.name, role=new_link.role)


@serves(AnswerLinkCalls.get)
async def get_answer_link(request: HTTPRequest, engine: Engine, token: str) -> Response[Any]:
    try:
        row = await find_valid_link(engine, token)
        approval, person = await _find_open_approval(engine, row)
    except (HTTPProblemError, RefusedError) as error:
        return _problem_response(request, error)
    view = LinkView(
        approval=approval,
        name=person.name,
        expires_at=parse_iso(row.expires_at),
        does=_describe_decisions(approval),
    )
    if _wants_page(request):
        return _html_response(_title(approval), _approval_html(view))
    return Response(view)


@serves(AnswerLinkCalls.use)
async def use_answer_link(request: HTTPRequest, engine: Engine, token: str) -> Response[Any]:
    try:
        check_same_site(request)
        row = await find_valid_link(engine, token)
        answered = await _answer_by_link(engine, row, await _read_answer(request))
    except (HTTPProblemError, RefusedError) as error:
        return _problem_response(request, error)
    if _wants_page(request):
        decision = answered.approval.decision or "noted; others are asked still"
        return _html_response("Done", f"<p>Your answer: {html.escape(decision)}.</p>")
    return Response(answered)


async def _find_open_approval(engine: Engine, row: AnswerLinkRow) -> tuple[Approval, Person]:
    """Return the approval and the person, or raise why the link cannot answer."""
    approval = await engine.approvals.get(row.approval_id)
    if approval.status != "open":
        by = f" by {approval.by}" if approval.by else ""
        raise HTTPProblemError(
            409,
            "not_open",
            f"the approval of this link is {approval.status}{by}",
            "there is nothing to answer",
        )
    if approval.digest != row.shown:
        raise HTTPProblemError(
            409,
            "changed",
            "the content of the approval has changed since this link was made",
            "ask for a new link",
        )
    person = await current_person(engine, row)
    await engine.approvals.check_may_answer(row.approval_id, person)
    return approval, person


async def _answer_by_link(
    engine: Engine, row: AnswerLinkRow, link_answer: LinkAnswer
) -> LinkAnswered:
    """Answer. The answer's transaction checks all again, with the link's id as its key."""
    open_approval, person = await _find_open_approval(engine, row)
    caller, key = Caller(name=person.name, role=person.role), f"http:answer-link:{row.id}"
    try:
        run = await _answer(
            engine, open_approval, caller, link_answer, row.shown, key, {"link": row.id}
        )
    except RefusedError as refused:
        if refused.refusal.code == "key_reused":
            raise HTTPProblemError(
                410, "link_used", "this link was used before", "it answers once"
            ) from refused
        raise
    await engine.approvals.use_link(row.id)
    status = run.terminal_status.value if run.terminal_status is not None else None
    approval = await engine.approvals.get(row.approval_id)
    return LinkAnswered(approval=approval, run_status=run.status.value, terminal_status=status)


async def _read_answer(request: HTTPRequest) -> LinkAnswer:
    raw = await request.body()
    if request.content_type[0] != FORM_TYPE:
        return decode_body(raw, LinkAnswer)
    try:
        fields = parse_qs(raw.decode(), max_num_fields=10, errors="strict")
    except ValueError as error:
        raise HTTPProblemError(
            400, "bad_form", "the form cannot be read", "open the link again"
        ) from error
    texts = {name: values[0].replace("\r\n", "\n") for name, values in fields.items()}
    body_fields = {name: texts[name] for name in ("text", "decision") if name in texts}
    return decode_body(msgspec.json.encode(body_fields), LinkAnswer)


# The page, without a script


def _wants_page(request: HTTPRequest) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _html_response(title: str, body: str, status: int = 200) -> Response[Any]:
    text = PAGE_HTML.format(title=html.escape(title), body=body)
    return Response(text, status_code=status, media_type=MediaType.HTML)


def _problem_response(
    request: HTTPRequest, error: HTTPProblemError | RefusedError
) -> Response[Any]:
    """Return the problem as a page for a browser; else raise it."""
    problem = problem_from(error)
    if problem is None or not _wants_page(request):
        raise error
    choices = "".join(
        f"<li>{html.escape(field_error.message)}: {html.escape(field_error.hint)}</li>"
        for field_error in problem.errors
    )
    body = f"<p>{html.escape(problem.detail)}</p>" + (f"<ul>{choices}</ul>" if choices else "")
    return _html_response("Nothing was done", body, problem.status)


def _title(approval: Approval) -> str:
    return "A question" if approval.own else "Approve, or say what to change"


def _describe_decisions(approval: Approval) -> dict[str, str]:
    if approval.own:
        return {"revise": "the agent goes on with your text", "reject": DECISION_EFFECTS["reject"]}
    if approval.options == STOP_OPTIONS:
        again = f"'{approval.node_id}' gets the turn again, with all counts at zero"
        return {"approve": again, "revise": f"{again}, and your text", "reject": "the run ends"}
    if approval.type is ApprovalKind.ESCALATION:  # an escalation has no result to approve
        return DECISION_EFFECTS | {
            "approve": f"it goes on as if '{approval.node_id}' had succeeded",
            "revise": f"'{approval.node_id}' is tried again, with your text",
        }
    return DECISION_EFFECTS


def _approval_html(view: LinkView) -> str:
    approval = view.approval
    return APPROVAL_HTML.format(
        result=html.escape(approval.result or str(approval.proposal or "")),
        question=html.escape(approval.question),
        person=html.escape(view.name),
        until=html.escape(iso(view.expires_at)),
        digest=html.escape(approval.digest[:16]),
        forms="\n".join(
            _form_html(decision, effect, approval) for decision, effect in view.does.items()
        ),
    )


DECISION_LABELS = {
    "approve": ("Approve", ""),
    "revise": ("Retry", "What to change"),
    "reject": ("Reject", ""),
}


def _form_html(decision: str, effect: str, approval: Approval) -> str:
    label, field_label = DECISION_LABELS[decision]
    if approval.own and decision == "revise":
        label, field_label = "Answer", " / ".join(approval.options) or "Your answer"
    field = (
        FIELD_HTML.format(label=html.escape(field_label), required=" required")
        if field_label
        else ""
    )
    return BUTTON_HTML.format(decision=decision, field=field, label=label, told=html.escape(effect))

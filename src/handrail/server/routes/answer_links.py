"""One-time links: an answer from a mail or a chat, by one person to one question.

Looking (GET) shows what the link will do, and does nothing, however often mail programs look before
people do. Sending (POST) answers, once, in the same way and under the same rules as
`POST /approvals/{id}/answer`: what is used, expired, settled or shows something else by now changes
nothing. The link is the authority: no token is asked for, and a session's person does not count.
"""

import html
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIType

from handrail.engine.engine import Engine
from handrail.engine.refused import Refused
from handrail.kernel.approval import Approval
from handrail.kernel.decision import Value
from handrail.kernel.reading import seconds
from handrail.kernel.run.state import Person, QuestionKind
from handrail.kernel.shown import Shown
from handrail.server.access import Caller, PersonRole
from handrail.server.authors import keep
from handrail.server.bodies import Text, read_body
from handrail.server.idempotency import SHOWN_ONCE
from handrail.server.links import LINK_SECONDS_MAX, known, link_to, new_secret, path_of, person_of
from handrail.server.problems import Place, Wrong, documented, wrong_of
from handrail.server.routes.approvals import CHOICES, REPLAYED, ambiguous
from handrail.server.routes.page import OURS
from handrail.server.secrets import NAME_MAX
from handrail.server.settings import ServerSettings
from handrail.store.reviews import LinkRow

BODY_MAX = 1_000_000
FORM = "application/x-www-form-urlencoded"
DECISIONS = ("approve", "revise", "reject")
Name = Annotated[str, msgspec.Meta(max_length=NAME_MAX, pattern=r"^[^\x00-\x1f\x7f]*$(?!\n)")]
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title} - Handrail</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex"><link rel="stylesheet" href="/assets/sign-in.css"></head>
<body><main><h1>{title}</h1>
{body}
</main></body>
</html>
"""
QUESTION = """<pre>{result}</pre>
<p><strong>{question}</strong></p>
<p>You answer as {person}, once, until {until}. What is shown has the digest
<code>{digest}</code>; if it changes, this link does nothing.</p>
{forms}"""
BUTTON = """<form method="post"><input type="hidden" name="decision" value="{decision}">{field}
<p><button>{label}</button> {told}</p></form>"""
FIELD = """<p><label>{label}<br>
<textarea name="text" rows="4" cols="60"{required}></textarea></label></p>"""


class NewLink(Value):
    """For whom: left out, for whoever asks. An admin says for whom, and with which role."""

    name: Name = ""
    role: PersonRole = "operator"
    expires: Annotated[str, msgspec.Meta(max_length=40)] = ""
    """Such as "2d"; it ends with the question in any case."""


class MadeLink(Value, omit_defaults=False):
    """Shown this once; of the secret only a digest is kept."""

    id: str
    approval_id: str
    name: str
    path: str
    url: str
    """Empty without the setting public_url."""
    expires_at: str


class LinkView(Shown):
    """What the link will do: `does` says what comes of each decision."""

    approval: Approval
    name: str
    expires_at: str
    does: dict[str, str]


class LinkReply(Value):
    text: Text = ""
    decision: Literal["approve", "reject", "revise"] | None = None


class LinkAnswered(Shown):
    """The question after the answer, and how its run stands."""

    approval: Approval
    run_status: str
    terminal_status: str | None


@post("/approvals/{approval_id:str}/links", responses=documented(404, 409), opt={SHOWN_ONCE: True})
async def make_link(
    engine: Engine, caller: Caller, settings: ServerSettings, approval_id: str, data: NewLink
) -> MadeLink:
    """A one-time link with which one person answers this question, without a token. For oneself, by
    who may answer it; an admin makes one for anybody who may."""
    person = _for_whom(caller, data)
    approval = await engine.approval(approval_id)
    await engine.check_may_answer(approval_id, person)
    lasting = seconds(data.expires) if data.expires else LINK_SECONDS_MAX
    if not lasting:
        told, hint = f"'{data.expires}' is no duration", "say 2d or 12h"
        place = Place("bad_value", "expires", told, hint)
        raise Wrong(422, "bad_value", f"expires: {told}; {hint}", errors=(place,))
    secret, now = new_secret(), engine.clock()
    row = link_to(secret, approval, person, by=caller.name, now=now, seconds=lasting)
    await engine.add_link(row)
    path = path_of(secret)
    return MadeLink(
        id=row.id,
        approval_id=approval_id,
        name=row.name,
        path=path,
        url=f"{settings.public_url}{path}" if settings.public_url else "",
        expires_at=row.expires_at,
    )


def _for_whom(caller: Caller, wanted: NewLink) -> Person:
    if not wanted.name or wanted.name == caller.name:
        return caller.person
    if not caller.is_at_least("admin"):
        told = f"{caller.name} ({caller.role}) makes links for itself, not for '{wanted.name}'"
        raise Wrong(403, "foreign_link", f"{told}; an admin makes them for others")
    return Person(name=wanted.name, role=wanted.role)


@dataclass
class Replying(Operation):
    """The call's two kinds of body, for the OpenAPI document."""

    def __post_init__(self) -> None:
        text = Schema(type=OpenAPIType.STRING)
        chosen = Schema(type=OpenAPIType.STRING, enum=DECISIONS)
        reply = Schema(type=OpenAPIType.OBJECT, properties={"text": text, "decision": chosen})
        kinds = {kind: OpenAPIMediaType(schema=reply) for kind in ("application/json", FORM)}
        self.request_body = RequestBody(required=True, content=kinds)


SHOWN = ResponseSpec(data_container=LinkView, description="What the link will do; nothing is done.")
DONE = ResponseSpec(data_container=LinkAnswered, description="It is done.")


@get("/answer-links/{token:str}", responses={**documented(404, 409, 410), 200: SHOWN})
async def show_link(request: Request[Any, Any, Any], engine: Engine, token: str) -> Response[Any]:
    """What the link will do, as JSON, or as a page for a browser. Nothing is done by looking."""
    try:
        row = await known(engine, token)
        approval, person = await _standing(engine, row)
    except (Wrong, Refused) as error:
        return _told(request, error)
    view = LinkView(
        approval=approval, name=person.name, expires_at=row.expires_at, does=_does(approval)
    )
    if _wants_page(request):
        return _page(_title(approval), _question(view))
    return Response(view)


@post(
    "/answer-links/{token:str}",
    status_code=200,
    responses={**documented(404, 409, 410), 200: DONE},
    request_max_body_size=BODY_MAX,
    operation_class=Replying,
)
async def use_link(request: Request[Any, Any, Any], engine: Engine, token: str) -> Response[Any]:
    """Answer, once. The body is that of an answer: a text, or a decision with or without one; a
    form with these fields does too."""
    try:
        if request.headers.get("sec-fetch-site", OURS[0]) not in OURS:
            raise Wrong(403, "csrf", "another site has sent this; open the link itself")
        row = await known(engine, token)
        reply = await _reply(request)
        done = await _answer(engine, row, reply)
    except (Wrong, Refused) as error:
        return _told(request, error)
    if _wants_page(request):
        said = done.approval.decision or "noted; others are asked still"
        return _page("Done", f"<p>Your answer: {html.escape(said)}.</p>")
    return Response(done)


async def _standing(engine: Engine, row: LinkRow) -> tuple[Approval, Person]:
    """The question as the link shows it, and who answers; or why nobody can."""
    approval = await engine.approval(row.approval_id)
    if approval.status != "open":
        by = f" by {approval.by}" if approval.by else ""
        told = f"what this link is about is {approval.status}{by}; there is nothing to answer"
        raise Wrong(409, "not_open", told)
    if approval.digest != row.shown:
        told = "what this link is about shows something else by now; ask for a new link"
        raise Wrong(409, "changed", told)
    person = await person_of(engine, row)
    await engine.check_may_answer(row.approval_id, person)
    return approval, person


async def _answer(engine: Engine, row: LinkRow, reply: LinkReply) -> LinkAnswered:
    """All is asked again in the answer's own transaction, to which the link's id is the key."""
    asked, person = await _standing(engine, row)
    try:
        run = await engine.answer(
            row.approval_id,
            reply.text,
            by=person,
            decision=reply.decision,
            digest=row.shown,
            key=f"http:answer-link:{row.id}",
        )
    except Refused as refused:
        code = refused.refusal.code
        if code == "ambiguous_answer":
            raise ambiguous(refused) from refused
        if code == "key_reused":
            raise Wrong(410, "link_used", "this link was used before; it answers once") from refused
        if code in REPLAYED:
            said = {"approval_id": asked.id, "text": reply.text, "refused": code, "link": row.id}
            caller, told = Caller(name=person.name, role=person.role), refused.refusal.message
            await keep(engine, caller, "replayed_answer", told, asked.execution_id, said)
        raise
    await engine.use_link(row.id)
    status = run.terminal_status.value if run.terminal_status is not None else None
    approval = await engine.approval(row.approval_id)
    return LinkAnswered(approval=approval, run_status=run.status.value, terminal_status=status)


async def _reply(request: Request[Any, Any, Any]) -> LinkReply:
    raw = await request.body()
    if request.content_type[0] != FORM:
        return read_body(raw, LinkReply)
    try:
        fields = parse_qs(raw.decode(), max_num_fields=10, errors="strict")
    except ValueError as error:
        raise Wrong(400, "bad_form", "the form cannot be read; open the link again") from error
    said = {name: values[0].replace("\r\n", "\n") for name, values in fields.items()}
    wanted = {name: said[name] for name in ("text", "decision") if name in said}
    return read_body(msgspec.json.encode(wanted), LinkReply)


# The page, without a script


def _wants_page(request: Request[Any, Any, Any]) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _page(title: str, body: str, status: int = 200) -> Response[Any]:
    text = PAGE.format(title=html.escape(title), body=body)
    return Response(text, status_code=status, media_type=MediaType.HTML)


def _told(request: Request[Any, Any, Any], error: Wrong | Refused) -> Response[Any]:
    """A problem document, or for a browser the same words."""
    wrong = wrong_of(error)
    if wrong is None or not _wants_page(request):
        raise error
    choices = "".join(
        f"<li>{html.escape(one.message)}: {html.escape(one.hint)}</li>" for one in wrong.errors
    )
    told = f"<p>{html.escape(wrong.detail)}</p>" + (f"<ul>{choices}</ul>" if choices else "")
    return _page("Nothing was done", told, wrong.status)


def _title(approval: Approval) -> str:
    return "A question" if approval.own else "Approve, or say what to change"


def _does(approval: Approval) -> dict[str, str]:
    if approval.own:
        return {"revise": "the agent goes on with your text", "reject": CHOICES["reject"]}
    if approval.type is QuestionKind.ESCALATION:  # there is no result that could be approved
        return CHOICES | {
            "approve": f"it goes on as if '{approval.node_id}' had succeeded",
            "revise": f"'{approval.node_id}' is tried again, with your text",
        }
    return CHOICES


def _question(view: LinkView) -> str:
    approval = view.approval
    forms = "\n".join(_form(decision, told, approval) for decision, told in view.does.items())
    return QUESTION.format(
        result=html.escape(approval.result or str(approval.proposal or "")),
        question=html.escape(approval.question),
        person=html.escape(view.name),
        until=html.escape(view.expires_at),
        digest=html.escape(approval.digest[:16]),
        forms=forms,
    )


LABELS = {
    "approve": ("Approve", ""),
    "revise": ("Retry", "What to change"),
    "reject": ("Reject", ""),
}


def _form(decision: str, told: str, approval: Approval) -> str:
    label, asks = LABELS[decision]
    if approval.own and decision == "revise":
        label, asks = "Answer", " / ".join(approval.options) or "Your answer"
    field = FIELD.format(label=html.escape(asks), required=" required") if asks else ""
    return BUTTON.format(decision=decision, field=field, label=label, told=html.escape(told))


HANDLERS = [make_link, show_link, use_link]

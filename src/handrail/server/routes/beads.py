"""Beads: people file them, change them, start runs of them, and attach files for their agents.

An upload is the body itself, with `?name=`, or the one file of a form (`curl -F file=@x`). A
download has the file's own type, but as an attachment that browsers neither sniff nor open here.
"""

import mimetypes
import re
from typing import Any
from urllib.parse import quote

from litestar import Response
from litestar.datastructures import UploadFile

from handrail.api.beads import BeadCalls, BeadPatch, FileQuery, NewBead
from handrail.api.operation import ANY_MEDIA_TYPE
from handrail.api.runs import NewRun, RunCalls
from handrail.api.shared import AuthoredBody, PageQuery
from handrail.engine.engine import Engine
from handrail.engine.errors import RefusedError
from handrail.server.access import Caller, HTTPRequest, check_author, check_holds_bead
from handrail.server.binding import serves
from handrail.server.problems import HTTPProblemError, refusal_at_field
from handrail.views.beads import BeadView, FileInfo
from handrail.views.event_view import EventView
from handrail.views.run_view import RunItem, RunView
from handrail.views.view_types import Page

FORM_TYPE = "multipart/form-data"
UNSPECIFIC_TYPES = ("", ANY_MEDIA_TYPE, "application/x-www-form-urlencoded")
"""Types that say nothing about a file: programs send them by default."""
TYPE_CHARS_MAX = 100
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?charset=[\w-]+)?", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._ -]")
DEFINITION_REFUSALS = {"unknown_definition": "workflow_id", "no_workflow": "workflow_id"}
"""Refusals of a definition, and the field that names it."""


@serves(BeadCalls.create)
async def create_bead(engine: Engine, caller: Caller, key: str, data: NewBead) -> BeadView:
    names = [name for name in NewBead.__struct_fields__ if not hasattr(AuthoredBody, name)]
    fields: dict[str, Any] = {name: getattr(data, name) for name in names}
    try:
        return await engine.beads.create(**fields, by=caller.person, key=key)
    except RefusedError as refused:
        raise refusal_at_field(refused, **DEFINITION_REFUSALS) from refused


@serves(BeadCalls.patch)
async def patch_bead(engine: Engine, caller: Caller, bead_id: str, data: BeadPatch) -> BeadView:
    return await engine.beads.patch(bead_id, data.context, caller.person)


@serves(RunCalls.start)
async def start_run(
    engine: Engine, caller: Caller, key: str, bead_id: str, data: NewRun
) -> RunView:
    try:
        run_id = await engine.beads.restart(
            bead_id,
            workflow_id=data.workflow_id or "",
            from_node=data.from_node or "",
            by=caller.person,
            key=key,
        )
    except RefusedError as refused:
        fields = {**DEFINITION_REFUSALS, "unknown_place": "from_node"}
        raise refusal_at_field(refused, **fields) from refused
    return await engine.run_queries.view(run_id)


@serves(BeadCalls.list_runs)
async def list_bead_runs(engine: Engine, bead_id: str, query: PageQuery) -> Page[RunItem]:
    await engine.beads.get(bead_id)
    return await engine.run_queries.list(bead_id=bead_id, cursor=query.cursor, limit=query.limit)


@serves(BeadCalls.list_history)
async def list_bead_history(engine: Engine, bead_id: str, query: PageQuery) -> Page[EventView]:
    await engine.beads.get(bead_id)
    return await engine.run_queries.bead_history(bead_id, cursor=query.cursor, limit=query.limit)


@serves(BeadCalls.add_file)
async def add_bead_file(
    request: HTTPRequest, engine: Engine, caller: Caller, bead_id: str, query: FileQuery
) -> FileInfo:
    await engine.beads.get(bead_id)  # refuses an unknown bead
    if request.content_type[0] == FORM_TYPE:
        signed, file_name, content_type, content = await _read_form(request)
        await check_author(engine, caller, signed, request.path_params)
    else:
        file_name, content_type = "", request.headers.get("content-type", "")
        content = await request.body()
    file_name = query.name or file_name
    if not file_name.strip():
        raise _bad_file("name", "the file has no name", "say ?name=, or send it as a form's file")
    stored_type = content_type_of(content_type, file_name)
    return await engine.beads.put_file(
        bead_id, file_name, content, content_type=stored_type, by=caller.name
    )


async def _read_form(request: HTTPRequest) -> tuple[AuthoredBody, str, str, bytes]:
    """Return the author fields, and the file's name, type and content."""
    try:
        form = await request.form()
    except (LookupError, UnicodeDecodeError) as error:  # a field in an unknown or a wrong encoding
        raise _bad_file(
            "$", "a field of the form is not UTF-8 text", "write it in UTF-8"
        ) from error
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    if len(files) != 1:
        raise _bad_file("file", f"the form has {len(files)} files", "send one: curl -F file=@NAME")
    (file,) = files
    texts = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    signed = AuthoredBody(**{name: texts.get(name, "") for name in AuthoredBody.__struct_fields__})
    return signed, file.filename, file.content_type, await file.read()


def _bad_file(path: str, message: str, hint: str) -> HTTPProblemError:
    return HTTPProblemError(422, "bad_file", message, hint, field=path)


def content_type_of(content_type: str, name: str) -> str:
    """Return the file's type: the given one, else by its name."""
    if (
        content_type not in UNSPECIFIC_TYPES
        and len(content_type) <= TYPE_CHARS_MAX
        and _TYPE.fullmatch(content_type)
    ):
        return content_type
    return mimetypes.guess_type(name)[0] or ANY_MEDIA_TYPE


@serves(BeadCalls.get_file)
async def get_bead_file(engine: Engine, caller: Caller, bead_id: str, name: str) -> Response[bytes]:
    if caller.role == "agent":
        await check_holds_bead(engine, caller, bead_id)
    info, content = await engine.beads.file(bead_id, name)
    headers = {
        "content-type": info.content_type,
        "content-disposition": content_disposition(info.name),
        "etag": f'"{info.sha256}"',
    }
    return Response(content, headers=headers)


def content_disposition(name: str) -> str:
    """Return a header that no name can escape (RFC 6266): ASCII for old clients, then the name."""
    ascii_name, quoted_name = _UNSAFE.sub("_", name), quote(name, safe="")
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quoted_name}"

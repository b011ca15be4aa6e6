"""Files of beads: sent by people, given to agents, and never shown as anything but a download.

A file comes as the body itself, with `?name=`, or as the one file of a form (`curl -F file=@x`). It
goes out under its own type, but as an attachment that browsers neither guess at nor open here.
"""

import mimetypes
import re
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from litestar import Request, Response, get, post
from litestar.datastructures import UploadFile
from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIResponse,
    Operation,
    RequestBody,
    Schema,
)
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import Parameter

from handrail.engine.beads import FILE_MAX, FileInfo
from handrail.engine.engine import Engine
from handrail.engine.pages import Page
from handrail.server.access import Caller
from handrail.server.authors import Signed, check_author
from handrail.server.problems import Place, Wrong, documented

FORM_MAX = 64 * 1024
"""What a form may have around the file."""
FORM = "multipart/form-data"
ANY_TYPE = "application/octet-stream"
UNSAID = ("", ANY_TYPE, "application/x-www-form-urlencoded")
"""Types that say nothing about a file: what programs send if nobody told them."""
TYPE_MAX = 100
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?charset=[\w-]+)?", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._ -]")
BINARY = Schema(type=OpenAPIType.STRING, content_media_type=ANY_TYPE)
FileName = Annotated[
    str, Parameter(max_length=1_000, description="What to call it; a form's file has a name.")
]


@dataclass
class Upload(Operation):
    """The call's two kinds of body, for the OpenAPI document."""

    def __post_init__(self) -> None:
        form = Schema(type=OpenAPIType.OBJECT, properties={"file": BINARY}, required=["file"])
        forms = {FORM: OpenAPIMediaType(schema=form), ANY_TYPE: OpenAPIMediaType(schema=BINARY)}
        self.request_body = RequestBody(required=True, content=forms)


@dataclass
class Download(Operation):
    """The answer has the file's own type."""

    def __post_init__(self) -> None:
        assert self.responses is not None, "documented"
        content = {"*/*": OpenAPIMediaType(schema=BINARY)}
        self.responses["200"] = OpenAPIResponse(description="The file.", content=content)


@post(
    "/beads/{bead_id:str}/files",
    responses=documented(404, 409),
    request_max_body_size=FILE_MAX + FORM_MAX,
    operation_class=Upload,
)
async def put_file(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    bead_id: str,
    name: FileName = "",
) -> FileInfo:
    """Hang a file on the bead: the body itself with `name`, or the one file of a form. The same
    file again changes nothing; another one of that name is 409."""
    known = await engine.bead(bead_id)
    if request.content_type[0] == FORM:
        signed, called, content_type, content = await _from_form(request)
        await check_author(engine, caller, signed, known.execution_id)
    else:
        called, content_type = "", request.headers.get("content-type", "")
        content = await request.body()
    called = name or called
    if not called.strip():
        raise _wrong("name", "the file has no name", "say ?name=, or send it as a form's file")
    kind = type_of(content_type, called)
    return await engine.put_file(bead_id, called, content, content_type=kind, by=caller.name)


async def _from_form(request: Request[Any, Any, Any]) -> tuple[Signed, str, str, bytes]:
    """Who it says it is from, and the file: its name, type and content."""
    try:
        form = await request.form()
    except (LookupError, UnicodeDecodeError) as error:  # a field in an unknown or a wrong encoding
        raise _wrong("$", "a field of the form is no text", "write it in UTF-8") from error
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    if len(files) != 1:
        raise _wrong("file", f"the form has {len(files)} files", "send one: curl -F file=@NAME")
    (file,) = files
    said = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    signed = Signed(**{name: said.get(name, "") for name in Signed.__struct_fields__})
    return signed, file.filename, file.content_type, await file.read()


def _wrong(path: str, told: str, hint: str) -> Wrong:
    return Wrong(422, "bad_file", f"{told}; {hint}", errors=(Place("bad_file", path, told, hint),))


def type_of(said: str, name: str) -> str:
    """The file's type: as it was said, else by its name."""
    if said not in UNSAID and len(said) <= TYPE_MAX and _TYPE.fullmatch(said):
        return said
    return mimetypes.guess_type(name)[0] or ANY_TYPE


@get("/beads/{bead_id:str}/files", responses=documented(404))
async def files(engine: Engine, bead_id: str) -> Page[FileInfo]:
    """The bead's files by name, without their contents."""
    return Page(items=tuple(await engine.files(bead_id)))


@get(
    "/beads/{bead_id:str}/files/{name:str}",
    responses=documented(404),
    operation_class=Download,
)
async def file(engine: Engine, caller: Caller, bead_id: str, name: str) -> Response[bytes]:
    """A file's content. An agent reads those of beads that it has a dispatch of."""
    if caller.role == "agent" and not await _holds(engine, caller.name, bead_id):
        told = f"agent '{caller.name}' has no dispatch of bead '{bead_id}'"
        raise Wrong(403, "foreign_bead", f"{told}; claim one first")
    info, content = await engine.file(bead_id, name)
    headers = {
        "content-type": info.content_type,
        "content-disposition": attachment(info.name),
        "etag": f'"{info.sha256}"',
    }
    return Response(content, headers=headers)


async def _holds(engine: Engine, agent_id: str, bead_id: str) -> bool:
    """Whether the agent works on the bead now."""
    io, store = engine.keeper.io, engine.store
    run_id = await io(store.active_run, bead_id)
    open_ones = await io(store.dispatches, run_id) if run_id is not None else ()
    return any(row.agent == agent_id for row in open_ones)


def attachment(name: str) -> str:
    """A header that no name can break out of (RFC 6266): ASCII for old clients, then the name."""
    plain, full = _UNSAFE.sub("_", name), quote(name, safe="")
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{full}"


HANDLERS = [put_file, files, file]

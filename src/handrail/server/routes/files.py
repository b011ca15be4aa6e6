"""Files of beads: uploaded by people, read by agents, and served only as downloads.

An upload is the body itself, with `?name=`, or the one file of a form (`curl -F file=@x`). A
download has the file's own type, but as an attachment that browsers neither sniff nor open here.
"""

import mimetypes
import re
from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from litestar.datastructures import UploadFile

from handrail.api.beads import BeadCalls, FileQuery
from handrail.api.operation import ANY_MEDIA_TYPE
from handrail.engine.engine import Engine
from handrail.server.access import AuthoredBody, Caller, check_author
from handrail.server.binding import serves
from handrail.server.problems import FieldError, HTTPProblemError
from handrail.views.beads import FileInfo
from handrail.views.pages import Page

FORM_TYPE = "multipart/form-data"
UNSPECIFIC_TYPES = ("", ANY_MEDIA_TYPE, "application/x-www-form-urlencoded")
"""Types that say nothing about a file: programs send them by default."""
TYPE_CHARS_MAX = 100
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?charset=[\w-]+)?", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._ -]")


@serves(BeadCalls.add_file)
async def add_bead_file(
    request: Request[Any, Any, Any],
    engine: Engine,
    caller: Caller,
    bead_id: str,
    query: FileQuery,
) -> FileInfo:
    bead = await engine.beads.get(bead_id)
    if request.content_type[0] == FORM_TYPE:
        signed, file_name, content_type, content = await _read_form(request)
        await check_author(engine, caller, signed, bead.execution_id)
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


async def _read_form(request: Request[Any, Any, Any]) -> tuple[AuthoredBody, str, str, bytes]:
    """Return the author fields, and the file's name, type and content."""
    try:
        form = await request.form()
    except (LookupError, UnicodeDecodeError) as error:  # a field in an unknown or a wrong encoding
        raise _bad_file("$", "a field of the form is no text", "write it in UTF-8") from error
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    if len(files) != 1:
        raise _bad_file("file", f"the form has {len(files)} files", "send one: curl -F file=@NAME")
    (file,) = files
    texts = {name: value for name, value in form.multi_items() if isinstance(value, str)}
    signed = AuthoredBody(**{name: texts.get(name, "") for name in AuthoredBody.__struct_fields__})
    return signed, file.filename, file.content_type, await file.read()


def _bad_file(path: str, message: str, hint: str) -> HTTPProblemError:
    return HTTPProblemError(
        422, "bad_file", f"{message}; {hint}", errors=(FieldError("bad_file", path, message, hint),)
    )


def content_type_of(content_type: str, name: str) -> str:
    """Return the file's type: the given one, else by its name."""
    if (
        content_type not in UNSPECIFIC_TYPES
        and len(content_type) <= TYPE_CHARS_MAX
        and _TYPE.fullmatch(content_type)
    ):
        return content_type
    return mimetypes.guess_type(name)[0] or ANY_MEDIA_TYPE


@serves(BeadCalls.list_files)
async def list_bead_files(engine: Engine, bead_id: str) -> Page[FileInfo]:
    return Page(items=tuple(await engine.beads.files(bead_id)))


@serves(BeadCalls.get_file)
async def get_bead_file(engine: Engine, caller: Caller, bead_id: str, name: str) -> Response[bytes]:
    if caller.role == "agent" and not await engine.dispatches.is_held_by(caller.name, bead_id):
        message = f"agent '{caller.name}' has no dispatch of bead '{bead_id}'"
        raise HTTPProblemError(403, "foreign_bead", f"{message}; claim one first")
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

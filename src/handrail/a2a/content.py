"""What a message says: text, facts, files, each with bounds. What is not taken is refused, and
nothing is passed over."""

import base64
import binascii
import re
from typing import Any, NamedTuple, cast

import msgspec

from handrail.a2a.refusals import No
from handrail.agents.a2a_words import Message, Part, text_of
from handrail.kernel.result import merged

TITLE_MAX, TEXT_MAX = 200, 400_000
FILES_MAX, FILE_NAME_MAX = 20, 100
OCTETS = "application/octet-stream"
_ODD = re.compile(r"[^\w. -]+", re.ASCII)
_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)


class File(NamedTuple):
    name: str
    content: bytes
    media_type: str


class Content(NamedTuple):
    text: str
    data: dict[str, Any]
    files: tuple[File, ...]

    @property
    def title(self) -> str:
        """The first line; without text what else there is."""
        if self.text:
            return self.text.splitlines()[0][:TITLE_MAX]
        facts = msgspec.json.encode(self.data).decode() if self.data else ""
        return (facts or self.files[0].name)[:TITLE_MAX]


def content_of(message: Message) -> Content:
    """All that it says, or why it is not taken."""
    text = text_of(message.parts).strip()
    if len(text) > TEXT_MAX:
        told = f"a message has at most {TEXT_MAX:,} characters of text"
        raise No("INVALID_PARAMS", f"{told}; this one has {len(text):,}")
    data: dict[str, Any] = {}
    files: list[File] = []
    for part in message.parts:
        if part.url is not None:
            told = "what lies elsewhere is not fetched"
            raise No("CONTENT_TYPE_NOT_SUPPORTED", f"{told}; send the file itself, as `raw`")
        if part.data is not msgspec.UNSET:
            data = merged(data, _object(part.data))
        if part.raw is not None:
            files.append(_file(part, len(files) + 1))
    if not (text or data or files):
        raise No("INVALID_PARAMS", "the message needs text, data or a file; it has none of them")
    if len(files) > FILES_MAX or len({one.name for one in files}) < len(files):
        told = f"a message has at most {FILES_MAX} files, each with a name of its own"
        raise No("INVALID_PARAMS", f"{told}; put several into one archive")
    return Content(text, data, tuple(files))


def _object(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise No("CONTENT_TYPE_NOT_SUPPORTED", "data has to be a JSON object; send one")
    return cast("dict[str, Any]", data)


def _file(part: Part, number: int) -> File:
    """A file under a name that is one anywhere."""
    try:
        content = base64.b64decode(part.raw or "", validate=True)
    except (binascii.Error, ValueError):
        raise No("INVALID_PARAMS", "a file is not in base64; send it so, as `raw`") from None
    last = part.filename.replace("\\", "/").rpartition("/")[2]
    name = _ODD.sub("-", last).strip(" .")[-FILE_NAME_MAX:] or f"file-{number}"
    return File(name, content, part.media_type if _TYPE.fullmatch(part.media_type) else OCTETS)

"""Read the content of a message: text, data, files, each with bounds. Unsupported content is
refused, never ignored.
"""

import base64
import binascii
import re
from typing import Any, NamedTuple, cast

import msgspec

from handrail.a2a.errors import JsonRpcError
from handrail.agents.a2a_types import A2AMessage, Part, join_text
from handrail.kernel.result import merge_patch

TITLE_CHARS_MAX, TEXT_CHARS_MAX = 200, 400_000
FILES_MAX, FILE_NAME_CHARS_MAX = 20, 100
OCTET_STREAM = "application/octet-stream"
_UNSAFE_CHARS = re.compile(r"[^\w. -]+", re.ASCII)
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)


class MessageFile(NamedTuple):
    name: str
    content: bytes
    media_type: str


class MessageContent(NamedTuple):
    text: str
    data: dict[str, Any]
    files: tuple[MessageFile, ...]

    @property
    def title(self) -> str:
        """The first line; without text what else there is."""
        if self.text:
            return self.text.splitlines()[0][:TITLE_CHARS_MAX]
        facts = msgspec.json.encode(self.data).decode() if self.data else ""
        return (facts or self.files[0].name)[:TITLE_CHARS_MAX]


def read_content(message: A2AMessage) -> MessageContent:
    """Return the whole content, or raise why it is refused."""
    text = join_text(message.parts).strip()
    if len(text) > TEXT_CHARS_MAX:
        reason = f"a message has at most {TEXT_CHARS_MAX:,} characters of text"
        raise JsonRpcError("INVALID_PARAMS", f"{reason}; this one has {len(text):,}")
    data: dict[str, Any] = {}
    files: list[MessageFile] = []
    for part in message.parts:
        if part.url is not None:
            reason = "what lies elsewhere is not fetched"
            raise JsonRpcError(
                "CONTENT_TYPE_NOT_SUPPORTED", f"{reason}; send the file itself, as `raw`"
            )
        if part.data is not msgspec.UNSET:
            data = merge_patch(data, _require_object(part.data))
        if part.raw is not None:
            files.append(_decode_file(part, len(files) + 1))
    if not (text or data or files):
        raise JsonRpcError(
            "INVALID_PARAMS", "the message needs text, data or a file; it has none of them"
        )
    if len(files) > FILES_MAX or len({file.name for file in files}) < len(files):
        reason = f"a message has at most {FILES_MAX} files, each with a name of its own"
        raise JsonRpcError("INVALID_PARAMS", f"{reason}; put several into one archive")
    return MessageContent(text, data, tuple(files))


def _require_object(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise JsonRpcError("CONTENT_TYPE_NOT_SUPPORTED", "data has to be a JSON object; send one")
    return cast("dict[str, Any]", data)


def _decode_file(part: Part, number: int) -> MessageFile:
    """Decode a file, with a name that is valid anywhere."""
    try:
        content = base64.b64decode(part.raw or "", validate=True)
    except (binascii.Error, ValueError):
        raise JsonRpcError(
            "INVALID_PARAMS", "a file is not in base64; send it so, as `raw`"
        ) from None
    base_name = part.filename.replace("\\", "/").rpartition("/")[2]
    name = _UNSAFE_CHARS.sub("-", base_name).strip(" .")[-FILE_NAME_CHARS_MAX:] or f"file-{number}"
    return MessageFile(
        name, content, part.media_type if _MEDIA_TYPE.fullmatch(part.media_type) else OCTET_STREAM
    )

"""The OpenAPI document of the API."""

from functools import cache
from typing import Any

import msgspec
from litestar import Response

from handrail.api.openapi import openapi_document
from handrail.api.server import ServerCalls
from handrail.api.shared import JSON
from handrail.server.binding import serves


@cache  # making it costs as much as many calls, and needs no token
def _encoded_document() -> bytes:
    return msgspec.json.encode(openapi_document())


@serves(ServerCalls.get_openapi)
async def get_openapi() -> Response[Any]:
    return Response(_encoded_document(), media_type=JSON)

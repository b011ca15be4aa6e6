"""The OpenAPI document of the API."""

from typing import Any

import msgspec
from litestar import MediaType, Request, Response, get

STATE_DOCUMENT = "openapi"
"""State key of the cached document: making it costs as much as many calls, and needs no token."""


@get("/openapi.json", include_in_schema=False)
async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    state = request.app.state
    if STATE_DOCUMENT not in state:
        state[STATE_DOCUMENT] = msgspec.json.encode(request.app.openapi_schema.to_schema())
    return Response(state[STATE_DOCUMENT], media_type=MediaType.JSON)


HANDLERS = [openapi]

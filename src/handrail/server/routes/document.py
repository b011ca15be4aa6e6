"""The OpenAPI document: what every call takes and answers."""

from typing import Any

import msgspec
from litestar import MediaType, Request, Response, get

MADE = "openapi"
"""In the application's state. To make it takes as long as many calls, and anybody may ask."""


@get("/openapi.json", include_in_schema=False)
async def openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    state = request.app.state
    if MADE not in state:
        state[MADE] = msgspec.json.encode(request.app.openapi_schema.to_schema())
    return Response(state[MADE], media_type=MediaType.JSON)


HANDLERS = [openapi]

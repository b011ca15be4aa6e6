"""Writes the API's OpenAPI document, from which the page's types are made: no server is started."""

import asyncio
from pathlib import Path

import msgspec

import handrail
from handrail.server.app import ServerApp

PLACE = Path(__file__).parent / "openapi.json"


async def document() -> bytes:
    async with handrail.open("sqlite://") as engine:
        return msgspec.json.encode(ServerApp(engine).litestar.openapi_schema.to_schema())


if __name__ == "__main__":
    PLACE.write_bytes(asyncio.run(document()))

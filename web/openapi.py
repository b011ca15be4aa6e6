"""Writes the API's OpenAPI document, from which the page's types are made: no server is started."""

from pathlib import Path

import msgspec

from handrail.api.openapi import openapi_document

PLACE = Path(__file__).parent / "openapi.json"


def write() -> None:
    PLACE.write_bytes(msgspec.json.encode(openapi_document()))


if __name__ == "__main__":
    write()

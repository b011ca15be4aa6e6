"""Decodes request bodies strictly into the type of a handler's `data`.

Litestar would accept "5" for 5; here types must match, and the error for a wrong body names the
field. No body is decoded before the caller is authenticated.
"""

import re
from functools import lru_cache
from typing import Annotated, Any, cast

import msgspec
from litestar._openapi.schema_generation import SchemaCreator
from litestar.dto import AbstractDTO, DTOConfig
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from handrail.kernel.definition.reader import decode_document
from handrail.kernel.validation_messages import explain_validation_error
from handrail.server.problems import FieldError, HTTPProblemError, field_errors

NulFreeText = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
"""A text that is stored as text: PostgreSQL cannot store a NUL."""
_PATH_PATTERN = re.compile(r" - at `(?:key in )?(.+)`$")


@lru_cache(maxsize=200)  # one per body type of a handler
def _decoder(body_type: Any) -> "msgspec.json.Decoder[Any]":  # noqa: ANN401 - a type
    return msgspec.json.Decoder(body_type)


def decode_body(raw: bytes, body_type: Any) -> Any:  # noqa: ANN401 - of the wanted type
    """Decode a body to its type. `dict[str, Any]` is decoded like a definition document."""
    if body_type == dict[str, Any]:
        document, problems = decode_document(raw)
        if problems:
            raise HTTPProblemError(
                400, "bad_json", problems[0].message, errors=field_errors(tuple(problems))
            )
        if not isinstance(document, dict):
            raise _bad_body(f"Expected `object`, got `{type(document).__name__}`")
        return cast("dict[str, Any]", document)
    try:
        return _decoder(body_type).decode(raw)
    except msgspec.ValidationError as error:
        raise _bad_body(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the body is no JSON: {error}; send one JSON object"
        raise HTTPProblemError(400, "bad_json", message) from error


def _bad_body(reason: str) -> HTTPProblemError:
    match = _PATH_PATTERN.search(reason)
    path = match.group(1) if match else "$"
    message = explain_validation_error(_PATH_PATTERN.sub("", reason))
    field_error = FieldError(
        "bad_value", path, message, "see /api/v1/openapi.json for what it takes"
    )
    return HTTPProblemError(
        422, "bad_body", f"the body cannot be used: {path}: {message}", errors=(field_error,)
    )


class StrictDTO(AbstractDTO[Any]):
    """The app's `dto`: decodes bodies, and makes their schemas."""

    config = DTOConfig()

    def decode_bytes(self, value: bytes) -> Any:  # noqa: ANN401 - of the handler's type
        connection = cast("Any", self.asgi_connection)  # pyright: ignore[reportUnknownMemberType] - Litestar's
        return decode_body(value, connection.route_handler.parsed_data_field.annotation)

    @classmethod
    def create_for_field_definition(
        cls, field_definition: FieldDefinition, handler_id: str, backend_cls: object = None
    ) -> None:
        """Nothing to prepare."""

    @classmethod
    def create_openapi_schema(
        cls, field_definition: FieldDefinition, handler_id: str, schema_creator: SchemaCreator
    ) -> Reference | Schema:
        return schema_creator.for_field_definition(field_definition)

    @classmethod
    def generate_field_definitions(cls, model_type: type[Any]) -> Any:  # noqa: ANN401 - unused
        raise NotImplementedError

    @classmethod
    def detect_nested_field(cls, field_definition: FieldDefinition) -> bool:
        raise NotImplementedError

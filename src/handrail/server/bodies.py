"""Request bodies: read strictly into the type that a handler names for its `data`.

Litestar would take "5" for 5; here a body is what it says it is, and the answer to a wrong one
names the place. Nothing is read before the caller was let in.
"""

import re
from functools import lru_cache
from typing import Annotated, Any, cast

import msgspec
from litestar._openapi.schema_generation import SchemaCreator
from litestar.dto import AbstractDTO, DTOConfig
from litestar.openapi.spec import Reference, Schema
from litestar.typing import FieldDefinition

from handrail.kernel.misfit import in_words
from handrail.kernel.reading import read_json
from handrail.server.problems import Place, Wrong, places

Text = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
"""A text of a body that is stored as one: PostgreSQL has no place for a NUL."""
_PLACE = re.compile(r" - at `(?:key in )?(.+)`$")


@lru_cache(maxsize=200)  # one for every type that a handler takes
def _decoder(wanted: Any) -> "msgspec.json.Decoder[Any]":  # noqa: ANN401 - a type
    return msgspec.json.Decoder(wanted)


def read_body(raw: bytes, wanted: Any) -> Any:  # noqa: ANN401 - of the wanted type
    """The body as a value of that type. A document of any shape is read as documents are."""
    if wanted == dict[str, Any]:
        document, problems = read_json(raw)
        if problems:
            raise Wrong(400, "bad_json", problems[0].message, errors=places(tuple(problems)))
        if not isinstance(document, dict):
            raise _not_fit(f"Expected `object`, got `{type(document).__name__}`")
        return cast("dict[str, Any]", document)
    try:
        return _decoder(wanted).decode(raw)
    except msgspec.ValidationError as error:
        raise _not_fit(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        told = f"the body is no JSON: {error}; send one JSON object"
        raise Wrong(400, "bad_json", told) from error


def _not_fit(told: str) -> Wrong:
    found = _PLACE.search(told)
    path = found.group(1) if found else "$"
    message = in_words(_PLACE.sub("", told))
    place = Place("bad_value", path, message, "see /api/v1/openapi.json for what it takes")
    return Wrong(422, "bad_body", f"the body cannot be used: {path}: {message}", errors=(place,))


class Strict(AbstractDTO[Any]):
    """For the app's `dto`: Litestar asks it for bodies, and for their schemas."""

    config = DTOConfig()

    def decode_bytes(self, value: bytes) -> Any:  # noqa: ANN401 - of the handler's type
        connection = cast("Any", self.asgi_connection)  # pyright: ignore[reportUnknownMemberType] - Litestar's
        return read_body(value, connection.route_handler.parsed_data_field.annotation)

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

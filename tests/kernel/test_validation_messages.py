"""Wrong values are told in words, not in the types of a programming language."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from handrail.kernel.definition.model import Name
from handrail.kernel.validation_messages import explain_validation_error


class Colour(StrEnum):
    RED = "red"


class Form(msgspec.Struct, forbid_unknown_fields=True):
    a: int


@pytest.mark.parametrize(
    ("value", "wanted", "told"),
    [
        (3, str, "should be a text, not a whole number"),
        ("3", int, "should be a whole number, not a text"),
        (None, list[str], "should be a list, not null"),
        (1.5, int, "should be a whole number, not a number"),
        ([], dict[str, int], "should be an object, not a list"),
        ("x", int | None, "should be a whole number or null, not a text"),
        ("x", bool, "should be true or false, not a text"),
        ("xxxx", Annotated[str, Meta(max_length=3)], "should have at most 3 characters"),
        ([], Annotated[list[int], Meta(min_length=1)], "should have at least 1 entries"),
        (0, Annotated[int, Meta(ge=1)], "should be at least 1"),
        (2000, Annotated[float, Meta(le=1500)], "should be at most 1,500"),
        (0.0, Annotated[float, Meta(gt=0)], "should be more than 0"),
        ("blue", Colour, "'blue' is not one of the choices"),
        ("blue", Literal["red"], "'blue' is not one of the choices"),
        ({}, Form, "lacks `a`"),
        ({"a": 1, "b": 2}, Form, "has an unknown `b`"),
        ("a\x07b", Name, "contains a character that is not allowed, such as an invisible one"),
        ("a\u202eb", Name, "contains a character that is not allowed, such as an invisible one"),
    ],
)
def test_a_value_that_does_not_fit(value: object, wanted: Any, told: str):
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.convert(value, wanted)
    assert explain_validation_error(str(raised.value)) == told


def test_what_has_no_words_of_its_own_is_told_as_it_is():
    assert (
        explain_validation_error("Invalid RFC3339 encoded datetime")
        == "Invalid RFC3339 encoded datetime"
    )

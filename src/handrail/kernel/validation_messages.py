"""Words validation errors for people who write JSON or YAML and do not know Python."""

import re

_TYPE_NAMES = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_LENGTH = re.compile(r"Expected `(\w+)` of length ([<>])= (\d+)$")
_RANGE = re.compile(r"Expected `(?:int|float)` ([<>]=?) ([\d.e+-]+)$")
_TYPE = re.compile(r"Expected `([\w| ]+)`, got `(\w+)`$")
_CHOICE = re.compile(r"Invalid enum value (.+)$")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.+)`$")
_PATTERN = re.compile(r"Expected `str` matching regex")
_COMPARISONS = {">=": "at least ", "<=": "at most ", ">": "more than ", "<": "less than "}
_LENGTH_UNITS = {"str": "characters", "array": "entries", "object": "entries"}


def explain_validation_error(message: str) -> str:
    """Return a msgspec message (without its path) in plain words."""
    if match := _TYPE.match(message):
        expected = " or ".join(
            _TYPE_NAMES.get(type_name, type_name) for type_name in match[1].split(" | ")
        )
        return f"should be {expected}, not {_TYPE_NAMES.get(match[2], match[2])}"
    if match := _LENGTH.match(message):
        bound = "most" if match[2] == "<" else "least"
        return f"should have at {bound} {int(match[3]):,} {_LENGTH_UNITS.get(match[1], 'entries')}"
    if match := _RANGE.match(message):
        return f"should be {_COMPARISONS[match[1]]}{float(match[2]):,.12g}"
    if match := _CHOICE.match(message):
        return f"{match[1]} is not one of the choices"
    if match := _FIELD.match(message):
        return f"lacks `{match[2]}`" if match[1][0] == "m" else f"has an unknown `{match[2]}`"
    if _PATTERN.match(message):
        return "contains a character that is not allowed, such as an invisible one"
    return message

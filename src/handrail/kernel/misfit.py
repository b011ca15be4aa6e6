"""What is wrong with a value, in words of people who write JSON or YAML and know no Python."""

import re

_WORDS = {
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
_KIND = re.compile(r"Expected `([\w| ]+)`, got `(\w+)`$")
_CHOICE = re.compile(r"Invalid enum value (.+)$")
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.+)`$")
_PATTERN = re.compile(r"Expected `str` matching regex")
_RANGES = {">=": "at least ", "<=": "at most ", ">": "more than ", "<": "less than "}
_UNITS = {"str": "characters", "array": "entries", "object": "entries"}


def in_words(told: str) -> str:
    """A message of msgspec, without its place, as a person would say it."""
    if found := _KIND.match(told):
        wanted = " or ".join(_WORDS.get(one, one) for one in found[1].split(" | "))
        return f"should be {wanted}, not {_WORDS.get(found[2], found[2])}"
    if found := _LENGTH.match(told):
        bound = "most" if found[2] == "<" else "least"
        return f"should have at {bound} {int(found[3]):,} {_UNITS.get(found[1], 'entries')}"
    if found := _RANGE.match(told):
        return f"should be {_RANGES[found[1]]}{float(found[2]):,.12g}"
    if found := _CHOICE.match(told):
        return f"{found[1]} is not one of the choices"
    if found := _FIELD.match(told):
        return f"lacks `{found[2]}`" if found[1][0] == "m" else f"has an unknown `{found[2]}`"
    if _PATTERN.match(told):
        return "has a character that may not be there, as one that cannot be seen"
    return told

"""Other stop rules, for a look at recorded runs: read, and laid over a definition's own.

What is given counts as if it stood in the definition's `stop_rules`: a field that is not given
stays as the definition has it, and a profile fills what neither of them sets. A key that nobody
reads is an error here: whoever asks "what if" wants an answer to that question and no other.
"""

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from handrail.kernel.definition import Problem, StopRules
from handrail.kernel.limits import PROFILES, Limits, limits, scoped
from handrail.kernel.plan import Plan
from handrail.kernel.reading import is_mapping, read_rules

Given = Mapping[str, Any]
FIELDS = StopRules.__struct_fields__
INSIDE = "stop_rules"


def read_given(document: object) -> tuple[Given | None, list[Problem]]:
    """The fields of a document, of its `stop_rules` if it is a definition, or a profile's name."""
    if isinstance(document, str):
        return _profile(document)
    if is_mapping(document) and INSIDE in document:
        document = document[INSIDE]
    if not is_mapping(document):
        told = f"rules are an object with fields of {INSIDE}, or the name of a profile"
        hint = f"for example {{max_edge: 4}}, or {' or '.join(PROFILES)}"
        return None, [Problem(code="wrong_type", path=INSIDE, message=told, hint=hint)]
    checked, problems = read_rules(document)
    problems += [_unknown(key) for key in document if key not in FIELDS]
    if problems:
        return None, problems
    return {key: getattr(checked, key) for key in document}, []


def _profile(name: str) -> tuple[Given | None, list[Problem]]:
    if name in PROFILES:
        return {"profile": name}, []
    told = f"'{name[:80]}' is no profile"
    hint = f"there are {' and '.join(PROFILES)}"
    return None, [Problem(code="unknown_profile", path="profile", message=told, hint=hint)]


def _unknown(key: str) -> Problem:
    close = difflib.get_close_matches(key[:80], FIELDS, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(FIELDS)}"
    path, told = f"{INSIDE}.{key[:80]}", f"'{key[:80]}' is no stop rule"
    return Problem(code="unknown_field", path=path, message=told, hint=hint)


def limits_under(plan: Plan, given: Given, scope: object) -> Limits:
    """What the rules come to for a run of this definition whose bead says `task_scope`."""
    rules = msgspec.structs.replace(plan.definition.stop_rules, **given)
    return scoped(limits(rules, plan.kind), scope)

"""Reads overrides of stop rules for a replay, and merges them with a definition's own rules.

An override counts as if it were in the definition's `stop_rules`: other fields keep the
definition's value, and a profile fills fields that neither sets. An unknown key is an error here:
the caller of a "what if" wants an answer to exactly that question.
"""

import difflib
from collections.abc import Mapping
from typing import Any

import msgspec

from handrail.kernel.definition.limits import (
    PROFILES,
    Limits,
    StopRules,
    resolve_limits,
    scale_limits,
)
from handrail.kernel.definition.model import DocumentProblem
from handrail.kernel.definition.plan import Plan
from handrail.kernel.definition.reader import is_mapping, read_stop_rules

RuleOverrides = Mapping[str, Any]
RULE_FIELDS = StopRules.__struct_fields__
RULES_KEY = "stop_rules"


def read_overrides(document: object) -> tuple[RuleOverrides | None, list[DocumentProblem]]:
    """Read fields of a document, of its `stop_rules` if it is a definition, or a profile's name."""
    if isinstance(document, str):
        return _read_profile(document)
    if is_mapping(document) and RULES_KEY in document:
        document = document[RULES_KEY]
    if not is_mapping(document):
        return None, [
            DocumentProblem(
                code="wrong_type",
                path=RULES_KEY,
                message=f"rules are an object with fields of {RULES_KEY}, or the name of a profile",
                hint=f"for example {{max_edge: 4}}, or {' or '.join(PROFILES)}",
            )
        ]
    checked, problems = read_stop_rules(document)
    problems += [_unknown_field(key) for key in document if key not in RULE_FIELDS]
    if problems:
        return None, problems
    return {key: getattr(checked, key) for key in document}, []


def _read_profile(name: str) -> tuple[RuleOverrides | None, list[DocumentProblem]]:
    if name in PROFILES:
        return {"profile": name}, []
    return None, [
        DocumentProblem(
            code="unknown_profile",
            path="profile",
            message=f"'{name[:80]}' is no profile",
            hint=f"there are {' and '.join(PROFILES)}",
        )
    ]


def _unknown_field(key: str) -> DocumentProblem:
    suggestions = difflib.get_close_matches(key[:80], RULE_FIELDS, n=1)
    hint = (
        f"did you mean '{suggestions[0]}'?"
        if suggestions
        else f"there are {', '.join(RULE_FIELDS)}"
    )
    path, message = f"{RULES_KEY}.{key[:80]}", f"'{key[:80]}' is no stop rule"
    return DocumentProblem(code="unknown_field", path=path, message=message, hint=hint)


def limits_with_overrides(plan: Plan, overrides: RuleOverrides, scope: object) -> Limits:
    """Return the limits for a run of this definition whose bead has this `task_scope`."""
    return scale_limits(
        resolve_limits(
            msgspec.structs.replace(plan.definition.stop_rules, **overrides),
            plan.kind,
            wait_deadline=plan.settings.wait_deadline,
        ),
        scope,
    )

"""Definitions as they are shown: stored, in lists, and with their documents."""

from datetime import datetime
from typing import Any

from handrail.kernel.definition.certificate import Bound
from handrail.kernel.definition.model import DocumentProblem
from handrail.views.view_types import View


class StoredDefinition(View):
    """A stored definition: its id and version, and the most that a run of it can cost."""

    id: str
    name: str
    kind: str
    version: int
    bound: Bound
    warnings: tuple[DocumentProblem, ...] = ()


class DefinitionItem(View):
    """A version of a definition, in lists."""

    id: str
    name: str
    kind: str
    version: int
    created_by: str
    created_at: datetime


class DefinitionView(DefinitionItem):
    """A definition with its document, and the most that a run of it can cost."""

    definition: dict[str, Any]
    bound: Bound | None
    """None if the rules have become stricter since, and the definition is no longer valid."""
    warnings: tuple[DocumentProblem, ...]

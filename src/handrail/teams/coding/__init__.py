"""The coding team on real files: a planner, researcher, coder, verifier, snitch and ticket closer.

A bead says where: `context.folder`, or `context.repository` for a worktree of its own; without
either it is a copy of the sample project, and `context.demo` names what is wrong with it. Endings
that happen there: success; "partial" (the goal is met, a test stays red), "research" (what the task
names is nowhere), "same_error" (the cause is not in the folder), "no_change" (no repair helps),
"constraint" (the repair that helps is in a folder that must not be touched); and one for each kind
of bug that the coder can mend (`sample/scenes.yaml`).
"""

from collections.abc import Mapping
from typing import Any

from handrail.engine.engine import Engine
from handrail.teams.coding.crew import Crew, Documents, no_documents
from handrail.teams.coding.places import Places

TRUSTED = frozenset({"researcher", "coder", "verifier", "snitch"})
"""What these report of files, checks and scores was measured by the workspace, not claimed."""


DOCUMENTS_MAX = 20
DOCUMENT_BYTES_MAX = 1_000_000


def staff(workspaces: tuple[str, ...] = (), documents: Documents = no_documents) -> dict[str, Any]:
    """The agents by role. `workspaces` are the folders in which runs may work."""
    return Crew(Places(workspaces), documents).agents()


def employed(engine: Engine, *, model: str, workspaces: tuple[str, ...]) -> dict[str, Any]:
    """The agents by role, for an engine: with a model, its tools go through the same workspace."""
    crew = Crew(Places(workspaces), documents_of(engine))
    if not model:
        return crew.agents()
    from handrail.teams.coding.modelled import modelled

    return modelled(crew, model)


def documents_of(engine: Engine) -> Documents:
    """The texts among the files of a bead."""

    async def documents(bead_id: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for info in (await engine.files(bead_id))[:DOCUMENTS_MAX]:
            if info.size <= DOCUMENT_BYTES_MAX:
                _, body = await engine.file(bead_id, info.name)
                found[info.name] = body.decode("utf-8", "replace")
        return found

    return documents

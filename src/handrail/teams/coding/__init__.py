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
from handrail.teams.coding.agents import CodingAgents, DocumentLoader, load_no_documents
from handrail.teams.coding.workspaces import Workspaces

MEASURING_ROLES = frozenset({"researcher", "coder", "verifier", "snitch"})
"""The workspace measured what these report of files, checks and scores."""


DOCUMENTS_MAX = 20
DOCUMENT_BYTES_MAX = 1_000_000


def scripted_agents(
    workspaces: tuple[str, ...] = (), load_documents: DocumentLoader = load_no_documents
) -> dict[str, Any]:
    """Return the agents by role. `workspaces` are the folders in which runs may work."""
    return CodingAgents(Workspaces(workspaces), load_documents).agents()


def build_agents(engine: Engine, *, model: str, workspaces: tuple[str, ...]) -> dict[str, Any]:
    """Return the agents by role, for an engine: with a model, its tools use the same workspace."""
    coding_agents = CodingAgents(Workspaces(workspaces), document_loader(engine))
    if not model:
        return coding_agents.agents()
    from handrail.teams.coding.model_agents import build_model_agents

    return build_model_agents(coding_agents, model)


def document_loader(engine: Engine) -> DocumentLoader:
    """Return a loader for the texts among the files of a bead."""

    async def load_documents(bead_id: str) -> Mapping[str, str]:
        texts: dict[str, str] = {}
        for info in (await engine.beads.files(bead_id))[:DOCUMENTS_MAX]:
            if info.size <= DOCUMENT_BYTES_MAX:
                _, body = await engine.beads.file(bead_id, info.name)
                texts[info.name] = body.decode("utf-8", "replace")
        return texts

    return load_documents

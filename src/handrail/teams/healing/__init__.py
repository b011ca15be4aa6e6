"""Self-healing: the agents of `auto-bug-workflow` on a real repository.

An error of a service is reproduced, investigated, shown to a person with its fix, committed through
the lane, and verified on the commit. `service.py` is the operator's description of the service,
`agents.py` has the agents, `reproduction.py` repeats a failure, `proposal.py` is what a person
sees, `reverts.py` reverts a commit whose run did not end well, `model_investigator.py` is the
investigation by a language model, `sample_shop.py` a small shop with bugs to try it on.
"""

from handrail.engine.engine import Engine
from handrail.teams.healing.agents import MEASURING_ROLES, HealingAgents
from handrail.teams.healing.reverts import REVERT_WORKFLOW_ID, watch_for_reverts
from handrail.teams.healing.service import Service, read_service
from handrail.teams.scripted import AgentsByRole

__all__ = ["REVERT_WORKFLOW_ID", "HealingAgents", "Service", "build_healing_agents", "read_service"]


async def build_healing_agents(
    engine: Engine, service: Service, *, model: str = ""
) -> tuple[AgentsByRole, frozenset[str]]:
    """Return the agents that heal this service, by role, and the roles that measure.

    The model investigates, if one is named. What their runs push and do not verify is reverted.
    """
    investigate = None
    if model:
        from handrail.teams.healing.model_investigator import model_investigator

        investigate = model_investigator(model)
    if service.reverts:
        await watch_for_reverts(engine)
    return HealingAgents(engine, service, investigate=investigate).agents(), MEASURING_ROLES

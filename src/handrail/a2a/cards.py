"""The card of a definition, or of all definitions that a credential may file beads for.

Without a credential the card says only how to authenticate, and the same for every name: callers
without access do not learn which definitions exist.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from handrail.a2a.errors import HttpStatusError
from handrail.agents.a2a_types import (
    ANY_MEDIA_TYPE,
    JSON_MEDIA_TYPE,
    JSONRPC_BINDING,
    PROTOCOL_VERSION,
    TEXT_MEDIA_TYPE,
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
)
from handrail.client.clients import AsyncClient
from handrail.kernel.definition.model import PERSON_LEVELS
from handrail.views.definitions import DefinitionItem

SKILLS_MAX = 200
FILING_LEVEL_MIN = PERSON_LEVELS["operator"]
AGENT_NAME, AGENT_VERSION = "Handrail", version("handrail")
AGENT_DESCRIPTION = (
    "Teams of agents and people whose every run ends, with a reason. A message becomes a bead; text"
    " is what it is about, data its context, files are its files."
)
CHOICE_HINT = (
    "Say which by the metadata of the message, as `definition`, or ask the agent of that name."
)
SECURITY_SCHEME = "handrail"
SECURITY_SCHEMES: dict[str, Any] = {
    SECURITY_SCHEME: {
        "httpAuthSecurityScheme": {
            "scheme": "Bearer",
            "description": "A token of Handrail, of an operator or above.",
        }
    }
}


def public_card(url: str) -> AgentCard:
    """Return the card for an unauthenticated caller."""
    return _card(url, AGENT_NAME, AGENT_DESCRIPTION, AGENT_VERSION, ())


async def extended_card(client: AsyncClient, url: str, definition: str) -> AgentCard:
    """Return the card for a credential that may file beads: of one definition, else of all."""
    me = await client.sessions.get_me()
    if PERSON_LEVELS.get(me.role, -1) < FILING_LEVEL_MIN:
        message = (
            f"{me.name} ({me.role}) may file no beads, so that there is nothing to ask for here"
        )
        raise HttpStatusError(403, f"{message}; use the token of an operator or above")
    if definition:
        view = await client.definitions.get(definition)
        skill = _skill(view, view.definition.get("metadata", {}).get("description"))
        return _card(url, view.name, skill.description, str(view.version), (skill,))
    page = await client.definitions.list(limit=SKILLS_MAX)
    return _card(
        url,
        AGENT_NAME,
        f"{AGENT_DESCRIPTION} {CHOICE_HINT}",
        AGENT_VERSION,
        [_skill(item) for item in page.items],
    )


def _skill(item: DefinitionItem, description: object = "") -> AgentSkill:
    text = (
        description
        if isinstance(description, str) and description
        else f"The {item.kind} '{item.name}'."
    )
    return AgentSkill(id=item.id, name=item.name, description=text, tags=(item.kind,))


def _card(
    url: str, name: str, description: str, card_version: str, skills: Sequence[AgentSkill]
) -> AgentCard:
    return AgentCard(
        name=name,
        description=description,
        version=card_version,
        supported_interfaces=(
            AgentInterface(
                url=url, protocol_binding=JSONRPC_BINDING, protocol_version=PROTOCOL_VERSION
            ),
        ),
        capabilities=AgentCapabilities(
            streaming=True, extended_agent_card=True, push_notifications=False
        ),
        security_schemes=SECURITY_SCHEMES,
        security_requirements=({"schemes": {SECURITY_SCHEME: {}}},),
        default_input_modes=(TEXT_MEDIA_TYPE, JSON_MEDIA_TYPE, ANY_MEDIA_TYPE),
        default_output_modes=(TEXT_MEDIA_TYPE,),
        skills=tuple(skills),
    )

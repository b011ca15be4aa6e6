"""Who answers here: the card of a definition, or of all that a token may file beads for.

Without a token the card says only how to come in, and the same for every name: what definitions
there are is nobody's business who may not use them.
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from handrail.a2a.refusals import Outside
from handrail.agents.a2a_words import (
    ANY,
    DATA,
    JSON_RPC,
    PROTOCOL,
    TEXT,
    Capabilities,
    Card,
    Interface,
    Skill,
)
from handrail.client.clients import AsyncClient
from handrail.engine.definitions import DefinitionItem
from handrail.kernel.definition import LEVELS

SKILLS_MAX = 200
FILES_BEADS = LEVELS["operator"]
NAME, NUMBER = "Handrail", version("handrail")
ABOUT = (
    "Teams of agents and people whose every run ends, with a reason. A message becomes a bead; text"
    " is what it is about, data its context, files are its files."
)
CHOOSE = "Say which by the metadata of the message, as `definition`, or ask the agent of that name."
SCHEME = "handrail"
SCHEMES: dict[str, Any] = {
    SCHEME: {
        "httpAuthSecurityScheme": {
            "scheme": "Bearer",
            "description": "A token of Handrail, of an operator or above.",
        }
    }
}


def closed_card(url: str) -> Card:
    """For whoever has not said who it is."""
    return _card(url, NAME, ABOUT, NUMBER, ())


async def open_card(client: AsyncClient, url: str, definition: str) -> Card:
    """For a token that may file beads: of one definition, else of all."""
    me = await client.me()
    if LEVELS.get(me.role, -1) < FILES_BEADS:
        told = f"{me.name} ({me.role}) may file no beads, so that there is nothing to ask for here"
        raise Outside(403, f"{told}; use the token of an operator or above")
    if definition:
        found = await client.workflow(definition)
        skill = _skill(found, found.definition.get("metadata", {}).get("description"))
        return _card(url, found.name, skill.description, str(found.version), (skill,))
    page = await client.workflows(limit=SKILLS_MAX)
    return _card(url, NAME, f"{ABOUT} {CHOOSE}", NUMBER, [_skill(item) for item in page.items])


def _skill(item: DefinitionItem, about: object = "") -> Skill:
    told = about if isinstance(about, str) and about else f"The {item.kind} '{item.name}'."
    return Skill(id=item.id, name=item.name, description=told, tags=(item.kind,))


def _card(url: str, name: str, about: str, number: str, skills: Sequence[Skill]) -> Card:
    return Card(
        name=name,
        description=about,
        version=number,
        supported_interfaces=(
            Interface(url=url, protocol_binding=JSON_RPC, protocol_version=PROTOCOL),
        ),
        capabilities=Capabilities(
            streaming=True, extended_agent_card=True, push_notifications=False
        ),
        security_schemes=SCHEMES,
        security_requirements=({"schemes": {SCHEME: {}}},),
        default_input_modes=(TEXT, DATA, ANY),
        default_output_modes=(TEXT,),
        skills=tuple(skills),
    )

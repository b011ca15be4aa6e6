"""Finance on a language model: it reads and writes, the rules of the team compute the figures.

A model that adds up invoices in its head gets them wrong now and then; so it has the specialists'
own calculations, and the bead's files, as tools.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from handrail.agents.model import model_agent
from handrail.engine.dispatch.dispatch import Dispatch
from handrail.engine.engine import Engine
from handrail.teams.finance import SPECIALISTS, load_text_files
from handrail.teams.scripted import ScriptedAgent

PLANNER_INSTRUCTIONS = "Route the task by its newest revision; read every iteration before you do."
SPECIALIST_INSTRUCTIONS = (
    "Use the tool `work_out` for every figure, and show its lines as they are; do not calculate "
    "yourself. Apply every revision: say it to the tool as a text of its own, the task first."
)
FILE_CHARS_MAX = 20_000


def build_model_agents(engine: Engine, model: str) -> dict[str, ScriptedAgent]:
    """Return the team's agents by role."""

    def tools(dispatch_input: Any) -> Sequence[Callable[..., object]]:  # noqa: ANN401 - as `model_agent` has it
        return _build_tools(engine, cast("Dispatch", dispatch_input))

    specialist = model_agent(model, instructions=SPECIALIST_INSTRUCTIONS, tools=tools)
    agents = {"planner": model_agent(model, instructions=PLANNER_INSTRUCTIONS)}
    agents |= dict.fromkeys(SPECIALISTS, specialist)
    return cast("dict[str, ScriptedAgent]", agents)


def _build_tools(engine: Engine, dispatch: Dispatch) -> list[Callable[..., Awaitable[str]]]:
    bead_id, agent = dispatch.bead.id, dispatch.agent

    async def work_out(said: list[str]) -> str:
        """The figures of the task: `said` is the task's text, then each revision, as they were
        typed. Tables among the bead's files are read as well."""
        rows, unknown = SPECIALISTS[agent](said or [""], await load_text_files(engine, bead_id))
        return "\n".join([*rows, *(f"not understood: {text}" for text in unknown)])

    async def read_file(name: str) -> str:
        """The beginning of a file of the bead."""
        files = await load_text_files(engine, bead_id)
        file_names = ", ".join(files) or "none"
        return files.get(name, f"there is no file '{name}'; there are {file_names}")[
            :FILE_CHARS_MAX
        ]

    return [work_out, read_file]

"""What the pages about the guard show is what happens, in the real frameworks."""

import ast
import importlib
import re
from pathlib import Path

import pytest
from benchmarks.same_mistake.scenes import SCENES, Script

DOCS = Path(__file__).resolve().parents[2] / "docs"
ELSEWHERE = "guard-crewai"
"""Of a framework that is tried in an environment of its own: test_crewai.py."""
PAGES = ["guard", *sorted({page.stem for page in DOCS.glob("guard-*.md")} - {ELSEWHERE})]


def given(page: str) -> dict[str, object]:
    """What a page leaves to its reader: a model, or agents."""
    name = page.removeprefix("guard-").replace("-", "_")
    if name in ("guard", "langgraph"):
        return {}
    team = importlib.import_module(f"benchmarks.same_mistake.{name}")
    script = Script(SCENES[0])
    if name in ("autogen", "agent_framework"):
        return {agent: team.Stub(script, agent) for agent in script.scene.agents}
    if name == "pydantic_ai":
        return {"model": team.agent(script, "anybody").model}
    return {"model": team.Stub(script, "anybody")}


@pytest.mark.parametrize("page", PAGES)
def test_an_example_of_a_page_prints_what_it_says(page, capsys):
    sources = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), flags=re.S)
    assert sources
    for source in sources:
        names = {"__name__": "example", **given(page)}
        exec(compile(ast.parse(source), f"{page}.md", "exec"), names)
        said = re.findall(r"^ *#> (.*)$", source, flags=re.M)
        assert capsys.readouterr().out.splitlines() == said

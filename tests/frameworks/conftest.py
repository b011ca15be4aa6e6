"""Tests against the real frameworks, with stub models and without a network.

They want an environment of their own, with the frameworks in it:

    UV_PROJECT_ENVIRONMENT=.venv-frameworks uv run --group frameworks pytest tests/frameworks

Where a framework is not installed, the tests of its adapter are not collected.
"""

from importlib.util import find_spec

NEEDS = {"test_langgraph.py": ("langgraph",), "test_crewai.py": ("crewai",)}
ALL = ("langgraph", "strands", "agents", "pydantic_ai", "autogen_agentchat", "agent_framework")
NEEDS |= dict.fromkeys(
    (
        "test_same_mistake.py",
        "test_adapters.py",
        "test_pages.py",
        "test_people.py",
        "test_streams.py",
    ),
    ALL,
)
collect_ignore = [
    name for name, modules in NEEDS.items() if not all(find_spec(module) for module in modules)
]

"""Tests against the real frameworks, with stub models and without a network.

They want an environment of their own, with the frameworks in it:

    UV_PROJECT_ENVIRONMENT=.venv-frameworks uv run --group frameworks pytest tests/frameworks

Where a framework is not installed, the tests of its adapter are not collected.
"""

import asyncio
import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir

import pytest

NEEDS = dict.fromkeys(("test_langgraph.py", "test_tutorial_flows.py"), ("langgraph",))
NEEDS |= dict.fromkeys(
    (
        "test_langgraph_errors.py",
        "test_langgraph_forms.py",
        "test_langgraph_people.py",
        "test_langgraph_surface.py",
    ),
    ("langgraph", "langchain"),
)
NEEDS["test_openai_agents_surface.py"] = ("agents",)
NEEDS["test_tracing.py"] = ("langgraph", "langchain")
NEEDS |= dict.fromkeys(("test_crewai.py", "test_crewai_flows.py"), ("crewai",))
NEEDS |= dict.fromkeys(
    ("test_agent_framework.py", "test_agent_framework_agents.py"), ("agent_framework",)
)
ALL = ("langgraph", "strands", "agents", "pydantic_ai", "autogen_agentchat", "agent_framework")
NEEDS |= dict.fromkeys(
    (
        "test_same_mistake.py",
        "test_adapter_errors.py",
        "test_adapters.py",
        "test_budgets.py",
        "test_framework_objects.py",
        "test_left_runs.py",
        "test_more_teams.py",
        "test_openai_agents_approvals.py",
        "test_pages.py",
        "test_people.py",
        "test_real_teams.py",
        "test_streams.py",
        "test_what_frameworks_show.py",
    ),
    ALL,
)
collect_ignore = [
    name for name, modules in NEEDS.items() if not all(find_spec(module) for module in modules)
]

if find_spec("crewai"):  # nothing of it leaves the machine; it warns of itself when it is imported
    os.environ |= dict.fromkeys(("CREWAI_DISABLE_TELEMETRY", "CREWAI_TESTING"), "true")
    os.environ |= {"OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
    os.environ["CREWAI_STORAGE_DIR"] = str(Path(gettempdir()) / "handrail-crewai")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _module in ("crewai.crew", "crewai.flow", "crewai.events"):
            import_module(_module)


COUNT_FINDINGS = (
    "test_ordinary_flows",
    "test_pages",
    "test_tutorial_flows",
    "test_what_frameworks_show",
)
"""Tests of what users get by default. The others try how adapters work, with the profile that
counts names, in which a loop of empty turns is stopped at the same handoff everywhere.
"""


@pytest.fixture(autouse=True)
def _profile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.module.__name__.rpartition(".")[2] not in COUNT_FINDINGS:
        monkeypatch.setattr("handrail.guard.adapter.DEFAULT_PROFILE", "strict")


@pytest.fixture(autouse=True)
def _no_loop_is_left_open() -> Iterator[None]:
    """Calls without a loop of the caller's run in the current one, and some frameworks leave it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    with suppress(RuntimeError):  # there is none any more
        asyncio.get_event_loop_policy().get_event_loop().close()
    loop.close()
    asyncio.set_event_loop(None)

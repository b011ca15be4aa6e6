"""The suites of `scripts/peers`: where their tests come from, and which pass under no guard."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    adapter: str
    """The module here that sends runs of the framework through the guard's adapter."""
    package: str
    """The distribution on PyPI, whose source ships the tests."""
    version: str
    """The version of the tests and of the framework, one that the adapter takes."""
    requirements: tuple[str, ...]
    """What its tests need besides."""
    tests: str = "tests"
    code: str = ""
    """The folder of the framework's code in its source, if its tests look where code comes from."""
    ships_tests: bool = True
    """Whether the source has the tests; if not, `--tests` names a copy of them."""
    files: str = "*test*.py"
    uses: str = ""
    """Only test files with this text are run; empty: all."""
    ignore: tuple[str, ...] = ()
    """Test files that cannot be collected on an ordinary machine, bare or guarded."""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    replaced: tuple[str, ...] = ()
    """Texts by which a test shows that it replaces a function that the adapter's module patches."""
    loops_on_purpose: dict[str, str] = field(default_factory=dict[str, str])
    """By the end of a test's id, why the loop in it is rightly stopped, by which rule."""


SUITES = {
    "openai_agents": Suite(
        adapter="openai_agents",
        package="openai-agents",
        version="0.24.0",
        requirements=(
            "openai-agents[encrypt,litellm,realtime,redis,sqlalchemy,voice]==0.24.0",
            "aiosqlite",
            "fakeredis",
            "fastapi",
            "graphviz",
            "inline-snapshot",
            "pymongo",
            "pytest-asyncio",
            "pytest-mock",
            "rich",
            "textual",
        ),
        code="src",
        uses="Runner.run",
        replaced=('Runner, "run', "Runner.run = ", "Runner.run_streamed = ", 'Runner.run"'),
    ),
    "langgraph": Suite(
        adapter="langgraph",
        package="langgraph",
        version="1.2.20",
        requirements=(
            "httpx",
            "langchain",
            "langgraph-checkpoint-postgres",
            "langgraph-checkpoint-sqlite",
            "psycopg[binary]",
            "pycryptodome",
            "pytest-dotenv",
            "pytest-mock",
            "pytest-repeat",
            "redis",
            "syrupy",
            "uvloop",
        ),
        uses="invoke(",
        environment={"NO_DOCKER": "true"},
    ),
    "langgraph_swarm": Suite(
        adapter="langgraph",
        package="langgraph-swarm",
        version="0.1.0",
        requirements=("langgraph==1.2.20", "langchain", "pytest-socket"),
    ),
    "langgraph_supervisor": Suite(
        adapter="langgraph",
        package="langgraph-supervisor",
        version="0.0.31",
        requirements=("langgraph==1.2.20", "langchain", "pytest-socket"),
    ),
    "langchain": Suite(
        adapter="langgraph",
        package="langchain",
        version="1.4.7",
        requirements=(
            "langgraph==1.2.20",
            "blockbuster",
            "fastmcp",
            "langchain-openai",
            "langchain-tests",
            "pytest-asyncio",
            "pytest-benchmark",
            "pytest-mock",
            "pytest-socket",
            "syrupy",
            "toml",
        ),
        tests="tests/unit_tests/agents",
        uses="invoke(",
    ),
    "strands": Suite(
        adapter="strands",
        package="strands-agents",
        version="1.62.0",
        requirements=("strands-agents[a2a,openai]==1.62.0", "moto", "pytest-asyncio"),
        files="*agent*/test_*.py",
        uses="gent(",
    ),
    "autogen": Suite(
        adapter="autogen",
        package="autogen-agentchat",
        version="0.7.5",
        requirements=("autogen-ext[openai]==0.7.5", "pytest-asyncio"),
        uses="run",
        loops_on_purpose={
            f"test_round_robin_group_chat_cancellation[{runtime}]": "four agents echo one text"
            for runtime in ("embedded", "single_threaded")
        },
    ),
    "agent_framework": Suite(
        adapter="agent_framework",
        package="agent-framework-core",
        version="1.23.0",
        requirements=("opentelemetry-sdk", "pytest-asyncio", "pytest-timeout"),
        tests="tests/workflow",
        ships_tests=False,
    ),
    "pydantic_ai": Suite(
        adapter="pydantic_ai",
        package="pydantic-ai-slim",
        version="2.66.0",
        requirements=(
            "pydantic-ai-slim[openai]==2.66.0",
            "anyio",
            "dirty-equals",
            "inline-snapshot",
            "pytest-mock",
        ),
        ships_tests=False,
        files="test_[ast]*.py",
        uses="FunctionModel",
    ),
}

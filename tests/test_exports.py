"""The public API: the names of `handrail`, and what `import handrail` does not drag in."""

import subprocess
import sys

import handrail

EXPORTS = [
    "AsyncClient",
    "Budget",
    "BudgetSpent",
    "Client",
    "ClientError",
    "ConstraintViolated",
    "Constraints",
    "Dispatch",
    "Engine",
    "EngineSettings",
    "Guard",
    "GuardedRun",
    "InvalidDefinition",
    "LimitReached",
    "LoopDetected",
    "ModelCall",
    "NoProgress",
    "Person",
    "Refused",
    "Result",
    "StopRules",
    "Stopped",
    "StoreError",
    "SyncClient",
    "SyncEngine",
    "TerminalStatus",
    "Worker",
    "agent",
    "ask",
    "carry_on",
    "failure",
    "hand_to",
    "open",
    "success",
    "terminate",
    "wait_for",
]
"""Every name that users may import from `handrail`, sorted. To add one: here and in `__all__`."""

NOT_ON_IMPORT = (
    "asyncio",
    "httpx",
    "litestar",
    "psycopg",
    "rich",
    "sqlite3",
    "typer",
    "yaml",
)
"""Modules that only some commands need; `import handrail` must stay cheap."""


def test_public_names_are_the_documented_ones_in_order():
    assert list(getattr(handrail, "__all__", [])) == EXPORTS
    assert sorted(EXPORTS) == EXPORTS


def test_every_public_name_can_be_imported_and_is_documented():
    values = {name: getattr(handrail, name) for name in EXPORTS}
    assert not [name for name, value in values.items() if callable(value) and not value.__doc__]


def test_importing_handrail_imports_nothing_that_only_some_commands_need():
    # -I: neither the folder nor the environment adds modules of its own.
    code = "import sys, handrail; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "handrail" in loaded
    assert loaded.isdisjoint(NOT_ON_IMPORT)

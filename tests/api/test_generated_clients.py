"""Other people's tools read the OpenAPI document: linters, and generators whose clients take a bead
from start to end. With HANDRAIL_LONG=1, because the tools are fetched from their registries.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.client.live_server import Server

from handrail.api.openapi import openapi_document

pytestmark = pytest.mark.skipif(
    not os.environ.get("HANDRAIL_LONG"), reason="set HANDRAIL_LONG=1: fetches generators"
)
HERE = Path(__file__).parent
NODE_PACKAGES = (
    "@redocly/cli@2.77.0",
    "@stoplight/spectral-cli@6.16.3",
    "@types/node@22",
    "openapi-fetch@0.17.0",
    "openapi-typescript@7.13.0",
    "typescript@5.9.3",
)


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """What the command printed; it has to succeed."""
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={**os.environ, "REDOCLY_TELEMETRY": "off", "NO_COLOR": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the document is."""
    folder = tmp_path_factory.mktemp("document")
    (folder / "openapi.json").write_bytes(msgspec.json.encode(openapi_document()))
    return folder


@pytest.fixture(scope="module")
def node(folder: Path) -> Path:
    """Where the programs of Node are."""
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    run("npm", "install", "--silent", "--no-fund", "--no-audit", *NODE_PACKAGES, folder=folder)
    return folder / "node_modules" / ".bin"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(f"sqlite:///{tmp_path}/beads.db") as server:
        yield server


def test_spectral_finds_nothing(folder: Path, node: Path):
    (folder / "rules.yaml").write_text('extends: ["spectral:oas"]')
    told = run(
        node / "spectral", "lint", "openapi.json", "-r", "rules.yaml", "-F", "hint", folder=folder
    )
    assert "No results" in told


def test_redocly_finds_nothing(folder: Path, node: Path):
    told = run(node / "redocly", "lint", "openapi.json", "--format=summary", folder=folder)
    assert "error" not in told
    assert "warnings" not in told


def test_the_document_is_valid_openapi(folder: Path):
    validator = "openapi-spec-validator==0.9.0"
    run(
        "uv",
        "tool",
        "run",
        "--from",
        validator,
        "openapi-spec-validator",
        "openapi.json",
        folder=folder,
    )


def test_a_client_of_openapi_python_client_takes_a_bead_to_its_end(folder: Path, server: Server):
    generator = ("uv", "tool", "run", "openapi-python-client@0.29.1", "generate")
    run(
        *generator,
        "--path",
        "openapi.json",
        "--output-path",
        "generated",
        "--meta",
        "none",
        folder=folder,
    )
    told = run(
        sys.executable,
        HERE / "whole_bead.py",
        folder,
        server.url,
        folder=folder,
        AGENT_TOKEN=server.token("agent", "coder-1"),
        CEO_TOKEN=server.token("ceo", "ana"),
    )
    assert told == "done_success 5\n"


def test_a_client_of_openapi_typescript_takes_a_bead_to_its_end(
    folder: Path, node: Path, server: Server
):
    # A field with a default may be left out of a request.
    optional = ("--default-non-nullable", "false")
    run(
        node / "openapi-typescript",
        "openapi.json",
        "-o",
        "generated.d.ts",
        *optional,
        folder=folder,
    )
    (folder / "whole_bead.ts").write_text((HERE / "whole_bead.ts").read_text())
    kind = ("--module", "nodenext", "--target", "es2022", "--strict", "--types", "node")
    run(node / "tsc", "--skipLibCheck", *kind, "whole_bead.ts", folder=folder)
    tokens = (server.token("agent", "coder-1"), server.token("ceo", "ana"))
    assert run("node", "whole_bead.js", server.url, *tokens, folder=folder) == "done_success 5\n"

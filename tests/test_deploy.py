"""What `deploy/` says is what works: units and containers are not started here, but their commands
are, with their arguments, in a folder like theirs."""

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from tests.client.live_server import free_port

from handrail.engine.dispatch.local_agents import STOP_SECONDS
from handrail.server.process import CLOSE_SECONDS_MAX
from handrail.server.settings import ServerSettings

DEPLOY = Path(__file__).parents[1] / "deploy"
INSTALLED = "/opt/handrail/bin"
HANDRAIL = Path(sys.executable).with_name("handrail")
UNITS = sorted(path.name for path in DEPLOY.glob("handrail*.*"))
SECONDS = 60


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment]
    parser.read(DEPLOY / name)
    return parser


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANDRAIL_")}
    return {**kept, "PATH": f"{HANDRAIL.parent}:{os.environ['PATH']}", **more}


def run(folder: Path, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@contextmanager
def running(
    folder: Path, *command: str, **variables: str
) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """A server, and its address once it listens."""
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"Handrail is at (\S+)", line)
        assert found, (line, (folder / "log").read_text())
        yield process, found.group(1)
    finally:
        process.kill()
        process.communicate()


# systemd


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_the_unit(name: str, tmp_path: Path):
    (tmp_path / "handrail").write_text("#!/bin/sh\n")
    (tmp_path / "handrail").chmod(0o755)
    for other in UNITS:  # a timer names its service
        text = (DEPLOY / other).read_text().replace(INSTALLED, str(tmp_path))
        (tmp_path / other).write_text(text)
    done = run(tmp_path, "systemd-analyze", "verify", str(tmp_path / name))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_service_starts_and_ends_in_the_time_it_is_given(tmp_path: Path):
    service = unit("handrail.service")["Service"]
    command = service["ExecStart"].replace(INSTALLED, str(HANDRAIL.parent)).split()
    given = dict([service["Environment"].split("=", 1)])
    longest = ServerSettings().drain + CLOSE_SECONDS_MAX + STOP_SECONDS
    patience = float(service["TimeoutStopSec"])
    assert patience > 2 * longest
    with running(tmp_path, *command, **given, HANDRAIL_PORT=str(free_port())) as (process, address):
        assert httpx.get(f"{address}/healthz").status_code == 200
        process.send_signal(getattr(signal, service["KillSignal"]))
        assert process.wait(patience) == 0
    assert json.loads((tmp_path / "log").read_text().splitlines()[-1])["event"] == "server_ended"


def test_the_backup_service_leaves_a_backup_and_removes_old_ones(tmp_path: Path):
    service = unit("handrail-backup.service")["Service"]
    folder = tmp_path / service["StateDirectory"].split()[1].removeprefix("handrail/")
    folder.mkdir()
    old = folder / "20200101T000000Z.backup"
    old.touch()
    os.utime(old, (0, 0))
    assert run(tmp_path, "handrail", "token", "create", "--role", "admin").returncode == 0
    [shell, option, script] = re.fullmatch(r"(\S+) (-c) '(.*)'", service["ExecStart"]).groups()  # type: ignore[union-attr]
    script = script.replace("%%", "%").replace(INSTALLED, str(HANDRAIL.parent))
    done = run(tmp_path, shell, option, script)
    assert done.returncode == 0, done.stderr
    assert run(tmp_path, *service["ExecStartPost"].split()).returncode == 0
    [kept] = folder.iterdir()
    new = f"sqlite:///{tmp_path / 'again.db'}"
    assert run(tmp_path, "handrail", "db", "restore", str(kept), "--database", new).returncode == 0
    assert run(tmp_path, "handrail", "verify", "--database", new).returncode == 0


# Containers


def instruction(name: str) -> list[str]:
    """The list that the last such instruction of the Dockerfile has."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "")
    *_, found = re.findall(rf"^ *{name}\b[^\[\n]*(\[.*\])$", text, re.MULTILINE)
    return json.loads(found)


def test_the_container_wants_a_token_then_starts_and_is_found_healthy(tmp_path: Path):
    port = str(free_port())
    [program] = instruction("ENTRYPOINT")
    command = [port if part == "8080" else part for part in instruction("CMD")]
    healthy = [part.replace(":8080", f":{port}") for part in instruction("HEALTHCHECK")]
    healthy[0] = sys.executable
    done = run(tmp_path, program, *command)
    assert done.returncode == 2
    assert "handrail token create --role admin" in done.stderr
    assert run(tmp_path, program, "token", "create", "--role", "admin").returncode == 0
    with running(tmp_path, program, *command):
        assert run(tmp_path, *healthy).returncode == 0
    assert run(tmp_path, *healthy).returncode != 0


def test_the_image_is_given_what_it_is_built_from():
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {"!LICENSE", "!README.md", "!pyproject.toml", "!src"} <= set(ignored)


def test_the_example_with_two_servers_is_well_formed():
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    proxy = (DEPLOY / "nginx.conf").read_text()
    servers = [name for name in services if services[name].get("image") == "handrail"]
    assert servers == ["one", "two"]
    for name in servers:
        assert f"server {name}:8080" in proxy
        assert services[name]["build"]["dockerfile"] == "deploy/Dockerfile"

"""`handrail serve` with OTEL_EXPORTER_OTLP_ENDPOINT: real spans to a collector, and no harm from a
bad one."""

from pathlib import Path

import pytest
from tests.cli.command_line import run_command
from tests.cli.test_serve import serving
from tests.telemetry.collector import PATIENCE, Collector

import handrail
from handrail.telemetry import setup
from handrail.telemetry.setup import TracingUnavailableError, open_traces

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def resolved(folder: Path, collector: Collector, **variables: str) -> tuple[str, str]:
    """A ticket that the built-in helpdesk resolves, at a server with that collector: its run, and
    how it ended. The server ends in good order."""
    with collector.listening() as address:
        return _resolved(folder, collector, {ENDPOINT: address, **variables})


def _resolved(folder: Path, collector: Collector, given: dict[str, str]) -> tuple[str, str]:
    database = f"sqlite:///{folder / 'work.db'}"
    admin = run_command("token", "create", "--role", "admin", "--database", database).out.strip()
    given |= {"OTEL_BSP_SCHEDULE_DELAY": "50", "HANDRAIL_DRAIN": "0"}
    options = ("--builtin-agents", "--database", database)
    with serving(folder, *options, **given) as (process, url):
        with handrail.Client(url, admin) as client:
            filed = client.beads.create("VPN drops every hour", workflow_id="helpdesk")
            run = client.result(filed.execution_id or "", timeout=PATIENCE)
        assert collector.asked.wait(PATIENCE), "it is sent while the server runs"
        code, _ = process.end()
    assert code == 0
    return run.id, str(run.terminal_status)


def test_a_served_run_arrives_at_the_collector_as_one_trace(tmp_path: Path):
    collector = Collector()
    run_id, status = resolved(tmp_path, collector, OTEL_SERVICE_NAME="desk")
    found = collector.spans(2)
    assert {path for path, _ in collector.came} == {"/v1/traces"}
    assert {span.trace_id.hex() for span in found} == {run_id}
    (root,) = [span for span in found if not span.parent_span_id]
    assert root.name.startswith("invoke_workflow ")
    said = {one.key: one.value.string_value for one in root.attributes}
    assert said["handrail.terminal_status"] == status
    others = [span for span in found if span.parent_span_id]
    assert others
    assert all(span.name.startswith("invoke_agent ") for span in others)
    assert {span.parent_span_id for span in others} == {root.span_id}
    resources = [one.resource for _, request in collector.came for one in request.resource_spans]
    names = [one.value.string_value for one in resources[0].attributes if one.key == "service.name"]
    assert names == ["desk"]


def test_a_collector_that_never_answers_costs_spans_and_nothing_else(tmp_path: Path):
    _, status = resolved(tmp_path, Collector(silent=True))
    assert status == "done_success"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: ""},
        {ENDPOINT: "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nobody_who_has_not_asked_for_traces_has_them(environment: dict[str, str]):
    assert open_traces(environment) is None


def test_whoever_asks_for_traces_without_the_extra_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(setup, "find_spec", lambda _: None)
    with pytest.raises(
        TracingUnavailableError, match=r"uv tool install --force '\.\[server,otel\]'"
    ):
        open_traces({ENDPOINT: "http://127.0.0.1:1"})

"""Figures for Prometheus: what is counted, what the database says, and that no label grows."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.engine.engines import chain, node
from tests.server.harness import (
    ADDRESS,
    ASKS,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
    expect_problem,
)
from tests.server.http_agents import register_agent

from handrail.kernel.result import Outcome, Result
from handrail.server.app import ServerApp
from handrail.server.prometheus import METRICS, OTHER_LABEL, ROLES_MAX, compute_gauges
from handrail.store.rows import StoreError
from handrail.store.stats import OpenWorkCount
from handrail.testing.clock import NOON

pytest_plugins = ["tests.fixtures_postgres"]

METRICS_URL = f"{ADDRESS}/metrics"
Sample = tuple[str, frozenset[tuple[str, str]]]


class Scraped:
    """What Prometheus reads: samples by name and labels."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: dict[Sample, float] = {
            (one.name, frozenset(one.labels.items())): one.value
            for family in self.families.values()
            for one in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))

    def labels(self, label: str) -> Iterator[str]:
        for _, labels in self.samples:
            yield from (value for name, value in labels if name == label)


async def scraped(harness: ServerHarness) -> Scraped:
    answer = await harness.viewer.get(METRICS_URL)
    assert answer.status_code == 200, answer.text
    content_type = answer.headers["content-type"]
    assert content_type.startswith("text/plain; version=")
    assert content_type.count("charset=") == 1
    return Scraped(answer.text)


async def test_every_figure_of_the_table_is_told_with_its_kind_and_labels(harness: ServerHarness):
    await harness.asked()
    await register_agent(harness, "coder-7", "qa-engineer")
    await harness.define(chain(node("look", role="qa-engineer", kind="verification"), id="looks"))
    await harness.file("looks")
    await harness.define(PLAIN)
    await harness.file("plain")
    await harness.quiet()
    found = await scraped(harness)
    assert {name.removesuffix("_total") for name in METRICS} == set(found.families)
    for name, meter in METRICS.items():
        family = found.families[name.removesuffix("_total")]
        assert family.type == meter.kind
        assert family.documentation == meter.help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(meter.labels)
    assert not [name for name, _ in found.samples if name.endswith("_created")]


async def test_names_say_whose_they_are_and_their_unit():
    for name, meter in METRICS.items():
        assert re.fullmatch(r"handrail_[a-z_]+", name)
        assert name.endswith("_total") == (meter.kind == "counter")
        if "how long" in meter.help.lower() or meter.help.startswith("Time"):
            assert name.endswith("_seconds")


async def test_requests_are_counted_by_the_template_of_their_path(harness: ServerHarness):
    for bead in ("one", "two", "three"):
        expect_problem(await harness.viewer.get(f"/beads/{bead}"), 404, "unknown_bead")
    await harness.nobody.get("/beads")
    await harness.viewer.get(f"{ADDRESS}/no/such/path")
    found = await scraped(harness)
    beads = {"method": "GET", "path": "/api/v1/beads/{bead_id}"}
    total = "handrail_http_requests_total"
    assert found(total, **beads, status="404") == 3
    assert found("handrail_http_request_seconds_count", **beads) == 3
    assert found(total, method="GET", path="/api/v1/beads", status="401") == 1
    assert found(total, method="GET", path=OTHER_LABEL, status="404") == 1


async def test_no_label_says_more_than_the_server_knows(harness: ServerHarness):
    """Neither ids nor what somebody made up."""
    for n in range(20):
        await harness.viewer.get(f"{ADDRESS}/made/up/{n}")
        await harness.viewer.request(f"MADE{n}", "/beads")
        await harness.viewer.get(f"/beads/{n}")
        await register_agent(harness, f"agent-{n}", WORKER)
    found = await scraped(harness)
    text = " ".join(found.labels("path")) + " ".join(found.labels("method"))
    assert "MADE" not in text
    assert "/made" not in text
    assert not [value for _, labels in found.samples for _, value in labels if "agent-" in value]


async def test_runs_are_counted_by_how_and_why_they_ended(harness: ServerHarness):
    await harness.define(PLAIN)
    harness.works()
    for _ in range(2):
        await harness.file("plain")
    await harness.quiet()
    found = await scraped(harness)
    assert found("handrail_runs_started_total") == 2
    ended = {"terminal_status": "done_success", "rule": "completed"}
    assert found("handrail_runs_ended_total", **ended) == 2
    assert found("handrail_runs", status="running") == 0


async def test_what_is_open_is_told_with_the_age_of_the_oldest(harness: ServerHarness):
    question = await harness.asked()
    await harness.define(PLAIN, chain(node("check", role="qa-engineer"), id="checks"))
    harness.clock.advance(100)
    await harness.file("checks")
    harness.clock.advance(20)
    agent = await register_agent(harness, "coder-7", "web-designer")
    await harness.define(chain(node("paint", role="web-designer"), id="paints"))
    await harness.file("paints")
    await agent.claim()
    found = await scraped(harness)
    assert found("handrail_runs", status="waiting") == 1
    assert found("handrail_runs", status="running") == 2
    assert found("handrail_runs", status="paused") == 0
    assert found("handrail_dispatches", state="offered", role="qa-engineer") == 1
    assert found("handrail_dispatches", state="claimed", role="web-designer") == 1
    assert found("handrail_dispatch_oldest_offer_seconds") == 20
    assert found("handrail_approvals_open", type="approval") == 1
    assert found("handrail_approval_oldest_seconds") == 120
    body = {"decision": "approve"}
    expect_json(await harness.ceo.post(f"/approvals/{question['id']}/answer", json=body))
    found = await scraped(harness)
    assert found("handrail_approvals_open", type="approval") is None
    assert found("handrail_approval_oldest_seconds") == 0


async def test_commits_are_measured(harness: ServerHarness):
    await harness.define(PLAIN)
    before = await scraped(harness)
    await harness.file("plain")
    found = await scraped(harness)
    name = "handrail_commit_seconds_count"
    assert found(name) == (before(name) or 0) + 1
    assert found("handrail_commit_writes_sum") == (before("handrail_commit_writes_sum") or 0) + 1


async def test_a_database_that_is_away_is_told_and_the_rest_goes_on(harness: ServerHarness):
    def away(limit: int) -> Any:
        raise StoreError("no route to it")

    harness.engine._access.reader.stats.count_open_work = away  # pyright: ignore[reportAttributeAccessIssue]
    found = await scraped(harness)
    assert found("handrail_database_up") == 0
    assert found("handrail_engine_up") == 1
    assert found("handrail_runs", status="running") is None
    assert found("handrail_http_waiting_requests") == 0


async def test_an_engine_that_failed_is_told(harness: ServerHarness):
    harness.engine._access.failure = RuntimeError("over")
    try:
        found = Scraped((await harness.served.metrics.scrape()).decode())
    finally:
        harness.engine._access.failure = None
    assert found("handrail_engine_up") == 0
    assert found("handrail_database_up") == 0


async def test_each_server_counts_for_itself(harness: ServerHarness):
    other = ServerApp(harness.engine)
    await harness.viewer.get("/beads")
    found = Scraped((await other.metrics.scrape()).decode())
    assert not [name for name, _ in found.samples if name == "handrail_http_requests_total"]


async def test_the_figures_are_for_viewers(harness: ServerHarness):
    expect_problem(await harness.nobody.get(METRICS_URL), 401, "no_token")
    expect_problem(await harness.agent.get(METRICS_URL), 403, "forbidden")


def test_of_very_many_roles_the_busiest_are_told_and_the_others_together():
    rows = [
        OpenWorkCount(what="offered", kind=f"role-{n}", count=n, oldest=None) for n in range(1, 301)
    ]
    found = compute_gauges(rows, NOON)["handrail_dispatches"]
    assert len(found) == ROLES_MAX + 1
    assert sum(found.values()) == sum(range(1, 301))
    assert found["offered", "role-300"] == 300
    assert found["offered", OTHER_LABEL] == sum(range(1, 201))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_both_databases_say_the_same_of_what_is_open(
    kind: str, request: pytest.FixtureRequest, tmp_path: Any, clock: Any
):
    url = f"sqlite:///{tmp_path / 'w.db'}"
    url = url if kind == "sqlite" else request.getfixturevalue("postgres_url")
    async with ServerHarness(url, clock).opened() as harness:
        await harness.define(ASKS, PLAIN)
        await harness.engine.add_agent(
            lambda _: Result(outcome=Outcome.SUCCESS), WORKER, name="coder", capacity=1
        )
        await harness.file("asks")
        await harness.quiet()
        await harness.define(chain(node("check", role="qa-engineer"), id="checks"))
        await harness.file("checks")
        harness.clock.advance(7)
        found = await scraped(harness)
    assert found("handrail_runs", status="waiting") == 1
    assert found("handrail_dispatches", state="offered", role="qa-engineer") == 1
    assert found("handrail_dispatch_oldest_offer_seconds") == 7
    assert found("handrail_approvals_open", type="approval") == 1
    assert found("handrail_approval_oldest_seconds") == 7

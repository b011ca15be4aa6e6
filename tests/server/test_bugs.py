"""Errors of services over HTTP: one bead for each signature, in our shape or Sentry's."""

from typing import Any

import pytest
from tests.server.harness import PLAIN, ServerHarness, expect_json, expect_problem, list_all

from handrail.engine.services import bugs
from handrail.teams import load_builtin

TRACE = """Traceback (most recent call last):
  File "/srv/shop/cart.py", line {line}, in total
    return prices[item]
KeyError: 'apple'
"""


def error(line: int = 12, **more: Any) -> dict[str, Any]:
    return {
        "service": "shop",
        "type": "KeyError",
        "message": "'apple'",
        "traceback": TRACE.format(line=line),
        "method": "GET",
        "route": "/cart/17?coupon=abc",
        "status": 500,
        **more,
    }


async def report(harness: ServerHarness, body: dict[str, Any]) -> dict[str, Any]:
    answer = await harness.reporter.post("/bugs", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_same_error_again_is_counted_and_files_nothing(harness: ServerHarness):
    first = await report(harness, error())
    assert first["filed"] == "new"
    again = await report(harness, error(line=13, route="/cart/99", count=4))
    assert (again["filed"], again["bead_id"]) == ("known", first["bead_id"])
    assert again["count"] == 5
    (bead,) = await list_all(harness.viewer, "/beads", limit=10)
    assert bead["title"] == "KeyError: 'apple'"
    assert bead["filed_by"] == "rudi"
    assert bead["context"]["specialist"] == "backend-engineer"
    assert bead["context"]["error"]["route"] == "/cart/{}"
    assert bead["context"]["error"]["path"] == "/cart/17"
    (bug,) = await list_all(harness.viewer, "/bugs", limit=10)
    assert (bug["count"], bug["bead_status"]) == (5, "open")


async def test_another_error_is_another_bead(harness: ServerHarness):
    found = [await report(harness, error()), await report(harness, error(service="billing"))]
    found += [await report(harness, error(traceback=TRACE.format(line=1).replace("total", "sum")))]
    assert len({one["bead_id"] for one in found}) == 3
    assert len(await list_all(harness.viewer, "/bugs", limit=2)) == 3


async def test_an_error_that_comes_back_after_its_bead_was_closed_is_a_regression(
    harness: ServerHarness,
):
    await harness.define({**PLAIN, "id": bugs.BUG_WORKFLOW_ID, "name": bugs.BUG_WORKFLOW_ID})
    harness.works()
    first = await report(harness, error())
    assert first["execution_id"]
    await harness.quiet()
    harness.clock.advance(60)
    again = await report(harness, error())
    assert (again["filed"], again["earlier_bead_id"]) == ("regression", first["bead_id"])
    bead = expect_json(await harness.viewer.get(f"/beads/{again['bead_id']}"))
    assert bead["context"]["earlier_bead"] == first["bead_id"]
    assert (await report(harness, error()))["filed"] == "known"


@pytest.mark.requirement("L11.1")
async def test_a_bug_runs_through_the_built_in_workflow_where_it_is_defined(harness: ServerHarness):
    await harness.define(load_builtin(bugs.BUG_WORKFLOW_ID))
    filed = await report(harness, error(type="jinja2.TemplateError"))
    run = expect_json(await harness.viewer.get(f"/executions/{filed['execution_id']}"))
    assert run["workflow_id"] == bugs.BUG_WORKFLOW_ID
    bead = expect_json(await harness.viewer.get(f"/beads/{filed['bead_id']}"))
    assert bead["context"]["specialist"] == "web-designer"


@pytest.mark.parametrize(
    "body",
    [error(status=404), error(status=429), error(level="warning"), {"service": "shop"}],
    ids=["404", "429", "warning", "nothing"],
)
async def test_what_is_no_bug_files_nothing_and_says_why(
    harness: ServerHarness, body: dict[str, Any]
):
    found = await report(harness, body)
    assert (found["filed"], found["bead_id"]) == (None, None)
    assert found["reason"]
    assert await list_all(harness.viewer, "/beads", limit=10) == []


async def test_no_more_than_so_many_are_filed_in_an_hour(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bugs, "BUGS_PER_HOUR_MAX", 3)
    found = [await report(harness, error(service=f"s{'x' * n}")) for n in range(5)]
    assert [one["filed"] for one in found] == ["new"] * 3 + [None] * 2
    assert (await report(harness, error(service="s")))["filed"] == "known"
    harness.clock.advance(3_601)
    assert (await report(harness, error(service="sxxx")))["filed"] == "new"


async def test_one_reporter_leaves_the_others_room(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bugs, "BUGS_PER_REPORTER_MAX", 2)
    found = [await report(harness, error(service=f"s{'x' * n}")) for n in range(3)]
    assert [one["filed"] for one in found] == ["new"] * 2 + [None]
    assert "2 of them by rudi" in found[-1]["reason"]
    other = await harness.client("rosa", "reporter")
    assert expect_json(await other.post("/bugs", json=error(service="z")))["filed"] == "new"


async def test_an_event_of_sentry_is_read_without_its_variables(harness: ServerHarness):
    event = {
        "event_id": "fc6d8c0c43fc4630ad850ee518f1b9d0",
        "level": "error",
        "project": "shop",
        "transaction": "/cart/{id}",
        "request": {"method": "GET", "url": "https://x/cart/1?k=v", "headers": {"Cookie": "a=b"}},
        "exception": {
            "values": [
                {
                    "type": "KeyError",
                    "value": "'apple' token=abc123secret",
                    "stacktrace": {
                        "frames": [
                            {
                                "filename": "cart.py",
                                "function": "total",
                                "lineno": 12,
                                "context_line": "    return prices[item]",
                                "vars": {"password": "hunter2"},
                            }
                        ]
                    },
                }
            ]
        },
        "breadcrumbs": {"values": [{"message": "hunter2"}]},
        "user": {"email": "ana@example.org"},
    }
    filed = await report(harness, event)
    assert filed["filed"] == "new"
    bead = expect_json(await harness.viewer.get(f"/beads/{filed['bead_id']}"))
    assert "in total" in bead["description"]
    for secret in ("hunter2", "abc123secret", "ana@example.org", "a=b", "k=v"):
        assert secret not in str(bead)
    event["exception"] = {"values": "no list"}
    expect_problem(await harness.reporter.post("/bugs", json=event), 422, "bad_body")


async def test_what_is_no_report_is_refused(harness: ServerHarness):
    for body in ({"status": "many"}, {"count": 0}, {"type": "x" * 300}):
        expect_problem(await harness.reporter.post("/bugs", json=body), 422, "bad_body")


async def test_a_reporter_may_report_and_do_nothing_else(harness: ServerHarness):
    await report(harness, error())
    expect_problem(await harness.reporter.get("/bugs"), 403, "forbidden")
    expect_problem(await harness.viewer.post("/bugs", json=error()), 403, "forbidden")
    expect_problem(await harness.agent.post("/bugs", json=error()), 403, "forbidden")
    assert (await harness.operator.post("/bugs", json=error())).status_code == 200

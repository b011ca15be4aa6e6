"""Sessions of the page: listed and ended by whoever they are of, from anywhere."""

import pytest
from tests.server.harness import ServerHarness, expect_json, expect_problem
from tests.server.test_attacks_more import browser, link

from handrail.server.settings import ServerSettings


async def test_a_session_is_seen_and_ended_by_whose_it_is_and_by_no_other(
    harness: ServerHarness,
) -> None:
    bea = await harness.client("bea", "viewer")
    async with browser(harness) as lost, browser(harness) as kept:
        await lost.post(await link(harness))
        await kept.post(await link(harness))
        mark = {"x-csrf-token": expect_json(await kept.get("/api/v1/me"))["csrf"]}
        items = expect_json(await kept.get("/api/v1/sessions"))["items"]
        assert [one["name"] for one in items] == ["bea", "bea"]
        assert [one["id"] for one in items] == [
            one["id"] for one in expect_json(await bea.get("/sessions"))["items"]
        ]
        assert expect_json(await harness.ceo.get("/sessions"))["items"] == []
        (other,) = [one["id"] for one in items if not one["mine"]]
        expect_problem(await harness.ceo.delete(f"/sessions/{other}"), 404, "unknown_session")
        assert expect_json(await lost.get("/api/v1/me"))["name"] == "bea"
        ended = await kept.delete(f"/api/v1/sessions/{other}", headers=mark)
        assert ended.status_code == 204
        expect_problem(await lost.get("/api/v1/me"), 401, "bad_token")
        (mine,) = expect_json(await harness.admin.get("/sessions"))["items"]
        assert (await harness.admin.delete(f"/sessions/{mine['id']}")).status_code == 204
        expect_problem(await kept.get("/api/v1/me"), 401, "bad_token")
        expect_problem(
            await harness.admin.delete(f"/sessions/{mine['id']}"), 404, "unknown_session"
        )


@pytest.fixture
def public(harness: ServerHarness) -> ServerHarness:
    harness.settings = ServerSettings(public_url="https://handrail.example")
    return harness


async def test_the_cookie_is_for_https_where_people_come_by_https(public: ServerHarness) -> None:
    async with browser(public) as page:
        assert "; Secure" in (await page.post(await link(public))).headers["set-cookie"]

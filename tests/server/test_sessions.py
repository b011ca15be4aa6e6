"""Sessions of the page: listed and ended by whoever they are of, from anywhere."""

import pytest
from tests.server.house import House, problem, told
from tests.server.test_attacks_more import browser, link

from handrail.server.settings import ServerSettings


async def test_a_session_is_seen_and_ended_by_whose_it_is_and_by_no_other(house: House) -> None:
    bea = await house.client("bea", "viewer")
    async with browser(house) as lost, browser(house) as kept:
        await lost.post(await link(house))
        await kept.post(await link(house))
        mark = {"x-csrf-token": told(await kept.get("/api/v1/me"))["csrf"]}
        items = told(await kept.get("/api/v1/sessions"))["items"]
        assert [one["name"] for one in items] == ["bea", "bea"]
        assert [one["id"] for one in items] == [
            one["id"] for one in told(await bea.get("/sessions"))["items"]
        ]
        assert told(await house.ceo.get("/sessions"))["items"] == []
        (other,) = [one["id"] for one in items if not one["mine"]]
        problem(await house.ceo.delete(f"/sessions/{other}"), 404, "unknown_session")
        assert told(await lost.get("/api/v1/me"))["name"] == "bea"
        ended = await kept.delete(f"/api/v1/sessions/{other}", headers=mark)
        assert ended.status_code == 204
        problem(await lost.get("/api/v1/me"), 401, "bad_token")
        (mine,) = told(await house.admin.get("/sessions"))["items"]
        assert (await house.admin.delete(f"/sessions/{mine['id']}")).status_code == 204
        problem(await kept.get("/api/v1/me"), 401, "bad_token")
        problem(await house.admin.delete(f"/sessions/{mine['id']}"), 404, "unknown_session")


@pytest.fixture
def public(house: House) -> House:
    house.settings = ServerSettings(public_url="https://handrail.example")
    return house


async def test_the_cookie_is_for_https_where_people_come_by_https(public: House) -> None:
    async with browser(public) as page:
        assert "; Secure" in (await page.post(await link(public))).headers["set-cookie"]

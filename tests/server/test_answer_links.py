"""One-time links: an answer from a mail or a chat, by one person to one question."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from tests.engine.engines import chain, node
from tests.server.harness import CEO, OPERATOR, ServerHarness, expect_json, expect_problem, list_all
from tests.server.test_approvals import REVIEWED

from handrail.api.operation import API_PREFIX
from handrail.kernel.result import Outcome, Result
from handrail.server.access import digest_secret
from handrail.server.settings import ServerSettings
from handrail.store.rows import parse_iso
from handrail.testing.clock import ManualClock

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
XSS = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><b>&"


def _path(made: dict) -> str:
    return made["path"].removeprefix(API_PREFIX)


async def _link(client: httpx.AsyncClient, approval: dict, status: int = 201, **body: str) -> dict:
    return expect_json(await client.post(f"/approvals/{approval['id']}/links", json=body), status)


async def _asked(harness: ServerHarness, **wanted) -> tuple[dict, str]:
    """An open question, and the CEO's link to it."""
    approval = await harness.asked(**wanted)
    return approval, _path(await _link(harness.ceo, approval))


async def _now(harness: ServerHarness, approval: dict) -> dict:
    return expect_json(await harness.viewer.get(f"/approvals/{approval['id']}"))


# Looking does nothing


@pytest.mark.requirement("R1.2", "R4.5")
async def test_a_link_shows_what_it_will_do_and_does_nothing(harness: ServerHarness):
    approval, link = await _asked(harness)
    # A mail program looks at links before people do.
    *_, view = [expect_json(await harness.nobody.get(link)) for _ in range(3)]
    assert view["approval"]["result"] == "done"
    assert view["approval"]["digest"] == approval["digest"]
    assert (view["name"], set(view["does"])) == (CEO, {"approve", "revise", "reject"})
    head = await harness.nobody.head(link)
    assert head.status_code in (200, 405)
    assert (await _now(harness, approval))["status"] == "open"


async def test_a_link_to_an_escalation_says_that_an_approval_skips_the_work(harness: ServerHarness):
    await harness.define(chain(node("fix", max_attempts=1), id="hard"))
    harness.works(Result(outcome=Outcome.FAILURE, reason="no idea"))
    await harness.file("hard")
    await harness.quiet()
    (asked,) = await list_all(harness.viewer, "/approvals", status="open")
    view = expect_json(await harness.nobody.get(_path(await _link(harness.ceo, asked))))
    assert view["does"]["approve"] == "it goes on as if 'fix' had succeeded"
    assert view["does"]["revise"] == "'fix' is tried again, with your text"


async def test_a_browser_gets_a_page_without_a_script(harness: ServerHarness):
    harness.works(Result(outcome=Outcome.SUCCESS, text=XSS))
    await harness.define(chain(node("fix"), node("look", "approval", revise_to="fix"), id="asks"))
    await harness.file("asks")
    await harness.quiet()
    (approval,) = await list_all(harness.viewer, "/approvals", status="open")
    link = _path(await _link(harness.ceo, approval))
    answer = await harness.nobody.get(link, headers=HTML)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "form-action 'self'" in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    page = answer.text
    assert "<script" not in page
    assert "onerror=alert(1)>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count('<form method="post">') == 3
    assert re.findall(r'name="decision" value="(\w+)"', page) == ["approve", "revise", "reject"]
    assert page.index("&lt;script&gt;") < page.index("<textarea")  # the result above the field
    assert approval["digest"][:16] in page


# Sending does it, once


@pytest.mark.requirement("R1.3", "R3.4", "R4.2")
@pytest.mark.parametrize("body", [{"text": "OK"}, {"decision": "approve"}])
async def test_a_link_answers_once_as_its_person(harness: ServerHarness, body: dict):
    approval, link = await _asked(harness)
    done = expect_json(await harness.nobody.post(link, json=body))
    assert (done["approval"]["status"], done["approval"]["by"]) == ("answered", CEO)
    assert (done["run_status"], done["terminal_status"]) == ("ended", "done_success")
    again = await harness.nobody.post(link, json={"decision": "reject"})
    assert "once" in expect_problem(again, 410, "link_used")["detail"]
    expect_problem(await harness.nobody.get(link), 410, "link_used")
    assert (await _now(harness, approval))["decision"] == "approve"


@pytest.mark.requirement("R1.4", "R4.3", "R4.4")
async def test_a_form_retries_with_the_text_as_typed(harness: ServerHarness):
    approval, link = await _asked(harness)
    text = 'use 7% tax,\nand "gross" & <net>  '
    body = urlencode({"decision": "revise", "text": text.replace("\n", "\r\n")})
    headers = {**HTML, "content-type": "application/x-www-form-urlencoded"}
    answer = await harness.nobody.post(link, content=body, headers=headers)
    assert (answer.status_code, "Done" in answer.text) == (200, True)
    now = await _now(harness, approval)
    assert (now["decision"], now["answer"], now["by"]) == ("revise", text, CEO)
    again = await harness.nobody.post(link, content=body, headers=headers)
    assert (again.status_code, "Nothing was done" in again.text) == (410, True)


async def test_of_many_that_send_at_once_one_answers(harness: ServerHarness):
    approval, link = await _asked(harness)
    decisions = ["approve", "reject"] * 10
    sent = [harness.nobody.post(link, json={"decision": one}) for one in decisions]
    answers = await asyncio.gather(*sent)
    now = await _now(harness, approval)
    same = [one for one, a in zip(decisions, answers, strict=True) if a.status_code == 200]
    assert same
    assert set(same) == {now["decision"]}
    assert {a.status_code for a in answers} <= {200, 409, 410}


async def test_what_could_mean_either_is_asked_again_and_the_link_stays_good(
    harness: ServerHarness,
):
    approval, link = await _asked(harness)
    found = expect_problem(
        await harness.nobody.post(link, json={"text": "hm"}), 422, "ambiguous_answer"
    )
    assert {one["message"] for one in found["errors"]} == {"approve", "revise", "reject"}
    page = await harness.nobody.post(link, content="text=no", headers={**HTML, "content-type":
                                   "application/x-www-form-urlencoded"})  # fmt: skip
    assert (page.status_code, "approve" in page.text) == (422, True)
    for wrong in (b"", b"[]", b'{"decision": "maybe"}', b'{"text": 1}', b"\xff"):
        answer = await harness.nobody.post(link, content=wrong)
        assert answer.status_code in (400, 422)
    assert (await _now(harness, approval))["status"] == "open"
    expect_json(await harness.nobody.post(link, json={"decision": "approve"}))


# What is over, or something else


async def test_an_expired_link_does_nothing(harness: ServerHarness):
    approval = await harness.asked()
    made = await _link(harness.ceo, approval, expires="2h")
    link = _path(made)
    assert parse_iso(made["expires_at"]) == harness.clock.now() + timedelta(hours=2)
    harness.clock.advance(hours=2)
    expect_problem(await harness.nobody.get(link), 410, "link_expired")
    expect_problem(
        await harness.nobody.post(link, json={"decision": "approve"}), 410, "link_expired"
    )
    assert (await _now(harness, approval))["status"] == "open"


async def test_a_link_ends_with_its_question(harness: ServerHarness):
    approval = await harness.asked()
    made = await _link(harness.ceo, approval, expires="20d")
    assert parse_iso(made["expires_at"]) == parse_iso(approval["deadline"])


async def test_what_somebody_else_answered_is_not_answered_again(harness: ServerHarness):
    approval, link = await _asked(harness)
    body = {"decision": "approve"}
    expect_json(await harness.ceo.post(f"/approvals/{approval['id']}/answer", json=body))
    expect_problem(await harness.nobody.get(link), 409, "not_open")
    expect_problem(await harness.nobody.post(link, json={"decision": "reject"}), 409, "not_open")
    page = await harness.nobody.get(link, headers=HTML)
    assert (page.status_code, "answered by ana" in page.text) == (409, True)


async def test_when_what_was_shown_has_changed_the_link_is_void(harness: ServerHarness):
    approval, link = await _asked(harness, context={"amount": 1})
    body = {"context": {"amount": 82_000}}
    expect_json(await harness.operator.patch(f"/beads/{approval['original_bead_id']}", json=body))
    expect_problem(await harness.nobody.post(link, json={"decision": "approve"}), 409, "not_open")
    (fresh,) = await list_all(harness.viewer, "/approvals", status="open")
    assert fresh["digest"] != approval["digest"]


# Who may


async def test_a_made_up_link_is_nobodys_and_guessing_is_slow(harness: ServerHarness):
    approval, link = await _asked(harness)
    for n in range(8):
        expect_problem(await harness.nobody.get(f"/answer-links/hr_{n}"), 401, "bad_link")
    answers = [await harness.nobody.get(f"/answer-links/hr_x{n}") for n in range(20)]
    assert answers[-1].status_code == 429
    assert (await _now(harness, approval))["status"] == "open"
    assert link


async def test_the_secret_is_kept_nowhere(harness: ServerHarness):
    approval, link = await _asked(harness)
    secret = link.rsplit("/", 1)[1]
    row = await harness.engine.approvals.link(digest_secret(secret))
    assert row is not None
    assert secret not in str(row)
    assert row.approval_id == approval["id"]


async def test_people_make_links_for_themselves_and_admins_for_anybody_who_may(
    harness: ServerHarness,
):
    approval = await harness.asked()
    refused = await harness.ceo.post(
        f"/approvals/{approval['id']}/links", json={"name": "eve", "role": "ceo"}
    )
    expect_problem(refused, 403, "foreign_link")
    expect_problem(await harness.operator.post(f"/approvals/{approval['id']}/links", json={}), 403,
            "not_allowed")  # fmt: skip
    expect_problem(
        await harness.agent.post(f"/approvals/{approval['id']}/links", json={}), 403, "forbidden"
    )
    low = await harness.admin.post(
        f"/approvals/{approval['id']}/links", json={"name": "bob", "role": "operator"}
    )
    expect_problem(low, 403, "not_allowed")
    link = _path(await _link(harness.admin, approval, name="bob", role="ceo"))
    done = expect_json(await harness.nobody.post(link, json={"text": "ok"}))
    assert done["approval"]["by"] == "bob"


async def test_whoever_lost_the_role_meanwhile_does_not_answer(harness: ServerHarness):
    approval = await harness.asked()
    bob = await harness.client("bob", "ceo")
    link = _path(await _link(bob, approval))
    (token,) = [one for one in await harness.engine.credentials.list("token") if one.name == "bob"]
    await harness.engine.credentials.revoke(token.id, by="ann")
    expect_problem(
        await harness.nobody.post(link, json={"decision": "approve"}), 403, "not_allowed"
    )
    await harness.client("bob", "operator")
    expect_problem(
        await harness.nobody.post(link, json={"decision": "approve"}), 403, "not_allowed"
    )
    assert (await _now(harness, approval))["status"] == "open"


async def test_four_eyes_and_a_quorum_hold_for_links_too(harness: ServerHarness):
    look = node("look", "approval", four_eyes=True, approvers=["olga", "bob", "eve"], quorum=2)
    await harness.define(chain(node("fix"), look, id="many"))
    harness.works()
    await harness.file("many")
    await harness.quiet()
    (approval,) = await list_all(harness.viewer, "/approvals", status="open")
    assert (approval["quorum"], approval["waits_for"]) == (2, ["bob", "eve"])
    author = await harness.operator.post(f"/approvals/{approval['id']}/links", json={})
    expect_problem(author, 403, "author")
    assert OPERATOR == "olga"
    bob, eve = [
        _path(await _link(harness.admin, approval, name=name, role="viewer"))
        for name in ("bob", "eve")
    ]
    first = expect_json(await harness.nobody.post(bob, json={"text": "ok"}))["approval"]
    assert (first["status"], first["approved_by"]) == ("open", ["bob"])
    assert first["waits_for"] == ["eve"]
    second = _path(
        expect_json(
            await harness.admin.post(
                f"/approvals/{approval['id']}/links", json={"name": "eve", "role": "viewer"}
            ),
            201,
        )
    )
    again = await harness.admin.post(f"/approvals/{approval['id']}/links", json={"name": "bob"})
    expect_problem(again, 409, "answered_before")
    last = expect_json(await harness.nobody.post(eve, json={"text": "looks good"}))["approval"]
    assert (last["status"], last["approved_by"]) == ("answered", ["bob", "eve"])
    expect_problem(await harness.nobody.post(second, json={"text": "ok"}), 409, "not_open")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_site_cannot_send_the_form(harness: ServerHarness, site: str):
    approval, link = await _asked(harness)
    headers = {"sec-fetch-site": site, "content-type": "application/x-www-form-urlencoded"}
    answer = await harness.nobody.post(link, content="decision=approve", headers=headers)
    expect_problem(answer, 403, "csrf")
    assert (await _now(harness, approval))["status"] == "open"


async def test_a_link_survives_the_server(harness: ServerHarness):
    approval, link = await _asked(harness)
    async with harness.opened() as again:
        view = expect_json(await again.nobody.get(link))
        assert view["approval"]["id"] == approval["id"]
        expect_json(await again.nobody.post(link, json={"decision": "approve"}))
        expect_problem(
            await again.nobody.post(link, json={"decision": "approve"}), 410, "link_used"
        )


@pytest.fixture
def public(tmp_path: Path, clock: ManualClock) -> ServerHarness:
    found = ServerHarness(f"sqlite:///{tmp_path / 'public.db'}", clock)
    found.settings = ServerSettings(public_url="https://work.example")
    return found


async def test_the_address_is_whole_if_the_server_knows_it(
    harness: ServerHarness, public: ServerHarness
):
    assert (await _link(harness.ceo, await harness.asked()))["url"] == ""
    made = await _link(public.ceo, await public.asked())
    assert made["url"] == f"https://work.example{made['path']}"


@pytest.mark.requirement("R3.3")
async def test_an_operator_reviews_a_teams_result_by_a_link(harness: ServerHarness):
    await harness.define(REVIEWED)
    harness.works(Result(outcome=Outcome.HANDOFF, to="invoice", reason="bill it"), "planner")
    harness.works(
        Result(outcome=Outcome.HANDOFF, to="review", reason="done", text="12.00"), "invoice"
    )
    await harness.file("reviewed")
    await harness.quiet()
    (approval,) = await list_all(harness.viewer, "/approvals", status="open")
    assert approval["type"] == "clarification_request"
    link = _path(await _link(harness.operator, approval))
    done = expect_json(await harness.nobody.post(link, json={"decision": "approve"}))
    assert done["terminal_status"] == "done_success"

"""No secret is ever seen again: not in the log, the database, the metrics or another's answer.

Every kind of request is made with tokens, a sign-in's code and a session; then everything that was
written or answered is searched for them, also as base64 and in a URL's escapes.
"""

import base64
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.server.calls import ACCESS_TABLE
from tests.server.captured_log import CapturedLog, capture_log
from tests.server.harness import ADDRESS, PLAIN, WORKER, ServerHarness, expect_json, expect_problem

from handrail.api.operation import API_PREFIX
from handrail.server.access import SESSION_COOKIE, issue_credential
from handrail.server.logs import redact
from handrail.store.rows import StoreError
from handrail.store.urls import open_store

WRONG = "hr_wrong-canary-token-0123456789abcdefghij"
PASSWORD = "canary-password"


def forms(secret: str) -> Iterator[bytes]:
    """How a secret may be written somewhere."""
    yield secret.encode()
    yield quote(secret, safe="").encode()
    yield secret.encode().hex().encode()
    for shift in range(3):  # wherever it stands in what was encoded
        text = base64.b64encode(b"-" * shift + secret.encode()).rstrip(b"=")
        yield text[4 if shift else 0 : -2]


class Canaries:
    """Secrets, and where each may be seen."""

    def __init__(self, harness: ServerHarness, log: CapturedLog) -> None:
        self.harness, self.log = harness, log
        self.secrets: dict[str, str] = {}
        self.answers: list[tuple[str, bytes]] = []

    async def send(
        self, method: str, path: str, *, shows: bool = False, **more: Any
    ) -> httpx.Response:
        """Any request, by nobody unless it says so."""
        url = path if path.startswith("http") else ADDRESS + path
        answer = await self.harness.nobody.request(method, url, **more)
        told = [f"{name}: {value}" for name, value in answer.headers.items()]
        seen = "\n".join([*told, answer.text]).encode()
        if not shows:
            self.answers.append((f"{method} {path}", seen))
        return answer

    def places(self) -> Iterator[tuple[str, bytes]]:
        yield "the log", self.log.text.encode()
        for file in Path(self.harness.url.removeprefix("sqlite:///")).parent.iterdir():
            if file.is_file():
                yield file.name, file.read_bytes()
        yield from self.answers

    def found(self) -> list[str]:
        return [
            f"{name} in {place}"
            for name, secret in self.secrets.items()
            for place, seen in self.places()
            for form in forms(secret)
            if form in seen
        ]


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def every_call(canaries: Canaries, secret: str) -> None:
    """With a good token, whether or not it may."""
    for method, path in ACCESS_TABLE:
        if "sign-in" in path or path.endswith(("/events", "/verify", "/claim")):
            continue
        where = path.replace("{", "").replace("}", "")
        body = {"json": {"no": "such field"}} if method in ("POST", "PUT", "PATCH") else {}
        shows = (method, path) == ("POST", f"{API_PREFIX}/tokens")
        await canaries.send(method, where, headers=bearer(secret), shows=shows, **body)


async def every_wrong_way(canaries: Canaries, secret: str) -> None:
    ways: list[dict[str, Any]] = [
        {"headers": {"Authorization": secret}},
        {"headers": {"Authorization": f"Bearer {secret} {secret}"}},
        {"headers": {"Authorization": f"bearer\t{secret}"}},
        {"headers": {"Authorization": f"Basic {secret}"}},
        {"headers": {"Authorization": f"Bearer {secret}x"}},
        {"headers": {"X-Token": secret}},
        {"headers": {"Cookie": f"{SESSION_COOKIE}={secret}"}},
        {"headers": {"Cookie": f"{SESSION_COOKIE}={secret}; $bad=\x01"}},
        {"headers": {"Cookie": f'{SESSION_COOKIE}="{secret}'}},
        {"headers": {"Idempotency-Key": "k", "Authorization": f"Bearer {secret}é".encode()}},
        {"params": {"token": secret, "access_token": secret}},
    ]
    for place in ("beads", "agents", "executions", "workflows", "approvals"):
        wrong = f"{API_PREFIX}/{place}/{secret}"  # whoever asks for it sees it, and nobody else
        await canaries.send("GET", wrong, params={"cursor": secret}, shows=True)
        await canaries.send("GET", wrong, headers=bearer(secret), shows=True)
    for way in ways:
        await canaries.send("GET", f"{API_PREFIX}/me", **way)
        await canaries.send("POST", f"{API_PREFIX}/beads", json={"title": "x"}, **way)
        canaries.harness.served.asgi.failures._levels.clear()  # pyright: ignore - not too many at once


async def signing_in(canaries: Canaries, admin: str) -> None:
    made = await canaries.send(
        "POST",
        f"{API_PREFIX}/sign-ins",
        json={"name": "vera"},
        headers={**bearer(admin), "Idempotency-Key": "sign-in"},
        shows=True,
    )
    path = expect_json(made, 201)["path"]
    canaries.secrets["the code"] = path.rpartition("/")[2]
    await canaries.send("GET", path, shows=True)  # its own address, in the form that sends it
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        await canaries.send(method, path)
    for wrong in (f"{path}/more", f"/api/v1{path}", f"/assets{path}"):
        await canaries.send("GET", wrong)
    signed = await canaries.send("POST", path, shows=True)
    assert signed.status_code == 303
    session = signed.cookies[SESSION_COOKIE]
    canaries.harness.nobody.cookies.clear()
    canaries.secrets["the session"] = session
    assert (await canaries.send("POST", path)).status_code == 401
    cookie = {"Cookie": f"{SESSION_COOKIE}={session}"}
    assert (
        expect_json(await canaries.send("GET", f"{API_PREFIX}/me", headers=cookie))["name"]
        == "vera"
    )
    await canaries.send("POST", f"{API_PREFIX}/sign-out", headers=cookie)
    await canaries.send(
        "POST", f"{API_PREFIX}/sign-out", headers={**cookie, "X-CSRF-Token": session}
    )
    await canaries.send("GET", "/", headers=cookie)


async def test_no_secret_is_seen_again_whatever_is_done_with_it(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    with capture_log("debug") as log:
        canaries = Canaries(harness, log)
        secret, row = issue_credential(
            "token", name="root", role="admin", by="test", now=harness.clock.now()
        )
        await harness.engine.credentials.add(row)
        canaries.secrets["the admin's token"] = secret
        canaries.secrets["a wrong token"] = WRONG
        made = await canaries.send(
            "POST",
            f"{API_PREFIX}/tokens",
            json={"role": "agent", "agent": "coder-7"},
            headers={**bearer(secret), "Idempotency-Key": "token"},
            shows=True,
        )
        token = expect_json(made, 201)["token"]
        canaries.secrets["the agent's token"] = token
        await harness.define(PLAIN)
        agent: dict[str, Any] = {"headers": bearer(token)}
        body = {"id": "coder-7", "roles": [WORKER]}
        expect_json(await canaries.send("POST", f"{API_PREFIX}/agents", json=body, **agent), 201)
        await harness.file("plain")
        wants = {"agent_id": "coder-7"}
        given = expect_json(
            await canaries.send("POST", f"{API_PREFIX}/dispatches/claim", json=wants, **agent)
        )
        result = {"outcome": "success", "fence": given["fence"]}
        for _ in range(2):  # in time, and late
            where = f"{API_PREFIX}/dispatches/{given['id']}/result"
            await canaries.send("POST", where, json=result, **agent)
        for one in (secret, token, WRONG):
            await every_call(canaries, one)
            await every_wrong_way(canaries, one)
        await signing_in(canaries, secret)
        await failing(canaries, monkeypatch, secret)
        for path in (
            f"{API_PREFIX}/audit",
            f"{API_PREFIX}/audit/verify",
            "/metrics",
            f"{API_PREFIX}/tokens",
        ):
            told_or_text = await canaries.send("GET", path, headers=bearer(secret))
            assert told_or_text.status_code == 200, path
        revoked = f"{API_PREFIX}/tokens/{row.id}"
        await canaries.send("DELETE", revoked, headers=bearer(secret))
        await canaries.send("GET", f"{API_PREFIX}/me", headers=bearer(secret))
        await harness.served.idempotent_responses.flush()
    assert len(log.of("request")) > 100
    assert len(canaries.answers) > 100
    assert canaries.found() == []


async def failing(canaries: Canaries, monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    """A mistake of ours that has the secret in its hands."""
    code = canaries.secrets["the code"]

    async def fails(*_: object) -> None:
        raise RuntimeError(f"no {secret} and no {code} in postgresql://u:{PASSWORD}@host/db")

    canaries.secrets["the password"] = PASSWORD
    monkeypatch.setattr(canaries.harness.engine.credentials, "use_sign_in", fails)
    monkeypatch.setattr(canaries.harness.engine.statistics, "by_definition", fails)
    assert (await canaries.send("POST", f"/sign-in/{code}")).status_code == 500
    answer = await canaries.send("GET", f"{API_PREFIX}/metrics/workflows", headers=bearer(secret))
    assert answer.status_code == 500
    assert canaries.log is not None


async def test_the_search_would_find_each_form(harness: ServerHarness):
    with capture_log("debug") as log:
        canaries = Canaries(harness, log)
        secret = "hr_" + "canary0123456789" * 2
        canaries.secrets["it"] = secret
        for n, text in enumerate((b"x" + secret.encode(), quote(secret).encode())):
            canaries.answers.append((str(n), text))
        for shift in range(5):
            hidden = base64.b64encode(b"{" * shift + secret.encode() + b"}}}")
            canaries.answers.append((f"base64 {shift}", hidden))
        logging.getLogger("uvicorn.error").error("canary0123456789" * 2)
    found = {one.removeprefix("it in ") for one in canaries.found()}
    assert found == {"0", "1", *(f"base64 {n}" for n in range(5))}


async def test_a_token_that_is_asked_for_again_is_shown_again_but_kept_nowhere(
    harness: ServerHarness,
):
    body, key = {"role": "viewer", "name": "vera"}, {"Idempotency-Key": "one"}
    first = expect_json(await harness.admin.post("/tokens", json=body, headers=key), 201)
    again = await harness.admin.post("/tokens", json=body, headers=key)
    assert expect_json(again, 201) == first
    assert again.headers["idempotent-replayed"] == "true"
    assert len(expect_json(await harness.admin.get("/tokens"))["items"]) == 8
    other = await harness.admin.post("/tokens", json={**body, "name": "x"}, headers=key)
    expect_problem(other, 422, "key_reused")
    await harness.served.idempotent_responses.flush()
    # As after a restart, or at another server.
    harness.served.idempotent_responses._responses.clear()
    late = expect_problem(
        await harness.admin.post("/tokens", json=body, headers=key), 409, "shown_once"
    )
    assert "new key" in late["detail"]
    assert len(expect_json(await harness.admin.get("/tokens"))["items"]) == 8


def test_a_database_that_cannot_be_reached_is_told_without_its_password():
    with pytest.raises(StoreError) as error:
        open_store(f"postgresql://somebody:{PASSWORD}@127.0.0.1:1/none?connect_timeout=2")
    assert PASSWORD not in str(error.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"token {WRONG}, sent", "token hr_…, sent"),
        ("Authorization: Bearer abc.def-1", "Authorization: Bearer …"),
        ("BASIC dXNlcjpwYXNz", "BASIC …"),
        ("postgresql://me:p@ss@host/db", "postgresql://me:…@host/db"),
        ("host=h password=secret user=u", "host=h password=… user=u"),
        (f"Cookie: {SESSION_COOKIE}=abc; x=y", f"Cookie: {SESSION_COOKIE}=…; x=y"),
        ("https://host/path: fine", "https://host/path: fine"),
        ("three hr_ letters", "three hr_ letters"),
    ],
)
def test_what_looks_like_a_secret_is_blotted_out(text: str, shown: str):
    assert redact(text) == shown

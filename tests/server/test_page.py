"""The page as the server gives it: compressed, kept for ever by its name, and absent if unbuilt."""

from pathlib import Path

import pytest
from tests.server.harness import ServerHarness

from handrail.server.routes import web_app

INDEX = '<!doctype html><script type="module" src="/assets/index-abcd1234.js"></script>'


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    for name, content in {
        "index-abcd1234.js": "plain",
        "index-abcd1234.js.br": "brotli",
        "index-abcd1234.js.gz": "gzip",
        "handrail.svg": "<svg/>",
    }.items():
        (folder / "assets" / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("accepted", "encoding", "content"),
    [
        ("gzip, deflate, br", "br", b"brotli"),
        ("gzip;q=1.0", "gzip", b"gzip"),
        ("identity", None, b"plain"),
        ("", None, b"plain"),
    ],
)
def test_whoever_takes_a_compressed_form_is_given_the_best(
    built: Path, accepted: str, encoding: str | None, content: bytes
):
    body, headers = web_app.load_web_app(built).assets["index-abcd1234.js"].negotiate(accepted)
    assert (body, headers.get("Content-Encoding")) == (content, encoding)
    assert headers["Vary"] == "Accept-Encoding"


def test_what_has_a_hash_in_its_name_may_be_kept_for_ever(built: Path):
    assets = web_app.load_web_app(built).assets
    assert "immutable" in assets["index-abcd1234.js"].cache
    assert "immutable" not in assets["handrail.svg"].cache
    assert assets["index-abcd1234.js"].media_type == "text/javascript"
    assert assets["handrail.svg"].media_type == "image/svg+xml"
    assert not [name for name in assets if name.endswith((".br", ".gz"))]


def test_a_folder_without_a_page_says_why(tmp_path: Path):
    assert web_app.load_web_app(tmp_path / "nowhere").missing_reason == "it was never built"
    (tmp_path / "not-built").write_text("there is no Node\n")
    found = web_app.load_web_app(tmp_path)
    assert (found.index, found.missing_reason) == ("", "there is no Node\n")


async def test_without_a_page_the_api_is_served_and_the_front_says_why(
    harness: ServerHarness, monkeypatch: pytest.MonkeyPatch
):
    """As on a machine that has no Node and cannot get one."""
    without = web_app.WebAppFiles(missing_reason="there is <no> Node")
    monkeypatch.setattr(web_app, "load_web_app", lambda: without)
    served = type(harness.served)(harness.engine, harness.settings)
    from httpx import ASGITransport, AsyncClient

    transport = ASGITransport(app=served.asgi)  # pyright: ignore[reportArgumentType]
    async with AsyncClient(transport=transport, base_url="http://handrail.test") as client:
        for path in ("/", "/inbox", "/runs/x"):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert "there is &lt;no&gt; Node" in answer.text
            assert "python web/build.py" in answer.text
        assert (await client.get("/assets/sign-in.css")).status_code == 200
        assert (await client.get("/healthz")).status_code == 200
    assert (await harness.viewer.get("/executions")).status_code == 200


async def test_an_unknown_place_is_not_the_page(harness: ServerHarness):
    assert (await harness.nobody.get("http://handrail.test/nothing-here")).status_code == 404
    assert (await harness.nobody.get("http://handrail.test/assets/x.js")).status_code == 404
    assert (await harness.nobody.get("/nothing-here")).status_code == 404


async def test_a_used_link_shows_people_a_page_and_programs_a_problem(harness: ServerHarness):
    url = "http://handrail.test/sign-in/hr_used"
    seen = await harness.nobody.post(url, headers={"Accept": "text/html,*/*"})
    assert (seen.status_code, "handrail sign-in" in seen.text) == (401, True)
    assert seen.headers["content-type"].startswith("text/html")
    told = await harness.nobody.post(url)
    assert (told.status_code, told.json()["code"]) == (401, "bad_sign_in")

"""Files of beads: sent in two ways, bounded, downloaded as what they are and as nothing else."""

import hashlib
from urllib.parse import quote

import pytest
from tests.server.harness import (
    AGENT,
    CEO,
    OPERATOR,
    PLAIN,
    WORKER,
    ServerHarness,
    expect_json,
    expect_problem,
)

from handrail.views.beads import FILE_BYTES_MAX

LOG = b"Traceback\n\x00\xff"


async def _path(harness: ServerHarness) -> str:
    return f"/beads/{(await harness.file())['id']}/files"


async def test_a_file_is_sent_as_a_form_and_comes_back_the_same(harness: ServerHarness):
    path = await _path(harness)
    answer = await harness.operator.post(path, files={"file": ("crash.txt", LOG, "text/plain")})
    info = expect_json(answer, 201)
    assert (info["name"], info["size"]) == ("crash.txt", len(LOG))
    assert info["sha256"] == hashlib.sha256(LOG).hexdigest()
    assert info["uploaded_by"] == OPERATOR
    assert expect_json(await harness.viewer.get(path))["items"] == [info]
    file = await harness.viewer.get(f"{path}/crash.txt")
    assert (file.status_code, file.content) == (200, LOG)
    assert file.headers["content-type"] == "text/plain"


async def test_a_file_is_sent_as_the_body_with_a_name(harness: ServerHarness):
    path = await _path(harness)
    answer = await harness.operator.post(path, params={"name": "shot.png"}, content=LOG)
    assert expect_json(answer, 201)["content_type"] == "image/png", "by its name: nobody said"
    told_type = {"content-type": "application/pdf"}
    query = {"name": "letter"}
    answer = await harness.operator.post(path, params=query, content=LOG, headers=told_type)
    assert expect_json(answer, 201)["content_type"] == "application/pdf"
    assert [one["name"] for one in expect_json(await harness.viewer.get(path))["items"]] == [
        *("letter", "shot.png")
    ]


async def test_the_name_of_the_form_s_field_does_not_matter(harness: ServerHarness):
    path = await _path(harness)
    answer = await harness.operator.post(path, files={"upload": ("a.txt", b"a")})
    assert expect_json(answer, 201)["name"] == "a.txt"


async def test_an_empty_file_is_a_file(harness: ServerHarness):
    path = await _path(harness)
    answer = await harness.operator.post(path, params={"name": "empty"}, content=b"")
    assert expect_json(answer, 201)["size"] == 0


async def test_the_same_file_again_changes_nothing_and_another_one_is_refused(
    harness: ServerHarness,
):
    path = await _path(harness)
    first = expect_json(await harness.operator.post(path, params={"name": "a"}, content=b"1"), 201)
    assert (
        expect_json(await harness.operator.post(path, params={"name": "a"}, content=b"1"), 201)
        == first
    )
    answer = await harness.operator.post(path, params={"name": "a"}, content=b"2")
    expect_problem(answer, 409, "file_exists")
    assert (await harness.viewer.get(f"{path}/a")).content == b"1"


@pytest.mark.parametrize("way", ["form", "body"])
async def test_a_file_has_at_most_ten_megabytes(harness: ServerHarness, way: str):
    path = await _path(harness)

    async def send(size: int):
        content = b"x" * size
        if way == "form":
            return await harness.operator.post(path, files={"file": (f"{size}", content)})
        return await harness.operator.post(path, params={"name": f"{size}"}, content=content)

    expect_json(await send(FILE_BYTES_MAX), 201)
    assert (await send(FILE_BYTES_MAX + 1)).status_code == 413
    assert (await send(FILE_BYTES_MAX + 10**6)).status_code == 413
    assert len(expect_json(await harness.viewer.get(path))["items"]) == 1


async def test_what_is_no_file_is_refused(harness: ServerHarness):
    path = await _path(harness)
    expect_problem(await harness.operator.post(path, content=b"x"), 422, "bad_file")
    two = [("a", ("a.txt", b"a")), ("b", ("b.txt", b"b"))]
    expect_problem(await harness.operator.post(path, files=two), 422, "bad_file")
    form = {"content-type": "multipart/form-data; boundary=x"}
    no_file = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'
    expect_problem(
        await harness.operator.post(path, content=no_file, headers=form), 422, "bad_file"
    )
    for content, headers in [
        (b"no form", form),
        (b"--x", form),
        (b"x", {"content-type": "multipart/form-data"}),
    ]:
        answer = await harness.operator.post(path, content=content, headers=headers)
        assert answer.status_code in (400, 422), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    assert expect_json(await harness.viewer.get(path))["items"] == []


async def test_a_name_that_could_lead_elsewhere_is_refused(harness: ServerHarness):
    path = await _path(harness)
    for name in ("..", ".", "a/b", "a\\b", "a\nb", "a\x01b", " ", "x" * 1_000):
        answer = await harness.operator.post(path, params={"name": name}, content=b"x")
        assert answer.status_code == 422, answer.text


async def test_a_download_is_an_attachment_whose_name_breaks_nothing(harness: ServerHarness):
    path = await _path(harness)
    for name in ("plan.txt", 'a "b"; c.txt', "Übersicht ✓.pdf", "a;b,c='%'"):
        expect_json(await harness.operator.post(path, params={"name": name}, content=b"x"), 201)
        file = await harness.viewer.get(f"{path}/{quote(name, safe='')}")
        assert (file.status_code, file.content) == (200, b"x")
        assert file.headers["x-content-type-options"] == "nosniff"
        disposition = file.headers["content-disposition"]
        assert disposition.startswith('attachment; filename="')
        assert disposition.endswith(f"filename*=UTF-8''{quote(name, safe='')}")
        assert disposition.count('"') == 2


async def test_a_type_that_is_none_is_not_repeated(harness: ServerHarness):
    path = await _path(harness)
    for said in ("no type", "a/" + "b" * 200, "текст/html", "text/html; x=y", 'text/"html"'):
        form = f'Content-Disposition: form-data; name="f"; filename="a"\r\nContent-Type: {said}'
        content = f"--x\r\n{form}\r\n\r\nb\r\n--x--\r\n".encode()
        headers = {"content-type": "multipart/form-data; boundary=x"}
        answer = await harness.operator.post(path, content=content, headers=headers)
        assert expect_json(answer, 201)["content_type"] in ("application/octet-stream", "text/html")


async def test_an_unknown_file_is_not_found(harness: ServerHarness):
    path = await _path(harness)
    expect_problem(await harness.viewer.get(f"{path}/none"), 404, "unknown_file")


@pytest.mark.requirement("L16")
async def test_nobody_sends_a_file_in_another_name(harness: ServerHarness):
    path = await _path(harness)
    answer = await harness.operator.post(path, files={"file": ("a", b"a")}, data={"by": CEO})
    expect_problem(answer, 403, "forged_author")
    assert expect_json(await harness.viewer.get(path))["items"] == []


async def test_an_agent_reads_files_of_beads_that_it_works_on_and_of_no_other(
    harness: ServerHarness,
):
    await harness.define(PLAIN)
    mine, other = await harness.file(), await harness.file()
    for bead in (mine, other):
        path = f"/beads/{bead['id']}/files"
        expect_json(await harness.operator.post(path, params={"name": "a"}, content=b"a"), 201)
    body = {"workflow_id": "plain"}
    expect_json(await harness.operator.post(f"/beads/{mine['id']}/executions", json=body), 201)
    my_file, other_file = (f"/beads/{bead['id']}/files/a" for bead in (mine, other))
    expect_problem(await harness.agent.get(my_file), 403, "foreign_bead")  # not claimed yet
    await harness.engine.agents.register(AGENT, [WORKER])
    dispatch = await harness.engine.claims.claim(AGENT)
    assert dispatch is not None
    assert (await harness.agent.get(my_file)).content == b"a"
    expect_problem(await harness.agent.get(other_file), 403, "foreign_bead")
    expect_problem(await harness.agent.get("/beads/none/files/a"), 403, "foreign_bead")
    stranger = await harness.client("coder-2", "agent")
    expect_problem(await stranger.get(my_file), 403, "foreign_bead")
    expect_problem(await harness.reporter.get(my_file), 403, "forbidden")

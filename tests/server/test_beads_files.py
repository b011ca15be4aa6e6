"""Files of beads: sent in two ways, bounded, downloaded as what they are and as nothing else."""

import hashlib
from urllib.parse import quote

import pytest
from tests.server.house import AGENT, CEO, OPERATOR, PLAIN, WORKER, House, problem, told

from handrail.views.beads import FILE_BYTES_MAX

LOG = b"Traceback\n\x00\xff"


async def _path(house: House) -> str:
    return f"/beads/{(await house.file())['id']}/files"


async def test_a_file_is_sent_as_a_form_and_comes_back_the_same(house: House):
    path = await _path(house)
    answer = await house.operator.post(path, files={"file": ("crash.txt", LOG, "text/plain")})
    info = told(answer, 201)
    assert (info["name"], info["size"]) == ("crash.txt", len(LOG))
    assert info["sha256"] == hashlib.sha256(LOG).hexdigest()
    assert info["uploaded_by"] == OPERATOR
    assert told(await house.viewer.get(path))["items"] == [info]
    file = await house.viewer.get(f"{path}/crash.txt")
    assert (file.status_code, file.content) == (200, LOG)
    assert file.headers["content-type"] == "text/plain"


async def test_a_file_is_sent_as_the_body_with_a_name(house: House):
    path = await _path(house)
    answer = await house.operator.post(path, params={"name": "shot.png"}, content=LOG)
    assert told(answer, 201)["content_type"] == "image/png", "by its name: nobody said"
    told_type = {"content-type": "application/pdf"}
    query = {"name": "letter"}
    answer = await house.operator.post(path, params=query, content=LOG, headers=told_type)
    assert told(answer, 201)["content_type"] == "application/pdf"
    assert [one["name"] for one in told(await house.viewer.get(path))["items"]] == [
        *("letter", "shot.png")
    ]


async def test_the_name_of_the_form_s_field_does_not_matter(house: House):
    path = await _path(house)
    answer = await house.operator.post(path, files={"upload": ("a.txt", b"a")})
    assert told(answer, 201)["name"] == "a.txt"


async def test_an_empty_file_is_a_file(house: House):
    path = await _path(house)
    answer = await house.operator.post(path, params={"name": "empty"}, content=b"")
    assert told(answer, 201)["size"] == 0


async def test_the_same_file_again_changes_nothing_and_another_one_is_refused(house: House):
    path = await _path(house)
    first = told(await house.operator.post(path, params={"name": "a"}, content=b"1"), 201)
    assert told(await house.operator.post(path, params={"name": "a"}, content=b"1"), 201) == first
    answer = await house.operator.post(path, params={"name": "a"}, content=b"2")
    problem(answer, 409, "file_exists")
    assert (await house.viewer.get(f"{path}/a")).content == b"1"


@pytest.mark.parametrize("way", ["form", "body"])
async def test_a_file_has_at_most_ten_megabytes(house: House, way: str):
    path = await _path(house)

    async def send(size: int):
        content = b"x" * size
        if way == "form":
            return await house.operator.post(path, files={"file": (f"{size}", content)})
        return await house.operator.post(path, params={"name": f"{size}"}, content=content)

    told(await send(FILE_BYTES_MAX), 201)
    assert (await send(FILE_BYTES_MAX + 1)).status_code == 413
    assert (await send(FILE_BYTES_MAX + 10**6)).status_code == 413
    assert len(told(await house.viewer.get(path))["items"]) == 1


async def test_what_is_no_file_is_refused(house: House):
    path = await _path(house)
    problem(await house.operator.post(path, content=b"x"), 422, "bad_file")
    two = [("a", ("a.txt", b"a")), ("b", ("b.txt", b"b"))]
    problem(await house.operator.post(path, files=two), 422, "bad_file")
    form = {"content-type": "multipart/form-data; boundary=x"}
    no_file = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--\r\n'
    problem(await house.operator.post(path, content=no_file, headers=form), 422, "bad_file")
    for content, headers in [
        (b"no form", form),
        (b"--x", form),
        (b"x", {"content-type": "multipart/form-data"}),
    ]:
        answer = await house.operator.post(path, content=content, headers=headers)
        assert answer.status_code in (400, 422), answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    assert told(await house.viewer.get(path))["items"] == []


async def test_a_name_that_could_lead_elsewhere_is_refused(house: House):
    path = await _path(house)
    for name in ("..", ".", "a/b", "a\\b", "a\nb", "a\x01b", " ", "x" * 1_000):
        answer = await house.operator.post(path, params={"name": name}, content=b"x")
        assert answer.status_code == 422, answer.text


async def test_a_download_is_an_attachment_whose_name_breaks_nothing(house: House):
    path = await _path(house)
    for name in ("plan.txt", 'a "b"; c.txt', "Übersicht ✓.pdf", "a;b,c='%'"):
        told(await house.operator.post(path, params={"name": name}, content=b"x"), 201)
        file = await house.viewer.get(f"{path}/{quote(name, safe='')}")
        assert (file.status_code, file.content) == (200, b"x")
        assert file.headers["x-content-type-options"] == "nosniff"
        disposition = file.headers["content-disposition"]
        assert disposition.startswith('attachment; filename="')
        assert disposition.endswith(f"filename*=UTF-8''{quote(name, safe='')}")
        assert disposition.count('"') == 2


async def test_a_type_that_is_none_is_not_repeated(house: House):
    path = await _path(house)
    for said in ("no type", "a/" + "b" * 200, "текст/html", "text/html; x=y", 'text/"html"'):
        form = f'Content-Disposition: form-data; name="f"; filename="a"\r\nContent-Type: {said}'
        content = f"--x\r\n{form}\r\n\r\nb\r\n--x--\r\n".encode()
        headers = {"content-type": "multipart/form-data; boundary=x"}
        answer = await house.operator.post(path, content=content, headers=headers)
        assert told(answer, 201)["content_type"] in ("application/octet-stream", "text/html")


async def test_an_unknown_file_is_not_found(house: House):
    path = await _path(house)
    problem(await house.viewer.get(f"{path}/none"), 404, "unknown_file")


@pytest.mark.requirement("L16")
async def test_nobody_sends_a_file_in_another_name(house: House):
    path = await _path(house)
    answer = await house.operator.post(path, files={"file": ("a", b"a")}, data={"by": CEO})
    problem(answer, 403, "forged_author")
    assert told(await house.viewer.get(path))["items"] == []


async def test_an_agent_reads_files_of_beads_that_it_works_on_and_of_no_other(house: House):
    await house.define(PLAIN)
    mine, other = await house.file(), await house.file()
    for bead in (mine, other):
        path = f"/beads/{bead['id']}/files"
        told(await house.operator.post(path, params={"name": "a"}, content=b"a"), 201)
    body = {"workflow_id": "plain"}
    told(await house.operator.post(f"/beads/{mine['id']}/executions", json=body), 201)
    my_file, other_file = (f"/beads/{bead['id']}/files/a" for bead in (mine, other))
    problem(await house.agent.get(my_file), 403, "foreign_bead")  # not claimed yet
    await house.engine.agents.register(AGENT, [WORKER])
    dispatch = await house.engine.claims.claim(AGENT)
    assert dispatch is not None
    assert (await house.agent.get(my_file)).content == b"a"
    problem(await house.agent.get(other_file), 403, "foreign_bead")
    problem(await house.agent.get("/beads/none/files/a"), 403, "foreign_bead")
    stranger = await house.client("coder-2", "agent")
    problem(await stranger.get(my_file), 403, "foreign_bead")
    problem(await house.reporter.get(my_file), 403, "forbidden")

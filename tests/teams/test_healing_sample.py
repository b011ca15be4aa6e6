"""The sample shop is what it says it is: right without its bugs, wrong with each of them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from handrail.commits import Repository
from handrail.teams.healing.sample_shop import (
    ShopRequest,
    load_bugs,
    load_shop_files,
    request_target,
)
from handrail.teams.healing.service import Service

ASKING = """
import io, json, sys
from wsgiref.util import setup_testing_defaults

sys.path.insert(0, ".")
from shop.app import app

found = []
for asked in json.load(sys.stdin):
    body = json.dumps(asked["body"]).encode() if asked["body"] is not None else b""
    path, _, query = asked["address"].partition("?")
    environ = {"REQUEST_METHOD": asked["method"], "PATH_INFO": path, "QUERY_STRING": query,
               "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    setup_testing_defaults(environ)
    try:
        found.append(json.loads(b"".join(app(environ, lambda *_: None))))
    except Exception as error:
        found.append(type(error).__name__)
print(json.dumps(found))
"""


def write(folder: Path, *wrong: str) -> None:
    for path, text in load_shop_files(wrong).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def ask(folder: Path, requests: list[ShopRequest]) -> list[Any]:
    """What each of them is answered; the name of the error of those that fail."""
    asked = [{"method": r.method, "address": request_target(r), "body": r.body} for r in requests]
    words = [sys.executable, "-B", "-c", ASKING]
    ran = subprocess.run(words, cwd=folder, input=json.dumps(asked), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def is_green(folder: Path) -> bool:
    words = [sys.executable, "-B", "-m", "unittest", "-q"]
    return subprocess.run(words, cwd=folder, capture_output=True).returncode == 0


def test_without_bugs_every_example_is_answered_as_it_says_and_all_is_green(tmp_path: Path):
    write(tmp_path)
    examples = json.loads((tmp_path / "examples.json").read_text())
    known = [b.request for b in load_bugs().values() if b.request.answer is not msgspec.UNSET]
    assert ask(tmp_path, known) == [one.answer for one in known]
    assert len(known) == len(examples)
    assert is_green(tmp_path)


def test_with_all_bugs_every_request_of_theirs_fails_and_no_test_shows_it(tmp_path: Path):
    known = load_bugs()
    write(tmp_path, *known)
    found = ask(tmp_path, [bug.request for bug in known.values()])
    answered = [name for name, told in zip(known, found, strict=True) if isinstance(told, dict)]
    assert answered == []
    assert is_green(tmp_path)


@pytest.mark.requirement("L15")
def test_there_are_more_than_twenty_bugs_each_of_its_own_kind_and_some_cannot_be_mended():
    known = load_bugs()
    assert len([bug for bug in known.values() if bug.fixable]) >= 20
    assert len([bug for bug in known.values() if not bug.fixable]) >= 5
    assert len({bug.request.path for bug in known.values()}) == len(known)


def test_what_no_repair_may_touch_is_what_the_lane_would_refuse():
    repository = Repository(url="x", hooks="tools/hooks", protected=("vendor/", "LICENSE"))
    service = Service(repository=repository, home="h")
    assert set(service.constraints.paths) >= {".git", "tools/hooks", "vendor", "LICENSE"}

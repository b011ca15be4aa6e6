"""Somebody's own service in each framework, from the failed request to the commit that mends it."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.commits.sample_repository import git
from tests.teams.healing_shop import ANA, PATIENCE

from handrail.agents.commands import CommandLimits
from handrail.commits import Repository
from handrail.engine import opening
from handrail.kernel.definition.limits import Constraints
from handrail.teams import HEALING_DEFINITION_ID, install_teams
from handrail.teams.coding.checks import run_check
from handrail.teams.coding.workspace import Workspace
from handrail.teams.healing import Service, read_service
from handrail.views.bugs import ErrorReport

PRICES = """\
PRICES = {"apple": 3, "pear": 4}


def total(name, count):
    return PRICES[nmae] * count
"""
FLASK = """\
from flask import Flask, request

from shop.prices import total

app = Flask("shop")


@app.get("/total/<name>")
def show(name):
    return f"<p>{total(name, int(request.args['count']))}</p>"
"""
DJANGO = """\
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import path

from shop.prices import total

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["shop.example"], LOGGING_CONFIG=None)


def show(request, name):
    return HttpResponse(f"<p>{total(name, int(request.GET['count']))}</p>")


urlpatterns = [path("total/<str:name>", show)]
app = get_wsgi_application()
"""
FASTAPI = """\
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from shop.prices import total


@asynccontextmanager
async def lifespan(app):
    yield {"currency": "EUR"}


app = FastAPI(lifespan=lifespan)


@app.get("/total/{name}")
async def show(name: str, count: int, request: Request):
    assert request.state.currency == "EUR"
    return HTMLResponse(f"<p>{total(name, count)}</p>")
"""
STARLETTE = """\
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from shop.prices import total


def show(request):
    count = int(request.query_params["count"])
    return HTMLResponse(f"<p>{total(request.path_params['name'], count)}</p>")


app = Starlette(routes=[Route("/total/{name}", show)])
"""
WSGI = """\
from shop.prices import total


def app(environ, start_response):
    count = int(environ["QUERY_STRING"].partition("=")[2])
    name = environ["PATH_INFO"].rpartition("/")[2]
    body = f"<p>{total(name, count)}</p>".encode()
    start_response("200 OK", [("Content-Type", "text/html")])
    return [body]
"""
ASGI = """\
from shop.prices import total


async def app(scope, receive, send):
    assert scope["type"] == "http"
    count = int(scope["query_string"].partition(b"=")[2])
    body = f"<p>{total(scope['path'].rpartition('/')[2], count)}</p>".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""
APPS = {
    "flask": FLASK,
    "django": DJANGO,
    "fastapi": FASTAPI,
    "starlette": STARLETTE,
    "wsgi": WSGI,
    "asgi": ASGI,
}
TEMPLATES = {
    "flask": "/total/<name>",
    "django": "/total/<str:name>",
    "fastapi": "/total/{name}",
    "starlette": "/total/{name}",
}
GREEN = (
    "import unittest\n\n\nclass Prices(unittest.TestCase):\n    def test_it(self):\n        pass\n"
)
HOOK = "#!/bin/sh\nexec python3 -m compileall -q shop\n"


def make_repository(folder: Path, app: str, **examples: Any) -> Path:
    """A repository with a service that fails, an example of its requests, and a hook."""
    bare, work = folder / "shop.git", folder / "work"
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    git(folder, "clone", "--quiet", str(bare), str(work))
    example = {"path": "/total/pear", "query": "count=3", **examples}
    files = {
        "shop/__init__.py": "",
        "shop/prices.py": PRICES,
        "shop/web.py": app,
        "examples.json": json.dumps([example]),
        "tests/__init__.py": "",
        "tests/test_prices.py": GREEN,
        ".githooks/pre-commit": HOOK,
    }
    for name, text in files.items():
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(text)
    (work / ".githooks/pre-commit").chmod(0o755)
    git(work, "add", "--all")
    git(work, "commit", "--quiet", "-m", "a shop")
    git(work, "push", "--quiet", "origin", "HEAD:main")
    return bare


def report_of(framework: str) -> ErrorReport:
    return ErrorReport(
        service="shop",
        type="NameError",
        message="name 'nmae' is not defined",
        traceback="Traceback (most recent call last):\n"
        '  File "/srv/shop/prices.py", line 5, in total\n'
        "    return PRICES[nmae] * count\nNameError: name 'nmae' is not defined\n",
        method="GET",
        route=TEMPLATES.get(framework, "/total/pear"),
        path="/total/pear",
        status=500,
    )


@pytest.mark.heavy
@pytest.mark.requirement("L11.2")
@pytest.mark.parametrize("framework", APPS)
def test_a_failing_service_is_healed_in_any_framework(tmp_path: Path, framework: str):
    bare = make_repository(tmp_path, APPS[framework], answer="<p>12</p>")
    repository = Repository(url=str(bare), hooks=".githooks", required_hooks=("pre-commit",))
    service = Service(repository=repository, home=str(tmp_path / "home"), app="shop.web:app")

    async def play():
        async with opening.open("sqlite://") as engine:
            await install_teams(engine, [HEALING_DEFINITION_ID], service=service)
            filed = await engine.bugs.report(report_of(framework), by="shop")
            run = engine.run(str(filed.execution_id))
            (question,) = await run.questions(PATIENCE)
            details = await run.report()
            assert question.kind == "approval", details
            await run.answer(question.id, by=ANA, decision="approve")
            ended = await run.result(PATIENCE)
            assert ended.terminal_status == "done_success"

    asyncio.run(asyncio.wait_for(play(), 3 * PATIENCE))
    assert "PRICES[name] * count" in git(bare, "show", "main:shop/prices.py")
    assert "tests/test_total_pear_" in git(bare, "show", "--stat", "--format=", "main")


def test_a_service_without_its_packages_says_which_setting_names_its_python(tmp_path: Path):
    app = WSGI.replace("from shop.prices", "import a_package_of_its_own\n\nfrom shop.prices")
    bare = make_repository(tmp_path, app, answer="<p>12</p>")
    service = Service(
        repository=Repository(url=str(bare)), home=str(tmp_path / "home"), app="shop.web:app"
    )

    async def play():
        async with opening.open("sqlite://") as engine:
            await install_teams(engine, [HEALING_DEFINITION_ID], service=service)
            filed = await engine.bugs.report(report_of("wsgi"), by="shop")
            (question,) = await engine.run(str(filed.execution_id)).questions(PATIENCE)
            assert question.kind == "escalation"
            shown = await engine.approvals.get(question.id)
            assert "No module named 'a_package_of_its_own'" in shown.failure_reason
            assert "set `python`" in shown.failure_reason

    asyncio.run(asyncio.wait_for(play(), 3 * PATIENCE))


def test_the_services_own_python_runs_its_checks(tmp_path: Path):
    own_python = tmp_path / "bin" / "python"
    own_python.parent.mkdir()
    own_python.write_text(f'#!/bin/sh\necho "asked: $*" >&2\nexec {sys.executable} "$@"\n')
    own_python.chmod(0o755)
    file = tmp_path / "service.yaml"
    text = "repository: {url: /srv/git/shop.git}\nhome: /srv/home\npython: bin/python -X utf8\n"
    file.write_text(text)
    service = read_service(file)
    assert service.python_command == (str(own_python), "-X", "utf8")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "its_own.py").write_text("print(__file__)")
    workspace = Workspace(tmp_path, Constraints(), python=service.python_command)
    check = asyncio.run(run_check(workspace, "python -m its_own", CommandLimits()))
    assert (check.exit_code, check.stderr) == (0, "asked: -X utf8 -m its_own")
    own_python.chmod(0o644)
    with pytest.raises(ValueError, match="which is no program; name the service's own"):
        read_service(file)

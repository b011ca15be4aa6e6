"""Errors of real web frameworks: seen although the framework answers them, and one bug has one
signature, whatever the request asked for."""

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.signals import got_request_exception
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import path as django_path
from fastapi import FastAPI
from flask import Flask
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from tests.engine.engines import run_async
from tests.middleware.failing_shop import FAILURES

from handrail.engine import opening
from handrail.engine.services.bug_signature import signature_of
from handrail.middleware import AsgiMiddleware, Reporter, WsgiMiddleware, to_engine
from handrail.middleware.django import report_django
from handrail.middleware.flask import report_flask
from handrail.views.bugs import ErrorReport

SECONDS = 60
REQUESTS = 10_000 if os.environ.get("HANDRAIL_LONG") else 2_000
KEYS = ["cust-1001", "4711", "ORD_9", "k17", "8f14e45f-ceea-467f-a8c2-0a2b5c7c4e51", "apfel"]

Ask = Callable[[str], int]
"""Asks for a path, and returns the status that the caller sees."""


class ShopError(Exception):
    """Answered by a handler of the app's own, with a status of 500."""


@pytest.fixture(autouse=True)
def configured_frameworks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    if not settings.configured:
        settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], LOGGING_CONFIG=None)
        django.setup()


def fail(kind: str, key: str) -> str:
    if kind == "handled":
        raise ShopError(f"order {key}")
    FAILURES[kind](key)
    return "fine"


def ask_wsgi(app: Any) -> Ask:
    def ask(path: str) -> int:
        seen: list[int] = []
        environ = RequestFactory().get(path).environ
        try:
            body = app(environ, lambda status, headers, *_: seen.append(int(status[:3])))
            b"".join(body)
        except Exception:  # a server would answer 500
            seen.append(500)
        return seen[-1]

    return ask


def ask_asgi(app: Any) -> Ask:
    async def ask_once(path: str) -> int:
        seen: list[int] = []
        requests = iter([{"type": "http.request", "body": b"", "more_body": False}])
        never = asyncio.Event()

        async def receive() -> Any:
            for request in requests:
                return request
            return await never.wait()

        async def send(message: Any) -> None:
            seen.extend([message["status"]] if "status" in message else [])

        headers = [(b"host", b"shop.example")]
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
        scope |= {"query_string": b"token=x", "headers": headers, "http_version": "1.1"}
        scope |= {"scheme": "http", "server": ("shop.example", 80), "root_path": ""}
        try:
            await app(scope, receive, send)
        except Exception:
            seen.append(500)
        return seen[-1]

    return lambda path: asyncio.run(ask_once(path))


def flask_shop(reporter: Reporter) -> Ask:
    app = Flask("shop")
    app.get("/v1/<kind>/<key>", endpoint="fail")(fail)
    app.get("/v1/status/<int:status>/<key>", endpoint="status")(lambda status, key: ("", status))
    app.errorhandler(ShopError)(lambda error: ("sorry", 500))
    report_flask(app, reporter)
    return ask_wsgi(app)


def django_view(request: Any, kind: str, key: str) -> HttpResponse:
    return HttpResponse(fail(kind, key).encode())


def django_status(request: Any, status: int, key: str) -> HttpResponse:
    return HttpResponse(b"sorry", status=status)


urlpatterns = [
    django_path("v1/status/<int:status>/<str:key>", django_status),
    django_path("v1/<str:kind>/<str:key>", django_view),
]


def django_shop(reporter: Reporter) -> Ask:
    return ask_wsgi(report_django(get_wsgi_application(), reporter))


def django_asgi_shop(reporter: Reporter) -> Ask:
    return ask_asgi(report_django(get_asgi_application(), reporter))


def fastapi_shop(reporter: Reporter) -> Ask:
    app = FastAPI()
    app.get("/v1/status/{status}/{key}")(lambda status, key: PlainTextResponse(b"", int(status)))
    app.get("/v1/{kind}/{key}")(fail)
    app.exception_handler(ShopError)(lambda request, error: PlainTextResponse(b"sorry", 500))
    app.add_middleware(AsgiMiddleware, reporter=reporter)
    return ask_asgi(app)


def starlette_shop(reporter: Reporter) -> Ask:
    def answer(request: Any) -> PlainTextResponse:
        return PlainTextResponse(fail(**request.path_params).encode())

    def answer_status(request: Any) -> PlainTextResponse:
        return PlainTextResponse(b"sorry", request.path_params["status"])

    routes = [
        Route("/status/{status:int}/{key}", answer_status),
        Route("/{kind}/{key}", answer),
    ]
    handlers: Any = {ShopError: lambda request, error: PlainTextResponse(b"sorry", 500)}
    app = Starlette(routes=[Mount("/v1", routes=routes)], exception_handlers=handlers)
    return ask_asgi(AsgiMiddleware(app, reporter))


def plain_wsgi_shop(reporter: Reporter) -> Ask:
    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        *_, kind, key = environ["PATH_INFO"].split("/")
        if "/status/" in environ["PATH_INFO"]:
            start_response(f"{kind} Sorry", [])
            return [b"sorry"]
        try:
            body = fail(kind, key)
        except ShopError:
            start_response("500 Sorry", [])
            return [b"sorry"]
        start_response("200 OK", [])
        return [body.encode()]

    return ask_wsgi(WsgiMiddleware(app, reporter))


SHOPS = [
    flask_shop,
    django_shop,
    django_asgi_shop,
    fastapi_shop,
    starlette_shop,
    plain_wsgi_shop,
]


@pytest.fixture(params=SHOPS, ids=lambda build: build.__name__)
def build_shop(request: pytest.FixtureRequest) -> Iterator[Callable[[Reporter], Ask]]:
    yield request.param
    got_request_exception.disconnect(dispatch_uid="handrail.middleware.django")


class Collector:
    """Notes what a reporter would note, and makes each report at once."""

    def __init__(self) -> None:
        self.reports: list[ErrorReport] = []
        self.reporter = Reporter(self.reports.append, service="shop")

    def report_of(self, ask: Ask, path: str, status: int = 500) -> ErrorReport:
        assert ask(path) == status, path
        (pending,) = self.reporter._pending.values()
        self.reporter._pending.clear()
        return self.reporter._make_report(pending)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Collector:
    monkeypatch.setattr(Reporter, "_start_thread", lambda reporter: None)
    return Collector()


def test_two_keys_are_one_bug_and_two_failures_are_two(
    build_shop: Callable[[Reporter], Ask], collector: Collector
):
    """About 60 pairs that are the same and 66 that are not, for each framework."""
    ask = build_shop(collector.reporter)
    signatures = {
        kind: {signature_of(collector.report_of(ask, f"/v1/{kind}/{key}")) for key in KEYS}
        for kind in FAILURES
    }
    assert {kind: len(found) for kind, found in signatures.items()} == dict.fromkeys(FAILURES, 1)
    for one, other in itertools.combinations(FAILURES, 2):
        assert signatures[one] != signatures[other], (one, other)


@pytest.mark.parametrize("build_shop", [*SHOPS[:1], *SHOPS[3:]])  # Django has no such handlers
def test_the_error_behind_an_answer_of_the_apps_own_is_seen(
    build_shop: Callable[[Reporter], Ask], collector: Collector
):
    report = collector.report_of(build_shop(collector.reporter), "/v1/handled/4711")
    assert (report.message, report.status) == ("order 4711", 500)


TEMPLATES = {
    flask_shop: "/v1/<kind>/<key>",
    django_shop: "/v1/<str:kind>/<str:key>",
    django_asgi_shop: "/v1/<str:kind>/<str:key>",
    fastapi_shop: "/v1/{kind}/{key}",
    starlette_shop: "/v1/{kind}/{key}",
    plain_wsgi_shop: "/v1/refused/{}",
}


def test_the_route_is_the_frameworks_own_and_the_path_the_one_that_failed(
    build_shop: Callable[[Reporter], Ask], collector: Collector
):
    report = collector.report_of(build_shop(collector.reporter), "/v1/refused/cust-1001?token=x")
    assert report.route == TEMPLATES[build_shop]  # type: ignore[index]
    assert report.path == "/v1/refused/cust-1001"


def test_an_answer_of_503_without_an_exception_is_one_bug_for_all_keys(
    build_shop: Callable[[Reporter], Ask], collector: Collector
):
    ask = build_shop(collector.reporter)
    signatures = {
        signature_of(collector.report_of(ask, f"/v1/status/503/{key}", 503))
        for key in ("cust-1001", "cust-7", "4711")
    }
    assert len(signatures) == 1
    for path in ("/v1/status/404/x", "/v1/status/200/x"):
        ask(path)
    assert not collector.reporter._pending


@pytest.mark.heavy
def test_thousands_of_requests_over_500_keys_make_one_bead(
    build_shop: Callable[[Reporter], Ask],
):
    async def play():
        async with opening.open("sqlite://", background=False) as engine:
            reporter = Reporter(to_engine(engine), service="shop")
            ask = build_shop(reporter)

            def storm() -> None:
                for number in range(REQUESTS):
                    assert ask(f"/v1/missing-price/cust-{number % 500}") == 500
                reporter.close(SECONDS)

            await asyncio.to_thread(storm)
            (bug,) = (await engine.bugs.list()).items
            assert bug.count == REQUESTS
            assert len((await engine.beads.list()).items) == 1

    run_async(play())

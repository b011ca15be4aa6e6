"""Errors of a web app become bugs: once for each signature, without secrets, and without the
requests noticing."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from benchmarks import middleware as bench
from tests.engine.engines import run_async

from handrail.engine import opening
from handrail.middleware import AsgiMiddleware, Reporter, WsgiMiddleware, to_engine
from handrail.middleware import reporter as reporters
from handrail.middleware.asgi import App, Scope
from handrail.views.bugs import ErrorReport

SECONDS = 60


class Post:
    """Takes reports, as a server would; `away` makes it fail so many times."""

    def __init__(self, away: int = 0) -> None:
        self.reports: list[ErrorReport] = []
        self.away = away

    def __call__(self, report: ErrorReport) -> None:
        if self.away:
            self.away -= 1
            raise ConnectionError("nobody there")
        self.reports.append(report)


def fails(n: int) -> Callable[..., Any]:
    """A function of its own for each number, so that each error has its own place."""
    space: dict[str, Any] = {}
    exec(f"def handler_{n}(order):\n    raise ValueError(f'bad order {{order}}')", space)
    return space[f"handler_{n}"]


HANDLERS = [fails(n) for n in range(5)]


async def app(scope: Scope, receive: Any, send: Any) -> None:
    path, status = scope["path"], 200
    if path.startswith("/fail/"):
        HANDLERS[int(path.rpartition("/")[2])](object())
    if path.startswith("/status/"):
        status = int(path.split("/")[2])
    if path == "/handled":
        try:
            HANDLERS[0](1)
        except ValueError:
            return await answer(send, 500)
    return await answer(send, status)


async def answer(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"so"})


async def ask(served: App, path: str, **more: Any) -> list[int]:
    """The status that the caller sees; what the app raises, a server would answer with 500."""
    seen: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        seen.extend([message["status"]] if "status" in message else [])

    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"token=abc", **more}
    try:
        await served(scope, receive, send)
    except ValueError:
        seen.append(-1)
    return seen


def test_a_storm_of_ten_thousand_errors_of_five_signatures_makes_five_beads():
    async def play():
        async with opening.open("sqlite://", background=False) as engine:
            reporter = Reporter(to_engine(engine), service="shop")
            served = AsgiMiddleware(app, reporter)
            for n in range(10_000):
                assert await ask(served, f"/fail/{n % 5}") == [-1]
            await asyncio.to_thread(reporter.close, SECONDS)
            assert len((await engine.beads.list()).items) == 5
            bugs = (await engine.bugs.list()).items
            assert len(bugs) == 5
            assert sum(bug.count for bug in bugs) == 10_000
            assert (reporter.dropped, reporter.failed) == (0, 0)

    run_async(play())


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 499])
def test_813_errors_of_the_callers_own_make_no_bead(status: int):
    async def play():
        async with opening.open("sqlite://", background=False) as engine:
            reporter = Reporter(to_engine(engine), service="shop")
            served = AsgiMiddleware(app, reporter)
            for _ in range(813):
                assert await ask(served, f"/status/{status}") == [status]
            await asyncio.to_thread(reporter.close, SECONDS)
            assert (await engine.beads.list()).items == ()

    run_async(play())


def test_an_answer_of_500_is_reported_without_an_exception_too():
    async def play():
        post = Post()
        reporter = Reporter(post, service="shop")
        served = AsgiMiddleware(app, reporter)
        for number in (17, 18):
            assert await ask(served, f"/status/503/{number}") == [503]
        assert await ask(served, "/handled") == [500]
        await asyncio.to_thread(reporter.close, SECONDS)
        seen = {(report.type, report.status, report.route) for report in post.reports}
        assert seen == {("ValueError", 500, "/handled"), ("", 503, "/status/{}/{}")}

    run_async(play())


def test_what_is_secret_is_not_sent():
    async def leaks(scope: Any, receive: Any, send: Any) -> None:
        password = "hunter2-local"
        assert password
        raise RuntimeError(
            "login of ana@example.org failed: password=hunter2 Authorization: Bearer abcdef123456"
            " postgres://ana:s3cret@db/x?key=v1 eyJhbGciOi.eyJzdWIiOi.c2lnbmF0 sk-abcdefgh12345"
            " 4111 1111 1111 1111"
        )

    async def play():
        post = Post()
        reporter = Reporter(post, service="shop")
        with pytest.raises(RuntimeError):
            await ask(
                *(AsgiMiddleware(leaks, reporter), "/login"),
                headers=[(b"cookie", b"session=c00kie"), (b"authorization", b"Bearer header123")],
            )
        await asyncio.to_thread(reporter.close, SECONDS)
        (report,) = post.reports
        told = f"{report}"
        for secret in (
            *("hunter2", "hunter2-local", "abcdef123456", "s3cret", "v1", "eyJzdWIiOi", "abcdefgh"),
            *("4111 1111", "c00kie", "header123", "token=abc", "ana@example.org"),
        ):
            assert secret not in told.replace('password = "hunter2-local"', ""), secret
        assert "RuntimeError" in told
        assert "login of" in report.message

    run_async(play())


def test_a_reporter_that_cannot_send_breaks_and_delays_no_request(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(reporters, "POLL_SECONDS", 0.001)
    gate = threading.Event()

    def stuck(report: ErrorReport) -> None:
        gate.wait(SECONDS)
        raise ConnectionError("nobody there")

    async def play():
        reporter = Reporter(stuck, service="shop")
        served = AsgiMiddleware(app, reporter)
        for n in range(100):
            assert await ask(served, f"/fail/{n % 5}") == [-1]
            assert await ask(served, "/fine") == [200]
        gate.set()
        await asyncio.to_thread(reporter.close, SECONDS)
        assert reporter.sent == 0

    run_async(play())


def test_notes_are_bounded_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reporters, "PENDING_MAX", 10)
    gate, post = threading.Event(), Post()

    def slow(report: ErrorReport) -> None:
        gate.wait(SECONDS)
        post(report)

    reporter = Reporter(slow, service="shop")
    for n in range(1_000):
        reporter.note(None, method="GET", path=f"/x{'y' * (n % 500)}", status=500)
    assert len(reporter._pending) <= 10
    assert reporter.dropped >= 900
    gate.set()
    reporter.close(SECONDS)


def test_what_could_not_be_sent_is_sent_later_with_its_count(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reporters, "POLL_SECONDS", 0.001)
    post = Post(away=2)
    reporter = Reporter(post, service="shop")
    reporter.note(None, method="GET", path="/", status=500)
    for _ in range(1_000):
        if post.reports:
            break
        reporter.flush(0.05)
    assert [one.count for one in post.reports] == [1]
    assert reporter.failed == 2
    reporter.close(SECONDS)


def test_a_known_signature_is_counted_and_sent_again_only_after_a_while():
    post = Post()
    reporter = Reporter(post, service="shop")
    for _ in range(3):
        reporter.note(None, method="GET", path="/", status=500)
        assert reporter.flush(SECONDS)
    assert [one.count for one in post.reports] == [1]
    reporter.close(SECONDS)
    assert [one.count for one in post.reports] == [1, 2]


def test_nothing_that_goes_wrong_in_the_reporter_reaches_a_request(
    monkeypatch: pytest.MonkeyPatch,
):
    def broken(*given: object) -> None:
        raise RuntimeError("a bug of our own")

    reporter = Reporter(Post(), service="shop")
    monkeypatch.setattr(reporters, "_dedup_key", broken)
    reporter.note(ValueError("x"))
    assert reporter.failed == 1


def test_an_error_on_which_thousands_hang_is_told_alone_and_one_with_a_few_with_them():
    class SilentError(Exception):
        @property
        def status_code(self) -> int:
            raise RuntimeError("nobody knows")

    post = Post()
    reporter = Reporter(post, service="shop")
    reporter.note(chained(3))
    reporter.flush(SECONDS)
    group = ExceptionGroup("many", [ValueError("one of them")] * 5_000)
    for error in (chained(5_000), group, SilentError("a status that raises")):
        reporter.note(error)
        reporter.flush(SECONDS)
    reporter.close(SECONDS)
    few, long, many, silent = (one.traceback for one in post.reports)
    assert few.count("KeyError") == 4
    assert (long.count("LookupError: tried"), "During handling" in long) == (1, False)
    assert "5000 sub-exceptions" in many
    assert "one of them" not in many
    assert "a status that raises" in silent


def chained(others: int) -> BaseException:
    """An error that came of another, and so on."""
    error: BaseException = KeyError("first")
    for _ in range(others):
        last = (KeyError if others < 10 else LookupError)("tried")
        last.__context__ = error
        error = last
    return error


def test_errors_are_routed_by_a_table_that_users_extend():
    post = Post()
    reporter = Reporter(post, service="shop", routing=[("Value*", "data-engineer")])
    reporter.note(ValueError("x"))
    reporter.note(KeyError("x"))
    reporter.close(SECONDS)
    told = {one.type: one.specialist for one in post.reports}
    assert told == {"ValueError": "data-engineer", "KeyError": ""}


def test_a_caller_that_went_away_or_asked_wrongly_is_no_bug():
    class NotFoundError(Exception):
        status_code = 404

    post = Post()
    reporter = Reporter(post, service="shop")
    for error in (NotFoundError(), ConnectionResetError(), BrokenPipeError()):
        reporter.note(error, status=500)
    reporter.close(SECONDS)
    assert post.reports == []


def test_other_scopes_of_asgi_go_through():
    async def play():
        async def lives(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "websocket":
                raise ValueError("in a socket")

        post = Post()
        reporter = Reporter(post, service="shop")
        served = AsgiMiddleware(lives, reporter)
        await served({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="in a socket"):
            await served({"type": "websocket", "path": "/ws"}, None, None)  # type: ignore[arg-type]
        await asyncio.to_thread(reporter.close, SECONDS)
        assert [one.route for one in post.reports] == ["/ws"]

    run_async(play())


def test_an_error_that_is_answered_and_let_go_on_is_told_once():
    async def both(scope: Scope, receive: Any, send: Any) -> None:
        try:
            HANDLERS[4](1)
        except ValueError:
            await answer(send, 500)
            raise

    async def play():
        post = Post()
        reporter = Reporter(post, service="shop")
        assert await ask(AsgiMiddleware(both, reporter), "/both") == [500, -1]
        await asyncio.to_thread(reporter.close, SECONDS)
        assert [(one.type, one.status, one.count) for one in post.reports] == [
            ("ValueError", 500, 1)
        ]

    run_async(play())


def wsgi(environ: dict[str, Any], start_response: Any) -> Any:
    path = environ["PATH_INFO"]
    if path == "/raises":
        raise ValueError("at once")
    if path == "/later":
        start_response("200 OK", [])
        return late()
    if path == "/handled":
        try:
            HANDLERS[1](1)
        except ValueError:
            start_response("500 Sorry", [])
            return [b"sorry"]
    if path == "/lazy":
        return lazy(start_response)
    if path == "/both":
        try:
            HANDLERS[3](1)
        except ValueError:
            start_response("500 Sorry", [])
            raise
    start_response({"/404": "404 No", "/503": "503 Busy"}.get(path, "200 OK"), [])
    return [b"so"]


def lazy(start_response: Any) -> Any:
    start_response("502 Bad", [])
    yield b"so"


def late() -> Any:
    yield b"one"
    raise ValueError("in the middle")


def test_a_wsgi_app_is_watched_in_the_same_way():
    post = Post()
    reporter = Reporter(post, service="shop")
    served = WsgiMiddleware(wsgi, reporter)
    seen: list[str] = []

    def start(status: str, headers: object, *more: object) -> Callable[[bytes], object]:
        seen.append(status)
        return lambda body: None

    def ask_for(path: str) -> bytes:
        found = served({"PATH_INFO": path, "REQUEST_METHOD": "GET", "HTTP_COOKIE": "x"}, start)
        return b"".join(found)

    for path in ("/raises", "/later", "/both"):
        with pytest.raises(ValueError, match=r"at once|in the middle|bad order"):
            ask_for(path)
    for path in ("/handled", "/503", "/404", "/fine", "/lazy"):
        ask_for(path)
    assert seen == [
        *("200 OK", "500 Sorry", "500 Sorry", "503 Busy", "404 No", "200 OK", "502 Bad")
    ]
    reporter.close(SECONDS)
    told = sorted((one.path, one.type, one.status, one.count) for one in post.reports)
    assert told == [
        ("/503", "", 503, 1),
        ("/both", "ValueError", 500, 1),
        ("/handled", "ValueError", 500, 1),
        ("/later", "ValueError", 500, 1),
        ("/lazy", "", 502, 1),
        ("/raises", "ValueError", 500, 1),
    ]


def test_what_a_wsgi_app_begins_its_answer_with_is_passed_on_whatever_it_is():
    post = Post()
    reporter = Reporter(post, service="shop")
    seen: list[tuple[object, ...]] = []

    def start(*given: object) -> Callable[[bytes], object]:
        seen.append(given)
        return lambda body: None

    def odd(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("", [])
        start_response("5xx", [("a", "b")])
        try:
            HANDLERS[2](1)
        except ValueError as error:
            start_response("502 Bad", [], exc_info=(ValueError, error, error.__traceback__))
        return [b"so"]

    assert WsgiMiddleware(odd, reporter)({"PATH_INFO": "/odd"}, start) == [b"so"]
    assert [len(given) for given in seen] == [2, 2, 3]
    reporter.close(SECONDS)
    assert [(one.type, one.status) for one in post.reports] == [("", 500), ("ValueError", 502)]


def test_the_benchmark_measures_every_kind_of_app_and_says_what_costs_too_much():
    found = bench.measure(2, 2)
    assert set(found) == {"asgi", "wsgi", "wsgi, streamed"}
    figures = {"asgi": {"cpu_us": 90.0, "overhead": 0.01}, "wsgi": {"cpu_us": 20, "overhead": 0.03}}
    rows = bench.page(figures, 7).splitlines()[-2:]
    assert [row.split("|")[-2].strip() for row in rows] == ["yes", "NO"]

"""Which reports are the same bug: with frames types, files and functions decide, without frames the
masked message. Traces of web frameworks are in tests/middleware/test_frameworks.py."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.engine.services.bug_signature import (
    is_template,
    matches_route,
    normalize_route,
    parse_stack_trace,
    signature_of,
)
from handrail.views.bugs import ErrorReport

PYTHON = """Traceback (most recent call last):
  File "{root}/shop/cart.py", line {line}, in {function}
    return prices[item]
           ~~~~~~^^^^^^
KeyError: '{key}'
"""
JAVA = """java.lang.IllegalStateException: order {key} is closed
\tat com.shop.Orders.lambda$close${n}(Orders.java:{line})
\tat com.shop.Orders$$EnhancerBySpringCGLIB$$1a2b{n}c4d.close(<generated>)
\tat com.shop.{function}(Web.java:{line})
\tat org.springframework.web.Servlet.service(Servlet.java:897)
\tat java.base/java.lang.Thread.run(Thread.java:{line})
Caused by: java.sql.SQLException: row {key} is locked
\tat org.postgresql.core.v3.QueryExecutorImpl.receive(QueryExecutorImpl.java:{line})
\tat com.shop.Orders.write(Orders.java:77)
\t... {n} more
"""
JAVASCRIPT = """TypeError: Cannot read properties of undefined (reading '{key}')
    at {function} ({root}/src/cart.js:{line}:{n})
    at async Promise.all (index {n})
    at Layer.handle [as handle_request] ({root}/node_modules/express/lib/router/layer.js:95:5)
    at node:internal/process/task_queues:{line}:5
"""
BUNDLE = """Error: no price of {key}
    at {function} (https://shop.example/assets/main.4f3a{n}b1c.js:1:{line})
"""
DOTNET = """System.InvalidOperationException: order {key} is closed
   at Shop.Orders.<{function}>d__{n}.MoveNext() in C:\\src\\Shop\\Orders.cs:line {line}
   at Shop.Web.Get(Int32 id) in C:\\src\\Shop\\Web.cs:line 12
   at Microsoft.AspNetCore.Routing.Endpoint.Invoke(HttpContext context)
"""
RUBY = """cart.rb:{line}:in `{function}': no price of {key} (KeyError)
\tfrom {root}/lib/shop/web.rb:{n}:in `call'
\tfrom /usr/lib/ruby/gems/3.2.0/gems/rack-3.0.{n}/lib/rack/handler.rb:10:in `serve'
"""
PHP = """PHP Fatal error:  Uncaught ShopException: no price of {key} in {root}/src/Cart.php:{line}
Stack trace:
#0 {root}/src/Web.php({line}): Shop\\Cart->{function}('{key}')
#1 {root}/vendor/slim/App.php(99): Shop\\Web->get()
#2 {{main}}
"""
GO = """panic: no price of {key}

goroutine {n} [running]:
main.{function}(0xc0000{line}, 0x{n})
\t{root}/shop/cart.go:{line} +0x1d
net/http.HandlerFunc.ServeHTTP(0xc{line})
\t/usr/local/go/src/net/http/server.go:2136 +0x29
"""
RUST = """thread 'main' panicked at src/cart.rs:{line}:{n}: no price of {key}
stack backtrace:
   0: rust_begin_unwind
             at /rustc/90c541806f23a127002de5b4038be731ba1458ca/library/std/src/panicking.rs:578:5
   1: shop::cart::{function}
             at {root}/src/cart.rs:{line}:{n}
"""
TRACES = [PYTHON, JAVA, JAVASCRIPT, BUNDLE, DOTNET, RUBY, PHP, GO, RUST]
NAMES = ["python", "java", "javascript", "bundle", "dotnet", "ruby", "php", "go", "rust"]
ROOTS = ["/srv/app/releases/20260101", "/srv/app/releases/20261118"]
VALUES = [
    {"key": "cust-1001", "line": 12, "n": 3, "root": ROOTS[0]},
    {"key": "4711", "line": 14, "n": 7, "root": ROOTS[0]},
    {"key": "Ärger im Büro", "line": 112, "n": 21, "root": ROOTS[1]},
]


def of(trace: str, error_type: str = "") -> str:
    return signature_of(ErrorReport(service="shop", traceback=trace, type=error_type))


@pytest.mark.parametrize("trace", TRACES, ids=NAMES)
def test_values_lines_and_releases_make_no_other_bug_and_a_function_does(trace: str):
    assert any(parse_stack_trace(trace.format(function="total", **VALUES[0])).stacks)
    same = {of(trace.format(function="total", **values)) for values in VALUES}
    assert len(same) == 1
    other = of(trace.format(function="discount", **VALUES[0]))
    assert other not in same


def test_traces_of_different_languages_never_meet():
    signatures = {of(trace.format(function="total", **VALUES[0])) for trace in TRACES}
    assert len(signatures) == len(TRACES)


def test_service_type_file_and_cause_tell_bugs_apart():
    trace = PYTHON.format(function="total", **VALUES[0])
    variants = [
        of(trace, "KeyError"),
        of(trace.replace("KeyError", "TypeError"), "TypeError"),
        of(trace.replace("cart.py", "basket.py"), "KeyError"),
        signature_of(ErrorReport(service="billing", type="KeyError", traceback=trace)),
        of(f"{trace.replace('KeyError', 'OSError')}\nWhile handling it:\n\n{trace}", "KeyError"),
    ]  # fmt: skip
    assert len(set(variants)) == len(variants)
    assert " | KeyError in <id>/shop/cart.py total | #" in variants[0]


def test_the_way_through_a_library_does_not_count_and_its_last_function_does():
    library = '  File "/venv/lib/python3.11/site-packages/requests/{file}.py", line 1, in {name}\n'
    own = '  File "/srv/shop/cart.py", line 12, in total\n'
    head, tail = "Traceback (most recent call last):\n", "requests.Timeout: 3.2 s\n"
    short = head + own + library.format(file="api", name="send") + tail
    long = head + own + library.format(file="api", name="get") * 3
    long += library.format(file="api", name="send") + tail
    assert of(short) == of(long) == of(short.replace("python3.11", "python3.14"))
    assert of(short) != of(head + own + library.format(file="api", name="recv") + tail)
    assert of(short) != of(head + library.format(file="api", name="send") + tail)


MESSAGES_THE_SAME = [
    ("invoice 4711 not found", "invoice 4712 not found"),
    ("no price of 'apple'", "no price of 'pear and plum'"),
    ('unknown column "ä"', 'unknown column "total"'),
    ("customer cust-1001 is gone", "customer cust-77 is gone"),
    ("user=alice failed", "user=bob failed"),
    ("Key (name)=(alice) already exists", "Key (name)=(bob) already exists"),
    ("took 3.2 s of 3 s", "took 11.9 s of 3 s"),
    ("at 2026-01-31T10:11:12Z", "at 2026-02-01T00:00:00Z"),
    ("job 8f14e45f-ceea-467f died", "job 1f14e45f-ceea-467a died"),
    ("can't read `a.txt`", "can't read `b.txt`"),
]  # fmt: skip
MESSAGES_NOT_THE_SAME = [
    ("invoice 4711 not found", "customer 4711 not found"),
    ("no price of 'apple'", "no weight of 'apple'"),
    ("can't read, won't write", "can't read, shan't write"),
    ("connection refused", "connection reset"),
]


@pytest.mark.parametrize(("one", "other"), MESSAGES_THE_SAME)
def test_values_in_a_message_without_frames_make_no_other_bug(one: str, other: str):
    both = {signature_of(ErrorReport(service="s", type="E", message=text)) for text in (one, other)}
    assert len(both) == 1


@pytest.mark.parametrize(("one", "other"), MESSAGES_NOT_THE_SAME)
def test_words_in_a_message_without_frames_make_another_bug(one: str, other: str):
    both = {signature_of(ErrorReport(service="s", type="E", message=text)) for text in (one, other)}
    assert len(both) == 2


def test_without_frames_type_status_method_and_route_tell_bugs_apart():
    reports = [
        ErrorReport(status=500, method="GET", route="/v1/orders/17"),
        ErrorReport(status=503, method="GET", route="/v1/orders/17"),
        ErrorReport(status=500, method="PUT", route="/v1/orders/17"),
        ErrorReport(status=500, method="GET", route="/v2/orders/17"),
        ErrorReport(status=500, method="GET", route="/v1/orders/17", type="OSError"),
    ]
    signatures = {signature_of(report) for report in reports}
    assert len(signatures) == len(reports)
    again = ErrorReport(status=500, method="GET", route="/v1/orders/18")
    assert signature_of(again) == signature_of(reports[0])


IDS = [
    *("17", "-3", "2024-01-31", "1731-9", "cust-1001", "INV-47", "order_123", "user:9", "abc123"),
    *("8f14e45f", "507f1f77bcf86cd799439011", "8f14e45f-ceea-467f-a8c2-0a2b5c7c4e51"),
    *("01JCZ8M4V7Q2W3E4R5T6Y7U8I9", "dQw4w9WgXcQ", "ana@example.org", "x" * 41),
]
NAMED_SEGMENTS = [
    *("v1", "v2", "V10", "v1.2", "1.0", "r3", "oauth2", "s3", "mp3", "http2", "log4j", "web3"),
    *("orders", "order-items", "sign_in", "deadbeef", "index.html", "api-v2", "v-2", "2fa", ""),
]


@pytest.mark.parametrize("segment", IDS)
def test_an_id_in_a_path_is_masked(segment: str):
    assert normalize_route(f"/orders/{segment}/items?x=1#y") == "/orders/{}/items"


@pytest.mark.parametrize("segment", NAMED_SEGMENTS)
def test_a_name_with_a_digit_in_a_path_is_none(segment: str):
    assert normalize_route(f"/{segment}/orders") == f"/{segment}/orders"


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("/v1/orders/{order_id}", "/v1/orders/17"),
        ("/v1/orders/{order_id:int}/items", "/v1/orders/17/items"),
        ("/files/{path:path}", "/files/a/b/c.txt"),
        ("/orders/<int:order>/items", "/orders/17/items"),
        ("/files/<path:rest>", "/files/a/b"),
        ("/orders/:id/items", "/orders/17/items"),
        ("/orders/{}", "/orders/cust-1001"),
        ("/orders", "/orders"),
    ],
)
def test_a_path_belongs_to_its_template_and_to_no_other(template: str, path: str):
    assert normalize_route(template) == template
    assert matches_route(template, path)
    assert not matches_route(template, f"/other{path}")
    assert is_template(template) == (template != path)
    assert not is_template(path)


def test_python_that_runs_here_writes_what_is_understood(tmp_path: Path):
    """The same program in two folders, with two values, at two depths of a recursion."""
    program = (
        "import json, sys\n"
        "def descend(left):\n"
        "    return descend(left - 1) if left else json.loads(sys.argv[2])\n"
        "def main():\n"
        "    try:\n"
        "        descend(int(sys.argv[1]))\n"
        "    except ValueError as error:\n"
        "        raise RuntimeError(sys.argv[2]) from error\n"
        "main()\n"
    )
    signatures: set[str] = set()
    for number, depth, text in ((1, 2, "{17"), (2, 40, "[zwei")):
        folder = tmp_path / f"release-{number}.0" / "shop"
        folder.mkdir(parents=True)
        (folder / "main.py").write_text(program)
        command = [sys.executable, folder / "main.py", str(depth), text]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "Traceback" in done.stderr
        trace = parse_stack_trace(done.stderr)
        assert trace.types == {"json.decoder.JSONDecodeError", "RuntimeError"}
        signatures.add(of(done.stderr))
    assert len(signatures) == 1


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=100))
def test_any_text_has_a_signature_that_every_store_can_write(trace: str, message: str, route: str):
    report = ErrorReport(service="s", traceback=trace, message=message, route=route)
    signature = signature_of(report)
    assert signature == signature_of(report)
    signature.encode()
    assert len(signature) < 1_000
    matches_route(normalize_route(route), route)


HOSTILE = [
    "  at " * 20_000,
    "  at " + "a." * 50_000 + "(",
    '  File "' * 20_000,
    '  File "x", line 1, in f\n' * 20_000,
    "a" * 100_000,
    "tmp-" * 30_000,
    "'" * 50_000,
    "a=(" * 30_000,
    "1-" * 50_000,
    "#1 a(1): " * 20_000,
    "\n".join(f"  {n}: a::b\n  at x.rs:{n}" for n in range(5_000)),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_report_costs_no_more_than_a_plain_one_of_its_length(text: str):
    for report in (
        ErrorReport(traceback=text),
        ErrorReport(message=text),
        ErrorReport(route=text[:2_000]),
    ):
        before = time.thread_time()
        signature_of(report)
        assert time.thread_time() - before < 0.25

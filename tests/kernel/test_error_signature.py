"""The error signature (S9): the same failure has the same name, another failure another one."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.kernel.stop.error_signature import (
    DISPLAY_COMMAND_CHARS,
    DISPLAY_LINE_CHARS,
    FIRST_ERROR_CHARS,
    HEAD_CHARS,
    LINE_CHARS,
    LINES_MAX,
    RAW_LINE_CHARS,
    TAIL_CHARS,
    error_signature,
    first_error_line,
)

pytestmark = pytest.mark.requirement("S9")

COMMAND = "make test"
COST_SECONDS_MAX = 2.0

PYTEST = """\
============================= test session starts ==============================
platform linux -- Python 3.11.9, pytest-9.2.0, pluggy-1.5.0
Using --randomly-seed=1837465523
rootdir: /home/ann/shop
plugins: cov-7.1.0, randomly-3.16.0
collected 12 items

tests/test_cart.py ...F.                                                 [ 41%]
tests/test_tax.py .......                                                [100%]

=================================== FAILURES ===================================
__________________________________ test_total __________________________________

tmp_path = PosixPath('/tmp/pytest-of-ann/pytest-12/test_total0')

    def test_total(tmp_path):
        cart = Cart(tmp_path)
>       assert cart.total() == 4
E       assert 3 == 4
E        +  where 3 = <bound method Cart.total of <shop.Cart object at 0x7f3a2c1d5e90>>()

tests/test_cart.py:31: AssertionError
=========================== short test summary info ============================
FAILED tests/test_cart.py::test_total - assert 3 == 4
========================= 1 failed, 11 passed in 0.34s =========================
"""
PYTEST_AGAIN = (
    PYTEST.replace("1837465523", "99")
    .replace("pytest-12", "pytest-13")
    .replace("0x7f3a2c1d5e90", "0x7f99aa001230")
    .replace("cart.py:31", "cart.py:33")
    .replace("11 passed in 0.34s", "12 passed in 1.02s")
    .replace("12 items", "13 items")
    .replace("...F.", "....F.")
)

TRACEBACK = (
    "Traceback (most recent call last):\n"
    + "".join(
        f'  File "/srv/app/layer{n}.py", line {n}, in call{n}\n    return call{n + 1}()\n'
        for n in range(40)
    )
    + "shop.orders.OutOfStock: 3 left of 'pear'\n"
)

JEST = """\
FAIL src/cart.test.js (5.123 s)
  Cart
    ✓ adds (3 ms)
    ✕ totals (12 ms)

  ● Cart › totals

    expect(received).toBe(expected) // Object.is equality

    Expected: 4
    Received: 3

      10 |   cart.add(pear);
    > 11 |   expect(cart.total()).toBe(4);
         |                        ^
      at Object.<anonymous> (src/cart.test.js:11:24)

Tests:       1 failed, 1 passed, 2 total
Time:        1.5 s
"""
NPM = """\
npm error code ELIFECYCLE
npm error errno 1
npm error path /home/ann/shop
npm error command sh -c node build.js
npm error A complete log of this run can be found in: \
/home/ann/.npm/_logs/2026-01-31T10_11_12_123Z-debug-0.log
"""
GO = """\
--- FAIL: TestTotal (0.00s)
    cart_test.go:14: got 3, want 4
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x4f6d2a]
goroutine 19 [running]:
shop.(*Cart).Total(0xc000012345)
        /home/ann/shop/cart.go:22 +0x1d
FAIL    shop/cart       0.012s
"""
CARGO = """\
   Compiling shop v0.1.0 (/home/ann/shop)
    Finished test [unoptimized + debuginfo] target(s) in 0.52s
     Running unittests src/lib.rs (target/debug/deps/shop-1f2e3d4c5b6a7980)
running 2 tests
test tests::total ... FAILED
thread 'tests::total' (81234) panicked at src/lib.rs:17:9:
assertion `left == right` failed
  left: 3
 right: 4
test result: FAILED. 1 passed; 1 failed; 0 ignored; finished in 0.00s
"""
GCC = """\
src/cart.c: In function 'total':
src/cart.c:12:30: error: 'prise' undeclared (first use in this function)
   12 |     return prise;
      |            ^~~~~
/usr/bin/ld: /tmp/ccXa81bQ.o: in function `main':
cart.c:(.text+0x1b): undefined reference to `tax'
"""
TSC = "src/cart.ts(12,5): error TS2304: Cannot find name 'prise'.\n"


def same(one: str, other: str) -> None:
    assert error_signature(COMMAND, one) == error_signature(COMMAND, other)


def differ(one: str, other: str) -> None:
    assert error_signature(COMMAND, one) != error_signature(COMMAND, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("E at 2026-01-31T10:11:12Z", "E at 2025-02-01T01:02:03.123456+02:00"),
        ("E at 2026-01-31 10:11:12,123 boom", "E at 2026-02-01 09:00:00,001 boom"),
        ("E on 2026-01-31", "E on 2026-02-01"),
        ("2026/01/31 10:11:12 boom", "2026/02/28 23:59:59 boom"),
        ("[10:11:12] boom", "[23:01:02.5] boom"),
        ("boom at 3:15 PM", "boom at 11:20 AM"),
        ("Jan 31 10:11:12 host boom", "Feb  1 09:08:07 host boom"),
        ("Sat, 31 Jan 2026 10:11:12 GMT boom", "Sun, 01 Feb 2026 00:00:01 GMT boom"),
        ("saved 20260131T101112Z", "saved 20260201T000000Z"),
        ("boom at 1769853072", "boom at 1769853099.25"),
        ("boom at 1769853072123", "boom at 1769853099456"),
        ("boom after 0.03s", "boom after 12.5s"),
        ("boom in 12 ms", "boom in 7 ms"),
        ("boom in 1.2 seconds", "boom in 14 seconds"),
        ("boom in 1m 30.5s", "boom in 2m 1s"),
        ("boom in 5 minutes", "boom in 7 minutes"),
        ("<Cart object at 0x7f3a2c1d5e90>", "<Cart object at 0x7faaaaaaaaaa>"),
        ("shop.Cart@1b6d3586 lost", "shop.Cart@4554617c lost"),
        ("shop.Cart@1b6d3 lost", "shop.Cart@75412233 lost"),
        ("object 140231231231232 lost", "object 140999999999999 lost"),
        (
            "job 123e4567-e89b-12d3-a456-426614174000 lost",
            "job 00000000-e89b-12d3-a456-426614174fff lost",
        ),
        ("commit 1f2e3d4 is bad", "commit 9a8b7c6 is bad"),
        ("digest " + "ab12" * 16 + " lost", "digest " + "cd34" * 16 + " lost"),
        ("no such file: '/tmp/tmpab12cd34'", "no such file: '/tmp/tmpzz99xx00'"),
        ("no such file: /tmp/a1/x9/config.toml", "no such file: /tmp/b7/config.toml"),
        ("no such file: /var/folders/zz/8x/T/tmpq/a.py", "no such file: /private/tmp/b/a.py"),
        ("no such file: pytest-of-ann/pytest-1/x0", "no such file: pytest-of-ann/pytest-2/x0"),
        (
            r"no such file: C:\Users\ann\AppData\Local\Temp\a1\b.txt",
            r"no such file: C:\Users\bob\AppData\Local\Temp\z9\b.txt",
        ),
        ("see /tmp/run-a1.log", "see /tmp/run-b2.log"),
        ("cc -I/tmp/a1 failed", "cc -I/tmp/b2 failed"),
        ("/tmp/run-1:12: bad", "/tmp/run-2:14: bad"),
        ("/tmp/ccXa81bQ.o: undefined tax", "/tmp/ccZZ00aa.o: undefined tax"),
        ("/tmp/d1/tmpab12cd34.py is bad", "/tmp/d2/tmpzz99xx00.py is bad"),
        ("a.py:12:3: bad", "a.py:14:7: bad"),
        ('File "a.py", line 12, in f', 'File "a.py", line 99, in f'),
        ("Makefile:12: *** missing separator", "Makefile:13: *** missing separator"),
        ("sh: 1: foo: not found", "sh: 2: foo: not found"),
        ("Expecting value: line 1 column 5 (char 4)", "Expecting value: line 2 column 1 (char 9)"),
        ("cannot reach localhost:8080", "cannot reach localhost:43121"),
        ("cannot reach 127.0.0.1:8080", "cannot reach 127.0.0.1:90"),
        ("address already in use :::3000", "address already in use :::3001"),
        ("cannot bind port 8080", "cannot bind port 9090"),
        ("worker pid=812 died", "worker pid=99 died"),
        ("==812== Invalid read", "==99== Invalid read"),
        ("process 81234 was killed", "process 999 was killed"),
        ("Thread-12 died", "Thread-3 died"),
        ("[gw0] node down", "[gw3] node down"),
        ("\x1b[31mboom\x1b[0m", "boom"),
        ("\x1b]0;title\x07boom", "boom"),
        ("[3/10] boom", "[7/10] boom"),
        ("boom\nbuild [ 40%] done", "boom\nbuild [100%] done"),
        ("10%|#   | 1/10\r20%|##  | 2/10\rboom", "boom"),
        ("45%|####   | 45/100 [00:01<00:02, 30.1it/s]", "99%|###### | 99/100 [00:05<00:00]"),
        ("needs 512.5 MB", "needs 2 GiB"),
        ("cannot allocate 1048576 bytes", "cannot allocate 2097152 bytes"),
        ("attempt 1 of 3 failed", "attempt 2 of 3 failed"),
        ('{"error": "busy", "duration_ms": 103}', '{"error": "busy", "duration_ms": 98}'),
        ('{"took": 3, "timed_out": true}', '{"took": 41, "timed_out": true}'),
        ("timeout, elapsed=3.21 of api", "timeout, elapsed=4.02 of api"),
        ("card declined (req_8fJ3kQ0aZ1)", "card declined (req_1aB2cD3eF4)"),
        ("not ready, checked 7 times", "not ready, checked 8 times"),
        ("boom\n\n\n   \n---\n^^^^\nbang", "boom\nbang"),
        ("boom\r\nbang\r\n", "boom\nbang\n"),
        ("retrying\n" * 3 + "boom", "retrying\n" * 50 + "boom"),
        ("ask\nwait\n" * 3 + "boom", "ask\nwait\n" * 50 + "boom"),
        ("===== boom =====", "========== boom =========="),
        ("boom\x00\x08", "boom"),
    ],
)
def test_what_changes_from_try_to_try_does_not_change_the_signature(one: str, other: str):
    assert one != other
    same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ValueError: bad", "TypeError: bad"),
        ("assert 3 == 4", "assert 3 == 5"),
        ("Expected: 4\nReceived: 3", "Expected: 4\nReceived: 2"),
        ("a.py:12: bad", "b.py:12: bad"),
        ("FAILED t.py::test_a", "FAILED t.py::test_b"),
        ("FAILED t.py::test_a[1-2]", "FAILED t.py::test_a[1-3]"),
        ("/tmp/x1/cart.py: bad", "/tmp/x1/tax.py: bad"),
        ("/srv/a/x.py: bad", "/srv/b/x.py: bad"),
        ("2 failed, 3 passed", "1 failed, 3 passed"),
        ("unknown field req_total", "unknown field req_count"),
        ("duration: expected 3 rows", "duration: expected 4 rows"),
        ("exit status 1", "exit status 2"),
        ("error TS2304: bad", "error TS2305: bad"),
        ("expected 3 items, got 4", "expected 3 items, got 5"),
        ("read 3 bytes", "read 4 bytes"),
        ("colour 0xffffff", "colour 0xfffffe"),
        ("total coverage 79%", "total coverage 78%"),
        ("marker 5 missing", "marker 6 missing"),
        ("cannot process 12 records", "cannot process 13 records"),
        ("KeyError: 1234567", "KeyError: 1234568"),
        ("a\nb", "a b"),
        ("a\nb", "b\na"),
    ],
)
def test_what_tells_failures_apart_stays(one: str, other: str):
    differ(one, other)


def test_another_command_is_another_failure():
    assert error_signature("pytest -q", "boom") != error_signature("pytest -v", "boom")
    assert error_signature("sleep 5s", "boom") != error_signature("sleep 6s", "boom")
    assert error_signature("curl localhost:80", "boom") != error_signature(
        "curl localhost:81", "boom"
    )
    long = "pytest " + "tests/a.py " * 20
    assert error_signature(long + "tests/b.py", "boom") != error_signature(
        long + "tests/c.py", "boom"
    )


def test_a_temporary_path_in_the_command_is_masked():
    assert error_signature("sh /tmp/a1/x.sh", "boom") == error_signature(
        "sh  /tmp/b2/x.sh ", "boom"
    )


def test_the_same_pytest_failure_is_the_same_and_another_assertion_is_not():
    same(PYTEST, PYTEST_AGAIN)
    differ(PYTEST, PYTEST.replace("3 == 4", "2 == 4"))
    differ(PYTEST, PYTEST.replace("test_total", "test_tax"))
    assert error_signature("pytest -q", PYTEST).startswith("pytest -q | assert 3 == 4 | #")


def test_the_exception_at_the_end_of_a_long_traceback_is_part_of_the_signature():
    differ(TRACEBACK, TRACEBACK.replace("OutOfStock", "Closed"))
    differ(TRACEBACK, TRACEBACK.replace("3 left", "2 left"))
    same(TRACEBACK, TRACEBACK.replace("line 1", "line 7"))
    assert "shop.orders.OutOfStock: 3 left of 'pear'" in error_signature("run", TRACEBACK)
    long = TRACEBACK.replace("pear", "pear " * 50)
    noise = "closing\n" + "bye\n"
    differ(long + noise, long.replace("pear '", "plum'") + noise)


def test_the_exception_counts_when_much_is_written_before_and_after_it():
    noise = "".join(f"chatter {n} about things\n" for n in range(10_000))
    early = TRACEBACK + noise
    late = noise + TRACEBACK
    for text in (early, late):
        differ(text, text.replace("OutOfStock", "Closed"))


def test_of_chained_tracebacks_the_last_exception_is_told():
    chained = (
        "Traceback (most recent call last):\n  File 'a', line 1\nKeyError: 'x'\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n  File 'a', line 3\nLookupFailed: x\n"
    )
    assert first_error_line(chained) == "LookupFailed: x"


def test_of_many_tracebacks_what_was_raised_counts_and_not_the_frames_source_lines():
    frame = '  File "/srv/app/{}.py", line {}, in call\n    raise error from exception{}\n'
    frames = "".join(frame.format(chr(97 + n), n, n) for n in range(20))
    text = "".join(
        f"Traceback (most recent call last):\n{frames}ValueError: {n} is odd\n" for n in (1, 3, 5)
    )
    differ(text, text.replace("1 is odd", "7 is odd"))
    differ(text, text.replace("3 is odd", "7 is odd"))
    same(text, text.replace("exception15", "exception77"))


def test_a_traceback_that_was_cut_off_falls_back_to_the_first_error():
    assert first_error_line("Traceback (most recent call last):\n  File 'a', line 1\n  boom") == (
        "Traceback (most recent call last):"
    )


@pytest.mark.parametrize(
    ("text", "again", "other"),
    [
        (
            JEST,
            JEST.replace("5.123", "4.9").replace("12 ms", "9 ms").replace("11", "21"),
            JEST.replace("Received: 3", "Received: 5"),
        ),
        (
            NPM,
            NPM.replace("10_11_12_123", "11_00_00_001"),
            NPM.replace("ELIFECYCLE", "ENOENT"),
        ),
        (
            GO,
            GO.replace("goroutine 19", "goroutine 7").replace("0.012", "0.5").replace(":14", ":15"),
            GO.replace("got 3", "got 5"),
        ),
        (
            CARGO,
            CARGO.replace("81234", "7").replace("0.52s", "3.1s").replace(":17:9", ":20:9"),
            CARGO.replace("left: 3", "left: 5"),
        ),
        (
            GCC,
            GCC.replace(":12:30", ":14:30")
            .replace("   12 |", "   14 |")
            .replace("Xa81bQ", "bbBB77"),
            GCC.replace("`tax'", "`vat'"),
        ),
        (TSC, TSC.replace("(12,5)", "(14,9)"), TSC.replace("prise", "pric")),
    ],
    ids=["jest", "npm", "go", "cargo", "gcc", "tsc"],
)
def test_the_usual_tools_failures_are_recognised(text: str, again: str, other: str):
    assert text not in (again, other)
    same(text, again)
    differ(text, other)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PYTEST, "assert 3 == 4"),
        (TRACEBACK, "shop.orders.OutOfStock: 3 left of 'pear'"),
        (GCC, "src/cart.c:12:30: error: 'prise' undeclared (first use in this function)"),
        (TSC, "src/cart.ts(12,5): error TS2304: Cannot find name 'prise'."),
        (CARGO, "test tests::total ... FAILED"),
        ("\n  all \x1b[1mgone\x1b[0m  \nmore", "all gone"),
        ("", ""),
        ("\n---\n", ""),
    ],
)
def test_the_first_error_line_is_shown_as_it_was_written(text: str, line: str):
    assert first_error_line(text) == line


def test_a_signature_is_short_and_readable():
    made = error_signature("k" * 5_000, "error: " + "z" * 5_000)
    command, line, digest = made.split(" | ")
    assert command == "k" * (DISPLAY_COMMAND_CHARS - 1) + "…"
    assert len(line) == DISPLAY_LINE_CHARS
    assert digest.startswith("#")
    assert len(digest) == 13
    assert len(first_error_line("error: " + "z" * 5_000)) == FIRST_ERROR_CHARS


def test_a_failure_without_output_has_a_signature_too():
    assert error_signature("false", "").startswith("false | no error output | #")
    assert error_signature("false", "") != error_signature("true", "")


def test_only_the_first_lines_and_the_error_lines_after_them_count():
    head = "".join(f"step {chr(97 + n)}\n" for n in range(LINES_MAX))
    same(head + "chatter one\nerror: bad", head + "chatter two\nmore\nerror: bad")
    differ(head + "chatter\nerror: bad", head + "chatter\nerror: worse")
    differ(head + "the end one", head + "the end two")
    many = "".join(f"error: kind {chr(97 + n)}\n" for n in range(20))
    same(head + many, head + many.replace("kind j", "kind zz"))
    differ(head + many, head + many.replace("kind a", "kind zz"))
    differ(head + many, head + many.replace("kind e", "kind zz"))
    differ(head + many, head + many.replace("kind p", "kind zz"))
    differ(head + many, head + many.replace("kind t", "kind zz"))


def test_a_long_line_is_cut_after_masking():
    start = "0x7f3a2c1d5e90 " * 20
    same(start + "x" * LINE_CHARS, start.replace("5e90", "0000") + "x" * LINE_CHARS + "y")
    differ("x" * (LINE_CHARS - 1) + "y", "x" * LINE_CHARS)


def test_a_very_long_line_is_cut_between_words_before_masking():
    times = "12:00:01 " * RAW_LINE_CHARS
    same(times, times.replace("12:00:01", "09:59:59"))
    far = "boom" + " " * (RAW_LINE_CHARS - 10)
    same(far + "0x7f3a2c1d5e90 end", far + "0x7faaaaaaaaaa end")


def test_the_middle_of_a_huge_output_is_not_looked_at():
    line = "chatter about things\n"
    head, tail = line * (HEAD_CHARS // len(line)), line * (TAIL_CHARS // len(line) + 1)
    same(head + "error: one\n" * 1_000 + tail, head + "error: two\n" * 1_000 + tail)


def test_lines_cut_by_the_window_do_not_count():
    line = "chatter about things\n"
    same("first\n" + line * 9_000, "first\n" + line * 9_001)


HOSTILE = [
    "0",
    "1.",
    "1:",
    "1-1-",
    "a-",
    "a.a",
    "f",
    ".F",
    "==1",
    "[1/",
    "=-",
    " ",
    "\r",
    "\n",
    "a\n",
    "\x1b[",
    "\x1b[0",
    "\x1b]",
    "/tmp/",
    "-I",
    "C:\\Users\\",
    "C:/",
    "\\",
    "file:",
    "thread '",
    "Mon ",
    "pytest-of-",
    "E ",
    "Traceback (most recent call last)\n",
    "error: 0x7f 3s\n",
    "É",
    "\ud800",
]


@pytest.mark.parametrize("piece", HOSTILE, ids=ascii)
def test_a_hostile_megabyte_costs_little(piece: str):
    text = piece * (1_000_000 // len(piece))
    start = time.thread_time()
    error_signature(text, text)
    error_signature("x", text + "!")
    first_error_line("x" + text)
    assert time.thread_time() - start < COST_SECONDS_MAX


def test_fifty_megabytes_cost_only_their_head_and_tail():
    text = "error: line\n" * (50_000_000 // 12)
    start = time.thread_time()
    error_signature("x", text)
    assert time.thread_time() - start < COST_SECONDS_MAX


@given(st.text(), st.text())
def test_any_text_gets_one_signature_that_can_be_stored(command: str, stderr: str):
    made = error_signature(command, stderr)
    assert made == error_signature(command, stderr)
    assert made.encode().decode() == made
    assert "\n" not in made
    assert "\0" not in made


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=50))
def test_the_time_of_day_never_changes_a_signature(message: str):
    same(f"10:11:12 {message}", f"23:59:58 {message}")

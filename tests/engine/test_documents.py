"""Files become plain documents, or problems with line and column; nothing raises."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.engine.document_parser import DEPTH_MAX, load_document, parse_document
from handrail.kernel.definition.reader import DOCUMENT_BYTES_MAX


def problem(source: Path | str):
    document, problems = load_document(source)
    assert document is None
    assert len(problems) == 1
    return problems[0]


def test_yaml_gives_objects_lists_texts_numbers_and_truth():
    text = "a: [1, -2, 1.5, 0x1f, 0o17, 1e3]\nb: {c: true, d: ~, e: 'x'}\nf:\n"
    assert load_document(text) == (
        {"a": [1, -2, 1.5, 31, 15, 1000.0], "b": {"c": True, "d": None, "e": "x"}, "f": None},
        [],
    )


@pytest.mark.parametrize("value", ["yes", "on", "2026-01-01", "1:30", "1_000", ".inf", "10m", "="])
def test_what_only_older_yaml_takes_for_something_else_is_a_text(value: str):
    assert load_document(f"a: {value}") == ({"a": value}, [])


def test_a_quoted_number_is_a_text():
    assert load_document("a: '1'\nb: \"2\"") == ({"a": "1", "b": "2"}, [])


@pytest.mark.parametrize(
    ("text", "code", "path", "place"),
    [
        ("a: 1\nb: 2\na: 3", "duplicate_key", "$.a", "line 3, column 1"),
        ("x:\n- {b: 1, b: 2}", "duplicate_key", "$.x[0].b", "line 2, column 10"),
        ('{"x": {"c": 1,\n "c": 2}}', "duplicate_key", "$.x.c", "line 2, column 2"),
        ("a: &one 1\nb: *one", "alias", "$.a", "line 1, column 4"),
        ("a: *one", "alias", "$.a", "line 1, column 4"),
        ("- &l [*l]", "alias", "$[0]", "line 1, column 3"),
        ("a: !!python/object:os.system x", "tag", "$.a", "line 1, column 4"),
        ("1: x", "bad_key", "$", "line 1, column 1"),
        ("a:\n  true: x", "bad_key", "$.a", "line 2, column 3"),
        ("? [a]\n: b", "bad_key", "$", "line 1, column 3"),
        ("a: 'x", "not_yaml", "$", "line 1"),
        ("a:\n\t- b", "not_yaml", "$", "line 2, column 1"),
        ("--- 1\n--- 2", "not_yaml", "$", "line 2, column 1"),
        ('{"a": 1,}', "not_json", "$", "line 1, column 9"),
        ("[1, 2", "not_json", "$", "line 1, column 6"),
        ('{"a": NaN}', "not_json", "$", "NaN"),
        ('{"a": "\\ud800"}', "not_json", "$", "surrogate"),
        ('{"a": ' + "9" * 5000 + "}", "not_json", "$", "4300 digits"),
        ("", "empty", "$", ""),
        (" \n ", "empty", "$", ""),
        ("a: \x00", "not_yaml", "$", "control characters"),
    ],
)
def test_a_text_that_is_no_document_is_a_problem_with_its_place(
    text: str, code: str, path: str, place: str
):
    found = problem(text)
    assert (found.code, found.path) == (code, path)
    assert place in found.message


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 1_000, 100_000])
@pytest.mark.parametrize("opened", ['{"a":', "[", "a: ["])
def test_deep_nesting_is_refused(opened: str, depth: int):
    first = "a: " if opened == "a: [" else ""
    pair = (opened.removeprefix("a: "), "}" if opened.startswith("{") else "]")
    text = first + pair[0] * depth + "1" + pair[1] * depth
    assert problem(text).code == "too_deep"


def test_nesting_up_to_the_limit_is_read():
    text = "[" * DEPTH_MAX + "]" * DEPTH_MAX
    assert load_document(text)[1] == []
    assert load_document("- " * 50 + "x")[1] == []


def test_many_laughs_are_refused_before_anybody_has_to_laugh():
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [*{a}, *{a}, *{a}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    assert problem("\n".join(lines)).code == "alias"


def test_size_is_looked_at_first(tmp_path: Path):
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(50_000_000)
    assert problem(huge).code == "too_large"
    assert "50,000,000" in problem(huge).message
    assert parse_document(b"x" * (DOCUMENT_BYTES_MAX + 1))[1][0].code == "too_large"


def test_the_extension_says_which_it_is_else_the_first_character(tmp_path: Path):
    for name, text, code in (
        ("a.json", "a: 1", "not_json"),
        ("a.yaml", "{a: 1}", ""),
        ("a.YML", "{a: 1}", ""),
        ("a.txt", "{a: 1}", "not_json"),
        ("a", "a: 1", ""),
    ):
        path = tmp_path / name
        path.write_text(text)
        document, problems = load_document(path)
        assert [p.code for p in problems] == ([code] if code else [])
        assert document == (None if code else {"a": 1})


def test_what_cannot_be_read_is_a_problem(tmp_path: Path):
    assert problem(tmp_path / "nowhere.yaml").code == "unreadable"
    assert problem(tmp_path).code == "unreadable"
    path = tmp_path / "latin.yaml"
    path.write_bytes("a: 1\nb: grün".encode("latin-1"))
    assert problem(path).code == "not_text"
    assert "line 2" in problem(path).message


def test_a_byte_order_mark_is_no_text():
    assert parse_document(b"\xef\xbb\xbfa: 1") == ({"a": 1}, [])


def test_a_key_that_stands_twice_is_found_even_where_yaml_cannot_read_the_json():
    found = problem('{"a": "\\/",\t"b": "\\ud83d\\ude00", "c": 1, "c": 2}')
    assert found.code == "duplicate_key"
    assert "'c'" in found.message


@given(st.binary(max_size=200))
def test_no_bytes_raise(raw: bytes):
    document, problems = parse_document(raw)
    assert document is None or not problems


@given(st.text(alphabet="{}[]:,-?&*!|>'\"%@`#ab1 \n\t\\u", max_size=60))
def test_no_text_raises(text: str):
    document, problems = load_document(text)
    assert document is None or not problems


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text("abcé😀", max_size=5), PLAIN))
def test_json_reads_as_what_was_written(document: dict[str, object]):
    assert load_document(json.dumps(document)) == (document, [])

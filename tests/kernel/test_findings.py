"""Findings: what is the same, what is alike, what failed, what waits."""

import re
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.kernel.stop.findings import (
    ANSWERS_KEPT,
    FIGURES_MAX,
    KEYS_KEPT,
    STATE_DEPTH_MAX,
    STATE_ITEMS_MAX,
    FindingReader,
    StepFinding,
    digest_text,
    is_note_tool,
    is_silent,
    normalize_text,
    reports_failure,
)

PAGE = " ".join(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(200))


def read_answers(*answers: str) -> list[StepFinding]:
    """One call again and again, with these answers."""
    reader = FindingReader()
    return [reader.read_call("agent", "search", "{}", answer) for answer in answers]


def test_the_same_call_with_the_same_answer_is_the_same_finding() -> None:
    first, second = read_answers("one page", "one page")
    assert first == second


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("done at 2026-01-31T10:11:12", "done at 2026-02-01T01:02:03"),
        ("took 12 ms", "took 900 ms"),
        ("object at 0x7f12ab", "object at 0x55aa01"),
        (
            "id 0b4f1c2e-7a52-4d7e-9c1a-2b3c4d5e6f70",
            "id 1b4f1c2e-7a52-4d7e-9c1a-2b3c4d5e6f71",
        ),
        ("commit 1a2b3c4", "commit 9f8e7d6"),
        ("it is 10:07", "it is 10:09:12"),
        ('{"created": 1731940000, "n": 1}', '{"created": 1731949999.25, "n": 1}'),
    ],
)
def test_times_and_ids_in_short_answers_do_not_matter(first: str, second: str) -> None:
    one, two = read_answers(first, second)
    assert one == two


def test_another_argument_is_another_call_to_the_letter() -> None:
    reader = FindingReader()
    keys = {
        reader.read_call(agent, tool, arguments, "x").key
        for agent, tool, arguments in [
            ("a", "edit", "if x:\n    y"),
            ("a", "edit", "if x:\n        y"),
            ("a", "read", "if x:\n    y"),
            ("b", "edit", "if x:\n    y"),
        ]
    }
    assert len(keys) == 4


def test_a_page_that_is_alike_is_the_same_answer_and_another_page_is_not() -> None:
    alike = PAGE.replace("wordaa", "advert").replace("wordba", "banner")
    first, second, other = read_answers(PAGE, alike, "something else altogether")
    assert first.answer == second.answer
    assert not second.weak
    assert other.answer != first.answer


def test_answers_are_compared_with_the_first_so_likeness_cannot_drift() -> None:
    words = PAGE.split()
    pages = []
    for n in range(10):  # a tenth of the words changes each time
        words[n * 20 : n * 20 + 20] = [f"fresh{chr(97 + n)}{chr(97 + k)}" for k in range(20)]
        pages.append(" ".join(words))
    answers = [finding.answer for finding in read_answers(PAGE, *pages)]
    assert len(set(answers)) > 1


def test_a_reader_that_remembers_calls_reads_on_as_the_one_before() -> None:
    texts = ["one page", PAGE, *(f"{PAGE} visitors {n}00" for n in range(1, 6)), "other", "\ud800"]
    before, memories = FindingReader(), {}
    for text in texts:
        after = FindingReader()
        after.remember(memories.items())
        finding = after.read_call("agent", "search", "{}", text)
        assert finding == before.read_call("agent", "search", "{}", text)
        memory = after.recall(finding.key)
        assert memory is not None
        assert memory == before.recall(finding.key)
        memories[finding.key] = memory
    assert before.recall("another key") is None


def test_what_a_reader_remembers_has_no_word_of_an_answer() -> None:
    reader = FindingReader()
    finding = reader.read_call("agent", "cat", "{}", "password hunter2 is secret")
    encoded = msgspec.json.encode(reader.recall(finding.key)).decode()
    assert not any(word in encoded for word in ("password", "hunter2", "secret"))


def test_figures_alone_are_weak_news_a_bounded_number_of_times() -> None:
    answers = read_answers(*(f"{PAGE} visitors {n}00" for n in range(1, FIGURES_MAX + 4)))
    assert len({finding.answer for finding in answers}) == 1
    assert [finding.weak for finding in answers] == [False, *[True] * FIGURES_MAX, False, False]


@pytest.mark.parametrize(
    "result",
    [
        "Error: no such table",
        "Traceback (most recent call last):",
        "** failed",
        "bash: foo: command not found",
        "sqlite3.OperationalError: near",
        "git: fatal: not a repository",
        "Path: /x\nTitle: FileNotFoundError",
    ],
)
def test_an_answer_that_begins_as_errors_do_has_failed(result: str) -> None:
    assert reports_failure(result)
    assert FindingReader().read_call("a", "t", "", result).failed


@pytest.mark.parametrize(
    "result", ["no errors found", "0 failures", "the ValueError class " + "x" * 200, "ok"]
)
def test_an_answer_that_speaks_of_errors_has_not_failed(result: str) -> None:
    assert not reports_failure(result)


def test_what_the_host_knows_wins_over_what_the_answer_looks_like() -> None:
    reader = FindingReader()
    assert not reader.read_call("a", "grep", "Error", "Error: a line of a log", failed=False).failed
    assert reader.read_call("a", "grep", "x", "", failed=True).failed


def test_a_failure_that_says_something_has_an_error_and_a_silent_one_has_none() -> None:
    reader = FindingReader()
    loud = [reader.read_call("a", "sql", f"query {n}", "Error: no table t") for n in range(2)]
    assert loud[0].error == loud[1].error != ""
    silent = reader.read_call("a", "bash", "grep x", "<returncode>1</returncode>", failed=True)
    assert silent.failed
    assert not silent.error
    assert is_silent("")
    assert not is_silent("x" * 400)


@pytest.mark.parametrize(
    ("result", "failed", "pending"),
    [
        ("status: running", None, True),
        ('{"state": "in_progress"}', False, True),
        ("not ready yet", None, True),
        ("Building… 40% complete", None, True),
        ("[====>    ] 40%", None, True),
        ('{"state": "DEPLOYING", "ready": "0/3"}', None, True),
        ("HTTP 502 Bad Gateway", None, True),
        ("the building is old", None, False),
        ("100% of the tests passed", None, False),
        ("Error: the process is not running", None, False),
        ("all done", None, False),
        ("running " + "x" * 400, None, False),
    ],
)
def test_an_answer_that_is_still_not_ready_is_pending(
    result: str, failed: bool | None, pending: bool
) -> None:
    reader = FindingReader()
    first, second = (reader.read_call("a", "t", "", result, failed=failed) for _ in range(2))
    assert not first.pending, "the first time it is news"
    assert second.pending is pending


def test_a_progress_bar_is_one_answer_however_long_it_is() -> None:
    findings = read_answers(*(f"[{'=' * n}>{' ' * (20 - n)}] {5 * n}%" for n in range(3, 20)))
    assert [finding.pending for finding in findings] == [False, *[True] * 16]


@pytest.mark.parametrize(
    "tool",
    [
        "think",
        "ThinkTool",
        "mcp__sequential-thinking__sequentialthinking",
        "TodoWrite",
        "write_todos",
        "todo_read",
        "scratchpad_append",
        "note",
        "add_note",
        "update_plan",
        "core_memory_append",
    ],
)
def test_a_tool_that_agents_write_to_themselves_with_is_known_by_its_name(tool: str) -> None:
    assert is_note_tool(tool)


@pytest.mark.parametrize(
    "tool",
    [
        "bash",
        "add_customer_note",
        "get_notes",
        "plan_trip",
        "search_memory",
        "create_record",
        "mcp__notes__search",
        "",
    ],
)
def test_a_tool_that_others_read_or_that_looks_something_up_is_none(tool: str) -> None:
    assert not is_note_tool(tool)


def test_a_note_is_what_was_written_whatever_its_tool_answers() -> None:
    reader = FindingReader()
    notes = [reader.read_call("a", "add_note", "be careful", f"note {n} pending") for n in range(9)]
    assert all(note == notes[0] for note in notes)
    assert (notes[0].note, notes[0].pending) == (True, False)
    assert reader.read_call("a", "add_note", "be careful", None) == notes[0]
    assert reader.read_call("a", "add_note", "be kind", "note 9").key != notes[0].key


def test_a_note_that_could_not_be_written_is_a_failed_call() -> None:
    reader = FindingReader()
    findings = [
        reader.read_call("a", "add_note", "x", "disk is full", failed=True),
        reader.read_call("a", "add_note", "x", "Error: disk is full"),
    ]
    assert [(finding.note, finding.failed) for finding in findings] == [(False, True)] * 2


@pytest.mark.parametrize(
    ("tool", "arguments", "pending"),
    [
        ("bash", "sleep 30 && cat build.log", True),
        ("wait", "{}", True),
        ("computer", '{"action": "wait", "duration": 2}', True),
        ("python", "time.sleep(5)\nprint(job.state)", True),
        ("bash", "cat sleep.txt", False),
    ],
)
def test_a_call_that_sleeps_and_brings_nothing_new_is_pending(
    tool: str, arguments: str, pending: bool
) -> None:
    reader = FindingReader()
    answers = ["step one", "step two of many", "step one"]
    findings = [reader.read_call("a", tool, arguments, answer) for answer in answers]
    assert [finding.pending for finding in findings] == [False, False, pending]


@pytest.mark.parametrize(
    ("result", "failed"),
    [("HTTP 429 Too Many Requests", True), ("Error: service unavailable", None)],
)
def test_a_provider_that_is_away_is_pending_from_the_first_time(
    result: str, failed: bool | None
) -> None:
    assert FindingReader().read_call("a", "t", "", result, failed=failed).pending


@pytest.mark.parametrize(
    "result",
    [
        '{"error": null, "rows": 3}',
        '{"errors": [], "data": {"id": 1}}',
        "Failed: 0, passed: 12",
        '{"success": true}',
        '{"note": "the error is gone"}',
    ],
)
def test_an_answer_that_names_no_error_has_not_failed(result: str) -> None:
    assert not reports_failure(result)


@pytest.mark.parametrize(
    "result",
    [
        '{"error": "no such user"}',
        '{"success": false, "reason": "no such user"}',
        '{"status": "error", "code": 4}',
        '{"isError": true, "content": []}',
        "Fehler: Datei nicht gefunden",
        "Erreur : fichier introuvable",
        "错误：找不到文件",
        "ошибка: файл не найден",
    ],
)
def test_a_failure_may_be_a_field_or_in_another_language(result: str) -> None:
    assert reports_failure(result)


def test_json_without_white_space_is_compared_word_by_word() -> None:
    first, second, third = read_answers(
        '{"items":[{"name":"ada","id":1},{"name":"bob","id":2}]}',
        '{"items":[{"name":"eve","id":3},{"name":"joe","id":4}]}',
        '{"items":[{"name":"ada","id":1},{"name":"bob","id":7}]}',
    )
    assert first.answer != second.answer
    assert (third.answer, third.weak) == (first.answer, True)


def test_a_page_in_a_language_without_spaces_is_compared_by_its_phrases() -> None:
    page = "，".join(f"第{chr(0x4E00 + n)}章内容" for n in range(50))
    first, second, other = read_answers(
        page, page.replace("第丂章", "新"), "没有找到任何结果，请重试"
    )
    assert first.answer == second.answer != other.answer


def test_an_unknown_result_is_not_an_empty_one() -> None:
    reader = FindingReader()
    assert not reader.read_call("a", "t", "", None).answer
    assert reader.read_call("a", "t", "", "").answer


def test_texts_are_the_same_but_for_case_white_space_and_punctuation() -> None:
    reader = FindingReader()
    first = reader.read_text("a", "Let me check, again!")
    second = reader.read_text("a", "let me   check again")
    assert first == second
    assert first is not None
    assert first.short
    assert reader.read_text("a", "Let me check file 2") != reader.read_text(
        "a", "Let me check file 3"
    )
    assert reader.read_text("a", " ... ") is None
    assert normalize_text("Step 2: DONE.") == "step 2 done"


def test_a_long_text_is_a_finding_of_its_own_and_a_reworded_one_is_alike() -> None:
    reader = FindingReader()
    first, second = reader.read_text("a", PAGE), reader.read_text("a", PAGE.replace("wordaa", "x"))
    assert first is not None
    assert second is not None
    assert not first.short
    assert (first.key, first.answer) == (second.key, second.answer)


def test_what_a_person_says_is_a_finding() -> None:
    reader = FindingReader()
    assert reader.read_person("go on") == reader.read_person("go on")
    assert reader.read_person("go on") != reader.read_person("stop")


class Message:
    """An object of a framework."""

    def __init__(self, content: str) -> None:
        self.content = content


class Plan(msgspec.Struct):
    steps: list[str]


def read_states(*states: object) -> list[StepFinding]:
    reader = FindingReader()
    return [reader.read_state("node", state) for state in states]  # type: ignore[arg-type]


def test_a_state_is_compared_without_times_and_by_the_set_of_a_list() -> None:
    one, two, three = read_states(
        {"notes": ["a", "b"], "at": "2026-01-31T10:11:12", "done": False, "owner": None},
        {"at": "2026-02-01T01:02:03", "notes": ["b", "a", "a"], "done": False, "owner": None},
        {"notes": ["a", "b", "c"], "at": "2026-01-31T10:11:12", "done": False, "owner": None},
    )
    assert one == two
    assert one.answer != three.answer


def test_a_counter_that_only_counts_is_weak_and_then_nothing() -> None:
    states = read_states(*({"count": n, "name": "x"} for n in range(FIGURES_MAX + 3)))
    assert len({state.answer for state in states}) == 1
    assert [state.weak for state in states] == [False, *[True] * FIGURES_MAX, False, False]


def test_a_number_that_falls_is_news() -> None:
    three, two, one = read_states({"left": 3}, {"left": 2}, {"left": 1})
    assert len({three.answer, two.answer, one.answer}) == 3


def test_numbers_in_lists_and_objects_of_frameworks_belong_to_the_contents() -> None:
    states = read_states(
        {"scores": [1, 2]},
        {"scores": [1, 3]},
        {"m": Message("hello")},
        {"m": Message("bye")},
        {"p": Plan(["a"])},
        {"p": Plan(["b"])},
        {"s": {1, 2}, "o": object()},
        {"s": {1, 2}, "o": object()},
    )
    answers = [state.answer for state in states]
    assert len(set(answers)) == 7
    assert answers[6] == answers[7], "an address is no difference"


def test_a_state_may_be_a_digest_of_the_host() -> None:
    one, two, three = read_states("d1", "d1", "d2")
    assert one == two != three


def test_a_state_of_any_size_and_depth_is_read_within_bounds() -> None:
    deep: dict[str, object] = {}
    inner = deep
    for _ in range(STATE_DEPTH_MAX * 2):
        inner["next"] = inner = {}
    wide = {str(n): "x" * 2_000 for n in range(STATE_ITEMS_MAX * 2)}
    assert read_states(deep, wide)[0].answer


def test_what_is_remembered_is_bounded() -> None:
    reader = FindingReader()
    first = reader.read_call("a", "t", "0", PAGE)
    for n in range(KEYS_KEPT + 1):
        reader.read_call("a", "t", str(n), f"answer {n} of many")
        reader.read_state(f"node {n}", {"n": n})
        reader.read_state("node", {"name": f"n{n}n"})
    for n in range(ANSWERS_KEPT + 2):
        reader.read_call("a", "t", "0", chr(97 + n) * 10)
    assert reader.read_call("a", "t", "0", PAGE).key == first.key


@given(st.lists(st.text(max_size=50), max_size=10))
def test_borders_between_texts_count(texts: list[str]) -> None:
    joined = "".join(texts)
    assert (digest_text(*texts) == digest_text(joined)) == (texts == [joined])


def test_states_of_one_agent_are_forgotten_beyond_a_bound() -> None:
    reader = FindingReader()
    first = reader.read_state("node", {"name": "first", "count": 1})
    for n in range(KEYS_KEPT + 1):
        reader.read_state("node", {"name": f"x{chr(97 + n % 26)}{n}"})
    assert reader.read_state("node", {"name": "first", "count": 2}) == first, "a new one, not weak"


def test_a_long_page_is_compared_by_its_head_and_tail() -> None:
    middle = " ".join(f"filler{chr(97 + n % 26)}" for n in range(2_000))
    first, second = read_answers(f"{PAGE} {middle} {PAGE}", f"{PAGE} other {middle} {PAGE}")
    assert first.answer == second.answer


def test_an_answer_that_only_hands_over_is_a_finding() -> None:
    reader = FindingReader()
    first = reader.read_handoff("a", "b", "Your turn!")
    assert first == reader.read_handoff("a", "b", "your turn")
    assert first.answer != reader.read_handoff("a", "c", "your turn").answer


PIECES = st.sampled_from(
    ["2024-01-02T10:11", "12:30", "0xff", "0X1", "1712345678", "3 ms", "٣ µs", "12ſ", "5 Sec",
     "deadbee", "0c0ffee", "c0ffee0", "12345678-1234-1234-1234-123456789abc", "a", "7", "-", ":",
     "x", " ", "abcdefab-abcd-abcd-abcd-abcdefabcdef"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map("".join))
@settings(max_examples=500, deadline=None)
def test_the_quick_search_for_noise_overlooks_none(text: str) -> None:
    def read() -> StepFinding:
        return FindingReader().read_call("a", "look", "{}", text)

    always = re.compile("")
    seen = read()
    with patch("handrail.kernel.stop.findings._MAY_BE_NOISE", (always, always)):
        assert read() == seen


@given(st.text("ab", max_size=3), st.integers(2_990, 3_010), st.text("ab", max_size=3))
def test_long_answers_with_the_same_head_and_tail_are_the_same(
    one: str, length: int, other: str
) -> None:
    reader, page = FindingReader(), "word " * length
    answers = [
        reader.read_call("a", "look", "{}", f"{page}{middle}{page}").answer
        for middle in (one, other)
    ]
    assert answers[0] == answers[1]
    apart = FindingReader().read_call("a", "look", "{}", f"{page}{other}{page}").answer
    assert (apart == answers[0]) is (len(one) == len(other))

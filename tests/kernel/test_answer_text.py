"""The text rule of reviews (R4.2): what approves, what revises, what is asked again."""

import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.health_checks import EVERY_HEALTH_CHECK

from handrail.kernel.run.answer_text import (
    APPROVALS,
    PADDING,
    PHRASES,
    READ_CHARS_MAX,
    AnswerIntent,
    classify_answer,
)

pytestmark = pytest.mark.requirement("R4.2")

ORNAMENTS = " \t\n.,;:!-–—…\"'“”‘’«»()*_`/¡。、"


@pytest.mark.parametrize("text", APPROVALS)
def test_every_agreed_word_approves(text: str):
    assert classify_answer(text) is AnswerIntent.APPROVE


@pytest.mark.parametrize(
    "text",
    [
        "OK",
        "OK.",
        "Looks good to me!",
        "yes please",
        "ok, thanks",
        "OK, looks good",
        "Thank you, approved.",
        "**ok**",
        "_Yes_",
        "`lgtm`",
        '"ok"',
        "“Okay”",
        "¡ok!",
        "ok...",
        "okay…",
        "O.K.",
        "o. k.",
        "go-ahead",
        "LOOKS\n  GOOD",
        "ＯＫ",
        "𝐨𝐤",
        "ﬁne",
        "o\u200bk",
        "\ufeffok\u200f",
        "\u2067ok\u2069",
        "👍🏻",
        "👍🏽👍🏿",
        "👍\ufe0f",
        "Ok 👍",
        "  ok" + " " * 5_000,
    ],
)
def test_case_punctuation_padding_and_ways_of_typing_do_not_matter(text: str):
    assert classify_answer(text) is AnswerIntent.APPROVE


@pytest.mark.parametrize(
    "text",
    [
        "ok, but change the date",
        "Looks good to me, only the total is wrong",
        "yes and add a footer",
        "no, use euros",
        "wait for Bob",
        "cancel the second line",
        "approved with changes",
        "ok, can you change the date?",
        "change the date",
        "42",
        "50",
        "измени дату",
        "तारीख बदलो",
        "改日期",
        "수정해",
        "café",
        '{"decision": "approve"}',
        "okthanks",
        "disapprove-ish",
        "x" * 100_000,
        "ok " + "but change the date " * 100,
    ],
)
def test_a_text_that_adds_an_instruction_revises(text: str):
    assert classify_answer(text) is AnswerIntent.REVISE


@pytest.mark.parametrize(
    "text",
    [
        *("no", "nope", "No!", "cancel", "wait", "stop", "hm", "hmm", "Hmmmmm...", "?", "maybe"),
        *("not sure", "reject", "no thanks", "ok?", "yes?", "yes？", "Looks good?", "sure⁇"),
        *("not ok", "not approved", "don't approve", "don’t", "do not go ahead", "ok but no"),
        *("yes/no", "ok or not", "nooo", "stopp", "why?", "hold on", "later", "not now"),
        *("k", "y", "n", "+1", "1", "yeah", "great", "perfect", "that's fine", "I approve this"),
        *("do it", "go", "looks", "good", "sounds", "to", "oui", "да", "네", "好", "no problem"),
        *("✅", "👎", "👍👎", "🏽", "👍🏽🏽", "ok 🙂", "👍\u20e0", "🆗"),
    ],
)
def test_what_could_mean_either_is_asked_again(text: str):
    assert classify_answer(text) is AnswerIntent.AMBIGUOUS


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n\t", "\u200b\u200d", "\u200f", "...", "!!!", "**", "---", "\ufe0f", "\u0336"],
)
def test_an_answer_that_says_nothing_is_asked_again(text: str):
    assert classify_answer(text) is AnswerIntent.AMBIGUOUS


@pytest.mark.parametrize("text", [*PADDING, "thanks, thank you", "please to me"])
def test_padding_alone_is_asked_again(text: str):
    assert classify_answer(text) is AnswerIntent.AMBIGUOUS


@pytest.mark.parametrize(
    "text",
    [
        "ОК",
        "оk",
        "ΟΚ",
        "0k",
        "уes",
        "o\u0336k\u0336",
        "ök",
        "fi\u0307ne",
        "FİNE",
        "ѕure",
        "lgtм",
        "аpproved",
    ],
)
def test_what_only_looks_like_an_approval_is_asked_again(text: str):
    assert classify_answer(text) is AnswerIntent.AMBIGUOUS


@pytest.mark.parametrize(
    "text",
    [
        *("~~ok~~", "~ok~", "> ok", "[ ] ok", "[x] ok", "{ok}", "<ok>", "<ok/>", "\\ok", "#ok"),
        *("@ok", "$ok", "ok=", "¬ok", "≠ ok", "ok\x00", "ok\x1b", "ok\ud800", "ok\ue000"),
        *("\u202eok", "\u202dok", "ok\U000e0041", "100%", "ok|ok", "ok ok " * 300),
    ],
)
def test_a_malformed_answer_is_never_an_approval(text: str):
    assert classify_answer(text) is not AnswerIntent.APPROVE


def test_approvals_without_end_are_asked_again():
    assert classify_answer("ok " * READ_CHARS_MAX) is AnswerIntent.AMBIGUOUS
    assert classify_answer("ok" + "!" * (READ_CHARS_MAX - 2)) is AnswerIntent.APPROVE
    assert classify_answer("ok" + "!" * (READ_CHARS_MAX - 1)) is AnswerIntent.AMBIGUOUS


@pytest.mark.parametrize("piece", ["ok ", "ﷺ", "o\u0336", "👍🏽", "'a", "o.", " ", "\u200b", "a"])
def test_a_very_long_text_costs_little(piece: str):
    text = piece * (2_000_000 // len(piece))
    start = time.thread_time()
    assert classify_answer("x" + text) is not AnswerIntent.APPROVE
    assert time.thread_time() - start < 1


@pytest.mark.requirement("R4.3")
def test_reading_a_revision_returns_no_text_so_it_is_kept_as_typed():
    typed = "  Ok, BUT change\tthe date…\n"
    assert classify_answer(typed) is AnswerIntent.REVISE
    assert typed == "  Ok, BUT change\tthe date…\n"
    assert set(AnswerIntent) == {"approve", "revise", "ambiguous"}


cases = st.sampled_from([str.lower, str.upper, str.title, str.capitalize])
gaps = st.text(ORNAMENTS, min_size=1, max_size=4).map(lambda gap: f" {gap} ")


@st.composite
def agreed(draw: st.DrawFn) -> str:
    """Approvals and padding, at least one approval, in any case, with any ornaments between."""
    parts = draw(st.lists(st.sampled_from(APPROVALS + PADDING), max_size=6))
    parts.insert(draw(st.integers(0, len(parts))), draw(st.sampled_from(APPROVALS)))
    dressed = [draw(cases)(part) + draw(gaps) for part in parts]
    return draw(gaps) + "".join(dressed)


@given(agreed())
def test_approvals_are_closed_under_case_punctuation_and_padding(text: str):
    assert classify_answer(text) is AnswerIntent.APPROVE


KNOWN = {word for phrase in (*APPROVALS, *PADDING) for word in phrase.split()}
letters = st.characters(categories=["L", "Nd"])
other_words = st.text(letters, min_size=1, max_size=12).filter(lambda word: not is_agreed(word))


def is_agreed(word: str) -> bool:
    """Would a reader of plain letters take this word for an agreed one?"""
    return unicodedata.normalize("NFKC", word).casefold() in KNOWN


@pytest.mark.no_cover
@settings(suppress_health_check=EVERY_HEALTH_CHECK)  # most drawn words are filtered in time
@given(agreed(), other_words, agreed())
def test_a_text_with_any_other_word_never_approves(before: str, word: str, after: str):
    assert classify_answer(f"{before} {word} {after}") is not AnswerIntent.APPROVE
    assert classify_answer(f"{word} {after}") is not AnswerIntent.APPROVE
    assert classify_answer(f"{before} {word}") is not AnswerIntent.APPROVE


@pytest.mark.no_cover
@given(agreed(), st.sampled_from("?？⁇¿؟❓"), agreed())
def test_a_question_never_approves(before: str, mark: str, after: str):
    assert classify_answer(before + mark) is AnswerIntent.AMBIGUOUS
    assert classify_answer(before + mark + after) is AnswerIntent.AMBIGUOUS


@given(st.lists(st.sampled_from([" ".join(phrase) for phrase in PHRASES]), min_size=1, max_size=8))
def test_the_tables_words_alone_are_never_a_revision(words: list[str]):
    assert classify_answer(", ".join(words)) is not AnswerIntent.REVISE


@given(st.text())
def test_any_text_is_read(text: str):
    assert classify_answer(text) in set(AnswerIntent)

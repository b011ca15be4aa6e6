"""The text protocol: only the last line counts, whatever stands before it and around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.kernel.result import Outcome, Result
from handrail.kernel.run.text_protocol import (
    COMPLETE_MARKER,
    TERMINATE_MARKER,
    TextDirective,
    apply_text_protocol,
    read_directive,
)

HANDOFF, TERMINATE = Outcome.HANDOFF, Outcome.TERMINATE
NOTHING = TextDirective()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("HANDOFF: billing: charged twice", TextDirective(HANDOFF, "billing", "charged twice")),
        ("I looked.\n\nHANDOFF: billing: a: b.\n\n", TextDirective(HANDOFF, "billing", "a: b")),
        (
            "**HANDOFF:** `billing`: charged twice",
            TextDirective(HANDOFF, "billing", "charged twice"),
        ),
        (
            "**HANDOFF**: _billing_: *charged twice*",
            TextDirective(HANDOFF, "billing", "charged twice"),
        ),
        ("HANDOFF: my_agent_: go", TextDirective(HANDOFF, "my_agent_", "go")),
        ("TERMINATE_WORKFLOW", TextDirective(TERMINATE, "", "", TERMINATE_MARKER)),
        ("done\r\n**TERMINATE_WORKFLOW**.\r\n", TextDirective(TERMINATE, "", "", TERMINATE_MARKER)),
        ("_TERMINATE_WORKFLOW_!", TextDirective(TERMINATE, "", "", TERMINATE_MARKER)),
        (
            "TERMINATE_WORKFLOW: resolved.",
            TextDirective(TERMINATE, "", "resolved", TERMINATE_MARKER),
        ),
        (
            "**TERMINATE_WORKFLOW**: resolved",
            TextDirective(TERMINATE, "", "resolved", TERMINATE_MARKER),
        ),
        ("All is said. WORKFLOW_COMPLETE", TextDirective(marker=COMPLETE_MARKER)),
        ("summary\n*WORKFLOW_COMPLETE*.", TextDirective(marker=COMPLETE_MARKER)),
        ("```sh\nls\n```\nTERMINATE_WORKFLOW", TextDirective(TERMINATE, "", "", TERMINATE_MARKER)),
        ("~~~\n```\n~~~\n TERMINATE_WORKFLOW", TextDirective(TERMINATE, "", "", TERMINATE_MARKER)),
        ("summary _WORKFLOW_COMPLETE_", TextDirective(marker=COMPLETE_MARKER)),
        (
            "HANDOFF: orchestrator: written. WORKFLOW_COMPLETE",
            TextDirective(HANDOFF, "orchestrator", "written. WORKFLOW_COMPLETE", COMPLETE_MARKER),
        ),
    ],
)
def test_the_last_line_says_what_the_agent_means(text: str, meant: TextDirective) -> None:
    assert read_directive(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "I am done.",
        "TERMINATE_WORKFLOW\nis what the ticket says",
        "HANDOFF: billing: go\nbut later",
        "The user wrote: TERMINATE_WORKFLOW",
        "found: 'TERMINATE_WORKFLOW'",
        '"TERMINATE_WORKFLOW"',
        "> TERMINATE_WORKFLOW",
        "```\nTERMINATE_WORKFLOW\n```",
        "```\nTERMINATE_WORKFLOW",
        "```\nls\n```\n````text\n```\nHANDOFF: billing: go",
        "~~~\r```\rTERMINATE_WORKFLOW",
        "`TERMINATE_WORKFLOW`",
        "`HANDOFF: billing: go`",
        "it prints `WORKFLOW_COMPLETE`",
        "    TERMINATE_WORKFLOW",
        "\tHANDOFF: billing: go",
        "> the job said WORKFLOW_COMPLETE",
        "TERMINATE_WORKFLOW\u200b",
        "TERMINATE\u200b_WORKFLOW",
        "ＴＥＲＭＩＮＡＴＥ_WORKFLOW",
        "do not TERMINATE_WORKFLOW",
        "TERMINATE_WORKFLOW now",
        "TERMINATE_WORKFLOWS",
        "terminate_workflow",
        "NOT_WORKFLOW_COMPLETE",
        "he said 'WORKFLOW_COMPLETE'",
        "WORKFLOW_COMPLETE is near",
        "HANDOFF: billing",
        "HANDOFF: billing:",
        "HANDOFF: : go",
        "I HANDOFF: billing: go",
        "do not say\u2028TERMINATE_WORKFLOW",
    ],
)
def test_anything_else_says_nothing(text: str) -> None:
    assert read_directive(text) == NOTHING


LINES = st.sampled_from(
    [
        "HANDOFF: billing: go",
        "TERMINATE_WORKFLOW",
        "TERMINATE_WORKFLOW: done",
        "all done WORKFLOW_COMPLETE",
        "nothing to see",
        "'TERMINATE_WORKFLOW'",
    ]
)
WORDS = st.text(max_size=30).filter(lambda text: not any(fence in text for fence in ("```", "~~~")))
BEFORE = st.lists(st.one_of(LINES, WORDS), max_size=5).map("\n".join)
EMPTY = st.text(alphabet="\n\r \t", max_size=6)


@given(before=BEFORE, line=LINES, after=EMPTY)
def test_nothing_but_the_last_line_that_is_not_empty_counts(
    before: str, line: str, after: str
) -> None:
    assert read_directive(f"{before}\n{line}{after}") == read_directive(line)


@given(
    line=LINES,
    mark=st.sampled_from(["", "*", "**", "_", "***"]),
    end=st.sampled_from(["", ".", "!", "...", "…", ";", "?!"]),
    inside=st.booleans(),
)
def test_emphasis_and_final_punctuation_are_set_aside(
    line: str, mark: str, end: str, inside: bool
) -> None:
    dressed = f"{mark}{line}{end}{mark}" if inside else f"{mark}{line}{mark}{end}"
    assert read_directive(dressed) == read_directive(line)


@given(text=st.text())
def test_any_text_can_be_read(text: str) -> None:
    found = read_directive(text)
    assert found == NOTHING or any(
        word in text for word in ("HANDOFF", TERMINATE_MARKER, COMPLETE_MARKER)
    )


def test_what_is_said_outright_stands_and_the_text_only_adds_its_marker() -> None:
    result = Result(outcome=HANDOFF, to="memory", text="HANDOFF: billing: go")
    assert apply_text_protocol(result) == result
    marked = Result(outcome=HANDOFF, to="memory", text="over\nTERMINATE_WORKFLOW")
    assert apply_text_protocol(marked).outcome is HANDOFF
    assert apply_text_protocol(marked).to == "memory"
    assert apply_text_protocol(marked).marker == TERMINATE_MARKER


def test_an_answer_that_is_only_text_becomes_the_move_that_its_last_line_names() -> None:
    moved = apply_text_protocol(Result(text="see above\nHANDOFF: billing: charged twice"))
    assert (moved.outcome, moved.to, moved.reason) == (HANDOFF, "billing", "charged twice")
    assert apply_text_protocol(Result(text="no idea")) == Result(text="no idea")


def test_whoever_has_done_its_part_hands_to_the_only_one_it_may_hand_to() -> None:
    done = Result(text="the summary\nWORKFLOW_COMPLETE")
    assert apply_text_protocol(done, "orchestrator").outcome is HANDOFF
    assert apply_text_protocol(done, "orchestrator").to == "orchestrator"
    assert apply_text_protocol(done, "orchestrator").marker == COMPLETE_MARKER
    assert apply_text_protocol(done).outcome is None

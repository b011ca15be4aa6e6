"""The run report (S11): from events alone, the same every time, and nobody's text can forge it."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from markdown_it import MarkdownIt
from tests.kernel import histories
from tests.kernel.driven_run import (
    ANA,
    DrivenRun,
    Evidence,
    Outcome,
    Usage,
    chain,
    files,
    green,
    node,
    red,
    team,
)

from handrail.guard import Guard
from handrail.kernel.definition.limits import (
    Constraints,
    Limits,
    StopRules,
    resolve_limits,
    scale_limits,
)
from handrail.kernel.run import commands as c
from handrail.kernel.run.events import RunEvent
from handrail.views.markdown import code_block, escape_line
from handrail.views.report import (
    WHY_CHARS_MAX,
    RunReport,
    build_report,
    limits_in_force,
    report_markdown,
    snitch_entry,
)

EVENTS = msgspec.json.Decoder(tuple[RunEvent, ...])
NAMES = sorted(histories.every())


def as_bytes(of: RunReport) -> bytes:
    return msgspec.json.encode(of, order="deterministic")


def decoded(events: object) -> tuple[RunEvent, ...]:
    return EVENTS.decode(msgspec.json.encode(events))


def reported(make: str) -> RunReport:
    return build_report(histories.every()[make])


@pytest.mark.requirement("S11")
@pytest.mark.parametrize("name", NAMES)
def test_a_report_recomputed_from_stored_events_is_the_same_byte_for_byte(name: str):
    events = histories.every()[name]
    for n in range(1, len(events) + 1):
        once, again = build_report(events[:n]), build_report(decoded(events[:n]))
        assert as_bytes(once) == as_bytes(again)
        assert report_markdown(once) == report_markdown(again)
        assert snitch_entry(once) == snitch_entry(again)


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)
moves = st.one_of(
    st.tuples(st.just("hand"), st.sampled_from("abc"), texts),
    st.tuples(st.just("ask"), texts, texts),
    st.tuples(st.just("fault"), texts, texts),
    st.tuples(st.just("check"), st.integers(0, 1), texts),
    st.tuples(st.just("files"), texts, texts),
    st.tuples(st.just("score"), st.floats(0, 1), texts),
    st.tuples(st.just("usage"), st.integers(0, 50), st.floats(0, 3)),
    st.tuples(st.just("pass"), st.integers(0, 100), texts),
    st.tuples(st.just("move"), st.sampled_from("abc"), texts),
)


def turn(what: str, first: Any, second: Any) -> dict[str, Any]:
    """The result that a move of the script stands for."""
    hand = {"outcome": Outcome.HANDOFF, "to": "b", "reason": "on"}
    results: dict[str, dict[str, Any]] = {
        "hand": {**hand, "to": first, "reason": second},
        "ask": {"outcome": Outcome.ASK, "question": first, "text": second},
        "fault": {"outcome": None, "text": first},
        "check": {**hand, "evidence": red(stderr=second) if first else green()},
        "files": {**hand, "to": "c", "evidence": files(f=first, g=second)},
        "score": {**hand, "to": "a", "evidence": Evidence(score=first, measured=True)},
    }
    return results.get(what) or {**hand, "usage": Usage(tokens=first, cost=second)}


def play(script: list[tuple[str, Any, Any]], **rules: object) -> DrivenRun:
    """A team of three that does what the script says, as far as it gets."""
    hands = {name: list("abc") for name in "abc"}
    d = DrivenRun(team(hands, terminator="a", stop_rules=rules), title="T", description="D")
    for what, first, second in script:
        if d.run.has_ended:
            break
        if d.run.pending_approvals:
            d.answer(f"about {second}")
        elif what == "pass":
            d.advance(first)
        elif what == "move":
            d.do(c.Move(by=ANA, step_id=first, reason=second))
        else:
            d.report(**turn(str(what), first, second))
    return d


@pytest.mark.requirement("S11")
@settings(max_examples=150, deadline=None)
@given(
    st.lists(moves, max_size=30),
    st.sampled_from([{}, {"max_tokens": 90}, {"max_cost": 4.5}, {"max_duration": 60}]),
)
def test_any_history_gives_the_same_report_before_and_after_storage(
    script: list[tuple[str, Any, Any]], rules: dict[str, object]
):
    d = play(script, **rules)
    once, again = build_report(d.events), build_report(decoded(d.events))
    assert as_bytes(once) == as_bytes(again)
    assert report_markdown(once) == report_markdown(again)


@pytest.mark.requirement("S11", "S1", "S5", "H2.5", "H7.1", "H7.3", "H7.4", "H7.5")
def test_a_looping_team_has_this_report():
    assert report_markdown(reported("looping")) == snapshot("""\
# Run r1: Fix the build

Stuck: planner and researcher handed over the same way 3 times in a row without progress (limit 3).

| what | value |
| --- | --- |
| status | aborted_stuck |
| stop rule | repeated_pattern |
| bead | b1 |
| definition | t, version 1 (team) |
| profile | strict |
| first agent | planner |
| final agent | researcher |
| phase | terminated |
| started | 2026-01-01T12:00:00+00:00 |
| ended | 2026-01-01T12:00:15+00:00 |
| total time | 15 s, of it running 15 s |
| steps | 6 (6 dispatches) |
| handoffs | 6 |
| transitions | 7 |
| questions | 0 |
| short of a stop | 1 nudge |
| usage | 30 tokens, cost 1.5 |
| last progress | none |

## Why it stopped

- rule: repeated_pattern (planner_researcher_loop)
- reason: the same handoffs 3 times in a row without progress: planner -> researcher, researcher -> planner
- agent: researcher
- limit: repeat_limit 3, seen 3, profile strict
- pattern: planner -> researcher, then researcher -> planner
- alike: handoffs 1, 3 and 5: planner -> researcher
- alike: handoffs 2, 4 and 6: researcher -> planner
- what would have let it go on: progress in between, another way, or a higher repeat_limit
- to allow more: Guard(StopRules(repeat_limit=5)) in a program under guard, stop_rules: {repeat_limit: 5} in a definition
- best measured result: step 1 of planner: failures 1
- last command: pytest (exit code 1, met 1×): pytest \\| AssertionError: boom \\| #f4e2f3543ce6

Evidence:

- handoff 1: planner → researcher: need more facts
- handoff 2: researcher → planner: here they are
- handoff 3: planner → researcher: need more facts
- handoff 4: researcher → planner: here they are
- handoff 5: planner → researcher: need more facts
- handoff 6: researcher → planner: here they are

## Loop counters

| edge | since progress | in all | limit | last reasons |
| --- | --- | --- | --- | --- |
| planner_to_researcher | 3 | 3 | 8 | need more facts; need more facts; need more facts |
| researcher_to_planner | 3 | 3 | 8 | here they are; here they are; here they are |

## Handoffs

| number | from | to | reason | task | at |
| --- | --- | --- | --- | --- | --- |
| 1 | planner | researcher | need more facts |  | 2026-01-01T12:00:05+00:00 |
| 2 | researcher | planner | here they are |  | 2026-01-01T12:00:05+00:00 |
| 3 | planner | researcher | need more facts |  | 2026-01-01T12:00:10+00:00 |
| 4 | researcher | planner | here they are |  | 2026-01-01T12:00:10+00:00 |
| 5 | planner | researcher | need more facts |  | 2026-01-01T12:00:15+00:00 |
| 6 | researcher | planner | here they are |  | 2026-01-01T12:00:15+00:00 |

## Attempts

| place | dispatches | retries |
| --- | --- | --- |
| planner | 3 | 0 |
| researcher | 3 | 0 |

## Steps

| step | place | attempt | agent | outcome | reason | ended |
| --- | --- | --- | --- | --- | --- | --- |
| 1 | planner | 1 | planner-1 | handoff | need more facts | 2026-01-01T12:00:05+00:00 |
| 2 | researcher | 1 | researcher-1 | handoff | here they are | 2026-01-01T12:00:05+00:00 |
| 3 | planner | 1 | planner-1 | handoff | need more facts | 2026-01-01T12:00:10+00:00 |
| 4 | researcher | 1 | researcher-1 | handoff | here they are | 2026-01-01T12:00:10+00:00 |
| 5 | planner | 1 | planner-1 | handoff | need more facts | 2026-01-01T12:00:15+00:00 |
| 6 | researcher | 1 | researcher-1 | handoff | here they are | 2026-01-01T12:00:15+00:00 |

## Transitions

| from | to | outcome | reason | by | at |
| --- | --- | --- | --- | --- | --- |
|  | planner | started |  |  | 2026-01-01T12:00:00+00:00 |
| planner | researcher | handoff | need more facts | planner | 2026-01-01T12:00:05+00:00 |
| researcher | planner | handoff | here they are | researcher | 2026-01-01T12:00:05+00:00 |
| planner | researcher | handoff | need more facts | planner | 2026-01-01T12:00:10+00:00 |
| researcher | planner | handoff | here they are | researcher | 2026-01-01T12:00:10+00:00 |
| planner | researcher | handoff | need more facts | planner | 2026-01-01T12:00:15+00:00 |
| researcher | planner | handoff | here they are | researcher | 2026-01-01T12:00:15+00:00 |

## Warnings

| code | message | step | at |
| --- | --- | --- | --- |
| same_target_twice | 'planner' hands to 'researcher' twice in a row | 3 | 2026-01-01T12:00:10+00:00 |
| nudged | repeated_pattern is near: 2 of 3 | 4 | 2026-01-01T12:00:10+00:00 |
| same_target_twice | 'planner' hands to 'researcher' twice in a row | 5 | 2026-01-01T12:00:15+00:00 |

## Limits in force

| limit | value |
| --- | --- |
| max_duration | 600 |
| max_edge | 8 |
| max_handoffs | 20 |
| max_steps | 100 |
| no_change_limit | 3 |
| oscillation_limit | 3 |
| pattern_period_max | 64 |
| protocol_error_limit | 3 |
| repeat_limit | 3 |
| research_gain | 0.05 |
| research_good | 0.8 |
| research_limit | 3 |
| same_error_limit | 3 |
""")  # noqa: E501


@pytest.mark.requirement("S12")
def test_an_aborted_run_has_this_entry_for_the_snitch():
    assert snitch_entry(reported("looping")) == snapshot("""\
## aborted_stuck: repeated_pattern in run r1

- run: r1
- bead: b1: Fix the build
- definition: t, version 1
- at: 2026-01-01T12:00:15+00:00
- why: Stuck: planner and researcher handed over the same way 3 times in a row without progress (limit 3).
- loop: planner -> researcher, then researcher -> planner
- last reason: researcher → planner: here they are
- last reason of planner: planner → researcher: need more facts
- last command: pytest (exit code 1, met 1×): pytest \\| AssertionError: boom \\| #f4e2f3543ce6
- evidence: handoff 1, handoff 2, handoff 3, handoff 4, handoff 5, handoff 6
- what would have let it go on: progress in between, another way, or a higher repeat_limit
""")  # noqa: E501


@pytest.mark.requirement("R2.1", "R2.4", "S11")
def test_a_reviewed_run_has_this_report():
    assert report_markdown(reported("approved")) == snapshot("""\
# Run r1: Pay invoice 7

Done: ola approved the result.

| what | value |
| --- | --- |
| status | done_success |
| stop rule | completed |
| bead | b1 |
| definition | t, version 1 (team) |
| profile | strict |
| first agent | planner |
| final agent | audit |
| phase | terminated |
| started | 2026-01-01T12:00:00+00:00 |
| ended | 2026-01-01T12:01:00+00:00 |
| total time | 60 s, of it running 0 s |
| steps | 4 (4 dispatches) |
| handoffs | 4 |
| transitions | 6 |
| questions | 3 |
| usage | 0 tokens, cost 0 |
| last progress | none |

## Why it stopped

- rule: completed
- reason: ola approved the result
- agent: audit

## Loop counters

| edge | since progress | in all | limit | last reasons |
| --- | --- | --- | --- | --- |
| planner_to_invoice | 0 | 1 | 8 | it is an invoice |
| invoice_to_review | 0 | 1 | 8 | paid 10 |
| planner_to_audit | 1 | 1 | 8 | an audit then |
| audit_to_review | 1 | 1 | 8 | audited 20 |

## Handoffs

| number | from | to | reason | task | at |
| --- | --- | --- | --- | --- | --- |
| 1 | planner | invoice | it is an invoice |  | 2026-01-01T12:00:00+00:00 |
| 2 | invoice | review | paid 10 |  | 2026-01-01T12:00:00+00:00 |
| 3 | planner | audit | an audit then |  | 2026-01-01T12:01:00+00:00 |
| 4 | audit | review | audited 20 |  | 2026-01-01T12:01:00+00:00 |

## Rounds of review

### Round 1

- decision: revise
- by: ola
- at: 2026-01-01T12:01:00+00:00

Task:

```text
Pay invoice 7

by Friday
```

Result of invoice:

```text
10 EUR
paid
```

Answer:

```text
pay 20 instead
```

### Round 2

- decision: approve
- by: ola
- at: 2026-01-01T12:01:00+00:00

Task:

```text
pay 20 instead
```

Result of audit:

```text
audited 20
```

Answer:

```text
OK
```

## Attempts

| place | dispatches | retries |
| --- | --- | --- |
| audit | 1 | 0 |
| invoice | 1 | 0 |
| planner | 2 | 0 |

## Steps

| step | place | attempt | agent | outcome | reason | ended |
| --- | --- | --- | --- | --- | --- | --- |
| 1 | planner | 1 | planner-1 | handoff | it is an invoice | 2026-01-01T12:00:00+00:00 |
| 2 | invoice | 1 | invoice-1 | handoff | paid 10 | 2026-01-01T12:00:00+00:00 |
| 3 | planner | 1 | planner-1 | handoff | an audit then | 2026-01-01T12:01:00+00:00 |
| 4 | audit | 1 | audit-1 | terminate | audited 20 | 2026-01-01T12:01:00+00:00 |

## Transitions

| from | to | outcome | reason | by | at |
| --- | --- | --- | --- | --- | --- |
|  | planner | started |  |  | 2026-01-01T12:00:00+00:00 |
| planner | invoice | handoff | it is an invoice | planner | 2026-01-01T12:00:00+00:00 |
| invoice | review | handoff | paid 10 | invoice | 2026-01-01T12:00:00+00:00 |
| review | planner | revise | pay 20 instead | ola | 2026-01-01T12:01:00+00:00 |
| planner | audit | handoff | an audit then | planner | 2026-01-01T12:01:00+00:00 |
| audit | review | handoff | audited 20 | audit | 2026-01-01T12:01:00+00:00 |

## What people did

| act | by | reason | place | at |
| --- | --- | --- | --- | --- |
| revise | ola | pay 20 instead | review | 2026-01-01T12:01:00+00:00 |
| patch | ola | urgent |  | 2026-01-01T12:01:00+00:00 |
| approve | ola | OK | review | 2026-01-01T12:01:00+00:00 |

## Limits in force

| limit | value |
| --- | --- |
| max_duration | 600 |
| max_edge | 8 |
| max_handoffs | 20 |
| max_steps | 100 |
| no_change_limit | 3 |
| oscillation_limit | 3 |
| pattern_period_max | 64 |
| protocol_error_limit | 3 |
| repeat_limit | 3 |
| research_gain | 0.05 |
| research_good | 0.8 |
| research_limit | 3 |
| same_error_limit | 3 |
""")


@pytest.mark.requirement("S11")
def test_the_report_has_counters_totals_times_and_usage():
    of = reported("looping")
    assert (of.first_agent, of.bead_id, of.final_agent) == ("planner", "b1", "researcher")
    assert (of.totals.steps, of.totals.handoffs, of.totals.dispatches) == (6, 6, 6)
    assert (of.totals.transitions, of.totals.questions, of.totals.stretches) == (7, 0, 1)
    assert (of.duration, of.running) == (15.0, 15.0)
    assert (of.usage.tokens, of.usage.cost) == (30, 1.5)
    assert of.loop_counters["planner_to_researcher"].reasons == ("need more facts",) * 3
    assert of.profile == "strict"
    assert (of.attempts, of.retries) == ({"planner": 3, "researcher": 3}, {})


@pytest.mark.requirement("S8", "K28", "K30", "K31")
def test_a_report_tells_what_came_short_of_a_stop():
    redirected = reported("redirected")
    assert [one.to for one in redirected.redirects] == ["coder"]
    assert redirected.totals.redirects == 1
    assert "| 5 | planner | researcher | coder | max_edge |" in report_markdown(redirected)
    assert reported("looping").totals.nudges == 1
    assert "| short of a stop | 1 nudge |" in report_markdown(reported("looping"))
    assert reported("polled").totals.waits > 1
    assert f"{reported('polled').totals.waits} waits |" in report_markdown(reported("polled"))
    assert "short of a stop" not in report_markdown(reported("reviewed"))


@pytest.mark.requirement("S1", "H2.5")
@pytest.mark.parametrize("name", NAMES)
def test_a_report_has_a_terminal_status_and_a_stop_exactly_if_the_run_has_ended(name: str):
    of = reported(name)
    assert (of.terminal_status is not None) == (of.stop is not None) == (of.status == "ended")
    assert (of.ended_at is not None) == (of.status == "ended")
    assert f"| status | {escape_line(of.terminal_status or of.status)} |" in report_markdown(of)


WHY = {
    "looping": "Stuck: planner and researcher handed over the same way 3 times in a row without "
    "progress (limit 3).",
    "half_done": "Partly done: the goal is met, but the same failure 3 times without progress: "
    "pytest | AssertionError: boom | #f4e2f3543ce6 (limit 3).",
    "terminated": "Partly done: all green. Left to do: docs.",
    "approved": "Done: ola approved the result.",
    "dear_question": "Constraint: the budget is spent: 6 of 5 tokens (limit 5).",
    "rejected": "Closed by a person: too dear.",
    "reviewed": "Waiting for a person: Approve the result of audit, or say what to change.",
    "paused": "Paused by ana: wait for me.",
    "started": "Running: the next result comes from planner.",
    "guarded_open": "Running.",
    "guarded": "Done: the guarded block ended.",
}


@pytest.mark.requirement("S11")
@pytest.mark.parametrize("name", WHY)
def test_the_why_is_one_or_two_plain_sentences(name: str):
    assert reported(name).why == WHY[name]


def test_a_long_reason_is_cut_in_the_why_and_whole_in_the_stop():
    d = DrivenRun(histories.CODING)
    reason = "because " * 1_000
    d.report(outcome=Outcome.TERMINATE, reason=reason)
    of = build_report(d.events)
    assert len(of.why) < WHY_CHARS_MAX + 20
    assert of.stop is not None
    assert of.stop.reason == reason


def looped(*agents: str) -> RunReport:
    guard = Guard(StopRules(max_handoffs=None, max_edge=None))
    with guard.run("r", raises=False) as run:
        for _ in range(3):
            for i, name in enumerate(agents):
                run.handoff(name, agents[(i + 1) % len(agents)])
    return run.report()


@pytest.mark.requirement("H7.4")
def test_a_loop_is_told_with_the_agents_that_made_it():
    assert looped("a").why == (
        "Stuck: a handed over to itself 3 times in a row without progress (limit 3)."
    )
    assert looped(*"abc").why.startswith("Stuck: a, b and c handed over the same way 3 times")
    assert looped(*"abcdef").why.startswith("Stuck: a, b, c and 3 others handed over the same way")


def test_agents_whose_names_look_like_edges_are_told_apart_in_the_why():
    told = looped("go_to_a", "b").why
    assert told.startswith("Stuck: go_to_a and b handed over the same way 3 times")


@pytest.mark.requirement("S11", "S13")
def test_the_profile_is_the_one_the_definition_names():
    assert resolve_limits(StopRules()).profile == "strict"
    assert resolve_limits(StopRules(profile="yolo"), "workflow").profile == "yolo"
    assert scale_limits(resolve_limits(StopRules(max_handoffs=100)), "large").profile == "strict"


def test_only_limits_that_are_on_are_in_force():
    of = Limits(
        max_steps=None,
        max_cost=2.0,
        constraints=Constraints(paths=("*.env",)),
        budgets=("support", "team"),
    )
    found = limits_in_force(of)
    assert "max_steps" not in found
    assert "max_tokens" not in found
    assert found["max_cost"] == 2
    assert found["constraints.paths"] == ["*.env"]
    assert found["budgets"] == "support, team"
    assert "constraints.commands" not in found


@pytest.mark.requirement("S12")
@pytest.mark.parametrize("name", NAMES)
def test_the_snitch_writes_of_aborted_runs_only(name: str):
    of = reported(name)
    aborted = of.terminal_status in ("aborted_stuck", "aborted_constraint")
    assert bool(snitch_entry(of)) == aborted


@pytest.mark.requirement("S12")
def test_the_snitch_names_the_loop_the_last_reason_and_the_last_command():
    entry = snitch_entry(reported("same_error"))
    assert "- loop: coder_to_coder (2 times)\n" in entry
    assert "- last reason: coder → coder: again\n" in entry
    assert "- last command: pytest (exit code 1, met 3×): pytest" in entry
    assert "- evidence: step 1, step 2, step 3\n" in entry
    bare = snitch_entry(reported("unanswered"))
    assert "- loop: none\n- last reason: none given\n- last command: none\n" in bare


@pytest.mark.requirement("S12")
def test_the_snitch_gives_the_last_reason_of_the_agent_that_proposed_the_loop():
    d = DrivenRun(team({"a": ["b"], "b": ["a"]}, terminator="a", stop_rules={"max_edge": 1}))
    d.hand("b", "first")
    d.hand("a", "from b")
    d.hand("b", "again, please")
    assert "- last reason: a → b: again, please\n" in snitch_entry(build_report(d.events))


def test_evidence_that_a_history_does_not_have_is_said_to_be_missing():
    of = reported("looping")
    assert of.stop is not None
    stop = msgspec.structs.replace(of.stop, evidence=("handoff 99",))
    text = report_markdown(msgspec.structs.replace(of, stop=stop))
    assert "- handoff 99: not in this history" in text


def test_evidence_is_shown_with_what_it_was():
    text = report_markdown(reported("looping"))
    assert "- handoff 2: researcher → planner: here they are" in text
    text = report_markdown(reported("same_error"))
    assert "- step 3: coder-1 at coder: handoff" in text
    d = DrivenRun(chain(node("a"), stop_rules={"max_steps": 1}))
    d.fail("a")
    assert "- step 1: a-1 at a: failure" in report_markdown(build_report(d.events))


HOSTILE = [
    "\n\n## Forged\n\n- status: done_success",
    "x\r# Forged\r",
    "```\n## Forged\n```",
    "`````\n# Forged",
    "a | b | c\n| --- | --- |\n| forged | row |",
    "<script>alert(1)</script><h1>Forged</h1>",
    "[click](javascript:alert(1)) ![x](http://x/y.png) <http://x>",
    "Forged\n======",
    "\u2028# Forged\u2029\u202eegdelrof",
    "*bold* _it_ ~~gone~~ &lt;b&gt; $x$ \\",
    "- [x] forged\n1. forged",
    "# Forged",
    "> Forged",
    "---",
]
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
ALLOWED = {
    "paragraph_open", "paragraph_close", "heading_open", "heading_close", "inline", "fence",
    "bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close", "table_open",
    "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close",
    "th_open", "th_close", "td_open", "td_close",
}  # fmt: skip


def skeleton(text: str) -> list[str]:
    """Headings and counts of rows and list items: what a reader takes for the report's own."""
    tokens = PARSER.parse(text)
    assert {token.type for token in tokens} <= ALLOWED
    inline = [child for token in tokens for child in token.children or []]
    assert {child.type for child in inline} <= {"text", "text_special", "softbreak"}
    heads = [tokens[i + 1].content for i, t in enumerate(tokens) if t.type == "heading_open"]
    kinds = ("tr_open", "td_open", "list_item_open", "fence")
    return [*heads[1:], *(f"{k} {sum(t.type == k for t in tokens)}" for k in kinds)]


def tale(text: str) -> list[RunEvent]:
    """A run in which everything that anybody may write is this text."""
    d = DrivenRun(histories.REVIEWED, title=text, description=text, run_id=text, bead_id=text)
    d.hand(text, text)
    d.report(outcome=None, text=text)
    d.hand("invoice", text, evidence=red(command=text or "x", stderr=text))
    d.hand("review", text, text=text)
    d.answer(text or "more", decision="revise")
    d.do(c.Pause(by=ANA, reason=text or "why"))
    d.do(c.Resume(by=ANA, reason=text or "why"))
    d.hand("invoice", text)
    d.hand("review", text, text=text)
    d.do(c.Close(by=ANA, reason=text or "why"))
    return list(d.events)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_forges_a_part_of_the_report(text: str):
    assert skeleton(report_markdown(build_report(tale(text)))) == skeleton(
        report_markdown(build_report(tale("harmless")))
    )


@pytest.mark.no_cover
@settings(max_examples=60, deadline=None)
@given(
    st.text(
        alphabet=st.one_of(
            st.sampled_from("#`|\n\r<>[]()*_~-=+.!&;$\\ \t1aA"),
            st.characters(codec="utf-8", exclude_characters="\0"),
        ),
        min_size=1,
        max_size=40,
    ).filter(lambda text: text.strip())
)
def test_no_random_text_forges_a_part_of_the_report(text: str):
    assert skeleton(report_markdown(build_report(tale(text)))) == skeleton(
        report_markdown(build_report(tale("harmless")))
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_forges_an_entry_of_the_snitch(text: str):
    def entry(said: str) -> str:
        rules = {"repeat_limit": None, "max_edge": None}
        document = team({"a": ["a"]}, terminator="a", stop_rules=rules)
        d = DrivenRun(document, title=said, run_id=said, bead_id=said)
        for _ in range(3):
            d.hand("a", said, evidence=red(command="x", stderr="boom"))
        return snitch_entry(build_report(d.events))

    assert skeleton(entry(text)) == skeleton(entry("harmless"))


def test_guarded_agents_with_hostile_names_forge_nothing():
    def told(name: str) -> str:
        with Guard(StopRules()).run(name, raises=False) as run:
            for _ in range(3):
                run.handoff(name, name, reason=name)
        return report_markdown(run.report())

    assert all(skeleton(told(text)) == skeleton(told("harmless")) for text in HOSTILE)


@given(st.text(alphabet=st.sampled_from("`~\n\r\x0ba"), max_size=60))
def test_a_fence_is_never_closed_by_what_it_holds(text: str):
    tokens = PARSER.parse(f"{code_block(text)}\n\n# after\n")
    assert [token.type for token in tokens if token.level == 0][:2] == ["fence", "heading_open"]


def test_what_stands_in_a_fence_is_the_text_itself():
    text = "def f():\n    return '```'\n\n| a |"
    (token,) = PARSER.parse(code_block(text))
    assert token.content == f"{text}\n"


def test_hidden_characters_are_spelt_out():
    assert escape_line("a\u202eb\x00c") == "a{U+202E}b{U+0000}c"
    assert code_block("a\u202eb").splitlines()[1] == "a{U+202E}b"
    assert escape_line("one\ntwo") == "one ⏎ two"
    assert escape_line("planner_to_coder, 0.05, -5 #7") == "planner_to_coder, 0.05, -5 #7"

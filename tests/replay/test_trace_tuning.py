"""Limits proposed from runs that others recorded: never on runs that were looked at alone."""

from msgspec.structs import replace

from handrail.kernel.definition.limits import OBSERVED, STRICT
from handrail.replay.trace_tuning import TraceTuningReport, tune_traces
from handrail.replay.traces.model import Trace, TraceStep


def run(number: int, steps: int, *, success: bool | None) -> Trace:
    """A run that says something new at each of its steps."""
    said_texts = tuple(TraceStep(agent="a", text=f"thought {n}") for n in range(steps))
    return Trace(dataset="mine", id=f"{success} {number}", success=success, steps=said_texts)


def history(good_steps: int, failed_steps: int, count: int = 15) -> list[Trace]:
    good = [run(n, good_steps, success=True) for n in range(count)]
    return [*good, *(run(n, failed_steps, success=False) for n in range(count))]


def tune(traces: list[Trace]) -> TraceTuningReport:
    return tune_traces(traces, OBSERVED, "B")


def test_a_tighter_limit_is_proposed_with_a_margin() -> None:
    report = tune(history(10, 40))
    assert report.rules == {"max_steps": 12}, "10 would spare every good run, too"
    assert (report.now.steps_saved, report.proposed.steps_saved) == (0, 15 * 28)
    assert report.unseen == report.proposed
    assert (report.good, report.failed, report.steps_failed) == (15, 15, 600)
    assert report.summary == (
        "15 good and 15 failed runs: on runs that it had not seen the choice cuts 0 good runs "
        "(now 0) and saves 420 steps (now 0)"
    )


def test_several_limits_are_proposed_together() -> None:
    handoffs = [
        Trace(
            dataset="mine",
            id=f"pair {n}",
            success=False,
            steps=tuple(TraceStep(agent="ab"[k % 2], text=f"thought {k}") for k in range(12)),
        )
        for n in range(9)
    ]
    traces = [*history(10, 40), *handoffs]
    report = tune_traces(traces, replace(STRICT, max_edge=None, repeat_limit=None), "B")
    assert set(report.rules) == {"max_handoffs", "max_steps"}
    assert [proposal.limit for proposal in report.proposals] == ["max_handoffs", "max_steps"]
    assert all(proposal.figures.cut == 0 for proposal in report.proposals)
    assert all(proposal.proposed < proposal.now for proposal in report.proposals)


def test_nothing_is_proposed_where_no_tighter_limit_leaves_a_margin() -> None:
    report = tune(history(10, 10))
    assert (report.rules, report.proposals) == ({}, ())
    assert report.summary.startswith("nothing is proposed: 15 good and 15 failed runs; no tighter")


def test_nothing_is_proposed_from_few_runs_or_without_a_failed_one() -> None:
    for traces in (history(5, 20, count=9), history(5, 20)[:15]):
        report = tune(traces)
        assert report.rules == {}
        assert "of which nothing can be learned" in report.summary


def test_runs_that_nobody_judged_are_left_out() -> None:
    report = tune([*history(10, 40), *(run(n, 40, success=None) for n in range(9))])
    assert (report.good, report.failed, report.rules) == (15, 15, {"max_steps": 12})


def test_what_cuts_good_runs_that_it_has_not_seen_is_not_proposed() -> None:
    short = [run(n, 5, success=True) for n in range(12)]
    lone = run(99, 18, success=True)  # chosen without it, a limit of 8 cuts it
    report = tune([*short, lone, *(run(n, 40, success=False) for n in range(15))])
    assert report.unseen.cut == 1
    assert report.rules == {}
    assert "the choice cuts 1 good runs (now 0)" in report.summary
    assert report.proposed == report.now


def test_limits_in_force_that_stop_runs_already_are_counted_as_they_are() -> None:
    same = tuple(TraceStep(agent="a", text="the same") for _ in range(9))
    looping = [Trace(dataset="mine", id=f"loop {n}", success=False, steps=same) for n in range(9)]
    report = tune([*history(10, 40), *looping])
    assert (report.now.caught, report.now.steps_saved) == (9, 9 * 6)
    assert report.rules == {"max_steps": 12}

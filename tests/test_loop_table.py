"""The Loop Table's pieces: detectors on runs made by hand, figures, folds, the command."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.loop_table import __main__ as command
from benchmarks.loop_table import folds
from benchmarks.loop_table.detectors import (
    DETECTORS,
    CrewAI,
    Detector,
    GeminiCLI,
    OpenHands,
    SameCall,
    StepCap,
    StrandsSwarm,
)
from benchmarks.loop_table.figures import (
    Figures,
    Share,
    Stop,
    count,
    dominating,
    group_of,
    measure,
    run_detector,
    saved_interval,
    wilson,
)
from benchmarks.loop_table.report import page

from handrail.replay.traces.model import Trace, TraceCall, TraceStep


def called(
    arguments: str | None = "ls",
    result: str | None = "a.py",
    *,
    tool: str = "bash",
    failed: bool | None = None,
    **fields: Any,
) -> TraceStep:
    call = TraceCall(tool=tool, arguments=arguments, result=result, failed=failed)
    return TraceStep(**{"agent": "coder", "calls": (call,), **fields})


def said(text: str = "hm", agent: str = "coder", **fields: Any) -> TraceStep:
    return TraceStep(agent=agent, text=text, **fields)


def stopped_at(detector: Detector, *steps: TraceStep) -> int | None:
    """The number of the step after which the detector stops the run."""
    return next((number for number, step in enumerate(steps, 1) if detector.step(step)), None)


def trace(*steps: TraceStep, success: bool | None = None, id_: str = "1") -> Trace:
    return Trace(dataset="swe-x", id=id_, success=success, steps=steps)


def test_every_detector_lets_a_run_go_that_does_something_new_each_time():
    steps = [called(f"cat {n}", f"text {n}", text=f"I read file {n}.") for n in range(24)]
    for name, make in DETECTORS.items():
        assert stopped_at(make(), *steps) is None, name


def test_every_detector_is_new_for_each_run():
    looping = trace(*[called()] * 30, success=False)
    for make in DETECTORS.values():
        assert run_detector(make, looping) == run_detector(make, looping)


def test_a_cap_stops_after_so_many_steps():
    assert stopped_at(StepCap(25), *[said(str(n)) for n in range(30)]) == 25


@pytest.mark.parametrize(
    ("make", "at"), [(SameCall, 3), (CrewAI, 2), (GeminiCLI, 5), (OpenHands, 4)]
)
def test_the_same_call_with_the_same_result_is_stopped(make: Callable[[], Detector], at: int):
    assert stopped_at(make(), *[called()] * 9) == at
    other = [called(f"{n % 2}", str(n)) for n in range(9)]
    assert stopped_at(make(), *other) is None


@pytest.mark.parametrize("make", [SameCall, CrewAI, GeminiCLI, OpenHands])
def test_unknown_arguments_are_like_no_others(make: Callable[[], Detector]):
    assert stopped_at(make(), *[called(None)] * 9) is None


def test_arguments_are_compared_as_json():
    steps = [called('{"a": 1, "b": 2}'), called('{"b":2,"a":1}')]
    assert stopped_at(CrewAI(), *steps) == 2


def test_crewai_compares_with_the_last_call_of_the_same_agent():
    steps = [called(), called("other", agent="tester"), called()]
    assert stopped_at(CrewAI(), *steps) == 3


def test_openhands_wants_the_same_result_or_errors():
    assert stopped_at(OpenHands(), *[called(result=str(n)) for n in range(9)]) is None
    assert stopped_at(OpenHands(), *[called(result=None)] * 9) is None
    failing = OpenHands()
    assert stopped_at(failing, *[called(result=str(n), failed=True) for n in range(9)]) == 3
    assert failing.rule == "action and error"


def test_openhands_stops_two_calls_that_alternate():
    detector = OpenHands()
    steps = [called(str(n % 2), str(n % 2)) for n in range(9)]
    assert stopped_at(detector, *steps) == 6
    assert detector.rule == "alternating"


def test_openhands_stops_a_monologue_that_nobody_interrupts():
    different = [said(str(n)) for n in range(9)]
    assert stopped_at(OpenHands(), *different) == 3
    assert stopped_at(OpenHands(same_text=True), *different) is None
    assert stopped_at(OpenHands(same_text=True), *[said()] * 9) == 3
    pairs = [said(agent="ab"[n % 2]) for n in range(9)]
    assert stopped_at(OpenHands(), *pairs) is None
    answered = [said(user_text="and then?")] * 9
    assert stopped_at(OpenHands(), *answered) is None


def test_gemini_stops_chanting_in_one_answer_and_over_several():
    chant = "I will now look at the file again and again, as I did before. "
    detector = GeminiCLI()
    assert stopped_at(detector, said(chant * 12)) == 1
    assert detector.rule == "chanting"
    assert stopped_at(GeminiCLI(), *[said(chant)] * 12) == 10
    assert stopped_at(GeminiCLI(), *[said(chant, user_text="go on")] * 12) is None
    assert stopped_at(GeminiCLI(), *[called(str(n), text=chant) for n in range(12)]) is None


def test_gemini_ignores_code_dividers_and_lists():
    row = "    values.append(compute_the_next_value(of_this, and_that))\n"
    assert stopped_at(GeminiCLI(), said(f"```python\n{row * 20}```\n")) is None
    assert stopped_at(GeminiCLI(), said("-" * 200)) is None
    assert stopped_at(GeminiCLI(), said(f"* {row}" * 20)) is None
    assert stopped_at(GeminiCLI(), said(row * 20)) == 1


def test_gemini_takes_a_common_beginning_for_no_chant():
    items = [
        f"The next file that has to be looked at for this is number {n} {n}; " for n in range(99)
    ]
    assert stopped_at(GeminiCLI(), said("".join(items))) is None


def test_strands_stops_two_agents_that_hand_to_each_other():
    pair = [said(agent="ab"[n % 2]) for n in range(30)]
    assert stopped_at(StrandsSwarm(), *pair) == 8
    three = [said(agent="abc"[n % 3]) for n in range(30)]
    assert stopped_at(StrandsSwarm(), *three) is None
    assert stopped_at(StrandsSwarm(limits=True), *three) == 20
    assert stopped_at(StrandsSwarm(limits=True), *[said()] * 30) is None


def test_a_stop_counts_only_if_another_step_would_have_followed():
    assert not run_detector(SameCall, trace(*[called()] * 3)).stopped
    stop = run_detector(SameCall, trace(*[called()] * 5, success=False))
    assert stop == Stop(success=False, steps=5, at=3, rule="same call")
    assert (stop.stopped, stop.saved) == (True, 2)


def test_figures_count_by_how_runs_ended_and_by_rule():
    stops = [
        Stop(success=True, steps=5, at=5, nudged=True),
        Stop(success=True, steps=5, at=3, rule="x"),
        Stop(success=False, steps=10, at=4, rule="x"),
        Stop(success=False, steps=10, at=10),
        Stop(success=None, steps=7, at=2, rule="y"),
    ]
    figures = count(stops)
    assert (figures.good, figures.cut, figures.nudged) == (2, 1, 1)
    assert (figures.failed, figures.caught) == (2, 1)
    assert (figures.steps_failed, figures.steps_saved, figures.saved_share.value) == (20, 6, 0.3)
    assert (figures.other, figures.other_stopped) == (1, 1)
    assert (figures.rules["x"].cut, figures.rules["x"].steps_saved) == (1, 6)
    assert figures.rules["y"].other_stopped == 1


def test_wilson_gives_the_intervals_of_the_textbook():
    share = wilson(1, 20)
    assert (round(share.low, 4), round(share.high, 4)) == (0.0089, 0.2361)
    none, every = wilson(0, 20), wilson(20, 20)
    assert (none.low, round(none.high, 4)) == (0.0, 0.1611)
    assert (round(every.low, 4), every.high) == (0.8389, 1.0)
    assert wilson(0, 0) == Share(value=0.0, low=0.0, high=1.0)


def test_saved_steps_are_as_sure_as_there_are_runs_and_not_steps():
    assert saved_interval(30, [10] * 6) == wilson(3, 6)
    one_long = saved_interval(30, [55, 1, 1, 1, 1, 1])
    assert one_long.high - one_long.low > wilson(3, 6).high - wilson(3, 6).low
    assert saved_interval(0, []) == wilson(0, 0)


def figures_of(cut: int, saved: int) -> Figures:
    good = [Stop(success=True, steps=2, at=1 if n < cut else 2) for n in range(100)]
    failed = [Stop(success=False, steps=2, at=1 if n < saved else 2) for n in range(100)]
    return count([*good, *failed])


def test_a_detector_is_beaten_by_what_is_clearly_better_in_both():
    figures = {
        "ours": figures_of(10, 20),
        "a little better": figures_of(9, 22),
        "cuts as many": figures_of(10, 90),
        "saves as much": figures_of(0, 20),
        "better": figures_of(0, 90),
    }
    assert dominating(figures, "ours") == ["better"]
    assert dominating(figures, "ours", clearly=False) == ["a little better", "better"]
    assert dominating(figures, "better") == []


def test_datasets_are_grouped_by_the_first_part_of_their_name():
    assert [group_of(name) for name in ("tau-airline", "intercode-sql", "mine-2")] == [
        "tool agents",
        "InterCode",
        "mine-2",
    ]
    traces = [trace(success=True), Trace(dataset="mine", id="1", success=None, steps=())]
    assert list(measure({"cap": lambda: StepCap(1)}, reversed(traces))) == ["tool agents", "mine"]


def test_a_setting_is_measured_on_runs_that_it_was_not_chosen_on():
    good = [trace(*[called()] * 4, success=True, id_=f"good {n}") for n in range(40)]
    failed = [trace(*[called()] * 10, success=False, id_=f"failed {n}") for n in range(40)]
    assert {folds.fold_of(run) for run in [*good, *failed]} == set(range(folds.FOLDS))
    result = folds.cross_validated(SameCall, {"times": [2, 3, 4, 6]}, [*good, *failed])
    assert result.chosen == [{"times": 4}] * folds.FOLDS
    assert (result.figures.good, result.figures.cut) == (40, 0)
    assert (result.figures.caught, result.figures.steps_saved) == (40, 240)


def test_the_choice_may_be_different_in_each_fold():
    runs = [trace(*[called()] * 4, success=True, id_=f"{n}") for n in range(40)]
    (lone,) = [trace(*[called()] * 9, success=True, id_="lone")]
    strict = folds.cross_validated(
        SameCall, {"times": [5, 3]}, [*runs, lone], preference=lambda figures: -figures.cut
    )
    assert strict.chosen == [{"times": 5}] * folds.FOLDS
    assert strict.figures.cut == 1


def test_all_settings_of_a_grid_are_tried():
    assert folds.settings({"a": [1, 2], "b": [3]}) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]


def test_cutting_too_many_good_runs_is_preferred_to_nothing():
    assert folds.prefer_saving(figures_of(1, 0)) > folds.prefer_saving(figures_of(2, 100))
    assert folds.prefer_saving(figures_of(1, 9)) > folds.prefer_saving(figures_of(0, 8))


def write_runs(folder: Path) -> None:
    say = {"k": "say", "agent": "a", "text": ""}
    tool = {"k": "tool", "tool": "bash", "args": "ls", "result": "", "rc": 1}
    surf = {"k": "say", "agent": "w", "text": "", "as_tool": ["click", "1", "same", 0]}
    runs = [
        {"dataset": "swe-x", "id": "1", "success": False, "events": [say, tool] * 9},
        {"dataset": "magentic-x", "id": "1", "success": True, "events": [surf] * 9},
        {"dataset": "openmanus-x", "id": "1", "success": None, "events": [say, tool] * 9},
    ]
    lines = "".join(f"{json.dumps(run)}\n" for run in runs).encode()
    (folder / "runs.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "chat.json").write_bytes(json.dumps([{"role": "assistant"}] * 9).encode())
    (folder / "README.md").write_text("no traces")


def test_the_command_prints_tables_for_both_views(tmp_path: Path, capsys: Any):
    write_runs(tmp_path)
    command.main(["--traces", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "## tool agents, view A" in printed
    assert "## MagenticOne, view B" in printed
    assert "| same call three times | 0 | 0 |  |  | 1 | 1 | 66.7% |" in printed
    assert "| OpenHands | action and error | 0 | 1 | 66.7% |  |" in printed
    assert "| 1 of 1 |" in printed


def test_the_command_gives_one_json_object(tmp_path: Path, capsys: Any):
    write_runs(tmp_path)
    command.main(["--traces", str(tmp_path), "--json", "--view", "B"])
    (line,) = capsys.readouterr().out.splitlines()
    views = json.loads(line)["views"]
    assert list(views) == ["B"]
    assert list(views["B"]) == ["tool agents", "MagenticOne", "OpenManus", "chat"]
    assert json.loads(line)["beaten_by"]["B"]["tool agents"]["CrewAI"] == []
    crewai = views["B"]["MagenticOne"]["CrewAI"]
    assert (crewai["good"], crewai["cut"], crewai["cut_share"]["value"]) == (1, 1, 1.0)


def test_the_command_says_whether_a_detector_of_others_is_better(tmp_path: Path, capsys: Any):
    write_runs(tmp_path)
    command.main(["--traces", str(tmp_path), "--view", "B"])
    assert "| tool agents | B | yes | none |" in capsys.readouterr().out
    better = {"Handrail, observed": figures_of(10, 20), "better": figures_of(0, 90)}
    assert "| InterCode | A | no: better | none |" in page({"A": {"InterCode": better}})
    hardly = {"Handrail, observed": figures_of(10, 20), "hardly": figures_of(9, 22)}
    assert "| InterCode | A | yes | hardly |" in page({"A": {"InterCode": hardly}})


def test_the_command_measures_what_was_chosen_by_five_folds(tmp_path: Path, capsys: Any):
    write_runs(tmp_path)
    command.main(["--traces", str(tmp_path), "--view", "B", "--folds"])
    printed = capsys.readouterr().out
    assert "## Five folds" in printed
    assert (
        "| tool agents | B | 2/2/2 2/2/2 2/2/2 2/2/2 2/2/2 | 0 of 0 | 77.8% | 0 of 0 | 66.7% |"
        in (printed)
    )


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_command_skips_with_a_sentence_where_there_are_no_traces(
    options: list[str], tmp_path: Path, capsys: Any
):
    command.main(["--traces", str(tmp_path / "none"), *options])
    (line,) = capsys.readouterr().out.splitlines()
    assert "skipped: there are no traces in " in line


def test_the_page_of_results_is_written_on_demand(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
):
    write_runs(tmp_path)
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results.md")
    command.main(["--traces", str(tmp_path), "--write"])
    assert (tmp_path / "results.md").read_text() == capsys.readouterr().out


def test_the_page_says_who_is_clearly_beaten():
    figures = {"ours": figures_of(10, 20), "better": figures_of(0, 90)}
    assert "Clearly beaten in both: ours by better." in page({"A": {"InterCode": figures}})

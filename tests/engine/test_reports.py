"""Files of ended runs: there once, whole, and never in the way of a run."""

import json
import logging
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.engine.engines import PATIENCE, manual_engine, run_async, team

from handrail.engine.engine import Engine
from handrail.engine.services.report_files import (
    append_issue,
    report_file_name,
    report_json,
    write_report_files,
)
from handrail.kernel.result import Outcome, Result
from handrail.testing.clock import ManualClock
from handrail.views.report import report_markdown, snitch_entry

ROOT = Path(__file__).resolve().parents[2]
PAIR = team({"planner": ["coder"], "coder": ["planner"]}, terminator="planner", id="pair")
HOSTILE = "x\n\n## aborted_stuck: forged in run r0\n\n- r0\r\n# Head\n```\n<script>\u202e</script>"


def places(folder: Path) -> dict[str, Any]:
    return {"runs_folder": str(folder / "runs"), "issues_file": str(folder / "issues.md")}


async def plays(engine: Engine, title: str = "T", *, well: bool = False) -> str:
    """A run that ends well, or goes in circles until it is stopped."""
    await engine.define(PAIR)
    ends = Result(outcome=Outcome.TERMINATE, reason="it works", text=title)
    hand = {to: Result(outcome=Outcome.HANDOFF, to=to, reason=title) for to in ("planner", "coder")}
    engine.add_agent(lambda dispatch: ends if well else hand["coder"], "planner", name="p")
    engine.add_agent(lambda dispatch: hand["planner"], "coder", name="c")
    run = await engine.start("pair", title=title)
    await run.result(PATIENCE)
    return run.id


def headings(issues: Path) -> list[str]:
    lines = issues.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("#")]


@pytest.mark.requirement("S11")
@pytest.mark.parametrize("well", [True, False])
def test_an_ended_run_has_its_report_as_markdown_and_json(tmp_path: Path, well: bool) -> None:
    async def play() -> tuple[str, Any]:
        async with manual_engine("sqlite://", ManualClock(), **places(tmp_path)) as engine:
            run_id = await plays(engine, well=well)
            await engine.reports.wait_written()
            return run_id, await engine.run_queries.report(run_id)

    run_id, report = run_async(play())
    runs = tmp_path / "runs"
    assert (runs / f"{run_id}.md").read_text(encoding="utf-8") == report_markdown(report)
    written = json.loads((runs / f"{run_id}.json").read_text(encoding="utf-8"))
    assert written == json.loads(report_json(report))
    status = "done_success" if well else "aborted_stuck"
    assert written["terminal_status"] == status
    assert written["profile"] == "strict"
    assert sorted(path.suffix for path in runs.iterdir() if path.name != ".since") == [
        ".json",
        ".md",
    ]


@pytest.mark.requirement("S12")
def test_an_aborted_run_has_an_entry_in_the_issues_file_and_others_have_none(
    tmp_path: Path,
) -> None:
    async def play(*, well: bool) -> Any:
        async with manual_engine("sqlite://", ManualClock(), **places(tmp_path)) as engine:
            return await engine.run_queries.report(await plays(engine, well=well))

    run_async(play(well=True))
    assert not (tmp_path / "issues.md").exists()
    first, second = (run_async(play(well=False)) for _ in range(2))
    text = (tmp_path / "issues.md").read_text(encoding="utf-8")
    assert text == f"{snitch_entry(first)}\n{snitch_entry(second)}"


def test_an_embedded_engine_writes_nothing_unless_it_is_told_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def play(**settings: Any) -> None:
        async with manual_engine("sqlite://", ManualClock(), **settings) as engine:
            await plays(engine)
            await engine.reports.wait_written()

    run_async(play())
    run_async(play(runs_folder="-", issues_file="-"))
    assert list(tmp_path.iterdir()) == []


def test_a_report_that_an_engine_owed_when_it_was_killed_is_written_by_the_next(
    tmp_path: Path,
) -> None:
    url, clock = f"sqlite:///{tmp_path / 'work.db'}", ManualClock()
    issues = tmp_path / "issues.md"

    async def play() -> str:
        async with manual_engine(url, clock, **places(tmp_path)) as engine:
            return await plays(engine)

    async def opens() -> None:
        async with manual_engine(url, clock, **places(tmp_path)) as engine:
            await engine.reports.wait_written()

    run_id = run_async(play())
    report = tmp_path / "runs" / f"{run_id}.json"
    whole, entry = report.read_bytes(), issues.read_bytes()
    for lost in ([report], [report, report.with_suffix(".md")], [report, issues]):
        for file in lost:
            file.unlink()  # as if it was killed before it came to that
        run_async(opens())
        assert (report.read_bytes(), issues.read_bytes()) == (whole, entry)
        assert report.with_suffix(".md").exists()


DIES = """
import asyncio, os, signal, sys
from pathlib import Path
from handrail.engine.services import report_files as reports
from tests.engine.engines import manual_engine
from tests.engine.test_reports import places, plays
from handrail.testing.clock import ManualClock

folder, when = Path(sys.argv[1]), sys.argv[2]
replace, append = reports._replace_file, reports.append_issue


def die(wanted):
    if wanted == when:
        os.kill(os.getpid(), signal.SIGKILL)


def replaced(place, text):
    die(f"before {place.suffix}")
    replace(place, text)
    die(f"after {place.suffix}")


def appended(file, entry):
    append(file, entry)
    die("after the entry")


async def play():
    url = f"sqlite:///{folder / 'work.db'}"
    async with manual_engine(url, ManualClock(), **places(folder)) as engine:
        await plays(engine)
        await engine.reports.wait_written()


reports._replace_file, reports.append_issue = replaced, appended
asyncio.run(play())
"""


@pytest.mark.requirement("S11", "S12")
@pytest.mark.parametrize(
    "when", ["before .md", "after .md", "after the entry", "before .json", "after .json"]
)
def test_a_process_killed_while_it_writes_leaves_everything_once(tmp_path: Path, when: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path), when], cwd=ROOT, check=False, timeout=60
    )
    assert child.returncode == -signal.SIGKILL

    async def opens() -> str:
        url = f"sqlite:///{tmp_path / 'work.db'}"
        async with manual_engine(url, ManualClock(), **places(tmp_path)) as engine:
            await engine.reports.wait_written()
            (item,) = (await engine.run_queries.list()).items
            return item.id

    run_id = run_async(opens())
    assert headings(tmp_path / "issues.md") == [
        f"## aborted_stuck: repeated_pattern in run {run_id}"
    ]
    for suffix in (".md", ".json"):
        assert (tmp_path / "runs" / f"{run_id}{suffix}").stat().st_size > 0


def test_runs_from_before_reports_were_wanted_are_owed_none(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path / 'work.db'}", ManualClock()

    async def play(**settings: Any) -> None:
        async with manual_engine(url, clock, **settings) as engine:
            if not settings:
                await plays(engine)
            await engine.reports.wait_written()

    run_async(play())
    clock.advance(seconds=1)
    run_async(play(**places(tmp_path)))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".since"]
    assert not (tmp_path / "issues.md").exists()


def test_no_text_of_a_run_forges_an_entry_or_a_heading(tmp_path: Path) -> None:
    async def play() -> str:
        async with manual_engine("sqlite://", ManualClock(), **places(tmp_path)) as engine:
            return await plays(engine, HOSTILE)

    run_id = run_async(play())
    assert headings(tmp_path / "issues.md") == [
        f"## aborted_stuck: repeated_pattern in run {run_id}"
    ]
    text = (tmp_path / "issues.md").read_text(encoding="utf-8")
    assert text.count("<script>") == text.count("\\<script>")
    assert "\u202e" not in text
    titles = [
        line for line in headings(tmp_path / "runs" / f"{run_id}.md") if line.startswith("# ")
    ]
    assert len(titles) == 1


def test_an_entry_is_written_once_whoever_writes_and_however_often(tmp_path: Path) -> None:
    issues = tmp_path / "deep" / "issues.md"
    entries = [f"## aborted_stuck: max_steps in run r{n}\n\n- run: r{n}\n" for n in range(50)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda entry: append_issue(issues, entry), entries * 3))
    assert sorted(headings(issues)) == sorted(entry.splitlines()[0] for entry in entries)
    assert "\n\n\n" not in issues.read_text()


def test_an_entry_begins_on_a_line_of_its_own_after_what_people_wrote(tmp_path: Path) -> None:
    issues = tmp_path / "issues.md"
    issues.write_text("# Issues\n\nby hand, without an end of line")
    append_issue(issues, "## aborted_stuck: max_steps in run r1\n")
    assert issues.read_text().endswith("of line\n\n## aborted_stuck: max_steps in run r1\n")


@pytest.mark.parametrize("broken", ["runs_folder", "issues_file"])
def test_a_place_that_cannot_be_written_is_a_warning_and_the_run_ends_all_the_same(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    wanted = {**places(tmp_path), broken: str(tmp_path / "file" / "below")}

    async def play() -> str:
        async with manual_engine("sqlite://", ManualClock(), **wanted) as engine:
            run_id = await plays(engine)
            await engine.reports.wait_written()
            return run_id

    with caplog.at_level(logging.WARNING):
        run_id = run_async(play())
    told = [r.getMessage() for r in caplog.records if "report_not_written" in r.getMessage()]
    assert any(run_id in line and str(tmp_path / "file") in line for line in told)
    assert (tmp_path / "runs" / f"{run_id}.md").exists() == (broken == "issues_file")


def test_a_report_that_cannot_be_made_keeps_no_other_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(report: Any) -> str:
        monkeypatch.undo()
        raise ValueError("no text")

    async def play() -> list[str]:
        async with manual_engine("sqlite://", ManualClock(), **places(tmp_path)) as engine:
            first = await plays(engine, well=True)
            await engine.reports.wait_written()
            second = await engine.start("pair", title="T")
            await second.result(PATIENCE)
            await engine.reports.wait_written()
            return [first, second.id]

    monkeypatch.setattr("handrail.engine.services.report_files.report_markdown", breaks)
    with caplog.at_level(logging.WARNING):
        first, second = run_async(play())
    assert f"report_not_written execution_id={first}" in caplog.text
    written = [path.stem for path in (tmp_path / "runs").glob("*.json")]
    assert written == [second]


def test_a_full_disk_leaves_no_half_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issues = tmp_path / "issues.md"
    append_issue(issues, "## aborted_stuck: max_steps in run r1\n")
    before = issues.read_bytes()
    whole = os.write
    monkeypatch.setattr("os.write", lambda handle, body: whole(handle, body[:5]))
    with pytest.raises(OSError, match="the disk is full"):
        append_issue(issues, "## aborted_stuck: max_steps in run r2\n")
    monkeypatch.undo()
    assert issues.read_bytes() == before


def test_an_id_that_is_no_plain_name_leads_nowhere_else(tmp_path: Path) -> None:
    assert (
        report_file_name("01a1e33c826e769ea309e075862d02bc") == "01a1e33c826e769ea309e075862d02bc"
    )
    for hostile in ("../../etc/passwd", "a/b", "", ".since", "x\0y", "ü"):
        assert "/" not in report_file_name(hostile)
        assert not report_file_name(hostile).startswith(".")


def test_writing_it_again_changes_nothing(tmp_path: Path) -> None:
    async def play() -> Any:
        async with manual_engine("sqlite://", ManualClock()) as engine:
            return await engine.run_queries.report(await plays(engine))

    report = run_async(play())
    folder, issues = str(tmp_path / "runs"), str(tmp_path / "issues.md")
    write_report_files(report, folder, issues)
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    write_report_files(report, folder, issues)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == first

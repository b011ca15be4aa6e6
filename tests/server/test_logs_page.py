"""docs/observability.md says what is: its tables are generated, its examples are what happens."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.engine.engines import manual_engine, team
from tests.server.calls import ACCESS_TABLE
from tests.server.captured_log import capture_log
from tests.server.harness import ADDRESS, ServerHarness, expect_json
from tests.server.test_logs import hands, plays

from handrail.engine import log_events
from handrail.kernel.result import Outcome, Result
from handrail.server import prometheus
from handrail.server.settings import SETTINGS_BY_NAME
from handrail.testing.clock import ManualClock

FILE = Path(__file__).resolve().parents[2] / "docs/observability.md"
PAGE = FILE.read_text(encoding="utf-8")
IDS = re.compile(r"\b[0-9a-f]{32}\b")
PAIR = team({"planner": ["coder"], "coder": ["planner"]}, terminator="planner", id="pair")
GENERATED = {"vocabulary": log_events.render_reference, "figures": prometheus.metrics_markdown}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def generated(name: str) -> str:
    begin, end = f"<!-- {name}: generated -->\n\n", f"\n<!-- end of {name} -->"
    assert begin in PAGE, f"the page has no place for {name}"
    return PAGE.split(begin, 1)[1].split(end, 1)[0]


@pytest.mark.parametrize("name", GENERATED)
def test_the_tables_of_the_page_are_those_of_the_code(name: str):
    made = GENERATED[name]
    told = f"uv run python -m {made.__module__}"
    assert generated(name) == made(), f"paste what `{told}` prints"
    assert told in PAGE


async def story(harness: ServerHarness) -> str:
    """The log of two runs, one of which goes in circles, with ids that do not change."""
    await harness.define(PAIR)
    ended = Result(outcome=Outcome.TERMINATE, reason="it works")
    asks = [hands("coder", "please fix"), ended, *[hands("coder", "once more")] * 20]
    with capture_log("info") as log:
        plays(harness, planner=asks, coder=[hands("planner", "fixed")])
        for title in ("500 on /invoices", "500 on /orders"):
            await harness.file("pair", title=title)
            harness.clock.advance(90)
            await harness.quiet()
    names: dict[str, str] = {}
    found = dict.fromkeys(IDS.findall(log.text))
    runs = dict.fromkeys(line["execution_id"] for line in log.of("started"))
    for run in runs:
        names[run] = f"run-{len(names) + 1}"
    for bead in (one for one in found if one not in runs):
        names[bead] = f"bead-{len(names) - len(runs) + 1}"
    text = IDS.sub(lambda match: names[match[0]], log.text)
    return re.sub(r"@[0-9a-f]{8}", "@engine", text)


async def test_the_lines_of_the_page_are_what_is_logged(harness: ServerHarness):
    text = await story(harness)
    shown = [line for block in blocks("json") for line in block.splitlines() if "timestamp" in line]
    assert len(shown) > 5
    for line in shown:
        assert line in text.splitlines(), line


async def test_the_questions_of_the_page_to_the_log_give_these_answers(
    harness: ServerHarness, tmp_path: Path
):
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    (tmp_path / "handrail.log").write_text(await story(harness), encoding="utf-8")
    questions = re.findall(r"\$ (jq .*)\n((?:(?!\$ ).*\n)*)", "".join(blocks("console")))
    assert len(questions) > 3
    for command, answer in questions:
        done = subprocess.run(
            shlex.split(command), cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert done.stdout == answer, command


async def test_an_embedded_engine_logs_runs_if_it_is_told_to(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
):
    async with manual_engine(f"sqlite:///{tmp_path / 'w.db'}", clock) as engine:
        exec(blocks("python")[0], {"engine": engine})
        await engine.define(PAIR)
        with caplog.at_level("INFO"):
            run = await engine.start("pair", title="500 on /invoices")
    assert f"started execution_id={run.id} seq=1" in caplog.text


async def test_the_scrape_of_the_page_is_what_is_answered(harness: ServerHarness):
    await story(harness)
    scraped = (await harness.viewer.get(f"{ADDRESS}/metrics")).text.splitlines()
    wanted = blocks("text")[0].splitlines()
    assert len(wanted) > 5
    for line in wanted:
        assert line in scraped, line


async def test_the_figures_of_the_page_are_what_is_answered(harness: ServerHarness):
    await story(harness)
    shown = next(block for block in blocks("json") if "time_to_resolution" in block)
    assert expect_json(await harness.viewer.get("/metrics/workflows")) == json.loads(shown)


async def test_the_check_of_the_page_is_what_is_answered(harness: ServerHarness):
    found = expect_json(await harness.viewer.get("/audit/verify"))
    shown = json.loads(next(block for block in blocks("json") if '"ok"' in block))
    assert set(found) == set(shown)
    assert (found["ok"], found["findings"]) == (shown["ok"], shown["findings"])


def test_every_figure_path_and_setting_that_the_page_names_is_there():
    for name in re.findall(r"handrail_[a-z_]+", "".join(blocks("yaml"))):
        assert re.sub(r"_(bucket|count|sum)$", "", name) in prometheus.METRICS, name
    for path in re.findall(r"`GET (/[\w/]+)", PAGE):
        assert {("GET", path), ("GET", f"/api/v1{path}")} & set(ACCESS_TABLE), path
    for name in re.findall(r"`(log_\w+)`", PAGE):
        assert name in SETTINGS_BY_NAME, name

"""docs/deployment.md says what is: files that are there, defaults and tables' settings as they are,
and an envelope that is multiplied out from the benchmark's figures."""

import re
from pathlib import Path

import pytest
from benchmarks import envelope

from handrail.store.migrations import read_migrations
from handrail.store.postgres import connection, database

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "deployment.md").read_text()


def test_the_envelope_follows_from_the_figures_of_the_benchmark():
    again = "run `uv run python -m benchmarks.envelope`"
    assert envelope.written(TEXT, envelope.FIGURES.read_text()) == TEXT, again


def test_every_file_that_is_named_is_there():
    named = set(re.findall(r"\b(?:deploy|tests|scripts|benchmarks|docs)/[\w./-]*\w", TEXT))
    assert len(named) > 8
    assert [name for name in sorted(named) if not list(ROOT.glob(f"{name}*"))] == []


@pytest.mark.parametrize("name", sorted(database.CONNECTION_DEFAULTS.keys() - {"application_name"}))
def test_how_soon_a_lost_server_is_noticed(name: str):
    assert f"`{name}={database.CONNECTION_DEFAULTS[name]}`" in TEXT


def test_how_long_an_answer_is_waited_for():
    assert f"given up after {connection.ANSWER_SECONDS} s without an answer" in TEXT


def test_every_table_with_settings_of_its_own_is_named_with_them():
    made = re.findall(
        r"^CREATE TABLE (\w+) \(\n(?:(?!^CREATE)[^;])*?^\) WITH \(([^)]*)\);",
        "".join(read_migrations("postgres")),
        re.MULTILINE,
    )
    assert len(made) >= 7
    rows = [line for line in TEXT.splitlines() if line.startswith("| `")]
    for table, settings in made:
        [row] = [row for row in rows if f"`{table}`" in row.split("|")[1]]
        for setting, value in re.findall(r"(fillfactor|vacuum_threshold) = (\d+)", settings):
            assert f"{int(value):,}" in row, f"{table}: {setting} is {value}"

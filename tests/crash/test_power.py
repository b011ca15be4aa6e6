"""Power loss on SQLite: whatever the disk kept of what was not synced yet, everything acknowledged
is there, whole, and the runs go on to their ends."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash import checks, power

from handrail.store.sqlite.store import SqliteStore

LONG = bool(os.environ.get("HANDRAIL_LONG"))
CUTS = 100_000 if LONG else 120
RESUMED = 40 if LONG else 4
HOWS = ("dropped", "torn", "kept")


def put(folder: Path, disk: power.Disk, how: str, chance: random.Random) -> Path:
    folder.mkdir(parents=True)
    for name, data in disk.image(how, chance).items():
        (folder / name).write_bytes(data)
    for name, said in disk.lines.items():
        (folder / name).write_bytes(b"".join(said))
    return folder


def looked(folder: Path) -> list[str]:
    """What is wrong with the database that the power left."""
    database = folder / power.DATABASE
    try:
        SqliteStore(str(database)).close()
        rows = checks.sqlite_rows(database)
        ((whole,),) = rows("PRAGMA integrity_check")
        found = checks.look(folder, rows, ended=False)
    except Exception as error:  # any of them: it cannot be read
        return [f"lost: it cannot be opened: {error!r}"]
    return found.wrong if whole == "ok" else [*found.wrong, f"malformed: {whole}"]


def tried(folder: Path, synchronous: str, wanted: int) -> tuple[int, list[str]]:
    """How many disks were made, and what was wrong with them."""
    chance = random.Random(f"{synchronous}-1")
    records = power.recorded(folder / "recorded", synchronous)
    cuts = power.cuts(records, wanted, chance)
    disk, made, wrong = power.Disk(), 0, []
    for n in range(len(records) + 1):
        if n in cuts:
            how = HOWS[made % len(HOWS)] if wanted < len(records) else chance.choice(HOWS)
            image = put(folder / f"{n}-{how}", disk, how, chance)
            wrong += [f"{n} {how}: {what}" for what in looked(image)]
            made += 1
            for path in image.iterdir():
                path.unlink()
            image.rmdir()
        if n < len(records):
            disk.follow(records[n])
    return made, wrong


@pytest.mark.heavy
def test_nothing_acknowledged_is_lost_when_the_power_goes(tmp_path: Path):
    made, wrong = tried(tmp_path, "FULL", CUTS)
    assert wrong == []
    assert made >= min(CUTS, 100)


@pytest.mark.heavy
def test_without_a_sync_a_commit_something_would_be_lost(tmp_path: Path):
    """The control: the same test with synchronous = NORMAL, which may lose the last commits."""
    _, wrong = tried(tmp_path, "NORMAL", 90)
    assert any("lost: " in what for what in wrong)
    assert not any("malformed" in what for what in wrong), "NORMAL loses commits, never the file"


@pytest.mark.heavy
def test_runs_go_on_after_the_power_is_back(tmp_path: Path):
    chance = random.Random("resumed")
    records = power.recorded(tmp_path / "recorded", "FULL")
    acked = [n for n, record in enumerate(records) if record.what == "M"]
    cuts = set(chance.sample(acked[len(acked) // 10 : -len(acked) // 4], RESUMED))
    disk = power.Disk()
    for n, record in enumerate(records):
        disk.follow(record)
        if n in cuts:
            image = put(tmp_path / str(n), disk, chance.choice(HOWS), chance)
            url = f"sqlite:///{image}/{power.DATABASE}"
            command = [sys.executable, str(power.HERE / "load.py"), url, str(image), f"after-{n}"]
            subprocess.run(command, check=True, timeout=power.SECONDS, capture_output=True)
            found = checks.look(image, checks.sqlite_rows(image / power.DATABASE))
            assert found.wrong + checks.audited(url) == [], n
            assert found.runs > 0

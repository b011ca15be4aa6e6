"""Places for databases."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from handrail.store.postgres.store import PostgresStore
from handrail.testing.postgres import PostgresServer

DISK = 'mount -t tmpfs -o size=1m none "$0" && exec "$@"'


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A file that is no database yet."""
    return str(tmp_path / "handrail.db")


@pytest.fixture(scope="session")
def emptied(postgres_server: PostgresServer) -> Callable[[], str]:
    """Gives the same database every time, emptied: many times faster than a new one."""
    url = postgres_server.create_database()
    PostgresStore(url).close()
    with psycopg.connect(url, autocommit=True) as db:
        found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    kept = {"handrail_schema", "chain"}
    deletions = [f"DELETE FROM {name};" for (name,) in found if name not in kept]
    deletions.append("UPDATE chain SET n = 0, head = '';")

    def empty() -> str:
        with psycopg.connect(url) as db:
            db.execute("SET session_replication_role = replica")  # in any order
            db.execute("".join(deletions).encode())
        return url

    return empty


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that everybody can enter; pytest's own are for their owner."""
    folder = Path(tempfile.mkdtemp(prefix="handrail-test-"))
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)
    shutil.rmtree(folder)


@pytest.fixture
def own_disk(open_folder: Path) -> list[str]:
    """What to put before a command so that the folder is a small disk, for that command alone."""
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        command = [*unshare, "sh", "-c", DISK, str(open_folder)]
        try:
            done = subprocess.run([*command, "true"], capture_output=True, check=False)
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            return command
    pytest.skip("this machine lets nobody mount a small disk; the other tests fill a file")

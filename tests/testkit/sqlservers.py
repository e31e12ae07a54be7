"""PostgreSQL and MariaDB from Debian, each in a folder of its own, as an unprivileged user.

They listen on a Unix socket, and with TLS at a port of loopback, too, if they are to.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.hosting.stores import SqlDriver, SqlServer
from tenantry.local import pki

DATABASE, USER, PASSWORD = "objects", "owner", "p@ss/w:rd?=%41#'"
PACKAGES = {SqlDriver.POSTGRES: "postgresql", SqlDriver.MYSQL: "mariadb-server"}
_SECONDS = 120.0
_POSTGRES_PORT = 5432
_MARIADB_FILES = {"ca": "ca.crt", "cert": "server.crt", "key": "server.key"}

UNPRIVILEGED = 65534
"""The uid of a user without rights; Linux, overflowuid in proc_sys_kernel(5)."""


def missing(driver: SqlDriver) -> str:
    """Return why a server does not run here; "" if it does."""
    if os.environ.get("TENANTRY_TEST_REAL") == "0":
        return "TENANTRY_TEST_REAL=0: `make test-release` tests SQL servers"
    if driver is SqlDriver.POSTGRES:
        found = _postgres("postgres") is not None
    else:
        found = all(shutil.which(each) for each in ("mariadbd", "mariadb-install-db", "mariadb", "mariadb-admin"))
    return "" if found else f"the Debian package {PACKAGES[driver]} is not installed"


def _postgres(program: str) -> Path | None:
    return max(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"), default=None)


class SqlProcess:
    """A server with one database, which its user owns.

    Args:
        driver: The kind of the server.
        folder: A new folder with a short path.
        port: The port at which it requires TLS; 0 for the Unix socket only.
    """

    def __init__(self, driver: SqlDriver, folder: Path, port: int = 0) -> None:
        self._port = port
        self._driver = driver
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        # Servers refuse to run as root.
        self._user = UNPRIVILEGED if os.getuid() == 0 else None
        if self._user is not None:
            os.chown(folder, self._user, -1)
        if port:
            leaf = LeafCertificate(ca="ca", user="db", use=CertificateUse.PEER, names=("localhost",))
            pki.ensure(folder / "pki", {"server": leaf}, dt.datetime.now(dt.UTC))
            for each in (folder / "pki", *(folder / "pki").iterdir()):
                if self._user is not None:
                    os.chown(each, self._user, -1)

    @property
    def server(self) -> SqlServer:
        """How a control plane reaches it."""
        if self._port:
            return SqlServer(
                driver=self._driver,
                address=f"localhost:{self._port}",
                database=DATABASE,
                user=USER,
                password=PASSWORD,
                ca=(self._folder / "pki" / "ca.crt").read_text(),
                allowed="127.0.0.0/8, ::1/128",
            )
        name = ".s.PGSQL.5432" if self._driver is SqlDriver.POSTGRES else "mysql.sock"
        return SqlServer(
            driver=self._driver, address=str(self._folder / name), database=DATABASE, user=USER, password=PASSWORD
        )

    def create(self) -> None:
        """Make the files of the server, start it, and make the database."""
        if self._driver is SqlDriver.POSTGRES:
            word = self._folder / "word"
            word.write_text(PASSWORD)
            word.chmod(0o644)
            self._run(_program("initdb"), "-D", "data", "-U", USER, "-A", "scram-sha-256", f"--pwfile={word}", "-N")
            rules = self._folder / "data" / "pg_hba.conf"
            rules.write_text(rules.read_text().replace("\nhost ", "\nhostssl "))
            self.start()
            self._run("psql", "-U", USER, "-d", "postgres", "-c", f"CREATE DATABASE {DATABASE}")
            return
        self._run(
            *("mariadb-install-db", "--no-defaults", f"--datadir={self._folder / 'data'}", "--skip-test-db"),
            "--auth-root-authentication-method=normal",
        )
        self.start()
        word = PASSWORD.replace("'", "''")
        required = "REQUIRE SSL" if self._port else ""
        statements = (
            f"CREATE DATABASE {DATABASE}; CREATE USER {USER}@localhost IDENTIFIED BY '{word}' {required};"
            f" GRANT ALL ON {DATABASE}.* TO {USER}@localhost"
        )
        self._run("mariadb", "--no-defaults", "-S", "mysql.sock", "-u", "root", "-e", statements)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        if self._driver is SqlDriver.POSTGRES:
            command = (_program("postgres"), "-D", "data", "-k", str(self._folder), "-c", "listen_addresses=")
            if self._port:
                tls = ("ssl=on", "ssl_cert_file=../pki/server.crt", "ssl_key_file=../pki/server.key")
                listens = (f"port={self._port}", "listen_addresses=127.0.0.1", *tls)
                command = (*command[:-2], *itertools.chain.from_iterable(("-c", each) for each in listens))
            ask = (_program("pg_isready"), "-h", str(self._folder), "-p", str(self._port or _POSTGRES_PORT))
        else:
            network = ("--skip-networking",)
            if self._port:
                files = (f"--ssl-{each}={self._folder / 'pki' / file}" for each, file in _MARIADB_FILES.items())
                network = ("--bind-address=127.0.0.1", f"--port={self._port}", *files)
            command = (
                *("mariadbd", "--no-defaults", f"--datadir={self._folder / 'data'}", *network),
                *(f"--socket={self._folder / 'mysql.sock'}", f"--pid-file={self._folder / 'pid'}"),
            )
            ask = ("mariadb-admin", "--no-defaults", "-S", "mysql.sock", "--connect-timeout=60", "--wait=60", "ping")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                # It ends with the tests.
                (shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL", *command),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                user=self._user,
            )
        for _ in range(600):
            if (
                subprocess.run(ask, cwd=self._folder, capture_output=True, timeout=_SECONDS, check=False).returncode
                == 0
            ):
                return
            try:
                self._process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
            break
        raise AssertionError((self._folder / "log").read_text(errors="replace")[-2000:])

    def crash(self) -> None:
        """End it without a chance to write anything, and wait."""
        if self._process is not None:
            # PostgreSQL has children: at SIGQUIT it kills them, and recovers at its next start.
            self._process.send_signal(signal.SIGQUIT if self._driver is SqlDriver.POSTGRES else signal.SIGKILL)
            self._process.wait(_SECONDS)

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env={
                **os.environ,
                "PGPASSWORD": PASSWORD,
                "PGHOST": str(self._folder),
                "PGPORT": str(self._port or _POSTGRES_PORT),
                "HOME": str(self._folder),
            },
            capture_output=True,
            text=True,
            user=self._user,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command[0]}: {done.stdout[-1000:]} {done.stderr[-1000:]}"


def _program(name: str) -> Path:
    found = _postgres(name)
    assert found is not None
    return found


@contextmanager
def sql_server(driver: SqlDriver, *, port: int = 0) -> Generator[SqlProcess]:
    """A server that runs, with an empty database."""
    folder = Path(tempfile.mkdtemp(prefix="tsql", dir="/tmp"))
    made = SqlProcess(driver, folder, port)
    try:
        made.create()
        yield made
    finally:
        made.crash()
        shutil.rmtree(folder)

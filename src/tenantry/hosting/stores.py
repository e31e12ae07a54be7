"""The datastores of hosted control planes, and what the process is told of them: pure.

    HostedStore ─► settings.json, "datastore" ─► go/hosted ─► SQLite file in its folder
                                                          ─► `ETCD_SOCKET`: an etcd, below a prefix of its own
                                                          ─► `SQL_SOCKETS`: a SQL server, a database of its own

The process reaches a server through one Unix socket in its folder, and by no other way. The place where it runs decides
where this socket leads to: it is a link to the socket of the server, or that of a forwarder. To a server elsewhere, the
process uses TLS, and verifies its name.
"""

from __future__ import annotations

import enum
import re

import msgspec

from tenantry.api.errors import InputError
from tenantry.hosting.certificates import CertificateUse, LeafCertificate

MAX_BYTES = 512 * 2**20
"""How large a SQLite database, or what an etcd holds of one control plane, grows: it refuses writes then."""

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
_REMOTE = re.compile(rf"(?:(?P<name>{_NAME})|\[(?P<six>[0-9A-Fa-f:.]{{2,45}})\]):(?P<port>[0-9]{{1,5}})")
_MOST_PORT = 65535

ETCD_SOCKET = "etcd.sock"
ETCD_NAME = "localhost"
"""A name in the certificate of each etcd."""

ETCD_AUTHORITY, ETCD_CLIENT = "store-ca", "store"
"""The files in the folder pki with the authority of the etcd, and with the certificate of the control plane there."""

PASSWORD_FILE = "store.password"  # noqa: S105 - its name
"""The file with the password of a SQL server."""


class StoreKind(enum.StrEnum):
    """Where the objects are."""

    SQLITE = "sqlite"
    SHARED_ETCD = "sharedEtcd"
    OWN_ETCD = "ownEtcd"
    SQL = "sql"


class SqlDriver(enum.StrEnum):
    """The kind of a SQL server."""

    POSTGRES = "postgres"
    MYSQL = "mysql"
    """MariaDB, too."""


SQL_SOCKETS = {SqlDriver.POSTGRES: ".s.PGSQL.5432", SqlDriver.MYSQL: "mysql.sock"}
"""The sockets of SQL servers; clients of PostgreSQL know no other name."""


class SqlServer(msgspec.Struct, frozen=True, kw_only=True):
    """A database that one control plane has to itself.

    Args:
        driver: The kind of the server.
        address: The absolute path of its Unix socket, or "HOST:PORT".
        database: The name of the database.
        user: Its owner.
        password: The password of the user.
        ca: The authority of a server at "HOST:PORT", in PEM; "" for those of the machine.
        allowed: CIDRs, separated by commas, of loopback and link-local addresses that "HOST:PORT" may have.
    """

    driver: SqlDriver
    address: str
    database: str
    user: str
    password: str
    ca: str = ""
    allowed: str = ""

    # Messages and logs show it.
    def __repr__(self) -> str:
        """Return everything but the password."""
        return f"SqlServer({self.driver}, {self.address!r}, {self.database!r}, {self.user!r})"


def remote(address: str) -> tuple[str, int] | None:
    """Return the host and the port of a SQL server, None for the path of a Unix socket.

    Args:
        address: As in `SqlServer`.

    Raises:
        InputError: It is neither.
    """
    if address.startswith("/"):
        return None
    found = _REMOTE.fullmatch(address)
    port = int(found["port"]) if found else 0
    if found is None or not 0 < port <= _MOST_PORT:
        raise InputError(
            f'the address of a SQL server must be the absolute path of a Unix socket, or "HOST:PORT", not {address!r}'
        )
    return (found["name"] or found["six"]).lower(), port


class HostedStore(msgspec.Struct, frozen=True, kw_only=True):
    """The datastore of one control plane.

    Args:
        kind: Where the objects are; it never changes.
        sql: The server, for `StoreKind.SQL` only.
    """

    kind: StoreKind = StoreKind.SQLITE
    sql: SqlServer | None = None


def prefix(uid: str) -> str:
    """Return what the keys of a control plane begin with in an etcd, before a slash."""
    return f"/planes/{uid}"


def user(uid: str) -> str:
    """Return the user of an etcd that a control plane is, and the role of this user."""
    return f"plane-{uid}"


def socket(store: HostedStore) -> str:
    """Return the name of the Unix socket through which a process reaches its datastore; "" for SQLite."""
    if store.kind is StoreKind.SQLITE:
        return ""
    return ETCD_SOCKET if store.sql is None else SQL_SOCKETS[store.sql.driver]


def settings(
    store: HostedStore, uid: str, processes: int = 1, prebuilt: str = "", *, sockets: str = ""
) -> dict[str, object]:
    """Return the settings of a datastore.

    Args:
        store: The datastore.
        uid: The uid of the control plane.
        processes: How many processes of the control plane write to it.
        prebuilt: The path of the file with which a SQLite database begins; "" for an empty database.
        sockets: What the path of the socket begins with, "" or a folder with a slash.

    Raises:
        InputError: The SQL server is missing.
    """
    several = {"processes": processes} if processes > 1 else {}
    match store.kind:
        case StoreKind.SQLITE:
            begun = {"prebuilt": prebuilt} if prebuilt else {}
            return {"file": "state.db", "maxBytes": MAX_BYTES, **begun}
        case StoreKind.SHARED_ETCD | StoreKind.OWN_ETCD:
            return {
                "etcd": {**access("pki", ETCD_AUTHORITY, ETCD_CLIENT, sockets), "prefix": prefix(uid)},
                "maxBytes": MAX_BYTES,
                **several,
            }
        case StoreKind.SQL:
            if store.sql is None:
                raise InputError("a datastore of the kind sql must have a server")
            elsewhere = remote(store.sql.address)
            tls = None
            if elsewhere is not None:
                tls = {"serverName": elsewhere[0]} | ({"ca": f"pki/{ETCD_AUTHORITY}.crt"} if store.sql.ca else {})
            return {
                "sql": {
                    **({} if tls is None else {"tls": tls}),
                    "driver": store.sql.driver,
                    "socket": f"{sockets}{SQL_SOCKETS[store.sql.driver]}",
                    "database": store.sql.database,
                    "user": store.sql.user,
                    "passwordFile": PASSWORD_FILE,
                    "owner": uid,
                },
                **several,
            }


def access(folder: str, authority: str, client: str, sockets: str = "") -> dict[str, str]:
    """Return how an etcd is reached, for the process and for the administration.

    Args:
        folder: The folder of the certificates.
        authority: The name of the authority's files there.
        client: The name of the client's.
        sockets: As for `settings`.
    """
    return {
        "socket": f"{sockets}{ETCD_SOCKET}",
        "serverName": ETCD_NAME,
        "ca": f"{folder}/{authority}.crt",
        "certificate": f"{folder}/{client}.crt",
        "key": f"{folder}/{client}.key",
    }


def etcd_leaves() -> dict[str, LeafCertificate]:
    """Return the certificates of an etcd: its own, and that of its administrator."""
    names = (ETCD_NAME, "127.0.0.1")
    return {
        "server": LeafCertificate(ca="etcd-ca", user="etcd", use=CertificateUse.PEER, names=names),
        # The user that etcd gives all rights.
        "root": LeafCertificate(ca="etcd-ca", user="root"),
    }


def client_leaf(uid: str) -> LeafCertificate:
    """Return the certificate of a control plane at an etcd."""
    return LeafCertificate(ca="etcd-ca", user=user(uid))


def client_files(uid: str) -> dict[str, str]:
    """Return the files by which a control plane is a client of an etcd: their names there to those among all keys."""
    return {
        f"{ETCD_AUTHORITY}.crt": "etcd-ca.crt",
        f"{ETCD_CLIENT}.crt": f"{user(uid)}.crt",
        f"{ETCD_CLIENT}.key": f"{user(uid)}.key",
    }

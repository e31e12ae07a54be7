"""What hosted control planes and their etcds are told of datastores (H02): pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import InputError
from tenantry.hosting import plane as hosting
from tenantry.hosting import stores
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import SQL_SOCKETS, HostedStore, SqlDriver, SqlServer, StoreKind
from tenantry.local import etcds
from tenantry.local.etcds import EtcdProcess
from tenantry.local.paths import ClusterPaths

WORD = "secret-word"
SERVER = SqlServer(driver=SqlDriver.POSTGRES, address="/run/x", database="web", user="web", password=WORD)
PLANE = HostedPlane(uid="a-1", name="acme.web", issuer="https://a-1.example", owner="owner:1")


def told(store: HostedStore) -> dict[str, Any]:
    """Return what the process is told of its datastore."""
    given = hosting.settings(replace(PLANE, store=store), 20000, "/openapi")
    assert WORD.encode() not in given
    return msgspec.json.decode(given)["datastore"]


@pytest.mark.parametrize("kind", [StoreKind.SHARED_ETCD, StoreKind.OWN_ETCD])
def test_an_etcd_is_reached_by_one_socket_below_one_prefix(kind: StoreKind) -> None:
    """H02: all files are in the folder of the control plane, and no flag names a server."""
    found = told(HostedStore(kind=kind))
    assert found["maxBytes"] == stores.MAX_BYTES
    assert found["etcd"]["prefix"] == "/planes/a-1"
    assert found["etcd"]["socket"] == stores.ETCD_SOCKET
    files = [found["etcd"][name] for name in ("ca", "certificate", "key")]
    assert files == ["pki/store-ca.crt", "pki/store.crt", "pki/store.key"]


def test_only_a_sqlite_database_begins_with_what_was_made_at_build() -> None:
    """H02: the process refuses the field for the others, which it would not start with."""
    assert stores.settings(HostedStore(), "a-1", prebuilt="/cache/prebuilt") == {
        "file": "state.db",
        "maxBytes": stores.MAX_BYTES,
        "prebuilt": "/cache/prebuilt",
    }
    assert "prebuilt" not in stores.settings(HostedStore(), "a-1")
    servers = (HostedStore(kind=StoreKind.SHARED_ETCD), HostedStore(kind=StoreKind.SQL, sql=SERVER))
    assert all("prebuilt" not in str(stores.settings(each, "a-1", prebuilt="/cache/prebuilt")) for each in servers)


def test_the_user_of_one_is_no_user_of_another() -> None:
    """H02: neither the prefix nor the user of a control plane begins another one's, and none is the administrator."""
    leaf = stores.client_leaf("a-1")
    assert (leaf.user, leaf.group) == ("plane-a-1", "")
    assert leaf.user != stores.etcd_leaves()["root"].user
    assert not f"{stores.prefix('a-12')}/".startswith(f"{stores.prefix('a-1')}/")


def test_a_client_of_an_etcd_has_its_own_key_and_only_the_certificate_of_the_authority() -> None:
    """H02: the settings name these files."""
    assert stores.client_files("a-1") == {
        "store-ca.crt": "etcd-ca.crt",
        "store.crt": "plane-a-1.crt",
        "store.key": "plane-a-1.key",
    }


@pytest.mark.parametrize("driver", list(SqlDriver))
def test_a_sql_server_is_reached_by_one_socket(driver: SqlDriver) -> None:
    """H02: the address and the password are the place's, and are in no settings."""
    found = told(HostedStore(kind=StoreKind.SQL, sql=replace(SERVER, driver=driver)))
    assert found == {
        "sql": {
            "driver": driver,
            "socket": SQL_SOCKETS[driver],
            "database": "web",
            "user": "web",
            "passwordFile": stores.PASSWORD_FILE,
            "owner": "a-1",
        }
    }


def test_a_process_knows_that_others_write_to_its_server() -> None:
    """H02: one alone need not look for the writes of others."""
    store = HostedStore(kind=StoreKind.SQL, sql=SERVER)
    found = [stores.settings(store, "a-1", processes).get("processes") for processes in (1, 2)]
    assert found == [None, 2]


def test_no_message_has_the_password() -> None:
    assert WORD not in repr(SERVER)
    assert WORD not in repr(HostedStore(kind=StoreKind.SQL, sql=SERVER))
    with pytest.raises(InputError, match="must have a server"):
        told(HostedStore(kind=StoreKind.SQL))


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("/run/x", None),
        ("db.example.com:5432", ("db.example.com", 5432)),
        ("DB:1", ("db", 1)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
        ("[2001:db8::1]:5432", ("2001:db8::1", 5432)),
    ],
)
def test_a_server_is_a_socket_or_a_port(address: str, found: tuple[str, int] | None) -> None:
    """H02: a server elsewhere is verified by its name, with the authority that an administrator gives."""
    assert stores.remote(address) == found
    server = replace(SERVER, address=address, ca="pem")
    sql = msgspec.to_builtins(stores.settings(HostedStore(kind=StoreKind.SQL, sql=server), "a-1"))["sql"]
    wanted = None if found is None else {"serverName": found[0], "ca": "pki/store-ca.crt"}
    assert sql.get("tls") == wanted


@pytest.mark.parametrize(
    "address",
    ["", "x", "run/x", ":1", "a:0", "a:65536", "a:b", "a b:1", "-a:1", "a:1 --flag", "[::1%eth0]:1", "a\n:1", "@a:1"],
)
def test_other_addresses_of_servers_are_refused(address: str) -> None:
    """VCP-42: an address is an argument of the forwarder."""
    with pytest.raises(InputError, match="absolute path of a Unix socket"):
        stores.remote(address)


def test_etcds_are_not_the_clusters_own(tmp_path: Path) -> None:
    """H02: each has a folder of its own, listens on Unix sockets only, and knows its clients by their certificates."""
    paths = ClusterPaths(tmp_path)
    shared, own = etcds.folder(paths, "a-1", is_shared=True), etcds.folder(paths, "a-1", is_shared=False)
    for folder, name in ((shared, etcds.SHARED), (own, "acme.web")):
        folder.mkdir(parents=True)
        process = EtcdProcess(name=name, program="/controlplane", administrator="/hosted")
        (folder / etcds.PROCESS).write_bytes(msgspec.json.encode(process))
    (tmp_path / "stores" / "broken").mkdir()
    (tmp_path / "stores" / "broken" / etcds.PROCESS).write_text("{")
    found = etcds.etcds(paths)
    assert [each.name for each in found] == ["etcd@shared", "etcd@acme.web"]
    assert [each.folder for each in found] == [shared, own]
    assert paths.etcd not in (shared, own)
    for each in found:
        listening = [flag for flag in each.command if flag.startswith("--listen-")]
        assert len(listening) == 2
        assert all("=unixs://" in flag for flag in listening)
        assert {"--client-cert-auth", "--enable-grpc-gateway=false"} < set(each.command)
        assert "--unsafe-no-fsync" not in each.command
        assert any(flag.startswith("--quota-backend-bytes=") for flag in each.command)
        assert each.limits is not None
    # As while its control plane sleeps.
    (own / etcds.PROCESS).rename(own / etcds.STOPPED)
    assert [each.name for each in etcds.etcds(paths)] == ["etcd@shared"]

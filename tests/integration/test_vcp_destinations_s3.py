"""Snapshots at destinations of administrators, with a real S3-compatible store, and its faults (H02, X11)."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import ssl
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.errors import Invalid, StoreError
from tenantry.api.marks import SYSTEM_NAMESPACE
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.hosting.s3.bucket import BucketClient
from tenantry.hosting.s3.signature import AccessKey
from tenantry.local.cluster import LocalCluster
from testkit import ports
from testkit.api import CONFIG_MAPS, SECONDS, SECRETS, Api, until
from testkit.planes import Planes, vcp
from testkit.s3store import KEY, S3Store, s3_store, utc

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

OBJECT = "p/a-1/20260101T000000Z-9.snapshot"


@pytest_asyncio.fixture(scope="session")
async def store(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[S3Store]:
    """A store for all tests of this module."""
    assert tenantry_home
    async with s3_store(tmp_path_factory.mktemp("s3")) as found:
        yield found


async def test_an_object_comes_back_as_it_was(store: S3Store, tmp_path: Path) -> None:
    """H02: also with characters that need escaping; a file with all Secrets is readable by its owner only."""
    file, back = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"abc" * 1000)
    client = store.client()
    keys = [f"p/{name}" for name in ("a-1/x.snapshot", "a-1/y z+é.snapshot", "b-2/x.snapshot")]
    for key in keys:
        await client.send(file, key)
    assert [(each.key, each.size) for each in await client.listed("p/a-1/")] == [(key, 3000) for key in keys[:2]]
    await client.receive(keys[1], back)
    assert back.read_bytes() == file.read_bytes()
    assert back.stat().st_mode & 0o777 == 0o600
    for key in (*keys, keys[0]):
        await client.delete(key)
    assert await client.listed("p/") == []


async def test_a_list_has_all_pages(store: S3Store, tmp_path: Path) -> None:
    """H02: a store gives up to 1,000 keys at once."""
    file = tmp_path / "a"
    file.write_bytes(b"")
    client = store.client()
    for number in range(5):
        await client.send(file, f"many/{number}")
    await client.check("many/")
    assert [each.key for each in await client.listed("many/", page=2)] == [f"many/{number}" for number in range(5)]


async def test_a_file_is_never_in_memory(store: S3Store, tmp_path: Path) -> None:
    """H02: a snapshot may have hundreds of megabytes."""
    file, back = tmp_path / "a", tmp_path / "b"
    with file.open("wb") as made:
        made.truncate(64 * 2**20)
    client = store.client()
    tracemalloc.start()
    try:
        await client.send(file, "large")
        await client.receive("large", back)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert back.stat().st_size == file.stat().st_size
    assert peak < 16 * 2**20


async def test_an_object_that_was_changed_is_refused(store: S3Store, tmp_path: Path) -> None:
    """H02: by a store that loses bytes, or by another user of it."""
    file, back = tmp_path / "a", tmp_path / "b"
    file.write_bytes(b"abc")
    await store.client().send(file, "changed")
    (store.folder / "changed").write_bytes(b"abd")
    with pytest.raises(StoreError, match="its checksum differs"):
        await store.client().receive("changed", back)


async def test_a_foreign_object_is_refused(store: S3Store, tmp_path: Path) -> None:
    """H02: one without the checksum that Tenantry writes."""
    (store.folder / "foreign").write_bytes(b"abc")
    with pytest.raises(StoreError, match="has no checksum"):
        await store.client().receive("foreign", tmp_path / "b")


WRONG = [
    ({"key": AccessKey(identifier=KEY.identifier, secret="wrong")}, "does not accept the access key"),
    ({"key": AccessKey(identifier="AKIAUNKNOWN000000000", secret="wrong")}, "does not accept the access key"),
    ({"bucket": "another"}, "the bucket does not exist"),
    ({"region": "eu-north-1"}, "correct region"),
    ({"endpoint": "https://store.invalid"}, "does not resolve"),
    ({"ca": "nonsense"}, "no certificate in PEM"),
    ({"ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}, "no certificate in PEM"),
    ({"ca": ""}, "the certificate of the store does not verify"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=[words for _, words in WRONG])
async def test_each_fault_has_a_sentence(store: S3Store, changes: dict[str, Any], words: str) -> None:
    """H02: what to do, without addresses and secrets: owners read it."""
    with pytest.raises(StoreError, match=words) as caught:
        await store.client(**changes).listed("p/")
    told = str(caught.value)
    assert told.startswith('destination "offsite": ')
    assert "\n" not in told
    for hidden in ("127.0.0.1", "store.invalid", "wrong", "AKIA", KEY.secret):
        assert hidden not in told


async def test_a_wrong_clock_has_a_sentence(store: S3Store) -> None:
    """H02: signatures are valid for a quarter of an hour."""
    client = store.client(now=lambda: utc() - dt.timedelta(hours=1))
    with pytest.raises(StoreError, match="the clock of the operator's machine differs"):
        await client.listed("p/")


async def test_a_key_without_rights_has_a_sentence(tenantry_home: Path, tmp_path: Path) -> None:
    """H02: what it may not do, and which rights it needs."""
    assert tenantry_home
    file = tmp_path / "a"
    file.write_bytes(b"abc")
    async with s3_store(tmp_path / "store", "--readonly") as store:
        assert await store.client().listed("p/") == []
        with pytest.raises(StoreError, match="no right to store objects"):
            await store.client().send(file, "a")
        assert store.files() == []


async def test_a_store_that_is_away_has_a_sentence(store: S3Store) -> None:
    """H02: it is tried again, and then told."""
    client = store.client(endpoint=f"https://127.0.0.1:{ports.free(1)[0]}")
    with pytest.raises(StoreError, match="the store refuses connections"):
        await client.listed("p/")


async def test_a_redirect_is_not_followed(store: S3Store, tmp_path: Path) -> None:
    """H02: a store could lead the operator to addresses inside of the cluster."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[0])
        writer.write(b"HTTP/1.1 307 x\r\nLocation: /inside\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    keys = store.folder.parent.parent / "pki"
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client: BucketClient = store.client(endpoint=f"https://127.0.0.1:{port}")
        with pytest.raises(StoreError, match="in another region"):
            await client.receive("a", tmp_path / "a")
    assert [each.split()[1] for each in asked] == ["/snapshots/a"]


@asynccontextmanager
async def offered(host: Api, *destinations: Json) -> AsyncGenerator[None]:
    """An administrator lists destinations in TenancyDefaults."""
    wanted = {"virtualControlPlanes": {"snapshotDestinations": list(destinations)}}
    await host.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": wanted})
    try:
        yield
    finally:
        # Other modules create it on the same cluster.
        await host.delete(TenancyDefaults.resource, "default")


async def credentials(host: Api, store: S3Store, secret: str) -> None:
    """Write the Secret of a store."""
    values = {"accessKey": KEY.identifier, "secretKey": secret, "ca": store.bucket.ca}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    if await host.find(SECRETS, "s3", SYSTEM_NAMESPACE) is None:
        await host.create(SECRETS, {"metadata": {"name": "s3"}, "data": data}, SYSTEM_NAMESPACE)
    else:
        await host.patch(SECRETS, "s3", {"data": data}, SYSTEM_NAMESPACE)


def destination(store: S3Store) -> Json:
    """Return a destination in a store."""
    bucket = {"endpoint": store.bucket.endpoint, "bucket": store.bucket.bucket, "prefix": "lab/one"}
    return {"name": "offsite", "s3": {**bucket, "secretRef": {"name": "s3"}}}


async def told(planes: Planes, namespace: str, kind: str) -> str:
    """Return the message of a condition of the control plane web; "" without it."""
    status = (await planes.host.get(VirtualControlPlane.resource, "web", namespace))["status"]
    return next((each["message"] for each in status["conditions"] if each["type"] == kind), "")


async def test_snapshots_are_kept_in_a_store(
    plane_cluster: LocalCluster, planes: Planes, store: S3Store, name: str
) -> None:
    """H02, X11: taken, listed, restored, pruned and deleted as those of the operator's folder; failures are told."""
    host = planes.host
    await host.make_tenant(name)
    await credentials(host, store, "wrong")
    async with offered(host, destination(store)):
        made = await planes.create(name, "web")
        uid = made["metadata"]["uid"]
        spec = {"snapshots": {"destination": "offsite", "keep": 1}}
        await host.patch(VirtualControlPlane.resource, "web", {"spec": spec}, name)
        code, _, err = await vcp(plane_cluster, "snapshot", "web", "-n", name)
        assert code != 0
        assert 'destination "offsite": it does not accept the access key' in err
        assert "it does not accept the access key" in await told(planes, name, "SnapshotsFailing")

        await credentials(host, store, KEY.secret)
        async with planes.entered(name, "web") as inside:
            await inside.create(CONFIG_MAPS, {"metadata": {"name": "kept"}}, "default")
            taken: list[str] = []
            for _ in range(2):
                code, out, err = await vcp(plane_cluster, "snapshot", "web", "-n", name)
                assert code == 0, err
                taken.append(out)
                await inside.create(CONFIG_MAPS, {"metadata": {"name": f"after-{len(taken)}"}}, "default")
            assert [each for each in store.files() if uid in each] == [f"lab/one/{uid}/{taken[1]}"]
            status = (await host.get(VirtualControlPlane.resource, "web", name))["status"]
            assert [each["name"] for each in status["snapshots"]] == taken[1:]
            assert await told(planes, name, "SnapshotsFailing") == ""
            folder = plane_cluster.paths.folder / "hosted-snapshots" / uid
            assert list(folder.iterdir()) == []

            code, _, err = await vcp(plane_cluster, "restore", "web", "-n", name, "--from", taken[0], "--yes")
            assert code != 0
            assert "there is no such snapshot" in err
            code, _, err = await vcp(plane_cluster, "snapshot", "web", "-n", name, "--to", str(folder / "x"))
            assert code != 0
            assert "kept at" in err

            code, _, err = await vcp(plane_cluster, "restore", "web", "-n", name, "--from", taken[1], "--yes")
            assert code == 0, err
            assert await inside.find(CONFIG_MAPS, "kept", "default") is not None
            assert await inside.find(CONFIG_MAPS, "after-1", "default") is not None
            assert await inside.find(CONFIG_MAPS, "after-2", "default") is None
        await planes.delete(name, "web")
        assert [each for each in store.files() if uid in each] == []


async def test_owners_choose_a_name_only(planes: Planes, name: str, tmp_path: Path) -> None:
    """H02: one that does not exist, and a claim on a local cluster, are conditions; the schema refuses the rest."""
    host = planes.host
    await host.make_tenant(name)
    claim = {"name": "volume", "claim": {"name": "backups"}}
    folder = {"name": "mounted", "folder": {"path": str(tmp_path)}}
    store = {"bucket": "abc", "secretRef": {"name": "s3"}}
    for wrong in (
        {"name": "x"},
        claim | {"folder": {"path": "/mnt"}},
        {"name": "x", "folder": {"path": "/mnt/../etc"}},
        {"name": "x", "s3": store | {"endpoint": "http://x.example"}},
        {"name": "x", "s3": store | {"endpoint": "https://u@x.example/p"}},
        {"name": "x", "s3": store | {"endpoint": "https://x.example", "prefix": "a/../b"}},
    ):
        with pytest.raises(Invalid):
            await host.create(
                TenancyDefaults.resource,
                {
                    "metadata": {"name": "default"},
                    "spec": {"virtualControlPlanes": {"snapshotDestinations": [wrong]}},
                },
            )
    async with offered(host, claim, folder):
        made = await planes.create(name, "web")
        uid = made["metadata"]["uid"]
        for wanted, words in {"another": "there is no destination", "volume": "is a claim"}.items():
            spec = {"snapshots": {"destination": wanted, "request": wanted}}
            await host.patch(VirtualControlPlane.resource, "web", {"spec": spec}, name)

            async def refused(words: str = words) -> bool:
                found = [await told(planes, name, kind) for kind in ("Stalled", "SnapshotsFailing")]
                return all(words in each for each in found)

            await until(refused, f"the conditions say that it {words}", seconds=SECONDS)
        spec = {"snapshots": {"destination": "mounted", "request": "c"}}
        await host.patch(VirtualControlPlane.resource, "web", {"spec": spec}, name)

        async def taken() -> bool:
            status = (await host.get(VirtualControlPlane.resource, "web", name))["status"]
            return bool(status["lastSnapshot"]["requested"] == "c")

        await until(taken, "the snapshot is taken", seconds=SECONDS)
        status = (await host.get(VirtualControlPlane.resource, "web", name))["status"]
        assert [each.name for each in (tmp_path / uid).iterdir()] == [status["lastSnapshot"]["snapshot"]]
        assert (tmp_path / uid).stat().st_mode & 0o777 == 0o700
        await planes.delete(name, "web")
        assert not (tmp_path / uid).exists()

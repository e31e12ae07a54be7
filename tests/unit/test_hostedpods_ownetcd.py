"""Control planes in Pods with an etcd of their own: what the Pod and its Jobs have (H03)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import checks, jobs, objects, ownetcd
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.storeway import StoreWay
from tenantry.hosting import etcdserver, stores
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import HostedStore, StoreKind
from tenantry.world.shares.amounts import read
from testkit.model import World
from testkit.worldclient import WorldClient

Json = dict[str, Any]

UID = "0b5f3a52-7d7e-4c3a-9a52-7f6b1b8c9d10"
SETTINGS = PodSettings(image="registry.example/hosted:1", storage_class="fast")
WAY = StoreWay(
    socket=stores.ETCD_SOCKET,
    containers=ownetcd.containers(UID, SETTINGS.image),
    volumes=ownetcd.volumes(UID),
    files={"store-ca.crt": b"a", "store.crt": b"c", "store.key": b"k"},
    own={"server.key": b"s"},
)
FILES = {"settings.json": b"{}", **WAY.files}


def made(way: StoreWay = WAY, *, has_audit_log: bool = False) -> Json:
    """Return the StatefulSet of a control plane."""
    return objects.stateful_set(UID, SETTINGS, None, FILES, {}, way=way, has_audit_log=has_audit_log)


def test_the_etcd_runs_and_knows_its_user_before_the_process_starts() -> None:
    pod = made()["spec"]["template"]["spec"]
    etcd, admit, keeper = pod["initContainers"]
    assert [each["name"] for each in (etcd, admit, keeper)] == ["etcd", "admit", "etcd-keeper"]
    # Kubernetes starts them in this order, and the next one after `admit` has ended.
    assert [each.get("restartPolicy") for each in (etcd, admit, keeper)] == ["Always", None, "Always"]
    assert admit["command"] == [
        *("/hosted", "etcd", "/keeper/root.json", "admit"),
        *(f"plane-{UID}", f"/planes/{UID}"),
    ]
    assert [each["name"] for each in pod["containers"]] == ["hosted", "sidecar"]


def test_the_etcd_and_its_keeper_request_what_the_quota_is_charged() -> None:
    """H01, VCP-32: no more, also while the container between them runs, which Kubernetes adds to the etcd alone."""
    etcd, admit, keeper = (read(_amounts(each["resources"])) for each in ownetcd.containers(UID, SETTINGS.image))
    both = {key: etcd[key] + keeper[key] for key in etcd}
    assert both == read(etcdserver.OWN_CHARGE)
    assert all(etcd[key] + admit[key] <= both[key] for key in both)


def _amounts(resources: Json) -> dict[str, str]:
    return {f"{kind}.{key}": amount for kind, of in resources.items() for key, amount in of.items()}


def test_an_audit_log_changes_neither_the_etcd_nor_the_job_of_snapshots() -> None:
    plain, audited = made(), made(has_audit_log=True)
    datastore = plain["spec"]["template"]["spec"]["initContainers"]
    *before, printing = audited["spec"]["template"]["spec"]["initContainers"]
    assert (before, printing["name"]) == (datastore, objects.AUDIT)
    assert jobs.of_data(UID, audited, "")["spec"]["template"]["spec"]["initContainers"] == datastore


def test_no_port_leads_to_the_etcd() -> None:
    pod = made()["spec"]["template"]["spec"]
    etcd, _, keeper = pod["initContainers"]
    (urls,) = (each for each in etcd["command"] if each.startswith("--listen-client-urls="))
    assert urls == "--listen-client-urls=unixs:///sockets/etcd.sock"
    # Peers write without a user; the process has a certificate that this port accepts, and not this folder.
    assert "--listen-peer-urls=unixs://peer.sock" in etcd["command"]
    assert etcd["workingDir"] == "/peer"
    assert keeper["command"][3:] == ["keep", "", "", "", "/data/backup.db"]
    assert not any("ports" in each for each in pod["initContainers"])


def test_the_process_has_neither_the_keys_nor_the_volume_of_the_etcd() -> None:
    pod = made()["spec"]["template"]["spec"]
    mounted = {each["name"]: {mount["name"] for mount in each["volumeMounts"]} for each in pod["containers"]}
    for names in mounted.values():
        assert names.isdisjoint({"etcd", "etcd-files-server", "etcd-files-root", "etcd-peer"})
    (root,) = (each for each in pod["volumes"] if each["name"] == "etcd-files-root")
    assert root["secret"]["secretName"] == f"hosted-{UID}-etcd"
    claims = [each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"] if "persistentVolumeClaim" in each]
    assert claims == [f"hosted-{UID}", f"hosted-{UID}-etcd"]
    claim = ownetcd.claim(UID, SETTINGS)
    assert (claim["metadata"]["name"], claim["spec"]["storageClassName"]) == (claims[1], "fast")


def test_a_renewed_certificate_of_the_etcd_replaces_the_pod() -> None:
    before, after = made(), made(replace(WAY, own={"server.key": b"t"}))
    assert objects.digest_of(before) != objects.digest_of(after)


def test_snapshots_are_kept_in_the_volume_and_jobs_start_the_etcd() -> None:
    found = made()
    assert jobs.keeps_snapshots(found)
    job = jobs.of_data(UID, found, "")["spec"]["template"]["spec"]
    assert job["initContainers"] == found["spec"]["template"]["spec"]["initContainers"]
    assert {"name": "etcd", "persistentVolumeClaim": {"claimName": f"hosted-{UID}-etcd"}} in job["volumes"]
    # Kubernetes refuses a Pod otherwise.
    for lists in (("initContainers", "containers"), ("volumes",)):
        names = [each["name"] for key in lists for each in job[key]]
        assert len(names) == len(set(names))


def test_one_process_has_the_etcd() -> None:
    store = HostedStore(kind=StoreKind.OWN_ETCD)
    plane = HostedPlane(uid=UID, name="acme.web", issuer="https://a-1.example", owner="owner:1", store=store)
    checks.check(plane)
    with pytest.raises(InputError, match="must be 1 unless the datastore is SharedEtcd or External, where"):
        checks.check(replace(plane, replicas=2))


def test_keys_are_issued_once_and_go_with_the_etcd(tmp_path: Path) -> None:
    """H03: the Pod gets neither the key of the authority nor, in the Secret of the etcd, that of the process."""
    world = World()
    world.create(Namespace(metadata=ObjectMeta(name=PROCESS_NAMESPACE)))
    world.put_in(objects.SECRETS, {"metadata": {"name": "other", "namespace": PROCESS_NAMESPACE}})
    etcds = ownetcd.OwnEtcds(WorldClient(world, lambda: "none"), SETTINGS.image, tmp_path)

    def kept() -> set[str]:
        return {each["metadata"]["name"] for each in world.list(objects.SECRETS)} - {"other"}

    way = asyncio.run(etcds.attach(UID))
    assert asyncio.run(etcds.attach(UID)) == way
    assert way.renewal is not None
    assert set(way.files) == {"store-ca.crt", "store.crt", "store.key"}
    assert set(way.own) == {"etcd-ca.crt", "server.crt", "server.key", "root.crt", "root.key", "root.json"}
    assert kept() == {ownetcd.name(UID), ownetcd.keys_name(UID)}
    for _ in range(2):
        asyncio.run(etcds.detach(UID))
        assert kept() == set()

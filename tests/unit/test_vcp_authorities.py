"""Copies of the authorities of control planes that nodes join, in Secrets as Cluster API names them (H04)."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.ownnamespaces import HOSTED_PREFIX
from tenantry.api.virtualcontrolplane import (
    DatastoreKind,
    PlaneDatastore,
    PlaneNodes,
    VirtualControlPlane,
    VirtualControlPlaneSpec,
)
from tenantry.controllers.virtualcontrolplane import authorityobjects, desired, kubeconfigobjects
from tenantry.controllers.virtualcontrolplane.authoritycopies import AuthorityCopies
from tenantry.controllers.virtualcontrolplane.hostednamespaces import HostedNamespaces
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjectController, HostObjects
from tenantry.controllers.virtualcontrolplane.unplaced import UnplacedController
from tenantry.engine.observed import Observed
from tenantry.hosting import authorities, stores
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import StoreKind
from tenantry.local import etcds, hostedfolders, hostedpki, pki
from tenantry.local.hosted import LocalPlacement
from tenantry.local.hostedauthorities import LocalAuthorities
from tenantry.local.paths import ClusterPaths
from testkit.model import World
from testkit.worldcluster import WorldCluster

UID = "0f1e2d3c-0000-4000-8000-000000000001"
OWN = PlaneDatastore(kind=DatastoreKind.OWN_ETCD)
PROD = VirtualControlPlane(
    metadata=ObjectMeta(name="prod", namespace="acme", uid=UID),
    spec=VirtualControlPlaneSpec(nodes=PlaneNodes.OWN, datastore=OWN),
)
ACME = Observed("acme", "", "acme", "u-acme", 1, {}, {}, "", deleting=False, digest=b"", has_subjects=False)
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
PLANE = HostedPlane(uid=UID, name="acme.prod", issuer="https://x", owner="o", has_nodes=True)
SECRETS = ["prod-ca", "prod-etcd", "prod-proxy", "prod-sa", "prod-users"]


@pytest.fixture
def paths(tmp_path: Path) -> ClusterPaths:
    """The folder of a local cluster with one control plane, whose certificates are issued."""
    found = ClusterPaths(tmp_path)
    own = hostedfolders.of(found, UID)
    own.mkdir(parents=True)
    hostedpki.issue(own / "pki", PLANE, NOW)
    pki.ensure(etcds.folder(found, UID, is_shared=False) / "pki", stores.etcd_leaves(), NOW)
    return found


class _Host:
    """The host's API server with the namespace of a tenant and its control plane."""

    def __init__(self, paths: ClusterPaths) -> None:
        self.world = World()
        self.world.put_in(Namespace.resource, {"metadata": {"name": "acme", "uid": ACME.uid}})
        self.world.create(PROD)
        for resource in (desired.SECRETS, kubeconfigobjects.ROLES, desired.ROLE_BINDINGS):
            self.world.put_in(resource, {"metadata": {"name": "first", "namespace": "acme"}})
        home = WorldCluster(self.world, [UnplacedController()])
        self.cluster = WorldCluster(self.world, [HostObjectController(home)])
        objects = HostObjects(self.cluster)
        self.namespaces = HostedNamespaces(self.cluster, objects)
        self.copies = AuthorityCopies(objects, self.namespaces, LocalPlacement(paths))
        self.place = authorityobjects.place(UID)

    def bring(self) -> bool:
        self.cluster.look()
        is_back = asyncio.run(self.copies.bring(PROD, ACME))
        self.cluster.look()
        return is_back

    def secrets(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.world.list(desired.SECRETS, self.place)}


def _files(paths: ClusterPaths) -> dict[str, bytes]:
    return asyncio.run(LocalAuthorities(paths).read(UID))


def test_authorities_are_in_secrets_as_cluster_api_names_them(paths: ClusterPaths) -> None:
    """H04: in a namespace in which no tenant has a role, and which ends with that of the tenant."""
    host = _Host(paths)
    assert not host.bring()
    space = host.world.get(Namespace.resource, host.place)
    assert host.place.startswith(HOSTED_PREFIX)
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert [each["uid"] for each in space["metadata"]["ownerReferences"]] == [ACME.uid]
    found = host.secrets()
    assert sorted(found) == SECRETS
    for each in found.values():
        assert each["type"] == "cluster.x-k8s.io/secret"
        assert each["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"] == "prod"
        assert sorted(each["data"]) == ["tls.crt", "tls.key"]
    own = hostedfolders.of(paths, UID) / "pki"
    assert base64.b64decode(found["prod-ca"]["data"]["tls.crt"]) == (own / "ca.crt").read_bytes()
    assert base64.b64decode(found["prod-sa"]["data"]["tls.key"]) == (own / "service-account.key").read_bytes()


def test_what_is_deleted_or_edited_is_brought_back(paths: ClusterPaths) -> None:
    """H04: one Secret, or all with their namespace."""
    host = _Host(paths)
    host.bring()
    before = {name: each["data"] for name, each in host.secrets().items()}
    host.world.patch(desired.SECRETS, f"{host.place}/prod-ca", {"data": {"tls.crt": "eA=="}})
    host.world.delete(desired.SECRETS, f"{host.place}/prod-sa")
    host.bring()
    assert {name: each["data"] for name, each in host.secrets().items()} == before


def test_a_place_that_has_lost_its_authorities_gets_the_same_ones(paths: ClusterPaths) -> None:
    """H04: clients and nodes go on, because the same authorities issue the certificates anew."""
    host = _Host(paths)
    host.bring()
    before = _files(paths)
    own = hostedfolders.of(paths, UID) / "pki"
    shutil.rmtree(own)
    assert _files(paths) == {}
    assert host.bring()
    assert not host.bring()
    assert _files(paths) == before
    hostedpki.issue(own, PLANE, NOW)
    assert _files(paths)["ca.key"] == before["ca.key"]
    assert (own / "server.crt").exists()


def test_nothing_is_put_back_that_is_incomplete(paths: ClusterPaths) -> None:
    """H04: a part of the authorities with others made anew would fit nothing."""
    host = _Host(paths)
    host.bring()
    host.world.delete(desired.SECRETS, f"{host.place}/prod-users")
    shutil.rmtree(hostedfolders.of(paths, UID) / "pki")
    assert not host.bring()
    assert _files(paths) == {}


def test_authorities_that_are_there_are_never_replaced_by_a_copy(paths: ClusterPaths) -> None:
    """H04: a copy may be of before a rotation."""
    before = _files(paths)
    other: Mapping[str, bytes] = {**before, "ca.crt": b"other"}
    asyncio.run(LocalAuthorities(paths).put_back(UID, other, StoreKind.OWN_ETCD))
    assert _files(paths) == before
    assert authorities.of({**before, authorities.INDEX: b"damaged"}) == {}


def test_they_end_with_the_control_plane(paths: ClusterPaths) -> None:
    """H04: with their namespace; a second time does nothing."""
    host = _Host(paths)
    host.bring()
    asyncio.run(host.namespaces.remove(UID))
    assert "deletionTimestamp" in host.world.get(Namespace.resource, host.place)["metadata"]
    asyncio.run(host.namespaces.remove(UID))


def test_a_kubeconfig_has_the_key_of_cluster_api() -> None:
    """H04: programs that know clusters of Cluster API read it."""
    for nodes, keys in ((PlaneNodes.OWN, ["kubeconfig", "value"]), (PlaneNodes.USED, ["kubeconfig"])):
        found = VirtualControlPlane(metadata=PROD.metadata, spec=VirtualControlPlaneSpec(nodes=nodes))
        assert sorted(kubeconfigobjects.secret(found, ACME, "text")[1]["data"]) == keys

"""Views read from a client of the command, and from the reader of a cluster that an operator has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tenantry.api.errors import NotFound
from tenantry.api.model import ObjectMeta
from tenantry.api.quota import Quota
from tenantry.api.requests import ClusterRoleRequest, ClusterRoleRequestSpec, RequestedClusterRole
from tenantry.api.slice import SliceClaim, SliceClaimSpec
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.engine.reader import ObjectReader, Reader
from tenantry.views import claims, description, quotas, requests, snapshot, tree
from testkit.model import World
from testkit.treeworld import add_subnamespace, settle, world_of
from testkit.worldclient import WorldClient


@pytest.fixture(scope="module")
def readers() -> Sequence[ObjectReader]:
    """A client, and a cluster's reader, of a world with a tenant, a Subnamespace, a claim and a request."""
    world: World = world_of(quota={"requests.cpu": "4"})
    add_subnamespace(world, quota=Quota(hard={"requests.cpu": "1"}))
    settle(world)
    world.create(SliceClaim(metadata=ObjectMeta(name="fast", namespace="acme"), spec=SliceClaimSpec(count=2)))
    spec = ClusterRoleRequestSpec(role_ref=RequestedClusterRole(name="view"), justification="the leak")
    world.create(VirtualControlPlane(metadata=ObjectMeta(name="web", namespace="acme")))
    world.create(ClusterRoleRequest(metadata=ObjectMeta(name="leak"), spec=spec))
    client = WorldClient(world, lambda: "")
    return [client, Reader(client)]


def test_trees_and_quotas(readers: Sequence[ObjectReader]) -> None:
    for reader in readers:
        (acme,), root = asyncio.run(tree.read(reader, (), "", only=False))
        assert root is None
        assert acme.ready
        assert [child.subnamespace for child in acme.namespaces[0].children] == ["team"]
        below = asyncio.run(tree.read(reader, (), "acme", only=True))[1]
        assert below is not None
        assert [child.subnamespace for child in below.children] == ["team"]
        assert [plane.name for plane in below.planes] == ["web"]
        assert acme.namespaces[0].planes == below.planes
        (quota,) = quotas.quotas(asyncio.run(snapshot.read(reader)))
        assert [share.depth for share in quota.tree] == [0, 1]


def test_a_tenant_that_does_not_exist_is_not_found(readers: Sequence[ObjectReader]) -> None:
    for reader in readers:
        with pytest.raises(NotFound):
            asyncio.run(tree.read(reader, ("globex",), "globex", only=False))


def test_descriptions(readers: Sequence[ObjectReader]) -> None:
    for reader in readers:
        found = asyncio.run(description.read_tenant(reader, "acme"))
        assert found.owns_namespace
        assert [each.metadata.name for each in found.subnamespaces or ()] == ["team"]
        assert found.pods == 0
        claim = asyncio.run(description.read_object(reader, SliceClaim, "fast", "acme"))
        assert claim.value.metadata.name == "fast"


def test_claims_and_requests(readers: Sequence[ObjectReader]) -> None:
    for reader in readers:
        (claim,) = claims.claims(asyncio.run(claims.read(reader, "", "")))
        assert (claim.namespace, claim.name, claim.count, claim.part) == ("acme", "fast", 2, {})
        (request,) = asyncio.run(requests.read(reader, "")).requests
        view = requests.view(request)
        assert (view.kind, view.wants, view.decision) == ("ClusterRoleRequest", "ClusterRole view", "Pending")
        assert asyncio.run(requests.read(reader, "acme")).requests == []

"""What a cluster has around its tenants: addresses of nodes, a sandbox, zones; controllers in a world without I/O."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api import marks, reasons
from tenantry.api.contribution import PREFIX, read, register
from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import ClusterNetworkPolicy, Namespace, NetworkPolicy
from tenantry.api.model import ObjectMeta
from tenantry.api.node import Node
from tenantry.api.runtime import RuntimeChoice, RuntimeClass
from tenantry.api.subnamespace import (
    Inheritance,
    InheritanceMode,
    Mode,
    Subnamespace,
    SubnamespaceIsolation,
    SubnamespaceSpec,
)
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import NetworkIsolation, Tenant
from tenantry.controllers.frozeninput import WINDOW_SECONDS
from tenantry.controllers.network import OUTSIDE_POLICY
from tenantry.controllers.operator import controllers
from tenantry.world.naming import child_name
from testkit.model import Json, World
from testkit.worldcluster import WorldCluster
from testkit.worlds import CLUSTER_UID, tenant, user

CHILD = child_name("acme-uid", "acme", "team")
PEOPLE = Inheritance(role_bindings=InheritanceMode.SYNC)


def _world(**fields: Any) -> tuple[World, WorldCluster]:  # noqa: ANN401 - any argument of `tenant`
    world = World()
    world.put_in(Namespace.resource, {"metadata": {"name": marks.SYSTEM_NAMESPACE}})
    world.create(tenant("acme", **fields))
    cluster = WorldCluster(world, controllers(CLUSTER_UID), optional=[ClusterNetworkPolicy.resource])
    cluster.settle(10)
    return world, cluster


def _sub(world: World, mode: Mode = Mode.WORKSPACE, runtime: RuntimeChoice | None = None) -> None:
    is_workspace = mode is Mode.WORKSPACE
    spec = SubnamespaceSpec(
        mode=mode,
        inheritance=PEOPLE if is_workspace else Inheritance(),
        owners=() if is_workspace else (user("carl"),),
        isolation=SubnamespaceIsolation() if runtime is None else SubnamespaceIsolation(runtime=runtime),
    )
    meta = ObjectMeta(name="team", namespace="acme", creation_timestamp="2026-01-01T00:00:00Z")
    world.create(Subnamespace(metadata=meta, spec=spec))


# -- addresses ------------------------------------------------------------------------------------


def _node(world: World, name: str, address: str) -> None:
    addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
    world.put_in(Node.resource, {"metadata": {"name": name}, "spec": {}, "status": {"addresses": addresses}})


def _kept(world: World, namespace: str) -> list[str]:
    """Return the addresses outside of the cluster's pods that a namespace's pods may not reach."""
    try:
        policy = world.get(NetworkPolicy.resource, f"{namespace}/{OUTSIDE_POLICY}")
    except NotFound:
        return []
    peers = [peer["ipBlock"] for rule in policy["spec"]["egress"] for peer in rule.get("to", ()) if "ipBlock" in peer]
    return sorted({each for block in peers for each in block.get("except", ())})


def test_pods_of_a_tree_cannot_reach_the_nodes_whenever_these_come() -> None:
    """E08: several nodes within a moment cost one change of each policy."""
    world, cluster = _world(network=NetworkIsolation.BASELINE)
    _sub(world)
    cluster.settle(30)
    _node(world, "n-1", "192.0.2.1")
    cluster.settle(0)
    assert "192.0.2.1/32" not in _kept(world, "acme"), "changes are collected for a moment"
    _node(world, "n-2", "192.0.2.9")
    cluster.settle(WINDOW_SECONDS)
    for namespace in ("acme", CHILD):
        assert {"192.0.2.1/32", "192.0.2.9/32"} <= set(_kept(world, namespace))
    version = world.get(NetworkPolicy.resource, f"acme/{OUTSIDE_POLICY}")["metadata"]["resourceVersion"]
    world.patch(Node.resource, "n-1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    cluster.settle(60)
    assert world.get(NetworkPolicy.resource, f"acme/{OUTSIDE_POLICY}")["metadata"]["resourceVersion"] == version
    world.delete(Node.resource, "n-1")
    cluster.settle(60)
    assert "192.0.2.1/32" not in _kept(world, "acme")


def test_the_gateways_of_pods_are_addresses_of_nodes() -> None:
    """H06: kubelet and every other listener of a node answer there, too; an administrator may name further ones."""
    world, cluster = _world(network=NetworkIsolation.BASELINE)
    _node(world, "n-1", "192.0.2.1")
    world.patch(Node.resource, "n-1", {"spec": {"podCIDRs": ["10.1.3.0/24", "2001:db8:3::/64"]}})
    world.patch(Node.resource, "n-1", {"metadata": {"annotations": {marks.NODE_ADDRESSES: "10.1.3.9, 192.0.2.64/30"}}})
    cluster.settle(60)
    expected = {"192.0.2.1/32", "10.1.3.0/31", "2001:db8:3::/127", "10.1.3.9/32", "192.0.2.64/30"}
    assert expected <= set(_kept(world, "acme"))


def test_the_addresses_of_a_contributed_node_come_from_its_record() -> None:
    """H06, E19: whatever the node reports of itself cuts no tenant off."""
    world, cluster = _world(network=NetworkIsolation.BASELINE)
    node = f"{PREFIX}abc123"
    record = {"tenant": "acme", "addresses": "192.0.2.7", "podCidrs": "10.1.4.0/24"}
    world.create(register({node: read(record)}))
    _node(world, node, "203.0.113.80")
    cluster.settle(60)
    found = _kept(world, "acme")
    assert {"192.0.2.7/32", "10.1.4.0/31"} <= set(found)
    assert "203.0.113.80/32" not in found
    assert world.get(Node.resource, node)["spec"]["podCIDRs"] == ["10.1.4.0/24"]


def _recorded(world: World, node: str) -> dict[str, str] | None:
    found = world.get(Node.resource, node)["status"].get("conditions", [])
    return next((each for each in found if each["type"] == "TenantryAddressesRecorded"), None)


def test_a_node_without_a_record_has_a_condition() -> None:
    """H06: an administrator learns it, and what to set; a node with a record, and a contributed one, has none."""
    world, cluster = _world(network=NetworkIsolation.BASELINE)
    for name, address in (("n-1", "192.0.2.1"), ("n-2", "192.0.2.2"), (f"{PREFIX}abc123", "192.0.2.3")):
        _node(world, name, address)
    world.patch(Node.resource, "n-2", {"spec": {"podCIDRs": ["10.1.3.0/24"]}})
    ready = {"type": "Ready", "status": "True"}
    world.patch(Node.resource, "n-1", {"status": {"conditions": [ready]}})
    cluster.settle(60)

    found = _recorded(world, "n-1")
    assert found is not None
    assert (found["status"], found["reason"]) == ("False", "NoRecord")
    assert marks.NODE_ADDRESSES in found["message"]
    assert ready in world.get(Node.resource, "n-1")["status"]["conditions"]
    assert _recorded(world, "n-2") is None
    assert _recorded(world, f"{PREFIX}abc123") is None

    before = world.get(Node.resource, "n-1")["metadata"]["resourceVersion"]
    cluster.settle(60)
    assert world.get(Node.resource, "n-1")["metadata"]["resourceVersion"] == before
    world.patch(Node.resource, "n-1", {"metadata": {"annotations": {marks.NODE_ADDRESSES: "10.1.9.1"}}})
    cluster.settle(60)
    found = _recorded(world, "n-1")
    assert found is not None
    assert (found["status"], found["reason"]) == ("True", "AddressesRecorded")


def test_addresses_of_administrators_are_kept_from_tenants_too() -> None:
    world, cluster = _world(network=NetworkIsolation.BASELINE)
    network = {"keptCidrs": ["198.51.100.0/24"]}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"network": network}})
    cluster.settle(60)
    assert "198.51.100.0/24" in _kept(world, "acme")


def test_the_addresses_of_dns_concern_isolated_tenants_as_well() -> None:
    world, cluster = _world(network=NetworkIsolation.ISOLATED)
    network = {"dnsAddresses": ["203.0.113.53"]}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"network": network}})
    cluster.settle(60)
    policies = world.list(NetworkPolicy.resource, "acme")
    assert "203.0.113.53/32" in str([each["spec"] for each in policies])


def test_zones_of_an_open_tenant_are_kept_apart_by_cluster_policies() -> None:
    """E08: a policy for each zone from the first Subtenant on."""
    world, cluster = _world(network=NetworkIsolation.OPEN, cluster_policy=True)
    assert [each["metadata"]["name"] for each in world.list(ClusterNetworkPolicy.resource)] == ["tenantry-acme"]
    _sub(world, Mode.SUBTENANT)
    cluster.settle(60)
    uid = world.get(Subnamespace.resource, "acme/team")["metadata"]["uid"]
    found = {each["metadata"]["name"]: each["spec"]["priority"] for each in world.list(ClusterNetworkPolicy.resource)}
    assert found == {"tenantry-acme": 100, "tenantry-acme.zone-acme-uid": 99, f"tenantry-acme.zone-{uid}": 99}
    world.delete(Subnamespace.resource, "acme/team")
    for _ in range(3):
        cluster.settle(60)
        world.finish_deletions()
    cluster.settle(60)
    assert [each["metadata"]["name"] for each in world.list(ClusterNetworkPolicy.resource)] == ["tenantry-acme"]


# -- the sandbox ----------------------------------------------------------------------------------


def _sandboxed(world: World, *, of_child: bool = False) -> tuple[str, str]:
    found = world.get(Subnamespace.resource, "acme/team") if of_child else world.get(Tenant.resource, "acme")
    conditions: list[Json] = found["status"]["conditions"]
    return next(((each["reason"], each["message"]) for each in conditions if each["type"] == "Sandboxed"), ("", ""))


def _runtime(world: World, namespace: str = "acme") -> str:
    return world.get(Namespace.resource, namespace)["metadata"]["labels"].get(marks.RUNTIME, "")


def test_pods_share_the_kernel_until_the_cluster_has_a_sandbox() -> None:
    """E14: by default, the sandbox is preferred, and its absence is reported."""
    world, cluster = _world()
    assert (_sandboxed(world)[0], _runtime(world)) == (reasons.KERNEL_SHARED, "")
    world.put_in(RuntimeClass.resource, {"metadata": {"name": "gvisor"}, "handler": "runsc"})
    cluster.settle(10)
    assert (_sandboxed(world)[0], _runtime(world)) == (reasons.RUNTIME_CLASS_IN_FORCE, marks.RUNTIME_PREFERRED)
    world.patch(Tenant.resource, "acme", {"spec": {"isolation": {"runtime": "Shared"}}})
    cluster.settle(10)
    assert (_sandboxed(world)[0], _runtime(world)) == ("", "")


@pytest.mark.parametrize("named", ["", "kata"])
def test_a_sandbox_that_is_required_and_absent_is_reported_with_the_rule_that_refuses_pods(named: str) -> None:
    world, cluster = _world()
    spec = {"sandbox": {"runtimeClassName": named}} if named else {}
    world.put_in(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": spec})
    world.patch(Tenant.resource, "acme", {"spec": {"isolation": {"runtime": "Sandboxed"}}})
    cluster.settle(60)
    reason, message = _sandboxed(world)
    assert (reason, _runtime(world)) == (reasons.NO_RUNTIME_CLASS, marks.RUNTIME_SANDBOXED)
    assert (f"RuntimeClass {named!r}" in message) is bool(named)
    world.put_in(RuntimeClass.resource, {"metadata": {"name": "kata"}, "handler": "kata-qemu"})
    cluster.settle(60)
    assert _sandboxed(world)[0] == reasons.RUNTIME_CLASS_IN_FORCE
    world.patch(RuntimeClass.resource, "kata", {"handler": "runc", "metadata": {"labels": {marks.SANDBOX: "false"}}})
    cluster.settle(60)
    assert _sandboxed(world)[0] == (reasons.RUNTIME_CLASS_IN_FORCE if named else reasons.NO_RUNTIME_CLASS)


def test_a_child_can_be_sandboxed_below_a_tenant_that_is_not() -> None:
    world, cluster = _world()
    world.patch(Tenant.resource, "acme", {"spec": {"isolation": {"runtime": "Shared"}}})
    world.put_in(RuntimeClass.resource, {"metadata": {"name": "gvisor"}, "handler": "runsc"})
    _sub(world, runtime=RuntimeChoice.SANDBOXED)
    cluster.settle(60)
    assert (_runtime(world), _runtime(world, CHILD)) == ("", marks.RUNTIME_SANDBOXED)
    assert _sandboxed(world, of_child=True)[0] == reasons.RUNTIME_CLASS_IN_FORCE

"""What contributed nodes add to a quota, before the operator's controllers, in a world without I/O (X03)."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.contribution import REGISTER, Contribution, key_of, register
from tenantry.api.kubernetes import Namespace, ResourceQuota
from tenantry.api.node import Node
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.controllers.slices.pods import Pod
from testkit.sliceworld import SliceWorld

Json = dict[str, Any]
NODE = "contributed-abc123"
AGREED = "cpu:3,memory:8Gi"


def brought(*, cpu: str = "4", capacity: str = AGREED, tenant: str = "acme", quota: str = "2") -> SliceWorld:
    """Return a tenant whose quota of CPUs is smaller than the node that it has contributed."""
    there = SliceWorld(quota={"cpu": quota, "pods": 20})
    record = Contribution(tenant=tenant, capacity=capacity, addresses="192.0.2.7")
    there.world.put_in(Namespace.resource, {"metadata": {"name": "tenantry-system"}})
    there.world.create(register({NODE: record}))
    there.node(NODE, cpu=cpu)
    there.settle()
    there.enforce_quotas()
    return there


def cpus(there: SliceWorld, namespace: str = "acme") -> str:
    """Return the CPUs of the ResourceQuota of a namespace."""
    return str(there.world.get(ResourceQuota.resource, f"{namespace}/tenantry-quota")["spec"]["hard"]["requests.cpu"])


def the_slice(there: SliceWorld, name: str) -> Json:
    return there.world.get(Slice.resource, name)


def test_a_tenant_with_a_small_quota_claims_the_node_that_it_brought() -> None:
    """X03: it is not charged; the agreed capacity is added, and goes back before anything else at the end."""
    there = brought()
    name = there.claim()
    there.enforce_quotas()
    assert there.state() == ("Bound", "NodesBound")
    assert the_slice(there, name)["spec"].get("charge", {}) == {}
    assert cpus(there) == "5"
    assert "add requests.cpu=3 to the quota of namespace 'acme'" in there.message()
    there.world.delete(SliceClaim.resource, "acme/web")
    there.settle(3)
    # Kubernetes has not enforced the smaller quota yet: the namespace is still bound to the slice.
    assert cpus(there) == "2"
    there.enforce_quotas()
    assert (there.slices, there.label()) == ([], "")


@pytest.mark.parametrize(("reported", "counted"), [("1000", "5"), ("1", "3")])
def test_what_a_node_reports_adds_nothing_beyond_what_was_agreed(reported: str, counted: str) -> None:
    """X03: the smaller one of both counts."""
    there = brought(cpu=reported)
    there.claim()
    there.enforce_quotas()
    assert cpus(there) == counted


@pytest.mark.parametrize("record", [{"capacity": ""}, {"tenant": "others"}])
def test_a_node_without_an_agreed_capacity_for_the_tenant_is_charged(record: dict[str, str]) -> None:
    """X03: as before, and the quota does not cover it; labels of the node count for nothing."""
    there = brought(**record)
    there.world.patch(Node.resource, NODE, {"metadata": {"labels": {"tenantry.dev/contributed-by": "acme"}}})
    there.world.patch(Node.resource, NODE, {"spec": {"taints": []}})
    there.claim()
    there.enforce_quotas()
    assert there.state()[0] == "Pending"
    assert cpus(there) == "2"


def test_nothing_is_added_while_pods_of_the_namespace_run_elsewhere() -> None:
    """X03: what the node adds would be spent on other nodes."""
    there = brought()
    there.node("n-1")
    old = there.pod("old", "n-1", namespace="acme")
    there.claim(nodeNames=[NODE])
    there.enforce_quotas()
    assert there.state() == ("Bound", "NodesBound")
    assert cpus(there) == "2"
    assert "delete or restart 'acme/old'" in there.message()
    there.world.delete(Pod.resource, old)
    there.enforce_quotas()
    assert cpus(there) == "5"


def test_what_a_node_adds_goes_back_when_the_node_leaves_or_less_is_agreed_on() -> None:
    """X03: the record decides, also for a node that is in use."""
    there = brought()
    there.claim()
    there.enforce_quotas()
    assert cpus(there) == "5"
    less = register({NODE: Contribution(tenant="acme", capacity="cpu:1", addresses="192.0.2.7")})
    key = key_of(NODE)
    there.world.patch(
        PolicyParameters.resource,
        f"tenantry-system/{REGISTER}",
        {"metadata": {"annotations": {key: less.metadata.annotations[key]}}},
    )
    there.enforce_quotas()
    assert cpus(there) == "3"
    there.world.delete(Node.resource, NODE)
    there.enforce_quotas()
    assert cpus(there) == "2"


def test_a_namespace_keeps_its_label_until_its_quota_has_shrunk() -> None:
    """X03: also with another operator that finds neither the claim nor the Slice."""
    there = brought()
    name = there.claim()
    there.enforce_quotas()
    assert cpus(there) == "5"
    there.world.delete(SliceClaim.resource, "acme/web")
    there.world.delete(Slice.resource, name)
    there.restart()
    seen: list[tuple[str, str]] = []
    for _ in range(40):
        there.settle(0.2)
        seen.append((there.label(), cpus(there)))
    there.enforce_quotas()
    assert ("", "5") not in seen
    assert (there.label(), cpus(there)) == ("", "2")


def test_a_restart_of_the_operator_takes_nothing_back() -> None:
    """X03: what was added stays while the slice stays."""
    there = brought()
    there.claim()
    there.enforce_quotas()
    there.restart()
    for _ in range(10):
        there.settle(0.2)
        assert cpus(there) == "5"


def test_what_the_node_adds_is_not_there_for_other_namespaces() -> None:
    """X03: a child gets of the tenant's quota only, however much its parent has of the node."""
    there = brought()
    there.claim()
    there.enforce_quotas()
    child = {
        "metadata": {"name": "web", "namespace": "acme"},
        "spec": {"mode": "Workspace", "quota": {"hard": {"cpu": 3}}},
    }
    there.world.put_in(Subnamespace.resource, child)
    there.enforce_quotas()
    places = {each["metadata"]["name"] for each in there.world.list(Namespace.resource)}
    assert cpus(there) == "5"
    assert not any(place.startswith("web-") for place in places)


def test_two_claims_add_one_node_once() -> None:
    """X03: the second claim waits for the node, and has it when the first has given back what the node added."""
    there = brought()
    there.claim("web")
    there.claim("zoo")
    there.enforce_quotas()
    assert (there.state("web")[0], cpus(there)) == ("Bound", "5")
    assert there.state("zoo")[0] != "Bound"
    there.world.delete(SliceClaim.resource, "acme/web")
    seen: set[str] = set()
    for _ in range(40):
        there.settle(0.2)
        seen.add(cpus(there))
        there.enforce_quotas()
        seen.add(cpus(there))
    assert seen == {"2", "5"}
    assert (there.state("zoo")[0], cpus(there)) == ("Bound", "5")

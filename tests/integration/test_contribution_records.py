"""Nodes that their owners bring report only addresses and ranges that were agreed on, and create no pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api import contribution, marks
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import MIRROR
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.policyparameters import PolicyParameters
from tenantry.kube import wire
from tenantry.local.cluster import LocalCluster
from testkit.api import PODS, Api, until
from testkit.contributions import clean_up, command, offer
from testkit.operators import Operator
from testkit.refusals import refusal
from testkit.requests import People

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = pytest.mark.usefixtures("operator")

Json = dict[str, Any]
CORE_EVENTS = Resource("", "v1", "events", "Event")


async def test_a_contributed_node_reports_only_addresses_of_its_record(
    api: Api, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19, H06: of its pods, within its ranges; of pods with its network, and of itself, the agreed ones."""
    await api.make_tenant(name)
    node, _ = await offer(tenancy, name, "--address=192.0.2.130", "--address=2001:db8::130")
    itself = await people.node(node)
    with pytest.raises(Forbidden, match=r"each of status\.addresses must be among '192\.0\.2\.130, 2001:db8::130'"):
        await itself.create(Node.resource, {"metadata": {"name": node}, **seen("203.0.113.1")})
    registered = {"metadata": {"name": node}, **seen("192.0.2.130", "2001:db8:0:0::130")}
    await itself.create(Node.resource, registered)
    # As Kubernetes' own controller assigns it; the operator takes it into the record.
    await api.patch(Node.resource, node, {"spec": {"podCIDR": "10.78.1.0/24", "podCIDRs": ["10.78.1.0/24"]}})

    async def is_assigned() -> bool:
        register = await api.get(PolicyParameters.resource, contribution.REGISTER, marks.SYSTEM_NAMESPACE)
        return "podCidrs=10.78.1.0/24" in register["metadata"]["annotations"][contribution.key_of(node)]

    await until(is_assigned, "the range is in the record")
    await keeps_to_its_record(api, tenancy, itself, node, name)
    await clean_up(api, node)


async def test_the_record_of_a_contributed_node_holds_without_the_operator(
    api: Api, operator: Operator, tenancy: LocalCluster, people: People, name: str
) -> None:
    """E19, H06: from its registration on, policies alone hold the node to its addresses, its ranges and no pods."""
    other = f"{name}-o"
    # By default, a rule refuses such a pod as well, and the API server reports only one of two refusals.
    for tenant in (name, other):
        await api.make_tenant(tenant, rules={"scheduling": {"nodeName": "Allow"}})
    await operator.stop()
    try:
        node, _ = await offer(tenancy, name, "--address=192.0.2.130", "--pod-cidr=10.78.1.0/24")
        itself = await people.node(node)
        for lie in (seen("203.0.113.1"), {"spec": {"podCIDR": "10.78.2.0/24", "podCIDRs": ["10.78.2.0/24"]}}):
            with pytest.raises(Forbidden, match="tenantry-contributed-node"):
                await itself.create(Node.resource, {"metadata": {"name": node}, **lie})
        registered = await itself.create(Node.resource, {"metadata": {"name": node}, **seen("192.0.2.130")})

        async def known() -> bool:
            # NodeRestriction looks for the owner of a mirror pod in a cache, which follows a moment later.
            return "not found" not in await refusal(itself, PODS, mirror(registered), name)

        await until(known, "admission knows the node")
        # Of the cluster's DNS, it would be an endpoint; of another tenant, its peer.
        for namespace in (other, name, "kube-system"):
            with pytest.raises(Forbidden, match=r"pods must not be created by a contributed node: .*staticPodPath"):
                await itself.create(PODS, mirror(registered), namespace)
        about = {"kind": "Pod", "name": "p", "namespace": other}
        event = {"metadata": {"name": "e"}, "involvedObject": about, "message": "x"}
        with pytest.raises(Forbidden, match=r"event 'e' .*objects\.maxSizes"):
            await itself.create(CORE_EVENTS, {**event, "message": "x" * 500_000}, other)
        await itself.create(CORE_EVENTS, event, other)
        with pytest.raises(Forbidden, match=r"spec\.podCIDRs must not come from a node itself"):
            await itself.patch(Node.resource, node, {"spec": {"podCIDR": "10.78.2.0/24", "podCIDRs": ["10.78.2.0/24"]}})
        await keeps_to_its_record(api, tenancy, itself, node, name)
    finally:
        await operator.start()
    await clean_up(api, node)


async def keeps_to_its_record(api: Api, tenancy: LocalCluster, itself: Api, node: str, name: str) -> None:
    """Have a node with the address 192.0.2.130 and the range 10.78.1.0/24 report others, of itself and of its pods."""
    for lie in (seen("192.0.2.130", "203.0.113.1"), seen("kubernetes.default", type_="Hostname")):
        with pytest.raises(Forbidden, match="which tenantry-contributed-nodes records for node"):
            await report(itself, Node.resource, node, lie)
    await report(itself, Node.resource, node, seen("192.0.2.130"))
    for pod, host_network in (("own", False), ("host", True)):
        spec = {"nodeName": node, "hostNetwork": host_network, "containers": [{"name": "c", "image": "x"}]}
        await api.create(PODS, {"metadata": {"name": f"{name}-{pod}"}, "spec": spec}, "kube-system")

    async def is_reported() -> bool:
        try:
            await report(itself, PODS, f"{name}-own", at("10.78.1.7"), "kube-system")
        except Forbidden:
            return False
        return True

    await until(is_reported, "the policy knows the range")
    for pod, lie in (
        ("own", at("10.78.2.7")),
        ("own", at("192.0.2.130")),
        ("own", at("10.78.1.7", host="203.0.113.1")),
        ("host", at("10.78.1.8")),
        ("host", at("203.0.113.1")),
    ):
        with pytest.raises(Forbidden, match="tenantry-contributed-pod-addresses"):
            await report(itself, PODS, f"{name}-{pod}", lie, "kube-system")
    await report(itself, PODS, f"{name}-host", at("192.0.2.130"), "kube-system")
    # An administrator records another address; the node may report both.
    await command(tenancy, "record", node, "--address=192.0.2.130", "--address=192.0.2.131")

    async def is_recorded() -> bool:
        try:
            await report(itself, Node.resource, node, seen("192.0.2.130", "192.0.2.131"))
        except Forbidden:
            return False
        return True

    await until(is_recorded, "the policy knows the new address")
    for pod in ("own", "host"):
        path = wire.path(PODS, "kube-system", f"{name}-{pod}")
        await api.client.request("DELETE", path, query={"gracePeriodSeconds": "0"})


def mirror(node: Json) -> Json:
    """Return the mirror of a static pod, which NodeRestriction lets a node create in every namespace."""
    name = node["metadata"]["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"], "controller": True}
    meta = {
        "name": f"static-{name}",
        "annotations": {MIRROR: "0"},
        "ownerReferences": [owner],
        "labels": {"k8s-app": "kube-dns"},
    }
    return {"metadata": meta, "spec": {"nodeName": name, "containers": [{"name": "c", "image": "x"}]}}


def seen(*addresses: str, type_: str = "InternalIP") -> Json:
    """Return what a kubelet reports of its node."""
    return {"status": {"addresses": [{"type": type_, "address": each} for each in addresses]}}


def at(*ips: str, host: str = "192.0.2.130") -> Json:
    """Return what a kubelet reports of a pod."""
    return {"status": {"podIP": ips[0], "podIPs": [{"ip": each} for each in ips], "hostIP": host}}


async def report(itself: Api, resource: Resource, name: str, status: Json, namespace: str = "") -> None:
    """Write the status of a node or a pod as its kubelet does."""
    path = wire.path(resource, namespace, name, "status")
    body = msgspec.json.encode(status)
    await itself.client.request("PATCH", path, body=body, content_type="application/merge-patch+json")

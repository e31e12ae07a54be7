"""The policies of Baseline tenants follow the nodes' addresses, and cost nothing while those stay."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tenantry.api.contribution import REGISTER, Contribution, change
from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace, NetworkPolicy
from tenantry.api.marks import NODE_ADDRESSES, SYSTEM_NAMESPACE
from tenantry.api.node import Node
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.controllers.frozeninput import WINDOW_SECONDS
from tenantry.engine.conditions import find, is_true
from tenantry.kube import wire
from testkit.api import Api, stays, until
from testkit.connectivity import Fabric, Outside, Pod, Policy
from testkit.operators import Operator
from testkit.requests import People
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

# Every test needs the operator that leads.
pytestmark = [pytest.mark.early, pytest.mark.usefixtures("operator")]

Json = dict[str, Any]


@asynccontextmanager
async def _node(api: Api, name: str, *addresses: str, type_: str = "InternalIP") -> AsyncGenerator[None]:
    await _make_node(api, name, *addresses, type_=type_)
    try:
        yield
    finally:
        await api.delete(Node.resource, name)


async def _make_node(api: Api, name: str, *addresses: str, type_: str = "InternalIP") -> None:
    status = {"addresses": [{"type": type_, "address": address} for address in addresses]}
    await api.create(Node.resource, {"metadata": {"name": name}, "status": status})


@asynccontextmanager
async def _defaults(api: Api, **network: object) -> AsyncGenerator[None]:
    await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"network": network}})
    try:
        yield
    finally:
        await api.delete(TenancyDefaults.resource, "default")


async def _reaches(api: Api, namespace: str, address: str, port: int = 80) -> bool:
    labels = (await api.get(Namespace.resource, namespace))["metadata"]["labels"]
    policies = msgspec.convert(await api.list(NetworkPolicy.resource, namespace), list[Policy], strict=False)
    fabric = Fabric({namespace: labels}, policies)
    return fabric.allows(Pod(namespace, "10.1.0.1"), Outside(address), port)


async def _until_reach(api: Api, namespace: str, *addresses: str, is_reached: bool, port: int = 80) -> None:
    async def so() -> bool:
        found = [await _reaches(api, namespace, address, port) for address in addresses]
        return all(each is is_reached for each in found)

    await until(so, f"{addresses} reached from {namespace}: {is_reached}")


async def _generation(api: Api, namespace: str, name: str = "tenantry-outside") -> int:
    generation: int = (await api.get(NetworkPolicy.resource, name, namespace))["metadata"]["generation"]
    return generation


async def test_pods_of_a_baseline_tenant_do_not_reach_nodes(api: Api, trees: Trees, name: str) -> None:
    """H06: InternalIP and ExternalIP, of both families, in each namespace; a node that goes is an address like any."""
    await api.make_tenant(name, isolation={"network": "Baseline"})
    team = await trees.make(name, "team")
    assert await _reaches(api, name, "192.0.2.10")
    async with (
        _node(api, f"{name}-1", "192.0.2.10", "2001:db8:9::1"),
        _node(api, f"{name}-2", "203.0.113.9", type_="ExternalIP"),
    ):
        for namespace in (name, team):
            await _until_reach(api, namespace, "192.0.2.10", "2001:db8:9::1", "203.0.113.9", is_reached=False)
            assert await _reaches(api, namespace, "192.0.2.11")
        later = f"{name}-later"
        await api.make_tenant(later, isolation={"network": "Baseline"})
        assert not await _reaches(api, later, "192.0.2.10")
    await _until_reach(api, team, "192.0.2.10", "203.0.113.9", is_reached=True)


async def test_pods_of_a_baseline_tenant_do_not_reach_nodes_at_the_gateways_of_pods(
    api: Api, people: People, name: str
) -> None:
    """H06, E19: of ranges that Kubernetes assigned; a contributed node's own report cuts no tenant off."""
    await api.make_tenant(name, isolation={"network": "Baseline"})
    contributed = f"contributed-{uuid.uuid4().hex[:6]}"
    itself = await people.node(contributed)
    agreed = Contribution(addresses="192.0.2.120")
    await api.patch(PolicyParameters.resource, REGISTER, change(contributed, agreed), SYSTEM_NAMESPACE)
    with pytest.raises(Forbidden, match="must not come from a node itself"):
        await itself.create(Node.resource, {"metadata": {"name": contributed}, "spec": {"podCIDR": "10.77.9.0/24"}})
    await _until_recorded(itself, contributed)
    lie = {"addresses": [{"type": "InternalIP", "address": "198.51.100.80"}]}
    node = {"metadata": {"name": contributed}, "spec": {"unschedulable": True}}
    with pytest.raises(Forbidden, match=r"status.addresses must be among '192.0.2.120'"):
        await itself.create(Node.resource, {**node, "status": lie})
    await itself.create(Node.resource, node)
    async with _node(api, name, "192.0.2.110"):
        await api.patch(Node.resource, name, {"spec": {"podCIDR": "10.77.1.0/24", "podCIDRs": ["10.77.1.0/24"]}})
        await api.patch(Node.resource, name, {"metadata": {"annotations": {NODE_ADDRESSES: "10.77.1.200"}}})
        await _until_reach(api, name, "192.0.2.110", "192.0.2.120", "10.77.1.1", "10.77.1.200", is_reached=False)
        assert await _reaches(api, name, "198.51.100.80")
        assert await _reaches(api, name, "10.77.1.2")
    await api.delete(Node.resource, contributed)
    await api.patch(PolicyParameters.resource, REGISTER, change(contributed, None), SYSTEM_NAMESPACE)


async def _until_recorded(itself: Api, node: str) -> None:
    """Wait until the policies know the record: a dry run of the registration passes."""
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})

    async def so() -> bool:
        try:
            await itself.client.request("POST", "/api/v1/nodes", query={"dryRun": "All"}, body=body)
        except Forbidden:
            return False
        return True

    await until(so, "the record is known")


async def test_many_nodes_are_one_write(api: Api, name: str) -> None:
    """H06: what comes within a moment is written at once; an Isolated tenant's policies do not change at all."""
    await api.make_tenant(name, isolation={"network": "Baseline"})
    await api.make_tenant(f"{name}-i")
    began = time.monotonic()
    before, isolated = await _generation(api, name), await _generation(api, f"{name}-i", "tenantry-isolation")
    names = [f"{name}-{number}" for number in range(12)]
    await asyncio.gather(*(_make_node(api, each, f"192.0.2.{2 * n + 20}") for n, each in enumerate(names)))
    try:
        await _until_reach(api, name, *(f"192.0.2.{2 * n + 20}" for n in range(12)), is_reached=False)
        written = await _generation(api, name) - before
        # One a moment, and one for what came when a moment was just over.
        assert written <= 1 + (time.monotonic() - began) / WINDOW_SECONDS
        assert written < len(names)
        assert await _generation(api, f"{name}-i", "tenantry-isolation") == isolated
    finally:
        await asyncio.gather(*(api.delete(Node.resource, each) for each in names))


async def test_a_heartbeat_of_a_node_is_no_work(api: Api, operator: Operator, name: str) -> None:
    """H06: a node says every few minutes that it lives."""
    await api.make_tenant(name, isolation={"network": "Baseline"})
    async with _node(api, name, "192.0.2.77"):
        await _until_reach(api, name, "192.0.2.77", is_reached=False)
        await _advertised(api, name)
        # Others' tenants may still be ending.
        ours = ('"controller": "nodes"', '"controller": "addresses"', "tenancydefaults")
        since = await operator.calm(name, *ours)
        for number in range(5):
            beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": f"2026-01-01T00:00:0{number}Z"}
            patch = msgspec.json.encode({"status": {"conditions": [{**beat, "reason": "r", "message": "m"}]}})
            path = wire.path(Node.resource, "", name, "status")
            # As a kubelet: the conditions of others stay.
            await api.client.request("PATCH", path, body=patch, content_type="application/strategic-merge-patch+json")

        async def silent() -> bool:
            # Of addresses there is one key.
            looks = [*operator.looks(since, name, controller="nodes"), *operator.looks(since, controller="addresses")]
            return not looks and not operator.written(since, name, "tenancydefaults")

        await stays(silent, "nothing is done")


async def _advertised(api: Api, name: str) -> None:
    async def so() -> bool:
        return "tenantry.dev/ingress-mbps" in ((await api.get(Node.resource, name))["status"].get("capacity") or {})

    await until(so, "the node advertises its bandwidth")


async def test_a_subnet_that_is_named_spares_writes_with_each_node(api: Api, name: str) -> None:
    """H06: TenancyDefaults.spec.network.keptCidrs; DNS at another address is told there, too."""
    await api.make_tenant(name, isolation={"network": "Baseline"})
    async with _defaults(api, keptCidrs=["198.18.0.0/24"], dnsAddresses=["10.9.9.9", "2001:db8::53"]):
        await _until_reach(api, name, "198.18.0.200", is_reached=False)
        await _until_reach(api, name, "2001:db8::53", is_reached=True, port=53)
        # Of another NetworkPolicy.
        await _until_reach(api, name, "169.254.20.10", is_reached=False, port=53)
        before = await _generation(api, name)
        async with _node(api, name, "198.18.0.5"), _node(api, f"{name}-far", "192.0.2.99"):
            await _until_reach(api, name, "192.0.2.99", is_reached=False)
            assert await _generation(api, name) - before == 1, "only the node elsewhere was news"
    await _until_reach(api, name, "169.254.20.10", is_reached=True, port=53)


async def test_too_many_addresses_are_widened_and_said(api: Api, name: str) -> None:
    """H06: no node is left out; a condition says what to do, and goes when it is done."""
    addresses = [f"10.{a}.{b}.7" for a, b in itertools.product(range(0, 100, 10), range(0, 250, 25))]
    await api.make_tenant(name, isolation={"network": "Baseline"})
    async with _node(api, name, *addresses):
        found = find((await _narrowed(api, name, holds=True)).status.conditions, "EgressNarrowed")
        assert found is not None
        assert found.reason == "TooManyAddresses"
        assert "keptCidrs" in found.message
        await _until_reach(api, name, *addresses, is_reached=False)
        assert await _reaches(api, name, "198.51.100.7")
    await _narrowed(api, name, holds=False)


async def _narrowed(api: Api, name: str, *, holds: bool) -> Tenant:
    async def so() -> Tenant | None:
        tenant = await api.tenant(name)
        return tenant if is_true(tenant.status.conditions, "EgressNarrowed") is holds else None

    return await until(so, f"EgressNarrowed is {holds}")

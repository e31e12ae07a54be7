"""What rules refuse of Services and endpoints, tried with the owner's own certificate."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.kubernetes import RoleBinding
from tenantry.api.model import Resource
from tenantry.local.cluster import LocalCluster
from testkit.api import Api, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
SERVICES = Resource("", "v1", "services", "Service")
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False)

PORTS = [{"port": 80}]
META = {"metadata": {"name": "s"}}
SUBSETS: Json = {**META, "subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": PORTS}]}
SLICE: Json = {**META, "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.1"]}], "ports": PORTS}


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


def service(**spec: object) -> Json:
    """Return a Service."""
    return {**META, "spec": {"ports": PORTS, **spec}}


OUTSIDE = {
    "services.types": service(type="NodePort"),
    "services.types ": service(type="LoadBalancer"),
    "services.externalName": {**META, "spec": {"type": "ExternalName", "externalName": "kubernetes.default"}},
    "services.externalIPs": service(externalIPs=["192.0.2.1"]),
}


async def test_services_reach_no_further_than_the_namespace(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """E15, H06: types that open nodes, foreign addresses and names are refused by default; the operator is down."""
    await api.make_tenant(name)
    await operator.stop()
    for rule, value in OUTSIDE.items():
        assert f"(rule {rule.strip()} of Tenantry's standard)" in await refusal(alice, SERVICES, value, name)
    await alice.create(SERVICES, service(), name)
    for patch in ({"type": "NodePort"}, {"externalIPs": ["192.0.2.1"]}):
        assert "(rule services." in await refusal(alice, SERVICES, {"spec": patch}, name, patch="s")
    assert not await refusal(alice, SERVICES, {"metadata": {"labels": {"a": "b"}}}, name, patch="s")


@pytest.mark.usefixtures("operator")
async def test_who_allows_load_balancers_allows_nothing_else(api: Api, alice: Api, name: str) -> None:
    """E15: each rule stands for itself; what a load balancer lets in stays in the ranges of the rule."""
    types = ["ClusterIP", "LoadBalancer"]
    rules = {"services": {"types": types, "loadBalancerSourceRanges": ["203.0.113.0/24", "2001:db8::/32"]}}
    await api.make_tenant(name, rules=rules)
    told = "(rule services.externalIPs of Tenantry's standard)"
    assert told in await refusal(alice, SERVICES, service(externalIPs=["192.0.2.1"]), name)
    assert (
        f"service 's' lets every address in (rule services.loadBalancerSourceRanges of Tenant '{name}'):"
        " loadBalancerSourceRanges must be within 203.0.113.0/24, 2001:db8::/32"
    ) in await refusal(alice, SERVICES, service(type="LoadBalancer"), name)

    def with_ranges(*ranges: str) -> Json:
        return service(type="LoadBalancer", loadBalancerSourceRanges=list(ranges))

    for outside in ("203.0.112.0/23", "0.0.0.0/0", "::/0"):
        told = await refusal(alice, SERVICES, with_ranges("203.0.113.0/25", outside), name)
        assert f"lets in '{outside}'" in told
    assert not await refusal(alice, SERVICES, with_ranges("203.0.113.0/25", "2001:db8:1::/48"), name)
    assert "must have only CIDRs" in await refusal(
        api,
        Resource("tenantry.dev", "v1alpha1", "tenants", "Tenant", namespaced=False),
        {"spec": {"rules": {"services": {"loadBalancerSourceRanges": ["203.0.113.0"]}}}},
        "",
        patch=name,
    )


@pytest.mark.usefixtures("operator")
async def test_endpoints_lead_only_to_pods(api: Api, alice: Api, name: str) -> None:
    """E15, H06: not even who was given the right to write endpoints makes a Service lead to others (CVE-2021-25740)."""
    await api.make_tenant(name)
    assert "cannot create resource" in await refusal(alice, ENDPOINTS, SUBSETS, name)
    rules = [{"apiGroups": ["", "discovery.k8s.io"], "resources": ["endpoints", "endpointslices"], "verbs": ["*"]}]
    await api.create(CLUSTER_ROLES, {"metadata": {"name": f"{name}-careless"}, "rules": rules})
    subject = {"kind": "User", "name": "alice", "apiGroup": RBAC}
    role = {"kind": "ClusterRole", "name": f"{name}-careless", "apiGroup": RBAC}
    binding = {"metadata": {"name": "careless"}, "subjects": [subject], "roleRef": role}
    await api.create(RoleBinding.resource, binding, name)
    told = "leads to addresses of its choice (rule services.endpoints of Tenantry's standard)"

    async def may_hold_a_lock() -> bool:
        # The right to do so has just been given.
        return not await refusal(alice, ENDPOINTS, META, name)

    await until(may_hold_a_lock, "endpoints that lead nowhere can be made")
    await alice.create(ENDPOINTS, META, name)
    assert told in await refusal(alice, ENDPOINTS, {"subsets": SUBSETS["subsets"]}, name, patch="s")
    assert told in await refusal(alice, SLICES, SLICE, name)
    assert not await refusal(alice, ENDPOINTS, {"metadata": {"annotations": {"leader": "me"}}}, name, patch="s")
    # The cluster's own machinery, here an administrator, goes on.
    assert not await refusal(api, SLICES, SLICE, name)

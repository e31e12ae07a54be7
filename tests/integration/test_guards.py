"""What a tenant's owners may write in their own namespaces, and what the API server refuses, whether we run or not."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import LimitRange, NetworkPolicy, RoleBinding
from tenantry.kube import wire
from tenantry.local.cluster import LocalCluster
from tenantry.testing.api import Api
from tenantry.testing.operators import Operator
from tenantry.testing.people import as_person

pytest_plugins = ["tenantry.testing.fixtures"]

Json = dict[str, Any]
ROLE: Json = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


# -- what Tenantry made ---------------------------------------------------------------------------


async def test_what_tenantry_made_cannot_be_changed_by_any_verb(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """Issue 5, point 3: patch, apply, replace, delete, deletecollection; also while the operator is down."""
    await api.make_tenant(name, quota={"hard": {"cpu": "1"}})
    await operator.stop()
    before = await api.get(NetworkPolicy.resource, "tenantry-isolation", name)
    looser: Json = {"spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}}
    with pytest.raises(Forbidden, match="is Tenantry's"):
        await alice.patch(NetworkPolicy.resource, "tenantry-isolation", looser, name)
    whole = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "tenantry-isolation"}}
    with pytest.raises(Forbidden, match="is Tenantry's"):
        await alice.client.apply(NetworkPolicy.resource, name, "tenantry-isolation", {**whole, **looser})
    with pytest.raises(Forbidden, match="is Tenantry's"):
        await alice.client.delete(NetworkPolicy.resource, name, "tenantry-dns")
    with pytest.raises(Forbidden, match="is Tenantry's"):
        await alice.client.request("DELETE", wire.path(NetworkPolicy.resource, name))
    with pytest.raises(Forbidden, match="is Tenantry's"):
        await alice.patch(RoleBinding.resource, "tenantry-owner", {"subjects": None}, name)
    with pytest.raises(Forbidden):
        await alice.client.delete(LimitRange.resource, name, "tenantry-limits")
    assert await api.get(NetworkPolicy.resource, "tenantry-isolation", name) == before


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"name": "tenantry-mine"}, id="a name"),
        pytest.param({"generateName": "tenantry-"}, id="a generated name"),
    ],
)
async def test_names_of_tenantrys_are_not_given_to_others(api: Api, alice: Api, name: str, metadata: Json) -> None:
    """Issue 5, point 3: what begins with tenantry- is ours to make."""
    await api.make_tenant(name)
    with pytest.raises(Forbidden, match="is Tenantry's"):
        await alice.create(RoleBinding.resource, {"metadata": metadata, "roleRef": ROLE}, name)


# -- network policies -----------------------------------------------------------------------------

ANYBODY: Json = {}
OTHERS: Json = {"namespaceSelector": {}}
WORLD: Json = {"ipBlock": {"cidr": "0.0.0.0/0"}}
PODS: Json = {"podSelector": {"matchLabels": {"app": "web"}}}


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"ingress": [ANYBODY]}, id="everybody may come in"),
        pytest.param({"ingress": [{"from": [PODS]}, {"ports": [{"port": 80}]}]}, id="everybody, at a port"),
        pytest.param({"ingress": [{"from": [OTHERS]}]}, id="every namespace"),
        pytest.param({"ingress": [{"from": [{**OTHERS, **PODS}]}]}, id="some pods of every namespace"),
        pytest.param({"ingress": [{"from": [PODS, WORLD]}]}, id="any address"),
        pytest.param(
            {"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"tenantry.dev/tenant-uid": "x"}}}]}]},
            id="another tenant",
        ),
        pytest.param({"policyTypes": ["Egress"], "egress": [ANYBODY]}, id="out to everybody"),
        pytest.param({"policyTypes": ["Egress"], "egress": [{"to": [WORLD]}]}, id="out to any address"),
        pytest.param({"policyTypes": ["Egress"], "egress": [{"to": [OTHERS]}]}, id="out to every namespace"),
    ],
)
async def test_an_owner_cannot_looseran_isolated_tenant(api: Api, alice: Api, name: str, spec: Json) -> None:
    """H06: NetworkPolicies add up, so one that opens is refused, with what to write instead."""
    await api.make_tenant(name)
    with pytest.raises(Forbidden, match=r"tenantry\.dev/tenant-uid: "):
        await alice.create(NetworkPolicy.resource, {"metadata": {"name": "open"}, "spec": _whole(spec)}, name)


@pytest.mark.usefixtures("operator")
async def test_an_owner_confines_their_pods_further(api: Api, alice: Api, name: str) -> None:
    """H06: policies within the tenant are the owner's own affair."""
    tenant = await api.make_tenant(name)
    own: Json = {"namespaceSelector": {"matchLabels": {"tenantry.dev/tenant-uid": tenant.metadata.uid}}}
    specs: tuple[Json, ...] = (
        {"policyTypes": ["Ingress", "Egress"]},
        {"ingress": [{"from": [PODS, own, {**own, **PODS}]}]},
        {"policyTypes": ["Egress"], "egress": [{"to": [own]}]},
    )
    for number, spec in enumerate(specs):
        await alice.create(NetworkPolicy.resource, {"metadata": {"name": f"n{number}"}, "spec": _whole(spec)}, name)
    assert len(await api.list(NetworkPolicy.resource, name)) == 2 + 3


@pytest.mark.usefixtures("operator")
async def test_a_baseline_tenant_reaches_out_and_an_looserone_is_open(api: Api, alice: Api, name: str) -> None:
    """H06: what is refused depends on the tenant's isolation."""
    out = {"policyTypes": ["Egress"], "egress": [{"to": [WORLD]}]}
    await api.make_tenant(name, isolation={"network": "Baseline"})
    await alice.create(NetworkPolicy.resource, {"metadata": {"name": "out"}, "spec": _whole(out)}, name)
    with pytest.raises(Forbidden, match=r"spec\.ingress"):
        await alice.create(
            NetworkPolicy.resource, {"metadata": {"name": "in"}, "spec": _whole({"ingress": [ANYBODY]})}, name
        )
    await api.make_tenant(f"{name}-open", isolation={"network": "Open"})
    await alice.create(
        NetworkPolicy.resource, {"metadata": {"name": "in"}, "spec": _whole({"ingress": [ANYBODY]})}, f"{name}-open"
    )


def _whole(spec: Json) -> Json:
    return {"podSelector": {}, "policyTypes": ["Ingress"], **spec}

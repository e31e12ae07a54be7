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
from testkit.api import Api
from testkit.operators import Operator
from testkit.people import as_person

pytest_plugins = ["testkit.fixtures"]

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
    # Two policies refuse these, and the API server asks them in any order.
    either = "is Tenantry's|to open it to others is for an administrator"
    with pytest.raises(Forbidden, match=either):
        await alice.patch(NetworkPolicy.resource, "tenantry-isolation", looser, name)
    whole = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "tenantry-isolation"}}
    with pytest.raises(Forbidden, match=either):
        await alice.client.apply(NetworkPolicy.resource, name, "tenantry-isolation", {**whole, **looser})
    with pytest.raises(Forbidden, match="is Tenantry's"):
        await alice.client.delete(NetworkPolicy.resource, name, "tenantry-isolation")
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

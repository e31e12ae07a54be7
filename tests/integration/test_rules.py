"""What rules refuse, and how they are told: written at three levels, merged by the operator, kept by the API server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.errors import Forbidden
from tenantry.api.tenancyrules import NAME, TenancyRules
from tenantry.api.tenant import Tenant
from tenantry.local.cluster import LocalCluster
from tenantry.testing.api import PODS, Api, until
from tenantry.testing.operators import Operator
from tenantry.testing.people import as_person
from tenantry.testing.trees import WORKSPACE, Trees

pytest_plugins = ["tenantry.testing.fixtures"]

Json = dict[str, Any]
OURS: Json = {"images": {"allowed": ["registry[.]example[.]com/.*", "busybox"]}}


@pytest_asyncio.fixture
async def alice(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "alice") as person:
        yield person


def pod(image: str = "busybox", **spec: object) -> Json:
    """Return a pod of one container, whose spec may be given otherwise."""
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "web", "image": image}], **spec}}


async def test_a_rule_of_the_tenant_refuses_a_pod_and_says_why(
    api: Api, alice: Api, operator: Operator, name: str
) -> None:
    """E15: which rule, of whom, and what would pass; also while the operator is down."""
    await api.make_tenant(name, rules=OURS)
    await operator.stop()
    with pytest.raises(Forbidden) as refused:
        await alice.create(PODS, pod("evil.example/x"), name)
    assert (
        f"container 'web' has the image 'evil.example/x' (rule images.allowed of Tenant '{name}'):"
        " must match one of registry[.]example[.]com/.*, busybox" in str(refused.value)
    )
    await alice.create(PODS, pod("registry.example.com/x"), name)


@pytest.mark.usefixtures("operator")
async def test_what_is_refused_can_be_read(api: Api, alice: Api, name: str) -> None:
    """E15: the merged rules are readable by the tenant, and written by nobody but Tenantry."""
    await api.make_tenant(name, rules=OURS)
    found = await alice.get(TenancyRules.resource, NAME, name)
    assert found["spec"]["enforce"]["patterns"]["images.allowed"][0]["source"] == f"Tenant '{name}'"
    with pytest.raises(Forbidden):
        await alice.patch(TenancyRules.resource, NAME, {"spec": {"enforce": None}}, name)


@pytest.mark.usefixtures("operator")
async def test_tenants_without_rules_of_their_own_share_one_object(api: Api, alice: Api, name: str) -> None:
    """E15: what all tenants have costs none of them a write, holds for each, and can be read by all."""
    await api.make_tenant(name)
    assert await api.find(TenancyRules.resource, NAME, name) is None
    shared = await alice.get(TenancyRules.resource, NAME, marks.SYSTEM_NAMESPACE)
    assert shared["spec"]["enforce"]["refused"]["scheduling.nodeName"] == "Tenantry's standard"
    assert not await refusal_of(alice, pod("evil.example/x"), name)
    await api.patch(Tenant.resource, name, {"spec": {"rules": OURS}})

    async def own() -> bool:
        return bool(await refusal_of(alice, pod("evil.example/x"), name))

    await until(own, "the tenant's own rules are in force")
    await api.patch(Tenant.resource, name, {"spec": {"rules": None}})

    async def gone() -> bool:
        return await api.find(TenancyRules.resource, NAME, name) is None

    await until(gone, "it shares the rules of all again")
    assert not await refusal_of(alice, pod("evil.example/x"), name)


async def refusal_of(person: Api, value: Json, namespace: str) -> str:
    """Return why a person may not make a pod, "" where they may; nothing is made."""
    try:
        await person.client.request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            query={"dryRun": "All"},
            body=msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", **value}),
        )
    except Forbidden as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("operator")
async def test_a_changed_rule_comes_down_the_tree(api: Api, alice: Api, name: str) -> None:
    """E15: what a parent decides holds for everything below, at once."""
    await api.make_tenant(name)
    child = await Trees(api).make(name, "web", {**WORKSPACE, "rules": {"priorityClasses": {"allowed": []}}})
    grandchild = await Trees(api).make(child, "front")
    await api.patch(Tenant.resource, name, {"spec": {"rules": OURS}})

    async def so() -> bool:
        spec = (await api.get(TenancyRules.resource, NAME, grandchild))["spec"]["enforce"]
        return "images.allowed" in spec.get("patterns", {}) and "priorityClasses.allowed" in spec["allowed"]

    await until(so, "the grandchild has the rules of both levels")
    with pytest.raises(Forbidden, match=r"images\.allowed of Tenant"):
        await alice.create(PODS, pod("evil.example/x"), grandchild)

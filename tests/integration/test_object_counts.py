"""Floods of objects by an owner, with the operator stopped: what refuses them is in the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Resource
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, CRDS, Api, until
from testkit.operators import Operator
from testkit.people import as_person
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
RULES = Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
NOT_COUNTED = {"localsubjectaccessreviews.authorization.k8s.io", "events", "events.events.k8s.io"}
NOT_NAMESPACED = {"tenantrequests.tenantry.dev"}


@pytest_asyncio.fixture
async def mallory(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "mallory") as person:
        yield person


async def creatable(person: Api, namespace: str) -> set[str]:
    """Return the kinds that a user may create in a namespace, as plural and group, without subresources."""
    review = await person.create(RULES, {"metadata": {"name": ""}, "spec": {"namespace": namespace}})
    return {
        f"{plural}.{group}".rstrip(".")
        for rule in review["status"]["resourceRules"]
        if {"create", "*"} & set(rule["verbs"])
        for group in rule.get("apiGroups", [])
        for plural in rule.get("resources", [])
        if "/" not in plural and group != "extensions" and not plural.startswith("self")
    }


async def counted(api: Api, namespace: str) -> set[str]:
    """Return the kinds that Kubernetes counts in a namespace, once it counts them."""

    async def known() -> set[str] | None:
        found = await api.find(ResourceQuota.resource, "tenantry-counts", namespace)
        hard: Json = (found or {}).get("status", {}).get("hard", {})
        return {key.removeprefix("count/") for key in hard} or None

    return await until(known, f"Kubernetes counts the objects of {namespace}")


async def flood(person: Api, namespace: str, most: int) -> tuple[int, str]:
    """Create ConfigMaps until the API server refuses one; return how many it took, and its reason."""
    for number in range(0, most, 20):
        names = [f"flood-{each}" for each in range(number, number + 20)]
        made = await asyncio.gather(
            *(person.create(CONFIG_MAPS, {"metadata": {"name": each}}, namespace) for each in names),
            return_exceptions=True,
        )
        refused = [each for each in made if isinstance(each, BaseException)]
        if refused:
            assert isinstance(refused[0], Forbidden), refused[0]
            return number + 20 - len(refused), str(refused[0])
    return most, ""


async def test_every_kind_that_an_owner_may_create_is_counted_and_a_flood_ends(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E16, X02: in the core namespace and in a child, without any quota of the tenant's own."""
    people = [{"kind": "User", "name": "mallory"}]
    await api.make_tenant(name, owners=people)
    child = await Trees(api).make(name, "team", {"mode": "Workspace", "owners": people})
    await operator.stop()
    for namespace, most in ((name, 130), (child, 16)):
        found = await counted(api, namespace)
        assert await creatable(mallory, namespace) - found - NOT_COUNTED - NOT_NAMESPACED == set()
        made, reason = await flood(mallory, namespace, 200)
        assert most - 2 <= made <= most
        assert "exceeded quota: tenantry-counts" in reason


async def test_a_new_custom_kind_is_counted(api: Api, operator: Operator, name: str) -> None:
    """E16: as soon as owners may create it, also by a rule for all kinds of a group."""
    await api.make_tenant(name)
    group = f"{name}.example.com"
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    await api.create(CRDS, {"metadata": {"name": f"widgets.{group}"}, "spec": spec})
    role: Json = {
        "metadata": {"name": name, "labels": {"tenantry.dev/aggregate-to-owner": "true"}},
        "rules": [{"apiGroups": [group], "resources": ["*"], "verbs": ["create"]}],
    }
    await api.create(CLUSTER_ROLES, role)
    try:

        async def so() -> bool:
            found = await api.get(ResourceQuota.resource, "tenantry-counts", name)
            return f"count/widgets.{group}" in found["spec"]["hard"]

        await until(so, "the new kind is counted")
        assert operator.is_running
    finally:
        await api.delete(CLUSTER_ROLES, name)
        await api.delete(CRDS, f"widgets.{group}")

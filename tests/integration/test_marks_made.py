"""Attacks on what Tenantry made in a namespace, by an owner with every verb on all objects there, without the operator.

As in test_marks.py: the operator is stopped, and what refuses mallory is in the API server.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import marks
from tenantry.api.isolationreport import IsolationReport
from tenantry.api.kubernetes import LimitRange, Namespace, NetworkPolicy, ResourceQuota, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.policyparameters import parameters
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancyrules import TenancyRules
from tenantry.install.makers import TOKEN_SECRET
from tenantry.kube import wire
from tenantry.kube.client import MERGE_PATCH, Client
from tenantry.local.cluster import LocalCluster
from tenantry.world.inheritance import COPIES, COPIES_MARK, SCALED, SOURCE
from testkit import attempts, versions
from testkit.api import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.attempts import Attempt, apply, merge, post, steps, strategic
from testkit.operators import Operator
from testkit.people import as_person
from testkit.requests import granted
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
KINDS = (ResourceQuota.resource, LimitRange.resource, NetworkPolicy.resource, RoleBinding.resource)
QUOTA: Json = {"hard": {"cpu": "2", "memory": "1Gi"}}
ABSENT_UID = "00000000-0000-0000-0000-000000000000"


@pytest_asyncio.fixture
async def mallory(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "mallory") as person:
        yield person


@pytest_asyncio.fixture
async def autoscaler(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """Kubernetes' own."""
    folder = tmp_path / "autoscaler"
    folder.mkdir()
    async with as_person(tenancy, folder, "system:serviceaccount:kube-system:horizontal-pod-autoscaler") as person:
        yield person


def every_way(path: str, resource: Resource, found: Json) -> dict[str, Attempt]:
    """Return the ways to change or remove an object, by what they do."""
    name = found["metadata"]["name"]
    labels: Json = {"metadata": {"labels": {"a": "b"}}}
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": ABSENT_UID}
    bare = {**found, "metadata": {"name": name, "labels": {"a": "b"}}}
    return {
        "merged": merge(path, labels),
        "merged strategically": strategic(path, labels),
        "step by step": steps(path, {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}),
        "applied": apply(path, resource, {"metadata": {"name": name, "labels": {"a": "b"}}}),
        "replaced": Attempt("PUT", path, {**bare, "apiVersion": resource.api_version, "kind": resource.kind}),
        "held": merge(path, {"metadata": {"finalizers": ["a.example/b"]}}),
        "given an owner that is gone": merge(path, {"metadata": {"ownerReferences": [gone]}}),
        "deleted": Attempt("DELETE", path),
        "deleted, its dependents left": Attempt("DELETE", path, {"propagationPolicy": "Orphan"}),
    }


async def made(api: Api, namespace: str) -> dict[str, tuple[Resource, Json]]:
    """Return what Tenantry made in a namespace, by its path."""
    found: dict[str, tuple[Resource, Json]] = {}
    for resource in KINDS:
        for value in await api.list(resource, namespace):
            if value["metadata"].get("labels", {}).get(marks.MANAGED_BY) == marks.MANAGER:
                found[wire.path(resource, namespace, value["metadata"]["name"])] = (resource, value)
    return found


async def test_nothing_that_tenantry_made_is_changed_or_removed(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: quota, limits, policies, bindings, what a request gave; by any verb, one by one and in a collection."""
    await attempts.make_careless(api, name, "mallory", quota=QUOTA)
    await granted(mallory, api, "more", name)
    await operator.stop()
    before = await made(api, name)
    assert {resource for resource, _ in before.values()} == set(KINDS)
    assert wire.path(RoleBinding.resource, name, "request-more") in before
    # Finalizers on any RoleBinding are refused by a policy of their own, too.
    closable = "metadata.finalizers of a RoleBinding or ServiceAccount must not be set"
    wrong: list[str] = []
    for path, (resource, found) in before.items():
        ways = {f"{path} {what}": attempt for what, attempt in every_way(path, resource, found).items()}
        wrong += await attempts.succeeded(mallory, ways, told="is Tenantry's", or_told=closable)
    everything = {str(resource): Attempt("DELETE", wire.path(resource, name)) for resource in KINDS}
    wrong += await attempts.succeeded(mallory, everything, told="is Tenantry's")
    assert wrong == []
    after = await made(api, name)
    # What a quota says is in use is Kubernetes' to write.
    assert {path: _content(value) for path, (_, value) in after.items()} == {
        path: _content(value) for path, (_, value) in before.items()
    }


def _content(value: Json) -> Json:
    """Return an object without what Kubernetes writes by itself."""
    kept = {key: value["metadata"].get(key) for key in ("name", "uid", "labels", "annotations", "finalizers")}
    return {**{key: inner for key, inner in value.items() if key not in {"metadata", "status"}}, "metadata": kept}


async def test_no_name_of_tenantrys_is_taken(api: Api, mallory: Api, operator: Operator, name: str) -> None:
    """E15, X02: by a name or a generated one; nor are rules put where the operator has put none."""
    await attempts.make_careless(api, name, "mallory")
    await operator.stop()
    specs: dict[Resource, Json] = {
        ResourceQuota.resource: {"spec": {"hard": {"pods": "1"}}},
        LimitRange.resource: {"spec": {"limits": []}},
        NetworkPolicy.resource: {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
        RoleBinding.resource: {"roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": attempts.RBAC}},
    }
    wrong: list[str] = []
    for resource, spec in specs.items():
        url, applied = wire.path(resource, name), {"metadata": {"name": "tenantry-a"}, **spec}
        table = {
            f"{resource.kind} by name": post(url, resource, {"metadata": {"name": "tenantry-quota-2"}, **spec}),
            f"{resource.kind} generated": post(url, resource, {"metadata": {"generateName": "tenantry-"}, **spec}),
            f"{resource.kind} applied": apply(f"{url}/tenantry-a", resource, applied),
        }
        wrong += await attempts.succeeded(mallory, table, told="is Tenantry's")
    rules = TenancyRules.resource
    loose: Json = {"metadata": {"name": "tenantry"}, "spec": {}}
    table = {"rules": post(wire.path(rules, name), rules, loose)}
    wrong += await attempts.succeeded(mallory, table, told="TenancyRules are Tenantry's")
    assert wrong == []


async def test_what_an_audit_found_is_not_written_by_whom_it_is_about(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """X06: an IsolationReport is neither changed, held nor taken away by a tenant, nor another one put beside it."""
    await attempts.make_careless(api, name, "mallory")
    reports = IsolationReport.resource
    report: Json = {"metadata": {"name": "latest"}, "spec": {"user": "mallory"}}
    await api.create(reports, report, name)
    await operator.stop()
    before, url = await api.get(reports, "latest", name), wire.path(reports, name)
    path = f"{url}/latest"
    wrong = {"spec": {"user": "forged"}}
    held = {"metadata": {"finalizers": ["a.example/b"]}}
    gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": ABSENT_UID}
    table = {
        "merged": merge(path, wrong),
        "step by step": steps(path, {"op": "replace", "path": "/spec/user", "value": "forged"}),
        "applied": apply(path, reports, {"metadata": {"name": "latest"}, **wrong}),
        "replaced": Attempt("PUT", path, {**before, **wrong}),
        "held": merge(path, held),
        "given an owner that is gone": merge(path, {"metadata": {"ownerReferences": [gone]}}),
        "deleted": Attempt("DELETE", path),
        "all deleted": Attempt("DELETE", url),
        "another one": post(url, reports, {**report, "metadata": {"name": "later"}}),
    }
    assert await attempts.succeeded(mallory, table, told="is Tenantry's: an administrator writes it") == []
    assert await api.get(reports, "latest", name) == before
    await api.patch(reports, "latest", wrong, name)


async def test_nothing_inherited_is_changed_or_removed(api: Api, mallory: Api, operator: Operator, name: str) -> None:
    """E15, E06: by any verb, one by one and in a collection; nor is it made the tenant's own without its mark."""
    await attempts.make_careless(api, name, "mallory")
    await api.create(CONFIG_MAPS, {"metadata": {"name": "thing"}, "data": {"a": "b"}}, name)
    people = [{"kind": "User", "name": "mallory"}]
    spec = {"mode": "Workspace", "owners": people, "inheritance": {"configMaps": "Sync", "roleBindings": "Sync"}}
    child = await Trees(api).make(name, "team", spec)
    await until(lambda: api.find(RoleBinding.resource, "careless", child), "she has too much there, too")
    await attempts.careless(api, child, "mallory")
    await until(lambda: api.find(CONFIG_MAPS, "thing", child), "the ConfigMap is inherited")
    await operator.stop()
    before = await api.get(CONFIG_MAPS, "thing", child)
    path = wire.path(CONFIG_MAPS, child, "thing")
    table = {
        **every_way(path, CONFIG_MAPS, before),
        "its mark taken away": merge(path, {"metadata": {"labels": {marks.INHERITED_FROM: None}}}),
        "all deleted": Attempt("DELETE", f"{wire.path(CONFIG_MAPS, child)}"),
    }
    assert await attempts.succeeded(mallory, table, told="is inherited from namespace") == []
    assert await api.get(CONFIG_MAPS, "thing", child) == before


async def test_nothing_inherited_is_scaled(
    api: Api, mallory: Api, autoscaler: Api, operator: Operator, name: str
) -> None:
    """E15, E06: although a Scale has no labels of what it is of; what is the tenant's own is.

    Nor is it by Kubernetes' autoscaler, to which a tenant may say anything.
    """
    await attempts.make_careless(api, name, "mallory")
    await operator.stop()
    texts = {SOURCE: "above", **{resource.plural: "\nhanded\n" for resource in SCALED}}
    await api.client.create(parameters(COPIES, name, COPIES_MARK, texts))
    for resource in SCALED:
        await api.create(resource, workload(resource, "own"), name)
        await api.create(resource, workload(resource, "handed", {marks.INHERITED_FROM: "above"}), name)
        url = wire.path(resource, name)
        scaled = {"spec": {"replicas": 3}}
        whole = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "handed", "namespace": name}}
        table = {
            "merged": merge(f"{url}/handed/scale", scaled),
            "replaced": Attempt("PUT", f"{url}/handed/scale", {**whole, **scaled}),
        }
        told = f"{resource.kind} 'handed' is inherited from namespace 'above': scale it there"
        assert await succeeded_at_last(mallory, table, told) == []
        # It has no right to patch.
        assert await attempts.succeeded(autoscaler, {"replaced": table["replaced"]}, told=told) == []
        path = f"{url}/own/scale"
        await mallory.client.request("PATCH", path, body=msgspec.json.encode(scaled), content_type=MERGE_PATCH)
        assert (await api.get(resource, "own", name))["spec"]["replicas"] == 3


async def succeeded_at_last(person: Api, table: dict[str, Attempt], told: str) -> list[str]:
    """Return what goes through once the API server has seen what it goes by; see `attempts.succeeded`."""
    dry = {what: attempt._replace(query={"dryRun": "All"}) for what, attempt in table.items()}

    async def seen() -> bool:
        return not await attempts.succeeded(person, dry, told=told)

    await until(seen, "it is refused")
    return await attempts.succeeded(person, table, told=told)


def workload(resource: Resource, name: str, labels: dict[str, str] | None = None) -> Json:
    """Return something that makes pods, and makes none yet."""
    app = {"app": name}
    selector: Json = app if resource.plural == "replicationcontrollers" else {"matchLabels": app}
    template = {"metadata": {"labels": app}, "spec": {"containers": [{"name": "c", "image": "example.com/c"}]}}
    spec = {"replicas": 0, "selector": selector, "template": template}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


@pytest.mark.long
async def test_an_end_that_a_tenant_holds_is_for_an_administrator_to_free(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E01: finalizers on its own objects are the tenant's; nothing new is made meanwhile, and others are not held."""
    await attempts.make_careless(api, name, "mallory")
    await api.make_tenant(f"{name}-other")
    held = {"metadata": {"name": "held", "finalizers": ["a.example/b"]}}
    await mallory.create(CONFIG_MAPS, held, name)
    # A Subnamespace waits for its child; it has none here.
    await operator.stop()
    for tenant in (name, f"{name}-other"):
        await api.client.request("DELETE", f"/apis/tenantry.dev/v1alpha1/tenants/{tenant}")
    await api.gone(Namespace.resource, f"{name}-other")

    async def waits() -> bool:
        conditions: list[Json] = (await api.get(Namespace.resource, name))["status"].get("conditions", [])
        return any("a.example/b" in condition["message"] for condition in conditions)

    await until(waits, "the namespace says what holds it")
    assert await api.list(Subnamespace.resource, name) == []
    assert await api.list(RoleBinding.resource, name) == []
    await api.patch(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}}, name)
    await api.gone(Namespace.resource, name)


# -- who made what gives tokens -------------------------------------------------------------------


@versions.changes_without_the_operator
async def test_what_gives_tokens_is_marked_with_its_maker(api: Api, operator: Operator, name: str) -> None:
    """A removed owner's ServiceAccounts are found by a mark that no tenant forges, changes or removes."""
    user = "o'dd \"name\\ {x} <y>:/z"
    await attempts.make_careless(api, name, user)
    await operator.stop()
    impersonated = msgspec.structs.replace(api.client.connection, impersonate=user)
    accounts, secrets = wire.path(SERVICE_ACCOUNTS, name), wire.path(SECRETS, name)
    stamp, forged = {marks.MADE_BY: user}, {marks.MADE_BY: "alice"}
    of_account: Json = {"type": TOKEN_SECRET, "metadata": {"annotations": {"kubernetes.io/service-account.name": "a"}}}
    async with Client(impersonated) as client:
        owner = Api(client)
        await owner.create(SERVICE_ACCOUNTS, {"metadata": {"name": "a"}}, name)
        await owner.create(SERVICE_ACCOUNTS, {"metadata": {"name": "b", "annotations": {**forged, "c": "d"}}}, name)
        secret: Json = {"annotations": {**of_account["metadata"]["annotations"], **forged}, "name": "token"}
        await owner.create(SECRETS, {**of_account, "metadata": secret}, name)
        await owner.create(SECRETS, {"metadata": {"name": "plain"}}, name)
        found = {each["metadata"]["name"]: each["metadata"] for each in await api.list(SERVICE_ACCOUNTS, name)}
        assert found["a"]["annotations"] == stamp
        assert found["b"]["annotations"] == {**stamp, "c": "d"}
        assert "annotations" not in found["default"]
        made = {each["metadata"]["name"]: each["metadata"] for each in await api.list(SECRETS, name)}
        assert made["token"]["annotations"][marks.MADE_BY] == user
        assert "annotations" not in made["plain"]
        one, pointer = f"{accounts}/a", f"/metadata/annotations/{marks.MADE_BY.replace('/', '~1')}"
        table = {
            "changed": merge(one, {"metadata": {"annotations": forged}}),
            "changed step by step": steps(one, {"op": "replace", "path": pointer, "value": "alice"}),
            "removed": merge(one, {"metadata": {"annotations": {marks.MADE_BY: None}}}),
            "all removed": strategic(one, {"metadata": {"annotations": None}}),
            "changed on a Secret": merge(f"{secrets}/token", {"metadata": {"annotations": forged}}),
            "set later": merge(f"{accounts}/default", {"metadata": {"annotations": stamp}}),
            "put without it": Attempt(
                "PUT", one, {"metadata": {"name": "a"}, "apiVersion": "v1", "kind": "ServiceAccount"}
            ),
            "a label": post(accounts, SERVICE_ACCOUNTS, {"metadata": {"name": "l", "labels": {marks.MADE_BY: "x"}}}),
            "another Secret": post(secrets, SECRETS, {"metadata": {"name": "s", "annotations": forged}}),
            "another kind": post(
                wire.path(CONFIG_MAPS, name), CONFIG_MAPS, {"metadata": {"name": "c", "annotations": stamp}}
            ),
        }
        assert await attempts.succeeded(owner, table, told="must not be set, changed or removed") == []
        await owner.patch(SERVICE_ACCOUNTS, "a", {"metadata": {"labels": {"e": "f"}}}, name)
        await owner.delete(SERVICE_ACCOUNTS, "a", name)

"""Floods of objects by an owner, with the operator stopped: what refuses them is in the API server."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.kubernetes import NetworkPolicy, ResourceQuota
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.engine.tasks import in_background
from tenantry.kube import wire
from tenantry.local.cluster import LocalCluster
from tenantry.policy.targets.sizes import bytes_of
from testkit import versions
from testkit.api import CONFIG_MAPS, CRDS, PODS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.everykind import POD_SPEC, TEMPLATE, kinds, long
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal, tried
from testkit.trees import WORKSPACE, Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
RULES = Resource("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
NOT_COUNTED = {"localsubjectaccessreviews.authorization.k8s.io", "events", "events.events.k8s.io"}
NOT_NAMESPACED = {"tenantrequests.tenantry.dev"}


@pytest_asyncio.fixture
async def flooder(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "flooder") as person:
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
    api: Api, flooder: Api, operator: Operator, name: str
) -> None:
    """E16, X02: in the core namespace and in a child, without any quota of the tenant's own."""
    people = [{"kind": "User", "name": "flooder"}]
    await api.make_tenant(name, owners=people)
    child = await Trees(api).make(name, "team", {"mode": "Workspace", "owners": people})
    await operator.stop()
    for namespace, most in ((name, 130), (child, 16)):
        found = await counted(api, namespace)
        missed: set[str] = set()

        async def are_all(namespace: str = namespace, found: set[str] = found, missed: set[str] = missed) -> bool:
            missed.clear()
            missed |= await creatable(flooder, namespace) - found - NOT_COUNTED - NOT_NAMESPACED
            return not missed

        # The controller-manager still takes the kinds of a test before out of the rights of owners.
        await until(are_all, "every kind is counted", seen=lambda missed=missed: missed)
        disk = {"requests": {"ephemeral-storage": "500Gi"}}
        pod = {"containers": [{"name": "c", "image": "busybox", "resources": disk}]}

        async def why(spec: Json = pod, namespace: str = namespace) -> str:
            return await refusal(flooder, PODS, {"metadata": {"name": "disk"}, "spec": spec}, namespace)

        # The quotas that the admission of the API server knows are a moment behind those that it serves.
        said = await until(why, f"the API server enforces the counts of {namespace}")
        assert "exceeded quota: tenantry-counts, requested: requests.ephemeral-storage=500Gi" in said
        made, reason = await flood(flooder, namespace, 200)
        assert most - 2 <= made <= most
        assert "exceeded quota: tenantry-counts" in reason


async def test_quotas_do_not_record_who_counts(api: Api, operator: Operator, name: str) -> None:
    """X02: the record of fields would be written with every object that is created, once there are many."""
    await api.make_tenant(name, quota={"hard": {"cpu": 10}})
    child = await Trees(api).make(name, "team", {**WORKSPACE, "quota": {"hard": {"cpu": "2"}}})
    for namespace in (name, child):
        for kind, number in itertools.product((CONFIG_MAPS, SERVICE_ACCOUNTS), range(15)):
            await api.create(kind, {"metadata": {"name": f"counted-{number}"}}, namespace)

        async def unrecorded(namespace: str = namespace) -> bool:
            found = await api.list(ResourceQuota.resource, namespace)
            return len(found) == 2 and not any(each["metadata"].get("managedFields") for each in found)

        await until(unrecorded, f"the ResourceQuotas of {namespace} have no managed fields")
    assert operator.is_running


async def test_an_owner_who_has_as_many_network_policies_as_allowed_does_not_delay_isolation(
    api: Api, flooder: Api, operator: Operator, name: str
) -> None:
    """E14: the owner also takes each place that becomes free, while an administrator isolates the tenant."""
    await api.make_tenant(name, owners=[{"kind": "User", "name": "flooder"}], isolation={"network": "Open"})
    assert operator.is_running
    numbers = itertools.count()

    async def fill() -> None:
        while True:
            policy: Json = {"metadata": {"name": f"flood-{next(numbers)}"}, "spec": {"podSelector": {}}}
            with suppress(ApiError):
                await flooder.create(NetworkPolicy.resource, policy, name)

    async def is_full() -> bool:
        found = await api.get(ResourceQuota.resource, "tenantry-counts", name)
        key = "count/networkpolicies.networking.k8s.io"
        return found["status"]["used"].get(key) == found["spec"]["hard"][key]

    async with in_background(fill()), in_background(fill()):
        await until(is_full, "the owner has as many NetworkPolicies as allowed")
        await api.patch(Tenant.resource, name, {"spec": {"isolation": {"network": "Isolated"}}})

        async def is_isolated() -> bool:
            found = await api.find(NetworkPolicy.resource, "tenantry-isolation", name)
            return bool(found and found["spec"].get("egress"))

        await until(is_isolated, "the tenant is isolated")

        async def is_blocked() -> bool:
            # A tenant of an older version may have no such policy.
            with suppress(NotFound):
                await api.delete(NetworkPolicy.resource, "tenantry-isolation", name)
            conditions = (await api.get(Tenant.resource, name)).get("status", {}).get("conditions", [])
            (ready,) = [each for each in conditions if each["type"] == "Ready"]
            return "delete one of the networkpolicies.networking.k8s.io there" in ready["message"]

        await until(is_blocked, "the tenant says what to do about its quota")
    listed = [each["metadata"]["name"] for each in await api.list(NetworkPolicy.resource, name)]
    flood = iter([each for each in listed if each.startswith("flood-")])
    # Requests of the owner may still be under way at the API server, one of each loop: they take places, too.
    for each in itertools.islice(flood, 3):
        await api.delete(NetworkPolicy.resource, each, name)

    async def is_isolated_in_the_room() -> bool:
        # Kubernetes' quota controller ignores a deletion if the ResourceQuota in its cache, from before some creations,
        # has the right count by chance: it counts again with the next deletion, or after five minutes.
        # Source: kubernetes, pkg/controller/resourcequota, `syncResourceQuota` and `UpdateFunc`.
        if await is_full():
            await api.delete(NetworkPolicy.resource, next(flood), name)
        return await is_isolated()

    await until(is_isolated_in_the_room, "the operator has created the policy")


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


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's hint about more than 1 MiB
async def test_large_configuration_is_refused_and_may_only_shrink(
    api: Api, flooder: Api, operator: Operator, name: str
) -> None:
    """E15, E16: by data, many keys, annotations or owner references; releases of Helm may be larger."""
    await api.make_tenant(name, owners=[{"kind": "User", "name": "flooder"}])
    await operator.stop()
    big = "x" * 130_000
    long = {f"k{number}": "" for number in range(2000)}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": big, "uid": "a"}
    encoded = base64.b64encode(big.encode()).decode()
    release = {"type": "helm.sh/release.v1", "data": {"release": encoded}}
    cases: list[tuple[Resource, Json, str]] = [
        (CONFIG_MAPS, {"data": {"a": "é" * 66_000}}, "128Ki"),
        (CONFIG_MAPS, {"binaryData": {"a": base64.b64encode(b"x" * 132_000).decode()}}, "128Ki"),
        (CONFIG_MAPS, {"data": long, "metadata": {"annotations": {"a": "x" * 20_000}}}, "128Ki"),
        # Many entries are not added up, which would cost too much;
        (CONFIG_MAPS, {"data": {f"k{number}": "x" for number in range(12_000)}}, "128Ki"),
        (SECRETS, {"data": {f"k{number}": "" for number in range(2001)}}, "128Ki"),
        (CONFIG_MAPS, {"metadata": {"ownerReferences": [owner, owner | {"uid": "b"}]}}, "128Ki"),
        (SECRETS, {"data": {"a": encoded, "b": encoded}}, "128Ki"),
        (SECRETS, {"stringData": {"a": big, "b": big}}, "128Ki"),
        (SECRETS, {"type": "x" * 140_000}, "128Ki"),
        (
            SECRETS,
            {**release, "data": dict.fromkeys("abcdefgh", encoded), "metadata": {"annotations": {"a": big}}},
            "1Mi",
        ),
    ]
    for resource, value, most in cases:
        given = {**value, "metadata": {"name": "big", **value.get("metadata", {})}}
        said = await refusal(flooder, resource, given, name)
        assert f"(rule objects.maxSizes of Tenantry's standard): must have at most {most}" in said, (most, said[:500])

    for resource, value in (
        (CONFIG_MAPS, {"data": {"a": big}}),
        (SECRETS, {"data": {"a": encoded}}),
        (SECRETS, release),
    ):
        assert await refusal(flooder, resource, {"metadata": {"name": "fits"}, **value}, name) == ""
    await flooder.create(CONFIG_MAPS, {"metadata": {"name": "fits"}, "data": {"a": big}}, name)
    assert "objects.maxSizes" in await refusal(flooder, CONFIG_MAPS, {"data": {"b": big}}, name, patch="fits")
    # A ConfigMap with 49 KB of keys: the API server stores them again for each field manager.
    keys = {f"{number:03}" + "k" * 240: "" for number in range(200)}
    await applied(flooder, "a", {"metadata": {"name": "managed"}, "data": keys}, name)
    with pytest.raises(Forbidden, match=r"objects\.maxSizes.*must have at most 128Ki"):
        await applied(flooder, "b", {"metadata": {"name": "managed"}, "data": keys}, name)


async def applied(person: Api, manager: str, config_map: Json, namespace: str) -> None:
    """Apply a ConfigMap by server-side apply."""
    url = wire.path(CONFIG_MAPS, namespace, config_map["metadata"]["name"])
    body = msgspec.json.encode({"apiVersion": "v1", "kind": "ConfigMap", **config_map})
    kind = "application/apply-patch+yaml"
    await person.client.request("PATCH", url, query={"fieldManager": manager}, body=body, content_type=kind)


def _at_length() -> dict[str, tuple[str, Json]]:
    """Return the ways to make an object long without annotations: the way to the plural, and the fields."""
    env = [{"name": f"V{number}", "value": "x" * 1000} for number in range(70)]
    container = {**POD_SPEC["containers"][0], "env": env}
    pod = {**POD_SPEC, "containers": [container]}
    workload = {"selector": {"matchLabels": {"app": "flood"}}, "replicas": 0}
    owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x" * 200, "uid": f"{n}"} for n in range(300)]
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": [f"{n}"], "verbs": ["get"]} for n in range(1000)
    ]
    labels = {f"k{n}.example.com/{'k' * 60}": "v" * 63 for n in range(500)}
    return {
        "environment of a template": (
            "deployments",
            {"spec": {**workload, "template": {**TEMPLATE, "spec": pod}}},
        ),
        "arguments": (
            "pods",
            {"spec": {**POD_SPEC, "containers": [{**POD_SPEC["containers"][0], "args": ["é" * 40_000]}]}},
        ),
        "labels": (
            "services",
            {"metadata": {"labels": labels}},
        ),
        "owners": ("leases", {"metadata": {"ownerReferences": owners}}),
        "rules": ("roles", {"rules": rules}),
        "message": ("events", {"message": "x" * 70_000}),
    }


@versions.changes_without_the_operator
async def test_large_objects_of_any_kind_are_refused(api: Api, flooder: Api, operator: Operator, name: str) -> None:
    """E15, E16: of each kind that an owner may create; the count alone would allow 900 ReplicaSets of 1.5 MB."""
    await api.make_tenant(name, owners=[{"kind": "User", "name": "flooder"}])
    await operator.stop()
    plain = {resource.plural: (resource, value) for resource, value in kinds(name)}
    known = {f"{resource.plural}.{resource.group}".rstrip(".") for resource, _ in kinds(name)}
    missed: set[str] = set()

    async def are_all_tried() -> bool:
        others = await creatable(flooder, name) - NOT_COUNTED - NOT_NAMESPACED
        built_in = {kind for kind in others if "." not in kind or kind.endswith(".k8s.io") or kind.count(".") == 1}
        missed.clear()
        missed.update({kind for kind in built_in if not kind.endswith("tenantry.dev")} - known)
        return not missed

    await until(are_all_tried, "every kind is tried", seen=lambda: missed)
    # Policy tenantry-closable leaves them even less: an annotation holds their subjects during a suspension.
    closable = {"rolebindings"}
    escaped = '"é\n\u200b' + "x" * 8
    said = ""
    for (resource, value), (_, elsewhere) in zip(kinds(name), kinds("default"), strict=True):
        not_fits = long(value, "big", escaped * 5_000)
        fits = long(value, "big", "x" * (20_000 if resource.plural in closable else 60_000))
        if resource not in {CONFIG_MAPS, SECRETS} and resource.plural not in closable:
            said = await refusal(flooder, resource, not_fits, name)
            assert f"{resource.kind.lower()} 'big' has 10" in said, (resource, said[:500])
            assert "(rule objects.maxSizes of Tenantry's standard): must have at most 64Ki" in said
        if resource.plural in {"events", "deployments", "roles"}:  # no policy of a tenant's namespace changes these
            stored = await tried(api, resource, long(elsewhere, "big", escaped * 5_000), "default")
            text = msgspec.json.encode(stored).replace(b'"namespace":"default"', f'"namespace":"{name}"'.encode())
            assert f"has {bytes_of(msgspec.json.decode(text))} bytes" in said, "Python counts as the API server does"
        assert await refusal(flooder, resource, fits, name) == "", resource
    for way, (plural, fields) in _at_length().items():
        resource, value = plain[plural]
        said = await refusal(
            flooder, resource, {**value, **fields, "metadata": {"name": "big", **fields.get("metadata", {})}}, name
        )
        assert "objects.maxSizes" in said, (way, said[:500])

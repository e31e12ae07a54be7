"""Attacks on Tenantry's marks, by an owner who was carelessly given too many rights, while the operator is stopped.

Mallory owns the tenant, and an administrator gave her every verb on everything in its namespace, and on all namespaces.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest_asyncio

from tenantry.api import marks
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.kube import wire
from tenantry.local.cluster import LocalCluster
from testkit import attempts
from testkit.api import CONFIG_MAPS, PODS, SECRETS, Api, until
from testkit.attempts import Attempt, apply, merge, post, steps, strategic
from testkit.hosts import INGRESSES, ingress
from testkit.operators import Operator
from testkit.people import as_person
from testkit.refusals import refusal

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
ABSENT_UID = "00000000-0000-0000-0000-000000000000"
NAMESPACES = Namespace.resource
SERVICES = Resource("", "v1", "services", "Service")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
BINDINGS = Resource("", "v1", "bindings", "Binding")
DEVICES = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")

MARK = "must not be set, changed or removed"
ALONE = "is written only by the cluster"


@pytest_asyncio.fixture
async def mallory(tenancy: LocalCluster, tmp_path: Path) -> AsyncGenerator[Api]:
    """The owner, with a certificate of her own."""
    async with as_person(tenancy, tmp_path, "mallory") as person:
        yield person


def marked(key: str, value: str | None = "x", field: str = "labels") -> Json:
    """Return a change of one label or annotation."""
    return {"metadata": {field: {key: value}}}


def pod(name: str, **metadata: object) -> Json:
    """Return a pod, as in YAML."""
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "c", "image": "example.com/c"}]}}


# -- namespaces -----------------------------------------------------------------------------------


async def test_a_namespaces_marks_are_not_written_by_its_owner(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: by no kind of patch, through no subresource, set, changed or removed."""
    await attempts.make_careless(api, name, "mallory")
    await operator.stop()
    before = await api.get(NAMESPACES, name)
    path, uid = attempts.namespace_path(name), marks.TENANT_UID
    pointer = f"/metadata/labels/{uid.replace('/', '~1')}"
    bare = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    table = {
        "changed": merge(path, marked(uid)),
        "changed strategically": strategic(path, marked(uid)),
        "changed step by step": steps(path, {"op": "replace", "path": pointer, "value": "x"}),
        "changed by apply": apply(path, NAMESPACES, {"metadata": {"name": name, "labels": {uid: "x"}}}),
        "removed": merge(path, marked(uid, None)),
        "removed step by step": steps(path, {"op": "remove", "path": pointer}),
        "all removed": merge(path, {"metadata": {"labels": None}}),
        "all replaced strategically": strategic(path, {"metadata": {"labels": {"$patch": "replace", "a": "b"}}}),
        "put without them": Attempt("PUT", path, bare),
        "the tree": merge(path, marked(f"kube-system{marks.TREE_SUFFIX}", "1")),
        "a name of the tenant's own": merge(path, marked(f"{name}.tenantry.dev/team")),
        "an annotation": merge(path, marked("tenantry.dev/anything", field="annotations")),
        "pod security": merge(path, marked("pod-security.kubernetes.io/enforce", "privileged")),
    }
    assert await attempts.succeeded(mallory, table, told=MARK) == []
    status, finalize = attempts.namespace_path(name, "status"), attempts.namespace_path(name, "finalize")
    table = {
        "through the status": merge(status, marked(uid)),
        "put into the status": Attempt("PUT", status, bare),
        "through finalize": Attempt("PUT", finalize, {**bare, "metadata": {"name": name, "labels": {uid: "x"}}}),
        "no more finalizers": Attempt("PUT", finalize, {**before, "spec": {"finalizers": []}}),
        "a finalizer that holds it": Attempt("PUT", finalize, {**before, "spec": {"finalizers": ["a.example/b"]}}),
    }
    assert await attempts.succeeded(mallory, table, told="its status and its finalizers are written by the") == []
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}
    table = {
        "an owner that is not there": merge(path, {"metadata": {"ownerReferences": [owner]}}),
        "no owner": merge(path, {"metadata": {"ownerReferences": None}}),
        "held": merge(path, {"metadata": {"finalizers": ["a.example/b"]}}),
    }
    assert await attempts.succeeded(mallory, table, told="must not change: they determine when it is deleted") == []
    assert await attempts.succeeded(mallory, {"deleted": Attempt("DELETE", path)}, told="delete its Subnamespace") == []
    assert await api.get(NAMESPACES, name) == before
    await mallory.patch(NAMESPACES, name, marked("example.com/team"))


async def test_no_namespace_is_made_to_look_like_a_tenants(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: neither made so, nor made so later, be it for adoption; others' namespaces are free."""
    tenant = await attempts.make_careless(api, name, "mallory")
    foreign = f"{name}-foreign"
    await api.create(NAMESPACES, {"metadata": {"name": foreign}})
    taking = {"mode": "Workspace", "inheritance": {"roleBindings": "Sync"}, "adopt": {"namespace": foreign}}
    taker = await mallory.create(Subnamespace.resource, {"metadata": {"name": "taken"}, "spec": taking}, name)
    await operator.stop()
    before = await api.get(NAMESPACES, foreign)
    everywhere, path = wire.path(NAMESPACES), attempts.namespace_path(foreign)
    labels = {marks.TENANT: name, marks.TENANT_UID: tenant.metadata.uid, marks.KIND: marks.KIND_CORE}
    made: Json = {"name": f"{name}-made"}
    table = {
        "taken": merge(path, {"metadata": {"labels": labels}}),
        "given to a Subnamespace": merge(path, marked(marks.SUBNAMESPACE_UID, taker["metadata"]["uid"])),
        "annotated": merge(path, marked("tenantry.dev/anything", field="annotations")),
        "made": post(everywhere, NAMESPACES, {"metadata": {**made, "labels": labels}}),
        "made, annotated": post(everywhere, NAMESPACES, {"metadata": {**made, "annotations": labels}}),
        "a generated name": post(everywhere, NAMESPACES, {"metadata": {"generateName": "a-", "labels": labels}}),
        "applied": apply(f"{everywhere}/{made['name']}", NAMESPACES, {"metadata": {**made, "labels": labels}}),
        "the operator's": merge(
            attempts.namespace_path(marks.SYSTEM_NAMESPACE), marked("pod-security.kubernetes.io/enforce", "privileged")
        ),
    }  # fmt: skip
    assert await attempts.succeeded(mallory, table, told=MARK) == []
    end = {"the operator's": Attempt("DELETE", attempts.namespace_path(marks.SYSTEM_NAMESPACE))}
    assert await attempts.succeeded(mallory, end, told="is Tenantry's") == []
    assert await api.get(NAMESPACES, foreign) == before
    await mallory.patch(NAMESPACES, foreign, marked("pod-security.kubernetes.io/enforce", "restricted"))
    await mallory.client.delete(NAMESPACES, "", foreign)


# -- inside ---------------------------------------------------------------------------------------


async def test_marks_on_objects_inside_are_not_the_tenants(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: on any object, by any way in; what is the users' to set is theirs."""
    await attempts.make_careless(api, name, "mallory")
    await mallory.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, name)
    await mallory.create(PODS, pod("mine"), name)
    await mallory.create(PODS, pod("fast", annotations={"kubernetes.io/ingress-bandwidth": "1M"}), name)
    await api.create(CONFIG_MAPS, {"metadata": {"name": "ours", "labels": {"tenantry.dev/x": "y"}}}, name)
    await operator.stop()
    maps, pods, bindings = (wire.path(kind, name) for kind in (CONFIG_MAPS, PODS, RoleBinding.resource))
    mine, ours, running, fast = f"{maps}/mine", f"{maps}/ours", f"{pods}/mine", f"{pods}/fast"
    view = {"kind": "ClusterRole", "name": "view", "apiGroup": attempts.RBAC}
    closed = {"name": "back", "annotations": {marks.SUSPENDED_SUBJECTS: '[{"kind":"User","name":"eve"}]'}}
    table = {
        "made with a label": post(maps, CONFIG_MAPS, {"metadata": {"name": "a", "labels": {"tenantry.dev/x": "y"}}}),
        "made with an annotation": post(pods, PODS, pod("a", annotations={"b.c.tenantry.dev/x": "y"})),
        "a generated name": post(maps, CONFIG_MAPS, {"metadata": {"generateName": "a-", "labels": {marks.KIND: "y"}}}),
        "gVisor mounts": post(pods, PODS, pod("a", annotations={"dev.gvisor.spec.mount.root.source": "/etc"})),
        "a flag of gVisor, later": merge(running, marked("dev.gvisor.flag.debug", "true", "annotations")),
        "Kata": post(pods, PODS, pod("a", annotations={"io.katacontainers.config.hypervisor.path": "/opt/x"})),
        "CRI-O": post(pods, PODS, pod("a", annotations={"io.kubernetes.cri-o.Devices": "/dev/sda"})),
        "made by apply": apply(f"{maps}/a", CONFIG_MAPS, {"metadata": {"name": "a", "labels": {marks.TENANT: "y"}}}),
        "who comes back after all": post(bindings, RoleBinding.resource, {"metadata": closed, "roleRef": view}),
        "pod security": merge(mine, marked("pod-security.kubernetes.io/warn", field="annotations")),
        "set": merge(mine, marked("tenantry.dev/x")),
        "set strategically": strategic(mine, marked("tenantry.dev/x")),
        "set step by step": steps(mine, {"op": "add", "path": "/metadata/labels", "value": {"tenantry.dev/x": "y"}}),
        "set by apply": apply(mine, CONFIG_MAPS, {"metadata": {"name": "mine", "labels": {"tenantry.dev/x": "y"}}}),
        "changed": merge(ours, marked("tenantry.dev/x", "z")),
        "removed": merge(ours, marked("tenantry.dev/x", None)),
        "put without": Attempt("PUT", ours, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours"}}),
        "more bandwidth": merge(fast, marked("kubernetes.io/ingress-bandwidth", "9G", "annotations")),
        "bandwidth later": merge(running, marked("kubernetes.io/egress-bandwidth", "9G", "annotations")),
        "no limit of bandwidth": merge(fast, marked("kubernetes.io/ingress-bandwidth", None, "annotations")),
    }  # fmt: skip
    assert await attempts.succeeded(mallory, table, told=MARK) == []
    # These change what they are about, and drop the rest.
    more = {"ephemeralContainers": [{"name": "e", "image": "example.com/e"}]}
    for ignored in (
        strategic(f"{running}/ephemeralcontainers", {**marked("tenantry.dev/x"), "spec": more}),
        strategic(f"{running}/resize", marked("tenantry.dev/x")),
    ):
        assert await attempts.succeeded(mallory, {"dropped": ignored}, told=MARK) == ["dropped: went through"]
    assert "labels" not in (await api.get(PODS, "mine", name))["metadata"]
    await mallory.patch(CONFIG_MAPS, "mine", marked(marks.INHERIT, "none", "annotations"), name)
    await mallory.patch(CONFIG_MAPS, "ours", {"data": {"a": "b"}}, name)
    assert (await api.get(CONFIG_MAPS, "ours", name))["metadata"]["labels"] == {"tenantry.dev/x": "y"}


async def test_no_subresource_is_a_way_in_for_marks(api: Api, mallory: Api, operator: Operator, name: str) -> None:
    """E15, X02: neither an eviction, nor a scale, nor a status; without marks they are hers, as is a collection."""
    await attempts.make_careless(api, name, "mallory")
    await mallory.create(PODS, pod("mine"), name)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    await mallory.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, name)
    await operator.stop()
    evicted, web = f"{wire.path(PODS, name)}/mine/eviction", f"{wire.path(DEPLOYMENTS, name)}/web"
    scale, status = f"{web}/scale", f"{web}/status"
    label: Json = {"tenantry.dev/x": "y"}
    eviction = Resource("policy", "v1", "evictions", "Eviction")
    scaled = Resource("autoscaling", "v1", "scales", "Scale")
    put: Json = {"metadata": {"name": "web", "namespace": name, "labels": label}, "spec": {"replicas": 2}}
    table = {
        "an eviction": post(evicted, eviction, {"metadata": {"name": "mine", "labels": label}}),
        "an annotated eviction": post(evicted, eviction, {"metadata": {"name": "mine", "annotations": label}}),
        "a status": merge(status, {"metadata": {"annotations": label}}),
        "a status, strategically": strategic(status, {"metadata": {"annotations": label}}),
        "a status, step by step": steps(status, {"op": "add", "path": "/metadata/annotations", "value": label}),
        "a status, applied": apply(status, DEPLOYMENTS, {"metadata": {"name": "web", "annotations": label}}),
    }
    assert await attempts.succeeded(mallory, table, told=MARK) == []
    # These change what they are about, and drop the rest.
    dropped = {
        "a scale": Attempt("PUT", scale, {"apiVersion": "autoscaling/v1", "kind": "Scale", **put}),
        "a scale, merged": merge(scale, {"metadata": {"labels": label}, "spec": {"replicas": 2}}),
        "a scale, step by step": steps(scale, {"op": "add", "path": "/metadata/labels", "value": label}),
        "a scale, applied": apply(scale, scaled, put),
        "a status": merge(status, {"metadata": {"labels": label}}),
        "a status, applied": apply(status, DEPLOYMENTS, {"metadata": {"name": "web", "labels": label}}),
    }
    assert await attempts.succeeded(mallory, dropped, told=MARK) == [f"{what}: went through" for what in dropped]
    left = (await api.get(DEPLOYMENTS, "web", name))["metadata"]
    assert not label.keys() & {*left.get("labels", {}), *left.get("annotations", {})}
    honest = {
        "an eviction": post(evicted, eviction, {"metadata": {"name": "mine"}}),
        "all pods": Attempt("DELETE", wire.path(PODS, name)),
    }
    assert await attempts.succeeded(mallory, honest, told=MARK) == [f"{what}: went through" for what in honest]


async def test_devices_are_allocated_by_the_cluster_alone(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: a writer of a ResourceClaim's status would get a device of a node without an allocation."""
    await attempts.make_careless(api, name, "mallory")
    exactly = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    await mallory.create(DEVICES, {"metadata": {"name": "mine"}, "spec": {"devices": {"requests": [exactly]}}}, name)
    # Kubernetes requires these rights of a writer; she was granted them, too.
    resources = ["resourceclaims/binding", "resourceclaims/driver"]
    rules = [{"apiGroups": [DEVICES.group], "resources": resources, "verbs": ["*"]}]
    await api.create(attempts.CLUSTER_ROLES, {"metadata": {"name": f"{name}-devices"}, "rules": rules})
    subjects = [{"kind": "User", "name": "mallory", "apiGroup": attempts.RBAC}]
    ref = {"kind": "ClusterRole", "name": f"{name}-devices", "apiGroup": attempts.RBAC}
    binding: Json = {"metadata": {"name": f"{name}-devices"}, "subjects": subjects, "roleRef": ref}
    await api.create(attempts.CLUSTER_ROLE_BINDINGS, binding)
    await operator.stop()
    status = f"{wire.path(DEVICES, name)}/mine/status"
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
    given: Json = {"status": {"allocation": {"devices": {"results": [result]}}}}
    whole = await api.get(DEVICES, "mine", name)
    table = {
        "merged": merge(status, given),
        "merged strategically": strategic(status, given),
        "step by step": steps(status, {"op": "add", "path": "/status/allocation", "value": {}}),
        "applied": apply(status, DEVICES, {"metadata": {"name": "mine"}, **given}),
        "put": Attempt("PUT", status, {**whole, "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **given}),
    }

    async def refused() -> bool:
        # Until her rights are known, Kubernetes refuses with words of its own.
        return await attempts.succeeded(mallory, table, told=ALONE) == []

    await until(refused, "the policy refuses what her rights allow")
    assert "allocation" not in (await api.get(DEVICES, "mine", name)).get("status", {})


async def test_what_the_cluster_writes_is_not_written_by_tenants(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: on which node a pod is, what a quota counts, which address a Service has, and our own kinds' status."""
    rules = {"services": {"types": ["ClusterIP", "LoadBalancer"]}}
    await attempts.make_careless(api, name, "mallory", quota={"hard": {"cpu": "1"}}, rules=rules)
    balanced = {"metadata": {"name": "mine"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for person, kind, value in (
        (mallory, PODS, pod("mine")),
        (mallory, SERVICES, balanced),
        (api, CLAIMS, {"metadata": {"name": "mine"}, "spec": claim}),
    ):

        async def may(person: Api = person, kind: Resource = kind, value: Json = value) -> bool:
            # Policies see the tenant's rules, and Kubernetes counts by a quota, a moment after they are written.
            return not await refusal(person, kind, value, name)

        await until(may, f"a {kind.kind} can be made")
        await person.create(kind, value, name)
    await mallory.create(INGRESSES, ingress(f"{name}.example", name="mine"), name)
    spec = {"mode": "Workspace", "inheritance": {"roleBindings": "Sync"}}
    await mallory.create(Subnamespace.resource, {"metadata": {"name": "team"}, "spec": spec}, name)
    await operator.stop()
    node = {"kind": "Node", "name": "n1"}
    binding: Json = {"metadata": {"name": "mine", "labels": {"a": "b"}}, "target": node}
    pods, services = f"{wire.path(PODS, name)}/mine", f"{wire.path(SERVICES, name)}/mine"
    quota = wire.path(Resource("", "v1", "resourcequotas", "ResourceQuota"), name, "tenantry-quota", "status")
    address = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}
    table = {
        "bound": post(f"{pods}/binding", BINDINGS, binding),
        "bound the old way": post(wire.path(BINDINGS, name), BINDINGS, binding),
        "a pod that has ended": merge(f"{pods}/status", {"status": {"phase": "Succeeded"}}),
        "an address": merge(f"{services}/status", address),
        "an address strategically": strategic(f"{services}/status", address),
        "an address of an Ingress": merge(f"{wire.path(INGRESSES, name)}/mine/status", address),
        "a larger volume": merge(
            f"{wire.path(CLAIMS, name)}/mine/status", {"status": {"capacity": {"storage": "1Ti"}}}
        ),
        "a quota": merge(quota, {"status": {"hard": {"requests.cpu": "100"}}}),
        "what is in use": merge(quota, {"status": {"used": {"requests.cpu": "0"}}}),
        "what is inside": merge(
            wire.path(Subnamespace.resource, name, "team", "status"), {"status": {"namespace": "kube-system"}}
        ),
    }
    assert await attempts.succeeded(mallory, table, told=ALONE) == []


async def test_a_template_carries_no_marks_into_what_kubernetes_makes_of_it(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: Kubernetes' controllers are told the same as the tenant."""
    await attempts.make_careless(api, name, "mallory")
    await operator.stop()
    labels = {"app": "web", marks.INHERITED_FROM: "elsewhere"}
    template = {"metadata": {"labels": labels}, "spec": pod("")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    await mallory.create(REPLICA_SETS, {"metadata": {"name": "web"}, "spec": spec}, name)

    async def told() -> bool:
        conditions: list[Json] = (await api.get(REPLICA_SETS, "web", name))["status"].get("conditions", [])
        return any(MARK in condition.get("message", "") for condition in conditions)

    await until(told, "the ReplicaSet says why it has no pod")
    assert await api.list(PODS, name) == []


async def test_nothing_of_a_tenants_holds_the_end_of_what_is_tenantrys(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: foreground deletion would wait for it."""
    tenant = await attempts.make_careless(api, name, "mallory")
    namespace = await api.get(NAMESPACES, name)
    binding = await api.get(RoleBinding.resource, "tenantry-owner", name)
    await operator.stop()
    maps = wire.path(CONFIG_MAPS, name)
    owners = {
        "the tenant": (Tenant.resource, name, tenant.metadata.uid),
        "the namespace": (NAMESPACES, name, namespace["metadata"]["uid"]),
        "the binding": (RoleBinding.resource, "tenantry-owner", binding["metadata"]["uid"]),
        "a grant": (RoleBinding.resource, "request-more", ABSENT_UID),
    }
    table = {
        what: post(maps, CONFIG_MAPS, {"metadata": {"name": "holds", "ownerReferences": [_owner(*owner)]}})
        for what, owner in owners.items()
    }
    assert await attempts.succeeded(mallory, table, told="blockOwnerDeletion for objects of Tenantry") == []
    mine = await mallory.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, name)
    own = _owner(CONFIG_MAPS, "mine", mine["metadata"]["uid"])
    await mallory.create(CONFIG_MAPS, {"metadata": {"name": "below", "ownerReferences": [own]}}, name)


async def test_what_is_too_long_to_be_looked_through_is_refused_but_not_to_administrators(
    api: Api, mallory: Api, operator: Operator, name: str
) -> None:
    """E15, X02: an expression that costs too much refuses every request; no object may become undeletable."""
    await attempts.make_careless(api, name, "mallory", rules={"objects": {"maxSizes": {"configmaps": "2Mi"}}})
    await operator.stop()
    # As long as the API server takes them.
    annotations = {f"k{number}": "" for number in range(40_000)}
    owners = [_owner(CONFIG_MAPS, "gone", f"u{number}") for number in range(2000)]
    held = {"finalizers": ["a.example/b"], "annotations": annotations}
    maps, namespaces = wire.path(CONFIG_MAPS, name), wire.path(NAMESPACES)
    table = {
        "annotations": post(maps, CONFIG_MAPS, {"metadata": {"name": "long", **held}}),
        "labels": post(maps, CONFIG_MAPS, {"metadata": {"name": "long", "labels": annotations}}),
        "owners": post(maps, CONFIG_MAPS, {"metadata": {"name": "long", "ownerReferences": owners}}),
        "a namespace": post(namespaces, NAMESPACES, {"metadata": {"name": f"{name}-long", **held}}),
        "the tenant's": merge(attempts.namespace_path(name), {"metadata": {"annotations": annotations}}),
    }
    assert await attempts.succeeded(mallory, table, told="must have at most 1000 each") == []
    await api.create(CONFIG_MAPS, {"metadata": {"name": "long", **held}}, name)
    await api.patch(CONFIG_MAPS, "long", {"metadata": {"finalizers": None}}, name)
    await mallory.client.delete(CONFIG_MAPS, name, "long")


def _owner(resource: Resource, name: str, uid: str) -> Json:
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**kind, "name": name, "uid": uid, "blockOwnerDeletion": True}


# -- what goes on ---------------------------------------------------------------------------------


async def test_honest_work_and_kubernetes_itself_go_on(api: Api, mallory: Api, operator: Operator, name: str) -> None:
    """X02: with the operator stopped people work, the quota counts, endpoints follow, and a tenant ends."""
    hard = {"count/secrets": "2", "cpu": "4"}
    await attempts.make_careless(api, name, "mallory", quota={"hard": hard})
    await operator.stop()
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    await mallory.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, name)

    async def runs() -> bool:
        return len(await api.list(PODS, name)) == spec["replicas"]

    await until(runs, "the pods are made")
    ports = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    # As an inherited Service has it; its EndpointSlices get its labels.
    inherited = {"name": "web", "labels": {marks.INHERITED_FROM: "above"}}
    await api.create(SERVICES, {"metadata": inherited, "spec": ports}, name)

    async def followed() -> bool:
        found = await api.list(SLICES, name)
        return any(each["metadata"]["labels"].get(marks.INHERITED_FROM) == "above" for each in found)

    await until(followed, "the Service has its EndpointSlices")
    # Kubernetes makes no Secrets of its own here, which would count.
    for number in range(2):
        await mallory.create(SECRETS, {"metadata": {"name": f"s{number}"}}, name)
    over = {"one more": post(wire.path(SECRETS, name), SECRETS, {"metadata": {"name": "over"}})}
    assert await attempts.succeeded(mallory, over, told="exceeded quota") == []
    await api.delete(Tenant.resource, name)
    await api.gone(NAMESPACES, name)

"""L05, E07: what a hostile home tries at a peer whose operator is stopped, with the token of its account."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import Namespace, ResourceQuota, RoleBinding
from tenantry.api.marks import TENANT_UID
from tenantry.api.model import Json, Resource
from tenantry.api.peercluster import HOME_ID, HOME_NAMESPACE, PEERS_NAMESPACE, PeerCluster, tenant_name
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.tenantnamespace import COUNTS
from tenantry.engine import request
from tenantry.engine.lease import Lease
from tenantry.engine.writer import Writer
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.world.naming import mapped_name
from tenantry.world.objectcounts import PREFIX, STANDARD
from testkit.api import CONFIG_MAPS, PODS, SECONDS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.peerings import PATIENCE, Peering, connection, placed, token_of

HOME, OTHER = "home", "paris"
CORE, OTHERS = tenant_name(HOME), tenant_name(OTHER)
ID, OTHER_ID = "7f9f2ad1-0000-4000-8000-000000000001", "7f9f2ad1-0000-4000-8000-000000000002"
OWNER = {"kind": "ServiceAccount", "name": HOME, "namespace": PEERS_NAMESPACE}
QUOTA = {"cpu": "4", "memory": "8Gi", "pods": "20"}
SHARE = {"cpu": "1", "memory": "1Gi", "pods": "5"}
SERVICES = Resource("", "v1", "services", "Service")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
LASTING = {"kubernetes.io/service-account.name": "default"}
TOKENS = "kubernetes.io/service-account-token"
CONTAINER: Json = {"name": "c", "image": "registry.example.com/web"}
ADDRESSES = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": []}
NOT_WRITTEN = "another cluster does not write"


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """A peer with a guest.

    Args:
        admin: An administrator of the peer.
        api: The guest.
        namespace: A mapped namespace of the guest.
        place: The namespace of its Workspace.
        peering: The commands.
    """

    admin: Api
    api: Api
    namespace: str
    place: str
    peering: Peering


def sub(name: str, *, namespace: str = "", home: str = ID, **spec: Any) -> Json:  # noqa: ANN401 - fields of a spec
    """Return a Subnamespace as a home makes it."""
    notes = {HOME_NAMESPACE: namespace or name, HOME_ID: home}
    whole = {"mode": "Workspace", "owners": [OWNER], **spec}
    return {"metadata": {"name": name, "annotations": notes}, "spec": whole}


@pytest_asyncio.fixture(scope="module")
async def guest(tenantry_home: Path) -> AsyncIterator[Guest]:
    """A peer with two guests, of which one has a namespace with a pod; then its operator stops."""
    peering = Peering(tenantry_home, HOME, "attacked")
    try:
        await peering.run("up", "--cluster", "attacked", "--throwaway", "--nodes", "1", PATIENCE)
        cluster = peering.cluster("attacked")
        async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
            admin = Api(client)
            for name, known_id in ((HOME, ID), (OTHER, OTHER)):
                half = {"quota": {"hard": QUOTA}, "maxNamespaces": 3, "clusterId": known_id}
                await admin.create(PeerCluster.resource, {"metadata": {"name": name}, "spec": {"guest": half}})
            for name in (CORE, OTHERS):
                await until(lambda name=name: admin.find(Tenant.resource, name), f"there is Tenant {name!r}")
                await admin.ready(name)
                await admin.open(name)
            token = await token_of(admin, HOME, 3600)
            async with Client(connection(cluster, token)) as its:
                api = Api(its)
                place = await _made(admin, api, CORE, sub("shop", isolation={"zone": "Own"}, quota={"hard": SHARE}))
                name = mapped_name(ID, "web")
                namespace = await _made(admin, api, place, sub("web", namespaceName=name, quota={"hard": SHARE}))
                assert namespace == name
                await admin.default_account(namespace)
                await cluster.stop_component("operator")
                yield Guest(admin=admin, api=api, namespace=namespace, place=place, peering=peering)
    finally:
        await peering.run("down", "--cluster", "attacked", "--purge", "--yes", checked=False)


async def _made(admin: Api, api: Api, namespace: str, value: Json) -> str:
    """Create a Subnamespace as the guest; return its namespace, once the guest may work in it."""
    await api.create(Subnamespace.resource, value, namespace)

    async def so() -> str | None:
        found = await admin.get(Subnamespace.resource, value["metadata"]["name"], namespace)
        status: Json = found.get("status") or {}
        is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in status.get("conditions", ()))
        return status.get("namespace") if is_ready else None

    name = await until(so, f"Subnamespace {value['metadata']['name']!r} is ready")
    await admin.open(name)
    return name


Attempt = Callable[[Guest], Awaitable[object]]


def pod(**spec: Any) -> Attempt:  # noqa: ANN401 - fields of a spec
    """Return the creation of a pod with fields of its spec."""
    return lambda guest: guest.api.create(PODS, placed(guest.namespace, "bad", **spec), guest.namespace)


def made(resource: Resource, value: Json, *, where: str = "namespace") -> Attempt:
    """Return the creation of an object in the mapped namespace, or in another one of the guest's or of others."""
    whole = {"metadata": {"name": "bad"}, **value}
    return lambda guest: guest.api.create(resource, whole, getattr(guest, where, where))


def token(guest: Guest, account: str, namespace: str) -> Awaitable[object]:
    """Request a token of a ServiceAccount."""
    return Writer(guest.api.client).send(request.token(SERVICE_ACCOUNTS, namespace, account, seconds=3600))


def marked(field: str, key: str) -> Attempt:
    """Return the creation of a pod with a mark."""

    def attempt(guest: Guest) -> Awaitable[object]:
        value = placed(guest.namespace, "bad")
        value["metadata"].setdefault(field, {})[key] = "x"
        return guest.api.create(PODS, value, guest.namespace)

    return attempt


async def flooded(guest: Guest) -> None:
    """Create ConfigMaps beyond the count of a child; return when those that were made are gone and not counted."""

    async def used() -> str:
        found: Json = await guest.admin.get(ResourceQuota.resource, COUNTS, guest.namespace)
        return found["status"]["used"][PREFIX + "configmaps"]

    before, created = await used(), list[str]()
    try:
        for number in range(STANDARD["configmaps"][1] + 1):
            name = f"flood-{number}"
            await guest.api.create(CONFIG_MAPS, {"metadata": {"name": name}}, guest.namespace)
            created.append(name)
    finally:
        left = iter(created)
        for name in itertools.islice(left, max(0, len(created) - 3)):
            await guest.api.delete(CONFIG_MAPS, name, guest.namespace)

        async def is_free() -> bool:
            # Kubernetes' quota controller ignores a deletion if the ResourceQuota in its cache, from before some
            # creations, has the right count by chance: it counts again with the next deletion, or after five minutes.
            name = next(left, "")
            if name:
                await guest.api.delete(CONFIG_MAPS, name, guest.namespace)
            return not name and await used() == before

        await until(is_free, "the ConfigMaps are not counted any more")


# Of two policies that refuse a request, the API server reports either: the words are those of both.
ATTACKS: dict[str, tuple[Attempt, str]] = {
    # -- the node, and other pods on it
    "host path": (pod(volumes=[{"name": "root", "hostPath": {"path": "/"}}]), "hostPath"),
    "host network": (pod(hostNetwork=True), "hostNetwork"),
    "host processes": (pod(hostPID=True), "hostPID"),
    "privileged": (pod(container={"securityContext": {"privileged": True}}), "privileged"),
    "name of a node": (pod(nodeName="node-1"), "nodeName"),
    "every taint": (pod(tolerations=[{"operator": "Exists"}]), "tolerations"),
    "priority": (pod(priorityClassName="system-node-critical"), "(?i)priority"),
    "binding": (
        lambda guest: guest.api.create(
            PODS,
            {"metadata": {"name": "bad"}, "target": {"kind": "Node", "name": "node-1"}},
            guest.namespace,
            subresource="binding",
        ),
        "binding",
    ),
    # -- amounts
    "more than its share": (
        pod(container={"resources": {"requests": {"cpu": "2", "memory": "1Mi"}, "limits": {"memory": "1Mi"}}}),
        "exceeded quota",
    ),
    "objects beyond the counts of a child": (flooded, r"exceeded quota: tenantry-counts.*count/configmaps"),
    "many containers": (
        pod(initContainers=[{**CONTAINER, "name": f"c{number}"} for number in range(32)]),
        "at most 32",
    ),
    "a long argument": (pod(container={"args": ["x" * 140_000]}), "128 KiB|maxSizes"),
    "a large ConfigMap": (made(CONFIG_MAPS, {"data": {"a": "x" * 140_000}}), "128 KiB|maxSizes"),
    "a large Secret": (made(SECRETS, {"stringData": {"a": "x" * 140_000}}), "128 KiB|maxSizes"),
    "its quota": (
        lambda guest: guest.api.patch(Tenant.resource, CORE, {"spec": {"quota": {"hard": {"cpu": "100"}}}}),
        "forbidden",
    ),
    "its ResourceQuota": (
        lambda guest: guest.api.patch(
            ResourceQuota.resource, "tenantry-quota", {"spec": {"hard": {"requests.cpu": "100"}}}, guest.namespace
        ),
        "forbidden",
    ),
    "a share above its own": (
        lambda guest: guest.api.create(Subnamespace.resource, sub("big", quota={"hard": {"cpu": "100"}}), CORE),
        "must not exceed",
    ),
    # -- what would stay when the peering ends
    "a finalizer": (
        made(CONFIG_MAPS, {"metadata": {"name": "bad", "finalizers": ["example.com/stay"]}}),
        "metadata.finalizers",
    ),
    "a finalizer later": (
        lambda guest: guest.api.patch(
            PODS, "honest", {"metadata": {"finalizers": ["example.com/stay"]}}, guest.namespace
        ),
        "metadata.finalizers",
    ),
    "a finalizer of its Subnamespace": (
        lambda guest: guest.api.patch(
            Subnamespace.resource, "web", {"metadata": {"finalizers": ["example.com/stay"]}}, guest.place
        ),
        "metadata.finalizers",
    ),
    "a finalizer of its Lease": (
        lambda guest: guest.api.patch(
            Lease.resource, HOME, {"metadata": {"finalizers": ["example.com/stay"]}}, PEERS_NAMESPACE
        ),
        "metadata.finalizers",
    ),
    "the owner of its Lease": (
        lambda guest: guest.api.patch(Lease.resource, HOME, {"metadata": {"ownerReferences": None}}, PEERS_NAMESPACE),
        "metadata.ownerReferences",
    ),
    # -- identities and rights
    "token of a ServiceAccount": (lambda guest: token(guest, "default", guest.namespace), NOT_WRITTEN),
    "token of its own": (lambda guest: token(guest, HOME, PEERS_NAMESPACE), "forbidden"),
    "token that stays": (
        made(
            SECRETS,
            {"metadata": {"name": "bad", "annotations": LASTING}, "type": "kubernetes.io/service-account-token"},
        ),
        "outlive the peering",
    ),
    "RoleBinding": (made(RoleBinding.resource, {"roleRef": ROLE, "subjects": []}), "(?i)forbidden|does not write"),
    "Role": (made(ROLES, {"rules": []}), NOT_WRITTEN),
    "ServiceAccount": (made(SERVICE_ACCOUNTS, {}), NOT_WRITTEN),
    "another owner": (
        lambda guest: guest.api.create(
            Subnamespace.resource, sub("own", owners=[OWNER, {"kind": "User", "name": "mallory"}]), guest.place
        ),
        "spec.owners",
    ),
    "a pod as owner": (
        lambda guest: guest.api.create(
            Subnamespace.resource,
            sub("own", owners=[{"kind": "ServiceAccount", "name": "default", "namespace": guest.namespace}]),
            guest.place,
        ),
        "spec.owners",
    ),
    "inherited rights": (
        lambda guest: guest.api.patch(
            Subnamespace.resource, "web", {"spec": {"inheritance": {"roleBindings": "Sync"}}}, guest.place
        ),
        "spec.inheritance",
    ),
    "a Subtenant": (
        lambda guest: guest.api.create(Subnamespace.resource, sub("own", mode="Subtenant"), guest.place),
        "spec.mode|ServiceAccount",
    ),
    "adoption": (
        lambda guest: guest.api.create(
            Subnamespace.resource, sub("own", adopt={"namespace": "kube-public"}), guest.place
        ),
        "must not have adopt",
    ),
    "a reserved name": (
        lambda guest: guest.api.create(Subnamespace.resource, sub("own", namespaceName="kube-web"), guest.place),
        "spec.namespaceName",
    ),
    "a name that is none": (
        lambda guest: guest.api.create(Subnamespace.resource, sub("own", namespaceName="x" * 64), guest.place),
        "spec.namespaceName",
    ),
    "another name later": (
        lambda guest: guest.api.patch(Subnamespace.resource, "web", {"spec": {"namespaceName": "mail"}}, guest.place),
        "must not change",
    ),
    # -- what leads elsewhere
    "EndpointSlice": (made(SLICES, ADDRESSES), "(?i)forbidden|does not write"),
    "Endpoints": (made(ENDPOINTS, {"subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}), "(?i)forbidden|does not write"),
    "NodePort": (made(SERVICES, {"spec": {"type": "NodePort", "ports": [{"port": 80}]}}), "type"),
    "load balancer": (made(SERVICES, {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}), "type"),
    "external address": (
        made(SERVICES, {"spec": {"externalIPs": ["10.0.0.1"], "ports": [{"port": 80}]}}),
        "(?i)external",
    ),
    "external name": (
        made(SERVICES, {"spec": {"type": "ExternalName", "externalName": "example.com"}}),
        "(?i)type|externalName",
    ),
    "NetworkPolicy": (made(POLICIES, {"spec": {"podSelector": {}}}), NOT_WRITTEN),
    "claim of a volume": (
        made(CLAIMS, {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
        NOT_WRITTEN,
    ),
    "nodes of its own": (made(SliceClaim.resource, {"spec": {"count": 1}}), NOT_WRITTEN),
    "a control plane": (made(VirtualControlPlane.resource, {"spec": {}}), NOT_WRITTEN),
    # -- marks, and what belongs to others
    "a label of a pod": (marked("labels", "tenantry.dev/tenant"), "must not be set"),
    "a mark of a control plane": (marked("annotations", "vcp.tenantry.dev/owner"), "must not be set"),
    "a label of its namespace": (
        lambda guest: guest.api.patch(Namespace.resource, guest.namespace, {"metadata": {"labels": {TENANT_UID: "x"}}}),
        "forbidden",
    ),
    "a status": (
        lambda guest: guest.api.client.request(
            "PATCH",
            f"/api/v1/namespaces/{guest.namespace}/pods/honest/status",
            body=b'{"status": {"podIP": "10.0.0.1"}}',
            content_type="application/merge-patch+json",
        ),
        "forbidden",
    ),
    "a namespace": (lambda guest: guest.api.create(Namespace.resource, {"metadata": {"name": "bad"}}), "forbidden"),
    "all namespaces": (lambda guest: guest.api.list(Namespace.resource), "forbidden"),
    "Secrets of the cluster": (lambda guest: guest.api.list(SECRETS, "kube-system"), "forbidden"),
    "Secrets of guests": (lambda guest: guest.api.list(SECRETS, PEERS_NAMESPACE), "forbidden"),
    "nodes": (lambda guest: guest.api.list(NODES), "forbidden"),
    "pods of another guest": (lambda guest: guest.api.list(PODS, OTHERS), "forbidden"),
    "a pod of another guest": (made(PODS, placed(OTHERS, "bad"), where=OTHERS), "forbidden"),
    "a Workspace of another guest": (made(Subnamespace.resource, sub("bad"), where=OTHERS), "forbidden"),
    "the end of the cluster": (lambda guest: _deleted(guest, "kube-system"), "forbidden"),
    "what serves it": (lambda guest: guest.api.get(PeerCluster.resource, HOME), "forbidden"),
}


async def _deleted(guest: Guest, namespace: str) -> None:
    await guest.api.client.delete(Namespace.resource, "", namespace)


async def test_a_hostile_home_gets_nothing_while_the_operator_is_stopped(guest: Guest) -> None:
    """L05: each attempt is refused for its own reason, and what a home needs works before and after."""
    await guest.api.create(PODS, placed(guest.namespace, "honest"), guest.namespace)
    through, wrong = list[str](), list[str]()
    for name, (attempt, words) in ATTACKS.items():
        try:
            await attempt(guest)
        except ApiError as error:
            if re.search(words, str(error)) is None:
                wrong.append(f"{name}: {error}")
        else:
            through.append(name)
    assert not through, through
    assert not wrong, "\n".join(wrong)
    spec: Json = {"selector": {"app": "honest"}, "ports": [{"port": 80}]}
    for resource, value in ((SERVICES, {"spec": spec}), (CONFIG_MAPS, {"data": {"a": "b"}}), (SECRETS, {})):
        await guest.api.create(resource, {"metadata": {"name": "honest"}, **value}, guest.namespace)
    await guest.api.delete(PODS, "honest", guest.namespace)


async def test_names_and_namespaces_beyond_its_own_get_nothing_when_the_operator_is_back(guest: Guest) -> None:
    """L03, E07: objects that no policy refuses are refused by the operator, with words that name the field."""
    taken = mapped_name(OTHER_ID, "web")
    asked = {
        "foreign": sub("foreign", namespaceName=taken),
        "plain": sub("plain", namespaceName="shop"),
        "claimed": sub("claimed", namespace="mail", namespaceName=mapped_name(ID, "web")),
        "allowed": sub("allowed", namespaceName=mapped_name(ID, "allowed")),
    }
    for value in asked.values():
        await guest.api.create(Subnamespace.resource, value, CORE)
    await guest.peering.cluster("attacked").start_component("operator", timeout_seconds=SECONDS)

    async def reason(name: str) -> str | None:
        status: Json = (await guest.admin.get(Subnamespace.resource, name, CORE)).get("status") or {}
        conditions: list[Json] = status.get("conditions") or []
        return next((each["reason"] for each in conditions if each["type"] == "Ready"), None)

    for name in ("foreign", "plain", "claimed"):

        async def refused(name: str = name) -> bool:
            return await reason(name) == reasons.NOT_ALLOWED

        await until(refused, f"Subnamespace {name!r} is refused")
    assert await guest.admin.find(Namespace.resource, taken) is None
    assert await guest.admin.find(Namespace.resource, "shop") is None
    await until(
        lambda: guest.admin.find(Namespace.resource, mapped_name(ID, "allowed")), "the name of its own is allowed"
    )
    # Two namespaces and a Workspace: the fourth is one too many.
    await guest.api.create(Subnamespace.resource, sub("fourth"), CORE)

    async def limited() -> bool:
        return await reason("fourth") == reasons.LIMIT_REACHED

    await until(limited, "one namespace too many is refused")

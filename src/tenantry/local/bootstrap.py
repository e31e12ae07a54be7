"""Rights of components and nodes, which a fresh control plane needs before anything can run in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import UNSET

from tenantry.api.errors import Gone, NotFound
from tenantry.api.kubernetes import RBAC_GROUP, ClusterRoleBinding
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.ruledeclarations import ImageCredentials
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch
from tenantry.local import nodes, pki
from tenantry.local.nodes import NodePlan, why_not_ready

CLUSTER_ROLE = Resource(RBAC_GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDING = ClusterRoleBinding.resource
NamedObject = tuple[Resource, str, Mapping[str, object]]
"""The kind of an object, its name, and its other fields."""

_KWOK = "tenantry:kwok"
ReportLate = Callable[[Mapping[str, str]], None]
"""Takes the nodes that are not Ready: from a name to the message of its condition."""
_WATCH = ["get", "list", "watch"]
# kwok simulates pods, nodes and their leases, and reads the rest; as in kwok's own kustomize/rbac.
_KWOK_RULES = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": [*_WATCH, "update", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["update", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*_WATCH, "update", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["update", "patch"]},
    {"apiGroups": [""], "resources": ["services", "configmaps", "secrets"], "verbs": _WATCH},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": [*_WATCH, "create", "update", "patch", "delete"],
    },
    {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "update", "patch"]},
)


@asynccontextmanager
async def connected(path: Path) -> AsyncGenerator[Client]:
    """Connect to the cluster of a kubeconfig."""
    async with Client(kubeconfig.load([path]), field_manager="tenantry-local") as client:
        yield client


async def apply_rights(path: Path) -> None:
    """Grant kwok, and the API server as a client of kubelets, exactly the rights that they need."""
    kubelets = "tenantry:kubelet-client"
    wanted: tuple[NamedObject, ...] = (
        (CLUSTER_ROLE, _KWOK, {"rules": _KWOK_RULES}),
        (CLUSTER_ROLE_BINDING, _KWOK, bind(_KWOK, pki.KWOK_USER)),
        (CLUSTER_ROLE_BINDING, kubelets, bind("system:kubelet-api-admin", pki.KUBELET_CLIENT_USER)),
    )
    await apply_objects(path, wanted)


async def declare_image_credentials(path: Path) -> None:
    """Declare in TenancyDefaults that kubelets verify image credentials, unless it has a declaration already.

    It is true of the nodes that `up` makes (`real/settings.py`).
    """
    resource = TenancyDefaults.resource
    async with connected(path) as client:
        for found in await client.list(TenancyDefaults):
            images = found.spec.rules.images
            if images is not UNSET and images.credentials is not UNSET:
                return
        rules = {"images": {"credentials": ImageCredentials.VERIFIED}}
        value = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": DEFAULTS}}
        await client.apply(resource, "", DEFAULTS, {**value, "spec": {"rules": rules}})


async def apply_objects(path: Path, wanted: Iterable[NamedObject], namespace: str = "") -> None:
    """Apply objects, the namespaced ones in a namespace."""
    async with connected(path) as client, asyncio.TaskGroup() as group:
        for resource, name, value in wanted:
            head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
            where = namespace if resource.namespaced else ""
            group.create_task(client.apply(resource, where, name, {**head, **value}))


def bind(role: str, user: str = "", *, account: str = "") -> dict[str, object]:
    """Return the fields of a ClusterRoleBinding of one user, or of a ServiceAccount in kube-system."""
    subject = {"apiGroup": RBAC_GROUP, "kind": "User", "name": user}
    if account:
        subject = {"kind": "ServiceAccount", "namespace": "kube-system", "name": account}
    return {"roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role}, "subjects": [subject]}


async def apply_nodes(path: Path, plan: NodePlan | None) -> int:
    """Create and delete simulated nodes as planned; return their number.

    Args:
        path: The administrator's kubeconfig.
        plan: The wanted nodes; None keeps the present ones.
    """
    async with connected(path) as client:
        listed = await client.list(Node, selectors={"labelSelector": nodes.SELECTOR})
        if plan is None:
            return len(listed)
        wanted = nodes.desired(plan)
        gone, new = nodes.difference(wanted, {node.metadata.name: node for node in listed})
        async with asyncio.TaskGroup() as group:
            for node in gone:
                group.create_task(_delete(client, node))
        async with asyncio.TaskGroup() as group:
            for node in new:
                group.create_task(client.create(node))
    return len(wanted)


async def _delete(client: Client, node: Node) -> None:
    try:
        await client.delete(Node.resource, "", node.metadata.name, uid=node.metadata.uid)
    except NotFound:
        return


async def wait_simulated(path: Path, report: Callable[[int], None]) -> None:
    """Wait until every simulated node is Ready; the caller sets the deadline and repeats it after `Unreachable`.

    Args:
        path: The administrator's kubeconfig.
        report: Called with the number of nodes that are not Ready, at first and after each change.
    """
    await _wait_ready(path, frozenset(), {"labelSelector": nodes.SELECTOR}, lambda late: report(len(late)))


async def wait_named(path: Path, names: frozenset[str], report: ReportLate) -> None:
    """Wait until nodes exist and are Ready; the caller sets the deadline and repeats it after `Unreachable`.

    Args:
        path: The administrator's kubeconfig.
        names: The names of the nodes.
        report: Called with the nodes that are not Ready, at first and after each change.
    """
    await _wait_ready(path, names, {}, report)


async def _wait_ready(path: Path, names: frozenset[str], selectors: dict[str, str], report: ReportLate) -> None:
    """Wait until nodes are Ready: those of these names, or all selected ones if there is no name."""
    async with connected(path) as client:
        while True:
            late = dict.fromkeys(names, "its kubelet has not registered it yet")
            version = ""
            async for page in client.pages(Node.resource, Node, selectors=selectors):
                for node in page.items:
                    _note(node, names, late)
                version = page.metadata.resource_version
            report(dict(late))
            if not late:
                return
            # A watch ends after some minutes, or because the API server has forgotten its beginning: list again.
            with suppress(Gone):
                async for events in watch(client, Node.resource, resource_version=version, selectors=selectors):
                    for event in events:
                        if event.type is not EventType.BOOKMARK:
                            node = client.decode(Node, event.object)
                            _note(node, names, late, is_deleted=event.type is EventType.DELETED)
                    report(dict(late))
                    if not late:
                        return


def _note(node: Node, names: frozenset[str], late: dict[str, str], *, is_deleted: bool = False) -> None:
    name = node.metadata.name
    if is_deleted or not nodes.is_late(node):
        late.pop(name, None)
    elif not names or name in names:
        late[name] = why_not_ready(node)


async def delete_nodes(path: Path, names: Iterable[str]) -> None:
    """Delete the Node objects of removed nodes."""
    async with connected(path) as client:
        for name in names:
            try:
                await client.delete(Node.resource, "", name)
            except NotFound:
                continue

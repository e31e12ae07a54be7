"""What a fresh control plane needs before anything can run in it: rights of its own components, and nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from tenantry.api.errors import Gone, NotFound
from tenantry.api.model import Resource
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch
from tenantry.local import nodes, pki
from tenantry.local.nodes import Node, NodePlan

_ROLE = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
_BINDING = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_KWOK = "tenantry:kwok"
_WATCH = ["get", "list", "watch"]
# What kwok plays (pods, nodes and their leases) and reads; kwok's own kustomize/rbac asks for the same.
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
    """Give kwok, and the API server towards kubelets, the rights that they need and no others."""
    kubelets = "tenantry:kubelet-client"
    role = {"metadata": {"name": _KWOK}, "rules": _KWOK_RULES}
    wanted = (
        (_ROLE, _KWOK, role),
        (_BINDING, _KWOK, _binding(_KWOK, _KWOK, pki.KWOK_USER)),
        (_BINDING, kubelets, _binding(kubelets, "system:kubelet-api-admin", pki.KUBELET_CLIENT_USER)),
    )
    async with connected(path) as client, asyncio.TaskGroup() as group:
        for resource, name, value in wanted:
            kind = {"apiVersion": resource.api_version, "kind": resource.kind}
            group.create_task(client.apply(resource, "", name, kind | value))


def _binding(name: str, role: str, user: str) -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


async def apply_nodes(path: Path, plan: NodePlan | None) -> int:
    """Make the simulated nodes what a plan says; how many there are then is returned.

    Args:
        path: The administrator's kubeconfig.
        plan: Which ones; None leaves them as they are.
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


async def wait_nodes(path: Path) -> None:
    """Wait until every simulated node is Ready; the caller sets the deadline."""
    selectors = {"labelSelector": nodes.SELECTOR}
    async with connected(path) as client:
        while True:
            waiting: set[str] = set()
            version = ""
            async for page in client.pages(Node.resource, Node, selectors=selectors):
                waiting |= {node.metadata.name for node in page.items if not node.is_ready}
                version = page.metadata.resource_version
            if not waiting:
                return
            try:
                await _until_ready(client, version, waiting, selectors)
            except Gone:
                continue
            return


async def wait_named(path: Path, names: frozenset[str]) -> None:
    """Wait until nodes are there and Ready; the caller sets the deadline."""
    async with connected(path) as client:
        while True:
            waiting = set(names)
            version = ""
            async for page in client.pages(Node.resource, Node):
                waiting -= {node.metadata.name for node in page.items if node.is_ready}
                version = page.metadata.resource_version
            if not waiting:
                return
            try:
                await _until_ready(client, version, waiting, {})
            except Gone:
                continue
            return


async def delete_nodes(path: Path, names: Iterable[str]) -> None:
    """Delete the Node objects of nodes that are no more."""
    async with connected(path) as client:
        for name in names:
            try:
                await client.delete(Node.resource, "", name)
            except NotFound:
                continue


async def _until_ready(client: Client, version: str, waiting: set[str], selectors: dict[str, str]) -> None:
    changes = watch(client, Node.resource, resource_version=version, selectors=selectors)
    async for events in changes:
        for event in events:
            if event.type is EventType.BOOKMARK:
                continue
            node = client.decode(Node, event.object)
            if node.is_ready or event.type is EventType.DELETED:
                waiting.discard(node.metadata.name)
        if not waiting:
            return

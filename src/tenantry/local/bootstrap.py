"""What a fresh control plane needs before anything can run in it: rights of its own components, and nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tenantry.api.errors import Gone, NotFound
from tenantry.api.model import Resource
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.watch import EventType, watch
from tenantry.local import nodes, pki
from tenantry.local.nodes import LocalNode, NodePlan

_ROLE = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
_BINDING = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
_KWOK = "tenantry:kwok"
Tell = Callable[[Mapping[str, str]], None]
"""Told of the nodes that are waited for: from a name to why it is not Ready."""
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
        listed = await client.list(LocalNode, selectors={"labelSelector": nodes.SELECTOR})
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


async def _delete(client: Client, node: LocalNode) -> None:
    try:
        await client.delete(LocalNode.resource, "", node.metadata.name, uid=node.metadata.uid)
    except NotFound:
        return


async def wait_nodes(path: Path) -> None:
    """Wait until every simulated node is Ready; the caller sets the deadline."""
    await _Waiting(frozenset(), {"labelSelector": nodes.SELECTOR}, _nobody).run(path)


async def wait_named(path: Path, names: frozenset[str], tell: Tell) -> None:
    """Wait until nodes are there and Ready; the caller sets the deadline.

    Args:
        path: The administrator's kubeconfig.
        names: Of the nodes.
        tell: Called with what is waited for, at first and whenever something is heard of nodes.
    """
    await _Waiting(names, {}, tell).run(path)


def _nobody(late: Mapping[str, str]) -> None:
    del late


class _Waiting:
    """Waits for nodes.

    Args:
        names: Theirs; none for all that are selected.
        selectors: Which nodes to ask for.
        tell: Called with what is waited for.
    """

    def __init__(self, names: frozenset[str], selectors: dict[str, str], tell: Tell) -> None:
        self._names = names
        self._selectors = selectors
        self._tell = tell
        self._late: dict[str, str] = {}

    async def run(self, path: Path) -> None:
        """Wait until they are Ready."""
        async with connected(path) as client:
            while True:
                self._late = dict.fromkeys(self._names, "its kubelet has not come to the cluster so far")
                version = ""
                async for page in client.pages(LocalNode.resource, LocalNode, selectors=self._selectors):
                    for node in page.items:
                        self._note(node)
                    version = page.metadata.resource_version
                self._tell(dict(self._late))
                try:
                    if self._late:
                        await self._follow(client, version)
                except Gone:
                    continue
                return

    async def _follow(self, client: Client, version: str) -> None:
        changes = watch(client, LocalNode.resource, resource_version=version, selectors=self._selectors)
        async for events in changes:
            for event in events:
                if event.type is EventType.BOOKMARK:
                    continue
                node = client.decode(LocalNode, event.object)
                if event.type is EventType.DELETED:
                    self._late.pop(node.metadata.name, None)
                else:
                    self._note(node)
            self._tell(dict(self._late))
            if not self._late:
                return

    def _note(self, node: LocalNode) -> None:
        name = node.metadata.name
        if node.is_ready:
            self._late.pop(name, None)
        elif not self._names or name in self._names:
            self._late[name] = node.why_not_ready


async def delete_nodes(path: Path, names: Iterable[str]) -> None:
    """Delete the Node objects of nodes that are no more."""
    async with connected(path) as client:
        for name in names:
            try:
                await client.delete(LocalNode.resource, "", name)
            except NotFound:
                continue

"""What a local cluster and its API server have of the clusters of tenants: to compare before one and after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.kubernetes import Namespace
from tenantry.api.node import Node
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.slice import Slice, SliceClaim
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE, VirtualControlPlane
from tenantry.local.cluster import LocalCluster
from tenantry.local.process import start_ticks
from tenantry.local.real import cgroups, network, planebridges
from testkit.api import SECRETS, Api

Json = dict[str, Any]

KINDS = (
    *(DedicatedCluster.resource, VirtualControlPlane.resource, SliceClaim.resource, Slice.resource),
    *(NodeHandover.resource, Namespace.resource, SECRETS),
)
_VOLATILE = {"logs", "etcd"}
"""Folders whose files come and go: logs stay for people, and etcd writes its own files."""


_SHARED = {"hosted", "hosted/endpoint-proxy.json", "hosted/knock.sock", "hosted-keys", "machines"}
"""What is left for the next one: files of the endpoint proxy, and folders of keys and of memberships of machines."""


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """Everything by which a cluster of a tenant can be noticed.

    Args:
        components: The names of the supervisor's components.
        processes: The programs of processes that name the folder of the cluster.
        files: The paths below the folder of the cluster, to the second level.
        links: The network interfaces of this machine that the cluster may have made.
        cgroups: The cgroups of the cluster.
        objects: The kinds, namespaces and names of objects.
        nodes: Labels, taints and cordons of the Nodes of the host.
    """

    components: frozenset[str]
    processes: frozenset[str]
    files: frozenset[str]
    links: frozenset[str]
    cgroups: frozenset[str]
    objects: frozenset[str]
    nodes: frozenset[str]

    def added(self, other: Traces) -> list[str]:
        """Return what only a later state has: what ends meanwhile is of clusters before."""
        return [
            f"{field}: {each}"
            for field in self.__struct_fields__
            for each in sorted(getattr(other, field) - getattr(self, field))
        ]


async def traces(cluster: LocalCluster, host: Api, *uids: str) -> Traces:
    """Return what is there now.

    Args:
        cluster: The cluster.
        host: An administrator of it.
        uids: Of control planes that were there, each of which may have had a bridge.
    """
    folder = cluster.paths.folder
    names = {network.identity(folder), *(planebridges.name(folder / "hosted" / uid) for uid in uids)}
    objects = [
        f"{kind.kind} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}"
        for kind in KINDS
        for each in await host.list(kind)
        # The operator keeps its own credentials there.
        if kind != SECRETS or each["metadata"]["namespace"] != PROCESS_NAMESPACE
    ]
    return Traces(
        components=frozenset(each.name for each in cluster.status().components),
        processes=frozenset(_processes(folder)),
        files=frozenset(_files(folder)),
        links=frozenset(each for each in _links() if each.startswith(tuple(names))),
        cgroups=frozenset(path for each in names for path in _cgroups(each)),
        objects=frozenset(objects),
        nodes=frozenset(marks for each in await host.list(Node.resource) if (marks := _marks(each))),
    )


def _links() -> list[str]:
    return [each.name for each in Path("/sys/class/net").iterdir()]


def _processes(folder: Path) -> list[str]:
    found: list[str] = []
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            words = (each / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(folder).encode() in word for word in words) and start_ticks(int(each.name)):
            shown = b" ".join(words[:3]).decode(errors="replace").replace(str(folder), "CLUSTER")
            found.append(shown)
    return found


def _files(folder: Path) -> list[str]:
    found: list[str] = []
    for each in folder.iterdir():
        found.append(each.name)
        if each.is_dir() and each.name not in _VOLATILE:
            found += [f"{each.name}/{below.name}" for below in each.iterdir()]
    return [each for each in found if each not in _SHARED]


def _cgroups(identity: str) -> list[str]:
    """Return the cgroups of a cluster, with those of its components."""
    found: list[str] = []
    for hierarchy in cgroups.hierarchies():
        for each in hierarchy.root.glob(f"{identity}*"):
            found += [str(below.relative_to(hierarchy.root)) for below in (each, *each.iterdir()) if below.is_dir()]
    return found


def _marks(node: Json) -> str:
    """Return what keeps pods of the host from a node; "" for a free one."""
    meta, spec = node["metadata"], node["spec"]
    taints = sorted(f"{each['key']}:{each['effect']}" for each in spec.get("taints", []))
    labels = sorted(key for key in meta.get("labels", {}) if "tenantry" in key)
    is_cordoned = spec.get("unschedulable", False)
    found = f"{meta['name']} labels={labels} taints={taints} cordoned={is_cordoned}"
    return found if labels or taints or is_cordoned else ""

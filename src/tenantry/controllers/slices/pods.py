"""Pods as slices see them: their nodes, and whether they can be evicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

import msgspec

from tenantry.api.kubernetes import MIRROR
from tenantry.api.marks import SLICE
from tenantry.api.model import KubernetesObject, ObjectMeta, Resource, object_key

BY_NODE = "node"
"""Pods that would have to leave a node, by its name."""

BY_ESSENTIAL = "essential"
"""Pods of the cluster itself that would have to leave a node, by its name."""

BY_BOUND = "bound"
"""Pods that are bound to a node and have not ended, by its name."""

BY_NAMESPACE = "namespace"

CLUSTER_NAMESPACE = "kube-system"
CRITICAL = 2_000_000_000
"""The least priority of system-cluster-critical and system-node-critical; other classes have at most half of it.

Source: Kubernetes, "Pod Priority and Preemption".
"""

FINISHED = ("Succeeded", "Failed")


class Pod(KubernetesObject, frozen=True, kw_only=True):
    """A pod, as the object of an event."""

    resource: ClassVar[Resource] = Resource("", "v1", "pods", "Pod")


class PodFacts(msgspec.Struct, frozen=True, gc=False):
    """A pod as it was last seen.

    Args:
        namespace: The namespace of the pod.
        name: The name of the pod.
        uid: The uid of the pod.
        version: The resourceVersion.
        node: The node that it runs on; "" if it is not scheduled yet.
        slice: The slice that it was bound to at admission; "" for none.
        controller: The kind of the controller that would replace it; "" for none.
        stays: It is a DaemonSet's, a static pod's mirror, or finished: it is never evicted.
        deleting: It has a deletionTimestamp.
        essential: It is a pod of the cluster itself, which no claim may evict.
        finished: It has ended: no quota counts it.
    """

    namespace: str
    name: str
    uid: str
    version: int
    node: str
    slice: str
    controller: str
    stays: bool
    deleting: bool
    essential: bool = False
    finished: bool = False

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return object_key(self.namespace, self.name)

    @property
    def object(self) -> Pod:
        """Return the object of an event."""
        return Pod(metadata=ObjectMeta(name=self.name, namespace=self.namespace, uid=self.uid))


class _Owner(msgspec.Struct, frozen=True, gc=False):
    kind: str
    controller: bool = False


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    namespace: str
    uid: str
    resource_version: str
    annotations: Mapping[str, str] | None = None
    owner_references: tuple[_Owner, ...] | None = None
    deletion_timestamp: str | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    node_name: str = ""
    priority: int | None = None
    node_selector: Mapping[str, str] | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str = ""


class _Live(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


_live = msgspec.json.Decoder(_Live)


def observe(data: bytes | msgspec.Raw) -> PodFacts:
    """Return what the cache keeps of a pod.

    Raises:
        msgspec.MsgspecError: The data is no pod.
    """
    live = _live.decode(data)
    meta = live.metadata
    controller = next((owner.kind for owner in meta.owner_references or () if owner.controller), "")
    is_mirror = MIRROR in (meta.annotations or {})
    return PodFacts(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=int(meta.resource_version),
        node=live.spec.node_name,
        slice=(live.spec.node_selector or {}).get(SLICE, ""),
        controller=controller,
        # A DaemonSet would create an evicted pod again on the same node, and a mirror pod cannot be evicted.
        stays=controller == "DaemonSet" or is_mirror or live.status.phase in FINISHED,
        deleting=bool(meta.deletion_timestamp),
        finished=live.status.phase in FINISHED,
        essential=meta.namespace == CLUSTER_NAMESPACE or (live.spec.priority or 0) >= CRITICAL,
    )


def leaving_of(pod: PodFacts) -> Iterable[str]:
    """Return the node that a pod would have to leave."""
    return [pod.node] if pod.node and not pod.stays else []


def bound_to(pod: PodFacts) -> Iterable[str]:
    """Return the node that a pod is bound to, until it has ended."""
    return [pod.node] if pod.node and not pod.finished else []


def essential_of(pod: PodFacts) -> Iterable[str]:
    """Return the node that a pod of the cluster itself would have to leave."""
    return leaving_of(pod) if pod.essential else []


def namespace_of(pod: PodFacts) -> Iterable[str]:
    """Return a pod's namespace."""
    return [pod.namespace]

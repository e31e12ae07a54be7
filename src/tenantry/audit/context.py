"""The audited namespace, and what an administrator sees around it. Pure."""

from __future__ import annotations

import msgspec

from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.api.tenancydefaults import IngressController

GUEST = "the user is another cluster, which writes no policies and grants no rights here"
"""Why a check of what an owner may do does not concern a guest."""


class OtherNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace that does not belong to the tenant.

    Args:
        name: Its name.
        labels: Its labels; empty if they may not be read.
        is_system: It belongs to the cluster or to Tenantry.
        own_secrets: The Secrets there that the user may get: the kubeconfigs of its own control planes.
    """

    name: str
    labels: dict[str, str] = {}
    is_system: bool = False
    own_secrets: frozenset[str] = frozenset()


class ManagedObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object that Tenantry created in the namespace: its URL path, and its kind and name."""

    path: str
    told: str


class ClaimedVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A PersistentVolume: its reclaim policy, and the claim that it is bound to, as namespace/name."""

    name: str
    reclaim_policy: str
    claim: str = ""


class AuditNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs containers.

    Args:
        name: Its name.
        addresses: Its InternalIP and ExternalIP addresses, and its own ones in the ranges of its pods.
        boot_id: The random id that the kernel generates at boot.
        kubelet_port: The port of its kubelet.
        is_open: It is ready, and runs pods without tolerations.
    """

    name: str
    addresses: tuple[str, ...] = ()
    boot_id: str = ""
    kubelet_port: int = 10250
    is_open: bool = True


class AuditContext(msgspec.Struct, frozen=True, kw_only=True):
    """The audited namespace and its surroundings. What the administrator may not read is None.

    Args:
        namespace: The audited namespace.
        user: The user who makes the attempts.
        tenant: The namespace's tenant, "" if Tenantry does not manage the namespace.
        suffix: The suffix of the names of objects that attempts name; no object has such a name.
        image: The image of the pods that attempts create.
        others: Namespaces of others, at least those that every cluster has.
        other_tenants: Names of other tenants.
        nodes: Names of nodes.
        real_nodes: The nodes that run containers.
        pod_cidrs: The CIDRs of the nodes' pods.
        controllers: The ingress controllers that connect to pods of all tenants, as an administrator decided.
        storage_classes: Name to reclaim policy.
        runtime_classes: Name to whether it is a sandbox.
        priority_classes: Names of the PriorityClasses that Kubernetes does not create itself.
        hosts: Hosts of Ingresses in other namespaces.
        levels: Priority levels: uid to name.
        pods: Names of pods in the namespace.
        made: What Tenantry created in the namespace.
        volumes: PersistentVolumes.
        bindings: By volume, what refuses Kubernetes' volume binder to bind it to a new claim; "" if nothing does.
        corefile: The Corefile of CoreDNS, "" if it is not in its usual place.
        has_tenantry: The cluster has Tenantry's kinds.
        control_plane: The VirtualControlPlane that owners of the namespace work with; "" for none.
        unguarded: The control planes of the namespace whose guards are not in force, a sentence for each.
        installation: How the installed objects differ from the shipped ones, a sentence for each.
    """

    namespace: str
    user: str
    tenant: str
    suffix: str
    image: str
    others: tuple[OtherNamespace, ...] = ()
    other_tenants: tuple[str, ...] = ()
    nodes: tuple[str, ...] | None = None
    real_nodes: tuple[AuditNode, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    controllers: tuple[IngressController, ...] = ()
    storage_classes: dict[str, str] | None = None
    runtime_classes: dict[str, bool] | None = None
    priority_classes: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    levels: dict[str, str] | None = None
    pods: tuple[str, ...] | None = None
    made: tuple[ManagedObject, ...] | None = None
    volumes: tuple[ClaimedVolume, ...] | None = None
    bindings: dict[str, str] | None = None
    corefile: str | None = None
    has_tenantry: bool = True
    control_plane: str = ""
    unguarded: tuple[str, ...] | None = None
    installation: tuple[str, ...] | None = None

    @property
    def is_guest(self) -> bool:
        """Return whether the user is another cluster, which may do less than an owner."""
        return self.user.startswith(f"system:serviceaccount:{PEERS_NAMESPACE}:")

    @property
    def boot_ids(self) -> dict[str, str]:
        """Return the boot ids of nodes, by their names."""
        return {each.name: each.boot_id for each in self.real_nodes}

    @property
    def name(self) -> str:
        """Return a name that no object has, and that is not reserved for Tenantry."""
        return f"audit-{self.suffix}"

    @property
    def neighbours(self) -> tuple[OtherNamespace, ...]:
        """Return the namespaces of other users."""
        return tuple(each for each in self.others if not each.is_system)

    @property
    def neighbour(self) -> str:
        """Return the name of a namespace that does not belong to the tenant."""
        return self.others[0].name if self.others else "kube-system"

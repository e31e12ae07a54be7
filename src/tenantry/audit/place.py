"""Where an audit is made: the tenant, its namespace, and what an administrator sees around it. Pure."""

from __future__ import annotations

import msgspec


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace that is not the tenant's.

    Args:
        name: Its name.
        labels: Its labels; empty where nobody may read them.
        is_system: It is the cluster's, or Tenantry's.
    """

    name: str
    labels: dict[str, str] = {}
    is_system: bool = False


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """An object that Tenantry made in the namespace: its URL path, and how people are told of it."""

    path: str
    told: str


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A PersistentVolume: what becomes of it, and the claim that it is for, as namespace/name."""

    name: str
    reclaim_policy: str
    claim: str = ""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs containers.

    Args:
        name: Its name.
        addresses: Where it is reached inside the cluster.
        boot_id: The kernel's own number of its start.
        kubelet_port: Where its kubelet answers.
        is_open: It is ready, and takes pods that tolerate nothing.
    """

    name: str
    addresses: tuple[str, ...] = ()
    boot_id: str = ""
    kubelet_port: int = 10250
    is_open: bool = True


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an audit is made. What nobody who asked may read is None.

    Args:
        namespace: The namespace that is audited.
        user: As whom.
        tenant: Whose it is, "" for a namespace that Tenantry does not manage.
        suffix: What the names of things that are tried end in: nothing is called so.
        image: Of pods that are tried.
        others: Namespaces of others, at least those that every cluster has.
        other_tenants: Names of other tenants.
        nodes: Names of nodes.
        real_nodes: Those that run containers.
        pod_cidrs: Where nodes have the addresses of their pods.
        storage_classes: Name to reclaim policy.
        runtime_classes: Name to whether it is a sandbox.
        priority_classes: Names of those that are the cluster's own making.
        hosts: Hosts that Ingresses of other namespaces have.
        levels: Priority levels: uid to name.
        pods: Names of pods in the namespace.
        made: What Tenantry made in the namespace.
        volumes: PersistentVolumes.
        corefile: What CoreDNS goes by, "" where it is not in its usual place.
        has_tenantry: The cluster has Tenantry's kinds.
    """

    namespace: str
    user: str
    tenant: str
    suffix: str
    image: str
    others: tuple[Foreign, ...] = ()
    other_tenants: tuple[str, ...] = ()
    nodes: tuple[str, ...] | None = None
    real_nodes: tuple[Node, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    storage_classes: dict[str, str] | None = None
    runtime_classes: dict[str, bool] | None = None
    priority_classes: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    levels: dict[str, str] | None = None
    pods: tuple[str, ...] | None = None
    made: tuple[Made, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    corefile: str | None = None
    has_tenantry: bool = True

    @property
    def boot_ids(self) -> dict[str, str]:
        """Return the boot ids of nodes, by their names."""
        return {each.name: each.boot_id for each in self.real_nodes}

    @property
    def name(self) -> str:
        """Return a name that nothing has, and that is not of Tenantry's own."""
        return f"audit-{self.suffix}"

    @property
    def neighbours(self) -> tuple[Foreign, ...]:
        """Return the namespaces of other people."""
        return tuple(each for each in self.others if not each.is_system)

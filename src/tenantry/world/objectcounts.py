"""How many objects of each kind a namespace of a tenant may have: pure.

Every namespace of a tenant has a ResourceQuota of counts beside its share of the quota. The counts are the same for all
core namespaces, and for all children: nothing moves between namespaces, so that no key costs the division of the quota
anything. The most that a tree can hold follows from the limit of Subnamespaces:

    objects of a kind ≤ core + maxCount * child
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tenantry.api.tenancydefaults import EphemeralStorage, TreeDefaults
from tenantry.world import quantity

PREFIX = "count/"

STANDARD: Mapping[str, tuple[int, int]] = {
    "configmaps": (130, 16),
    "persistentvolumeclaims": (60, 20),
    "pods": (400, 100),
    "replicationcontrollers": (10, 5),
    "secrets": (100, 12),
    "serviceaccounts": (80, 16),
    "services": (120, 30),
    "controllerrevisions.apps": (300, 60),
    "daemonsets.apps": (20, 5),
    "deployments.apps": (80, 20),
    "replicasets.apps": (900, 220),
    "statefulsets.apps": (40, 10),
    "horizontalpodautoscalers.autoscaling": (60, 20),
    "cronjobs.batch": (40, 15),
    "jobs.batch": (200, 60),
    "leases.coordination.k8s.io": (60, 20),
    "ingresses.networking.k8s.io": (40, 15),
    "networkpolicies.networking.k8s.io": (80, 20),
    "poddisruptionbudgets.policy": (60, 20),
    "rolebindings.rbac.authorization.k8s.io": (80, 30),
    "roles.rbac.authorization.k8s.io": (60, 25),
    "resourceclaims.resource.k8s.io": (60, 20),
    "resourceclaimtemplates.resource.k8s.io": (30, 10),
    # Each is a process: without a quota of memory, nothing else bounds their number.
    "virtualcontrolplanes.tenantry.dev": (5, 1),
}
"""The counts of a core namespace and of a child, by plural and group (docs/reference/object-counts.md).

ControllerRevisions are not created by owners, but by controllers for every version of a StatefulSet or DaemonSet.
"""

OTHER = (120, 30)
"""The counts of every other kind, custom kinds included."""

SUBNAMESPACES = "subnamespaces.tenantry.dev"
NETWORK_POLICIES = "networkpolicies.networking.k8s.io"
UNLIMITED_SUBNAMESPACES = 1000
"""The count of Subnamespaces if no limit of them is set: without the operator, nothing else bounds them."""

_LEGACY = ("configmaps", "persistentvolumeclaims", "replicationcontrollers", "secrets", "services")
"""The kinds whose plural alone is a quota key with the same meaning as its `count/` (Kubernetes: "Resource Quotas")."""

_UNCOUNTED = frozenset(
    {
        "bindings",
        "events",
        "events.events.k8s.io",
        "localsubjectaccessreviews.authorization.k8s.io",
        # The operator's own objects, of which owners can create none.
        "resourcequotas",
    }
)
"""Kinds that Kubernetes' quota ignores (pkg/quota/v1/install/registry.go), or that no request stores."""

_GONE_GROUPS = frozenset({"extensions"})
_DISK = EphemeralStorage()


EPHEMERAL_STORAGE = ("requests.ephemeral-storage", "limits.ephemeral-storage")
"""The quota keys of nodes' disks. The first has a limit by default, unless the tenant's quota has one of them.

Unlike cpu and memory, Kubernetes does not refuse pods that do not request it (pkg/quota/v1/evaluator/core/pods.go).
"""


class GrantedKinds(msgspec.Struct, frozen=True):
    """One rule of a role that lets its holder create objects.

    Args:
        groups: API groups; "*" for all.
        plurals: Resources; "*" for all.
    """

    groups: tuple[str, ...]
    plurals: tuple[str, ...]


class ObjectLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What limits the objects of every tenant.

    Args:
        core: Plural and group to the number of objects in a core namespace.
        child: The same for a child.
        core_disk: The requests.ephemeral-storage of all pods in a core namespace.
        child_disk: The same for a child.
        max_count: How many Subnamespaces a tenant has, unless it has a limit of its own; 0 for no limit.
        max_depth: How deep its tree is; 0 for no limit.
    """

    core: Mapping[str, int]
    child: Mapping[str, int]
    core_disk: str
    child_disk: str
    max_count: int
    max_depth: int


def kinds(granted: Iterable[GrantedKinds], custom: Iterable[str]) -> frozenset[str]:
    """Return the kinds that are counted, as plural and group.

    Args:
        granted: The rules of the owners' role that allow `create`.
        custom: The namespaced custom kinds of the cluster, as plural and group; a rule for all kinds names these.
    """
    found: set[str] = {SUBNAMESPACES, *STANDARD}
    known = [tuple(kind.partition(".")[::2]) for kind in custom]
    for rule in granted:
        for group in rule.groups:
            for plural in rule.plurals:
                if group == "*" or plural == "*":
                    found |= {f"{p}.{g}" for p, g in known if group in {"*", g} and plural in {"*", p}}
                elif "/" not in plural and group not in _GONE_GROUPS:
                    found.add(f"{plural}.{group}" if group else plural)
    return frozenset(found - _UNCOUNTED)


def limits(
    counted: Iterable[str],
    core: Mapping[str, int],
    child: Mapping[str, int],
    *,
    disk: EphemeralStorage = _DISK,
    max_count: int,
    max_depth: int,
) -> ObjectLimits:
    """Return the limits of every tenant.

    Args:
        counted: See `kinds`.
        core: What an administrator set for core namespaces, by plural and group.
        child: The same for children.
        disk: The limits of disk space.
        max_count: See `ObjectLimits`.
        max_depth: See `ObjectLimits`.
    """
    names = sorted({*counted, *core, *child} - _UNCOUNTED)
    subnamespaces = max_count or UNLIMITED_SUBNAMESPACES
    standard = {**STANDARD, SUBNAMESPACES: (subnamespaces, subnamespaces)}
    return ObjectLimits(
        core={name: core.get(name, standard.get(name, OTHER)[0]) for name in names},
        child={name: child.get(name, standard.get(name, OTHER)[1]) for name in names},
        core_disk=quantity.canonical(disk.core),
        child_disk=quantity.canonical(disk.child),
        max_count=max_count,
        max_depth=max_depth,
    )


_TREE = TreeDefaults()
DEFAULT = limits(kinds((), ()), {}, {}, max_count=_TREE.max_count, max_depth=_TREE.max_depth)


def hard(
    counts: Mapping[str, int], divided: Iterable[str], own: Mapping[str, int], max_count: int, disk: str = ""
) -> dict[str, str]:
    """Return `spec.hard` of the ResourceQuota of counts.

    Args:
        counts: Plural and group to the number of objects.
        divided: The keys of the tenant's own quota, which is divided over its namespaces: it decides about them.
        own: How many objects of a kind Tenantry itself has in the namespace, which count, too.
        max_count: The limit of the tenant's own Subnamespaces; 0 for none.
        disk: The limit of requests.ephemeral-storage; "" for none.
    """
    limited = set(divided)
    found: dict[str, str] = {}
    for kind, standard in counts.items():
        key = PREFIX + kind
        if key in limited or (kind in _LEGACY and kind in limited):
            continue
        most = max(standard, max_count) if kind == SUBNAMESPACES else standard
        found[key] = quantity.canonical(most + own.get(kind, 0))
    if disk and limited.isdisjoint(EPHEMERAL_STORAGE):
        found[EPHEMERAL_STORAGE[0]] = disk
    return found


def exceeded(hard_: Mapping[str, str], used: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return what is above its limit: the kind, how many exist, and how many may; sorted by kind."""
    return [
        (key.removeprefix(PREFIX), used[key], most)
        for key, most in sorted(hard_.items())
        if key in used and quantity.parse(used[key]) > quantity.parse(most)
    ]

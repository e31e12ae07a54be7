"""The labels, annotations and names that Tenantry puts on what it makes.

Protected marks are keys whose prefix is `tenantry.dev` or ends in `.tenantry.dev`: users may set only those named in
`USER_MARKS`.
"""

from __future__ import annotations

GROUP = "tenantry.dev"
VERSION = "v1alpha1"

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "tenantry"
"""The value of MANAGED_BY, the field manager's prefix, and the events' reporting controller."""

KIND = "tenantry.dev/kind"
TENANT = "tenantry.dev/tenant"
TENANT_UID = "tenantry.dev/tenant-uid"
CLUSTER_UID = "tenantry.dev/cluster-uid"
SUSPENDED = "tenantry.dev/suspended"
"""On a namespace: the policy `tenantry-suspended` closes it. Its value is always "true"."""

SUSPENDED_SUBJECTS = "tenantry.dev/suspended-subjects"
"""On a RoleBinding of a suspended tenant: the subjects to restore, as JSON."""

KIND_CORE = "core"

USER_MARKS: frozenset[str] = frozenset()
"""The protected marks that are the user's to set. None yet."""

OPERATOR_USER = "tenantry:operator"
SYSTEM_NAMESPACE = "tenantry-system"
OWNER_ROLE = "tenantry-owner"
"""The ClusterRole that owners are bound to in their namespaces."""

RESERVED_NAMES = ("default",)
RESERVED_PREFIXES = ("kube-", "tenantry-")


def is_reserved(name: str) -> bool:
    """Tell whether a namespace of this name belongs to the cluster or to Tenantry."""
    return name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES)


def is_protected(key: str) -> bool:
    """Tell whether a label or annotation key is one that tenants may not set or change."""
    prefix = key.partition("/")[0] if "/" in key else ""
    ours = prefix == GROUP or prefix.endswith(f".{GROUP}") or prefix == "pod-security.kubernetes.io"
    return ours and key not in USER_MARKS

"""The names of child namespaces: pure.

A child namespace is called `<name>-<16 hexadecimal digits>`. The digits are the first of the SHA-256 of the tenant's
uid, the parent namespace and the name, joined with `/`. For a federated child, the uid of the home cluster comes first.
So two tenants can use the same name, and no tenant can find another name with the same digits: 64 bits are too many to
search, and a tenant cannot choose its uid (E07, E08).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from tenantry.api.marks import PARENT, SUBNAMESPACE, TENANT_UID
from tenantry.api.subnamespace import MAX_NAME

DIGITS = 16


def child_name(tenant_uid: str, parent: str, name: str, cluster_uid: str = "") -> str:
    """Return the name of the namespace of a Subnamespace.

    Args:
        tenant_uid: `metadata.uid` of the Tenant.
        parent: The namespace that the Subnamespace is in.
        name: The Subnamespace's name.
        cluster_uid: For a federated one, the uid of the namespace kube-system of its home cluster; "" for a local one.
    """
    # None of the parts can contain the separator, so different parts never join to the same text.
    parts = [tenant_uid, parent, name]
    if cluster_uid:
        parts.insert(0, cluster_uid)
    return f"{name}-{sha256('/'.join(parts).encode()).hexdigest()[:DIGITS]}"


def mapped_name(home: str, namespace: str) -> str:
    """Return the name that a namespace has at every peer of its cluster, unless it keeps its own.

    Args:
        home: The cluster id of its cluster, which its users cannot choose.
        namespace: Its name there.
    """
    digits = sha256(f"{home}/{namespace}".encode()).hexdigest()[:DIGITS]
    return f"{namespace[:MAX_NAME].rstrip('-')}-{digits}"


def is_name_of(name: str, home: str, namespace: str, path: str) -> bool:
    """Return whether a name is one that belongs to a namespace of another cluster, and to no other namespace.

    Args:
        name: The name.
        home: The cluster id of the other cluster.
        namespace: The namespace there.
        path: Of a federated child: the uid of its Tenant, its parent and the name of its Subnamespace, as in `a/b/c`.
    """
    if not home or not namespace:
        return False
    tenant_uid, _, rest = path.partition("/")
    parent, _, child = rest.partition("/")
    is_federated = bool(child) and name == namespace == child_name(tenant_uid, parent, child, home)
    return is_federated or name == mapped_name(home, namespace)


def federated_path(home: str, namespace: str, labels: Mapping[str, str]) -> str:
    """Return what the name of a federated child is computed from, as `is_name_of` takes it; "" for another namespace.

    Args:
        home: The cluster id of the cluster that it is in.
        namespace: Its name.
        labels: Its labels.
    """
    tenant_uid, parent, child = (labels.get(key, "") for key in (TENANT_UID, PARENT, SUBNAMESPACE))
    is_federated = bool(home and child) and namespace == child_name(tenant_uid, parent, child, home)
    return f"{tenant_uid}/{parent}/{child}" if is_federated else ""


def peer_name(namespace: str) -> str:
    """Return the name of the Subnamespace that stands for a namespace at another cluster: at most 46 characters.

    A longer name is cut, and gets digits of its hash. Only those have 46 characters: no user can choose the name of a
    namespace so that it is another one's.
    """
    if len(namespace) < MAX_NAME:
        return namespace
    kept = namespace[: MAX_NAME - DIGITS - 1]
    return f"{kept}-{sha256(namespace.encode()).hexdigest()[:DIGITS]}"


def workspace_name(tenant: str, uid: str) -> str:
    """Return the name of the Workspace that stands for a tenant at another cluster: at most 46 characters.

    Args:
        tenant: The name of the Tenant.
        uid: Its uid: a later tenant of the same name is another one, and pods of the first may still run there.
    """
    return f"{tenant[: MAX_NAME - DIGITS - 1].rstrip('-')}-{sha256(uid.encode()).hexdigest()[:DIGITS]}"


def numeric_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return the sort key of a name: node-2 comes before node-10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name))

"""The names of child namespaces: pure.

A child namespace is called `<name>-<16 hexadecimal digits>`. The digits are the first of the SHA-256 of the tenant's
uid, the parent namespace and the name, joined with `/`. For a federated child, the uid of the home cluster comes first.
So two tenants can use the same name, and no tenant can find another name with the same digits: 64 bits are too many to
search, and a tenant cannot choose its uid (E07, E08).
"""

from __future__ import annotations

import re
from hashlib import sha256

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


def peer_name(namespace: str) -> str:
    """Return the name of the Subnamespace that stands for a namespace at another cluster: at most 46 characters.

    A longer name is cut, and gets digits of its hash. Only those have 46 characters: no user can choose the name of a
    namespace so that it is another one's.
    """
    if len(namespace) < MAX_NAME:
        return namespace
    kept = namespace[: MAX_NAME - DIGITS - 1]
    return f"{kept}-{sha256(namespace.encode()).hexdigest()[:DIGITS]}"


def numeric_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return the sort key of a name: node-2 comes before node-10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name))

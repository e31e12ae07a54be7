"""The Subnamespaces above a namespace, from caches."""

from __future__ import annotations

from tenantry.api.marks import PARENT, SUBNAMESPACE, SUBNAMESPACE_UID
from tenantry.api.model import object_key
from tenantry.api.subnamespace import Subnamespace
from tenantry.engine.cache import Cache
from tenantry.engine.observed import Observed

DEEPEST = 64
"""No tree goes deeper; a chain of parents that is longer has a loop in it."""


def subnamespace_key(namespace: Observed) -> str:
    """Return the key of the Subnamespace that a namespace's labels name; "" for none."""
    name = namespace.labels.get(SUBNAMESPACE, "")
    return object_key(namespace.labels.get(PARENT, ""), name) if name else ""


def subnamespace_of(namespace: Observed, subnamespaces: Cache[Subnamespace]) -> Subnamespace | None:
    """Return the Subnamespace that a namespace is bound to: by uid, so that a later one of its name is another."""
    found = subnamespaces.get(subnamespace_key(namespace))
    return found if found is not None and found.metadata.uid == namespace.labels.get(SUBNAMESPACE_UID) else None


def subnamespaces_above(
    name: str, namespaces: Cache[Observed], subnamespaces: Cache[Subnamespace]
) -> tuple[Subnamespace, ...]:
    """Return the Subnamespaces from the top of the tree down to that of a namespace; () for a core namespace.

    Args:
        name: The namespace.
        namespaces: All namespaces.
        subnamespaces: All Subnamespaces.
    """
    found: list[Subnamespace] = []
    while len(found) <= DEEPEST:
        place = namespaces.get(name)
        above = subnamespace_of(place, subnamespaces) if place is not None else None
        if above is None:
            break
        found.append(above)
        name = above.metadata.namespace
    return tuple(reversed(found))

"""Which namespaces' pods run on which slice: pure.

A claim has roots: its own namespace, or the namespaces of the Subnamespaces that use it. Every descendant of a root
uses the slice, except those of a Subtenant, which claims nodes itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tenantry.api.marks import TREE_SUFFIX
from tenantry.world.subtenants import subtenant_of


class Root(msgspec.Struct, frozen=True, order=True):
    """A root of a claim; the older claim sorts first.

    Args:
        created: The creationTimestamp of the claim.
        slice: The slice's name.
        namespace: The topmost namespace that uses the slice.
        subtenant: That the claim's own namespace is in; see `subtenant_of`.
    """

    created: str
    slice: str
    namespace: str
    subtenant: str


def users(roots: Iterable[Root], namespaces: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Return the slice of each namespace that uses one: the nearest root above counts, and of several the oldest claim.

    Args:
        roots: Of all claims of a tenant.
        namespaces: The labels of all namespaces of the tenant, by name.
    """
    ordered = sorted(roots)
    found: dict[str, str] = {}
    for name, labels in namespaces.items():
        nearest = _nearest(labels, subtenant_of(name, namespaces), ordered)
        if nearest is not None:
            found[name] = nearest.slice
    return found


def _nearest(labels: Mapping[str, str], subtenant: str, roots: Sequence[Root]) -> Root | None:
    best: tuple[int, Root] | None = None
    for root in roots:
        depth = labels.get(f"{root.namespace}{TREE_SUFFIX}", "")
        if not depth.isdigit() or subtenant != root.subtenant:
            continue
        if best is None or int(depth) < best[0]:
            best = (int(depth), root)
    return best[1] if best is not None else None

"""Reads a tree from one of its namespaces down, with no more rights than an owner has there.

Whoever may not list tenants and namespaces still sees the namespaces that are theirs: each is named by the status of a
Subnamespace in the one above. Of a Subtenant they see the totals, and nothing inside.
"""

from __future__ import annotations

import asyncio

from tenantry.api import marks
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.subnamespace import Subnamespace
from tenantry.cli.forest import NamespaceView, Use, conditions_view
from tenantry.cli.seen import NamespaceSeen, QuotaSeen
from tenantry.kube.client import Client

OURS = {"labelSelector": f"{marks.MANAGED_BY}={marks.MANAGER}"}


async def walk(client: Client, name: str, bound: Subnamespace | None = None) -> NamespaceView:
    """Return a namespace and everything below it, as far as it may be seen.

    Args:
        client: Of whoever asks.
        name: The namespace's name.
        bound: The Subnamespace that it belongs to; None where the tree begins.

    Raises:
        NotFound: The tree is to begin at a namespace that is not there.
        Forbidden: It is to begin where nothing may be seen.
    """
    namespace, quotas, inside = await asyncio.gather(
        client.get(NamespaceSeen, name),
        client.list(QuotaSeen, namespace=name, selectors=OURS),
        client.list(Subnamespace, namespace=name),
    )
    children = await asyncio.gather(*(_child(client, each) for each in inside))
    labels = namespace.metadata.labels
    return NamespaceView(
        name=name,
        phase=namespace.status.phase,
        kind=labels.get(marks.KIND, marks.KIND_CORE),
        subnamespace=labels.get(marks.SUBNAMESPACE, "") if bound is None else bound.metadata.name,
        expires_at=bound.spec.expires_at if bound is not None else "",
        quota=tuple(use for quota in quotas for use in quota.uses()),
        conditions=conditions_view(bound.status.conditions) if bound is not None else None,
        children=tuple(sorted(children, key=lambda child: child.subnamespace)),
    )


async def _child(client: Client, value: Subnamespace) -> NamespaceView:
    name = value.status.namespace
    if name:
        try:
            return await walk(client, name, value)
        except (Forbidden, NotFound):
            pass  # closed to whoever asks, or gone since
    total = value.status.quota
    return NamespaceView(
        name=name,
        phase="",
        kind=value.spec.mode.value.lower(),
        subnamespace=value.metadata.name,
        expires_at=value.spec.expires_at,
        is_closed=bool(name),
        quota=tuple(Use(key, total.used.get(key, "0"), hard) for key, hard in sorted(total.assigned.items())),
        conditions=conditions_view(value.status.conditions),
    )

"""The SliceClaims that the user may read, with their states and nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, InputError
from tenantry.api.slice import Sharing, SliceClaim
from tenantry.engine.conditions import find
from tenantry.engine.reader import ObjectReader
from tenantry.views.permitted import list_permitted
from tenantry.world.naming import numeric_order


class ClaimView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim and its nodes.

    Args:
        namespace: Its namespace.
        name: Its name.
        state: Its state.
        degraded: Fewer nodes are ready than the claim has.
        count: How many nodes it requests.
        part: The size of each part, resource to quantity; empty for whole nodes.
        nodes: The nodes that it has, numbers in numeric order.
        users: The namespaces whose pods run on the nodes.
        ends: When the claim expires, RFC 3339; "" for never.
        messages: What its conditions report.
    """

    namespace: str
    name: str
    state: str
    degraded: bool
    count: int
    part: dict[str, str]
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    ends: str
    messages: tuple[str, ...]


async def read(reader: ObjectReader, namespace: str, own: str) -> list[SliceClaim]:
    """Return the claims that the user may read, oldest first.

    Args:
        reader: Reads with the user's rights.
        namespace: Only the claims there; "" for all.
        own: The namespace of the context, for users who may not list all claims; "" for none.

    Raises:
        InputError: The user may list claims only in a namespace, and none is named.
        Forbidden: The user may not list claims there either.
    """
    found = await list_permitted(reader, SliceClaim, namespace=namespace)
    # An owner may list claims only in namespaces of its own.
    if found is None and not namespace:
        if not own:
            raise InputError("you may not list all claims; name a namespace with -n, as in `-n acme`")
        found = await list_permitted(reader, SliceClaim, namespace=own)
    if found is None:
        raise Forbidden(f"you may not list claims in namespace {namespace or own!r}", status=403)
    return sorted(found, key=lambda each: (each.metadata.creation_timestamp, each.key))


def claims(found: Iterable[SliceClaim]) -> Sequence[ClaimView]:
    """Return the views of claims, sorted by namespace and name."""
    return [_view(each) for each in sorted(found, key=lambda each: each.key)]


def _view(claim: SliceClaim) -> ClaimView:
    spec, status, meta = claim.spec, claim.status, claim.metadata
    ready = find(status.conditions, reasons.READY)
    degraded = find(status.conditions, reasons.DEGRADED)
    is_part = spec.sharing is Sharing.PART
    return ClaimView(
        namespace=meta.namespace,
        name=meta.name,
        state=status.state.value,
        degraded=degraded is not None,
        count=spec.count,
        part={key: str(spec.per_node[key]) for key in ("cpu", "memory")} if is_part else {},
        nodes=tuple(sorted(status.nodes, key=numeric_order)),
        users=tuple(status.namespaces),
        ends=spec.expires_at,
        messages=tuple(each.message for each in (ready, degraded) if each is not None),
    )

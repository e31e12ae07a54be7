"""Requests for tenants and roles, as far as the user may read them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden
from tenantry.api.requests import REQUESTS, Request, TenantRequestSpec
from tenantry.engine.conditions import find
from tenantry.engine.reader import ObjectReader


class ReadRequests(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that the user may read, oldest first, and the kinds that the user may not list."""

    requests: Sequence[Request]
    unread: tuple[str, ...] = ()


class RequestView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request and its decision.

    Args:
        kind: Its kind.
        name: Its name.
        namespace: Its namespace; "" for a cluster-scoped request.
        wants: The tenant or the role that it requests.
        duration_seconds: For how long; 0 for no end.
        requester: The user who created it.
        decision: Pending, Approved or Denied.
        decided_by: The approver; "" if there is no decision.
        ready: The status of its condition Ready; "" if it has none.
        created: When it was created, RFC 3339.
        justification: The reason that the requester gave.
    """

    kind: str
    name: str
    namespace: str
    wants: str
    duration_seconds: int
    requester: str
    decision: str
    decided_by: str
    ready: str
    created: str
    justification: str


async def read(reader: ObjectReader, namespace: str) -> ReadRequests:
    """Read the requests of a namespace; with "" those of all namespaces and of the cluster.

    Raises:
        Forbidden: The user may list no kind of request.
    """
    found: list[Request] = []
    unread: list[str] = []
    kinds = [kind for kind in REQUESTS if kind.resource.namespaced or not namespace]
    for kind in kinds:
        try:
            found += await reader.list(kind, namespace=namespace if kind.resource.namespaced else "")
        except Forbidden:
            unread.append(kind.resource.plural)
            if len(unread) == len(kinds):
                # The API server's own message names the user and the missing right.
                raise
    found.sort(key=lambda each: (each.metadata.creation_timestamp, each.key))
    return ReadRequests(requests=found, unread=tuple(unread))


def view(request: Request) -> RequestView:
    """Return the view of a request."""
    spec, status, meta = request.spec, request.status, request.metadata
    is_tenant = isinstance(spec, TenantRequestSpec)
    ready = find(status.conditions, reasons.READY)
    return RequestView(
        kind=request.resource.kind,
        name=meta.name,
        namespace=meta.namespace,
        wants=f"tenant {spec.tenant}" if is_tenant else f"{spec.role_ref.kind} {spec.role_ref.name}",
        duration_seconds=spec.duration_seconds,
        requester=spec.requester.name,
        decision=status.decision.value,
        decided_by=status.decided_by,
        ready=ready.status.value if ready is not None else "",
        created=meta.creation_timestamp,
        justification=spec.justification,
    )

"""The requests for tenants and roles that the user may read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.requests import REQUESTS, Request, TenantRequest, TenantRequestSpec
from tenantry.engine.conditions import find
from tenantry.engine.reader import ObjectReader
from tenantry.engine.tasks import all_of


class ReadRequests(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that the user may read, oldest first.

    Args:
        requests: The requests.
        unread: The kinds that the user may not read.
        own_only: Whether the TenantRequests of other users are missing.
    """

    requests: Sequence[Request]
    unread: tuple[str, ...] = ()
    own_only: bool = False


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


async def read(
    reader: ObjectReader,
    namespace: str,
    own: Callable[[], Awaitable[Iterable[str]]] | None = None,
    *,
    of_cluster: bool = False,
) -> ReadRequests:
    """Read the requests of a namespace; with "" those of all namespaces and of the cluster.

    Args:
        reader: Reads with the user's rights.
        namespace: The namespace.
        own: Returns the names of the TenantRequests that a user may read who may not list them.
        of_cluster: Read those of the cluster, too, beside those of the namespace.

    Raises:
        Forbidden: The user may list no kind of request, and has no TenantRequest.
    """
    found: list[Request] = []
    unread: list[str] = []
    own_only = False
    kinds = [kind for kind in REQUESTS if kind.resource.namespaced or of_cluster or not namespace]
    for kind in kinds:
        try:
            found += await reader.list(kind, namespace=namespace if kind.resource.namespaced else "")
        except Forbidden:
            named = await _named(reader, await own()) if own is not None and kind is TenantRequest else []
            found += named
            own_only = own_only or bool(named)
            if not named:
                unread.append(kind.resource.plural)
            if len(unread) == len(kinds):
                # The API server's own message names the user and the missing right.
                raise
    found.sort(key=lambda each: (each.metadata.creation_timestamp, each.key))
    return ReadRequests(requests=found, unread=tuple(unread), own_only=own_only)


async def _named(reader: ObjectReader, names: Iterable[str]) -> list[Request]:
    read = await all_of(_found(reader, name) for name in sorted(names))
    return [each for each in read if each is not None]


async def _found(reader: ObjectReader, name: str) -> TenantRequest | None:
    try:
        return await reader.get(TenantRequest, name)
    except (NotFound, Forbidden):
        return None  # withdrawn since the review


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

"""All kinds that are mirrored by `ObjectMirror`: pure."""

from __future__ import annotations

from tenantry.mirror.kinds import budgets, claims, ingresses, networkpolicies, routes, services, volumesnapshots
from tenantry.mirror.kinds.kind import MirroredKind

KINDS: tuple[MirroredKind, ...] = (
    services.KIND,
    networkpolicies.KIND,
    budgets.KIND,
    ingresses.KIND,
    claims.KIND,
    routes.HTTP_KIND,
    routes.GRPC_KIND,
    routes.TLS_KIND,
    routes.TCP_KIND,
    volumesnapshots.KIND,
)
"""The kinds, in the order in which their controllers are named."""

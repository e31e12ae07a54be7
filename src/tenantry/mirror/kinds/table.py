"""All kinds that are mirrored by `ObjectMirror`: pure."""

from __future__ import annotations

from tenantry.mirror.kinds import budgets, claims, ingresses, networkpolicies, services
from tenantry.mirror.kinds.kind import MirroredKind

KINDS: tuple[MirroredKind, ...] = (services.KIND, networkpolicies.KIND, budgets.KIND, ingresses.KIND, claims.KIND)
"""The kinds, in the order in which their controllers are named."""

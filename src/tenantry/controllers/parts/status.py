"""How far a slice is that has parts of nodes: pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api import reasons
from tenantry.api.slice import ClaimMode, SliceState
from tenantry.controllers.slices.gather import Scene
from tenantry.controllers.slices.status import Stand, named
from tenantry.engine.observed import Observed
from tenantry.world.parts import size_of


def pending(message: str, reason: str = reasons.NODES_INSUFFICIENT) -> Stand:
    """Return how a claim stands that has nothing."""
    return Stand(state=SliceState.PENDING, reason=reason, message=message)


def reserved(scene: Scene, wrong: str) -> Stand:
    """Return how a claim stands that nobody uses."""
    return Stand(
        state=SliceState.RESERVED,
        reason=reasons.NODES_RESERVED,
        message=f"{_what(scene)} set aside, until a namespace uses the claim",
        nodes=nodes_of(scene),
        degraded=wrong,
    )


def bound(scene: Scene, users: Sequence[Observed], wrong: str) -> Stand:
    """Return how a claim stands that namespaces use."""
    return Stand(
        state=SliceState.BOUND,
        reason=reasons.NODES_BOUND,
        message=f"{_what(scene)} the tenant's alone",
        nodes=nodes_of(scene),
        namespaces=tuple(each.name for each in users),
        degraded=wrong,
    )


def nodes_of(scene: Scene) -> tuple[str, ...]:
    """Return the nodes where a slice has a part, sorted."""
    return tuple(sorted(node.metadata.name for node in scene.nodes))


def degraded(scene: Scene, short: str) -> str:
    """Return what is wrong with the nodes of a slice that has had all of its parts; "" for nothing."""
    bad = sorted(node.metadata.name for node in scene.nodes if not node.is_ready)
    return "; ".join(([f"not ready: {named(bad)}"] if bad else []) + ([short] if short else []))


def in_the_way(scene: Scene) -> Stand | None:
    """Return why a claim that has nothing gets nothing; None where nothing is in the way."""
    claim = scene.claim
    if claim is None:
        return None
    if scene.tenant is None:
        where = claim.metadata.namespace
        message = f"namespace {where!r} is no tenant's: claim in a namespace of a tenant"
        return pending(message, reasons.NOT_A_TENANTS_NAMESPACE)
    if scene.suspended:
        message = f"tenant {scene.tenant.metadata.name!r} is suspended: parts are given when that ends"
        return pending(message, reasons.TENANT_SUSPENDED)
    if claim.spec.grace_period_seconds > scene.max_grace_seconds:
        message = (
            f"spec.gracePeriodSeconds must be at most {scene.max_grace_seconds}, which is"
            " spec.slices.maxGracePeriodSeconds of TenancyDefaults"
        )
        return Stand(state=SliceState.PENDING, reason=reasons.INVALID_SPEC, message=message, stalled=True)
    if claim.spec.mode is ClaimMode.MANUAL and scene.slice is None:
        message = f"an administrator has to make Slice {scene.name!r}: `tenantry slice approve` does"
        return pending(message, reasons.AWAITING_ADMINISTRATOR)
    return None


def _what(scene: Scene) -> str:
    size = size_of(scene.claim.spec.per_node) if scene.claim is not None else ""
    count = len(scene.nodes)
    return f"{size} of {count} nodes are" if count != 1 else f"{size} of one node are"

"""How far a slice is that has parts of nodes: pure."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api import reasons
from tenantry.api.slice import SliceState
from tenantry.controllers.slices.gather import Scene
from tenantry.controllers.slices.status import Stand
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


def _what(scene: Scene) -> str:
    size = size_of(scene.claim.spec.per_node) if scene.claim is not None else ""
    count = len(scene.nodes)
    return f"{size} of {count} nodes are" if count != 1 else f"{size} of one node are"

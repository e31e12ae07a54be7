"""How many more copies the counts of a child allow: pure.

The API server refuses what exceeds a count. Here the operator counts first: a parent with thousands of objects must not
cost a refused request for each of them in each child, again and again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Resource, object_key
from tenantry.controllers.inheritance.gather import ChildNamespace
from tenantry.controllers.tenant.desired import QUOTA
from tenantry.controllers.tenantnamespace import COUNTS
from tenantry.engine.observed import ObservedQuota
from tenantry.engine.plan import Blocked, CopyStep, Lookup, StepAction
from tenantry.world import quantity
from tenantry.world.objectcounts import PREFIX


class ObjectCountHeadroom(msgspec.Struct, frozen=True):
    """What is left of the tightest count of a kind in a namespace.

    Args:
        left: How many more objects may be created.
        quota: The name of the ResourceQuota.
        key: Its key.
        most: The limit.
    """

    left: int
    quota: str
    key: str
    most: str


def headroom(resource: Resource, namespace: str, lookup: Lookup, known: int) -> ObjectCountHeadroom | None:
    """Return how many more objects of a kind a namespace may have; None if no count limits the kind.

    Args:
        resource: The kind.
        namespace: The namespace.
        lookup: What is there, by kind and key.
        known: How many it is known to have.
    """
    found: list[ObjectCountHeadroom] = []
    for name in (COUNTS, QUOTA):
        quota = lookup(ResourceQuota.resource, object_key(namespace, name))
        if not isinstance(quota, ObservedQuota):
            continue
        for key in (PREFIX + resource.full_name, resource.full_name):
            if key in quota.hard:
                # Kubernetes counts a moment later, also what this process has just created.
                used = max(quantity.parse(quota.used.get(key, "0")), known)
                found.append(
                    ObjectCountHeadroom(max(0, int(quantity.parse(quota.hard[key]) - used)), name, key, quota.hard[key])
                )
    return min(found, key=lambda each: each.left, default=None)


def fitting(
    steps: Sequence[CopyStep], child: ChildNamespace, lookup: Lookup, present: Mapping[Resource, int] | None = None
) -> tuple[list[CopyStep], dict[Resource, Blocked]]:
    """Return the steps that the counts of a child allow, and for each kind with more copies what blocks them.

    Args:
        steps: Of one child.
        child: The child.
        lookup: What is there, by kind and key.
        present: How many objects of a kind it is known to have.
    """
    creates: dict[Resource, list[CopyStep]] = {}
    for step in steps:
        if step.action is StepAction.CREATE:
            creates.setdefault(step.resource, []).append(step)
    dropped: set[int] = set()
    blocked: dict[Resource, Blocked] = {}
    for resource, wanted in creates.items():
        available = headroom(resource, child.name, lookup, (present or {}).get(resource, 0))
        if available is None or len(wanted) <= available.left:
            continue
        # By name, so that the same ones are left out each time.
        left_out = sorted(wanted, key=lambda step: step.name)[available.left :]
        dropped.update(id(step) for step in left_out)
        blocked[resource] = _exceeding(resource, child, available, len(left_out))
    return [step for step in steps if id(step) not in dropped], blocked


def _exceeding(resource: Resource, child: ChildNamespace, available: ObjectCountHeadroom, left_out: int) -> Blocked:
    objects = f"{left_out} more {resource.plural}" if left_out > 1 else f"one more of the {resource.plural}"
    return Blocked(
        reason=reasons.COUNT_EXCEEDED,
        message=(
            f"{objects} of namespace {child.parent!r} cannot be inherited by {child.name!r}: {available.key} of"
            f" ResourceQuota {available.quota!r} is {available.most}; inherit fewer, delete some in {child.name!r}, or"
            " ask an administrator to raise it"
        ),
    )

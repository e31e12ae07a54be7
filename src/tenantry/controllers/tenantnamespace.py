"""The objects in every namespace of a tenant's tree: limits, and the binding of its owners. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.errors import Conflict, InputError, NotFound
from tenantry.api.kubernetes import (
    RBAC_GROUP,
    LimitRange,
    LimitRangeItem,
    LimitRangeSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    RoleBinding,
    RoleRef,
    Subject,
)
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.owner import Owner, OwnerKind, owner_line
from tenantry.api.tenancyrules import NAME as RULES
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PLANE
from tenantry.engine import request
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.engine.plan import Child, DirectWrite
from tenantry.engine.request import ApiRequest
from tenantry.world import objectcounts, quantity, quota

LIMITS = "tenantry-limits"
OWNER_BINDING = "tenantry-owner"
COUNTS = "tenantry-counts"
"""The name of the ResourceQuota of counts (`world.objectcounts`)."""


WAVE_NAMESPACE, WAVE_LIMITS, WAVE_COUNTS, WAVE_PEOPLE, WAVE_PLANE = 0, 1, 2, 3, 4


class TenantNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """One namespace of a tenant.

    Args:
        tenant: The tenant; its spec sets the isolation.
        name: The namespace's name.
        owners: The subjects of the owner binding.
        hard: The quota that the defaults of containers must fit in: normal key to canonical quantity.
        suspended: No owner has access.
        control_plane: The VirtualControlPlane that owners work with; "" for the API server of the cluster.
    """

    tenant: Tenant
    name: str
    owners: tuple[Owner, ...]
    hard: dict[str, str]
    suspended: bool
    control_plane: str = ""


def has_our_name(found: Observed) -> bool:
    """Return whether an object in a tenant's namespace has a name that is reserved for Tenantry."""
    return found.name == RULES or found.name.startswith("tenantry-")


def meta(namespace: TenantNamespace, name: str) -> ObjectMeta:
    """Return the metadata of an object in the namespace."""
    labels = {marks.MANAGED_BY: marks.MANAGER, marks.TENANT: namespace.tenant.metadata.name}
    return ObjectMeta(name=name, namespace=namespace.name, labels=labels)


def limits(namespace: TenantNamespace) -> list[Child]:
    """Return the LimitRange, if the quota covers compute or the tenant names defaults (B03).

    Raises:
        InputError: The tenant's container defaults are wrong in a way that the CRD's schema did not catch.
    """
    given, hard = namespace.tenant.spec.container_defaults, namespace.hard
    requests = _defaults(given.requests, quota.DEFAULT_REQUESTS, hard, "requests.")
    upper = _defaults(given.limits, quota.DEFAULT_LIMITS, hard, "limits.")
    if not requests and not upper:
        return []
    for name, limit in upper.items():
        # The API server fills in a missing request: without it, every comparison would find a difference.
        request = requests.setdefault(name, limit)
        if quantity.parse(request) <= quantity.parse(limit):
            continue
        # The API server refuses a request above its limit: a default of ours yields to the tenant's own value.
        if name not in given.requests:
            requests[name] = limit
        elif name not in given.limits:
            upper[name] = request
        else:
            raise InputError(
                f"spec.containerDefaults.requests {name!r} must not be more than spec.containerDefaults.limits: it is"
                f" {request!r}, the limit {limit!r}"
            )
    item = LimitRangeItem(type="Container", default_request=_sorted(requests), default=_sorted(upper))
    wanted = LimitRange(metadata=meta(namespace, LIMITS), spec=LimitRangeSpec(limits=(item,)))
    return [Child(object=wanted, wave=WAVE_LIMITS)]


def _sorted(quantities: dict[str, str]) -> dict[str, str]:
    return dict(sorted(quantities.items()))


def _defaults(
    given: dict[str, str | int], standard: dict[str, str], hard: dict[str, str], prefix: str
) -> dict[str, str]:
    """Return the defaults of one side; never more than the whole quota, or no pod would ever fit."""
    chosen = {name: quantity.canonical(value) for name, value in given.items()}
    for name, value in standard.items():
        limit = hard.get(prefix + name)
        if limit is not None and name not in chosen:
            chosen[name] = quantity.least(value, limit)
    return chosen


# -- counts ---------------------------------------------------------------------------------------


def counts(namespace: TenantNamespace, standard: Mapping[str, int], disk: str, others: Sequence[Child]) -> Child:
    """Return the ResourceQuota that limits how many objects of each kind the namespace has.

    Args:
        namespace: The namespace.
        standard: Plural and group to the number of objects.
        disk: The most requests.ephemeral-storage of its pods.
        others: Everything else that Tenantry creates there: objects of the tenant cannot take its place.

    Raises:
        InputError: The tenant's quota is wrong in a way that the CRD's schema did not catch.
    """
    own = Counter(child.object.resource.full_name for child in others if child.object.metadata.namespace)
    if namespace.control_plane:
        # The tokens of each pod inside are a Secret of their own here, unlike those of other pods.
        own["secrets"] += standard.get("pods", 0)
    spec = namespace.tenant.spec
    hard = objectcounts.hard(standard, quota.normal(spec.quota.hard), own, spec.namespaces.max_count, disk)
    wanted = ResourceQuota(metadata=meta(namespace, COUNTS), spec=ResourceQuotaSpec(hard=hard))
    there = Counter(
        objectcounts.PREFIX + child.object.resource.full_name for child in others if child.wave < WAVE_COUNTS
    )
    return Child(object=wanted, wave=WAVE_COUNTS, then=partial(_first_count, there=there))


def exceeded(found: Observed | None) -> list[tuple[str, str, str]]:
    """Return the kinds of which a namespace has more objects than its counts allow; see `objectcounts.exceeded`."""
    return objectcounts.exceeded(found.hard, found.used) if isinstance(found, ObservedQuota) else []


def uncounted(found: Observed | None) -> list[str]:
    """Return the keys of which Kubernetes does not know the count, so that it refuses every object."""
    return sorted(found.hard.keys() - found.used.keys()) if isinstance(found, ObservedQuota) else []


def is_news_of_counts(before: Observed, after: Observed) -> bool:
    """Return whether other kinds than before are above their counts, some are not counted, or counting gets expensive.

    How many objects exist changes with each object, and is no news.
    """
    if after.name != COUNTS:
        return False
    if uncounted(after) or (_is_expensive(after) and not _is_expensive(before)):
        return True
    return [each[0] for each in exceeded(before)] != [each[0] for each in exceeded(after)]


def has_more_room(before: Observed | None, after: Observed | None) -> bool:
    """Return whether a change of a ResourceQuota leaves room for more: less is used, or a limit is higher."""
    if not isinstance(before, ObservedQuota):
        return False
    hard, used = (after.hard, after.used) if isinstance(after, ObservedQuota) else ({}, {})
    return any(
        key not in hard
        or quantity.parse(hard[key]) - quantity.parse(used.get(key, "0"))
        > quantity.parse(most) - quantity.parse(before.used.get(key, "0"))
        for key, most in before.hard.items()
    )


def upkeep(found: Observed | None) -> tuple[DirectWrite, ...]:
    """Return the write without which Kubernetes does not count, or by which counting gets cheaper; () for none."""
    if found is None or found.deleting:
        return ()
    if (first := _first_count(found, {})) is not None:
        return (first,)
    return (DirectWrite(request=_untracked(found), quiet=True),) if _is_expensive(found) else ()


_MANY = 30
"""Objects in a namespace from which on the record of who sets its counts costs more than the request that ends it."""


def _is_expensive(found: Observed) -> bool:
    """Return whether each count updates a record of who sets the fields, and there are many."""
    if not isinstance(found, ObservedQuota) or not found.is_tracked:
        return False
    counts = (used for key, used in found.used.items() if key.startswith(objectcounts.PREFIX))
    return sum(map(quantity.parse, counts)) >= _MANY


def _first_count(found: Observed, there: Mapping[str, int]) -> DirectWrite | None:
    """Return the write by which the API server counts the kinds that no controller has counted yet.

    Kubernetes' quota controller looks for new kinds every 30 s, and counts them within five minutes. Until then, the
    API server refuses their objects. The namespace is new, or the kinds are not limited yet, so that nothing is
    loosened by counting from what Tenantry has written there (`there`, by key). If that is all there is, the quota
    controller agrees, and writes nothing.
    """
    missing = uncounted(found)
    if not missing or not isinstance(found, ObservedQuota):
        return None
    patch: Json = {
        "metadata": {"resourceVersion": str(found.version)},
        "status": {
            "hard": {**found.in_force, **{key: found.hard[key] for key in missing}},
            "used": {key: str(there.get(key, 0)) for key in missing},
        },
    }
    asked = request.patch(ResourceQuota.resource, found.namespace, found.name, patch, subresource="status")
    return DirectWrite(request=asked, quiet=True, ignores=(Conflict, NotFound))


def _untracked(found: Observed) -> ApiRequest:
    """Return the request that makes counting cheaper."""
    return request.patch(ResourceQuota.resource, found.namespace, found.name, {"metadata": dict(request.UNTRACKED)})


# -- people ---------------------------------------------------------------------------------------


def owner_binding(namespace: TenantNamespace) -> Child:
    """Return the binding of the owners, without subjects while the tenant is suspended.

    If they have a control plane of their own, it grants a Role of the namespace instead of the ClusterRole of owners,
    and its label wakes the controller that lets the same owners read the kubeconfig.
    """
    named = meta(namespace, OWNER_BINDING)
    if namespace.control_plane:
        named = replace(named, labels={**named.labels, PLANE: namespace.control_plane})
    subjects = () if namespace.suspended else tuple(_subject(owner) for owner in namespace.owners)
    return Child(
        object=RoleBinding(
            metadata=named,
            role_ref=RoleRef(kind="Role", name=OWNER_BINDING, api_group=RBAC_GROUP)
            if namespace.control_plane
            else RoleRef(kind="ClusterRole", name=marks.OWNER_ROLE, api_group=RBAC_GROUP),
            subjects=subjects,
        ),
        wave=WAVE_PEOPLE,
    )


def owners_mark(owners: Iterable[Owner]) -> dict[str, str]:
    """Return the annotation of a namespace that lists its owners, as a policy reads it."""
    return {marks.OWNERS: "\n".join(["", *(owner_line(each.kind, each.name, each.namespace) for each in owners), ""])}


def _subject(owner: Owner) -> Subject:
    if owner.kind is OwnerKind.SERVICE_ACCOUNT:
        return Subject(kind=owner.kind, name=owner.name, namespace=owner.namespace)
    return Subject(kind=owner.kind, name=owner.name, api_group=RBAC_GROUP)

"""How the quota of each tenant is divided over its namespaces, claims of nodes and control planes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from itertools import takewhile

import msgspec

from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.marks import PARENT, TENANT
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import (
    Adjustment,
    ClaimKind,
    ClaimShareStatus,
    RemoteShareStatus,
    ShareStatus,
    TenantResourceQuota,
    TenantResourceQuotaSpec,
)
from tenantry.api.wording import shortened
from tenantry.controllers.quota.effective import effective_quota
from tenantry.engine.reader import ObjectReader
from tenantry.views.objects import NamespaceWithPhase, ResourceQuotaWithUsage
from tenantry.views.snapshot import Snapshot
from tenantry.views.snapshot import read as read_snapshot
from tenantry.views.snapshot import read_below as read_snapshot_below
from tenantry.world import quantity
from tenantry.world.shares.amounts import Amounts, add, read, spell, spelled, total
from tenantry.world.shares.share import PLANE


class ShareView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The share of one namespace; maps from quota key to canonical quantity.

    Args:
        namespace: Its name.
        parent: The namespace above; "" at the top.
        depth: 0 at the top.
        assigned: What the namespace and everything below it may use.
        used: What they use.
        free: What they may use in addition.
        own_free: What is free in the namespace itself, for its own objects or for another child.
        claims: The shares of SliceClaims and VirtualControlPlanes in the namespace.
    """

    namespace: str
    parent: str
    depth: int
    assigned: Mapping[str, str]
    used: Mapping[str, str]
    free: Mapping[str, str]
    own_free: Mapping[str, str]
    claims: tuple[ClaimShareStatus, ...] = ()


class QuotaView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The quota of a tenant; maps from quota key to canonical quantity.

    Args:
        tenant: Its name.
        hard: What the whole tree may use now.
        used: What it uses.
        tree: The shares, each behind its parent's.
        omitted: How many namespaces are not in `tree`.
        adjustments: Temporary changes of `hard`.
        clusters: What peers have for namespaces of the tree.
    """

    tenant: str
    hard: Mapping[str, str]
    used: Mapping[str, str]
    tree: tuple[ShareView, ...]
    omitted: int = 0
    adjustments: tuple[Adjustment, ...] = ()
    clusters: tuple[RemoteShareStatus, ...] = ()


def quotas(snapshot: Snapshot) -> list[QuotaView]:
    """Return the quotas of the snapshot's tenants."""
    by_tenant = {each.metadata.name: each for each in snapshot.tenant_quotas}
    by_namespace = {each.metadata.namespace: each for each in snapshot.quotas}
    if snapshot.is_partial:
        return [_visible(each.metadata.name, snapshot.namespaces, by_namespace) for each in snapshot.tenants]
    return [quota(each.metadata.name, by_tenant.get(each.metadata.name), by_namespace) for each in snapshot.tenants]


def quota(
    tenant: str, tenant_quota: TenantResourceQuota | None, by_namespace: Mapping[str, ResourceQuotaWithUsage]
) -> QuotaView:
    """Return the quota of one tenant.

    Args:
        tenant: Its name.
        tenant_quota: None before the operator has created it; then only the core namespace's ResourceQuota counts.
        by_namespace: The managed ResourceQuotas.
    """
    adjustments = tenant_quota.spec.adjustments if tenant_quota is not None else ()
    if tenant_quota is not None and tenant_quota.status.tree:
        status = tenant_quota.status
        return QuotaView(
            tenant=tenant,
            hard=status.hard,
            used=status.used,
            tree=tuple(_view(share, by_namespace.get(share.namespace)) for share in _depth_first(status.tree)),
            omitted=status.omitted,
            adjustments=adjustments,
            clusters=status.clusters,
        )
    # Without a tree, the whole quota of the tenant is the ResourceQuota of the core namespace.
    core = by_namespace.get(tenant)
    usage = core.usage() if core is not None else ()
    top = ShareStatus(
        namespace=tenant,
        assigned={each.key: each.hard for each in usage},
        used={each.key: each.used for each in usage},
        free=_free(core),
    )
    return QuotaView(tenant=tenant, hard=top.assigned, used=top.used, tree=(_view(top, core),), adjustments=adjustments)


def _visible(
    tenant: str,
    namespaces: Sequence[NamespaceWithPhase],
    by_namespace: Mapping[str, ResourceQuotaWithUsage],
    top: str = "",
) -> QuotaView:
    """Return the division of a quota as far as its namespaces may be read: sums of their ResourceQuotas."""
    below: dict[str, list[str]] = defaultdict(list)
    for each in namespaces:
        below[each.metadata.labels.get(PARENT, "")].append(each.metadata.name)
    shares: list[ShareStatus] = []

    def add_up(name: str, parent: str, depth: int) -> tuple[Amounts, Amounts]:
        usage = by_namespace[name].usage() if name in by_namespace else ()
        assigned, used = read({each.key: each.hard for each in usage}), read({each.key: each.used for each in usage})
        place = len(shares)
        shares.append(ShareStatus(namespace=name))
        for child in sorted(below[name]):
            more_assigned, more_used = add_up(child, name, depth + 1)
            add(assigned, more_assigned)
            add(used, more_used)
        free = {key: max(amount - used.get(key, 0), 0) for key, amount in assigned.items()}
        shares[place] = ShareStatus(
            namespace=name,
            parent=parent,
            depth=depth,
            assigned=spelled(assigned),
            used=spelled(used),
            free=spelled(free),
        )
        return assigned, used

    assigned, used = add_up(top or tenant, "", 0)
    tree = tuple(_view(share, by_namespace.get(share.namespace)) for share in shares)
    return QuotaView(tenant=tenant, hard=spelled(assigned), used=spelled(used), tree=tree)


async def read_below(reader: ObjectReader, namespace: str) -> tuple[QuotaView, bool]:
    """Return the quota of a namespace with all below it, and whether the user may read only a part of that.

    Raises:
        Forbidden: The user may not read the namespace.
        InputError: The namespace belongs to no tenant.
        NotFound: There is no such namespace, or it has no share yet.
    """
    found = await read_snapshot_below(reader, namespace)
    tenant = found.namespaces[0].metadata.labels.get(TENANT, "")
    if not tenant:
        raise InputError(f"the namespace {namespace!r} belongs to no tenant")
    try:
        whole = quotas(await read_snapshot(reader, (tenant,)))[0]
    except Forbidden:
        by_namespace = {each.metadata.namespace: each for each in found.quotas}
        return _visible(tenant, found.namespaces, by_namespace, namespace), True
    return part(whole, namespace), False


def part(whole: QuotaView, namespace: str) -> QuotaView:
    """Return a namespace of a tenant with all below it.

    Raises:
        NotFound: The namespace has no share yet, or is one of those that are not listed.
    """
    at = next((number for number, each in enumerate(whole.tree) if each.namespace == namespace), None)
    if at is None:
        raise NotFound(f"the quota of tenant {whole.tenant!r} lists no share of namespace {namespace!r}")
    top = whole.tree[at]
    below = takewhile(lambda each: each.depth > top.depth, whole.tree[at + 1 :])
    tree = tuple(msgspec.structs.replace(each, depth=each.depth - top.depth) for each in (top, *below))
    names = {each.namespace for each in tree}
    return QuotaView(
        tenant=whole.tenant,
        hard=top.assigned,
        used=top.used,
        tree=tree,
        clusters=tuple(each for each in whole.clusters if each.namespace in names),
    )


def _view(share: ShareStatus, own: ResourceQuotaWithUsage | None) -> ShareView:
    return ShareView(
        namespace=share.namespace,
        parent=share.parent,
        depth=share.depth,
        assigned=share.assigned,
        used=share.used,
        free=share.free,
        own_free=_free(own),
        claims=share.claims,
    )


def _free(own: ResourceQuotaWithUsage | None) -> dict[str, str]:
    return {each.key: _difference(each.hard, each.used) for each in own.usage()} if own is not None else {}


def _difference(hard: str, used: str) -> str:
    # A quota that became smaller than its use has nothing free.
    left = max(quantity.parse(hard) - quantity.parse(used), Fraction(0))
    return quantity.write(left, binary=hard.endswith("i") or used.endswith("i"))


def _depth_first(tree: Sequence[ShareStatus]) -> list[ShareStatus]:
    """Return shares with each behind its parent; the status lists them level by level."""
    below: dict[str, list[ShareStatus]] = defaultdict(list)
    for share in tree:
        below[share.parent if share.depth else ""].append(share)
    found: list[ShareStatus] = []
    waiting = below[""][::-1]
    while waiting:
        share = waiting.pop()
        found.append(share)
        waiting += reversed(below[share.namespace])
    return found


def shortages(tenant: Tenant, tenant_quota: TenantResourceQuota, wanted: Adjustment, now: datetime) -> list[str]:
    """Return a line for each key of which an adjustment takes away what subnamespaces hold; [] if it fits.

    Args:
        tenant: The tenant.
        tenant_quota: Its TenantResourceQuota; an adjustment of the same name is replaced.
        wanted: The adjustment, with normal keys.
        now: The time, with an offset.

    Raises:
        InputError: A quantity of the tenant's quota cannot be read.
    """
    others = tuple(each for each in tenant_quota.spec.adjustments if each.name != wanted.name)
    before, after = (
        effective_quota(
            tenant, msgspec.structs.replace(tenant_quota, spec=TenantResourceQuotaSpec(adjustments=chosen)), now
        ).hard
        for chosen in (others, (*others, wanted))
    )
    # Without the claims of nodes in the core namespace: some are within the shares of subnamespaces already.
    holders = [(each.namespace, read(each.assigned)) for each in tenant_quota.status.tree if each.depth == 1]
    # A control plane has no users that hold its share, too.
    planes = [
        (f"{PLANE}{claim.claim}", read(claim.assigned))
        for each in tenant_quota.status.tree
        if each.depth == 0
        for claim in each.claims
        if claim.kind is ClaimKind.VIRTUAL_CONTROL_PLANE
    ]
    holders += planes
    nouns = "subnamespaces and control planes" if planes else "subnamespaces"
    fields = "spec.quota.hard of Subnamespaces" + (" or spec.resources of control planes" if planes else "")
    held = total(amounts for _, amounts in holders)
    lines: list[str] = []
    for key in sorted(before):
        lack = held.get(key, 0) - after[key]
        if lack <= 0 or after[key] >= before[key]:
            continue
        most = min(0, held[key] - before[key])
        fitting = f"at most {key}={spell(key, most)} fits" if most < 0 else "nothing can be taken away"
        which = shortened(f"{name!r} has {spell(key, has[key])}" for name, has in holders if has.get(key))
        lines.append(
            f"{key}: {nouns} hold {spell(key, held[key])} of {spell(key, before[key])}, and"
            f" {spell(key, after[key])} would be left: {fitting}, or lower {fields} first"
            f" ({which})"
        )
    return lines

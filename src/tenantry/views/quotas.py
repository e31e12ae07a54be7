"""How the quota of each tenant is divided over its namespaces and claims of nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from tenantry.api.tenantresourcequota import Adjustment, ClaimShareStatus, ShareStatus, TenantResourceQuota
from tenantry.views.objects import ResourceQuotaWithUsage
from tenantry.views.snapshot import Snapshot
from tenantry.world import quantity


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
        claims: The shares of SliceClaims in the namespace.
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
    """

    tenant: str
    hard: Mapping[str, str]
    used: Mapping[str, str]
    tree: tuple[ShareView, ...]
    omitted: int = 0
    adjustments: tuple[Adjustment, ...] = ()


def quotas(snapshot: Snapshot) -> list[QuotaView]:
    """Return the quotas of the snapshot's tenants."""
    by_tenant = {each.metadata.name: each for each in snapshot.tenant_quotas}
    by_namespace = {each.metadata.namespace: each for each in snapshot.quotas}
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
    left = quantity.parse(hard) - quantity.parse(used)
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

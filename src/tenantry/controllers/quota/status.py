"""Compute the status of a TenantResourceQuota and the verdict on a Subnamespace or claim: pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from tenantry.api import reasons
from tenantry.api.subnamespace import SubnamespaceQuota
from tenantry.api.tenantresourcequota import (
    MAX_CLAIMS,
    MAX_REMOTE,
    Batch,
    ClaimKind,
    ClaimShareStatus,
    ShareStatus,
    TenantResourceQuota,
    TenantResourceQuotaStatus,
)
from tenantry.api.wording import shortened
from tenantry.controllers.conclusion import ready, trouble
from tenantry.controllers.quota.effective import EffectiveQuota
from tenantry.controllers.quota.verdicts import ShareVerdict
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked
from tenantry.world.shares.amounts import Amounts, fits, spelled
from tenantry.world.shares.defaults import idle
from tenantry.world.shares.share import CLAIM, PEER, PLANE, Share
from tenantry.world.shares.shortage import Shortage, beyond, exceeded, full
from tenantry.world.shares.tree import Tree

MAX_SHARES = 500
"""A larger tree shows its upper levels, and the number of the other namespaces."""


def totals(tree: Tree, share: Share) -> SubnamespaceQuota:
    """Return the totals of a share and of everything below it."""
    assigned, used, free = _sums(tree, share)
    return SubnamespaceQuota(assigned=spelled(assigned), used=spelled(used), free=spelled(free))


def _sums(tree: Tree, share: Share) -> tuple[Amounts, Amounts, Amounts]:
    used = {key: share.used_below.get(key, 0) for key in tree.keys}
    inside = tree.use_of_added(share) if tree.added else {}
    free = {key: max(0, share.granted[key] - used[key] + inside.get(key, 0)) for key in tree.keys}
    return share.granted, used, free


def verdict(tree: Tree, share: Share) -> ShareVerdict:
    """Return the verdict on a Subnamespace, or on a claim."""
    found, starved = trouble_of(share), idle_of(share)
    if share.is_claim:
        # A claim has no ResourceQuota: it is in force when all shares that shrink for it are.
        if (share.parent, share.peer) in tree.remote.left_out:
            found = full(MAX_REMOTE)
        is_given = share.request is not None and fits(share.request.hard, share.granted)
        free = is_given and tree.has_yielded
        return ShareVerdict(
            generation=share.request.generation if share.request is not None else 0,
            round=share.request.round if share.request is not None else 0,
            blocked=Blocked(reason=found.reason, message=found.message) if found is not None else None,
            in_force=free,
            settled=free,
            totals=SubnamespaceQuota(assigned=spelled(share.granted)),
        )
    return ShareVerdict(
        generation=share.request.generation if share.request is not None else 0,
        blocked=Blocked(reason=found.reason, message=found.message) if found is not None else None,
        idle=Blocked(reason=starved.reason, message=starved.message) if starved is not None else None,
        in_force=is_in_force(tree, share),
        settled=is_settled(tree, share),
        totals=totals(tree, share),
    )


def is_in_force(tree: Tree, share: Share) -> bool:
    """Return whether Kubernetes enforces a namespace's own share, or did before the share last changed.

    The caller keeps the answer in `Share.was_in_force`.
    """
    quota = tree.quotas.get(share.namespace.name) if share.namespace is not None else None
    if not tree.keys:
        return True
    if quota is None or any(key not in quota.in_force for key in tree.keys):
        return False
    return share.was_in_force or is_settled(tree, share)


def is_settled(tree: Tree, share: Share) -> bool:
    """Return whether a namespace's own share is as divided, and Kubernetes enforces it."""
    quota = tree.quotas.get(share.namespace.name) if share.namespace is not None else None
    return not tree.keys or (quota is not None and quota.is_enforced and quota.hard == share.own)


def trouble_of(share: Share) -> Shortage | None:
    """Return the shortage that the status of a share reports."""
    if share.blocked is not None or share.namespace is None:
        return share.blocked
    return exceeded(share.over, share.own, share.namespace.name)


def idle_of(share: Share) -> Shortage | None:
    """Return why no pod can start in a namespace or below it; None if one can, or the share is not decided."""
    request = share.request
    if request is None or request.problem is not None or share.is_claim:
        return None
    named = request.hard.keys() - set(request.unnamed)
    return idle(share.granted, named, share.parent)


def compute(
    tenant_quota: TenantResourceQuota,
    tree: Tree,
    effective: EffectiveQuota,
    *,
    moving: bool,
    silent: Mapping[str, str] = {},
    now: str,
) -> TenantResourceQuotaStatus:
    """Return the status to write.

    Args:
        tenant_quota: The TenantResourceQuota; a batch that is under way stays in its status.
        tree: The division.
        effective: The amounts to divide.
        moving: A batch is under way.
        silent: Since when peers do not answer, by peer; RFC 3339.
        now: RFC 3339.
    """
    rows, omitted = _rows(tree)
    generation = tenant_quota.metadata.generation
    problem = _problem(tree, effective, moving=moving)
    # Without Stalled, which the Tenant reports, too: nothing but these namespaces is concerned.
    shown = problem or _exceeding(tree)
    conditions = [ready(shown, "every share is in force"), *trouble(problem), *_expiring(effective)]
    batch = tenant_quota.status.batch
    return msgspec.structs.replace(
        tenant_quota.status,
        observed_generation=generation,
        used=spelled({key: tree.root.used_below.get(key, 0) for key in tree.keys}),
        # A finished batch needs no targets. Its number stays: it distinguishes late writes.
        batch=batch if moving else Batch(number=batch.number, counted=batch.counted),
        clusters=tuple(
            msgspec.structs.replace(each, unreachable_since=silent.get(each.peer, ""))
            for each in tenant_quota.status.clusters
        ),
        tree=rows,
        omitted=omitted,
        conditions=merge(tenant_quota.status.conditions, conditions, generation=generation, now=now),
    )


def _problem(tree: Tree, effective: EffectiveQuota, *, moving: bool) -> Blocked | None:
    found = trouble_of(tree.root)
    if effective.problems:
        return Blocked(reason=reasons.INVALID_SPEC, message=shortened(effective.problems, separator="; "))
    if found is not None:
        return Blocked(reason=found.reason, message=found.message)
    if moving:
        return Blocked(reason=reasons.PROGRESSING, message="shares are not in force yet", passing=True)
    return None


def _exceeding(tree: Tree) -> Blocked | None:
    """Return which subnamespaces use more than their share; None if none does.

    Without amounts: a condition must not change with every object.
    """
    found = {
        share.namespace.name: sorted(keys)
        for share in tree.shares.values()
        if share is not tree.root
        and share.namespace is not None
        and not share.namespace.terminating
        and (keys := beyond(share.over))
    }
    if not found:
        return None
    listed = shortened(f"{name!r} ({shortened(keys)})" for name, keys in found.items())
    message = f"more is in use than the share of: {listed}; all of it stays, and new use there is refused"
    return Blocked(reason=reasons.QUOTA_EXCEEDED, message=message)


def _expiring(effective: EffectiveQuota) -> list[Wanted]:
    if not effective.warnings:
        return []
    told = shortened(effective.warnings, separator="; ")
    return [Wanted(reasons.EXPIRING, True, reasons.EXPIRES_SOON, told, only_true=True)]


def _rows(tree: Tree) -> tuple[tuple[ShareStatus, ...], int]:
    """Return the tree from the top, breadth first, and the number of namespaces that are left out."""
    rows: list[ShareStatus] = []
    waiting = deque([(tree.root, 0)])
    while waiting and len(rows) < MAX_SHARES:
        share, depth = waiting.popleft()
        if share.namespace is None:
            continue
        assigned, used, free = _sums(tree, share)
        row = ShareStatus(
            namespace=share.namespace.name,
            parent=share.namespace.parent,
            depth=depth,
            assigned=spelled(assigned),
            used=spelled(used),
            free=spelled(free),
            claims=_claims(share),
        )
        rows.append(row)
        waiting.extend((child, depth + 1) for child in tree.children_of(share))
    return tuple(rows), max(0, tree.count - len(rows))


def _claims(share: Share) -> tuple[ClaimShareStatus, ...]:
    ordered = sorted(share.claims, key=lambda claim: claim.order)
    has = [(claim, {key: value for key, value in claim.granted.items() if value > 0}) for claim in ordered]
    shares = [
        ClaimShareStatus(claim=name, kind=kind, assigned=spelled(amounts))
        for claim, amounts in has
        if amounts and claim.request is not None
        for kind, name in [_claimed(claim, claim.request.name)]
    ]
    return tuple(shares[:MAX_CLAIMS])


def _claimed(claim: Share, name: str) -> tuple[ClaimKind, str]:
    """Return the kind and the name of the object that a claim is for."""
    if claim.plane:
        return ClaimKind.VIRTUAL_CONTROL_PLANE, name.removeprefix(PLANE)
    if claim.peer:
        return ClaimKind.PEER_CLUSTER, name.removeprefix(PEER)
    return ClaimKind.SLICE_CLAIM, name.removeprefix(CLAIM)


def is_news(before: ShareVerdict, after: ShareVerdict) -> bool:
    """Return whether a verdict has changed in more than its totals."""
    one, other = (msgspec.structs.replace(each, totals=SubnamespaceQuota()) for each in (before, after))
    return one != other or before.totals.assigned != after.totals.assigned

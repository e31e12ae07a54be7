"""What a TenantResourceQuota's status and a Subnamespace's verdict say: pure."""

from __future__ import annotations

from collections import deque

import msgspec

from tenantry.api import reasons
from tenantry.api.subnamespace import SubnamespaceQuota
from tenantry.api.tenantresourcequota import (
    MAX_CLAIMS,
    Batch,
    ClaimShare,
    Share,
    TenantResourceQuota,
    TenantResourceQuotaStatus,
)
from tenantry.controllers.conclusion import ready, trouble
from tenantry.controllers.quota.verdicts import Verdict
from tenantry.controllers.quota.whole import Whole
from tenantry.engine.conditions import Wanted, merge
from tenantry.engine.plan import Blocked
from tenantry.world.shares.amounts import Amounts, fits, spelled
from tenantry.world.shares.nodes import CLAIM, Node
from tenantry.world.shares.shortage import Shortage, exceeded
from tenantry.world.shares.tree import Tree

MAX_SHARES = 500
SHOWN = 3


def totals(tree: Tree, node: Node) -> SubnamespaceQuota:
    """Return what a node and everything below has together."""
    assigned, used, free = _sums(tree, node)
    return SubnamespaceQuota(assigned=spelled(assigned), used=spelled(used), free=spelled(free))


def _sums(tree: Tree, node: Node) -> tuple[Amounts, Amounts, Amounts]:
    used = {key: node.used_below.get(key, 0) for key in tree.keys}
    return node.granted, used, {key: max(0, node.granted[key] - used[key]) for key in tree.keys}


def verdict(tree: Tree, node: Node) -> Verdict:
    """Return what is said of a Subnamespace, or of a claim."""
    found = trouble_of(node)
    if node.is_claim:
        is_given = node.asked is not None and fits(node.asked.hard, node.granted)
        free = is_given and tree.has_yielded
        return Verdict(
            generation=node.asked.generation if node.asked is not None else 0,
            blocked=Blocked(reason=found.reason, message=found.message) if found is not None else None,
            in_force=free,
            settled=free,
            totals=SubnamespaceQuota(assigned=spelled(node.granted)),
        )
    return Verdict(
        generation=node.asked.generation if node.asked is not None else 0,
        blocked=Blocked(reason=found.reason, message=found.message) if found is not None else None,
        in_force=is_in_force(tree, node),
        settled=is_settled(tree, node),
        totals=totals(tree, node),
    )


def is_in_force(tree: Tree, node: Node) -> bool:
    """Tell whether a namespace's own share is what Kubernetes counts against; once it was, a change is no news."""
    held = tree.quotas.get(node.room.namespace) if node.room is not None else None
    if not tree.keys:
        return True
    if held is None or any(key not in held.in_force for key in tree.keys):
        node.was_in_force = False
    elif is_settled(tree, node):
        node.was_in_force = True
    return node.was_in_force


def is_settled(tree: Tree, node: Node) -> bool:
    """Tell whether a namespace's own share is as it should be now, and Kubernetes counts against it."""
    held = tree.quotas.get(node.room.namespace) if node.room is not None else None
    return not tree.keys or (held is not None and held.is_enforced and held.hard == node.own)


def trouble_of(node: Node) -> Shortage | None:
    """Return what a person should know about a node."""
    if node.blocked is not None or node.room is None:
        return node.blocked
    return exceeded(node.over, node.own, node.room.namespace)


def compute(
    book: TenantResourceQuota, tree: Tree, whole: Whole, *, moving: bool, now: str
) -> TenantResourceQuotaStatus:
    """Return the status to write.

    Args:
        book: As it is; a batch that is under way stays.
        tree: The division.
        whole: What there is to divide.
        moving: Shares are on their way.
        now: RFC 3339.
    """
    rows, omitted = _rows(tree)
    generation = book.metadata.generation
    problem = _problem(tree, whole, moving=moving)
    conditions = [ready(problem, "every share is in force"), *trouble(problem), *_expiring(whole)]
    batch = book.status.batch
    return msgspec.structs.replace(
        book.status,
        observed_generation=generation,
        used=spelled({key: tree.root.used_below.get(key, 0) for key in tree.keys}),
        batch=batch if moving else Batch(number=batch.number, counted=batch.counted),
        tree=rows,
        omitted=omitted,
        conditions=merge(book.status.conditions, conditions, generation=generation, now=now),
    )


def _problem(tree: Tree, whole: Whole, *, moving: bool) -> Blocked | None:
    found = trouble_of(tree.root)
    if whole.problems:
        more = len(whole.problems) - SHOWN
        told = "; ".join(whole.problems[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
        return Blocked(reason=reasons.INVALID_SPEC, message=told)
    if found is not None:
        return Blocked(reason=found.reason, message=found.message)
    if moving:
        return Blocked(reason=reasons.PROGRESSING, message="shares are on their way", passing=True)
    return None


def _expiring(whole: Whole) -> list[Wanted]:
    if not whole.warnings:
        return []
    more = len(whole.warnings) - SHOWN
    told = "; ".join(whole.warnings[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
    return [Wanted(reasons.EXPIRING, True, reasons.EXPIRES_SOON, told, only_true=True)]


def _rows(tree: Tree) -> tuple[tuple[Share, ...], int]:
    """Return the tree from the top, breadth first, and how many namespaces are left out."""
    rows: list[Share] = []
    waiting = deque([(tree.root, 0)])
    while waiting and len(rows) < MAX_SHARES:
        node, depth = waiting.popleft()
        if node.room is None:
            continue
        assigned, used, free = _sums(tree, node)
        row = Share(
            namespace=node.room.namespace,
            parent=node.room.parent,
            depth=depth,
            assigned=spelled(assigned),
            used=spelled(used),
            free=spelled(free),
            claims=_claims(node),
        )
        rows.append(row)
        waiting.extend((child, depth + 1) for child in tree.children_of(node))
    return tuple(rows), max(0, tree.count - len(rows))


def _claims(node: Node) -> tuple[ClaimShare, ...]:
    ordered = sorted(node.claims, key=lambda claim: claim.order)
    has = [(claim, {key: value for key, value in claim.granted.items() if value > 0}) for claim in ordered]
    shares = [
        ClaimShare(claim=claim.asked.name.removeprefix(CLAIM), assigned=spelled(amounts))
        for claim, amounts in has
        if amounts and claim.asked is not None
    ]
    return tuple(shares[:MAX_CLAIMS])


def is_news(before: Verdict, after: Verdict) -> bool:
    """Tell whether a verdict has changed in more than its totals."""
    one, other = (msgspec.structs.replace(each, totals=SubnamespaceQuota()) for each in (before, after))
    return one != other or before.totals.assigned != after.totals.assigned

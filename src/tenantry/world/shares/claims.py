"""Claims of nodes in a tree of shares: pure.

A claim is a child of the namespace that it is in, and holds what its nodes have. It has no namespace of its own: pods
are counted in those that use its slice, and what these hold is held in its stead. So of what a claim and its users hold
only the larger is charged, and

    who uses it                          what it has
    the namespace that the claim is in   of what the claim has, what no child of it that uses it, too, holds
    children of that                     the oldest: what the claim has and no other of them asks for
                                         the others, and who is below: what they ask for, as ever

Keys of which the nodes have nothing are divided as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tenantry.world.shares.amounts import Amounts, add, lower, total
from tenantry.world.shares.share import Share


def uses(share: Share, claim: Share) -> bool:
    """Tell whether a namespace's pods run on a claim's nodes."""
    return share.namespace is not None and claim.slice != "" and share.namespace.slice == claim.slice


def users(children: Iterable[Share], claim: Share) -> list[Share]:
    """Return those whose pods run on a claim's nodes, oldest first."""
    return sorted((child for child in children if uses(child, claim)), key=lambda child: child.order)


def credit(share: Share, children: Sequence[Share], instead: Mapping[str, Amounts] | None = None) -> Amounts:
    """Return what is held twice: by the claims in a namespace, and in their stead by its children.

    Args:
        share: Whose namespace it is.
        children: All of its children.
        instead: What some would have, by key, other than what they have.
    """
    other = instead or {}
    out: Amounts = {}
    for claim in share.claims:
        held = total(other.get(user.key, user.granted) for user in users(children, claim))
        add(out, lower(other.get(claim.key, claim.granted), held))
    return out


def lent(share: Share, children: Sequence[Share]) -> Amounts:
    """Return what a namespace may use of the claim that its own pods run on, by the keys that this is so for."""
    out: Amounts = {}
    for claim in share.claims:
        if uses(share, claim):
            out = {key: value for key, value in claim.granted.items() if value > 0}
            for user in users(children, claim):
                add(out, {key: user.granted.get(key, 0) for key in out}, -1)
    return {key: max(0, value) for key, value in out.items()}


def wants(parent: Share | None, child: Share, siblings: Sequence[Share]) -> Amounts:
    """Return what a child asks for, or what it has in a claim's stead."""
    request = child.request.hard if child.request is not None else child.granted
    if parent is None or child.is_claim:
        return request
    for claim in parent.claims:
        if not uses(child, claim) or uses(parent, claim):
            continue
        first, *others = users(siblings, claim)
        if first is child:
            rest = total(each.request.hard if each.request is not None else each.granted for each in others)
            left = {key: max(0, value - rest.get(key, 0)) for key, value in claim.granted.items() if value > 0}
            return {**request, **left}
    return request

"""Claims in a tree of shares: pure.

A claim is a child of the namespace that it is in, and has no namespace of its own. A claim for a control plane or a
peer has no users: its namespace is charged all of it. A claim of nodes holds the capacity of its nodes. Kubernetes
counts its pods in the namespaces that use its slice. What these hold, they hold in place of the claim, so only the
larger of both amounts is charged to the parent:

    user of the claim                    gets
    the namespace that the claim is in   what the claim has and no child that uses it holds
    the oldest child that uses it,       what the claim has and no other such child requests
    if that namespace does not
    any other child, and its children    what it requests

Example: a claim of 8 CPUs in `acme`, used by `acme` itself and by its child `web`, which requests 3. The claim and
`web` are charged 8 together, not 11. `acme` gets 5 of the claim, beside what it has of its own.

Keys that the nodes do not have are divided as if there was no claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tenantry.world.shares.amounts import Amounts, add, lower, total
from tenantry.world.shares.share import Share


def uses(share: Share, claim: Share) -> bool:
    """Return whether the pods of a namespace run on the nodes of a claim."""
    return share.namespace is not None and claim.slice != "" and share.namespace.slice == claim.slice


def users(children: Iterable[Share], claim: Share) -> list[Share]:
    """Return the children whose pods run on the nodes of a claim, the oldest first."""
    return sorted((child for child in children if uses(child, claim)), key=lambda child: child.order)


def apart(parent: Share | None, share: Share, keys: Iterable[str]) -> Amounts:
    """Return what a share has of some keys, without what it has in place of a claim."""
    lent = [claim for claim in parent.claims if uses(share, claim)] if parent is not None else []
    return {
        key: share.granted[key]
        for key in keys
        if share.granted.get(key, 0) > 0 and not any(claim.granted.get(key, 0) > 0 for claim in lent)
    }


def credit(share: Share, children: Sequence[Share], instead: Mapping[str, Amounts] | None = None) -> Amounts:
    """Return what both the claims in a namespace and the children that use them hold.

    Args:
        share: Of the namespace.
        children: All of its children.
        instead: Amounts to assume for some children, by key, in place of what they have.
    """
    other = instead or {}
    out: Amounts = {}
    for claim in share.claims:
        held = total(other.get(user.key, user.granted) for user in users(children, claim))
        add(out, lower(other.get(claim.key, claim.granted), held))
    return out


def lent(share: Share, children: Sequence[Share]) -> Amounts:
    """Return what a namespace may use of the claim that its own pods run on; only keys that the claim has."""
    out: Amounts = {}
    for claim in share.claims:
        if uses(share, claim):
            out = {key: value for key, value in claim.granted.items() if value > 0}
            for user in users(children, claim):
                add(out, {key: user.granted.get(key, 0) for key in out}, -1)
    return {key: max(0, value) for key, value in out.items()}


def wants(parent: Share | None, child: Share, siblings: Sequence[Share]) -> Amounts:
    """Return what a child requests, or what it gets in place of a claim."""
    request = child.wanted
    if parent is None or child.is_claim:
        return request
    for claim in parent.claims:
        if not uses(child, claim) or uses(parent, claim):
            continue
        first, *others = users(siblings, claim)
        if first is child:
            rest = total(each.wanted for each in others)
            left = {key: max(0, value - rest.get(key, 0)) for key, value in claim.granted.items() if value > 0}
            return {**request, **left}
    return request

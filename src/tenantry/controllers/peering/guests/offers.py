"""What a peer offers to a home, and how much of it the Node of the peer has. Pure.

    guest.offer, quota, free resources ─► ConfigMap "a-offer" of `tenantry-peers` ─► read by the home, untrusted
    offer, host.accept ─► the least of both, for each resource ─► capacity of the Node

A home may read this one ConfigMap. A right to read its PeerCluster would need a ClusterRoleBinding for each home, and
an operator that writes these could make itself an administrator of the cluster.

A share is published again only if it has changed by more than a tenth: the Node of a busy peer must not change all the
time. An offer that ends leaves a Node with a capacity of 0: pods that run there stay.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Json, Resource
from tenantry.api.peercluster import (
    PEERS_NAMESPACE,
    GuestOffer,
    OfferAmounts,
    OfferStatus,
    PeerCluster,
    PeerGuest,
)
from tenantry.controllers.peering.guests import guest
from tenantry.controllers.peering.guests.guest import ACCOUNTS, BINDINGS, ROLES
from tenantry.mirror.things import COPIED
from tenantry.world import leases, quantity, quota

CONFIG_MAPS = COPIED["ConfigMap"]
OFFER_KEY = "offer"
"""The key of the ConfigMap: the offer, as JSON."""

MOST_BYTES = 32 * 1024
"""The longest offer that a home reads."""

_MOVES = Fraction(1, 10)
_BINARY = ("memory", "storage")
_NOTHING = "0"


def offer_name(peer: str) -> str:
    """Return the name of the ConfigMap with the offer to a home, and of the Role to read it."""
    return f"{peer}-offer"


# -- at the peer --------------------------------------------------------------------------------


def needs_free(half: PeerGuest, now: dt.datetime) -> bool:
    """Return whether the offer depends on the free resources of the cluster."""
    offer = half.offer
    is_share = isinstance(offer, GuestOffer) and offer.amounts is OfferAmounts.SHARE
    return is_share and not _is_over(half, now)


def offered(half: PeerGuest, free: Mapping[str, Fraction], before: OfferStatus | None, now: dt.datetime) -> OfferStatus:
    """Return what is offered to a home.

    Args:
        half: The guest half.
        free: The free resources of this cluster; used for a share only.
        before: What was offered until now; None for nothing.
        now: The time.
    """
    whole = quota.capacity(half.quota.hard)
    offer = half.offer if isinstance(half.offer, GuestOffer) else GuestOffer()
    hard = whole
    if _is_over(half, now):
        hard = dict.fromkeys(whole, _NOTHING)
    elif offer.amounts is OfferAmounts.SHARE:
        old = before.hard if before is not None else {}
        hard = {key: _share(key, value, free, offer.percent, old.get(key, _NOTHING)) for key, value in whole.items()}
    return OfferStatus(hard=hard, expires=offer.expires)


def _is_over(half: PeerGuest, now: dt.datetime) -> bool:
    offer = half.offer
    if not isinstance(offer, GuestOffer):
        return False
    try:
        return offer.amounts is OfferAmounts.NONE or leases.lease(offer.expires, now).is_expired
    except InputError:
        # The schema admits only times; what does not parse offers nothing.
        return True


def _share(key: str, most: str, free: Mapping[str, Fraction], percent: int, before: str) -> str:
    """Return the share of one resource, in whole pods, mebibytes or thousandths of a CPU."""
    bound, old = quantity.parse(most), quantity.parse(before)
    amount = max(min(bound, free.get(key, Fraction()) * percent / 100), Fraction())
    is_binary = key.endswith(_BINARY)
    step = Fraction(2**20) if is_binary else Fraction(1, 1000) if key == "cpu" else Fraction(1)
    amount = amount // step * step
    if old and amount and old <= bound and abs(amount - old) <= old * _MOVES:
        return before
    return quantity.write(amount, binary=is_binary)


def objects(found: PeerCluster, offer: OfferStatus) -> tuple[tuple[Resource, Json], ...]:
    """Return the ConfigMap with an offer, and the right of the home to read it."""
    name = found.metadata.name
    called = offer_name(name)
    rule: Json = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [called]}
    binding: Json = {
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": ROLES.kind, "name": called},
        "subjects": [{"kind": ACCOUNTS.kind, "name": name, "namespace": PEERS_NAMESPACE}],
    }
    return (
        (CONFIG_MAPS, {**guest.meta(found, called), "data": {OFFER_KEY: msgspec.json.encode(offer).decode()}}),
        (ROLES, {**guest.meta(found, called), "rules": [rule]}),
        (BINDINGS, {**guest.meta(found, called), **binding}),
    )


# -- at home ------------------------------------------------------------------------------------


def read(text: str) -> OfferStatus | None:
    """Return an offer; None if the text is none. Untrusted."""
    if len(text) > MOST_BYTES:
        return None
    try:
        found = msgspec.json.decode(text, type=OfferStatus)
        leases.lease(found.expires, dt.datetime.min.replace(tzinfo=dt.UTC))
        hard = {key: quantity.canonical(value) for key, value in found.hard.items() if quantity.parse(value) >= 0}
    except (msgspec.MsgspecError, InputError):
        return None
    return msgspec.structs.replace(found, hard=hard)


def least(accepted: Mapping[str, str], offer: OfferStatus | None, now: dt.datetime) -> dict[str, str]:
    """Return the capacity of the Node of a peer: of each accepted resource, at most what is offered.

    Args:
        accepted: `host.accept.hard`.
        offer: What the peer offers; None if it does not say.
        now: The time.
    """
    if offer is None:
        return dict(accepted)
    if leases.lease(offer.expires, now).is_expired:
        return dict.fromkeys(accepted, _NOTHING)
    return {key: min((value, offer.hard.get(key, _NOTHING)), key=quantity.parse) for key, value in accepted.items()}

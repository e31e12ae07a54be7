"""The labels of the Node of a peer: pure.

    the peer proposes ─► admitted, by key ─┐
    the administrator gives ───────────────┴─► labels of the Node ─► clusterSelector of namespaces matches them

What a peer proposes is untrusted: a label decides which tenants' pods are placed there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from tenantry.api.peercluster import (
    MOST_LABELS,
    NEVER_LABELS,
    OWN_LABELS,
    PEER,
    RESERVED_LABELS,
    VIRTUAL,
    PeerCluster,
    PeerHost,
)
from tenantry.api.tenancydefaults import FederationDefaults

TOPOLOGY = "topology.kubernetes.io/"

_MOST_TEXT = MOST_LABELS * (317 + 63 + 2)

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:[.][a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_KEY = re.compile(rf"(?:(?=.{{1,253}}/){_DOMAIN}/)?{_NAME}")
_VALUE = re.compile(f"(?:{_NAME})?")
_NEVER = re.compile(NEVER_LABELS)


def admitted(proposed: Mapping[str, str], given: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
    """Return the labels of the Node of a peer, without those that Tenantry sets.

    Args:
        proposed: What the peer proposes, of any content; what is not allowed is left out.
        given: What the administrator gives; it takes precedence.
        allowed: Keys that a peer may propose besides those of the topology and of the federation.
    """
    good = [each for each in sorted(proposed.items()) if _may_propose(each[0], allowed) and _is_label(*each)]
    theirs = dict(good[:MOST_LABELS])
    return {**theirs, **{key: value for key, value in given.items() if not _is_never(key) and _is_label(key, value)}}


def of_node(found: PeerCluster, defaults: FederationDefaults) -> dict[str, str]:
    """Return the labels of the Node of a PeerCluster, without those that Tenantry sets.

    Args:
        found: The PeerCluster.
        defaults: The section of TenancyDefaults.
    """
    half = found.spec.host
    given = half.labels if isinstance(half, PeerHost) else {}
    return admitted(found.status.labels, given, defaults.peer_labels)


def proposal(labels: Mapping[str, str]) -> str:
    """Return the labels that this cluster proposes for its Node as the text of an annotation."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def proposed(text: str) -> dict[str, str]:
    """Return the labels that a peer proposes, from such a text of any content; {} if it is too long."""
    pairs = (each.partition("=") for each in text.split(",")) if len(text) <= _MOST_TEXT else ()
    good = [(key, value) for key, _, value in pairs if _is_label(key, value)]
    return dict(sorted(good)[:MOST_LABELS])


def selectable(name: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return all labels by which namespaces select a peer.

    Args:
        name: The PeerCluster.
        labels: Those of `of_node`; {} if they are not known.
    """
    return {**labels, PEER: name, VIRTUAL: "true"}


def _may_propose(key: str, allowed: Collection[str]) -> bool:
    return not _is_never(key) and (key.startswith((TOPOLOGY, OWN_LABELS)) or key in allowed)


def _is_never(key: str) -> bool:
    if key.startswith(OWN_LABELS):
        return key in RESERVED_LABELS
    return _NEVER.fullmatch(key) is not None


def _is_label(key: str, value: str) -> bool:
    return _KEY.fullmatch(key) is not None and _VALUE.fullmatch(value) is not None

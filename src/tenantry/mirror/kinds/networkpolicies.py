"""NetworkPolicies. Pure.

All upper namespaces share one lower namespace, so each selector of pods gets the labels of the owner and of the
namespaces that it means; a selector of namespaces becomes the list of those that it selects now.

    upper  namespaceSelector: {team: a}   podSelector: {app: db}
    lower  podSelector: {app: db, <prefix>/owner In [uid], <prefix>/namespace In [shop, stock]}

Source: Kubernetes, "Network Policies"; k8s.io/api/networking/v1.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api.model import Json, Resource
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.names import label_value
from tenantry.mirror.podfields import SELECTOR
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import NotTranslated, fields, integer, items, listed, number_or_text, part, text

RESOURCE = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")

MOST_SELECTORS = 100
"""How many different selectors of namespaces a policy may have: each is compared with all namespaces."""

MOST_NAMES = 10_000
"""How many namespaces the peers of a policy may name together: each is listed in the lower policy."""

_NOWHERE = ""
"""The value that no lower object has as the label of its namespace."""

_ports = listed(fields({"protocol": text, "port": number_or_text, "endPort": integer}))
_peers = listed(
    fields(
        {
            "podSelector": SELECTOR,
            "namespaceSelector": SELECTOR,
            "ipBlock": fields({"cidr": text, "except": listed(text)}),
        }
    )
)
_SPEC = fields(
    {
        "podSelector": SELECTOR,
        "ingress": listed(fields({"from": _peers, "ports": _ports})),
        "egress": listed(fields({"to": _peers, "ports": _ports})),
        "policyTypes": listed(text),
    }
)


def translate(spec: Json, origin: Origin) -> None:
    """Have the selectors of a policy select lower pods.

    Args:
        spec: As the allow-list builds it; it is changed.
        origin: Where it comes from.

    Raises:
        NotTranslated: It selects too many namespaces.
    """
    spec["podSelector"] = confined(spec.get("podSelector", {}), [origin.namespace], origin.profile)
    selected, total = dict[bytes, Sequence[str]](), 0
    for peer in _peers_of(spec):
        if "ipBlock" in peer:
            continue
        selector = peer.pop("namespaceSelector", None)
        names: Sequence[str] | None = [origin.namespace] if selector is None else None
        if selector is not None and any(selector.values()):
            names = _selected(selector, selected, origin)
        total += len(names or ())
        if total > MOST_NAMES:
            raise NotTranslated(
                f"spec must not name more than {MOST_NAMES} namespaces in all peers together: select all namespaces by"
                " an empty namespaceSelector, or divide the policy"
            )
        peer["podSelector"] = confined(peer.get("podSelector", {}), names, origin.profile)


def _selected(selector: Json, selected: dict[bytes, Sequence[str]], origin: Origin) -> Sequence[str]:
    """Return the namespaces that a selector selects; equal selectors are evaluated once."""
    key = msgspec.json.encode(selector)
    if key not in selected:
        if len(selected) >= MOST_SELECTORS:
            raise NotTranslated(
                f"spec must not have more than {MOST_SELECTORS} different namespaceSelectors: divide it"
            )
        selected[key] = origin.namespaces(selector)
    return selected[key]


def confined(selector: Json, namespaces: Sequence[str] | None, profile: Profile) -> Json:
    """Return a selector that selects only lower pods of some upper namespaces.

    Args:
        selector: The upper selector; {} for all pods.
        namespaces: The upper namespaces; None for all.
        profile: The configuration.
    """
    own = [{"key": profile.mark("owner"), "operator": "In", "values": [profile.owner_uid]}]
    if namespaces is not None:
        # A selection of no namespaces must not become one of all.
        values = sorted({label_value(name) for name in namespaces}) or [_NOWHERE]
        own.append({"key": profile.mark("namespace"), "operator": "In", "values": values})
    return {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), *own]}


def selects_namespaces(upper: Json) -> bool:
    """Return whether a policy selects namespaces by their labels."""
    return any(any(part(peer, "namespaceSelector").values()) for peer in _peers_of(part(upper, "spec")))


def _peers_of(spec: Json) -> list[Json]:
    """Return the peers of all rules of a spec, translated or not."""
    found: list[Json] = []
    for direction, field in (("ingress", "from"), ("egress", "to")):
        for rule in items(spec, direction):
            found += items(rule, field)
    return found


KIND = MirroredKind(resource=RESOURCE, spec=_SPEC, translate=translate, selects_namespaces=selects_namespaces)

"""NetworkPolicies. Pure.

All upper namespaces share one lower namespace, so each selector of pods gets the labels of the owner and of the
namespaces that it means; a selector of namespaces becomes the list of those that it selects now.

    upper  namespaceSelector: {team: a}   podSelector: {app: db}
    lower  podSelector: {app: db, <prefix>/owner In [uid], <prefix>/namespace In [shop, stock]}

Source: Kubernetes, "Network Policies"; k8s.io/api/networking/v1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenantry.api.model import Json, Resource
from tenantry.mirror.kinds.kind import MirroredKind, Origin
from tenantry.mirror.names import label_value
from tenantry.mirror.podfields import SELECTOR
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import NotTranslated, fields, integer, items, listed, number_or_text, part, text

RESOURCE = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")

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
    total = 0
    for peer in _peers_of(spec):
        if "ipBlock" in peer:
            continue
        selector = peer.pop("namespaceSelector", None)
        names: Sequence[str] | None = [origin.namespace] if selector is None else None
        if selector is not None and any(selector.values()):
            names = origin.namespaces(selector)
        total += len(names or ())
        if total > MOST_NAMES:
            raise NotTranslated(
                f"spec must not name more than {MOST_NAMES} namespaces in all peers together: select all namespaces by"
                " an empty namespaceSelector, or divide the policy"
            )
        peer["podSelector"] = confined(peer.get("podSelector", {}), names, origin.profile)


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


def selectors(spec: Json) -> Iterator[Json]:
    """Yield the selectors of namespaces by their labels in the spec of a policy, translated or not."""
    for peer in _peers_of(spec):
        selector = part(peer, "namespaceSelector")
        if any(selector.values()):
            yield selector


def _peers_of(spec: Json) -> list[Json]:
    """Return the peers of all rules of a spec, translated or not."""
    found: list[Json] = []
    for direction, field in (("ingress", "from"), ("egress", "to")):
        for rule in items(spec, direction):
            found += items(rule, field)
    return found


KIND = MirroredKind(resource=RESOURCE, spec=_SPEC, translate=translate, selectors=selectors)

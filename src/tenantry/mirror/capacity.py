"""What upper nodes have left for pods: as much as the lower nodes, and not more than all pods may still take. Pure.

    lower node: cpu 8      pods may still take: cpu 1      own pods on it: cpu 500m      upper node: cpu 1500m
                memory 16Gi                     no limit                  memory 1Gi                memory 16Gi

What the own pods on a node have counts as theirs, because tools subtract it from what a node has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import Json
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.shapes import part
from tenantry.world import quantity
from tenantry.world.podrequests import PodSpecRequests

PODS = "pods"
"""The resource that counts pods."""

_ENDED = frozenset({"Succeeded", "Failed"})
_OURS = re.compile(r"node-[0-9a-f]{12}")
_MOST = 64
"""How many resources of a node are compared; no node has more."""


class _PlacedSpec(PodSpecRequests, frozen=True, rename="camel", gc=False):
    node_name: str = ""


_spec = msgspec.json.Decoder(_PlacedSpec)


def used(pods: Iterable[CachedPod], resources: Iterable[str]) -> dict[str, dict[str, Fraction]]:
    """Return what pods request, by the upper names of their nodes and by resource.

    Args:
        pods: Upper pods; those that have ended, or are not kept whole, do not count.
        resources: The resources.
    """
    found: dict[str, dict[str, Fraction]] = {}
    wanted = list(resources)
    for pod in pods:
        if not pod.is_whole:
            continue
        try:
            spec = _spec.decode(pod.specification)
            if not spec.node_name or pod.status.get("phase") in _ENDED:
                continue
            amounts = {each: Fraction(1) if each == PODS else spec.requested(each) for each in wanted}
        except (msgspec.MsgspecError, InputError):
            continue  # of a form that its API server knows, and this one does not
        node = found.setdefault(spec.node_name, {})
        for resource, amount in amounts.items():
            node[resource] = node.get(resource, Fraction()) + amount
    return found


def allocatable(lower: Mapping[str, str], left: Mapping[str, Fraction], own: Mapping[str, Fraction]) -> dict[str, str]:
    """Return what an upper node has.

    Args:
        lower: What the lower node has.
        left: What all pods together may still take, by resource; others have no limit. It may be less than nothing.
        own: What the own pods on it take.
    """
    found: dict[str, str] = {}
    for resource, text in lower.items():
        most = max(left[resource], Fraction()) + own.get(resource, Fraction()) if resource in left else None
        if most is None or quantity.parse(text) <= most:
            found[resource] = text
        else:
            found[resource] = quantity.write(most, binary=text.endswith("i"))
    return found


def digest(found: Mapping[str, object]) -> str:
    """Return what equal amounts have in common, however they are written; "" if they are no amounts."""
    if len(found) > _MOST:
        return ""
    try:
        amounts = sorted((resource, str(quantity.parse(str(value)[:_MOST]))) for resource, value in found.items())
    except InputError:
        return ""
    return hashlib.sha256(repr(amounts).encode()).hexdigest()[:16]


def seen(node: Json) -> str:
    """Return the digest of what an upper Node has; "" for one that no mirror has made."""
    name = str(part(node, "metadata").get("name", ""))
    return digest(part(part(node, "status"), "allocatable")) if _OURS.fullmatch(name) else ""

"""Another address for a Service that is stored. Pure.

A restore brings a Service back with the address that it had. The lower API server may have given this address, or one
of its ports, to another Service since. An API server changes the address of a Service only together with its type:

    ClusterIP, address A ─► ExternalName, no address; an annotation has the fields that this type must not have
                         ─► ClusterIP, address B of the lower API server

Source: Kubernetes, k8s.io/kubernetes/pkg/apis/core/validation (ValidateServiceUpdate).
"""

from __future__ import annotations

from typing import cast

import msgspec

from tenantry.api.model import Json
from tenantry.mirror.shapes import items, part

HEADLESS = "None"

MARK = "type-before"
"""The mark of a Service between both steps: the fields that the second one brings back, as JSON."""

NOWHERE = "address-is-being-replaced.invalid"
"""The externalName between both steps, which no DNS server resolves (RFC 6761)."""

_OUTSIDE_TYPE = "ExternalName"

_KEPT = (
    "type",
    "externalName",
    "ipFamilies",
    "ipFamilyPolicy",
    "externalTrafficPolicy",
    "allocateLoadBalancerNodePorts",
    "loadBalancerClass",
    "loadBalancerSourceRanges",
)
"""Fields of the spec that a Service must not have between both steps, and gets again."""

_FREED = ("clusterIP", "clusterIPs", "healthCheckNodePort")
"""Fields that the lower API server chooses; and nodePort of each port."""


def freed(upper: Json) -> Json:
    """Return an upper Service without what the lower API server chooses; a headless one has no address to lose."""
    spec = dict(part(upper, "spec"))
    for field in _FREED:
        if field == "healthCheckNodePort" or not _is_headless(spec):
            spec.pop(field, None)
    if items(spec, "ports"):
        spec["ports"] = _without_node_ports(spec)
    return {**upper, "spec": spec}


def differs(upper: Json, lower: Json) -> bool:
    """Return whether both Services have addresses, and not the same ones.

    Args:
        upper: The spec of the upper Service.
        lower: That of the lower one.
    """
    if _OUTSIDE_TYPE in {upper.get("type"), lower.get("type")}:
        return False
    pairs = zip(_addresses(upper), _addresses(lower), strict=False)
    return any(above != below for above, below in pairs)


def is_replaceable(upper: Json, lower: Json) -> bool:
    """Return whether a lower Service cannot become what an upper one is: one of both is headless.

    Args:
        upper: The spec of the upper Service.
        lower: That of the lower one.
    """
    return differs(upper, lower) and _is_headless(upper) != _is_headless(lower)


def emptied(upper: Json, mark: str) -> Json:
    """Return the merge patch of the first step.

    Args:
        upper: The upper Service.
        mark: The key of the annotation.
    """
    spec = part(upper, "spec")
    kept = {field: spec[field] for field in _KEPT if field in spec}
    patch: Json = {field: None for field in (*_KEPT, *_FREED) if field in spec}
    if any(port.get("nodePort") for port in items(spec, "ports")):
        patch["ports"] = _without_node_ports(spec)
    patch |= {"type": _OUTSIDE_TYPE, "externalName": NOWHERE}
    return {"metadata": {"annotations": {mark: msgspec.json.encode(kept).decode()}}, "spec": patch}


def is_emptied(upper: Json, mark: str) -> bool:
    """Return whether an upper Service is between both steps.

    Args:
        upper: The upper Service.
        mark: The key of the annotation.
    """
    annotations, spec = part(part(upper, "metadata"), "annotations"), part(upper, "spec")
    return mark in annotations and (spec.get("type"), spec.get("externalName")) == (_OUTSIDE_TYPE, NOWHERE)


def filled(upper: Json, mark: str) -> Json:
    """Return the merge patch of the second step; {} for a Service of which nothing was taken.

    Args:
        upper: The upper Service.
        mark: The key of the annotation.
    """
    annotations = part(part(upper, "metadata"), "annotations")
    if mark not in annotations:
        return {}
    patch: Json = {"metadata": {"annotations": {mark: None}}}
    if not is_emptied(upper, mark):
        return patch  # its users have changed the type meanwhile
    try:
        known = msgspec.json.decode(str(annotations[mark]), type=dict[str, object])
    except msgspec.DecodeError:
        known = {}
    spec = {field: known[field] for field in _KEPT if field in known}
    return {**patch, "spec": {"type": "ClusterIP", "externalName": None, **spec}}


def _addresses(spec: Json) -> list[object]:
    first = spec.get("clusterIP")
    found = spec.get("clusterIPs")
    listed = cast("list[object]", found) if isinstance(found, list) else []
    return listed or ([first] if first else [])


def _is_headless(spec: Json) -> bool:
    return spec.get("clusterIP") == HEADLESS


def _without_node_ports(spec: Json) -> list[Json]:
    return [{key: value for key, value in port.items() if key != "nodePort"} for port in items(spec, "ports")]

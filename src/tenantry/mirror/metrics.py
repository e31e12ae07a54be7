"""Metrics of the lower side, as the upper side shows them: pure.

Pods show what the lower side measures of their lower pods, container by container. A node shows the sum of the own
pods on it: the total of the lower node would show what others use there, and when.

    lower  PodMetrics web-5c1b0e0f4d0a92be   containers: [{name: app, usage: {cpu: 3m, memory: 9Mi, other: 1}}]
    upper  PodMetrics web                    containers: [{name: app, usage: {cpu: 3000000n, memory: 9216Ki}}]
           NodeMetrics node-4f1d…            usage: {cpu: 3000000n, memory: 9216Ki}

The lower side's values come from any program that its administrators have installed, so that each is checked.

Source: k8s.io/metrics/pkg/apis/metrics/v1beta1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from tenantry.api.errors import InputError
from tenantry.api.model import Json
from tenantry.mirror.shapes import items, part
from tenantry.world import quantity

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
API_VERSION = f"{GROUP}/{VERSION}"

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:h|m|s|ms|us|ns))+", re.ASCII)
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_NO_WINDOW = "0s"


def _nanocores(value: Fraction) -> str:
    return f"{-(-value * 10**9 // 1)}n"


def _kibibytes(value: Fraction) -> str:
    return f"{-(-value // 1024)}Ki"


_WRITTEN: Mapping[str, Callable[[Fraction], str]] = {"cpu": _nanocores, "memory": _kibibytes}
"""The resources that come up, and how metrics-server writes their values."""


def pod_metrics(upper: Json, lower: Json) -> Json | None:
    """Return the PodMetrics of an upper pod; None if the lower ones have no time.

    Args:
        upper: The Pod.
        lower: The PodMetrics of its lower pod.
    """
    time = lower.get("timestamp")
    if not isinstance(time, str) or not _TIME.fullmatch(time):
        return None
    meta, spec = part(upper, "metadata"), part(upper, "spec")
    names = {each.get("name") for field in _CONTAINERS for each in items(spec, field)}
    found = [
        {"name": each["name"], "usage": usage}
        for each in items(lower, "containers")
        if isinstance(each.get("name"), str) and each["name"] in names and (usage := _usage(each))
    ]
    window = lower.get("window")
    labels = part(meta, "labels")
    return {
        "kind": "PodMetrics",
        "apiVersion": API_VERSION,
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "creationTimestamp": time,
            **({"labels": labels} if labels else {}),
        },
        "timestamp": time,
        "window": window if isinstance(window, str) and _DURATION.fullmatch(window) else _NO_WINDOW,
        "containers": found,
    }


def _usage(container: Json) -> dict[str, str]:
    usage = part(container, "usage")
    found: dict[str, str] = {}
    for resource, written in _WRITTEN.items():
        value = _value(usage.get(resource))
        if value is not None:
            found[resource] = written(value)
    return found


def _value(text: object) -> Fraction | None:
    if not isinstance(text, str):
        return None
    try:
        value = quantity.parse(text)
    except InputError:
        return None
    return value if value >= 0 else None


def node_metrics(name: str, pods: Sequence[Json], now: str) -> Json:
    """Return the NodeMetrics of an upper node.

    Args:
        name: Its name.
        pods: The PodMetrics of the own pods on it, as `pod_metrics` returns them.
        now: The time, as RFC 3339; the node shows it if it has no pods.
    """
    oldest = min(pods, key=lambda each: each["timestamp"], default=None)
    time = oldest["timestamp"] if oldest is not None else now
    usage = {
        resource: written(
            sum(
                (quantity.parse(box["usage"].get(resource, "0")) for each in pods for box in each["containers"]),
                Fraction(),
            )
        )
        for resource, written in _WRITTEN.items()
    }
    return {
        "kind": "NodeMetrics",
        "apiVersion": API_VERSION,
        "metadata": {"name": name, "creationTimestamp": time},
        "timestamp": time,
        "window": oldest["window"] if oldest is not None else _NO_WINDOW,
        "usage": usage,
    }


def listed(kind: str, found: Sequence[Json]) -> Json:
    """Return the list of metrics of a kind."""
    return {"kind": f"{kind}List", "apiVersion": API_VERSION, "metadata": {}, "items": list(found)}

"""What the quota of the namespace of a control plane has left, for its nodes and for its users. The glue.

    host: ResourceQuotas of the namespace change ─► Remainder.left ─► NodeSizes: allocatable of the nodes inside
                                                          └─────────► ConfigMap kube-public/tenantry-quota inside

Only the ResourceQuotas of Tenantry count. Users of the host may have made others, of which no share of the tree shows.

Source: Kubernetes, "Resource Quotas".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec

from tenantry.api import marks
from tenantry.api.kubernetes import ResourceQuota
from tenantry.api.model import Json, object_key
from tenantry.controllers import watched
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed, ObservedQuota
from tenantry.mirror import things
from tenantry.mirror.things import Copy
from tenantry.world import quantity

CONFIG_MAPS = things.COPIED["ConfigMap"]
NAMESPACE, NAME = "kube-public", "tenantry-quota"
_KEY = object_key(NAMESPACE, NAME)

_REQUESTS = "requests."
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
"""The keys of a quota that are called as the resources of a node."""

_COUNTED = {"count/pods": "pods"}
_BINARY = ("memory", "storage")


def remaining(quotas: Iterable[ObservedQuota]) -> dict[str, Fraction]:
    """Return what quotas have left, the least of all for each key; scoped quotas are about some pods only."""
    found: dict[str, Fraction] = {}
    for quota in quotas:
        if quota.is_scoped:
            continue
        # Before it is in force, nothing is used.
        for key, hard in (quota.in_force or quota.hard or {}).items():
            left = quantity.parse(hard) - quantity.parse((quota.used or {}).get(key, "0"))
            found[key] = min(left, found.get(key, left))
    return found


def by_resource(left: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return what is left by resources of nodes; limits bound no node."""
    found: dict[str, Fraction] = {}
    for key, amount in left.items():
        resource = key.removeprefix(_REQUESTS) if key.startswith(_REQUESTS) else _COUNTED.get(key, key)
        if key.startswith(_REQUESTS) or resource in _PLAIN:
            found[resource] = min(amount, found.get(resource, amount))
    return found


def config_map(left: Mapping[str, Fraction]) -> Json:
    """Return the ConfigMap inside; its text is YAML, a line for each key of the quota."""
    lines = (f"{key}: {_written(key, max(left[key], Fraction()))!r}" for key in sorted(left))
    return {
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {marks.MANAGED_BY: marks.MANAGER}},
        "data": {"remaining": "".join(f"{line}\n" for line in lines)},
    }


def _written(key: str, amount: Fraction) -> str:
    return quantity.write(amount, binary=key.endswith(_BINARY))


class Remainder:
    """What the quota of one namespace has left; see `CapacityBounds`.

    Args:
        namespace: The namespace.
        home: The host.
        upper: The control plane.
        decode: The form of the sources of copies, so that they share a cache.
    """

    def __init__(self, namespace: str, home: Cluster, upper: Cluster, decode: Callable[[msgspec.Raw], Copy]) -> None:
        self._namespace = namespace
        self._home = home
        self._upper = upper
        self._decode = decode
        self._shown: Json | None = None
        self._version = 0

    def watches(self, keys: Callable[[], Iterable[str]]) -> Sequence[Watch]:
        """See `CapacityBounds`."""

        def of_quota(change: Change[Observed]) -> Iterable[str]:
            found = change.after or change.before
            return keys() if found is not None and found.key.startswith(f"{self._namespace}/") else ()

        def of_map(change: Change[Copy]) -> Iterable[str]:
            found = change.after or change.before
            if found is None or found.key != _KEY or (change.after is not None and found.version == self._version):
                return ()
            # Users have changed or deleted it.
            self._shown = None
            return keys()

        quotas = msgspec.structs.replace(watched.watch(ResourceQuota.resource, of_quota), cluster=self._home)
        return [quotas, Watch(resource=CONFIG_MAPS, decode=self._decode, keys=of_map)]

    async def left(self) -> Mapping[str, Fraction]:
        """See `CapacityBounds`; the users of the control plane see it, too."""
        cache: Cache[ObservedQuota] = self._home.cache(ResourceQuota.resource)
        found = remaining(cache.by_index(BY_NAMESPACE, self._namespace))
        shown = config_map(found)
        if shown != self._shown:
            data = await self._upper.writer.send(request.apply(CONFIG_MAPS, shown))
            self._shown, self._version = shown, things.headed(msgspec.Raw(data)).version
        return by_resource(found)

"""What controllers of Kubernetes could not create in a tenant's namespaces, by what refused it, from their Events.

    Event FailedCreate ─► Refusal ─► cache ─► gather, at each scrape

A refused request of a person leaves no Event: only the API server counts it, for each policy. Owners may write Events
in their namespaces, so a tenant can make its own numbers wrong, and none of another tenant. How many Events are kept of
a namespace, and which values the labels can have, does not depend on what an Event says.

Source: Kubernetes, "Event v1 core" and "Debug Pods"; controllers name the answer of the API server in the message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from tenantry.api.model import object_key
from tenantry.controllers.installation.shipment import Shipment
from tenantry.controllers.watched import BY_NAMESPACE
from tenantry.engine.cache import Cache
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror.podevents import EVENTS
from tenantry.policy.catalog import CHECKS
from tenantry.policy.explain.refusal import FORBIDDEN, INVALID, Cause, Obstacle, of_refusal, told_by

FAILED_CREATE = {"fieldSelector": "reason=FailedCreate"}
"""ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs report their refused objects with this reason."""

MOST_OF_NAMESPACE = 200
"""So many Events of a namespace are kept."""

_MOST_COUNT = 1_000_000
_MOST_TEXT = 2048
_RULES = frozenset(check.rule for check in CHECKS)


class _Meta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str
    namespace: str = ""
    resource_version: str = "0"


class _Series(msgspec.Struct, frozen=True, gc=False):
    count: int = 0


class _Event(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta
    message: str = ""
    count: int = 0
    series: _Series | None = None


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """An Event about what could not be created.

    Args:
        key: `namespace/name` of the Event.
        version: Its resourceVersion.
        namespace: Its namespace.
        causes: What refused it: kind of obstacle, and the path of the rule or the name of the policy.
        count: How often.
    """

    key: str
    version: int
    namespace: str
    causes: tuple[tuple[str, str], ...]
    count: int


_decoder = msgspec.json.Decoder(_Event)


def read(data: msgspec.Raw, policies: Collection[str]) -> Refusal:
    """Return what an Event says.

    Args:
        data: The Event as JSON.
        policies: The names of the installed admission policies; others get no name.
    """
    found = _decoder.decode(data)
    meta, series = found.metadata, found.series or _Series()
    return Refusal(
        key=object_key(meta.namespace, meta.name),
        version=int(meta.resource_version),
        namespace=meta.namespace,
        causes=causes(found.message[:_MOST_TEXT], policies),
        count=min(max(found.count, series.count, 1), _MOST_COUNT),
    )


def causes(message: str, policies: Collection[str]) -> tuple[tuple[str, str], ...]:
    """Return what a message names: the kind of each obstacle, and its rule or policy, "" for what is not known.

    Args:
        message: As in `Error creating: pods "web-" is forbidden: exceeded quota: …`.
        policies: See `read`.
    """
    status = FORBIDDEN if " is forbidden: " in message else INVALID if " is invalid: " in message else 0
    named = {(each.by.value, _name(each, policies)) for each in told_by(of_refusal(status, message))}
    return tuple(sorted(named))


def _name(cause: Cause, policies: Collection[str]) -> str:
    if cause.by is Obstacle.RULE:
        return cause.rule if cause.rule in _RULES else ""
    return cause.source if cause.source in policies else ""


class RefusalController:
    """Keeps the Events; no object is reconciled.

    Args:
        cluster: The home cluster.
        shipment: What is installed; None if that is not known, so that no refusal names a policy.
    """

    name = "refusals"
    kind = Refusal

    def __init__(self, cluster: Cluster, shipment: Shipment | None) -> None:
        self._cluster = cluster
        objects = shipment.objects if shipment is not None else ()
        self._policies = {each.name for each in objects if each.resource.kind == "ValidatingAdmissionPolicy"}

    def watches(self) -> Sequence[Watch]:
        """Return the watch of the Events; metrics keep no work waiting."""
        return [
            Watch(
                resource=EVENTS,
                decode=self._kept,
                keys=lambda _: (),
                selectors=FAILED_CREATE,
                indexes={BY_NAMESPACE: _namespace_of},
                awaited=False,
            )
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing: no change has a key."""

    def _kept(self, data: msgspec.Raw) -> Refusal | None:
        """Return an Event; None for a new one of a namespace that has enough of them."""
        found = read(data, self._policies)
        cache: Cache[Refusal] = self._cluster.cache(EVENTS)
        is_known = cache.get(found.key) is not None
        return found if is_known or cache.count(BY_NAMESPACE, found.namespace) < MOST_OF_NAMESPACE else None


def _namespace_of(found: Refusal) -> list[str]:
    return [found.namespace]

"""Keeps the register of the hosts of Ingresses, Gateways and routes, and reports clashes: the glue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from tenantry.api import reasons
from tenantry.api.hostregister import HOSTS_MARK
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import (
    KIND,
    KIND_CORE,
    PARENT,
    SUBNAMESPACE,
    TENANT,
)
from tenantry.api.model import ObjectMeta, object_key
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.hosts import desired
from tenantry.controllers.hosts.clashes import REPORTED, Clashes, summary
from tenantry.controllers.hosts.gather import (
    GATEWAY_KINDS,
    INGRESSES,
    KINDS,
    HostObject,
    gather,
    observe,
    zone_of,
)
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.conditions import find
from tenantry.engine.events import EventKind, NamedObject
from tenantry.engine.observed import Observed
from tenantry.world.hosts import HostClash, HostUse

ALL = "hosts"
"""The one key: all hosts are compared together, because wildcards overlap with others."""

RECHECK_SECONDS = 1.0
"""When to look again at an object whose namespace the cache has not seen yet."""

REST = 9
"""How many times as long as a comparison takes the next one waits: a flood of Ingresses costs a tenth of a CPU."""

log = logging.getLogger(__name__)


class HostController:
    """Reconciles the register; the key is always `ALL`.

    Args:
        clashes: Shared with the controllers that write the statuses of tenants and Subnamespaces.
    """

    name = "hosts"
    kind = Clashes

    def __init__(self, clashes: Clashes) -> None:
        self._clashes = clashes
        self._said: dict[tuple[str, bool], frozenset[str]] = {}
        self._not_before = 0.0

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            watched.watch(PolicyParameters.resource, _registered),
            watched.watch(Namespace.resource, _moved),
            watched.tenants(lambda _: ()),
            watched.subnamespaces(lambda _: ()),
            Watch(resource=INGRESSES, decode=observe, keys=_changed),
            # The Gateway API is optional: its CRDs may be installed later.
            *(Watch(resource=each, decode=observe, keys=_changed, optional=True) for each in GATEWAY_KINDS),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Bring the register up to date with the objects; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        began = cluster.clock.monotonic()
        # The time since the last comparison bounds the CPU: all hosts are compared, however few have changed.
        if began < self._not_before:
            return self._not_before - began
        inputs = gather(cluster)
        decision = desired.plan(inputs, cluster.writer.equivalent)
        if decision.unregistered:
            extra = {"hosts": decision.unregistered}
            log.warning("the register of hosts is full: other tenants may use these, too", extra=extra)
        now = cluster.clock.monotonic()
        self._not_before = now + REST * (now - began)
        outcome = await cluster.writer.apply(decision.plan)
        if outcome.error is not None:
            raise outcome.error
        # Reported after the register is written: policies refuse further clashes from then on.
        self._say(cluster, decision.clashes)
        return None if inputs.is_whole else RECHECK_SECONDS

    def _say(self, cluster: Cluster, clashes: tuple[HostClash, ...]) -> None:
        """Write one event for each object with a contested host, and reconcile the owner of its namespace."""
        by_object: dict[tuple[str, bool], list[HostClash]] = {}
        for clash in clashes:
            by_object.setdefault((clash.use.uid, clash.keeps), []).append(clash)
        said = {key: frozenset(clash.host for clash in found) for key, found in by_object.items()}
        for key, found in by_object.items():
            # An object that keeps its clash gets no second event, also when it is changed otherwise.
            if said[key] - self._said.get(key, frozenset()):
                reason = reasons.HOST_CONTESTED if found[0].keeps else reasons.HOST_TAKEN
                cluster.recorder.say(_about(found[0].use), EventKind.WARNING, reason, summary(found))
        self._said = said
        was_known = self._clashes.is_known
        namespaces: Cache[Observed] = cluster.cache(Namespace.resource)
        for name in self._clashes.set(clashes):
            namespace = namespaces.get(name)
            if namespace is not None:
                _wake_owner(cluster, namespace)
        # Only once: afterwards `set` returns every namespace whose clashes change.
        if not was_known:
            _wake_reported(cluster)


def _wake_owner(cluster: Cluster, namespace: Observed) -> None:
    """Reconcile the Tenant or Subnamespace of a namespace. Parents do not see the hosts of their Subtenants."""
    labels = namespace.labels
    if labels.get(KIND) == KIND_CORE:
        cluster.wake(Tenant, labels.get(TENANT, ""))
    elif SUBNAMESPACE in labels:
        cluster.wake(Subnamespace, object_key(labels.get(PARENT, ""), labels[SUBNAMESPACE]))


def _wake_reported(cluster: Cluster) -> None:
    """Reconcile every object that reports contested hosts: the reason may have ended while no operator ran."""
    tenants: Cache[Tenant] = cluster.cache(Tenant.resource)
    subnamespaces: Cache[Subnamespace] = cluster.cache(Subnamespace.resource)
    for each in (*tenants, *subnamespaces):
        if any(find(each.status.conditions, type_) is not None for type_ in REPORTED):
            cluster.wake(type(each), each.key)


def _about(use: HostUse) -> NamedObject:
    """Return the object of an event."""
    return NamedObject(KINDS[use.kind], ObjectMeta(name=use.name, namespace=use.namespace, uid=use.uid))


def _changed(change: Change[HostObject]) -> Iterable[str]:
    before, after = change.before, change.after
    said = [(each.hosts, each.offered, each.uid) if each is not None else None for each in (before, after)]
    has_any = any(each is not None and each.hosts for each in (before, after))
    return [ALL] if has_any and said[0] != said[1] else ()


def _moved(change: Change[Observed]) -> Iterable[str]:
    """Return the key if a namespace has another zone now: the hosts in it had another owner, or none."""
    before, after = change.before, change.after
    # Created and deleted namespaces need no comparison: their objects cause one.
    is_same = before is None or after is None or zone_of(before) == zone_of(after)
    return () if is_same else [ALL]


def _registered(change: Change[Any]) -> Iterable[str]:
    found: Observed | None = change.after or change.before
    return [ALL] if found is not None and found.labels.get(OWN_MARK) == HOSTS_MARK else ()

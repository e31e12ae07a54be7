"""Keeps in HostRegisters whose the hosts of Ingresses, Gateways and routes are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from tenantry.api.hostregister import HostRegister
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import MANAGED_BY, MANAGER, TENANT_UID
from tenantry.api.model import ObjectMeta, Resource, object_key
from tenantry.controllers import watched
from tenantry.engine.cache import Cache, Change
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Child, plan
from tenantry.engine.runtime import Engine, Watch
from tenantry.policy.hostnames import EXPERIMENTAL, GATEWAY, NETWORKING, hosts_of
from tenantry.world import hosts
from tenantry.world.hosts import PARTS, Use

BY_PART = "part"
RECHECK_SECONDS = 1.0
"""When to look again at an object whose namespace the cache has not seen yet."""

INGRESSES = Resource(NETWORKING, "v1", "ingresses", "Ingress")
GATEWAY_KINDS = (
    Resource(GATEWAY, "v1", "gateways", "Gateway"),
    Resource(GATEWAY, "v1", "httproutes", "HTTPRoute"),
    Resource(GATEWAY, "v1", "grpcroutes", "GRPCRoute"),
    Resource(GATEWAY, "v1", "tlsroutes", "TLSRoute"),
    Resource(GATEWAY, "v1", "listenersets", "ListenerSet"),
    Resource(EXPERIMENTAL, "v1alpha1", "xlistenersets", "XListenerSet"),
)


class Hosted(msgspec.Struct, frozen=True, gc=False):
    """An object that has hosts, as it was last seen.

    Args:
        key: `namespace/name`.
        namespace: Of the object.
        version: The resourceVersion.
        uid: Of the object.
        created: As Kubernetes writes times.
        hosts: Normal ones.
    """

    key: str
    namespace: str
    version: int
    uid: str
    created: str
    hosts: tuple[str, ...]


_json = msgspec.json.Decoder(dict[str, Any])


def observe(raw: msgspec.Raw) -> Hosted:
    """Return what the cache keeps of an object."""
    value = _json.decode(raw)
    meta = value["metadata"]
    return Hosted(
        key=object_key(meta["namespace"], meta["name"]),
        namespace=meta["namespace"],
        version=int(meta["resourceVersion"]),
        uid=meta["uid"],
        created=meta["creationTimestamp"],
        hosts=hosts.normal(hosts_of(value)),
    )


class HostController:
    """Reconciles registers; the key is the name of one."""

    name = "hosts"

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            watched.watch(HostRegister.resource, watched.own_key),
            watched.watch(Namespace.resource, _moved),
            _watch(INGRESSES),
            *(_watch(resource, optional=True) for resource in GATEWAY_KINDS),
        ]

    async def reconcile(self, engine: Engine, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one register to what the objects say.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        if key not in PARTS:
            engine.forget(self.name, key)
            return None
        uses, is_whole = _uses(engine, key)
        registers: Cache[Observed] = engine.cache(HostRegister.resource)
        spec = hosts.register(key, uses)
        if not uses and registers.get(key) is None:
            return None
        metadata = ObjectMeta(name=key, labels={MANAGED_BY: MANAGER})
        wanted = HostRegister(metadata=metadata, spec=spec)

        def lookup(resource: Resource, name: str) -> Observed | None:
            return registers.get(name) if resource == HostRegister.resource else None

        applier = engine.applier
        outcome = await applier.run(plan([Child(object=wanted, wave=0)], lookup, equivalent=applier.equivalent))
        if outcome.error is not None:
            raise outcome.error
        return None if is_whole else RECHECK_SECONDS


def _uses(engine: Engine, part: str) -> tuple[list[Use], bool]:
    """Return who uses the hosts of one register, and whether the namespaces of all of them are known."""
    namespaces: Cache[Observed] = engine.cache(Namespace.resource)
    uses: list[Use] = []
    is_whole = True
    for resource in engine.observed_caches((INGRESSES, *GATEWAY_KINDS)):
        cache: Cache[Hosted] = engine.cache(resource)
        for each in cache.by_index(BY_PART, part):
            namespace = namespaces.get(each.namespace)
            is_whole = is_whole and namespace is not None
            if namespace is not None:
                tenant = namespace.labels.get(TENANT_UID, "")
                uses.append(Use(each.created, each.uid, each.namespace, tenant, each.hosts))
    return uses, is_whole


def _watch(resource: Resource, *, optional: bool = False) -> Watch:
    indexes: dict[str, Callable[[Any], Iterable[str]]] = {BY_PART: _parts}
    return Watch(resource=resource, decode=observe, keys=_changed, indexes=indexes, optional=optional)


def _parts(found: Hosted) -> set[str]:
    return {hosts.part_of(host) for host in found.hosts}


def _changed(change: Change[Hosted]) -> Iterable[str]:
    before, after = change.before, change.after
    if before is not None and after is not None and before.hosts == after.hosts and before.uid == after.uid:
        return ()
    return {part for each in (before, after) if each is not None for part in _parts(each)}


def _moved(change: Change[Observed]) -> Iterable[str]:
    """Return all registers where a namespace has become a tenant's: what is in it was nobody's, or another's."""
    before, after = change.before, change.after
    is_same = before is None or after is None or before.labels.get(TENANT_UID) == after.labels.get(TENANT_UID)
    return () if is_same else PARTS

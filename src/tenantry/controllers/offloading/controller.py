"""Keeps NamespaceMaps and the status of NamespaceOffloadings: the glue.

    NamespaceOffloading, Tenant, PeerCluster ─► MapController ─► NamespaceMap.spec ─► the link to the peer
    NamespaceMap.status ─► OffloadingController ─► NamespaceOffloading.status

A namespace stays in the map while pods of it are bound to the peer's Node: they are evicted first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tenantry.api.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
)
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import MANAGED_BY, MANAGER, TENANT
from tenantry.api.model import Json, ObjectMeta, OwnerReference, object_key
from tenantry.api.offloading import (
    FINALIZER,
    OFFLOADING,
    DesiredNamespace,
    MappedNamespace,
    MapPhase,
    NamespaceMap,
    NamespaceMapSpec,
    NamespaceOffloading,
)
from tenantry.api.peercluster import PREFIX, PeerCluster, PeerHost, node_name
from tenantry.api.tenant import Tenant
from tenantry.controllers import watched
from tenantry.controllers.offloading import desired
from tenantry.controllers.offloading.desired import OffloadingInputs
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.observed import Observed
from tenantry.engine.plan import merge_patch
from tenantry.engine.request import ApiRequest
from tenantry.mirror.things import PODS

log = logging.getLogger(__name__)

EVICTION_SECONDS = 2.0
"""How often the pods of a namespace that leaves a peer are looked at: their budgets may allow the next eviction."""

SENT = f"{PREFIX}/Mirrored"
"""The condition of a pod that has, or had, a pod at the peer: see `Profile.condition`."""

PATIENCE_SECONDS = 60.0
"""After which pods are deleted that disruption budgets keep: a tenant must not keep a peer by a budget of its own."""

BEHIND_SECONDS = 1.0
"""When to look again for a namespace that the watch has not reported yet."""


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()


class _Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    status: _Status = _Status()

    @property
    def is_sent(self) -> bool:
        """Return whether it has, or had, a pod at the peer, and has not ended."""
        is_recorded = any((each.type, each.status) == (SENT, "True") for each in self.status.conditions)
        return is_recorded and self.status.phase not in {"Succeeded", "Failed"}


class MapController:
    """Keeps the NamespaceMap of each peer; the key is the name of the PeerCluster."""

    name = "namespacemap"
    kind = NamespaceMap

    def __init__(self) -> None:
        # By peer: the namespaces that have named it.
        self._named: dict[str, set[str]] = {}
        # By peer and namespace that leaves it: since when, of the monotonic clock.
        self._since: dict[tuple[str, str], float] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            _maps(watched.own_key),
            _peers(watched.own_key),
            _offloadings(_named),
            watched.tenants(_allowed),
            watched.watch(Namespace.resource, self._of_namespace),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one NamespaceMap up to date; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        peer: PeerCluster | None = cluster.cache(PeerCluster.resource).get(key)
        found: NamespaceMap | None = cluster.cache(NamespaceMap.resource).get(key)
        if peer is None:
            cluster.forget(self.name, key)
            return None  # the garbage collector deletes the map
        offloadings: Cache[NamespaceOffloading] = cluster.cache(NamespaceOffloading.resource)
        named = [each for each in offloadings if key in each.spec.peers]
        self._named[key] = {each.metadata.namespace for each in named}
        before = dict(found.spec.desired) if found is not None else {}
        tenants = {
            each.metadata.namespace: tenant for each in named if (tenant := tenant_of(cluster, each)) is not None
        }
        inputs = OffloadingInputs(
            peer=key,
            is_open=isinstance(peer.spec.host, PeerHost) and not peer.metadata.deletion_timestamp,
            offloadings=named,
            tenants=tenants,
            occupied=(),
            before=before,
        )
        leaving = desired.leaving(inputs)
        current = found.status.current if found is not None else {}
        occupied = [each for each in leaving if await self._empty(cluster, each, key, current.get(each))]
        for name in {name for peer_name, name in self._since if peer_name == key}.difference(leaving):
            del self._since[key, name]
        wanted = desired.wanted(msgspec.structs.replace(inputs, occupied=occupied))
        if found is None and wanted:
            await self._create(cluster, peer, wanted)
        elif found is not None and wanted != before:
            # A merge patch keeps what it does not name: an entry that differs is replaced by two.
            spec = merge_patch(msgspec.to_builtins(found.spec), msgspec.to_builtins(NamespaceMapSpec(desired=wanted)))
            about: Json = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
            await cluster.writer.patch(NamespaceMap.resource, "", key, {"metadata": about, "spec": spec})
        missing = any(cluster.lookup(Namespace.resource, each.metadata.namespace) is None for each in named)
        return EVICTION_SECONDS if occupied else BEHIND_SECONDS if missing else None

    async def _empty(self, cluster: Cluster, namespace: str, peer: str, known: MappedNamespace | None) -> bool:
        """Evict the pods of a namespace that run at a peer, and delete them after a while; return whether any are left.

        Pods that have no counterpart there do not count: controllers replace pods that are evicted, and no further ones
        are sent. If the namespace at the peer is gone, nothing runs there, and nothing else ends the pods.
        """
        now = cluster.clock.monotonic()
        is_late = now - self._since.setdefault((peer, namespace), now) >= PATIENCE_SECONDS
        is_gone = known is None or (known.phase in {MapPhase.LOST, MapPhase.REFUSED} and not known.peer_namespace)
        selectors = {"fieldSelector": f"spec.nodeName={node_name(peer)}"}
        pods = [each async for each in cluster.live.items(PODS, _Pod, namespace=namespace, selectors=selectors)]
        running = [each for each in pods if each.is_sent]
        for each in running:
            meta = each.metadata
            if is_gone:
                asked = request.delete(PODS, meta.namespace, meta.name, uid=meta.uid, grace_period_seconds=0)
            elif meta.deletion_timestamp:
                continue
            elif is_late:
                asked = request.delete(PODS, meta.namespace, meta.name, uid=meta.uid)
            else:
                asked = request.evict(PODS, meta.namespace, meta.name, meta.uid)
            await _send(cluster, asked)
        return bool(running)

    def _of_namespace(self, change: Change[Observed]) -> Iterable[str]:
        """Return the peers that a namespace names whose tenant has changed."""
        name = _moved(change)
        return [peer for peer, names in self._named.items() if name in names] if name else ()

    async def _create(self, cluster: Cluster, peer: PeerCluster, wanted: dict[str, DesiredNamespace]) -> None:
        owner = OwnerReference(
            api_version=peer.resource.api_version,
            kind=peer.resource.kind,
            name=peer.metadata.name,
            uid=peer.metadata.uid,
            controller=True,
        )
        meta = ObjectMeta(name=peer.metadata.name, labels={MANAGED_BY: MANAGER}, owner_references=(owner,))
        # The watch is about to report one that is there.
        with suppress(AlreadyExists):
            await cluster.writer.create(NamespaceMap(metadata=meta, spec=NamespaceMapSpec(desired=wanted)))


class OffloadingController:
    """Keeps the status and the finalizer of NamespaceOffloadings; the key is the object's."""

    name = "offloading"
    kind = NamespaceOffloading

    def __init__(self) -> None:
        self._known: set[str] = set()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            _offloadings(watched.own_key),
            _maps(_mapped),
            _peers(lambda _: list(self._known)),
            watched.tenants(lambda change: list(self._known) if _allowed(change) else ()),
            watched.watch(Namespace.resource, _of_namespace),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one status up to date; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        found: NamespaceOffloading | None = cluster.cache(NamespaceOffloading.resource).get(key)
        if found is None:
            self._known.discard(key)
            cluster.forget(self.name, key)
            return None
        self._known.add(key)
        maps = {each.metadata.name: each for each in cluster.cache(NamespaceMap.resource)}
        has_finalizer = FINALIZER in found.metadata.finalizers
        if found.metadata.deletion_timestamp:
            if has_finalizer and not _is_mapped(found.metadata.namespace, maps.values()):
                others = tuple(each for each in found.metadata.finalizers if each != FINALIZER)
                with suppress(NotFound):
                    await cluster.writer.own(request.finalizers(found, others), quiet=True)
                return None
        elif not has_finalizer:
            await cluster.writer.own(request.finalizers(found, (*found.metadata.finalizers, FINALIZER)))
            return None
        open_peers = [
            each.metadata.name
            for each in cluster.cache(PeerCluster.resource)
            if isinstance(each.spec.host, PeerHost) and not each.metadata.deletion_timestamp
        ]
        now = rfc3339(cluster.clock.now())
        status = desired.status(found, tenant_of(cluster, found), maps, open_peers, now)
        if status != found.status:
            await cluster.writer.status(msgspec.structs.replace(found, status=status))
        return None


def tenant_of(cluster: Cluster, found: NamespaceOffloading) -> Tenant | None:
    """Return the Tenant of the namespace of a NamespaceOffloading; None for none, or while a watch is behind."""
    namespace = cluster.lookup(Namespace.resource, found.metadata.namespace)
    name = namespace.labels.get(TENANT, "") if namespace is not None else ""
    return cluster.cache(Tenant.resource).get(name) if name else None


async def _send(cluster: Cluster, asked: ApiRequest) -> None:
    try:
        await cluster.writer.send(asked)
    except (NotFound, Conflict, TooManyRequests):
        return  # a disruption budget may allow no eviction now
    except (Forbidden, Invalid, BadRequest, ServerError) as error:
        # Two budgets that select one pod, for example: pods of one tenant must not keep others from the peer.
        log.warning("a pod that leaves a peer is not evicted", extra={"pod": asked.name, "error": str(error)})


def _is_mapped(namespace: str, maps: Iterable[NamespaceMap]) -> bool:
    return any(namespace in each.spec.desired or namespace in each.status.current for each in maps)


def _maps(keys: Callable[[Change[Any]], Iterable[str]]) -> Watch:
    return Watch(resource=NamespaceMap.resource, decode=watched.decoder(NamespaceMap), keys=keys)


def _peers(keys: Callable[[Change[Any]], Iterable[str]]) -> Watch:
    return Watch(resource=PeerCluster.resource, decode=watched.decoder(PeerCluster), keys=keys)


def _offloadings(keys: Callable[[Change[Any]], Iterable[str]]) -> Watch:
    return Watch(resource=NamespaceOffloading.resource, decode=watched.decoder(NamespaceOffloading), keys=keys)


def _moved(change: Change[Observed]) -> str:
    """Return a namespace that belongs to another tenant than before, or to one now; "" for none."""
    before, after = (each.labels.get(TENANT, "") if each is not None else "" for each in (change.before, change.after))
    found = change.after or change.before
    return found.name if found is not None and before != after else ""


def _of_namespace(change: Change[Observed]) -> Iterable[str]:
    name = _moved(change)
    return [object_key(name, OFFLOADING)] if name else ()


def _named(change: Change[NamespaceOffloading]) -> Iterable[str]:
    return {peer for each in (change.before, change.after) if each is not None for peer in each.spec.peers}


def _allowed(change: Change[Tenant]) -> Iterable[str]:
    """Return the peers that a Tenant may use now or might use before, if that has changed."""
    before, after = (
        frozenset(each.spec.isolation.federation.peers) if each is not None else frozenset[str]()
        for each in (change.before, change.after)
    )
    return before | after if before != after else ()


def _mapped(change: Change[NamespaceMap]) -> Iterable[str]:
    """Return the NamespaceOffloadings that a change of a map concerns."""
    before, after = (_entries(each) for each in (change.before, change.after))
    return [object_key(each, OFFLOADING) for each in {*before, *after} if before.get(each) != after.get(each)]


def _entries(found: NamespaceMap | None) -> dict[str, object]:
    if found is None:
        return {}
    names = {*found.spec.desired, *found.status.current}
    return {each: (found.spec.desired.get(each), found.status.current.get(each)) for each in names}

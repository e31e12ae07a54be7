"""Keeps NamespaceMaps, and the status and namespaces of NamespaceOffloadings: the glue.

    NamespaceOffloading, Tenant, labels of peers ─► MapController ─► NamespaceMap.spec ─► the link to the peer
    NamespaceMap.spec ─► OffloadingController ─► marks of the namespace ─► policies on its pods
    NamespaceMap.status ─► OffloadingController ─► NamespaceOffloading.status
    label of a namespace ─► OffloadingController ─► its NamespaceOffloading

A namespace stays in the map while pods of it are bound to the peer's Node: they are evicted first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from tenantry.api import marks, reasons
from tenantry.api.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound, ServerError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import MANAGED_BY, MANAGER, TENANT
from tenantry.api.model import Json, ObjectMeta, OwnerReference, object_key
from tenantry.api.offloading import (
    DEFAULTED,
    FINALIZER,
    OFFLOADING,
    DesiredNamespace,
    MappedNamespace,
    NamespaceMap,
    NamespaceMapSpec,
    NamespaceOffloading,
)
from tenantry.api.peercluster import PeerCluster, node_name
from tenantry.api.tenancydefaults import FederationDefaults, TenancyDefaults
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.controllers import watched
from tenantry.controllers.offloading import desired, gather, givingup, leaving, lostpods, status
from tenantry.controllers.offloading.desired import OffloadingInputs
from tenantry.controllers.offloading.leaving import BoundPod
from tenantry.controllers.quota.verdicts import Verdicts
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked, DirectWrite, merge_patch
from tenantry.mirror.things import PODS
from tenantry.world.shares import remote

log = logging.getLogger(__name__)

FORGET_SECONDS = 5.0
"""How often a NamespaceOffloading that ends without its peer is looked at."""

EVICTION_SECONDS = 2.0
"""How often the pods of a namespace that leaves a peer are looked at: their budgets may allow the next eviction."""

BEHIND_SECONDS = 1.0
"""When to look again for a namespace that the watch has not reported yet."""


class MapController:
    """Keeps the NamespaceMap of each peer; the key is the name of the PeerCluster."""

    name = "namespacemap"
    kind = NamespaceMap

    def __init__(self) -> None:
        # By peer: the labels by which it was selected, {} while it could not be.
        self._labels: dict[str, Mapping[str, str]] = {}
        # The namespaces with NamespaceOffloadings.
        self._namespaces: frozenset[str] = frozenset()
        # By peer and namespace that leaves it: since when, of the monotonic clock.
        self._since: dict[tuple[str, str], float] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            _maps(watched.own_key),
            _peers(watched.own_key),
            _offloadings(self._selected),
            watched.tenants(_allowed),
            watched.defaults(lambda change: list(self._labels) if _is_federation_new(change) else ()),
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
            self._labels.pop(key, None)
            cluster.forget(self.name, key)
            return None  # the garbage collector deletes the map
        labels = gather.selectable(peer, gather.defaults(cluster))
        self._labels[key] = labels or {}
        offloadings: Cache[NamespaceOffloading] = cluster.cache(NamespaceOffloading.resource)
        self._namespaces = frozenset(each.metadata.namespace for each in offloadings)
        chosen = [each for each in offloadings if labels is not None and desired.selects(each, labels)]
        before = dict(found.spec.desired) if found is not None else {}
        inputs = OffloadingInputs(
            peer=key,
            labels=labels,
            offloadings=chosen,
            tenants=gather.tenants(cluster, chosen),
            occupied=(),
            before=before,
        )
        left = desired.leaving(inputs)
        current = found.status.current if found is not None else {}
        occupied = [each for each in left if await self._empty(cluster, each, peer, current.get(each))]
        for name in {name for peer_name, name in self._since if peer_name == key}.difference(left):
            del self._since[key, name]
        wanted = desired.wanted(msgspec.structs.replace(inputs, occupied=occupied))
        if found is None and wanted:
            await self._create(cluster, peer, wanted)
        elif found is not None and wanted != before:
            # A merge patch keeps what it does not name: an entry that differs is replaced by two.
            spec = merge_patch(msgspec.to_builtins(found.spec), msgspec.to_builtins(NamespaceMapSpec(desired=wanted)))
            about: Json = {"uid": found.metadata.uid, "resourceVersion": found.metadata.resource_version}
            await cluster.writer.patch(NamespaceMap.resource, "", key, {"metadata": about, "spec": spec})
        missing = any(cluster.lookup(Namespace.resource, each.metadata.namespace) is None for each in chosen)
        again = EVICTION_SECONDS if occupied else BEHIND_SECONDS if missing else None
        lost = await givingup.go_on(cluster, peer, found) if found is not None else None
        return min((each for each in (again, lost) if each is not None), default=None)

    async def _empty(self, cluster: Cluster, namespace: str, of: PeerCluster, known: MappedNamespace | None) -> bool:
        """Make the pods of a namespace leave a peer; return whether it must wait for any.

        Pods that have no counterpart there leave, too, but do not count: controllers may replace pods that are evicted,
        and no further ones are sent. As long as the namespace is marked with the peer, more pods may come.
        """
        now, peer = cluster.clock.monotonic(), of.metadata.name
        seconds = now - self._since.setdefault((peer, namespace), now)
        if of.ends_at_once:
            seconds = leaving.PATIENCE_SECONDS
        selectors = {"fieldSelector": f"spec.nodeName={node_name(peer)}"}
        pods = [each async for each in cluster.live.items(PODS, BoundPod, namespace=namespace, selectors=selectors)]
        if givingup.forgets(cluster, namespace) and lostpods.is_silent(of, cluster.clock.now()):
            # Recorded already, if the peer is given up, too.
            gone = lostpods.record(None, pods, tenant="", holds=False, most=len(pods))
            for write in lostpods.releases(pods, gone) if gone is not None else ():
                await _send(cluster, write)
            return False
        for write in leaving.departures(pods, known, seconds):
            await _send(cluster, write)
        seen = cluster.lookup(Namespace.resource, namespace)
        is_marked = seen is not None and not seen.deleting and peer in seen.annotations.get(marks.PEERS, "").split(",")
        return is_marked or any(each.is_sent for each in pods)

    def _selected(self, change: Change[NamespaceOffloading]) -> Iterable[str]:
        """Return the peers that a NamespaceOffloading selects, or selected before."""
        both = [each for each in (change.before, change.after) if each is not None]
        return [peer for peer, labels in self._labels.items() if any(desired.selects(each, labels) for each in both)]

    def _of_namespace(self, change: Change[Observed]) -> Iterable[str]:
        """Return all peers if a namespace of a NamespaceOffloading has moved to another tenant."""
        return list(self._labels) if _moved(change) in self._namespaces else ()

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
    """Keeps the status of NamespaceOffloadings, and the marks of their namespaces; the key is the object's.

    Args:
        verdicts: Of the quota controller, on the shares at peers.
    """

    name = "offloading"
    kind = NamespaceOffloading

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self._known: set[str] = set()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            _offloadings(watched.own_key),
            _maps(_mapped),
            _peers(lambda change: list(self._known) if _is_selected_otherwise(change) else ()),
            watched.tenants(lambda change: list(self._known) if _allowed(change) else ()),
            watched.defaults(lambda change: list(self._known) if _is_federation_new(change) else ()),
            watched.watch(Namespace.resource, _of_namespace),
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring one NamespaceOffloading up to date; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        found: NamespaceOffloading | None = cluster.cache(NamespaceOffloading.resource).get(key)
        name = key.rpartition("/")[0]
        namespace = cluster.lookup(Namespace.resource, name)
        tenant = gather.tenant_of(cluster, name)
        known_maps, peers = gather.maps(cluster), gather.peers(cluster)
        # Before the status: a pod that is created once it reports Ready gets the tolerations.
        wished = desired.marked(found, tenant, known_maps, peers, gather.audiences(cluster))
        await self._mark(cluster, namespace, wished)
        is_labelled = namespace is not None and namespace.labels.get(marks.OFFLOAD) == "true" and not namespace.deleting
        if found is None:
            self._known.discard(key)
            if is_labelled and tenant is not None:
                with suppress(AlreadyExists):
                    await cluster.writer.create(desired.default(name, tenant, gather.defaults(cluster)))
            cluster.forget(self.name, key)
            return None
        self._known.add(key)
        if await self._finalize(cluster, found, known_maps):
            return None
        if DEFAULTED in found.metadata.labels and namespace is not None and not is_labelled:
            with suppress(NotFound, Conflict):
                await cluster.writer.delete(found)
            return None
        short, now = self._short(found, peers), rfc3339(cluster.clock.now())
        wanted = status.compute(found, tenant, known_maps, peers, now, short=short)
        if wanted != found.status:
            await cluster.writer.status(msgspec.structs.replace(found, status=wanted))
        # That a peer has been silent for long enough is no event.
        return FORGET_SECONDS if found.metadata.deletion_timestamp and found.spec.forget_unreachable else None

    async def _mark(self, cluster: Cluster, namespace: Observed | None, wished: dict[str, str]) -> None:
        if namespace is None or namespace.deleting:
            return
        patch = desired.marking(namespace.labels, namespace.annotations, wished)
        if patch:
            body: Json = {"metadata": {"uid": namespace.uid, **patch}}
            # Of another uid: its event wakes this key.
            with suppress(NotFound, Conflict):
                await cluster.writer.own(request.patch(Namespace.resource, "", namespace.name, body))

    def _short(self, found: NamespaceOffloading, peers: Iterable[str]) -> dict[str, Blocked]:
        """Return why the tenant does not give the share at a peer, by peer."""
        judged = {peer: self._verdicts.get(remote.uid((found.metadata.namespace, peer))) for peer in peers}
        return {peer: each.blocked for peer, each in judged.items() if each is not None and each.blocked}

    async def _finalize(self, cluster: Cluster, found: NamespaceOffloading, maps: Mapping[str, NamespaceMap]) -> bool:
        """Keep the finalizer until nothing is left at peers; return whether there is nothing else to do."""
        meta = found.metadata
        has_finalizer = FINALIZER in meta.finalizers
        if meta.deletion_timestamp:
            away = givingup.silent(cluster) if found.spec.forget_unreachable else set[str]()
            if not has_finalizer or any(_is_mapped(meta.namespace, maps[each], each in away) for each in maps):
                return False
            left = sorted(each for each in away & maps.keys() if meta.namespace in maps[each].status.current)
            if left:
                note = f"namespace {meta.namespace!r} may be left at {shortened(left)}, with pods that run"
                cluster.recorder.say(found, EventKind.WARNING, reasons.PEER_GIVEN_UP, note)
            others = tuple(each for each in meta.finalizers if each != FINALIZER)
            with suppress(NotFound):
                await cluster.writer.own(request.finalizers(found, others), quiet=True)
            return True
        if not has_finalizer:
            await cluster.writer.own(request.finalizers(found, (*meta.finalizers, FINALIZER)))
        return not has_finalizer


async def _send(cluster: Cluster, write: DirectWrite) -> None:
    try:
        await cluster.writer.send(write.request)
    except write.ignores:
        return
    except (Forbidden, Invalid, BadRequest, ServerError) as error:
        # Two budgets that select one pod, for example: pods of one tenant must not keep others from the peer.
        log.warning("a pod that leaves a peer is not evicted", extra={"pod": write.request.name, "error": str(error)})


def _is_mapped(namespace: str, found: NamespaceMap, is_forgotten: bool) -> bool:  # noqa: FBT001 - of one peer
    """Return whether a namespace is at a peer, or has a share there that is not given back yet."""
    known = () if is_forgotten else (*found.status.current, *found.status.shares)
    return namespace in found.spec.desired or namespace in known


# -- what wakes them ------------------------------------------------------------------------------


def _maps(keys: Callable[[Change[Any]], Iterable[str]]) -> Watch:
    return Watch(resource=NamespaceMap.resource, decode=watched.decoder(NamespaceMap), keys=keys)


def _peers(keys: Callable[[Change[Any]], Iterable[str]]) -> Watch:
    return Watch(resource=PeerCluster.resource, decode=watched.decoder(PeerCluster), keys=keys)


def _offloadings(keys: Callable[[Change[Any]], Iterable[str]]) -> Watch:
    return Watch(resource=NamespaceOffloading.resource, decode=watched.decoder(NamespaceOffloading), keys=keys)


def _is_selected_otherwise(change: Change[PeerCluster]) -> bool:
    """Return whether a change of a PeerCluster may change which namespaces select it."""

    def facts(found: PeerCluster | None) -> object:
        if found is None:
            return None
        status = found.status
        return found.spec.host, status.labels, status.token_audiences, bool(found.metadata.deletion_timestamp)

    return facts(change.before) != facts(change.after)


def _is_federation_new(change: Change[TenancyDefaults]) -> bool:
    before, after = (
        each.spec.federation if each is not None else FederationDefaults() for each in (change.before, change.after)
    )
    return before != after


def _moved(change: Change[Observed]) -> str:
    """Return a namespace that belongs to another tenant than before, or to one now; "" for none."""
    before, after = (each.labels.get(TENANT, "") if each is not None else "" for each in (change.before, change.after))
    found = change.after or change.before
    return found.name if found is not None and before != after else ""


def _of_namespace(change: Change[Observed]) -> Iterable[str]:
    """Return the NamespaceOffloading of a namespace whose tenant, or whose marks of offloading, have changed."""

    def facts(found: Observed | None) -> tuple[str, ...]:
        if found is None:
            return ("",) * 4
        named = [found.labels.get(mark, "") for mark in (TENANT, marks.OFFLOAD, marks.POD_STRATEGY)]
        return (*named, *(found.annotations.get(mark, "") for mark in (marks.PEERS, marks.AUDIENCES)))

    found = change.after or change.before
    is_same = facts(change.before) == facts(change.after)
    return [] if found is None or is_same else [object_key(found.name, OFFLOADING)]


def _allowed(change: Change[Tenant]) -> Iterable[str]:
    """Return the peers that a Tenant may use now or might use before, if that or its quota has changed."""
    both = [change.before, change.after]
    before, after = ((each.spec.isolation.federation.peers, each.spec.quota.hard) if each else None for each in both)
    every = {peer for each in both if each is not None for peer in each.spec.isolation.federation.peers}
    return every if before != after else ()


def _mapped(change: Change[NamespaceMap]) -> Iterable[str]:
    """Return the NamespaceOffloadings that a change of a map concerns."""
    before, after = (_entries(each) for each in (change.before, change.after))
    return [object_key(each, OFFLOADING) for each in {*before, *after} if before.get(each) != after.get(each)]


def _entries(found: NamespaceMap | None) -> dict[str, object]:
    if found is None:
        return {}
    spec, status = found.spec, found.status
    names = {*spec.desired, *status.current, *status.shares}
    return {each: (spec.desired.get(each), status.current.get(each), each in status.shares) for each in names}

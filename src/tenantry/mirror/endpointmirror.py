"""Makes lower pods the endpoints of Services without a selector: a controller of the upper cluster.

upper EndpointSlice, lower pod ─► upper Service ─► label on the lower pods that the slices name     see `endpoints`
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

from tenantry.api.errors import Conflict, NotFound
from tenantry.api.model import ObjectMeta
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind, NamedObject
from tenantry.mirror import cachedpods, endpoints, things
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.endpoints import (
    BY_ADDRESS,
    BY_ENDPOINT,
    BY_LABEL,
    BY_SERVICE,
    SLICES,
    WrittenEndpoints,
    WrittenSlice,
)
from tenantry.mirror.kinds import services
from tenantry.mirror.profile import Profile
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import PODS, Thing
from tenantry.mirror.upperobjects import BoundedObjects, UpperObjects

SERVICES = services.RESOURCE


class EndpointMirror:
    """Labels lower pods; the key is the upper Service's.

    Args:
        profile: The configuration.
        upper: The upper cluster, which the controller is added to.
        lower: The lower side.
        upper_services: The upper Services.
        upper_slices: The upper EndpointSlices that users write.
    """

    name = "endpoints"
    kind = Thing

    def __init__(
        self,
        profile: Profile,
        upper: Cluster,
        lower: LowerSide,
        *,
        upper_services: UpperObjects,
        upper_slices: BoundedObjects[WrittenSlice],
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._services = upper_services
        self._slices = upper_slices
        # By key of a Service: what its last event said.
        self._said: dict[str, str] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        pods = Watch(
            resource=PODS,
            decode=cachedpods.decoder(self._profile.prefix),
            keys=self._of_pod,
            selectors=things.selector(self._profile.prefix),
            indexes={BY_ADDRESS: endpoints.addresses_of, BY_LABEL: endpoints.serving(self._profile.prefix)},
            cluster=self._lower.cluster,
        )
        return [self._services.watch(things.own_key), self._slices.watch(services_of, endpoints.INDEXES), pods]

    def _of_pod(self, change: Change[CachedPod]) -> Iterable[str]:
        """Return the Services that a lower pod is an endpoint of, or was."""
        slices = self._upper.cache_of(SLICES)
        both = [each for each in (change.before, change.after) if each is not None]
        if slices is None or not any(self._is_ours(each) for each in both):
            return ()
        addresses = {address for each in both for address in endpoints.addresses_of(each)}
        found = [slice_ for address in addresses for slice_ in slices.by_index(BY_ENDPOINT, address)]
        return {key for slice_ in found for key in endpoints.service_of(slice_)}

    def _is_ours(self, pod: CachedPod) -> bool:
        return things.is_of(self._profile, pod.key, pod.meta.get("labels"))

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Label the pods of one Service.

        Raises:
            ApiError: The lower side refuses; the queue tries again.
        """
        service: Thing | None = cluster.cache(SERVICES).get(key)
        namespace, _, name = key.partition("/")
        if services.is_api_server(namespace, name):
            return None
        has_written = service is not None and not service.is_deleting and endpoints.is_written(service.spec)
        found = self._written(cluster, key) if has_written else endpoints.NONE
        mark = endpoints.label(self._profile, namespace, name)
        pods: Cache[CachedPod] = self._lower.cluster.cache(PODS)
        wanted = {each.key: each for address in found.addresses for each in self._at(address)}
        now = {each.key: each for each in pods.by_index(BY_LABEL, mark) if self._is_ours(each)}
        full = [each.meta["name"] for each in wanted.values() if each.key not in now and self._is_full(each)]
        for each in now.values():
            if each.key not in wanted:
                await self._label(each, mark, None)
        for each in wanted.values():
            if each.key not in now and not self._is_full(each):
                await self._label(each, mark, "")
        if service is None:
            self._said.pop(key, None)
            cluster.forget(self.name, key)
        else:
            self._report(service, found, is_full=bool(full))
        return None

    def _written(self, cluster: Cluster, key: str) -> WrittenEndpoints:
        return endpoints.written(cluster.cache(SLICES).by_index(BY_SERVICE, key))

    def _at(self, address: str) -> list[CachedPod]:
        """Return the own pod of an address; nothing if another owner's has it, too."""
        found: list[CachedPod] = self._lower.cluster.cache(PODS).by_index(BY_ADDRESS, address)
        return found if all(map(self._is_ours, found)) else []

    def _is_full(self, pod: CachedPod) -> bool:
        return len(list(endpoints.serving(self._profile.prefix)(pod))) >= endpoints.MOST_SERVICES

    async def _label(self, pod: CachedPod, mark: str, value: str | None) -> None:
        namespace, _, name = pod.key.partition("/")
        patch = {"metadata": {"uid": pod.uid, "labels": {mark: value}}}
        # NotFound, Conflict: the pod of this name has gone, and its event wakes this key.
        with suppress(NotFound, Conflict):
            await self._lower.writer.own(request.patch(PODS, namespace, name, patch))

    def _report(self, service: Thing, found: WrittenEndpoints, *, is_full: bool) -> None:
        """Record an event on a Service if some of its endpoints have no effect, once for each cause."""
        others = [address for address in found.addresses if not self._at(address)]
        message = endpoints.foreign(others) if others else found.refused
        if not message and is_full:
            message = f"a pod is an endpoint of at most {endpoints.MOST_SERVICES} Services without a selector"
        if message and self._said.get(service.key) != message:
            meta = service.meta
            about = ObjectMeta(
                name=meta["name"], namespace=meta["namespace"], uid=service.uid, resource_version=str(service.version)
            )
            self._upper.recorder.say(
                NamedObject(SERVICES, about),
                EventKind.WARNING,
                self._lower.reason,
                f"Service {meta['name']!r}: {message}",
            )
        if message:
            self._said[service.key] = message
        else:
            self._said.pop(service.key, None)


def upper_slices(profile: Profile, upper: Cluster) -> BoundedObjects[WrittenSlice]:
    """Return the EndpointSlices that users of an upper side write."""
    return BoundedObjects(SLICES, profile, upper, endpoints.seen, selectors=endpoints.WRITTEN)


def services_of(change: Change[WrittenSlice]) -> Iterable[str]:
    """Return the keys of the Services that a change of an EndpointSlice concerns."""
    return {key for each in (change.before, change.after) if each is not None for key in endpoints.service_of(each)}

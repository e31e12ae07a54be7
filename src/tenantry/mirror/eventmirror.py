"""Brings events of lower pods to the upper side: why a pod waits for a node, or why its image is not pulled.

    lower Event ─► the lower pod's marks ─► the upper pod ─► upper Event, in the words of the upper side

Events of the mirror itself are recorded on the upper side; they do not come by here.
"""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from tenantry.api.errors import AlreadyExists, Forbidden, NotFound
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.tokenbucket import TokenBucket
from tenantry.mirror import podevents, things
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.podevents import EVENTS, OF_PODS, PodEvent
from tenantry.mirror.podnodes import PodNodes
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import PODS

RECENT = dt.timedelta(minutes=10)
"""Older events are not brought up: a mirror that starts would write all of the last hour again."""

POD_BURST = 50
POD_SECONDS = 30.0
"""How many events of one pod go up at once, and in how many seconds one more; what is above is dropped, as client-go's
recorder does (k8s.io/client-go/tools/record, EventSourceObjectSpamFilter)."""

PER_SECOND = 20.0
BURST = 400
"""How many events of all pods go up at once and per second; what is above waits."""

MOST_PER_POD = 10
"""The cache keeps so many lower events for each pod that can be mirrored: users there choose how many there are."""

MOST_WAIT = dt.timedelta(seconds=5)
WAIT_SECONDS = 0.5
"""How often an event that waits looks whether pods are being started."""


class EventMirror:
    """Brings events up; the key is the lower event's.

    Args:
        profile: The configuration.
        upper: The upper cluster, which the controller is added to.
        lower: The lower side.
        upper_nodes: The nodes of the upper side.
        is_busy: Whether events wait, at most `MOST_WAIT`, because pods are more urgent.
    """

    name = "events"
    kind = PodEvent

    def __init__(
        self,
        profile: Profile,
        upper: Cluster,
        lower: LowerSide,
        upper_nodes: PodNodes,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._nodes = upper_nodes
        self._is_busy = is_busy
        self._all = TokenBucket(1 / PER_SECOND, burst=BURST)
        # By uid of an upper pod, the pod of the latest event last.
        self._each: OrderedDict[str, TokenBucket] = OrderedDict()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [
            Watch(
                resource=EVENTS,
                decode=podevents.decoder(computed=self._profile.computed) if self._lower.scope is None else self._kept,
                keys=self._of_event,
                selectors=OF_PODS,
                cluster=self._lower.cluster,
                scope=self._lower.scope,
            )
        ]

    def _kept(self, data: msgspec.Raw) -> PodEvent | None:
        """Return an event of a lower side that no other mirror watches: at most so many of them."""
        found = podevents.decoder(computed=self._profile.computed)(data)
        cache = self._lower.cluster.cache_of(EVENTS)
        if found is None or cache is None or cache.get(found.key) is not None:
            return found
        return found if len(cache) < MOST_PER_POD * self._profile.most_pods else None

    def _of_event(self, change: Change[PodEvent]) -> Iterable[str]:
        found = change.after
        is_here = found is not None and self._profile.is_place(found.pod)
        return [found.key] if found is not None and is_here else ()

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Write one event.

        Raises:
            ApiError: The upper side fails; the queue tries again.
        """
        cluster.forget(self.name, key)
        event: PodEvent | None = self._lower.cluster.cache(EVENTS).get(key)
        if event is not None and self._is_busy() and self._is_recent(event, MOST_WAIT):
            return WAIT_SECONDS
        if event is None or not self._is_recent(event, RECENT):
            return None
        upper = self._upper_of(event)
        if upper is None:
            return None
        now = self._upper.clock.monotonic()
        if self._all.left(now):
            return self._all.left(now)
        if self._may(upper.uid, now):
            self._all.take(now)
            await self._bring_up(event, upper)
        return None

    def _may(self, uid: str, now: float) -> bool:
        """Return whether one more event of an upper pod goes up."""
        bucket = self._each.pop(uid, None) or TokenBucket(POD_SECONDS, burst=POD_BURST)
        self._each[uid] = bucket
        if len(self._each) > self._profile.most_pods:
            self._each.popitem(last=False)
        if bucket.left(now):
            return False
        bucket.take(now)
        return True

    def _upper_of(self, event: PodEvent) -> CachedPod | None:
        """Return the upper pod that a lower event is about; None for none."""
        lower = self._lower_of(event)
        if lower is None or not things.is_of(self._profile, lower.key, lower.meta.get("labels")):
            return None
        if event.pod_uid and event.pod_uid != lower.uid:
            return None
        key = things.key_above(self._profile, lower.key, lower.meta.get("annotations"))
        upper: CachedPod | None = self._upper.cache(PODS).get(key)
        return upper if upper is not None and lower.mark(self._profile, "uid") == upper.uid else None

    def _lower_of(self, event: PodEvent) -> CachedPod | None:
        found: CachedPod | None = self._lower.cluster.cache(PODS).get(event.pod)
        return found

    async def _bring_up(self, event: PodEvent, upper: CachedPod) -> None:
        lower, cluster = self._lower_of(event), self._upper
        words = self._words(event, lower, upper) if lower is not None else []
        wanted = podevents.up(event, upper.meta, words, cluster.clock.now())
        try:
            await cluster.writer.send(request.create_json(EVENTS, wanted))
        except AlreadyExists:
            meta = wanted["metadata"]
            counted = {field: wanted[field] for field in ("count", "lastTimestamp", "message") if field in wanted}
            await cluster.writer.send(request.patch(EVENTS, meta["namespace"], meta["name"], counted))
        except (NotFound, Forbidden):
            return  # the namespace is going

    def _is_recent(self, event: PodEvent, age: dt.timedelta) -> bool:
        last = podevents.time_of(event.last)
        return last is not None and self._upper.clock.now() - last < age

    def _words(self, event: PodEvent, lower: CachedPod, upper: CachedPod) -> list[tuple[str, str]]:
        """Return what the message names of the lower side, and what stands in its place, the longest first."""
        meta = upper.meta
        found = [(lower.key, f"{meta['namespace']}/{meta['name']}"), (lower.meta["name"], meta["name"])]
        # The cache may be behind the event that names the pod's node: any node may be meant.
        nodes = sorted((name for name in self._lower.nodes if name in event.message), key=len, reverse=True)
        found += [(name, self._nodes.name(name)) for name in nodes]
        address = part(lower.object, "status").get("hostIP")
        return [*found, (address, "the node")] if isinstance(address, str) and address else found

"""Brings events of lower pods to the upper side: why a pod waits for a node, or why its image is not pulled.

    lower Event ─► the lower pod's marks ─► the upper pod ─► upper Event, in the words of the upper side

Events of the mirror itself are recorded on the upper side; they do not come by here.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

from tenantry.api.errors import AlreadyExists, Forbidden, NotFound
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import podevents, things
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.podevents import EVENTS, OF_PODS, PodEvent
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import part
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import PODS
from tenantry.mirror.uppernodes import UpperNodes

RECENT = dt.timedelta(minutes=10)
"""Older events are not brought up: a mirror that starts would write all of the last hour again."""


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
        upper_nodes: UpperNodes,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._profile = profile
        self._upper = upper
        self._lower = lower
        self._nodes = upper_nodes
        self._is_busy = is_busy

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        below = self._lower.cluster
        return [Watch(resource=EVENTS, decode=podevents.decode, keys=self._of_event, selectors=OF_PODS, cluster=below)]

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
        if event is not None and self._is_recent(event, RECENT):
            await self._bring_up(event, cluster)
        return None

    async def _bring_up(self, event: PodEvent, cluster: Cluster) -> None:
        lower: CachedPod | None = self._lower.cluster.cache(PODS).get(event.pod)
        if lower is None or not things.is_of(self._profile, lower.key, lower.meta.get("labels")):
            return
        if event.pod_uid and event.pod_uid != lower.uid:
            return
        upper: CachedPod | None = cluster.cache(PODS).get(
            things.upper_key(self._profile, lower.meta.get("annotations"))
        )
        if upper is None or lower.mark(self._profile, "uid") != upper.uid:
            return
        wanted = podevents.up(event, upper.meta, self._words(event, lower, upper))
        try:
            await cluster.writer.send(request.create_json(EVENTS, wanted))
        except AlreadyExists:
            meta = wanted["metadata"]
            counted = {field: wanted[field] for field in ("count", "lastTimestamp", "message") if field in wanted}
            await cluster.writer.send(request.patch(EVENTS, meta["namespace"], meta["name"], counted))
        except (NotFound, Forbidden):
            return  # the namespace is going

    def _is_recent(self, event: PodEvent, age: dt.timedelta) -> bool:
        try:
            last = dt.datetime.fromisoformat(event.last)
        except ValueError:
            return False
        return last.tzinfo is not None and self._upper.clock.now() - last < age

    def _words(self, event: PodEvent, lower: CachedPod, upper: CachedPod) -> list[tuple[str, str]]:
        """Return what the message names of the lower side, and what stands in its place, the longest first."""
        meta = upper.meta
        found = [(lower.key, f"{meta['namespace']}/{meta['name']}"), (lower.meta["name"], meta["name"])]
        # The cache may be behind the event that names the pod's node: any node may be meant.
        nodes = sorted((name for name in self._lower.nodes if name in event.message), key=len, reverse=True)
        found += [(name, self._nodes.name(name)) for name in nodes]
        address = part(lower.object, "status").get("hostIP")
        return [*found, (address, "the node")] if isinstance(address, str) and address else found

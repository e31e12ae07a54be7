"""The pods of an upper side as they are cached: at most so many of them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import cachedpods
from tenantry.mirror.cachedpods import CachedPod, Kept
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import PODS

BY_KEPT = "kept"
"""Upper pods, by how much of them is cached."""


class UpperPods:
    """The pods of one upper side.

    Args:
        profile: The configuration.
        upper: The upper cluster.
    """

    def __init__(self, profile: Profile, upper: Cluster) -> None:
        self._profile = profile
        self._upper = upper

    def watch(
        self,
        keys: Callable[[Change[CachedPod]], Iterable[str]],
        indexes: Mapping[str, Callable[[CachedPod], Iterable[str]]] | None = None,
    ) -> Watch:
        """Return a watch of the upper pods; see `Watch`."""
        own = {BY_KEPT: _kept}
        node = self._profile.node
        # A node may list no other pods (Kubernetes: "Using Node Authorization").
        selectors = {"fieldSelector": f"spec.nodeName={node}"} if node else None
        every = {**own, **(indexes or {})}
        return Watch(resource=PODS, decode=self._decode, keys=keys, selectors=selectors, indexes=every)

    def has_room(self) -> bool:
        """Return whether one more upper pod may be kept whole."""
        cache = self._upper.cache_of(PODS)
        return cache is None or cache.count(BY_KEPT, Kept.WHOLE) < self._profile.most_pods

    def _decode(self, data: msgspec.Raw) -> CachedPod:
        """Return an upper pod: its head alone, if it is one too many."""
        found = cachedpods.decode(data, self._profile.prefix)
        cache = self._upper.cache_of(PODS)
        known = cache.get(found.key) if cache is not None else None
        if (known is not None and known.is_whole) or not found.is_whole or self.has_room():
            return found
        return found.head(self._profile.prefix, Kept.TOO_MANY)


def _kept(pod: CachedPod) -> Iterable[str]:
    return [pod.kept]

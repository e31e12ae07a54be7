"""Which namespaces have their Services at one peer: a controller beside the mirror of Services, which sets its scopes.

NamespaceMap.spec.desired, pairs ─► scope at home: Services of these namespaces go to the peer
                                 ─► scope at the peer: as long as Services of ours are left there

A namespace that does not reflect Services any more leaves the scope at home, as if its Services were deleted. At first,
every pair is in the scope at the peer, because Services may be left from before: a watch of each would cost too much.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tenantry.api.offloading import NamespaceMap
from tenantry.controllers import watched
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.scope import WatchScope
from tenantry.mirror import things
from tenantry.mirror.kinds import services
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import Thing

LEFT_SECONDS = 2.0
"""How often a namespace that reflects nothing is looked at, while it is not listed or Services are left in it."""


class Reflections:
    """The scopes of the Services of one peer; the key is the name of its NamespaceMap.

    Args:
        name: The NamespaceMap.
        home: The home.
        peer: The peer.
        profile: How objects are mirrored there.
        at_home: The namespaces whose Services are mirrored.
        at_peer: The namespaces at the peer in which Services are watched.
    """

    name = "reflections"
    kind = NamespaceMap

    def __init__(
        self, name: str, home: Cluster, peer: Cluster, *, profile: Profile, at_home: WatchScope, at_peer: WatchScope
    ) -> None:
        self._name = name
        self._home = home
        self._peer = peer
        self._profile = profile
        self._at_home = at_home
        self._at_peer = at_peer
        # At the peer: in which nothing is left of namespaces that reflect nothing.
        self._clean: set[str] = set()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        decode = watched.decoder(NamespaceMap)
        return [Watch(resource=NamespaceMap.resource, decode=decode, keys=watched.own_key, cluster=self._home)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Set both scopes; return in how many seconds to look again, None for never."""
        if key != self._name:
            return None
        found: NamespaceMap | None = self._home.cache(NamespaceMap.resource).get(key)
        desired = found.spec.desired if found is not None else {}
        pairs = self._profile.pairs
        reflecting = {
            namespace: there
            for namespace, each in desired.items()
            if each.services and pairs is not None and (there := pairs.lower(namespace))
        }
        places = pairs.lowers if pairs is not None else frozenset[str]()
        self._clean &= places
        self._clean.difference_update(reflecting.values())
        self._clean.update(each for each in places.difference(reflecting.values()) if self._is_clean(each))
        # First the place of the objects that are about to be made.
        self._at_peer.set(places - self._clean)
        self._at_home.set(reflecting)
        return LEFT_SECONDS if self._left(reflecting.values(), places) else None

    def _left(self, reflecting: Collection[str], places: frozenset[str]) -> bool:
        return bool(places.difference(reflecting, self._clean))

    def _is_clean(self, place: str) -> bool:
        """Return whether a namespace at the peer has no Service of ours."""
        if place in self._clean:
            return True
        if place not in self._at_peer or not self._peer.is_listed_in(services.RESOURCE, place):
            return False
        found: Collection[Thing] = list(self._peer.cache(services.RESOURCE))
        own = (each for each in found if things.is_of(self._profile, each.key, each.meta.get("labels")))
        return not any(each.key.partition("/")[0] == place for each in own)

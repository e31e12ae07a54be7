"""Two worlds with a mirror of pods between them that are bound before: names unchanged, namespaces one to one.

    pair = BoundPods()
    pair.put(bound_pod("web"))
    pair.settle()
    assert pair.below_of(PODS, "web")["metadata"]["namespace"] == "shop-below"

The PodMirror, the Copies, the caches and the writers are the operator's own; see `testkit.worldcluster`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta, Resource
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.scope import By, WatchScope
from tenantry.mirror import cachedpods, things
from tenantry.mirror.copies import Copies
from tenantry.mirror.eventmirror import EventMirror
from tenantry.mirror.places import NamespacePairs
from tenantry.mirror.podevents import EVENTS
from tenantry.mirror.podlimits import PodLimits
from tenantry.mirror.podmirror import PodMirror
from tenantry.mirror.podnodes import OneNode
from tenantry.mirror.podroom import PodRoom
from tenantry.mirror.profile import Profile
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import COPIED, PODS, Copy
from tenantry.mirror.upperpods import UpperPods
from testkit.mirroring import copied
from testkit.model import TERMINATING, World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

NODE = "east"
PREFIX = "pair.example"
PAIRS = {"shop": "shop-below", "stock": "stock-below"}
CONDITION = f"{PREFIX}/Mirrored"
ADDRESSES = ("hostIP", "hostIPs", "podIP", "podIPs")
CREATED = "2026-01-01T00:00:00Z"
RUNNING: Json = {
    "phase": "Running",
    "hostIP": "10.0.0.7",
    "hostIPs": [{"ip": "10.0.0.7"}],
    "podIP": "10.1.0.5",
    "podIPs": [{"ip": "10.1.0.5"}],
    "startTime": "2026-01-01T00:00:05Z",
    "conditions": [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:03Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:06Z"},
    ],
    "containerStatuses": [{"name": "c", "ready": True, "started": True, "state": {"running": {}}}],
}


LIMITS = PodLimits()


def profile_of(pairs: NamespacePairs, limits: PodLimits = LIMITS) -> Profile:
    """Return the profile of a mirror of bound pods."""
    return Profile(
        owner_uid="u-upper",
        namespace="",
        prefix=PREFIX,
        pairs=pairs,
        computed=False,
        node=NODE,
        limits=limits,
        hidden=ADDRESSES,
    )


PAIRED = profile_of(NamespacePairs(PAIRS))
"""A profile for tests of functions."""


def bound_pod(name: str = "web", namespace: str = "shop", *, node: str = NODE, **spec: object) -> Json:
    """Return an upper pod that the scheduler has bound, with fields of its spec, in camel case as they are."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": CREATED}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **copied(spec)},
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }


def source(kind: str, name: str, namespace: str = "shop", **content: object) -> Json:
    """Return a ConfigMap or a Secret."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, **content}


class _ScopedCluster(WorldCluster):
    """A cluster whose places are listed as soon as a controller waits for them."""

    async def listed_in(self, resource: Resource, place: str, *, seconds: float = 0.0) -> None:
        """See `Cluster.listed_in`; a place that is not listed at once never is."""
        self.look(resource)
        if not self.is_listed_in(resource, place):
            raise TimeoutError(place)
        await super().listed_in(resource, place, seconds=seconds)


class _LowerPods:
    """Holds the watches of the lower side."""

    name = "below"
    kind = Copy

    def __init__(self, scope: WatchScope | None) -> None:
        self._scope = scope

    def watches(self) -> list[Watch]:
        """Return them."""
        selectors = things.selector(PREFIX)
        decoders: dict[Resource, Callable[[Any], Any]] = dict.fromkeys(COPIED.values(), things.headed)
        decoders[PODS] = cachedpods.decoder(PREFIX)
        return [
            Watch(resource=each, decode=decode, keys=lambda _: (), selectors=selectors, scope=self._scope)
            for each, decode in decoders.items()
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


class BoundPods:
    """Two worlds with a mirror of bound pods between them.

    Args:
        pairs: The pairs of namespaces; `PAIRS`, unless others are given.
        is_scoped: Whether the lower side is watched in the lower namespaces alone.
        room: The quota of the lower side that follows pods; None if none does.

    Attributes:
        upper: The upper world.
        lower: The lower world.
        pairs: The pairs of namespaces; see `pair`.
        limits: Which fields travel from the next `restart` on.
        below_fault: What happens to the next requests to the lower side; see `testkit.runs.FAULTS`.
        sources: The scopes of the sources of copies, by kind.
        is_silent: Whether the lower side has been silent for long.
    """

    def __init__(
        self, pairs: dict[str, str] | None = None, *, is_scoped: bool = True, room: PodRoom | None = None
    ) -> None:
        self.is_scoped = is_scoped
        self.room = room
        self.is_silent = False
        self.upper, self.lower = World(), World()
        self.below_fault = "none"
        self._happened = 0
        for world, namespaces in ((self.upper, (*PAIRS, "kube-system")), (self.lower, PAIRS.values())):
            for namespace in namespaces:
                world.create(Namespace(metadata=ObjectMeta(name=namespace)))
            # A World knows the kinds of its objects. These are on another node, and of another owner.
            for resource in (PODS, EVENTS, *COPIED.values()):
                meta = {"name": "first", "namespace": min(namespaces)}
                made: Json = {"apiVersion": "v1", "kind": resource.kind, "metadata": meta}
                world.put_in(resource, made | ({"spec": {"nodeName": "west"}} if resource is PODS else {}))
        self.limits = LIMITS
        self.pairs = NamespacePairs(PAIRS if pairs is None else pairs)
        self.restart()

    def restart(self) -> None:
        """Start another operator."""
        self.scope = WatchScope(By.NAMESPACE)
        self.scope.set(self.pairs.lowers)
        self.sources = {kind: WatchScope(By.KEY) for kind in COPIED}
        scope = self.scope if self.is_scoped else None
        self.below = _ScopedCluster(self.lower, [_LowerPods(scope)], faults=lambda: self.below_fault)
        self.below.is_synced = True
        self.above = _ScopedCluster(self.upper, [])
        self.profile = profile_of(self.pairs, self.limits)
        self.side = LowerSide(
            cluster=self.below,
            writer=self.below.writer,
            node=_no_node,
            nodes={},
            reason="LowerRefused",
            unfit_reason="NotFit",
            lost_reason="LowerLost",
            token_reason="TokenStays",
            is_silent=lambda: self.is_silent,
            silent_reason="LowerSilent",
            scope=scope,
            room=self.room,
        )
        upper_pods = UpperPods(self.profile, self.above)
        copies = Copies(self.profile, self.above, self.side, upper_pods=upper_pods, sources=self.sources)
        self.mirror = PodMirror(
            self.profile, self.above, self.side, upper_pods=upper_pods, upper_nodes=OneNode(NODE), copies=copies
        )
        events = EventMirror(self.profile, self.above, self.side, OneNode(NODE))
        for controller in (self.mirror, copies, events):
            self.above.lane.controllers[controller.name] = controller
            for watch in controller.watches():
                (watch.cluster or self.above).listen(self.above.lane.listener(controller.name, watch))

    def pair(self, mapping: dict[str, str], closed: Sequence[str] = ()) -> None:
        """Replace the pairs of namespaces, as the program does that decides on them."""
        changed = self.pairs.set(mapping, closed)
        self.scope.set(self.pairs.lowers)
        self.mirror.look_again(changed)

    def settle(self, seconds: float = 0.0) -> None:
        """Let the mirror come to rest."""
        for _ in range(2):
            self.below.look()
            self.above.settle(seconds)

    def put(self, value: Json) -> Json:
        """Create an object of the upper side."""
        return self.upper.put_in(PODS if value["kind"] == "Pod" else COPIED[value["kind"]], copied(value))

    def pod(self, name: str = "web", namespace: str = "shop") -> Json:
        """Return an upper pod."""
        return self.upper.get(PODS, f"{namespace}/{name}")

    def status(self, name: str = "web") -> Json:
        """Return the status of an upper pod."""
        return self.pod(name)["status"]

    def condition(self, type_: str = CONDITION, name: str = "web") -> Json:
        """Return a condition of an upper pod; {} if it has none of the type."""
        none: Json = {}
        return next((each for each in self.status(name)["conditions"] if each["type"] == type_), none)

    def below_of(self, resource: Resource, name: str, namespace: str = "shop-below") -> Json:
        """Return a lower object."""
        return self.lower.get(resource, f"{namespace}/{name}")

    def is_below(self, resource: Resource, name: str, namespace: str = "shop-below") -> bool:
        """Return whether there is a lower object."""
        try:
            self.below_of(resource, name, namespace)
        except NotFound:
            return False
        return True

    def report(self, name: str = "web", **status: object) -> None:
        """Set the status of a lower pod, as its kubelet does."""
        self.lower.patch(PODS, f"shop-below/{name}", {"status": copied(status)})

    def happen(self, name: str = "web", reason: str = "Pulled", **more: object) -> None:
        """Record an event about a lower pod, as its kubelet does."""
        self._happened += 1
        pod = self.below_of(PODS, name)["metadata"]
        about = {"kind": "Pod", **{field: pod[field] for field in ("name", "namespace", "uid")}}
        meta = {"name": f"{name}.{self._happened}", "namespace": pod["namespace"]}
        now = rfc3339(self.above.clock.now())
        value: Json = {"metadata": meta, "involvedObject": about, "reason": reason, "lastTimestamp": now, **more}
        self.lower.put_in(EVENTS, {"apiVersion": "v1", "kind": "Event", **value})

    def events(self, namespace: str = "shop") -> list[Json]:
        """Return the events about upper pods that came from the lower side."""
        found = [each for each in self.upper.list(EVENTS) if "involvedObject" in each]
        return [each for each in found if each["metadata"]["namespace"] == namespace]

    def delete(self, name: str = "web", *, grace: int = 30) -> None:
        """Delete an upper pod as users do: it ends when its node has ended its containers."""
        meta = {"deletionTimestamp": TERMINATING, "deletionGracePeriodSeconds": grace}
        self.upper.patch(PODS, f"shop/{name}", {"metadata": meta})

    def evict_below(self, name: str = "web") -> None:
        """Begin to delete a lower pod, as programs of the lower side do."""
        self.lower.patch(PODS, f"shop-below/{name}", {"metadata": {"deletionTimestamp": TERMINATING}})

    def end_below(self, name: str = "web") -> None:
        """Remove a lower pod, as its kubelet does."""
        self.lower.delete(PODS, f"shop-below/{name}")

    def reasons(self, key: str = "shop/web") -> Sequence[str]:
        """Return the reasons of the events about an upper pod."""
        return [reason for about, _, reason, _ in self.above.said if about == key]


def running() -> BoundPods:
    """Return a pair with a pod that runs."""
    pair = BoundPods()
    pair.put(bound_pod())
    pair.settle()
    pair.report(**RUNNING)
    pair.settle()
    assert pair.status()["phase"] == "Running"
    return pair


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None

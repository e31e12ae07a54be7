"""Two worlds with mirrors of objects between them, and the objects of their users."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenantry.api.errors import NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta, Resource
from tenantry.engine.cluster import Cluster, Watch
from tenantry.mirror import cachedpods, endpoints, things, volumes
from tenantry.mirror.endpointmirror import EndpointMirror, upper_slices
from tenantry.mirror.endpoints import SLICES
from tenantry.mirror.kinds import budgets, claims, networkpolicies, routes, services, volumesnapshots
from tenantry.mirror.kinds.kind import MirroredKind
from tenantry.mirror.kinds.offered import Offered, OfferedPlace, PlaceUse, kind_of
from tenantry.mirror.objectmirror import ObjectMirror
from tenantry.mirror.profile import Profile
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import PODS, Thing
from tenantry.mirror.upperobjects import UpperObjects
from tenantry.mirror.volumemirror import VolumeMirror
from testkit.mirroring import PROFILE
from testkit.mirrorstory import MirrorStory
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

GADGET = kind_of(
    Offered(
        Resource("offered.example.com", "v1", "gadgets", "Gadget"),
        (OfferedPlace("spec.service", PlaceUse.SERVICE), OfferedPlace("spec.everywhere", PlaceUse.OMITTED)),
    ),
    PROFILE,
)
KINDS = (services.KIND, networkpolicies.KIND, budgets.KIND, routes.HTTP_KIND, volumesnapshots.KIND, claims.KIND, GADGET)
WRITTEN = 2
"""The number of a Service without a selector."""


class LowerWatches:
    """Holds the watches of the lower side."""

    name = "below"
    kind = Thing

    def watches(self) -> list[Watch]:
        """Return them."""
        selectors = things.selector(PROFILE.prefix)
        pods = Watch(resource=PODS, decode=cachedpods.decoder(PROFILE.prefix), keys=lambda _: (), selectors=selectors)
        found = [
            Watch(
                resource=each.resource,
                decode=things.whole,
                keys=lambda _: (),
                selectors=selectors,
                optional=each.is_optional,
            )
            for each in KINDS
        ]
        return [pods, *found]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


FOREIGN: Json = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "first"},
    "spec": {"claimRef": {"namespace": "shop", "name": "a", "uid": "u"}},
}
"""A volume of users."""


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


class ObjectStory(MirrorStory):
    """Two worlds with mirrors between them."""

    def __init__(self, faults: Sequence[str] = (), *, profile: Profile = PROFILE) -> None:
        self.profile = profile
        super().__init__(faults)
        self.optional = {each.resource for each in KINDS if each.is_optional}
        for name in ("shop", "stock"):
            self.upper.create(Namespace(metadata=ObjectMeta(name=name, labels={"team": name})))
        self.lower.create(Namespace(metadata=ObjectMeta(name=PROFILE.namespace)))
        for kind in KINDS:
            # A World knows the kinds of its objects; and one of another owner stays as it is.
            meta = {"name": "first", "namespace": PROFILE.namespace, "labels": {"example.dev/owner": "u-other"}}
            self.lower.put_in(kind.resource, {**upper_object(kind, "first", 0), "metadata": meta})
        self.lower.put_in(PODS, pod("first", 9, owner="u-other"))
        self.upper.put_in(volumes.RESOURCE, FOREIGN)
        self.upper.put_in(SLICES, {**written_slice("first", 9), "metadata": {"name": "first", "namespace": "shop"}})
        self.restart()

    def restart(self) -> None:
        """Start another operator."""
        optional = [each.resource for each in KINDS if each.is_optional]
        self.below = WorldCluster(self.lower, [LowerWatches()], faults=self.fault, optional=optional)
        self.below.is_synced = True
        self.watched = (self.below,)
        self.above = WorldCluster(self.upper, [], faults=self.fault)
        self.side = LowerSide(cluster=self.below, writer=self.below.writer, node=_no_node, nodes={}, reason="Refused")
        tables = {
            kind: UpperObjects(kind.resource, self.profile, self.above, is_optional=kind.is_optional) for kind in KINDS
        }
        slices = upper_slices(self.profile, self.above)
        mirrors = [
            *(ObjectMirror(each, self.profile, self.above, self.side, tables[each], slices=slices) for each in KINDS),
            EndpointMirror(
                self.profile, self.above, self.side, upper_services=tables[services.KIND], upper_slices=slices
            ),
            VolumeMirror(self.profile, self.above, self.side, tables[claims.KIND]),
        ]
        for mirror in mirrors:
            self.add(mirror)
        for resource in sorted(self.optional, key=str):
            self.above.serve(resource)

    def create(self, kind: MirroredKind, name: str, number: int) -> None:
        """Create an upper object, if its kind is served."""
        if kind.resource in self.optional or not kind.is_optional:
            self.upper.put_in(kind.resource, upper_object(kind, name, number))

    def serve(self, kind: MirroredKind) -> None:
        """Serve an optional kind on the upper side, or end it with all of its objects."""
        if not kind.is_optional:
            return
        if kind.resource in self.optional:
            for each in self.upper.list(kind.resource):
                self.upper.delete(kind.resource, f"shop/{each['metadata']['name']}")
        self.optional ^= {kind.resource}
        self.above.serve(kind.resource, is_served=kind.resource in self.optional)

    def mirror(self, kind: MirroredKind) -> ObjectMirror:
        """Return the mirror of a kind."""
        found = self.above.lane.controllers[kind.resource.plural]
        assert isinstance(found, ObjectMirror)
        return found

    def lower_key(self, kind: MirroredKind, name: str) -> str:
        """Return the key of a lower object."""
        return f"{PROFILE.namespace}/{PROFILE.lower_name(kind.resource.kind, 'shop', name)}"

    def below_of(self, kind: MirroredKind, name: str) -> Json | None:
        """Return a lower object; None if there is none."""
        try:
            return self.lower.get(kind.resource, self.lower_key(kind, name))
        except NotFound:
            return None


def pod(name: str, number: int, *, owner: str = PROFILE.owner_uid) -> Json:
    """Return a lower pod that runs."""
    labels = {"example.dev/owner": owner, "example.dev/namespace": "shop"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": PROFILE.namespace, "labels": labels},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "podIPs": [{"ip": f"10.1.0.{number}"}]},
    }


def written_slice(service: str, number: int) -> Json:
    """Return an upper EndpointSlice that names the pod of a number, and one of another owner."""
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {"name": service, "namespace": "shop", "labels": {endpoints.SERVICE_NAME: service}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [f"10.1.0.{number}"]}, {"addresses": ["10.1.0.9"]}],
        "ports": [{"port": 5000 + number}],
    }


def upper_object(kind: MirroredKind, name: str, number: int) -> Json:
    specs: dict[str, Json] = {
        "Service": {"selector": {"app": str(number)} if number < WRITTEN else None, "ports": [{"port": 80 + number}]},
        "NetworkPolicy": {
            "podSelector": {},
            "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "stock"}}}]}] * number,
        },
        "HTTPRoute": {
            "parentRefs": [{"name": "public", "namespace": "gateways"}],
            "rules": [{"backendRefs": [{"name": "web", "port": 80 + number}]}],
        },
        "Gadget": {"service": f"web-{number}", "everywhere": True, "size": number},
        "PersistentVolumeClaim": {"resources": {"requests": {"storage": f"{number}Gi"}}},
        "VolumeSnapshot": {"source": {"persistentVolumeClaimName": f"data-{number}"}},
        "PodDisruptionBudget": {"selector": {"matchLabels": {"app": str(number)}}, "maxUnavailable": 1},
    }
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": name, "namespace": "shop", "labels": {"number": str(number)}},
        "spec": specs[kind.resource.kind],
    }

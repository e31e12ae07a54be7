"""What the operator keeps on the host for each control plane. The glue.

These are the mirror's identity, the kubeconfig with the right to read it, and the way of pods to their API server.

    changed or deleted on the host ─► HostObjectController ─► keys of the namespace ─► HostObjects.bring ─► as desired

These objects are watched in caches of their own, which keep their heads only (Services whole), and no other objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import Conflict, Invalid, TerminalError
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.ownnamespaces import HOSTED_PREFIX
from tenantry.api.planecredentials import KUBECONFIGS_NAMESPACE
from tenantry.api.virtualcontrolplane import MIRROR, MIRRORS_NAMESPACE, PLANE, VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import apiservice, authorityobjects, desired, kubeconfigobjects
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.cluster import Cluster, ClusterId, Watch
from tenantry.mirror import things
from tenantry.mirror.things import Copy, Thing
from tenantry.world.netpol.services import ENDPOINT_SLICES

KEPT = ClusterId("kept")
"""The id under which the runtime has the host's API server for these objects."""

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


class HostObjectController:
    """Wakes the control planes of a namespace when one of these objects changes there; the key is the namespace.

    Args:
        home: It reconciles the VirtualControlPlanes.
    """

    name = "host-objects"
    kind = Copy

    def __init__(self, home: Cluster) -> None:
        self._home = home

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        accounts, ours = {"fieldSelector": f"metadata.namespace={MIRRORS_NAMESPACE}"}, {"labelSelector": PLANE}
        return [
            Watch(resource=desired.SERVICE_ACCOUNTS, decode=things.headed, keys=_named, selectors=accounts),
            Watch(resource=desired.ROLE_BINDINGS, decode=things.headed, keys=_namespace, selectors=ours),
            Watch(resource=kubeconfigobjects.ROLES, decode=things.headed, keys=_namespace, selectors=ours),
            Watch(resource=desired.SECRETS, decode=things.headed, keys=self._of_secret, selectors=ours),
            Watch(resource=apiservice.SERVICES, decode=things.whole, keys=_namespace, selectors=ours),
            Watch(resource=apiservice.NETWORK_POLICIES, decode=things.headed, keys=_namespace, selectors=ours),
            Watch(resource=ENDPOINT_SLICES, decode=things.headed, keys=_namespace, selectors=ours),
        ]

    def _of_secret(self, change: Change[Copy | Thing]) -> Iterable[str]:
        """Return the namespace whose control planes have a Secret, which may be one with an authority."""
        places = _namespace(change)
        if not any(each.startswith(HOSTED_PREFIX) for each in places):
            return places
        found = self._home.cache_of(VirtualControlPlane.resource) or ()
        return [each.metadata.namespace for each in found if authorityobjects.place(each.metadata.uid) in places]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - it reads no cache
        """Wake the control planes of a namespace."""
        for found in self._home.cache_of(VirtualControlPlane.resource) or ():
            if found.metadata.namespace == key:
                self._home.wake(VirtualControlPlane, found.key)
        return None


class HostObjects:
    """Brings these objects to what they should be, and sends nothing while they are.

    Args:
        cluster: Its caches have these objects.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By kind and key: the resourceVersion at which the object was as it should be, and what that was.
        self._brought: dict[tuple[Resource, str], tuple[int, Json]] = {}

    async def bring(self, wanted: Iterable[tuple[Resource, Json]], uid: str) -> None:
        """Create objects, or bring them back; an object of another owner is left as it is.

        Args:
            wanted: Each with its kind.
            uid: The uid of the VirtualControlPlane.

        Raises:
            ApiError: The API server refuses, or does not answer.
            TerminalError: Another client has an object of this name.
        """
        for resource, value in wanted:
            await self._bring(resource, value, uid)

    async def bring_service(self, found: VirtualControlPlane, before: str) -> str:
        """Bring the Service of its API server to what it should be, and return its clusterIP.

        Args:
            found: The VirtualControlPlane.
            before: The clusterIP so far, which a new Service gets if it is free; "" if it is not known.

        Raises:
            ApiError: The API server refuses, or does not answer.
            TerminalError: Another client has an object of this name.
        """
        resource, value = apiservice.service(found)
        namespace, name = value["metadata"]["namespace"], value["metadata"]["name"]
        address = before or await self._address(value)
        try:
            await self.bring([apiservice.service(found, address)], found.metadata.uid)
        except Invalid:
            # While there was none, another Service has got its address.
            if not address:
                raise
            await self.bring([(resource, value)], found.metadata.uid)
        brought: Thing | None = self._cluster.cache(resource).get(object_key(namespace, name))
        # The cache may be behind.
        address = apiservice.address_of(brought.object) if brought is not None else await self._address(value)
        if not address:
            raise Conflict(f"Service {name!r} has just been deleted or has no address", status=409)
        return address

    async def find(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """Return an object as it is now; None if there is none.

        Args:
            resource: Its kind.
            namespace: Its namespace.
            name: Its name; "" for none.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        data = await self._cluster.live.find(resource, namespace, name) if name else None
        return _json.decode(data) if data is not None else None

    async def _address(self, service: Json) -> str:
        """Return the clusterIP that a Service has now; "" for none."""
        meta = service["metadata"]
        live = await self.find(apiservice.SERVICES, meta["namespace"], meta["name"])
        return apiservice.address_of(live) if live is not None else ""

    async def retire(self, namespace: str) -> None:
        """Delete the identity that earlier versions had in a tenant's namespace, which its owners may impersonate.

        Args:
            namespace: The tenant's namespace.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        live = await self.find(desired.SERVICE_ACCOUNTS, namespace, MIRROR)
        if live is not None and desired.is_former_account(live):
            await self._cluster.writer.remove(desired.SERVICE_ACCOUNTS, namespace, MIRROR, uid=live["metadata"]["uid"])

    def forget(self, namespace: str) -> None:
        """Drop what is known of the objects of a namespace; objects of other control planes are looked at again."""
        here = f"{namespace}/"
        named = tuple(object_key(each, namespace) for each in (MIRRORS_NAMESPACE, KUBECONFIGS_NAMESPACE))
        brought = self._brought.items()
        self._brought = {
            each: known for each, known in brought if not each[1].startswith(here) and each[1] not in named
        }

    async def _bring(self, resource: Resource, value: Json, uid: str) -> None:
        meta: Json = value["metadata"]
        key = object_key(meta["namespace"], meta["name"])
        cached: Copy | Thing | None = self._cluster.cache(resource).get(key)
        if cached is not None and self._brought.get((resource, key)) == (cached.version, value):
            return
        live = await self.find(resource, meta["namespace"], meta["name"])
        if live is not None and not desired.is_ours(live, value, uid):
            raise TerminalError(
                reasons.OBJECT_EXISTS,
                f"{resource.kind} {meta['name']!r} exists already and does not belong to this VirtualControlPlane;"
                " it is left as it is: delete or rename it",
            )
        asked, writer = request.apply(resource, value), self._cluster.writer
        if live is not None and apiservice.is_spoilt(resource, live):
            await writer.remove(resource, meta["namespace"], meta["name"], uid=live["metadata"]["uid"])
            live = None
        try:
            written: Copy | Thing = await writer.own(asked, quiet=True)
        except Invalid:
            # The API server never changes a roleRef, nor a Secret that a user has made immutable.
            if live is None:
                raise
            await writer.remove(resource, meta["namespace"], meta["name"], uid=live["metadata"]["uid"])
            written = await writer.own(asked, quiet=True)
        self._brought[resource, key] = (written.version, value)


def _named(change: Change[Copy | Thing]) -> Iterable[str]:
    """Return the namespace whose mirrors have a ServiceAccount: its name."""
    found = change.after or change.before
    return [found.key.partition("/")[2]] if found is not None else ()


def _namespace(change: Change[Copy | Thing]) -> list[str]:
    found = change.after or change.before
    if found is None:
        return []
    namespace, _, name = found.key.partition("/")
    return [name if namespace == KUBECONFIGS_NAMESPACE else namespace]

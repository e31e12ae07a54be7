"""Attaches hosted control planes in Pods to their datastores.

    HostedStore ─► SQLite: nothing, the volume of the Pod
                ─► SharedEtcd: a prefix in the etcd that they share (sharedetcd.py) ─► StoreWay
                ─► OwnEtcd: an etcd in the Pod (ownetcd.py)                         ─► StoreWay
                ─► External: the address of a SQL server (sqlservers.py)            ─► StoreWay

The Secret with all keys of a control plane records its datastore; it is written first and deleted last.
"""

from __future__ import annotations

from pathlib import Path

from tenantry.api.errors import InputError
from tenantry.api.model import Json
from tenantry.hostedpods import keys, objects
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.ownetcd import OwnEtcds
from tenantry.hostedpods.podsockets import PodSockets
from tenantry.hostedpods.sharedetcd import SharedEtcd
from tenantry.hostedpods.sqlservers import SqlServers
from tenantry.hostedpods.storeway import StoreWay
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import StoreKind
from tenantry.kube.client import Client


class PodStores:
    """Attaches control planes to datastores, and detaches them.

    Args:
        client: The operator's, of the cluster.
        settings: What all Pods have in common.
        folder: A private folder of this process.
    """

    def __init__(self, client: Client, settings: PodSettings, folder: Path) -> None:
        self._client = client
        self._settings = settings
        self._etcd = SharedEtcd(client, folder)
        self._own = OwnEtcds(client, settings.images.default, folder)
        self._sql = SqlServers(client)

    async def keep(self) -> None:
        """Keep what control planes share, until cancelled."""
        if self._settings.has_etcd:
            await self._etcd.keep()

    async def recorded(self, plane: HostedPlane) -> Json | None:
        """Return the Secret with all keys of a control plane; None if it has none yet.

        Raises:
            InputError: It is in another datastore already.
        """
        found = await keys.find(self._client, objects.keys_name(plane.uid))
        if found is not None and (kind := objects.recorded(found)) is not plane.store.kind:
            raise InputError(f"its objects are in {kind}: a datastore never changes; create another control plane")
        return found

    async def attach(self, plane: HostedPlane) -> StoreWay | None:
        """Bring a control plane to its datastore; None if that is in its own volume.

        Raises:
            InputError: There is none of this kind.
            LocalError: It does not answer.
        """
        if plane.store.kind is StoreKind.SHARED_ETCD:
            return await self._etcd.attach(plane.uid)
        if plane.store.kind is StoreKind.OWN_ETCD:
            return await self._own.attach(plane.uid, PodSockets(plane.is_sandboxed))
        if plane.store.kind is StoreKind.SQL:
            return await self._sql.attach(plane)
        return None

    async def has_moved(self, uid: str) -> bool:
        """Return whether the datastore of a control plane is elsewhere now, to which its Pod has no way."""
        return await self._sql.has_moved(uid)

    async def detach(self, uid: str) -> None:
        """Delete what a control plane has in its datastore, and its rights there; a second time does nothing.

        Args:
            uid: Of the control plane, whose Pod has ended.

        Raises:
            LocalError: The datastore does not answer.
        """
        found = await keys.find(self._client, objects.keys_name(uid))
        kind = objects.recorded(found) if found is not None else None
        if kind is StoreKind.SHARED_ETCD:
            await self._etcd.detach(uid)
        elif kind is StoreKind.OWN_ETCD:
            await self._own.detach(uid)
        elif kind is StoreKind.SQL:
            await self._sql.detach(uid)

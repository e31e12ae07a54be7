"""The namespaces with the keys of control planes, one for each, in which no tenant has a role. The glue."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import authorityobjects
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjects
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed


class HostedNamespaces:
    """Creates and deletes these namespaces.

    Args:
        cluster: It writes them.
        objects: Reads them.
    """

    def __init__(self, cluster: Cluster, objects: HostObjects) -> None:
        self._cluster = cluster
        self._objects = objects
        self._placed: set[str] = set()

    @asynccontextmanager
    async def placed(self, found: VirtualControlPlane, of: Observed) -> AsyncGenerator[None]:
        """Create the namespace of a control plane, in which the block writes; the next try does it again if it is gone.

        Args:
            found: The VirtualControlPlane.
            of: Its namespace.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        uid = found.metadata.uid
        if uid not in self._placed:
            await self._cluster.writer.own(request.apply(*authorityobjects.namespace(found, of)), quiet=True)
            self._placed.add(uid)
        try:
            yield
        except (NotFound, Forbidden):
            # The namespace is gone, or ends.
            self._placed.discard(uid)
            raise

    async def remove(self, uid: str) -> None:
        """Delete the namespace of a control plane that is deleted, with all in it; one that is gone needs nothing.

        Raises:
            ApiError: The API server refuses, or does not answer.
        """
        self._placed.discard(uid)
        name = authorityobjects.place(uid)
        live = await self._objects.find(Namespace.resource, "", name)
        if live is not None and not live["metadata"].get("deletionTimestamp"):
            await self._cluster.writer.remove(Namespace.resource, "", name, uid=live["metadata"]["uid"])

"""Keeps copies of the authorities of control planes that nodes join, and gives them back. The glue.

the place has them ─► Secrets in a namespace of their own; deleted or edited by hand ─► brought back
the place has lost them ─► Secrets ─► the place; its process starts again, with all certificates issued anew
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import authorityobjects, datastore, desired
from tenantry.controllers.virtualcontrolplane.hostednamespaces import HostedNamespaces
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjects
from tenantry.engine.observed import Observed
from tenantry.hosting import authorities
from tenantry.hosting.placement import Placement


class AuthorityCopies:
    """Keeps the Secrets with authorities.

    Args:
        objects: Brings them to what they should be.
        namespaces: Has them.
        placement: Has the originals.
    """

    def __init__(self, objects: HostObjects, namespaces: HostedNamespaces, placement: Placement) -> None:
        self._objects = objects
        self._namespaces = namespaces
        self._placement = placement

    async def bring(self, found: VirtualControlPlane, of: Observed) -> bool:
        """Bring the Secrets to what they should be; return whether the place has got lost authorities back.

        Args:
            found: The VirtualControlPlane.
            of: Its namespace.

        Raises:
            TenantryError: The API server or the place refuses, or does not answer.
        """
        if not desired.has_own_nodes(found):
            return False
        uid = found.metadata.uid
        files = await self._placement.authorities.read(uid)
        if not files:
            return await self._give_back(found)
        async with self._namespaces.placed(found, of):
            await self._objects.bring(authorityobjects.secrets(found, files), uid)
        return False

    async def _give_back(self, found: VirtualControlPlane) -> bool:
        kept: list[tuple[str, Json]] = []
        for name in authorities.NEEDED:
            called = authorityobjects.secret_name(found.metadata.name, name)
            secret = await self._objects.find(desired.SECRETS, authorityobjects.place(found.metadata.uid), called)
            if secret is None:
                return False
            kept.append((name, secret))
        files = authorityobjects.files_of(kept)
        if not files:
            return False
        await self._placement.authorities.put_back(found.metadata.uid, files, datastore.kind_of(found))
        return True

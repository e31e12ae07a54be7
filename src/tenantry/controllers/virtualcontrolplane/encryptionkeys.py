"""Keeps the keys with which control planes store their Secrets and ConfigMaps. The glue; `encryption` decides.

Secret tenantry-hosted-…/NAME-encryption ─► keys ─► Secret as it should be ─► status.encryption ─► HostedPlane
the Secret is deleted or edited ─► the copy that the process was started with ─► Secret
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets

from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import TerminalError
from tenantry.api.model import object_key
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import authorityobjects, desired
from tenantry.controllers.virtualcontrolplane import encryption as decision
from tenantry.controllers.virtualcontrolplane.encryption import KeyFacts
from tenantry.controllers.virtualcontrolplane.hostednamespaces import HostedNamespaces
from tenantry.controllers.virtualcontrolplane.hostobjects import HostObjects
from tenantry.controllers.virtualcontrolplane.snapshots import Snapshots
from tenantry.engine import request
from tenantry.engine.cluster import Cluster
from tenantry.engine.observed import Observed
from tenantry.engine.plan import Blocked
from tenantry.hosting import encryption
from tenantry.hosting.encryption import PlaneKeys
from tenantry.hosting.placement import Placement
from tenantry.mirror.things import Copy, Thing

LOOK_SECONDS = 600.0
"""How often destinations are asked for snapshots that need a former key."""

log = logging.getLogger(__name__)


class EncryptionKeys:
    """The keys of all control planes.

    Args:
        cluster: Its caches have the Secrets.
        objects: Brings them to what they should be.
        namespaces: Has them.
        placement: Has a copy of those that a process was started with.
        snapshots: Those that may need former keys.
    """

    def __init__(
        self,
        cluster: Cluster,
        objects: HostObjects,
        namespaces: HostedNamespaces,
        placement: Placement,
        snapshots: Snapshots,
    ) -> None:
        self._cluster = cluster
        self._objects = objects
        self._namespaces = namespaces
        self._placement = placement
        self._snapshots = snapshots
        # By uid: the resourceVersion of the Secret, and its keys.
        self._read: dict[str, tuple[int, PlaneKeys]] = {}
        self._keys: dict[str, PlaneKeys] = {}
        self._problems: dict[str, Blocked] = {}
        self._looked: dict[str, dt.datetime] = {}

    def of(self, uid: str) -> PlaneKeys | None:
        """Return the keys that a control plane should have; None before `bring`."""
        return self._keys.get(uid)

    def problem(self, uid: str) -> Blocked | None:
        """Return what is wrong with the keys of a control plane that runs; None if nothing is."""
        return self._problems.get(uid)

    def forget(self, uid: str) -> None:
        """Drop what is known of a control plane that is deleted."""
        for known in (self._read, self._keys, self._problems, self._looked):
            known.pop(uid, None)

    async def bring(
        self, cluster: Cluster, found: VirtualControlPlane, of: Observed, in_force: PlaneKeys | None
    ) -> VirtualControlPlane:
        """Bring the keys of a control plane to what they should be, before its process starts with them.

        Args:
            cluster: The host.
            found: The control plane.
            of: Its namespace.
            in_force: The keys of its process, which is ready; None if none runs.

        Returns:
            The control plane, whose status may have been written.

        Raises:
            ApiError: The API server refuses, or does not answer.
            TerminalError: The keys are lost, and no process runs that knows them.
        """
        uid, now = found.metadata.uid, cluster.clock.now()
        facts = await self._facts(found, in_force)
        todo = decision.step(found, facts, _random, now)
        if decision.needs_snapshots(todo.record) and (times := await self._needing(cluster, found)) is not None:
            todo = decision.step(found, replace(facts, snapshots=times), _random, now)
        self._problems.pop(uid, None)
        if todo.problem is not None:
            self._problems[uid] = todo.problem
        if todo.keys is None:
            if in_force is None:
                raise TerminalError(reasons.ENCRYPTION_KEY_LOST, todo.problem.message if todo.problem else "")
            self._keys[uid] = in_force
            return found
        if facts.secret is None and found.status.encryption.keys:
            log.warning("the Secret with an encryption key is restored", extra={"key": found.key})
        async with self._namespaces.placed(found, of):
            await self._objects.bring([decision.secret(found, todo.keys)], uid)
        if todo.record != found.status.encryption:
            status = replace(found.status, encryption=todo.record)
            asked = request.replace(replace(found, status=status), subresource="status")
            found = await cluster.writer.own(asked, quiet=True)
        self._keys[uid] = todo.keys
        return found

    async def _facts(self, found: VirtualControlPlane, in_force: PlaneKeys | None) -> KeyFacts:
        uid, record = found.metadata.uid, found.status.encryption
        place, name = authorityobjects.place(uid), decision.secret_name(found)
        cached: Copy | Thing | None = self._cluster.cache(desired.SECRETS).get(object_key(place, name))
        read = self._read.get(uid)
        if cached is not None and read is not None and read[0] == cached.version:
            return KeyFacts(secret=read[1], placed=in_force, in_force=in_force)
        live = await self._objects.find(desired.SECRETS, place, name)
        there = decision.keys_of(live)
        if live is not None and there is not None:
            self._read[uid] = (int(live["metadata"]["resourceVersion"]), there)
        placed, is_first = in_force, False
        if placed is None:
            placed = encryption.parse(await self._placement.encryption(uid))
        if not record.keys and there is None and not found.status.version:
            is_first = not await self._placement.kubeconfig(uid)
        return KeyFacts(secret=there, placed=placed, in_force=in_force, is_first=is_first)

    async def _needing(self, cluster: Cluster, found: VirtualControlPlane) -> tuple[dt.datetime, ...] | None:
        """Return when the snapshots of a control plane were taken, wherever they are; None if that is not known now."""
        uid, now = found.metadata.uid, cluster.clock.now()
        last = self._looked.get(uid)
        if last is not None and (now - last).total_seconds() < LOOK_SECONDS:
            return None
        self._looked[uid] = now
        return await self._snapshots.times(cluster, found)


def _random() -> bytes:
    return secrets.token_bytes(encryption.KEY_BYTES)

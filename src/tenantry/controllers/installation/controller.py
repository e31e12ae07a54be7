"""Repairs installed objects that differ from the shipped ones, and reports each repair: the glue.

Watches of the installed objects wake it. An object that another client changes again and again is repaired after
growing pauses. Without the binding `Shipment.switch` nothing is repaired: an administrator deletes it to turn repairs
off, and `tenantry uninstall` deletes it first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Forbidden, Invalid
from tenantry.api.kubernetes import ClusterRoleBinding
from tenantry.api.model import ObjectMeta
from tenantry.controllers.installation import desired
from tenantry.controllers.installation.gather import InstalledState, gather, installed, observer, suspects
from tenantry.controllers.installation.release import HelmRelease
from tenantry.controllers.installation.shipment import SELECTED, Shipment, ShippedObject
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.events import EventKind, NamedObject

ALL = "installation"
"""The one key."""

FIRST_PAUSE_SECONDS = 2.0
LAST_PAUSE_SECONDS = 300.0
"""The pause before an object is repaired again; it doubles with each repair."""

CALM_SECONDS = 600.0
"""How long an object must stay as shipped before its next repair is again immediate."""

CONTESTED = 3
"""From this repair on, an event names the client that writes the object."""

log = logging.getLogger(__name__)


class RepairCount(msgspec.Struct, frozen=True):
    """How often an object was repaired without a calm in between, and when last, by the monotonic clock."""

    number: int
    last: float

    @property
    def pause(self) -> float:
        """Return the seconds from the last repair to the next."""
        return min(FIRST_PAUSE_SECONDS * 2.0 ** (self.number - 1), LAST_PAUSE_SECONDS)


class InstallationController:
    """Reconciles the installed objects; the key is always `ALL`.

    Args:
        shipment: What this version ships.
    """

    name = "installation"
    kind = Shipment

    def __init__(self, shipment: Shipment) -> None:
        self._shipment = shipment
        self._repairs: dict[str, RepairCount] = {}
        # The resourceVersions of objects that a repair left as they were.
        self._same: dict[str, int] = {}
        self._told = ""
        kinds = {each.resource: each.resource for each in shipment.objects}
        (self._switch,) = [each for each in shipment.objects if _is_switch(each, shipment)]
        self._observers = {
            kind: observer({each.key: each for each in shipment.objects if each.resource == kind}) for kind in kinds
        }

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller: installed objects only."""
        return [
            Watch(resource=kind, decode=observe, keys=lambda _: [ALL], selectors={"labelSelector": SELECTED})
            for kind, observe in self._observers.items()
        ]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - one key
        """Repair what differs; return in how many seconds to look again, None for never.

        Raises:
            ApiError: Something failed; the queue tries again.
        """
        found = [each for each in suspects(cluster, self._shipment) if not self._is_same(cluster, each)]
        if not found:
            return None
        why, release = await self._installation(cluster)
        if why:
            return None
        pauses = [await self._repair(cluster, each, release) for each in found]
        return min((pause for pause in pauses if pause), default=None)

    def _is_same(self, cluster: Cluster, shipped: ShippedObject) -> bool:
        """Return whether the API server stored the shipped object as the live one is."""
        state = self._state(cluster, shipped)
        return state is not None and self._same.get(shipped.reference) == state.version

    @staticmethod
    def _state(cluster: Cluster, shipped: ShippedObject) -> InstalledState | None:
        return cluster.cache(shipped.resource).get(shipped.key)

    async def _installation(self, cluster: Cluster) -> tuple[str, HelmRelease | None]:
        """Return why nothing is repaired, which is logged once, and the release of Helm that has the installation."""
        release = None
        if cluster.cache(self._switch.resource).get(self._switch.key) is None:
            why = f"{self._switch.reference} is missing, which turns repairs off"
        else:
            why, release = await installed(cluster, self._shipment)
        if why and why != self._told:
            log.warning("the installed objects are not repaired", extra={"problem": why})
        self._told = why
        return why, release

    async def _repair(self, cluster: Cluster, shipped: ShippedObject, release: HelmRelease | None) -> float:
        """Repair one object; return in how many seconds to look again, 0 for never."""
        now = cluster.clock.monotonic()
        before = self._repairs.get(shipped.reference)
        if before is not None and now - before.last > before.pause + CALM_SECONDS:
            before = None
        if before is not None and now - before.last < before.pause:
            return before.pause - (now - before.last)
        repair = desired.plan(await gather(cluster, shipped, self._shipment.version, release))
        if repair.plan.is_empty:
            return 0
        count = RepairCount(before.number + 1 if before is not None else 1, now)
        self._repairs[shipped.reference] = count
        outcome = await cluster.writer.apply(repair.plan)
        if outcome.error is not None and not isinstance(outcome.error, (Forbidden, Invalid)):
            del self._repairs[shipped.reference]
            raise outcome.error
        state = self._state(cluster, shipped)
        if outcome.error is None and repair.version and state is not None and state.version == repair.version:
            # Nothing was written: this API server adds a default that `comparison.stored` does not know.
            self._same[shipped.reference] = state.version
            del self._repairs[shipped.reference]
            return 0
        self._say(cluster, shipped, repair, count, outcome.error)
        return 0 if outcome.error is None else count.pause

    def _say(
        self,
        cluster: Cluster,
        shipped: ShippedObject,
        repair: desired.Repair,
        count: RepairCount,
        error: ApiError | None,
    ) -> None:
        """Report a repair, or why it was refused."""
        state = self._state(cluster, shipped)
        meta = ObjectMeta(name=shipped.name, namespace=shipped.namespace, uid=state.uid if state is not None else "")
        about = NamedObject(shipped.resource, meta)
        by = f" (last writer: {repair.writer!r})" if repair.writer else ""
        what = f"{shipped.reference} {repair.what}{by}"
        log.warning("an installed object differs", extra={"object": shipped.reference, "problem": repair.what})
        if error is not None:
            note = f"{what} and was not restored: {error}; run `tenantry install`"
            cluster.recorder.say(about, EventKind.WARNING, reasons.REPAIR_REFUSED, note)
            return
        note = f"{what}; the operator restored it as version {self._shipment.version} ships it"
        cluster.recorder.say(about, EventKind.WARNING, reasons.CORRECTED, note)
        if count.number >= CONTESTED:
            note = (
                f"{shipped.reference} was changed {count.number} times{by}: the operator pauses between repairs; stop"
                f" that client, or have it apply the manifests of version {self._shipment.version}"
            )
            cluster.recorder.say(about, EventKind.WARNING, reasons.REPAIR_CONTESTED, note)


def _is_switch(shipped: ShippedObject, shipment: Shipment) -> bool:
    return shipped.resource.kind == ClusterRoleBinding.resource.kind and shipped.name == shipment.switch

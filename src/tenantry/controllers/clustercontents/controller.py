"""Keeps the operator's own objects inside one control plane with nodes of its own: the glue; there is one key.

VirtualControlPlane (spec.addOns) ─┐
objects with our label inside ─────┴─► server-side apply ─► condition AddOnsReady of the VirtualControlPlane
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Invalid
from tenantry.api.marks import ADD_ON, FIELD_MANAGER
from tenantry.api.model import Json, Resource
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.controllers import watched
from tenantry.controllers.clustercontents import bounded, desired, reverts, status
from tenantry.controllers.clustercontents.gather import gather
from tenantry.controllers.clustercontents.objects import KINDS, ContentFacts, ContentObject, objects
from tenantry.controllers.clustercontents.reverts import RevertRecord
from tenantry.controllers.conclusion import is_refusal
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.conditions import Wanted, replaced
from tenantry.engine.plan import DirectWrite, Plan
from tenantry.mirror.cachedpods import Kept
from tenantry.mirror.things import Thing

KEY = "contents"
"""The one key of the controller."""

RETRY_SECONDS = 30.0
"""When to try again what the API server inside refuses: users inside end that, and no event reports it."""


class ContentController:
    """Reconciles the contents of one control plane.

    Args:
        home: The host: its cache has the VirtualControlPlane.
        key: The key of the VirtualControlPlane.
        uid: Its uid.
        facts: Returns what the objects depend on.
    """

    name = "clustercontents"
    kind = Thing

    def __init__(self, home: Cluster, key: str, uid: str, facts: Callable[[], ContentFacts]) -> None:
        self._home = home
        self._plane_key = key
        self._uid = uid
        self._facts = facts
        self._records: dict[str, RevertRecord] = {}
        # Names of some objects depend on the nodes.
        self._wanted: set[tuple[Resource, str]] = {*bounded.ALWAYS}
        # The keys of objects that were as they should be since the connection began.
        self._settled: set[str] = set()

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller; of objects of users with the label, only the heads are cached."""
        selectors = {"labelSelector": ADD_ON}
        own = [
            Watch(resource=each, decode=bounded.decoder(each, self._wanted), keys=_key, selectors=selectors)
            for each in KINDS
        ]
        on_host = (watched.control_planes(self._of_plane), watched.node_handovers(self._of_handover))
        return [*own, *(replace(each, cluster=self._home) for each in on_host)]

    def _of_handover(self, change: Change[NodeHandover]) -> Iterable[str]:
        """Wake with each stage of a machine from outside: the first of them needs more objects."""
        after = change.after
        return (KEY,) if after is not None and after.spec.contributed is not UNSET and self._is_of(after) else ()

    def _is_of(self, found: NodeHandover) -> bool:
        return found.spec.plane.uid == self._uid

    def _of_plane(self, change: Change[VirtualControlPlane]) -> Iterable[str]:
        before, after = change.before, change.after
        if after is None or after.metadata.uid != self._uid:
            return ()
        return () if before is not None and before.spec.add_ons == after.spec.add_ons else (KEY,)

    def _found(self) -> VirtualControlPlane | None:
        found: VirtualControlPlane | None = self._home.cache(VirtualControlPlane.resource).get(self._plane_key)
        return found if found is not None and found.metadata.uid == self._uid else None

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - there is one key
        """Bring the objects to what they should be; return in how many seconds to look again, None for never.

        Raises:
            ApiError: An API server does not answer; the queue tries again.
        """
        found = self._found()
        if found is None or found.metadata.deletion_timestamp:
            return None
        facts = self._facts()
        self._wanted |= {(each.resource, each.object_key) for each in objects(facts)}
        inputs = gather(cluster, found, facts, self._records, await self.read(cluster, facts))
        stale = desired.outdated(inputs)
        self._settled |= {each.key for each in inputs.wanted} - {each.key for each in stale}
        changed_by = {each.key: name for each in stale if (name := await self._changer(cluster, each)) != FIELD_MANAGER}
        plan = desired.plan(inputs, changed_by)
        self._records = dict(plan.records)
        refusals: dict[str, str] = {}
        for each in plan.apply:
            try:
                await self._apply(cluster, each)
            except ApiError as error:
                if not is_refusal(error):
                    raise
                refusals[each.key] = str(error)
            else:
                self._settled.add(each.key)
        after = gather(cluster, found, facts, self._records, await self.read(cluster, facts))
        record = desired.created_once(after)
        if record is not None:
            await self._apply(cluster, record)
        await self._report(status.condition(after, refusals, self._records))
        return RETRY_SECONDS if refusals else None

    async def read(self, cluster: Cluster, facts: ContentFacts) -> dict[str, Json]:
        """Return the wanted objects of which only the heads are cached, because their names were not known before."""
        read: dict[str, Json] = {}
        for each in objects(facts):
            cached: Thing | None = cluster.cache(each.resource).get(each.object_key)
            if cached is None or cached.kept is not Kept.TOO_MANY:
                continue
            namespace, _, name = each.object_key.rpartition("/")
            data = await cluster.live.find(each.resource, namespace, name)
            if data is not None:
                read[each.key] = msgspec.json.decode(data)
        return read

    async def _changer(self, cluster: Cluster, each: ContentObject) -> str:
        """Return the field manager that has changed an object; the operator's own if none has."""
        if each.key not in self._settled:
            return FIELD_MANAGER
        namespace, _, name = each.object_key.rpartition("/")
        data = await cluster.live.find(each.resource, namespace, name)
        if data is None:
            return reverts.DELETION
        meta: Json = msgspec.json.decode(data)["metadata"]
        return desired.changer(meta.get("managedFields") or [])

    async def _apply(self, cluster: Cluster, each: ContentObject) -> None:
        asked = request.apply(each.resource, each.body)
        send = partial(cluster.writer.apply, Plan(writes=(DirectWrite(request=asked, quiet=True, ignores=()),)))
        outcome = await send()
        if isinstance(outcome.error, Invalid):
            # Users have created it again with fields that never change, such as the role of a binding.
            await self._remove(cluster, each)
            outcome = await send()
        if outcome.error is not None:
            raise outcome.error

    async def _remove(self, cluster: Cluster, each: ContentObject) -> None:
        namespace, _, name = each.object_key.rpartition("/")
        data = await cluster.live.find(each.resource, namespace, name)
        if data is not None:
            uid = msgspec.json.decode(data)["metadata"]["uid"]
            await cluster.writer.remove(each.resource, namespace, name, uid=uid)

    async def _report(self, wanted: Wanted) -> None:
        found = self._found()
        if found is None:
            return
        now, before = rfc3339(self._home.clock.now()), found.status
        told = replaced(before.conditions, [wanted], generation=found.metadata.generation, now=now)
        if _said(told) != _said(before.conditions):
            # Not quiet: the DedicatedCluster reports it, too.
            await self._home.writer.own(
                request.replace(replace(found, status=replace(before, conditions=told)), "status")
            )


def _said(conditions: Iterable[object]) -> list[object]:
    kept = [each for each in conditions if getattr(each, "type", "") == reasons.ADD_ONS_READY]
    return [(getattr(each, "status", ""), getattr(each, "reason", ""), getattr(each, "message", "")) for each in kept]


def _key(change: Change[Thing]) -> Iterable[str]:  # noqa: ARG001 - there is one key
    return [KEY]

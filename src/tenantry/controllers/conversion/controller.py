"""Converts tenants: from the API server of the cluster to a control plane of their own, and back. The glue.

spec.isolation.controlPlane: Virtual ─► list ─► plan ─► Refused, or Preparing: the tenant controller starts it
Preparing, the control plane is ready ─► plan again ─► Moving: the tenant controller closes the namespace
Moving ─► list both sides ─► `moves` ─► writes; again, until nothing is left ─► Converted

Shared ─► Preparing: list both sides ─► `outplan`, and a dry run on the host ─► Refused, or Moving: no mirror any more
Moving ─► the same with `outmoves` ─► the control plane is deleted ─► Converted
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import cast

import msgspec

from tenantry.api import reasons
from tenantry.api.conversion import BRINGER, CONVERTER, Conversion, ConversionStep
from tenantry.api.errors import AlreadyExists, ApiError, Conflict, InputError, NotFound
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import OWNER_ROLE, REQUESTED_PHASE, SUSPENDED
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.controllers import controlplane, watched
from tenantry.controllers.conversion import inventory, journal, moves, objects, outmoves, outplan, trial
from tenantry.controllers.conversion.moves import Move, Moves, Side, Worlds
from tenantry.controllers.conversion.objects import CLUSTER_ROLES, Holdings
from tenantry.controllers.conversion.plan import ConversionPlan, plan
from tenantry.controllers.virtualcontrolplane import sleep
from tenantry.controllers.virtualcontrolplane.connections import PlaneConnections, PlaneSides
from tenantry.engine import request
from tenantry.engine.cache import Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.conditions import is_true
from tenantry.engine.reader import Reader
from tenantry.engine.request import Verb
from tenantry.engine.tasks import all_of
from tenantry.mirror.adoption import RESOURCES
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items
from tenantry.mirror.things import COPIED
from tenantry.world.leases import with_lease

LOOK_SECONDS = 0.25
"""When to look again while objects move: others have to act, and no watch reports all of it."""

MOST_LOOK_SECONDS = 2.0
"""The same, while nothing changes: each look lists both sides."""

RETRY_SECONDS = 10.0
"""When to look again whether a tenant can be converted."""

OBSTACLE_SECONDS = 30.0
"""When to look again while this operator serves no control planes, or what is inside one cannot move."""

RIGHTS_SECONDS = 10.0
"""How long the authorizer of the API server may take to see new rights; no event reports that it has."""

UNDO_SECONDS = 0.5
"""When to look again whether the namespace is as before."""

UNPLACED = "no control planes can run on this cluster"
IN_SHARDS = "the operator serves control planes in shards: set --hosted-shards 1"
"""Why an operator converts no tenants."""

_OR_SHARED = ", or set spec.isolation.controlPlane back to Shared"
_OR_VIRTUAL = ", or set spec.isolation.controlPlane back to Virtual"
_WAITS_FOR_SUSPENSION = "objects move: waits for the suspension to end"

AT_ONCE = 16
"""How many writes are under way at once."""


class ConversionController:
    """Converts tenants; the key is the tenant's name.

    Args:
        connections: The control planes that are connected; None if this operator has none.
        obstacle: Why it has none.
    """

    name = "conversion"
    kind = Tenant

    def __init__(self, connections: PlaneConnections | None, obstacle: str = UNPLACED) -> None:
        self._connections = connections
        self._obstacle = obstacle
        # By key: what the last look waits for, and when the next one is.
        self._looks: dict[str, tuple[str, float]] = {}
        # By key: when the mirror got its rights, in monotonic seconds.
        self._given: dict[str, float] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        return [watched.tenants(watched.own_key), watched.control_planes(_plane_keys)]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring a conversion a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: A side failed; the queue tries again.
        """
        tenant: Tenant | None = cluster.cache(Tenant.resource).get(key)
        if tenant is None or tenant.metadata.deletion_timestamp:
            self._looks.pop(key, None)
            self._given.pop(key, None)
            return None
        found = journal.of(tenant)
        again: float | None = None
        namespace = cluster.lookup(Namespace.resource, key)
        if journal.is_undone(tenant):
            again = await self._undo(cluster, tenant)
        elif controlplane.waits(tenant, namespace):
            again = await self._begin(cluster, tenant)
        elif controlplane.leaves(tenant, namespace) and not controlplane.is_handed_over(tenant):
            again = await self._leave(cluster, tenant)
        elif controlplane.is_under_way(tenant) and self._connections is None:
            await self._record(cluster, tenant, cast("Conversion", found).step, self._obstacle)
            again = OBSTACLE_SECONDS
        elif found is not None and found.step is ConversionStep.PREPARING:
            again = await self._prepare(cluster, tenant)
        elif found is not None and found.step is ConversionStep.MOVING:
            again = await self._move(cluster, tenant)
        return again

    # -- steps ------------------------------------------------------------------------------------

    async def _begin(self, cluster: Cluster, tenant: Tenant) -> float | None:
        refusal = await self._refusal(cluster, tenant)
        if refusal:
            await self._record(cluster, tenant, ConversionStep.REFUSED, refusal)
            return RETRY_SECONDS
        await self._record(cluster, tenant, ConversionStep.PREPARING, "the control plane starts")
        return None

    async def _refusal(self, cluster: Cluster, tenant: Tenant) -> str:
        if self._connections is None:
            return self._obstacle
        key = object_key(tenant.metadata.name, tenant.metadata.name)
        if cluster.cache(VirtualControlPlane.resource).get(key) is not None:
            return f"VirtualControlPlane {key!r} exists already: delete it first"
        host = await _listed(cluster.live, objects.PLANNED, tenant.metadata.name)
        return plan(_counted(cluster, tenant), host, _children(cluster, tenant)).refusal

    async def _undo(self, cluster: Cluster, tenant: Tenant) -> float | None:
        """Take back what the step Preparing has made: nothing has moved."""
        if journal.is_leaving(tenant):
            await _end_rights(cluster, tenant.metadata.name)
            await self._write(cluster, tenant, None)
            return None
        found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(
            object_key(tenant.metadata.name, tenant.metadata.name)
        )
        known = journal.of(tenant)
        if found is not None and known is not None and known.step is ConversionStep.PREPARING:
            await cluster.writer.delete(found)
            return None  # its end wakes this key
        if not controlplane.is_forgotten(tenant, cluster.lookup(Namespace.resource, tenant.metadata.name)):
            return UNDO_SECONDS  # without the journal, it would look like a tenant that is to leave its control plane
        await self._write(cluster, tenant, None)
        return None

    # -- out of a control plane -------------------------------------------------------------------

    async def _leave(self, cluster: Cluster, tenant: Tenant) -> float | None:
        """Look at what is inside: the control plane runs on unchanged until all of it can move."""
        if self._connections is None:
            await self._record(cluster, tenant, ConversionStep.REFUSED, self._obstacle)
            return OBSTACLE_SECONDS
        sides, before = self._sides(cluster, tenant), journal.of(tenant)
        is_refused = journal.is_leaving(tenant) and before is not None and before.step is ConversionStep.REFUSED
        if sides is None and is_refused and _is_asleep(_plane(cluster, tenant)):
            return OBSTACLE_SECONDS  # what is inside does not change meanwhile
        if sides is None or not sides.is_mirrored:
            await _wake(cluster, tenant)
            await self._record(cluster, tenant, ConversionStep.PREPARING, "the control plane starts")
            return RETRY_SECONDS
        if not journal.is_leaving(tenant):
            await self._record(cluster, tenant, ConversionStep.PREPARING, "what is inside is listed")
            return None
        try:
            return await self._look_inside(cluster, tenant, sides)
        except InputError as error:
            return await self._refuse(cluster, tenant, str(error), OBSTACLE_SECONDS)

    async def _look_inside(self, cluster: Cluster, tenant: Tenant, sides: PlaneSides) -> float | None:
        name = tenant.metadata.name
        host = await _listed(cluster.live, objects.READABLE, name)
        inside = await inventory.holdings(sides.upper.live, outplan.INSIDE, name)
        worlds = Worlds(host=host, inside=inside, has_namespace=True, profile=sides.profile)
        refusal = await self._refusal_out(cluster, tenant, worlds, sides)
        if not refusal:
            if await self._give_rights(cluster, tenant):
                return LOOK_SECONDS
            worlds = await _worlds(sides, name, outplan.HOST, outplan.INSIDE)
            refusal = await self._refusal_out(cluster, tenant, worlds, sides, is_tried=True)
        if (
            trial.LACKS_RIGHTS in refusal
            and cluster.monotonic() - self._given.get(name, float("-inf")) < RIGHTS_SECONDS
        ):
            return LOOK_SECONDS
        if refusal:
            return await self._refuse(cluster, tenant, refusal, OBSTACLE_SECONDS)
        await self._record(cluster, tenant, ConversionStep.MOVING, "objects move")
        return None

    async def _refuse(self, cluster: Cluster, tenant: Tenant, refusal: str, seconds: float) -> float:
        await _end_rights(cluster, tenant.metadata.name)
        await self._record(cluster, tenant, ConversionStep.REFUSED, refusal + _OR_VIRTUAL)
        return seconds

    async def _refusal_out(
        self, cluster: Cluster, tenant: Tenant, worlds: Worlds, sides: PlaneSides, *, is_tried: bool = False
    ) -> str:
        """Return what keeps a tenant in its control plane; "" for nothing."""
        counted = _counted(cluster, tenant)
        obstacles = await inventory.obstacles(sides.upper.live, tenant.metadata.name)
        rules = await _rules_of_owners(cluster)
        found = await asyncio.to_thread(outplan.plan, counted, worlds, obstacles, rules)
        if found.refusal or not is_tried:
            return found.refusal
        return ConversionPlan(objects=await trial.refused(worlds, sides.lower)).refusal

    async def _move_out(self, cluster: Cluster, tenant: Tenant) -> float | None:
        """Move objects to the host, and delete the control plane once all are there."""
        name, found = tenant.metadata.name, _plane(cluster, tenant)
        if found is None:
            await _end_rights(cluster, name)
            await self._record(cluster, tenant, ConversionStep.CONVERTED, "")
            return None
        if found.metadata.deletion_timestamp:
            return LOOK_SECONDS
        sides, namespace = self._sides(cluster, tenant), cluster.lookup(Namespace.resource, name)
        if sides is None or sides.is_mirrored or namespace is None or not journal.is_closed(tenant, namespace):
            await _wake(cluster, tenant)
            return LOOK_SECONDS
        if _counted(cluster, tenant).spec.suspended or SUSPENDED in namespace.labels:
            await self._record(cluster, tenant, ConversionStep.MOVING, _WAITS_FOR_SUSPENSION)
            return RETRY_SECONDS
        if await self._give_rights(cluster, tenant):
            return LOOK_SECONDS
        return await self._hand_over(cluster, tenant, found, sides)

    async def _hand_over(
        self, cluster: Cluster, tenant: Tenant, found: VirtualControlPlane, sides: PlaneSides
    ) -> float | None:
        name, current = tenant.metadata.name, journal.of(tenant)
        has_begun = current is not None and bool(current.begun_at)
        try:
            worlds = await _worlds(sides, name, outplan.HOST, outplan.INSIDE)
        except InputError as error:
            if has_begun:
                raise  # programs of the tenant still write; the queue tries again
            return await self._refuse(cluster, tenant, str(error), RETRY_SECONDS)
        if not has_begun:
            # Until the control plane was closed, users could create what cannot move.
            refusal = await self._refusal_out(cluster, tenant, worlds, sides, is_tried=True)
            if refusal:
                return await self._refuse(cluster, tenant, refusal, RETRY_SECONDS)
            await self._write(cluster, tenant, journal.begun(tenant, rfc3339(cluster.clock.now())))
            return None
        moved = moves.next_moves(worlds, outmoves.STAGES)
        if moved.is_done:
            self._looks.pop(name, None)
            await cluster.writer.delete(found)
            return LOOK_SECONDS
        return await self._advance(cluster, tenant, moved, sides)

    async def _give_rights(self, cluster: Cluster, tenant: Tenant) -> bool:
        """Create the RoleBindings that the mirror needs; return whether one was missing."""
        lacks = False
        for each in journal.rights(tenant):
            if cluster.lookup(RoleBinding.resource, each.key) is None:
                lacks = True
                self._given[tenant.metadata.name] = cluster.monotonic()
                with suppress(AlreadyExists):
                    await cluster.writer.create(each)
        return lacks

    # -- into a control plane ---------------------------------------------------------------------

    async def _prepare(self, cluster: Cluster, tenant: Tenant) -> float | None:
        sides = self._sides(cluster, tenant)
        if sides is None:
            await _wake(cluster, tenant)
            obstacle = controlplane.problem(tenant.metadata.name, _plane(cluster, tenant))
            told = obstacle.message if obstacle is not None else "the control plane starts"
            await self._record(cluster, tenant, ConversionStep.PREPARING, told)
            return RETRY_SECONDS
        host = await _listed(cluster.live, objects.PLANNED, tenant.metadata.name)
        refusal = plan(_counted(cluster, tenant), host, _children(cluster, tenant), sides.profile).refusal
        if refusal:
            await self._record(cluster, tenant, ConversionStep.PREPARING, refusal + _OR_SHARED)
            return RETRY_SECONDS
        await self._record(cluster, tenant, ConversionStep.MOVING, "objects move")
        return None

    async def _move(self, cluster: Cluster, tenant: Tenant) -> float | None:
        if journal.is_leaving(tenant):
            return await self._move_out(cluster, tenant)
        name, sides = tenant.metadata.name, self._sides(cluster, tenant)
        namespace = cluster.lookup(Namespace.resource, name)
        if sides is None or namespace is None or not journal.is_closed(tenant, namespace):
            await _wake(cluster, tenant)
            return LOOK_SECONDS
        if _counted(cluster, tenant).spec.suspended or SUSPENDED in namespace.labels:
            # All bindings lose their subjects, those of the mirror with them.
            await self._record(cluster, tenant, ConversionStep.MOVING, _WAITS_FOR_SUSPENSION)
            return RETRY_SECONDS
        await self._give_rights(cluster, tenant)
        worlds = await _worlds(sides, name, objects.EVERY, objects.INSIDE)
        if not moves.has_begun(worlds.host, sides.profile):
            # Until the namespace was closed, users could create what cannot move.
            refusal = plan(_counted(cluster, tenant), worlds.host, _children(cluster, tenant), sides.profile).refusal
            if refusal:
                # What stays inside nevertheless is replaced later.
                await send(moves.taken_back(worlds), sides)
                await _end_rights(cluster, name)
                await self._record(cluster, tenant, ConversionStep.PREPARING, refusal + _OR_SHARED)
                return RETRY_SECONDS
        found = moves.next_moves(worlds)
        if found.is_done:
            self._looks.pop(name, None)
            await _end_rights(cluster, name)
            await self._record(cluster, tenant, ConversionStep.CONVERTED, "")
            return None
        return await self._advance(cluster, tenant, found, sides)

    async def _advance(self, cluster: Cluster, tenant: Tenant, found: Moves, sides: PlaneSides) -> float:
        """Send the writes of a stage, and record how far the conversion is."""
        error = await send(found.writes, sides)
        told = f"{_told(found)}: {error}" if error is not None else _told(found)
        await self._record(cluster, tenant, ConversionStep.MOVING, told)
        if error is not None:
            raise error
        return self._pause(tenant.metadata.name, found)

    def _pause(self, key: str, found: Moves) -> float:
        """Return in how many seconds to look again: the later, the longer it waits for the same."""
        told, seconds = self._looks.get(key, ("", 0.0))
        is_same = found.waits == told and not found.writes
        seconds = min(2 * seconds, MOST_LOOK_SECONDS) if is_same else LOOK_SECONDS
        self._looks[key] = found.waits, seconds
        return seconds if found.waits else 0.0

    # -- what it has to do with ---------------------------------------------------------------------

    def _sides(self, cluster: Cluster, tenant: Tenant) -> PlaneSides | None:
        """Return both sides of the control plane of a tenant; None until users could work there."""
        found = _plane(cluster, tenant)
        if self._connections is None or found is None or not is_true(found.status.conditions, reasons.READY):
            return None
        sides = self._connections.get(found.key)
        return sides if sides is not None and sides.profile.owner_uid == found.metadata.uid else None

    async def _record(self, cluster: Cluster, tenant: Tenant, step: ConversionStep, message: str) -> None:
        # Others have written its status while objects moved.
        current: Tenant = cluster.cache(Tenant.resource).get(tenant.key) or tenant
        if current.spec.isolation.control_plane is not tenant.spec.isolation.control_plane:
            return  # the change of the spec wakes this key, and decides anew
        await self._write(cluster, current, journal.at(current, step, message, rfc3339(cluster.clock.now())))

    async def _write(self, cluster: Cluster, tenant: Tenant, wanted: Conversion | None) -> None:
        asked = journal.written(tenant, wanted)
        if asked is not None:
            # Not quiet: the tenant controller follows the step.
            await cluster.writer.own(asked)


async def _wake(cluster: Cluster, tenant: Tenant) -> None:
    """Request that the control plane of a tenant is awake, if it sleeps."""
    found = _plane(cluster, tenant)
    if found is None or found.status.phase is not PlanePhase.ASLEEP or sleep.requested(found) is PlanePhase.AWAKE:
        return
    asked = f"{PlanePhase.AWAKE} {rfc3339(cluster.clock.now())}"
    body: Json = {"metadata": {"annotations": {REQUESTED_PHASE: asked}}}
    # Not quiet: the controller of control planes reads the request.
    await cluster.writer.own(request.patch(found.resource, found.metadata.namespace, found.metadata.name, body))


def _is_asleep(found: VirtualControlPlane | None) -> bool:
    return found is not None and found.status.phase is PlanePhase.ASLEEP


async def _end_rights(cluster: Cluster, namespace: str) -> None:
    """Take the rights of the step Moving from the mirror."""
    for name in (CONVERTER, BRINGER):
        found = cluster.lookup(RoleBinding.resource, object_key(namespace, name))
        if found is not None:
            await cluster.writer.remove(RoleBinding.resource, namespace, name, uid=found.uid)


async def _rules_of_owners(cluster: Cluster) -> list[Json] | None:
    """Return what owners may do in a namespace of the host; None if the operator may not read it."""
    data = await cluster.live.find(CLUSTER_ROLES, "", OWNER_ROLE)
    return items(msgspec.json.decode(data), "rules") if data is not None else None


async def send(writes: Sequence[Move], sides: PlaneSides) -> ApiError | None:
    """Send all writes, also those after one that a side refuses; return the first error, None for none.

    Args:
        writes: The writes of one stage.
        sides: Where they go.
    """
    failed: list[ApiError] = []
    for start in range(0, len(writes), AT_ONCE):
        found = await all_of(_sent(each, sides) for each in writes[start : start + AT_ONCE])
        failed += [each for each in found if each is not None]
    return failed[0] if failed else None


async def _sent(move: Move, sides: PlaneSides) -> ApiError | None:
    """Send a write; return why a side refuses it."""
    asked, profile = move.request, sides.profile
    try:
        if move.side is Side.HOST and asked.verb is Verb.PATCH and sides.is_mirrored:
            # Into the caches of the mirror at once: it must know the marks before there is an upper object.
            await sides.lower.own(asked)
        elif move.side is Side.HOST:
            await sides.lower.send(asked)
        elif asked.resource not in RESOURCES.values() or _is_known(asked.resource, asked.name, profile):
            await sides.upper.writer.send(asked)
    except (AlreadyExists, NotFound, Conflict):
        pass  # both sides are listed again
    except ApiError as error:
        return error
    return None


def _is_known(resource: Resource, name: str, profile: Profile) -> bool:
    """Return whether the mirror knows the object that it adopts; it would create another one."""
    return resource.kind in COPIED or profile.is_adopted(resource.kind, profile.namespace, name)


def _told(found: Moves) -> str:
    waits = f", waits for {found.waits}" if found.waits else ""
    return f"objects move: stage {found.stage}{waits}"


async def _worlds(
    sides: PlaneSides, namespace: str, of_host: Sequence[Resource], of_inside: Sequence[Resource]
) -> Worlds:
    has_namespace = await sides.upper.live.find(objects.NAMESPACES, "", namespace) is not None
    host, inside = await all_of(
        [_listed(sides.reader, of_host, namespace), inventory.holdings(sides.upper.live, of_inside, namespace)]
    )
    return Worlds(host=host, inside=inside, has_namespace=has_namespace, profile=sides.profile)


async def _listed(reader: Reader, resources: Sequence[Resource], namespace: str) -> Holdings:
    async def of(resource: Resource) -> list[Json]:
        return [msgspec.json.decode(each) async for each in reader.raw(resource, namespace=namespace)]

    found = await all_of(of(each) for each in resources)
    return Holdings(of=dict(zip(resources, found, strict=True)))


def _counted(cluster: Cluster, tenant: Tenant) -> Tenant:
    """Return a tenant as it counts now: suspended once its lease has ended."""
    try:
        return with_lease(tenant, cluster.clock.now())
    except InputError:
        return tenant  # its own controller reports it


def _plane(cluster: Cluster, tenant: Tenant) -> VirtualControlPlane | None:
    name = tenant.metadata.name
    found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(object_key(name, name))
    return found


def _children(cluster: Cluster, tenant: Tenant) -> list[Subnamespace]:
    # Another controller watches this kind: a runtime without it has no such cache.
    cache = cluster.cache_of(Subnamespace.resource)
    return [each for each in cache or () if each.metadata.namespace == tenant.metadata.name]


def _plane_keys(change: Change[VirtualControlPlane]) -> Iterable[str]:
    value = change.after or change.before
    is_own = value is not None and value.metadata.name == value.metadata.namespace
    return [value.metadata.name] if value is not None and is_own else ()

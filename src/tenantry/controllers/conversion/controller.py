"""Converts Tenants and Subnamespaces: to a control plane of their owners' own, and back. The glue.

spec.isolation.controlPlane: Virtual ─► list ─► plan ─► Refused, or Preparing: the controller of the owner starts it
Preparing, the control plane is ready ─► plan again ─► Moving: the same one closes the namespace
Moving ─► list both sides ─► `moves` ─► writes; again, until nothing is left ─► Converted

Shared ─► Preparing: list both sides ─► `outplan`, and a dry run on the host ─► Refused, or Moving: no mirror any more
Moving ─► the same with `outmoves` ─► the control plane is deleted ─► Converted
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import cast

from tenantry.api import reasons
from tenantry.api.conversion import BRINGER, CHILD_BRINGER, CONVERTER, Conversion, ConversionStep
from tenantry.api.errors import AlreadyExists, Forbidden, InputError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import REQUESTED_PHASE, SUSPENDED, TENANT, TENANT_UID
from tenantry.api.model import Json, ObjectMeta, object_key
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import PlanePhase, VirtualControlPlane
from tenantry.api.wording import shortened
from tenantry.controllers import controlplane, watched
from tenantry.controllers.conversion import journal, moves, objects, outmoves, returns, trial
from tenantry.controllers.conversion.moves import Moves, Todo
from tenantry.controllers.conversion.plan import ConversionPlan, plan
from tenantry.controllers.conversion.returns import ReturnSides
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.controllers.conversion.sides import listed, send, worlds_of
from tenantry.controllers.lineage import subnamespace_key
from tenantry.controllers.virtualcontrolplane import sleep
from tenantry.controllers.virtualcontrolplane.connections import PlaneConnections, PlaneSides
from tenantry.engine import request
from tenantry.engine.cache import Cache, Change
from tenantry.engine.clock import rfc3339
from tenantry.engine.cluster import Cluster, Watch
from tenantry.engine.conditions import is_true
from tenantry.engine.events import EventKind, NamedObject
from tenantry.engine.observed import Observed
from tenantry.world.leases import with_lease

LOOK_SECONDS = 0.25
"""When to look again while objects move: others have to act, and no watch reports all of it."""

MOST_LOOK_SECONDS = 2.0
"""The same, while nothing changes: each look lists both sides."""

RETRY_SECONDS = 10.0
"""When to look again whether a Tenant or Subnamespace can be converted."""

OBSTACLE_SECONDS = 30.0
"""When to look again while this operator serves no control planes, or what is inside one cannot move."""

RIGHTS_SECONDS = 10.0
"""How long the authorizer of the API server may take to see new rights; no event reports that it has."""

UNDO_SECONDS = 0.5
"""When to look again whether the namespace is as before."""

UNPLACED = "no control planes can run on this cluster"
IN_SHARDS = "the operator serves control planes in shards: set --hosted-shards 1"
"""Why an operator converts nothing."""

_OR_SHARED = ", or set spec.isolation.controlPlane back to Shared"
_OR_VIRTUAL = ", or set spec.isolation.controlPlane back to Virtual"
_WAITS_FOR_SUSPENSION = "objects move: waits for the suspension to end"


class ConversionController:
    """Converts Tenants, or Subnamespaces; the key is that of the object.

    Args:
        kind: Tenant or Subnamespace.
        connections: The control planes that are connected; None if this operator has none.
        obstacle: Why it has none.
    """

    def __init__(
        self,
        connections: PlaneConnections | None,
        obstacle: str = UNPLACED,
        kind: type[Tenant | Subnamespace] = Tenant,
    ) -> None:
        self.kind = kind
        self.name = "conversion" if kind is Tenant else "subnamespace-conversion"
        self._connections = connections
        self._obstacle = obstacle
        # None until the first reconcile, which reads everything that changed before it.
        self._namespaces: Cache[Observed] | None = None
        # By key: what the last look waits for and writes, and when the next one is.
        self._looks: dict[str, tuple[Todo, float]] = {}
        # By key: when the mirror got its rights, in monotonic seconds.
        self._given: dict[str, float] = {}

    def watches(self) -> Sequence[Watch]:
        """Return what wakes this controller."""
        own = watched.tenants(watched.own_key) if self.kind is Tenant else watched.subnamespaces(watched.own_key)
        return [own, watched.control_planes(self._plane_keys)]

    def _plane_keys(self, change: Change[VirtualControlPlane]) -> Iterable[str]:
        """Return the key of the Tenant or Subnamespace whose control plane has changed: it has its name."""
        value = change.after or change.before
        if value is None:
            return ()
        if self.kind is Tenant:
            return [value.metadata.name] if value.metadata.name == value.metadata.namespace else ()
        namespace = self._namespaces.get(value.metadata.namespace) if self._namespaces is not None else None
        key = subnamespace_key(namespace) if namespace is not None else ""
        return [key] if key.rpartition("/")[2] == value.metadata.name else ()

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:  # noqa: ARG002 - the queue counts
        """Bring a conversion a step further; return in how many seconds to look again, None for never.

        Raises:
            ApiError: A side failed; the queue tries again.
        """
        self._namespaces = cluster.cache_of(Namespace.resource)
        scope = self._scope(cluster, key)
        if scope is None:
            self._looks.pop(key, None)
            self._given.pop(key, None)
            return None
        owner, namespace = scope.owner, cluster.lookup(Namespace.resource, scope.namespace)
        found = journal.of(owner)
        again: float | None = None
        if journal.is_undone(owner):
            again = await self._undo(cluster, scope)
        elif controlplane.waits(owner, namespace):
            again = await self._begin(cluster, scope)
        elif controlplane.leaves(owner, namespace) and not controlplane.is_handed_over(owner):
            again = await self._leave(cluster, scope)
        elif controlplane.is_under_way(owner) and self._connections is None:
            await self._record(cluster, scope, cast("Conversion", found).step, self._obstacle)
            again = OBSTACLE_SECONDS
        elif found is not None and found.step is ConversionStep.PREPARING:
            again = await self._prepare(cluster, scope)
        elif found is not None and found.step is ConversionStep.MOVING:
            try:
                again = await self._move(cluster, scope)
            except InputError as error:  # programs of the tenant write inside meanwhile, and may write too much
                await self._record(cluster, scope, ConversionStep.MOVING, str(error))
                again = RETRY_SECONDS
        return again

    def _scope(self, cluster: Cluster, key: str) -> ConversionScope | None:
        """Return what is converted; None if it is gone, or has no namespace yet."""
        owner: Tenant | Subnamespace | None = cluster.cache(self.kind.resource).get(key)
        if owner is None or owner.metadata.deletion_timestamp:
            return None
        tenant = owner if isinstance(owner, Tenant) else _tenant_of(cluster, owner)
        return ConversionScope(owner=owner, is_suspended=_is_suspended(cluster, tenant)) if tenant is not None else None

    # -- steps ------------------------------------------------------------------------------------

    async def _begin(self, cluster: Cluster, scope: ConversionScope) -> float | None:
        refusal = await self._refusal(cluster, scope)
        if refusal:
            await self._record(cluster, scope, ConversionStep.REFUSED, refusal)
            return RETRY_SECONDS
        await self._record(cluster, scope, ConversionStep.PREPARING, "the control plane starts")
        return None

    async def _refusal(self, cluster: Cluster, scope: ConversionScope) -> str:
        if self._connections is None:
            return self._obstacle
        key = scope.plane_key
        host = await listed(cluster.live, objects.PLANNED, scope.namespace)
        # At the last moment: users may create one meanwhile, and have had its kubeconfig.
        if cluster.cache(VirtualControlPlane.resource).get(key) is not None:
            return f"VirtualControlPlane {key!r} exists already: delete it first"
        return _told(cluster, scope, plan(scope, host, returns.children_of(cluster, scope)))

    async def _undo(self, cluster: Cluster, scope: ConversionScope) -> float | None:
        """Take back what the step Preparing has made: nothing has moved."""
        if journal.is_leaving(scope.owner):
            await _end_rights(cluster, scope)
            await self._write(cluster, scope.owner, None)
            return None
        found, known = _plane(cluster, scope), journal.of(scope.owner)
        if found is not None and known is not None and known.step is ConversionStep.PREPARING:
            await cluster.writer.delete(found)
            return None  # its end wakes this key
        if not controlplane.is_forgotten(scope.owner, cluster.lookup(Namespace.resource, scope.namespace)):
            return UNDO_SECONDS  # without the journal, it would look like one that is to leave its control plane
        await self._write(cluster, scope.owner, None)
        return None

    # -- out of a control plane -------------------------------------------------------------------

    async def _leave(self, cluster: Cluster, scope: ConversionScope) -> float | None:
        """Look at what is inside: the control plane runs on unchanged until all of it can move."""
        if self._connections is None:
            await self._record(cluster, scope, ConversionStep.REFUSED, self._obstacle)
            return OBSTACLE_SECONDS
        sides, before = self._sides(cluster, scope), journal.of(scope.owner)
        is_refused = journal.is_leaving(scope.owner) and before is not None and before.step is ConversionStep.REFUSED
        if sides is None and is_refused and _is_asleep(_plane(cluster, scope)):
            return OBSTACLE_SECONDS  # what is inside does not change meanwhile
        if sides is None or not sides.is_mirrored:
            await _wake(cluster, scope)
            await self._record(cluster, scope, ConversionStep.PREPARING, "the control plane starts")
            return RETRY_SECONDS
        if not journal.is_leaving(scope.owner):
            await self._record(cluster, scope, ConversionStep.PREPARING, "what is inside is listed")
            return None
        try:
            return await self._look_inside(cluster, scope, sides)
        except InputError as error:
            return await self._refuse(cluster, scope, str(error), OBSTACLE_SECONDS)

    async def _look_inside(self, cluster: Cluster, scope: ConversionScope, sides: PlaneSides) -> float | None:
        found = await returns.both_sides(cluster, scope, sides, is_mirror=False)
        planned = await returns.planned(cluster, scope, found, sides)
        if not planned.refused:
            if await self._give_rights(cluster, scope):
                return LOOK_SECONDS
            planned = await returns.made_room(scope, found, sides)
            if planned.objects and not planned.refused:
                await self._record(cluster, scope, ConversionStep.PREPARING, _awaited(scope, planned))
                return LOOK_SECONDS
        if not planned.refused:
            if await self._give_rights(cluster, scope, found.places):
                return LOOK_SECONDS
            found = await returns.both_sides(cluster, scope, sides, is_mirror=True)
            planned = await returns.planned(cluster, scope, found, sides, is_tried=True)
        given = self._given.get(scope.owner.key, float("-inf"))
        if trial.LACKS_RIGHTS in planned.refusal and cluster.monotonic() - given < RIGHTS_SECONDS:
            return LOOK_SECONDS
        if planned.refused:
            return await self._refuse(cluster, scope, _told(cluster, scope, planned), OBSTACLE_SECONDS)
        await self._record(cluster, scope, ConversionStep.MOVING, "objects move")
        return None

    async def _refuse(self, cluster: Cluster, scope: ConversionScope, refusal: str, seconds: float) -> float:
        await _end_rights(cluster, scope)
        await self._record(cluster, scope, ConversionStep.REFUSED, refusal + _OR_VIRTUAL)
        return seconds

    async def _move_out(self, cluster: Cluster, scope: ConversionScope) -> float | None:
        """Move objects to the host, and delete the control plane once all are there."""
        name, found = scope.namespace, _plane(cluster, scope)
        if found is None:
            await _end_rights(cluster, scope)
            await self._record(cluster, scope, ConversionStep.CONVERTED, "")
            return None
        if found.metadata.deletion_timestamp:
            return LOOK_SECONDS
        sides, namespace = self._sides(cluster, scope), cluster.lookup(Namespace.resource, name)
        if sides is None or sides.is_mirrored or namespace is None or not journal.is_closed(scope.owner, namespace):
            await _wake(cluster, scope)
            return LOOK_SECONDS
        if scope.is_suspended or SUSPENDED in namespace.labels:
            await self._record(cluster, scope, ConversionStep.MOVING, _WAITS_FOR_SUSPENSION)
            return RETRY_SECONDS
        if await self._give_rights(cluster, scope):
            return LOOK_SECONDS
        return await self._hand_over(cluster, scope, found, sides)

    async def _hand_over(
        self, cluster: Cluster, scope: ConversionScope, found: VirtualControlPlane, sides: PlaneSides
    ) -> float | None:
        current = journal.of(scope.owner)
        has_begun = current is not None and bool(current.begun_at)
        try:
            there = await returns.both_sides(cluster, scope, sides, is_mirror=True)
        except Forbidden:
            if await self._lets_in(cluster, scope, sides):
                return LOOK_SECONDS
            raise  # the authorizer does not see the rights yet
        except InputError as error:
            if has_begun:
                raise
            return await self._refuse(cluster, scope, str(error), RETRY_SECONDS)
        planned = await returns.made_room(scope, there, sides)
        if not has_begun:
            return await self._begin_return(cluster, scope, there, planned, sides)
        if planned.objects:
            # A program inside has created another namespace, or a Subnamespace was replaced: until it is one to which
            # objects may move, the mirror gets no rights there.
            await self._record(cluster, scope, ConversionStep.MOVING, _awaited(scope, planned))
        if planned.objects or await self._give_rights(cluster, scope, there.places):
            return LOOK_SECONDS
        moved = outmoves.next_elsewhere(there.others)
        if moved.is_done:
            moved = moves.next_moves(there.root, outmoves.STAGES)
        if moved.is_done:
            self._looks.pop(scope.owner.key, None)
            await cluster.writer.delete(found)
            return LOOK_SECONDS
        return await self._advance(cluster, scope, moved, sides)

    async def _lets_in(self, cluster: Cluster, scope: ConversionScope, sides: PlaneSides) -> bool:
        """Give the mirror rights in the namespace of a Subnamespace whose name has appeared inside since.

        Return whether to look again; False if nothing was missing.
        """
        there = await returns.both_sides(cluster, scope, sides, is_mirror=False)
        planned = await returns.made_room(scope, there, sides)
        current = journal.of(scope.owner)
        if planned.objects and (current is None or not current.begun_at):
            # Between the last look and the end of the users' access.
            refusal = _told(cluster, scope, planned) or _awaited(scope, planned)
            await self._refuse(cluster, scope, refusal, RETRY_SECONDS)
            return True
        if planned.objects:
            await self._record(cluster, scope, ConversionStep.MOVING, _awaited(scope, planned))
            return True
        return await self._give_rights(cluster, scope, there.places)

    async def _begin_return(
        self, cluster: Cluster, scope: ConversionScope, there: ReturnSides, planned: ConversionPlan, sides: PlaneSides
    ) -> float | None:
        """Record that the return only goes on, unless something is in its way."""
        if await self._give_rights(cluster, scope, there.places):
            return LOOK_SECONDS
        if not planned.objects:
            # Until the control plane was closed, users could create what cannot move.
            planned = await returns.planned(cluster, scope, there, sides, is_tried=True)
        if planned.objects:
            refusal = _told(cluster, scope, planned) or _awaited(scope, planned)
            return await self._refuse(cluster, scope, refusal, RETRY_SECONDS)
        await self._write(cluster, scope.owner, journal.begun(scope.owner, rfc3339(cluster.clock.now())))
        return None

    async def _give_rights(self, cluster: Cluster, scope: ConversionScope, places: Iterable[str] = ()) -> bool:
        """Create the RoleBindings that the mirror needs, also in child namespaces; return whether one was missing."""
        lacks = False
        for each in journal.rights(scope.owner, places):
            if cluster.lookup(RoleBinding.resource, each.key) is None:
                lacks = True
                self._given[scope.owner.key] = cluster.monotonic()
                with suppress(AlreadyExists):
                    await cluster.writer.create(each)
        return lacks

    # -- into a control plane ---------------------------------------------------------------------

    async def _prepare(self, cluster: Cluster, scope: ConversionScope) -> float | None:
        sides = self._sides(cluster, scope)
        if sides is None:
            await _wake(cluster, scope)
            obstacle = controlplane.problem(scope.owner.metadata.name, _plane(cluster, scope))
            told = obstacle.message if obstacle is not None else "the control plane starts"
            await self._record(cluster, scope, ConversionStep.PREPARING, told)
            return RETRY_SECONDS
        host = await listed(cluster.live, objects.PLANNED, scope.namespace)
        refusal = _told(cluster, scope, plan(scope, host, returns.children_of(cluster, scope), sides.profile))
        if refusal:
            await self._record(cluster, scope, ConversionStep.PREPARING, refusal + _OR_SHARED)
            return RETRY_SECONDS
        await self._record(cluster, scope, ConversionStep.MOVING, "objects move")
        return None

    async def _move(self, cluster: Cluster, scope: ConversionScope) -> float | None:
        if journal.is_leaving(scope.owner):
            return await self._move_out(cluster, scope)
        name, sides = scope.namespace, self._sides(cluster, scope)
        namespace = cluster.lookup(Namespace.resource, name)
        if sides is None or namespace is None or not journal.is_closed(scope.owner, namespace):
            await _wake(cluster, scope)
            return LOOK_SECONDS
        if scope.is_suspended or SUSPENDED in namespace.labels:
            # All bindings lose their subjects, those of the mirror with them.
            await self._record(cluster, scope, ConversionStep.MOVING, _WAITS_FOR_SUSPENSION)
            return RETRY_SECONDS
        await self._give_rights(cluster, scope)
        worlds = await worlds_of(sides, name, objects.EVERY, objects.INSIDE)
        if not moves.has_begun(worlds.host, sides.profile):
            # Until the namespace was closed, users could create what cannot move.
            refusal = _told(
                cluster, scope, plan(scope, worlds.host, returns.children_of(cluster, scope), sides.profile)
            )
            if refusal:
                # What stays inside nevertheless is replaced later.
                await send(moves.taken_back(worlds), sides)
                await _end_rights(cluster, scope)
                await self._record(cluster, scope, ConversionStep.PREPARING, refusal + _OR_SHARED)
                return RETRY_SECONDS
        found = moves.next_moves(worlds)
        if found.is_done:
            self._looks.pop(scope.owner.key, None)
            await _end_rights(cluster, scope)
            await self._record(cluster, scope, ConversionStep.CONVERTED, "")
            cluster.wake(VirtualControlPlane, scope.plane_key)  # its kubeconfig is written now
            return None
        return await self._advance(cluster, scope, found, sides)

    async def _advance(self, cluster: Cluster, scope: ConversionScope, found: Moves, sides: PlaneSides) -> float:
        """Send the writes of a stage, and record how far the conversion is."""
        error = await send(found.writes, sides)
        told = found.progress(error, is_blind=scope.is_blind)
        await self._record(cluster, scope, ConversionStep.MOVING, told)
        if error is not None:
            raise error
        return self._pause(scope.owner.key, found)

    def _pause(self, key: str, found: Moves) -> float:
        """Return in how many seconds to look again: the later, the longer it waits for the same, or writes it again."""
        before, seconds = self._looks.get(key, (None, 0.0))
        is_same = found.todo == before
        seconds = min(2 * seconds, MOST_LOOK_SECONDS) if is_same else LOOK_SECONDS
        self._looks[key] = found.todo, seconds
        return seconds if found.waits or is_same else 0.0

    # -- what it has to do with ---------------------------------------------------------------------

    def _sides(self, cluster: Cluster, scope: ConversionScope) -> PlaneSides | None:
        """Return both sides of the control plane; None until users could work there."""
        found = _plane(cluster, scope)
        if self._connections is None or found is None or not is_true(found.status.conditions, reasons.READY):
            return None
        sides = self._connections.get(found.key)
        return sides if sides is not None and sides.profile.owner_uid == found.metadata.uid else None

    async def _record(self, cluster: Cluster, scope: ConversionScope, step: ConversionStep, message: str) -> None:
        # Others have written its status while objects moved.
        owner = scope.owner
        current: Tenant | Subnamespace = cluster.cache(self.kind.resource).get(owner.key) or owner
        if current.spec.isolation.control_plane is not owner.spec.isolation.control_plane:
            return  # the change of the spec wakes this key, and decides anew
        await self._write(cluster, current, journal.at(current, step, message, rfc3339(cluster.clock.now())))

    async def _write(self, cluster: Cluster, owner: Tenant | Subnamespace, wanted: Conversion | None) -> None:
        asked = journal.written(owner, wanted)
        if asked is not None:
            # Not quiet: the controller of the owner follows the step.
            await cluster.writer.own(asked)


async def _wake(cluster: Cluster, scope: ConversionScope) -> None:
    """Request that the control plane is awake, if it sleeps."""
    found = _plane(cluster, scope)
    if found is None or found.status.phase is not PlanePhase.ASLEEP or sleep.requested(found) is PlanePhase.AWAKE:
        return
    asked = f"{PlanePhase.AWAKE} {rfc3339(cluster.clock.now())}"
    body: Json = {"metadata": {"annotations": {REQUESTED_PHASE: asked}}}
    # Not quiet: the controller of control planes reads the request.
    await cluster.writer.own(request.patch(found.resource, found.metadata.namespace, found.metadata.name, body))


def _is_asleep(found: VirtualControlPlane | None) -> bool:
    return found is not None and found.status.phase is PlanePhase.ASLEEP


async def _end_rights(cluster: Cluster, scope: ConversionScope) -> None:
    """Take the rights of the step Moving from the mirror."""
    children = [each.status.namespace for each in returns.children_of(cluster, scope) if each.status.namespace]
    given = [(scope.namespace, CONVERTER), (scope.namespace, BRINGER), *((each, CHILD_BRINGER) for each in children)]
    for namespace, name in given:
        found = cluster.lookup(RoleBinding.resource, object_key(namespace, name))
        if found is not None:
            await cluster.writer.remove(RoleBinding.resource, namespace, name, uid=found.uid)


def _awaited(scope: ConversionScope, planned: ConversionPlan) -> str:
    """Return for which Subnamespaces a return waits; without names for users who may not see them."""
    told = shortened([each.reason for each in planned.objects])
    return "Subnamespaces are created" if scope.is_blind else told


def _told(cluster: Cluster, scope: ConversionScope, found: ConversionPlan) -> str:
    """Return why nothing moves, as the journal reports it; an Event in the namespace has what the journal must not."""
    if scope.is_blind and found.refused:
        meta = ObjectMeta(name=scope.namespace, namespace=scope.namespace, uid=scope.owner.metadata.uid)
        about = NamedObject(Namespace.resource, meta)
        cluster.recorder.say(about, EventKind.WARNING, reasons.CONVERSION_REFUSED, found.refusal)
    return found.told(scope)


def conversions(connections: PlaneConnections | None, obstacle: str = UNPLACED) -> list[ConversionController]:
    """Return the controllers that convert Tenants and Subnamespaces; see `ConversionController`."""
    return [ConversionController(connections, obstacle, kind) for kind in (Tenant, Subnamespace)]


def _tenant_of(cluster: Cluster, owner: Subnamespace) -> Tenant | None:
    """Return the tenant of the tree; None while the Subnamespace has no namespace there."""
    namespace = cluster.lookup(Namespace.resource, owner.status.namespace) if owner.status.namespace else None
    found: Tenant | None = cluster.cache(Tenant.resource).get(namespace.labels.get(TENANT, "")) if namespace else None
    is_of = found is not None and namespace is not None and namespace.labels.get(TENANT_UID) == found.metadata.uid
    return found if is_of else None


def _is_suspended(cluster: Cluster, tenant: Tenant) -> bool:
    """Return whether a tenant is suspended now: also once its lease has ended."""
    try:
        return with_lease(tenant, cluster.clock.now()).spec.suspended
    except InputError:
        return tenant.spec.suspended  # its own controller reports it


def _plane(cluster: Cluster, scope: ConversionScope) -> VirtualControlPlane | None:
    found: VirtualControlPlane | None = cluster.cache(VirtualControlPlane.resource).get(scope.plane_key)
    return found

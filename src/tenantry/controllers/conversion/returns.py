"""What the return from a control plane reads and asks before anything moves. The glue of `outplan` and `elsewhere`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
from msgspec.structs import replace

from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import OWNER_ROLE, SUBNAMESPACE_UID
from tenantry.api.model import Json
from tenantry.api.subnamespace import Subnamespace
from tenantry.controllers.conversion import elsewhere, inventory, objects, outplan, trial
from tenantry.controllers.conversion.moves import Worlds
from tenantry.controllers.conversion.objects import CLUSTER_ROLES, NAMESPACES
from tenantry.controllers.conversion.plan import ConversionPlan, Fate, PlannedObject
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.controllers.conversion.sides import Room, listed
from tenantry.controllers.virtualcontrolplane.connections import PlaneSides
from tenantry.engine.cluster import Cluster
from tenantry.engine.reader import Reader
from tenantry.engine.tasks import all_of
from tenantry.mirror.profile import Profile
from tenantry.mirror.shapes import items

_KINDS = elsewhere.listed_kinds(outplan.HOST)
_KINDS_INSIDE = elsewhere.listed_kinds(outplan.INSIDE)


class ReturnSides(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides of all namespaces whose objects return.

    Args:
        root: Both sides of the namespace that has one name on both.
        others: Those of the other namespaces inside.
        children: The Subnamespaces on the host, by name.
    """

    root: Worlds
    others: tuple[Worlds, ...]
    children: Mapping[str, Subnamespace]

    @property
    def places(self) -> tuple[str, ...]:
        """Return the child namespaces to which objects move, of those that there are."""
        return tuple(each.profile.namespace for each in self.others if each.profile.namespace)


async def both_sides(cluster: Cluster, scope: ConversionScope, sides: PlaneSides, *, is_mirror: bool) -> ReturnSides:
    """Return both sides.

    Args:
        cluster: The operator's.
        scope: The Tenant or Subnamespace.
        sides: The sides of its control plane.
        is_mirror: Whether the mirror reads the host, with the rights that it has for the conversion. The operator
            reads less, and no child namespaces.

    Raises:
        ApiError: A side does not answer.
        InputError: There is too much inside; see `Room`.
    """
    children = {each.metadata.name: each for each in children_of(cluster, scope)}
    host = sides.reader if is_mirror else cluster.live
    return await listed_sides(
        sides.profile, host, sides.upper.live, children, lambda child: _place(cluster, child), is_whole=is_mirror
    )


async def listed_sides(
    profile: Profile,
    host: Reader,
    inside: Reader,
    children: Mapping[str, Subnamespace],
    place_of: Callable[[Subnamespace], str],
    *,
    is_whole: bool,
) -> ReturnSides:
    """Return both sides.

    Args:
        profile: The configuration of the mirror; its namespace is the one that has one name on both sides.
        host: Reads the host.
        inside: Reads inside, as an administrator there.
        children: The Subnamespaces on the host, by name.
        place_of: Returns the namespace of one; "" while it has none.
        is_whole: Whether all kinds are read on the host, and child namespaces, too.

    Raises:
        ApiError: A side does not answer.
        InputError: There is too much inside; see `Room`.
    """
    root = profile.namespace
    names = elsewhere.others([msgspec.json.decode(each) async for each in inside.raw(NAMESPACES)], root)
    places = {root: root, **{name: place_of(children[name]) if name in children else "" for name in names}}

    room = Room()

    async def world(source: str) -> Worlds:
        place, is_root = places[source], source == root
        kinds = _KINDS if is_whole and place else ()
        if is_root:
            kinds = outplan.HOST if is_whole else objects.READABLE
        return Worlds(
            host=await listed(host, kinds, place),
            inside=await listed(inside, outplan.INSIDE if is_root else _KINDS_INSIDE, source, room),
            has_namespace=True,
            profile=replace(profile, namespace=place),
            source="" if is_root else source,
            places=places,
        )

    found = await all_of(world(each) for each in (root, *names[: elsewhere.MOST + 1]))
    return ReturnSides(root=found[0], others=tuple(found[1:]), children=children)


def children_of(cluster: Cluster, scope: ConversionScope) -> list[Subnamespace]:
    """Return the Subnamespaces in the namespace that is converted."""
    # Another controller watches this kind: a runtime without it has no such cache.
    cache = cluster.cache_of(Subnamespace.resource)
    return [each for each in cache or () if each.metadata.namespace == scope.namespace]


def _place(cluster: Cluster, child: Subnamespace) -> str:
    """Return the namespace of a Subnamespace; "" until it is known to be its own."""
    namespace = cluster.lookup(Namespace.resource, child.status.namespace)
    is_own = namespace is not None and namespace.labels.get(SUBNAMESPACE_UID) == child.metadata.uid
    return child.status.namespace if is_own else ""


async def planned(
    cluster: Cluster, scope: ConversionScope, found: ReturnSides, sides: PlaneSides, *, is_tried: bool = False
) -> ConversionPlan:
    """Return what happens to each object inside.

    Args:
        cluster: The operator's.
        scope: The Tenant or Subnamespace.
        found: Both sides.
        sides: The sides of its control plane.
        is_tried: Whether the host is asked, too; then only what it refuses is returned, if all else can move.

    Raises:
        ApiError: A side does not answer.
    """
    obstacles = await inventory.obstacles(sides.upper.live, scope.namespace)
    rules = await _rules_of_owners(cluster)
    whole = await asyncio.to_thread(
        outplan.plan, scope, found.root, obstacles, rules, others=found.others, children=found.children
    )
    if whole.refused or not is_tried:
        return whole
    tried = [each for each in (found.root, *found.others) if each.profile.namespace]
    refused = [each for one in tried for each in await trial.refused(one, sides.lower)]
    return ConversionPlan(objects=tuple(refused))


async def made_room(scope: ConversionScope, found: ReturnSides, sides: PlaneSides) -> ConversionPlan:
    """Create the Subnamespaces that other namespaces inside become; return what refuses them, or is waited for.

    Args:
        scope: The Tenant or Subnamespace.
        found: Both sides.
        sides: The sides of its control plane; its mirror has the rights of owners.

    Raises:
        ApiError: The host does not answer.
    """
    names = [each.source for each in found.others]
    # Also once objects move: a program inside that still writes may name a namespace after a Subnamespace of others.
    kept_out = [each for each in elsewhere.namespaces(scope, names, found.children) if each.fate is Fate.REFUSED]
    if kept_out:
        return ConversionPlan(objects=tuple(kept_out))
    missing = [elsewhere.subnamespace(scope, name) for name in names if name not in found.children]
    refused = await trial.created(missing, sides.lower)
    waiting = [(name, elsewhere.waits(name, found.children.get(name))) for name in names]
    waited = [
        PlannedObject(kind=NAMESPACES.kind, name=name, fate=Fate.MOVED, reason=told) for name, told in waiting if told
    ]
    return ConversionPlan(objects=(*refused, *waited))


async def _rules_of_owners(cluster: Cluster) -> list[Json] | None:
    """Return what owners may do in a namespace of the host; None if the operator may not read it."""
    data = await cluster.live.find(CLUSTER_ROLES, "", OWNER_ROLE)
    return items(msgspec.json.decode(data), "rules") if data is not None else None

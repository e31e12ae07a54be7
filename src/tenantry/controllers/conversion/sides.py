"""Lists both sides of a control plane, and sends the writes of a conversion to them. The glue of `moves`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, Conflict, InputError, NotFound
from tenantry.api.model import Json, Resource
from tenantry.controllers.conversion import objects
from tenantry.controllers.conversion.moves import Move, Side, Worlds
from tenantry.controllers.conversion.objects import Holdings
from tenantry.controllers.virtualcontrolplane.connections import PlaneSides
from tenantry.engine.reader import Reader
from tenantry.engine.request import Verb
from tenantry.engine.tasks import all_of
from tenantry.mirror.adoption import RESOURCES
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import COPIED

AT_ONCE = 16
"""How many writes are under way at once."""

MOST_BYTES = 64 * 2**20
"""How much JSON the objects that move may have together; decoded, it takes up to ten times as much memory."""


class Room:
    """How much is still read of what is inside: users choose how much there is, and the operator has all tenants."""

    def __init__(self) -> None:
        self._left = MOST_BYTES

    def take(self, data: msgspec.Raw) -> None:
        """Count an object.

        Raises:
            InputError: All of them have more than `MOST_BYTES`.
        """
        self._left -= len(memoryview(data))
        if self._left < 0:
            raise InputError(
                f"cannot move: the objects inside have more than {MOST_BYTES // 2**20} MiB together: delete those that"
                " are not needed"
            )


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


async def worlds_of(
    sides: PlaneSides, namespace: str, of_host: Sequence[Resource], of_inside: Sequence[Resource]
) -> Worlds:
    """Return both sides of a namespace.

    Args:
        sides: The sides of the control plane.
        namespace: The namespace, which has the same name on both.
        of_host: The kinds that are listed on the host.
        of_inside: The kinds that are listed inside.

    Raises:
        ApiError: A side does not answer.
        InputError: There is too much inside; see `Room`.
    """
    has_namespace = await sides.upper.live.find(objects.NAMESPACES, "", namespace) is not None
    host, inside = await all_of(
        [listed(sides.reader, of_host, namespace), listed(sides.upper.live, of_inside, namespace, Room())]
    )
    return Worlds(host=host, inside=inside, has_namespace=has_namespace, profile=sides.profile)


async def listed(reader: Reader, resources: Sequence[Resource], namespace: str, room: Room | None = None) -> Holdings:
    """Return the objects of a namespace on one side.

    Args:
        reader: Reads this side.
        resources: The kinds.
        namespace: The namespace.
        room: How much is read; None for all, on the host, whose quota bounds it.

    Raises:
        ApiError: The side does not answer.
        InputError: There is too much; see `Room`.
    """

    async def of(resource: Resource) -> list[Json]:
        found: list[Json] = []
        async for each in reader.raw(resource, namespace=namespace):
            if room is not None:
                room.take(each)
            found.append(msgspec.json.decode(each))
        return found

    found = await all_of(of(each) for each in resources)
    return Holdings(of=dict(zip(resources, found, strict=True)))

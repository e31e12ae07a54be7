"""Asks the host whether it would accept what is to move there: dry runs with the rights of owners."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from tenantry.api.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from tenantry.api.model import Json, Resource
from tenantry.api.subnamespace import Subnamespace
from tenantry.controllers.conversion import outplan
from tenantry.controllers.conversion.moves import Worlds
from tenantry.controllers.conversion.objects import NAMESPACES, name_of
from tenantry.controllers.conversion.plan import Fate, PlannedObject
from tenantry.engine import request
from tenantry.engine.request import ApiRequest
from tenantry.engine.tasks import all_of
from tenantry.engine.writer import Writer

LACKS_RIGHTS = "cannot create resource"
"""What the API server answers to users without the right (k8s.io/apiserver/pkg/endpoints/handlers/responsewriters)."""

AT_ONCE = 16
"""How many dry runs are under way at once."""


async def refused(worlds: Worlds, writer: Writer) -> tuple[PlannedObject, ...]:
    """Return what the host refuses.

    Args:
        worlds: Both sides.
        writer: Writes to the host as the mirror, which has the rights of owners, too.

    Raises:
        ApiError: The host does not answer.
    """
    wanted = list(outplan.missing(worlds))
    found: list[PlannedObject] = []
    for start in range(0, len(wanted), AT_ONCE):
        batch = wanted[start : start + AT_ONCE]
        told = await all_of(_refusal(writer, resource, value) for resource, value in batch)
        found += [
            PlannedObject(kind=resource.kind, name=worlds.told(name_of(value)), fate=Fate.REFUSED, reason=reason)
            for (resource, value), reason in zip(batch, told, strict=True)
            if reason
        ]
    return tuple(found)


async def created(missing: Iterable[Subnamespace], writer: Writer) -> tuple[PlannedObject, ...]:
    """Create the Subnamespaces that namespaces inside become; return those that the host refuses.

    Args:
        missing: What they should be.
        writer: As for `refused`.

    Raises:
        ApiError: The host does not answer.
    """
    wanted = list(missing)
    told = await all_of(_sent(writer, request.create(each)) for each in wanted)
    return tuple(
        PlannedObject(kind=NAMESPACES.kind, name=each.metadata.name, fate=Fate.REFUSED, reason=reason)
        for each, reason in zip(wanted, told, strict=True)
        if reason
    )


async def _refusal(writer: Writer, resource: Resource, value: Json) -> str:
    return await _sent(writer, replace(request.create_json(resource, value), is_dry_run=True))


async def _sent(writer: Writer, asked: ApiRequest) -> str:
    try:
        await writer.send(asked)
    except AlreadyExists:
        return ""  # another look compares it
    except (Forbidden, Invalid, BadRequest, NotFound) as error:  # not found: the ClusterRole that a binding names
        return f"is refused by the host: {error}"
    return ""

"""Lists what is inside a control plane: the objects that move, and what cannot. The glue of `surroundings`.

Users inside choose how much there is of both, and the operator has all tenants: all lists have a bound.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Protocol

import msgspec

from tenantry.api.errors import NotFound, ServerError
from tenantry.api.model import Resource
from tenantry.controllers.conversion import surroundings
from tenantry.controllers.conversion.plan import Fate, PlannedObject
from tenantry.controllers.conversion.surroundings import API_SERVICES, DEFINITIONS
from tenantry.mirror.shapes import part

MOST_OF_KIND = 500
"""How many objects of one kind are listed."""

MOST_CUSTOM = 100
"""Of how many CustomResourceDefinitions the objects are counted."""


class KindReader(Protocol):
    """Reads the objects of an API server, and which kinds it has; see `engine.reader`."""

    def raw(
        self, resource: Resource, *, namespace: str = "", selectors: Mapping[str, str] | None = None
    ) -> AsyncIterator[msgspec.Raw]:
        """Yield the JSON of all objects of a kind."""
        ...

    async def kinds(self, left_out: Collection[str] = ()) -> list[Resource]:
        """Return the kinds whose objects can be listed, without those of some groups."""
        ...

    async def count(self, resource: Resource, namespace: str = "") -> int:
        """Return the number of objects of a kind."""
        ...


async def obstacles(reader: KindReader, namespace: str) -> list[PlannedObject]:
    """Return what cannot move because of its kind or place.

    Args:
        reader: Reads the API server inside, as an administrator there.
        namespace: The namespace whose objects move.

    Raises:
        ApiError: The API server does not answer.
    """
    # An APIService of the tenant is listed, its kinds are not: its program may answer anything.
    left_out = {*surroundings.SERVED_BY_OPERATOR, *await _remote_groups(reader)}
    found = await _listed(reader, DEFINITIONS, namespace)
    custom = {each.name for each in found}
    counted = 0
    for resource in await reader.kinds(left_out):
        if resource == DEFINITIONS or not surroundings.is_looked_at(resource):
            continue
        if f"{resource.plural}.{resource.group}" not in custom:
            found += await _listed(reader, resource, namespace)
        elif counted < MOST_CUSTOM:
            counted += 1
            found += await _number(reader, resource)
    return found


async def _remote_groups(reader: KindReader) -> set[str]:
    """Return the groups that programs of the tenant serve."""
    found: set[str] = set()
    async for each in reader.raw(API_SERVICES):
        spec = part(msgspec.json.decode(each), "spec")
        if spec.get("service"):
            found.add(str(spec.get("group", "")))
    return found


async def _number(reader: KindReader, resource: Resource) -> list[PlannedObject]:
    """Return one entry for all objects of a custom kind."""
    try:
        number = await reader.count(resource)
    except (NotFound, ServerError):
        return []
    told = f"{number} objects"
    reason = "are of a custom kind of the tenant: delete them"
    return [PlannedObject(kind=resource.kind, name=told, fate=Fate.REFUSED, reason=reason)] if number else []


async def _listed(reader: KindReader, resource: Resource, namespace: str) -> list[PlannedObject]:
    found: list[PlannedObject] = []
    try:
        async for each in reader.raw(resource):
            one = surroundings.found_object(resource, msgspec.json.decode(each))
            reason = surroundings.obstacle(one, namespace)
            if reason:
                found.append(PlannedObject(kind=resource.kind, name=one.told, fate=Fate.REFUSED, reason=reason))
            if len(found) >= MOST_OF_KIND:
                break
    except NotFound:
        return found  # users have deleted the kind
    return found

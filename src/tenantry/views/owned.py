"""A tenant as its owners may read it: from its own namespaces, without a right on Tenants."""

from __future__ import annotations

from collections.abc import Sequence

from tenantry.api.errors import Forbidden, NotFound
from tenantry.api.tenant import Tenant
from tenantry.controllers.tenant import summary
from tenantry.engine.reader import ObjectReader
from tenantry.views.objects import NamespaceWithPhase
from tenantry.views.snapshot import Snapshot, read_below
from tenantry.views.snapshot import read as read_snapshot

NOTE = "as an owner: without what subtenants have, and without messages that only administrators may read"
"""What a view for owners leaves out."""


async def tenant(reader: ObjectReader, name: str, refused: Forbidden) -> Tenant:
    """Return a tenant that the user may not read, from the summary for its owners.

    Args:
        reader: Reads with the user's rights.
        name: The tenant's name.
        refused: The answer to the request for the Tenant itself.

    Raises:
        Forbidden: The user is no owner of such a tenant; it names both rights of which one is needed.
        InputError: The namespace has no summary.
    """
    try:
        found = await reader.get(NamespaceWithPhase, name)
    except (Forbidden, NotFound) as error:
        raise Forbidden(
            f"you may read neither tenant {name!r} nor its namespace: that needs the right to `get` Namespace {name!r},"
            " which owners have unless the tenant is suspended, or to `get` Tenants, which administrators have;"
            f" the API server said: {refused}"
        ) from error
    return summary.read(found.metadata)


async def read(reader: ObjectReader, names: Sequence[str]) -> Snapshot:
    """Return the objects of these tenants, or of all; as much as their owners may read if the user may not read more.

    Raises:
        NotFound: No tenant has one of the names.
        Forbidden: The user is neither an administrator nor an owner of each of these tenants.
    """
    try:
        return await read_snapshot(reader, names)
    except Forbidden as error:
        if not names:
            raise Forbidden(f"{error}; as an owner, name your tenant") from error
        refused = error
    tenants = [await tenant(reader, name, refused) for name in dict.fromkeys(names)]
    parts = [await read_below(reader, each.metadata.name) for each in tenants]
    return Snapshot(
        tenants=tenants,
        namespaces=[each for part in parts for each in part.namespaces],
        quotas=[each for part in parts for each in part.quotas],
        subnamespaces=[each for part in parts for each in part.subnamespaces],
        is_partial=True,
    )

"""Creates an object of a tenant that takes a while to be ready, for the groups of commands of several kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tenantry.api.errors import AlreadyExists, Forbidden, InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import TENANT_UID
from tenantry.api.model import Json, KubernetesObject
from tenantry.cli import kinds, output
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.wait import wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client


async def check_place(client: Client, namespace: str, what: str) -> None:
    """Refuse a namespace in which the operator starts no control plane.

    Args:
        client: The client of the cluster.
        namespace: The namespace.
        what: The noun of what is to be created, as in "control plane".

    Raises:
        NotFound: It does not exist.
        InputError: It belongs to no tenant.
    """
    try:
        found = await client.get(Namespace, namespace)
    except Forbidden:
        return  # the API server may admit the object all the same, and the operator reports what is wrong with it
    if not found.metadata.labels.get(TENANT_UID):
        raise InputError(
            f"the namespace {namespace!r} belongs to no tenant: create the {what} in a tenant's namespace;"
            " `tenantry tree` shows them"
        )


async def create(client: Client, wanted: KubernetesObject, *, seconds: int | None, verb: str) -> Json:
    """Create an object, and return what the API server has stored.

    Args:
        client: The client of the cluster.
        wanted: The object.
        seconds: How long to wait until it is ready; None does not wait.
        verb: The group of commands about its kind.

    Raises:
        InputError: It exists already.
        TenantryError: It is not ready in time, or waits for a person.
    """
    kind, meta = type(wanted), wanted.metadata
    told = kinds.told(kind, meta.name, meta.namespace)
    try:
        made: Json = msgspec.json.decode(await client.create(wanted))
    except AlreadyExists as error:
        raise InputError(
            f"{told} exists already; choose another name, or see it with"
            f" `tenantry {verb} describe {meta.name} -n {meta.namespace}`"
        ) from error
    output.talk(f"{told} created")
    if seconds is not None:
        asked = [ObjectSelection(kind, (meta.name,), meta.namespace)]
        await wait_for_all(client, asked, seconds=seconds, stalls=True)
    return made

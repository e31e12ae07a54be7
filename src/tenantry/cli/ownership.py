"""Adds owners to a tenant or a subnamespace, and writes spec.owners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenantry.api.errors import InputError
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.cli import kinds, output
from tenantry.cli.delete import read_existing
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.wait import wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client


def word(owner: Owner) -> str:
    """Return an owner as flags name it: User:ada, Group:devs or ServiceAccount:NAMESPACE/NAME."""
    is_account = owner.kind is OwnerKind.SERVICE_ACCOUNT
    return f"{owner.kind}:{owner.namespace}/{owner.name}" if is_account else f"{owner.kind}:{owner.name}"


async def read_owned(client: Client, asked: ObjectSelection) -> Tenant | Subnamespace:
    """Return the one Tenant or Subnamespace that a command names.

    Raises:
        InputError: It is of another kind.
        NotFound: It does not exist.
    """
    value = await read_existing(client, asked.kind, asked.names[0], asked.namespace)
    if not isinstance(value, Tenant | Subnamespace):
        raise InputError(f"{asked.kind.resource.plural} have no owners; name a Tenant or a Subnamespace")
    return value


async def write(client: Client, value: Tenant | Subnamespace, owners: Sequence[Owner]) -> None:
    """Replace the owners of an object.

    Raises:
        Conflict: The object has changed since it was read: the list is replaced as a whole.
    """
    meta = value.metadata
    patch = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version}, "spec": {"owners": list(owners)}}
    await client.merge_patch(value.resource, meta.namespace, meta.name, patch)


async def add(client: Client, asked: ObjectSelection, owners: Sequence[Owner], *, seconds: int | None) -> None:
    """Add owners, print what changed, and wait until they have their rights.

    Args:
        client: The client of the cluster.
        asked: The one Tenant or Subnamespace.
        owners: The owners; those that it has already are named and stay.
        seconds: The deadline of the operator's work; None does not wait.

    Raises:
        InputError: The object has no owners by its kind.
        Conflict: It was changed meanwhile.
        TenantryError: The deadline has passed, or the object cannot become ready.
    """
    value = await read_owned(client, asked)
    told = kinds.told_key(asked.kind, value.key)
    new = [each for each in dict.fromkeys(owners) if each not in value.spec.owners]
    for each in dict.fromkeys(owners):
        if each not in new:
            output.talk(f"{word(each)} is an owner of {told} already")
    if new:
        await write(client, value, [*value.spec.owners, *new])
    for each in new:
        output.talk(f"{word(each)} added to the owners of {told}")
    if seconds is not None:
        await wait_for_all(client, [asked], seconds=seconds, quiet=True, stalls=True)

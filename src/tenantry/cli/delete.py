"""`tenantry delete`: says what will be gone, asks, deletes, waits until it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import ApiError, InputError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject
from tenantry.api.tenant import Tenant
from tenantry.cli import complete, durations, kinds, output, seen, session
from tenantry.cli.kinds import Asked
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import parse_goal, wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND NAME... | KIND/NAME...", shell_complete=complete.objects
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", "waits", default=True, show_default=True, help="Wait until everything is gone.")
@click.option("--timeout", default="2m", show_default=True, type=durations.DURATION, help="How long to wait.")
def delete(target: Target, *, words: tuple[str, ...], yes: bool, waits: bool, timeout: int) -> None:
    r"""Delete tenants, with their namespaces and everything in them.

    \b
      tenantry delete tenant acme
      tenantry delete tenant/acme tenant/globex --yes --no-wait
    """
    asked = kinds.parse(words)
    for kind, names in asked:
        if not names:
            plural = kind.resource.plural
            raise InputError(f"name the {plural} to delete; `tenantry get {plural}` lists them")
    session.run(target, lambda client: _delete(client, asked, yes=yes, seconds=timeout if waits else None))


async def _delete(client: Client, asked: list[Asked], *, yes: bool, seconds: int | None) -> None:
    # All of them are there, or none is touched.
    doomed = [await _read(client, kind, name) for kind, names in asked for name in names]
    for value in doomed:
        output.talk(await _losses(client, value))
    if not yes:
        confirm(f"Delete {'it' if len(doomed) == 1 else f'all {len(doomed)}'}? This cannot be undone.")
    await remove(client, doomed, seconds=seconds)
    if seconds is None:
        output.talk("deletion has begun; `tenantry wait … --for deleted` waits for its end")


async def remove(client: Client, doomed: Sequence[KubernetesObject], *, seconds: float | None) -> None:
    """Delete objects with everything that they own.

    Args:
        client: Of the cluster.
        doomed: What was shown and agreed to: newer objects of the same names stay.
        seconds: How long to wait until they are gone; None does not wait.

    Raises:
        TenantryError: Time is up; says what is left.
    """
    names: dict[kinds.Kind, list[str]] = {}
    for value in doomed:
        meta = value.metadata
        names.setdefault(type(value), []).append(meta.name)
        try:
            # In the foreground: the object stays, and can be waited for, until all that it owns is gone.
            await client.delete(value.resource, meta.namespace, meta.name, uid=meta.uid, propagation="Foreground")
        except NotFound:
            output.talk(f"{kinds.full_name(type(value), meta.name)} is gone already")
    if seconds is not None:
        asked = [Asked(kind, tuple(each)) for kind, each in names.items()]
        await wait_for_all(client, asked, parse_goal("deleted"), seconds=seconds)


async def _read(client: Client, kind: kinds.Kind, name: str) -> KubernetesObject:
    try:
        return await client.get(kind, name)
    except NotFound as error:
        plural = kind.resource.plural
        raise NotFound(f"{kinds.full_name(kind, name)} is not there; `tenantry get {plural}` lists all") from error


async def _losses(client: Client, value: KubernetesObject) -> str:
    """Return a line that says what goes with an object."""
    name = value.metadata.name
    if not isinstance(value, Tenant):
        return kinds.full_name(type(value), name)
    try:
        namespace = await client.get(Namespace, name)
    except ApiError:
        return f"{kinds.full_name(Tenant, name)}: it has no namespace"
    owners = {owner.uid for owner in namespace.metadata.owner_references}
    if value.metadata.uid not in owners:
        return f"{kinds.full_name(Tenant, name)}: the namespace {name!r} is not the tenant's and stays"
    pods = await seen.count_pods(client, name)
    many = f"{pods} pod{'' if pods == 1 else 's'}" if pods is not None else "its pods"
    return f"{kinds.full_name(Tenant, name)}: namespace {name!r} with {many} and everything else in it"


def confirm(question: str) -> None:
    """Ask a person.

    Raises:
        InputError: Nobody is there to be asked.
        TenantryError: The answer is no.
    """
    if not sys.stdin.isatty():
        raise InputError("this must be confirmed, and stdin is no terminal to ask on; say --yes")
    if not click.confirm(question, err=True):
        raise TenantryError("nothing was deleted")

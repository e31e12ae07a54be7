"""`tenantry delete`: says what will be gone, asks, deletes, waits until it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import ApiError, InputError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.wording import shortened
from tenantry.cli import complete, durations, kinds, output, place, session
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
@place.namespace_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", "waits", default=True, show_default=True, help="Wait until everything is gone.")
@click.option("--timeout", default="2m", show_default=True, type=durations.DURATION, help="How long to wait.")
def delete(target: Target, *, words: tuple[str, ...], namespace: str, yes: bool, waits: bool, timeout: int) -> None:
    r"""Delete tenants or subnamespaces, with their namespaces and everything in them.

    \b
      tenantry delete tenant acme
      tenantry delete tenant/acme tenant/globex --yes --no-wait
      tenantry delete subnamespace web -n acme
    """
    asked = kinds.parse(words)
    for each in asked:
        if not each.names:
            raise InputError(f"name the {each.kind.resource.plural} to delete; `{each.listing}` lists them")
    asked = place.settle(target, asked, namespace)
    session.run(target, lambda client: doom(client, asked, yes=yes, seconds=timeout if waits else None))


async def doom(
    client: Client, asked: Sequence[Asked], *, yes: bool, seconds: int | None, cascades: bool = False
) -> None:
    """Say what goes with the objects that are named, ask, and delete them.

    Args:
        client: Of the cluster.
        asked: Names of objects.
        yes: Do not ask.
        seconds: How long to wait until they are gone; None does not wait.
        cascades: Subnamespaces go with those inside, whatever their spec says.

    Raises:
        NotFound: One of them is not there; then none is touched.
        InputError: One has Subnamespaces inside, and may not be deleted with them.
    """
    doomed = [await _read(client, each, name) for each in asked for name in each.names]
    for value in doomed:
        if isinstance(value, Subnamespace) and not cascades:
            await _check_empty(client, value)
    for value in doomed:
        output.talk(await losses(client, value))
    if not yes:
        confirm(f"Delete {'it' if len(doomed) == 1 else f'all {len(doomed)}'}? This cannot be undone.")
    for value in doomed:
        if cascades and isinstance(value, Subnamespace) and not value.spec.allow_cascading_deletion:
            meta = value.metadata
            patch = {"metadata": {"uid": meta.uid}, "spec": {"allowCascadingDeletion": True}}
            await client.merge_patch(value.resource, meta.namespace, meta.name, patch)
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
    names: dict[tuple[kinds.Kind, str], list[str]] = {}
    for value in doomed:
        kind, meta = type(value), value.metadata
        names.setdefault((kind, meta.namespace), []).append(meta.name)
        # In the foreground: a Tenant stays, and can be waited for, until all that it owns is gone. The others own
        # nothing: a finalizer keeps a Subnamespace until its namespace is gone.
        propagation = "Foreground" if kind is Tenant else "Background"
        try:
            await client.delete(value.resource, meta.namespace, meta.name, uid=meta.uid, propagation=propagation)
        except NotFound:
            output.talk(f"{kinds.told_key(kind, value.key)} is gone already")
    if seconds is not None:
        asked = [Asked(kind, tuple(each), namespace) for (kind, namespace), each in names.items()]
        await wait_for_all(client, asked, parse_goal("deleted"), seconds=seconds)


async def _read(client: Client, asked: Asked, name: str) -> KubernetesObject:
    try:
        return await client.get(asked.kind, name, asked.namespace)
    except NotFound as error:
        told = kinds.told(asked.kind, name, asked.namespace)
        raise NotFound(f"{told} is not there; `{asked.listing}` lists all") from error


async def losses(client: Client, value: KubernetesObject) -> str:
    """Return a line that says what goes with an object."""
    name = value.metadata.name
    if isinstance(value, Subnamespace):
        return await _losses_of_child(client, value)
    if isinstance(value, TenantResourceQuota):
        many = len(value.spec.adjustments)
        return f"{kinds.full_name(type(value), name)}: the operator makes it anew, without its adjustments ({many} now)"
    if not isinstance(value, Tenant):
        return kinds.full_name(type(value), name)
    try:
        namespace = await client.get(Namespace, name)
    except ApiError:
        return f"{kinds.full_name(Tenant, name)}: it has no namespace"
    owners = {owner.uid for owner in namespace.metadata.owner_references}
    if value.metadata.uid not in owners:
        return f"{kinds.full_name(Tenant, name)}: the namespace {name!r} is not the tenant's and stays"
    inside = await _inside(client, name, 0)
    return f"{kinds.full_name(Tenant, name)}: namespace {name!r} with {inside}"


async def _losses_of_child(client: Client, value: Subnamespace) -> str:
    told, child = kinds.told_key(Subnamespace, value.key), value.status.namespace
    if not child:
        return f"{told}: it has no namespace"
    inside = await _inside(client, child, value.status.children, blind=value.spec.mode is Mode.SUBTENANT)
    return f"{told}: namespace {child!r} with {inside}"


async def _check_empty(client: Client, value: Subnamespace) -> None:
    """Refuse what the operator would not carry out: a deletion cannot be taken back."""
    child = value.status.namespace
    from tenantry.views.description import subnamespace_names

    if value.spec.allow_cascading_deletion or not child:
        return
    below = await subnamespace_names(client, child)
    many = value.status.children if below is None else len(below)
    if not many:
        return
    names = f" ({shortened(below or value.status.first_children)})" if value.spec.mode is Mode.WORKSPACE else ""
    meta = value.metadata
    raise InputError(
        f"{kinds.told_key(Subnamespace, value.key)} has {many} subnamespace{'' if many == 1 else 's'} inside{names};"
        f" delete {'it' if many == 1 else 'them'} first, or all with"
        f" `tenantry sub delete {meta.name} -n {meta.namespace} --cascade`"
    )


async def _inside(client: Client, namespace: str, known: int, *, blind: bool = False) -> str:
    """Return what is in a namespace, in words that stand after "with".

    Args:
        client: Of whoever asks, who may not see it.
        namespace: What goes.
        known: How many Subnamespaces are in it, as far as its own Subnamespace tells.
        blind: Names are nobody's business: only how many.
    """
    from tenantry.views.description import count_pods, subnamespace_names

    pods = await count_pods(client, namespace)
    words = [f"{pods} pod{'' if pods == 1 else 's'}" if pods is not None else "its pods"]
    below = await subnamespace_names(client, namespace)
    many = known if below is None else len(below)
    if many:
        names = "" if blind or not below else f" ({shortened(below)})"
        words.append(f"{many} subnamespace{'' if many == 1 else 's'}{names} and what is below")
    return f"{', '.join(words)} and everything else in it"


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

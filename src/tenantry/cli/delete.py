"""`tenantry delete`: lists what the deletion removes, asks for confirmation, deletes and waits."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from tenantry.api.dedicatedcluster import ClusterProvider, DedicatedCluster
from tenantry.api.errors import ApiError, InputError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject
from tenantry.api.subnamespace import Mode, Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.tenantresourcequota import TenantResourceQuota
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.api.wording import shortened
from tenantry.cli import flags, kinds, output, place, refusals, session
from tenantry.cli.completion import candidates
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import GONE, wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client


K = TypeVar("K", bound=KubernetesObject)
R = TypeVar("R")


@click.command()
@takes_target
@click.argument(
    "words", nargs=-1, required=True, metavar="KIND NAME... | KIND/NAME...", shell_complete=candidates.objects
)
@place.namespace_option
@flags.yes_option
@flags.takes_wait("Wait until everything is gone.", default=True, timeout="2m")
def delete(target: Target, *, words: tuple[str, ...], namespace: str, yes: bool, seconds: int | None) -> None:
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
    session.run(target, lambda client: delete_objects(client, asked, yes=yes, seconds=seconds))


async def delete_objects(
    client: Client,
    asked: Sequence[ObjectSelection],
    *,
    yes: bool,
    seconds: int | None,
    cascades: bool = False,
    before: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Print what the deletion removes, ask for confirmation, and delete the selected objects.

    Args:
        client: The client of the cluster.
        asked: The objects.
        yes: Do not ask for confirmation.
        seconds: How long to wait until they are gone; None does not wait.
        cascades: Allow Subnamespaces to be deleted with those inside.
        before: Called after the confirmation, before anything is deleted; None for nothing.

    Raises:
        NotFound: One of them does not exist; then none is deleted.
        InputError: One has Subnamespaces inside, and may not be deleted with them.
    """
    deleted = [await read_existing(client, each.kind, name, each.namespace) for each in asked for name in each.names]
    for value in deleted:
        if isinstance(value, Subnamespace) and not cascades:
            await _check_empty(client, value)
    for value in deleted:
        # All losses are shown before the one question.
        output.talk(await losses(client, value))
    if not yes:
        confirm(f"Delete {'it' if len(deleted) == 1 else f'all {len(deleted)}'}? This cannot be undone.")
    if before is not None:
        await before()
    for value in deleted:
        if cascades and isinstance(value, Subnamespace) and not value.spec.allow_cascading_deletion:
            meta = value.metadata
            patch = {"metadata": {"uid": meta.uid}, "spec": {"allowCascadingDeletion": True}}
            await client.merge_patch(value.resource, meta.namespace, meta.name, patch)
    await remove(client, deleted, seconds=seconds)
    if seconds is None:
        waits = shortened((f"`{_waiting(each)}`" for each in deleted), in_order=True)
        output.talk(f"deletion has begun; {waits} waits until it is complete")


def _waiting(value: KubernetesObject) -> str:
    """Return the command that waits for the end of an object."""
    meta, word = value.metadata, value.resource.kind.lower()
    where = f" -n {meta.namespace}" if meta.namespace else ""
    return f"tenantry wait {word} {meta.name}{where} --for deleted"


async def remove(client: Client, deleted: Sequence[KubernetesObject], *, seconds: float | None) -> None:
    """Delete objects with everything that they own.

    Args:
        client: The client of the cluster.
        deleted: The objects that were shown and confirmed: newer objects of the same names stay.
        seconds: How long to wait until they are gone; None does not wait.

    Raises:
        TenantryError: The deadline has passed; the message lists what is left.
    """
    names: dict[tuple[kinds.Kind, str], list[str]] = {}
    for value in deleted:
        kind, meta = type(value), value.metadata
        names.setdefault((kind, meta.namespace), []).append(meta.name)
        # In the foreground, a Tenant stays until everything that it owns is gone, so the command can wait for it. The
        # other kinds own nothing: a finalizer keeps a Subnamespace until its namespace is gone.
        propagation = "Foreground" if kind is Tenant else "Background"
        try:
            await client.delete(value.resource, meta.namespace, meta.name, uid=meta.uid, propagation=propagation)
        except NotFound:
            output.talk(f"{kinds.told_key(kind, value.key)} is already gone")
    if seconds is not None:
        asked = [ObjectSelection(kind, tuple(each), namespace) for (kind, namespace), each in names.items()]
        await wait_for_all(client, asked, GONE, seconds=seconds)


async def read_existing(client: Client, kind: type[K], name: str, namespace: str = "") -> K:
    """Return an object that the command line names.

    Raises:
        NotFound: It does not exist; the message names the command that lists all.
    """
    return await existing(client.get(kind, name, namespace), kind, name, namespace)


async def existing(reading: Coroutine[object, object, R], kind: kinds.Kind, name: str, namespace: str = "") -> R:
    """Return what is read of an object that the command line names.

    Raises:
        NotFound: As for `read_existing`; or the API server does not have its kind.
    """
    try:
        return await reading
    except NotFound as error:
        if refusals.lacks_kind(error):
            raise
        listing = ObjectSelection(kind, (), namespace).listing
        if kind is DedicatedCluster and namespace == name:
            # The namespace is perhaps only assumed, and does not exist.
            raise NotFound(
                f"{kinds.told(kind, name, namespace)} does not exist; -n names another namespace, and `tenantry cluster"
                " list` lists all"
            ) from error
        raise NotFound(f"{kinds.told(kind, name, namespace)} does not exist; `{listing}` lists all") from error


_INSIDE: dict[type[KubernetesObject], str] = {
    VirtualControlPlane: ": its API server with all objects inside, and its pods",
    DedicatedCluster: ": its API server with all objects inside; its nodes return to the host without its pods",
}


def _inside_of(value: KubernetesObject) -> str:
    if isinstance(value, DedicatedCluster) and value.status.provider is ClusterProvider.CLUSTER_API:
        return ": Cluster API deletes its Cluster with all objects inside, and the machines of that"
    return _INSIDE.get(type(value), "")


async def _returning(client: Client, value: DedicatedCluster) -> str:
    """Return that the operator creates a cluster again; "" if it does not, or if the user may not read the Tenant."""
    from tenantry.controllers import tenantcluster

    name = value.metadata.name
    try:
        tenant = await client.get(Tenant, name) if value.metadata.namespace == name else None
    except ApiError:
        return ""
    if tenant is None or not tenantcluster.is_wanted(tenant):
        return ""
    return (
        f"; then the operator creates it again, empty and with the defaults of a new one, because Tenant {name!r} has"
        " isolation.controlPlane: Dedicated"
    )


async def losses(client: Client, value: KubernetesObject) -> str:
    """Return a line that lists what the deletion of an object removes."""
    name = value.metadata.name
    if isinstance(value, Subnamespace):
        return await _losses_of_child(client, value)
    if isinstance(value, TenantResourceQuota):
        many = len(value.spec.adjustments)
        return (
            f"{kinds.full_name(type(value), name)}: the operator creates it again, without its adjustments ({many} now)"
        )
    if not isinstance(value, Tenant):
        again = await _returning(client, value) if isinstance(value, DedicatedCluster) else ""
        return f"{kinds.told_key(type(value), value.key)}{_inside_of(value)}{again}"
    try:
        namespace = await client.get(Namespace, name)
    except ApiError:
        return f"{kinds.full_name(Tenant, name)}: it has no namespace"
    owners = {owner.uid for owner in namespace.metadata.owner_references}
    if value.metadata.uid not in owners:
        return f"{kinds.full_name(Tenant, name)}: the namespace {name!r} does not belong to the tenant and stays"
    inside = await _inside(client, name, 0)
    return f"{kinds.full_name(Tenant, name)}: namespace {name!r} with {inside}"


async def _losses_of_child(client: Client, value: Subnamespace) -> str:
    told, child = kinds.told_key(Subnamespace, value.key), value.status.namespace
    if not child:
        return f"{told}: it has no namespace"
    inside = await _inside(client, child, value.status.children, blind=value.spec.mode is Mode.SUBTENANT)
    return f"{told}: namespace {child!r} with {inside}"


async def _check_empty(client: Client, value: Subnamespace) -> None:
    """Refuse a deletion that the operator would not complete: a deletion cannot be undone."""
    from tenantry.views.description import subnamespace_names

    child = value.status.namespace
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
    """Return the contents of a namespace, in words that stand after "with".

    Args:
        client: The user's, who may lack the right to list the contents.
        namespace: The namespace.
        known: How many Subnamespaces it has according to the status of its own Subnamespace.
        blind: Print no names, only their number.
    """
    from tenantry.views.description import count_pods, plane_names, subnamespace_names

    pods = await count_pods(client, namespace)
    words = [f"{pods} pod{'' if pods == 1 else 's'}" if pods is not None else "its pods"]
    below = await subnamespace_names(client, namespace)
    many = known if below is None else len(below)
    if many:
        names = "" if blind or not below else f" ({shortened(below)})"
        words.append(f"{many} subnamespace{'' if many == 1 else 's'}{names} and what is below")
    planes = await plane_names(client, namespace)
    if planes:
        words.append(f"control plane{'' if len(planes) == 1 else 's'} {shortened(planes)} with all objects inside")
    return f"{', '.join(words)} and everything else in it"


def confirm(question: str, refused: str = "nothing was deleted") -> None:
    """Ask for confirmation.

    Raises:
        InputError: stdin is not a terminal.
        TenantryError: The answer is no.
    """
    if not sys.stdin.isatty():
        raise InputError("this needs a confirmation, and stdin is not a terminal; confirm with --yes")
    if not click.confirm(question, err=True):
        raise TenantryError(refused)

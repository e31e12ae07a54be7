"""`tenantry uninstall`: removes Tenantry from a cluster, and never removes tenants unless asked."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

import click

from tenantry.api.clusterapi import CLUSTER_API_KINDS
from tenantry.api.clusterinventory import CLUSTER_ID, ClusterProperty
from tenantry.api.errors import InputError, NotFound, RetryableError
from tenantry.api.flowcontrol import FlowSchema, PriorityLevelConfiguration
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding, Namespace
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import Json, KubernetesObject, Model, ObjectMeta, object_key
from tenantry.api.nodehandover import NodeHandover
from tenantry.api.nodeview import ROLE_PREFIX
from tenantry.api.ownnamespaces import OWN_NAMESPACES
from tenantry.api.requests import FINALIZER, REQUESTER_ROLE_PREFIX, TenantRequest
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, output, session
from tenantry.cli.delete import confirm, remove
from tenantry.cli.install import name_of
from tenantry.cli.target import Target, takes_target
from tenantry.controllers.fairness.desired import MIRRORS, RESERVED_PREFIX, TRUSTED
from tenantry.install import clusterapi, clusterctl, fallback, manifests
from tenantry.install.planepods import PodOptions
from tenantry.install.waves import CRDS, resource_of
from tenantry.local.clusters import local_cluster_at
from tenantry.local.components import OPERATOR

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.local.cluster import LocalCluster


class _Made(Model, frozen=True, kw_only=True):
    metadata: ObjectMeta


_MADE: dict[type[KubernetesObject], tuple[str, ...]] = {
    ClusterRoleBinding: (REQUESTER_ROLE_PREFIX, ROLE_PREFIX),
    ClusterRole: (REQUESTER_ROLE_PREFIX, ROLE_PREFIX),
    FlowSchema: (RESERVED_PREFIX, TRUSTED, MIRRORS),
    PriorityLevelConfiguration: (RESERVED_PREFIX, MIRRORS),
    ClusterProperty: (CLUSTER_ID,),
}
"""The prefixes of the names of cluster-scoped objects that the operator creates, by kind."""


@click.command()
@takes_target
@flags.yes_option
@click.option("--delete-tenants", is_flag=True, help="Delete all tenants first, with everything in them.")
@durations.timeout_option("5m", "Deadline, as in 30s or 5m.")
def uninstall(target: Target, *, yes: bool, delete_tenants: bool, timeout: int) -> None:
    """Remove Tenantry's operator, policies, rights and kinds from a cluster.

    The command is refused while tenants exist: with the kind, Kubernetes deletes every Tenant and its namespace with
    everything in it. --delete-tenants confirms that you want this. The command is refused while objects of Cluster API
    are of Tenantry's kinds, too. The kinds ClusterProperty and ClusterProfile, which other programs use, too, stay, and
    so does what clusterctl installed.
    """

    def work(client: Client) -> Coroutine[Any, Any, None]:
        local = local_cluster_at(target.connection().server)
        return _uninstall(client, local, yes=yes, delete_tenants=delete_tenants, seconds=timeout)

    session.run(target, work)


async def _uninstall(
    client: Client, local: LocalCluster | None, *, yes: bool, delete_tenants: bool, seconds: int
) -> None:
    from tenantry.install import apply, installed

    await installed.require_no_release(client)
    await apply.require_known(client)
    tenants = await _tenants(client)
    names = shortened(tenant.metadata.name for tenant in tenants)
    if tenants and not delete_tenants:
        raise InputError(
            f"there are still tenants, and they would be gone with everything in them: {names};"
            " delete them first, or say --delete-tenants"
        )
    if tenants:
        output.talk(f"tenants, with everything in them: {names}")
    output.talk(
        f"Tenantry: its operator, policies, rights and kinds, and the namespaces {', '.join(map(repr, OWN_NAMESPACES))}"
    )
    if not yes:
        confirm("Delete all this? This cannot be undone.")
    try:
        async with asyncio.timeout(seconds):
            if tenants:
                await remove(client, tenants, seconds=seconds)
            others = await _of_clusterctl(client)
            await _require_no_clusters(client)
            await _return_nodes(client)
            # Not earlier, because tenants end with the operator's help. A local one is a process of this machine.
            if local is not None and await _stop_operator(local):
                output.talk(f"the operator of the local cluster {local.name!r} stopped")
            # In other clusters it still runs for a while, and must not write anew what is deleted next.
            await apply.end_rights(client, manifests.operator_bindings())
            # The operator goes before its rights, and the kinds and the namespace go last.
            whole = (*fallback.leftovers(), *apply.retired(), *_own()[::-1])
            backwards = [each for each in whole if name_of(each) not in others]
            foundation = sorted(filter(_is_foundation, backwards), key=_is_foundation)
            for value in (each for each in backwards if not _is_foundation(each)):
                await _delete(client, value)
            await _release(client)
            for value in foundation:
                await _delete(client, value)
            await _gone(client)
    except TimeoutError as error:
        raise RetryableError(
            f"not everything is gone after {durations.text(seconds)}; run the command again to go on"
        ) from error


def _own() -> list[Json]:
    """Return what `tenantry install` applies, with all of its options."""
    subject = manifests.SERVICE_ACCOUNT
    pods = PodOptions(image="", shards=2, has_etcd=True)
    return [*manifests.everything(pods=pods), *clusterapi.everything(subject), *clusterapi.clusters(subject)]


async def _of_clusterctl(client: Client) -> set[str]:
    """Return the names, as in messages, of the kinds that clusterctl installed: `clusterctl delete` removes them."""
    listed = client.items(CRDS, _Made, selectors={"labelSelector": clusterctl.MARK})
    return {f"{CRDS.kind} {each.metadata.name}" async for each in listed}


async def _require_no_clusters(client: Client) -> None:
    """Check that no object of Cluster API depends on the kinds and the operator: without these, it could not end.

    Raises:
        InputError: There are some.
    """
    left: list[str] = []
    for kind in CLUSTER_API_KINDS:
        with suppress(NotFound):  # the kind is not installed
            found = [each.metadata async for each in client.items(kind.resource, _Made)]
            left += [f"{kind.resource.kind} {object_key(each.namespace, each.name)}" for each in found]
    if left:
        raise InputError(
            f"Clusters of Cluster API use the kinds of Tenantry: {shortened(left)}; delete these Clusters, and the"
            " templates of them, first"
        )


async def _tenants(client: Client) -> list[Tenant]:
    try:
        return await client.list(Tenant)
    except NotFound:
        return []  # the kind does not exist


async def _return_nodes(client: Client) -> None:
    """Wait until the operator has given nodes back to the host that serve other clusters."""
    from tenantry.cli.following import follow

    asked: set[str] = set()
    # The kind may be gone, or be older than this version.
    with suppress(NotFound):
        async with aclosing(follow(client, NodeHandover)) as handovers:
            async for found in handovers:
                if not found:
                    return
                for each in (each for each in found.values() if each.metadata.uid not in asked):
                    asked.add(each.metadata.uid)
                    with suppress(NotFound):
                        await client.delete(NodeHandover.resource, "", each.metadata.name)
                output.talk(f"nodes return from other clusters: {shortened(sorted(found))}")


async def _stop_operator(local: LocalCluster) -> bool:
    """Stop the operator of a local cluster, and return whether it ran."""
    found = local.status().component(OPERATOR)
    if found is None or not found.pid:
        return False
    await local.stop_component(OPERATOR)
    return True


async def _release(client: Client) -> None:
    """Delete what the operator created outside of tenants, and finalizers of requests: these would hold their kind."""
    # A garbage collector deletes no object whose owner's kind is gone.
    ours = {"labelSelector": f"{MANAGED_BY}={MANAGER}"}
    for kind, prefixes in _MADE.items():
        # By their names alone: installed objects that are being deleted may lack fields that the models require.
        made: list[_Made] = []
        with suppress(NotFound):  # a kind of another project may be gone
            made = [each async for each in client.items(kind.resource, _Made, selectors=ours)]
        for found in made:
            if found.metadata.name.startswith(prefixes):
                with suppress(NotFound):
                    await client.delete(kind.resource, "", found.metadata.name)
    try:
        requests = await client.list(TenantRequest)
    except NotFound:
        return  # the kind is gone already
    for found in requests:
        meta = found.metadata
        rest = [name for name in meta.finalizers if name != FINALIZER]
        if len(rest) < len(meta.finalizers):
            with suppress(NotFound):
                await client.merge_patch(TenantRequest.resource, "", meta.name, {"metadata": {"finalizers": rest}})


def _is_foundation(value: Json) -> int:
    return {"CustomResourceDefinition": 1, "Namespace": 2}.get(value["kind"], 0)


async def _delete(client: Client, value: Json) -> None:
    meta = value["metadata"]
    try:
        await client.delete(resource_of(value), meta.get("namespace", ""), meta["name"], propagation="Foreground")
    except NotFound:
        return
    output.talk(f"{name_of(value)} deleted")


async def _gone(client: Client) -> None:
    """Wait until the namespaces are gone: a new installation could write nothing in one that is being deleted."""
    from tenantry.cli.following import follow, only

    for name in OWN_NAMESPACES:
        async with aclosing(follow(client, Namespace, selectors=only((name,)))) as namespaces:
            async for found in namespaces:
                if name not in found:
                    break

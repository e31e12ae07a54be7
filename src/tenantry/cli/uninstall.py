"""`tenantry uninstall`: removes Tenantry from a cluster, and never removes tenants unless asked."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError, NotFound, RetryableError
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding, Namespace
from tenantry.api.marks import MANAGED_BY, MANAGER, SYSTEM_NAMESPACE
from tenantry.api.model import Json
from tenantry.api.nodeview import ROLE_PREFIX
from tenantry.api.requests import FINALIZER, REQUESTER_ROLE_PREFIX, TenantRequest
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, output, session
from tenantry.cli.delete import confirm, remove
from tenantry.cli.install import name_of
from tenantry.cli.target import Target, takes_target
from tenantry.install import manifests

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command()
@takes_target
@flags.yes_option
@click.option("--delete-tenants", is_flag=True, help="Delete all tenants first, with everything in them.")
@durations.timeout_option("5m", "Deadline, as in 30s or 5m.")
def uninstall(target: Target, *, yes: bool, delete_tenants: bool, timeout: int) -> None:
    """Remove Tenantry's operator, policies, rights and kinds from a cluster.

    The command is refused while tenants exist: with the kind, Kubernetes deletes every Tenant and its namespace with
    everything in it. --delete-tenants confirms that you want this.
    """
    session.run(target, lambda client: _uninstall(client, yes=yes, delete_tenants=delete_tenants, seconds=timeout))


async def _uninstall(client: Client, *, yes: bool, delete_tenants: bool, seconds: int) -> None:
    from tenantry.install import apply

    tenants = await _tenants(client)
    names = shortened(tenant.metadata.name for tenant in tenants)
    if tenants and not delete_tenants:
        raise InputError(
            f"there are still tenants, and they would be gone with everything in them: {names};"
            " delete them first, or say --delete-tenants"
        )
    if tenants:
        output.talk(f"tenants, with everything in them: {names}")
    output.talk(f"Tenantry: its operator, policies, rights and kinds, and the namespace {SYSTEM_NAMESPACE!r}")
    if not yes:
        confirm("Delete all this? This cannot be undone.")
    try:
        async with asyncio.timeout(seconds):
            if tenants:
                await remove(client, tenants, seconds=seconds)
            # It still runs for a while, or as long as a local cluster: it must not write anew what is deleted next.
            await apply.end_rights(client, manifests.operator_bindings())
            # The operator goes before its rights, and the kinds and the namespace go last.
            backwards = manifests.everything()[::-1]
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


async def _tenants(client: Client) -> list[Tenant]:
    try:
        return await client.list(Tenant)
    except NotFound:
        return []  # the kind does not exist


async def _release(client: Client) -> None:
    """Delete the roles of requesters and contributed nodes, and finalizers of requests: these would hold their kind."""
    for kind in (ClusterRoleBinding, ClusterRole):
        for found in await client.list(kind, selectors={"labelSelector": f"{MANAGED_BY}={MANAGER}"}):
            if found.metadata.name.startswith((REQUESTER_ROLE_PREFIX, ROLE_PREFIX)):
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
    from tenantry.install.waves import resource_of

    meta = value["metadata"]
    try:
        await client.delete(resource_of(value), meta.get("namespace", ""), meta["name"], propagation="Foreground")
    except NotFound:
        return
    output.talk(f"{name_of(value)} deleted")


async def _gone(client: Client) -> None:
    """Wait until the namespace is gone: Kubernetes deletes it last."""
    from tenantry.cli.following import follow, only

    async with aclosing(follow(client, Namespace, selectors=only((SYSTEM_NAMESPACE,)))) as namespaces:
        async for found in namespaces:
            if SYSTEM_NAMESPACE not in found:
                return

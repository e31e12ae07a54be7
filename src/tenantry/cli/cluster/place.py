"""Where a cluster of a tenant is, and the host cluster that has it: a local one is started if there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import click

from tenantry.api.errors import ConfigError, Forbidden, InputError, LocalError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import Tenant, TenantSpec
from tenantry.cli import kinds, output, place
from tenantry.cli.groupflags import CLUSTER_FLAGS, outwards
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import DEFAULT_NAME, Target, read_environment
from tenantry.cli.wait import wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.local.cluster import LocalCluster

LocalRuntime = Literal["kwok", "real"]
"""Nodes of a local cluster: simulated, or real."""

TENANT_SECONDS = 180

SHARED_NODES = 1
"""The nodes that stay with the host: `spec.slices.sharedNodes` of TenancyDefaults in a new cluster."""

in_tenant = place.takes_namespace("Namespace of the tenant (default: that of the tenant with the cluster's name).")


def found_or_started(find: Callable[[], Target], nodes: int, runtime: LocalRuntime | None) -> Target:
    """Return the target; if there is no cluster at all, start the local one first, without its nodes.

    Args:
        find: Returns the target that the flags and the environment name.
        nodes: How many nodes a new local cluster has for the cluster of the tenant.
        runtime: Which nodes it has; None for simulated ones.

    Raises:
        InputError: A local cluster has other nodes.
        ConfigError: Flags or the environment name another cluster, or no cluster while others run.
        LocalError: The named local cluster does not run, or the default one does not start.
    """
    try:
        return _with_nodes(find(), runtime)
    except (ConfigError, LocalError):
        if not _means_default():
            raise
    from tenantry.cli.local.up import up
    from tenantry.local.cluster import LocalCluster

    local = LocalCluster(DEFAULT_NAME)
    if local.exists():
        # One that was stopped has its nodes already.
        _check_nodes(local, runtime)
        output.talk(f"no cluster runs on this machine: starting the local cluster {DEFAULT_NAME!r}")
        click.get_current_context().invoke(up, name=DEFAULT_NAME, waits=False)
        return find()
    count = nodes + SHARED_NODES
    kind = "simulated" if runtime in {None, "kwok"} else "real"
    told = f" with {count} {kind} nodes, of which {SHARED_NODES} stays with it"
    output.talk(f"no cluster runs on this machine: starting the local cluster {DEFAULT_NAME!r}{told}")
    # The cluster of the tenant waits for its nodes itself, while its control plane starts.
    click.get_current_context().invoke(up, name=DEFAULT_NAME, count=count, runtime=runtime, waits=False)
    return find()


def _with_nodes(target: Target, runtime: LocalRuntime | None) -> Target:
    """Return a target that has the wanted kind of nodes.

    Raises:
        InputError: It has others.
    """
    from tenantry.local.cluster import LocalCluster

    if runtime is not None and target.local_name is None:
        raise InputError("--runtime is for local clusters: another cluster has the nodes that it has")
    if target.local_name is not None:
        _check_nodes(LocalCluster(target.local_name), runtime)
    return target


def _check_nodes(local: LocalCluster, runtime: LocalRuntime | None) -> None:
    has = "real" if local.spec().real is not None else "kwok"
    if runtime not in {None, has}:
        raise InputError(
            f"the local cluster {local.name!r} has {'real' if has == 'real' else 'simulated'} nodes already: leave"
            f" --runtime {runtime} out, or name another cluster with --cluster"
        )


def _means_default() -> bool:
    """Return whether the flags and the environment mean the default local cluster, and no other one runs."""
    given, environment = click.get_current_context(), read_environment()
    flags = [each.params.get(key) for each in outwards(given) for key in CLUSTER_FLAGS]
    name = given.params.get("name") or environment.name or DEFAULT_NAME
    is_elsewhere = any(flags) or bool(environment.kubeconfig) or environment.in_pod
    return name == DEFAULT_NAME and not is_elsewhere and not any(map(environment.is_running, environment.names()))


async def ensure_tenant(client: Client, name: str) -> None:
    """Create the tenant of a cluster if there is no namespace of its name; the caller becomes its owner.

    Raises:
        Forbidden: The caller may not create tenants.
        TenantryError: The tenant is not ready in time.
    """
    from tenantry.views.acting import acting_as

    try:
        await client.get(Namespace, name)
    except NotFound:
        pass
    except Forbidden:
        return  # the API server says whether the caller may create the cluster there
    else:
        return
    async with acting_as(client, "", ()) as caller:
        owner = owner_of(caller.user)
    try:
        await client.create(Tenant(metadata=ObjectMeta(name=name), spec=TenantSpec(owners=(owner,))))
    except Forbidden as error:
        raise Forbidden(
            f"there is no tenant {name!r}, and you may not create one: name the namespace of your tenant with -n"
        ) from error
    output.talk(f"{kinds.full_name(Tenant, name)} created: its owner is {owner.kind.value} {owner.name!r}")
    # The operator of a cluster that was just started may still be starting, on a busy machine.
    await wait_for_all(client, [ObjectSelection(Tenant, (name,))], seconds=TENANT_SECONDS, quiet=True)


_ACCOUNTS = "system:serviceaccount:"


def owner_of(user: str) -> Owner:
    """Return the owner that a user name means."""
    if not user.startswith(_ACCOUNTS):
        return Owner(kind=OwnerKind.USER, name=user)
    namespace, _, name = user.removeprefix(_ACCOUNTS).partition(":")
    return Owner(kind=OwnerKind.SERVICE_ACCOUNT, name=name, namespace=namespace)

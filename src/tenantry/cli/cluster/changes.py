"""`tenantry cluster scale`, `sleep`, `wake` and `delete`: change a cluster that exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.dedicatedcluster import DEFAULT_POOL, DedicatedCluster, SleepingNodes
from tenantry.api.errors import Conflict, InputError
from tenantry.api.marks import LEAVE_NODES
from tenantry.api.model import Json
from tenantry.api.slice import MAX_NODES
from tenantry.api.virtualcontrolplane import PlanePhase
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, gitmanaged, kinds, output, phases, session
from tenantry.cli.cluster.place import in_tenant
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_called = click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
_WRITES = 10
"""How often the pools are written while the operator writes the status at the same time."""


@click.command()
@takes_target
@_called
@in_tenant
@click.option(
    "--nodes", type=click.IntRange(0, MAX_NODES), required=True, help=f"Number of nodes, from 0 to {MAX_NODES}."
)
@click.option("--pool", default=DEFAULT_POOL, show_default=True, metavar="POOL", help="Pool that gets this number.")
@flags.takes_wait("Wait until the cluster and all of its nodes are ready.", timeout="5m")
@gitmanaged.force_option
def scale(
    target: Target, *, called: str, namespace: str, nodes: int, pool: str, seconds: int | None, forced: bool
) -> None:
    r"""Change the number of nodes of a cluster.

    Nodes that leave it are drained inside, and return to the host. Exit code: 0 the number is changed, and with --wait
    reached; 1 it is refused, or not reached before the deadline, or Git decides about the cluster, and the patch for
    Git is on stdout; 2 the input is wrong.

    \b
      tenantry cluster scale acme --nodes 3 --wait
      kubectl scale dcl acme -n acme --replicas 3
    """
    where = namespace or called

    async def work(client: Client) -> None:
        await _resize(client, called, where, pool, nodes, forced=forced)
        count = "1 node" if nodes == 1 else f"{nodes} nodes"
        output.talk(f"{kinds.told(DedicatedCluster, called, where)} is to have {count} in pool {pool!r}")
        if seconds is not None:
            asked = [ObjectSelection(DedicatedCluster, (called,), where)]
            await wait_for_all(client, asked, seconds=seconds, stalls=True)

    session.run(target, work)


async def _resize(client: Client, name: str, namespace: str, pool: str, nodes: int, *, forced: bool) -> None:
    """Write the number of nodes of a pool.

    Raises:
        Conflict: Other clients write the object all the time.
        InputError: There is no such pool.
        TenantryError: Git decides about the cluster.
    """
    first = await _existing(client, name, namespace)
    change: Json = {"spec": {"nodes": nodes} if pool == DEFAULT_POOL else _sized(first, pool, nodes)}
    await gitmanaged.check(client, DedicatedCluster, name, namespace, change, forced=forced)
    about: Json = {"uid": first.metadata.uid}
    if pool == DEFAULT_POOL:
        # One field, which needs no precondition: the operator writes the status at the same time.
        await client.merge_patch(first.resource, namespace, name, {"metadata": about, "spec": {"nodes": nodes}})
        return
    found = first
    for _ in range(_WRITES):
        exact: Json = {**about, "resourceVersion": found.metadata.resource_version}
        try:
            patch: Json = {"metadata": exact, "spec": _sized(found, pool, nodes)}
            await client.merge_patch(found.resource, namespace, name, patch)
        except Conflict:
            found = await _existing(client, name, namespace)
            continue
        return
    raise Conflict(
        f"{kinds.told(DedicatedCluster, name, namespace)}: pool {pool!r} is not changed, because others write the"
        " object all the time: try again",
        status=409,
    )


def _sized(found: DedicatedCluster, pool: str, nodes: int) -> Json:
    """Return the merge patch of the spec by which a pool of `spec.pools` has another number of nodes.

    Raises:
        InputError: There is no such pool.
    """
    names = [each.name for each in found.spec.pools]
    if pool not in names:
        known = shortened(map(repr, [DEFAULT_POOL, *names]))
        raise InputError(f"--pool {pool!r} is not a pool of the cluster; pools are {known}")
    # A merge patch replaces the whole list.
    changed = [msgspec.structs.replace(each, count=nodes) if each.name == pool else each for each in found.spec.pools]
    return {"pools": msgspec.to_builtins(changed)}


@click.command()
@takes_target
@_called
@in_tenant
@click.option(
    "--release-nodes/--keep-nodes",
    "releases",
    default=None,
    help="Drain its nodes and give them back first, or keep them (default: as spec.sleep.nodes says).",
)
@durations.timeout_option("5m", "Deadline for the outcome, as in 30s or 5m.")
@gitmanaged.force_option
def sleep(target: Target, *, called: str, namespace: str, releases: bool | None, timeout: int, forced: bool) -> None:
    r"""End the process of a cluster's control plane; its objects stay, and its nodes stay with it.

    With --release-nodes, its nodes return to the host, and their quota to the tenant; a cluster that wakes claims nodes
    again. The next connection, or `tenantry cluster wake`, starts it. Exit code: 0 it sleeps; 1 it does
    not, or Git decides about the cluster, and the patch for Git is on stdout.

    \b
      tenantry cluster sleep acme
      tenantry cluster sleep acme --release-nodes
    """
    nodes = SleepingNodes.RELEASE if releases else SleepingNodes.KEEP
    spec: Json | None = {"sleep": {"nodes": nodes.value}} if releases is not None else None
    where = namespace or called
    phases.bring(target, called, where, PlanePhase.ASLEEP, timeout, kind=DedicatedCluster, forced=forced, spec=spec)
    if releases is not None:
        other = "--keep-nodes" if releases else "--release-nodes"
        output.talk(
            f"spec.sleep.nodes of {kinds.told(DedicatedCluster, called, where)} is {nodes} from now on, also when it"
            f" sleeps by itself; `tenantry cluster sleep {called} -n {where} {other}` changes it"
        )


@click.command()
@takes_target
@_called
@in_tenant
@durations.timeout_option("2m", "Deadline for the outcome, as in 30s or 5m.")
@gitmanaged.force_option
def wake(target: Target, *, called: str, namespace: str, timeout: int, forced: bool) -> None:
    r"""Start the control plane of a cluster that sleeps, and wait until it is usable.

    Exit code: 0 it is awake; 1 it is not, or Git decides about the cluster, and the patch for Git is on stdout.

    \b
      tenantry cluster wake acme
    """
    where = namespace or called
    phases.bring(target, called, where, PlanePhase.AWAKE, timeout, kind=DedicatedCluster, forced=forced)


@click.command()
@takes_target
@_called
@in_tenant
@click.option(
    "--leave-nodes",
    "leaves",
    is_flag=True,
    help="Do not wait for its nodes. One that does not answer stays out of the host until it returns.",
)
@flags.yes_option
@flags.takes_wait("Wait until everything is gone.", default=True, timeout="5m")
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def delete(
    target: Target,
    *,
    called: str,
    namespace: str,
    leaves: bool,
    yes: bool,
    seconds: int | None,
    form: str | None,
) -> None:
    r"""Delete a cluster with all objects inside; its nodes return to the host.

    It waits for its nodes for two minutes, besides the time in which their pods stop, and for those that are not Ready
    for 20 seconds. With --leave-nodes, also while it ends already, it does not wait. Exit code: 0 it is gone, or with
    --no-wait ends; 1 it is not gone before the deadline, and Ready of the cluster says what it waits for.

    \b
      tenantry cluster delete acme
      tenantry cluster delete acme --leave-nodes
    """
    from tenantry.cli.delete import delete_objects

    where = namespace or called
    asked = [ObjectSelection(DedicatedCluster, (called,), where)]

    async def work(client: Client) -> DedicatedCluster:
        found = await _existing(client, called, where)

        async def leave() -> None:
            note = {"metadata": {"uid": found.metadata.uid, "annotations": {LEAVE_NODES: "true"}}}
            await client.merge_patch(found.resource, where, called, note)

        await delete_objects(client, asked, yes=yes, seconds=seconds, before=leave if leaves else None)
        return found

    found = session.run(target, work)
    if form:
        flags.print_one(found, output.whole(found), form)


async def _existing(client: Client, name: str, namespace: str) -> DedicatedCluster:
    from tenantry.cli.delete import read_existing

    return await read_existing(client, DedicatedCluster, name, namespace)

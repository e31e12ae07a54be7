"""The peers of a local cluster that `tenantry up --peers` starts: whole or light clusters, joined to it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tenantry.api.errors import InputError
from tenantry.cli import peerhalves
from tenantry.cli.bench.running import available_mib
from tenantry.local import lightpeers, nodes, peers
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.spec import PeerForm, StartedPeer

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.local.progress import Progress

HARD: dict[str, int | str] = {"cpu": "1000", "memory": "4000Gi", "pods": "10000"}
"""What a home gets of each of its peers: enough for what one machine simulates."""

MOST_NAMESPACES = 1000
_AT_ONCE = 4


def check(home: LocalCluster, count: int, *, light: bool, has_operator: bool) -> tuple[StartedPeer, ...]:
    """Return the peers that a cluster should have, before anything is started.

    Raises:
        InputError: There cannot be so many, or a name is taken.
    """
    form = PeerForm.LIGHT if light else PeerForm.WHOLE
    found = peers.wanted(home, count, form, has_operator=has_operator)
    running = home.spec().peers if home.exists() and home.is_running() else ()
    started = [each for each in found if each.form is PeerForm.LIGHT and each not in running]
    needed = sum(lightpeers.MANAGED_MIB if each.has_operator else lightpeers.ALONE_MIB for each in started)
    free = available_mib()
    if needed > free:
        raise InputError(
            f"--peers {count}: {len(started)} light peers need {needed} MiB of memory, and {free} MiB are available:"
            f" about {len(started) * free // needed} fit"
        )
    return found


async def start(home: LocalCluster, wanted: tuple[StartedPeer, ...], options: UpOptions, progress: Progress) -> None:
    """Start the peers of a running cluster, join them to it, and wait until their Nodes are Ready.

    Args:
        home: The cluster, whose operator runs.
        wanted: All of its peers, those that it has first.
        options: Of the home: whole peers get the same simulated nodes.
        progress: Receives the steps.

    Raises:
        LocalError: One does not come up.
    """
    known = home.spec().peers
    await peers.record(home, wanted)
    for each in wanted:
        if each.form is PeerForm.WHOLE:
            progress.update(f"starting {each.name}")
            await _start_whole(home, each, options, progress, is_new=each not in known)
    await peers.start_light(home, _install, options.timeout_seconds, progress)
    progress.update("connecting the peers")
    await _join_all(home, wanted, options.timeout_seconds, progress)


async def _start_whole(
    home: LocalCluster, peer: StartedPeer, options: UpOptions, progress: Progress, *, is_new: bool
) -> None:
    plan = options.nodes or (nodes.plan_from_flags(1) if is_new else None)
    own = UpOptions(
        nodes=plan,
        throwaway=options.throwaway,
        operator=peer.has_operator,
        install=options.install,
        guard=options.guard,
        kubernetes=options.kubernetes,
        timeout_seconds=options.timeout_seconds,
    )
    await LocalCluster(peer.name, root=home.root).up(own, progress)


async def _install(peer: StartedPeer, kubeconfig: Path) -> None:
    """Install what a light peer needs."""
    from tenantry.install import apply, installed, manifests, unmanaged
    from tenantry.local.bootstrap import connected

    async with connected(kubeconfig) as client:
        if peer.has_operator:
            await apply.apply(client, manifests.foundation(manifests.LOCAL_USER, await installed.form(client)))
        else:
            await apply.found(client, unmanaged.foundation())


async def _join_all(home: LocalCluster, wanted: tuple[StartedPeer, ...], seconds: float, progress: Progress) -> None:
    from tenantry.api.peercluster import PeerCluster, node_name
    from tenantry.cli.wait import READY
    from tenantry.local.bootstrap import connected, wait_named

    gate = asyncio.Semaphore(_AT_ONCE)
    async with connected(home.kubeconfig_path) as client:
        there = {each.metadata.name: each for each in await client.list(PeerCluster)}

        async def join(peer: StartedPeer) -> None:
            cluster = LocalCluster(peer.name, root=home.root)
            found = there.get(peer.name)
            is_joined = found is not None and READY.is_met(found)
            half = found.spec.host if found is not None else msgspec.UNSET
            if is_joined and half is not msgspec.UNSET and half.server == cluster.server:
                return
            async with gate:
                await _join(client, home, cluster, peer, seconds)

        async with asyncio.TaskGroup() as group:
            for each in wanted:
                group.create_task(join(each))
    names = frozenset(node_name(each.name) for each in wanted)
    progress.update("waiting for the Nodes of the peers")
    async with asyncio.timeout(seconds):
        await wait_named(home.kubeconfig_path, names, lambda _: None)


async def _join(client: Client, home: LocalCluster, cluster: LocalCluster, peer: StartedPeer, seconds: float) -> None:
    from tenantry.kube import kubeconfig
    from tenantry.local.bootstrap import connected

    guest = peers.guest_name(home.name)
    half = peerhalves.host(guest, peer.name, kubeconfig.load([cluster.kubeconfig_path]), HARD)
    async with connected(cluster.kubeconfig_path) as there:
        if peer.has_operator:
            token = await peerhalves.serve(there, guest, HARD, MOST_NAMESPACES, round(seconds), quiet=True)
        else:
            token = await _serve_alone(there, guest)
    await peerhalves.use(client, peer.name, half, token, round(seconds), quiet=True)


async def _serve_alone(client: Client, home: str) -> str:
    """Make what the operator of a peer would make of the guest half; return the token of the home."""
    from tenantry.api.kubernetes import Namespace
    from tenantry.api.peercluster import PeerCluster, PeerClusterSpec, PeerGuest, renewer_name, tenant_name
    from tenantry.api.quota import Quota
    from tenantry.controllers.peering.guests import guest
    from tenantry.install import unmanaged
    from tenantry.install.waves import resource_of

    half = PeerGuest(quota=Quota(hard=HARD), max_namespaces=MOST_NAMESPACES)
    await peerhalves.bring(client, home, PeerClusterSpec(guest=half), "guest", quiet=True)
    found = await client.get(PeerCluster, home)
    for resource, value in guest.objects(found, half):
        meta = value["metadata"]
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **value}
        await client.apply(resource, meta.get("namespace", ""), meta["name"], whole)
    cluster_uid = (await client.get(Namespace, "kube-system")).metadata.uid
    for value in unmanaged.namespace_of(home, tenant_name(home), cluster_uid):
        meta = value["metadata"]
        await client.apply(resource_of(value), meta.get("namespace", ""), meta["name"], value)
    return await peerhalves.token(client, renewer_name(home))

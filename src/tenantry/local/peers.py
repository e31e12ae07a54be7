"""The peers of a local cluster: which ones it should have, and how they start.

wanted ─► record in the spec of the home ─► whole: LocalCluster.up   light: the supervisor of the home reloads
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError
from tenantry.api.peercluster import MAX_NAME, is_name
from tenantry.local import components, control, lightpeers
from tenantry.local.cluster import LocalCluster
from tenantry.local.control import SupervisorRequest
from tenantry.local.deadline import ProgressDeadline
from tenantry.local.lightpeers import component_name, light_peers
from tenantry.local.locks import FileLock
from tenantry.local.progress import Progress
from tenantry.local.spec import PeerForm, StartedPeer, write_spec
from tenantry.local.state import Phase
from tenantry.local.trouble import crash_of, what_is_late

MOST_PEERS = 64
"""As many as a NamespaceOffloading can name."""

_ORDER_SECONDS = 60.0
_CRASHES = 3


def wanted(home: LocalCluster, count: int, form: PeerForm, *, has_operator: bool) -> tuple[StartedPeer, ...]:
    """Return the peers that a cluster has and the new ones that make up a number: NAME-peer-1 and so on.

    Args:
        home: The cluster, which may not exist yet.
        count: How many peers it should have.
        form: What new ones consist of; those that are there stay as they are.
        has_operator: Whether an operator runs in new ones.

    Raises:
        InputError: It has more, or a name is too long or taken.
    """
    before = home.spec().peers if home.exists() else ()
    if count < len(before):
        raise InputError(
            f'--peers {count}: the cluster "{home.name}" has {len(before)} peers already, and none of them is removed:'
            f" `tenantry down --cluster {home.name} --purge` ends all"
        )
    found = [*before]
    for number in range(len(before) + 1, count + 1):
        name = f"{home.name}-peer-{number}"
        if len(name) > MAX_NAME:
            raise InputError(
                f'--cluster "{home.name}" is too long for --peers: "{name}" would have more than {MAX_NAME} characters'
            )
        if LocalCluster(name, root=home.root).exists():
            raise InputError(
                f'--peers {count}: there is a cluster "{name}" already, which is not a peer of "{home.name}": drop it'
                f" with `tenantry down --cluster {name} --purge`, or choose another --cluster"
            )
        found.append(StartedPeer(name=name, form=form, has_operator=has_operator))
    return tuple(found)


def guest_name(home: str) -> str:
    """Return the name of a cluster at its peers: its own, unless other objects there have names of that form."""
    return home if is_name(home) else f"{home}-home"


async def record(home: LocalCluster, peers: tuple[StartedPeer, ...]) -> None:
    """Record the peers of a running cluster, and have its supervisor start those that are light.

    Raises:
        LocalError: Another command changes the cluster.
    """
    lock = FileLock(home.paths.up_lock)
    try:
        await lock.acquire_async(_ORDER_SECONDS)
    except TimeoutError as error:
        raise LocalError(f'another `tenantry up` or `down` of "{home.name}" takes too long') from error
    try:
        before = home.spec()
        if peers == before.peers:
            return
        spec = msgspec.structs.replace(before, peers=peers)
        running = {each.name for each in light_peers(before)}
        await asyncio.to_thread(lightpeers.prepare_light, spec, home.paths, running)
        # Last: what the supervisor reads is complete.
        write_spec(home.paths, spec)
        await control.order(home.paths.socket, SupervisorRequest(verb="reload"), _ORDER_SECONDS)
    finally:
        lock.release()


async def start_light(
    home: LocalCluster, install: Callable[[StartedPeer, Path], Awaitable[None]], seconds: float, progress: Progress
) -> None:
    """Wait until the light peers of a cluster are ready, with what is installed in them.

    Args:
        home: The cluster.
        install: Installs what a peer needs, by the kubeconfig of its administrator. It may be repeated.
        seconds: The time without progress after which it gives up.
        progress: Receives the number of those that are not ready.

    Raises:
        LocalError: One does not come up: which component, why, and the end of its log.
    """
    peers = light_peers(home.spec())
    deadline = ProgressDeadline()

    async def furnish(peer: StartedPeer) -> None:
        server = component_name(peer.name, components.APISERVER)
        await _ready(home, [server], deadline, progress)
        path = LocalCluster(peer.name, root=home.root).kubeconfig_path
        await deadline.insist(install, peer, path)
        rest = lightpeers.on_request(peer)
        for name in rest:
            await control.order(home.paths.socket, SupervisorRequest(verb="start", component=name), _ORDER_SECONDS)
        await _ready(home, rest, deadline, progress)
        deadline.renew()

    try:
        async with deadline.of(seconds), asyncio.TaskGroup() as group:
            for peer in peers:
                group.create_task(furnish(peer))
    except TimeoutError as error:
        raise LocalError(what_is_late(home.name, home.paths, seconds, deadline)) from error


async def _ready(home: LocalCluster, names: Sequence[str], deadline: ProgressDeadline, progress: Progress) -> None:
    async with contextlib.aclosing(control.watch(home.paths.socket)) as states:
        async for state in states:
            found = [each for each in state.components if each.name.startswith(lightpeers.PREFIX)]
            late = [each for each in found if each.name in names and each.phase is not Phase.READY]
            starting = sum(each.phase not in {Phase.READY, Phase.STOPPED} for each in found)
            deadline.note_remaining("light peers", starting)
            if not late:
                return
            progress.update(f"waiting for light peers: {starting} processes are not ready")
            for each in late:
                if each.restarts >= _CRASHES and each.phase is Phase.BACK_OFF:
                    raise LocalError(crash_of(home.name, home.paths, state, each.name))


async def down(home: LocalCluster, *, purge: bool) -> bool:
    """Stop a cluster and its peers; return whether the cluster ran.

    Args:
        home: The cluster.
        purge: Whether to delete the data of all, too.

    Raises:
        InputError: It is a light peer, which stops with its home.
        LocalError: There is no such cluster.
    """
    spec = home.spec() if home.exists() else None
    if spec is not None and spec.supervised_by:
        raise InputError(
            f'the cluster "{home.name}" is a light peer of "{spec.supervised_by}", and stops with it:'
            f" `tenantry down --cluster {spec.supervised_by}`"
        )
    for peer in spec.peers if spec is not None else ():
        cluster = LocalCluster(peer.name, root=home.root)
        if peer.form is PeerForm.WHOLE and cluster.exists():
            await cluster.down(purge=purge)
    ran = await home.down()
    if purge:
        if spec is not None:
            lightpeers.purge(spec, home.paths)
        await home.down(purge=True)
    return ran

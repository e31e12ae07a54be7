"""Creates, mounts and deletes volumes, as a component of each local cluster with real nodes.

    python -m tenantry.local.real.provisioner CLUSTER-FOLDER         volumes of the cluster itself
    python -m tenantry.local.real.provisioner CLUSTER-FOLDER UID     those of a hosted control plane

All nodes keep their files on this machine, so one process with an identity of its own serves all of them. A volume is
a file system of the size of its claim (`disks`), or a folder on machines that cannot mount such file systems. The
volumes of a control plane are on the machines that serve it, and are wiped with them.

Administrators of a control plane write into the folders of its machines: no link that they leave there is followed.
They can also make its API server ask a server of theirs for claims and volumes (an APIService of the core group), so
nothing in the answers is used as a path before it was checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from tenantry.api import reasons
from tenantry.api.errors import AlreadyExists, ApiError, NotFound, TenantryError
from tenantry.api.model import ObjectMeta
from tenantry.engine.cache import Change
from tenantry.engine.clock import SystemClock
from tenantry.engine.events import EventKind, NamedObject, Recorder
from tenantry.engine.informer import Informer
from tenantry.engine.jsonlines import log_to
from tenantry.engine.writer import Writer
from tenantry.hosting import plane as hosting
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import hostedfolders
from tenantry.local.paths import ClusterPaths
from tenantry.local.readiness import tell_ready
from tenantry.local.real import memberships
from tenantry.local.real.node import folder_of
from tenantry.local.real.nodevolumes import FOLDER, NodeVolumes, lacking
from tenantry.local.real.volumes import (
    PersistentVolume,
    PersistentVolumeClaim,
    VolumePlan,
    is_sized,
    plan,
    size_of,
)
from tenantry.local.spec import read_spec

IDENTITY = "local-storage"
_AGAIN_SECONDS = 1.0
_LOOK_SECONDS = 30.0
"""No event reports that a node could not mount a volume at its start."""
log = logging.getLogger(__name__)


class VolumePlaces(Protocol):
    """Where the volumes of one cluster are."""

    @property
    def kubeconfig(self) -> Path:
        """Return the path of the kubeconfig of the provisioner."""
        ...

    def nodes(self) -> dict[str, NodeVolumes]:
        """Return the volumes of all nodes that are there, by the names of the nodes."""
        ...


class HostVolumes:
    """The volumes of a local cluster itself, which stay while a machine serves another one.

    Args:
        paths: The cluster's files.
    """

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths

    @property
    def kubeconfig(self) -> Path:
        """See `VolumePlaces.kubeconfig`."""
        return self._paths.kubeconfig(IDENTITY)

    def nodes(self) -> dict[str, NodeVolumes]:
        """See `VolumePlaces.nodes`."""
        spec = read_spec(self._paths)
        return {name: NodeVolumes(folder_of(self._paths, name)) for name in (spec.real_names if spec else ())}


class PlaneVolumes:
    """The volumes of a hosted control plane, on the machines that serve it now.

    Args:
        paths: The cluster's files.
        uid: The uid of the control plane.
    """

    def __init__(self, paths: ClusterPaths, uid: str) -> None:
        self._paths = paths
        self._uid = uid

    @property
    def kubeconfig(self) -> Path:
        """See `VolumePlaces.kubeconfig`."""
        return ClusterPaths(hostedfolders.of(self._paths, self._uid)).kubeconfig(hosting.STORAGE)

    def nodes(self) -> dict[str, NodeVolumes]:
        """See `VolumePlaces.nodes`."""
        spec = read_spec(self._paths)
        found: dict[str, NodeVolumes] = {}
        for name in spec.real_names if spec else ():
            known = memberships.read(self._paths, name)
            folder = memberships.folder_in(self._paths, self._uid, name)
            if known is not None and known.plane == self._uid and known.runs and (folder / FOLDER).is_dir():
                found[name] = NodeVolumes(folder)
        return found


class Provisioner:
    """Keeps volumes and their files in step with claims.

    Args:
        client: The provisioner's client.
        places: Where the volumes are.
        cluster: The folder of the local cluster, whose volumes share a disk.
        lacks: Why this machine cannot enforce sizes; "" if it can.
    """

    def __init__(self, client: Client, places: VolumePlaces, cluster: Path, lacks: str) -> None:
        self._client = client
        self._places = places
        self._cluster = cluster
        self._lacks = lacks
        self._changed = asyncio.Event()
        self._strays: list[tuple[str, str]] = []
        self._recorder = Recorder(Writer(client), SystemClock(), IDENTITY)
        self._said: dict[str, str] = {}
        self._claims = Informer(
            PersistentVolumeClaim.resource, msgspec.json.Decoder(PersistentVolumeClaim).decode, self._notice
        )
        self._volumes = Informer(PersistentVolume.resource, msgspec.json.Decoder(PersistentVolume).decode, self._notice)

    def _notice(self, change: Change[PersistentVolumeClaim] | Change[PersistentVolume]) -> None:
        del change
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            # Claims first: every volume that a listed claim is bound to is then in the later list of volumes.
            for informer in (self._claims, self._volumes):
                group.create_task(informer.run(self._client))
                await informer.synced.wait()
            await self._take_stock()
            tell_ready()
            pause = _AGAIN_SECONDS
            while True:
                self._changed.clear()
                # A volume that fails must not keep others waiting: its owner decides its name and its size.
                is_done = await self._act()
                pause = _LOOK_SECONDS if is_done else min(pause * 2, _LOOK_SECONDS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                if is_done:
                    pause = _AGAIN_SECONDS

    async def _take_stock(self) -> None:
        """Find what a killed process left: only at the start, because later the watch may be behind the files."""
        nodes = self._places.nodes()
        for volumes in nodes.values():
            await asyncio.to_thread(volumes.sweep)
        files = [(node, name) for node, volumes in nodes.items() for name in volumes.names()]
        self._strays = list(self._plan(frozenset(nodes), files).forget)

    def _plan(self, nodes: frozenset[str], files: list[tuple[str, str]]) -> VolumePlan:
        return plan(self._claims.cache, self._volumes.cache, nodes, files, sized=not self._lacks)

    async def _act(self) -> bool:
        """Do what is to be done, as far as possible; return whether all of it is done."""
        nodes = self._places.nodes()
        found = self._plan(frozenset(nodes), [])
        known = {each.metadata.uid for each in self._claims.cache}
        self._said = {uid: text for uid, text in self._said.items() if uid in known}
        for each in found.refuse:
            self._report(each.claim, reasons.PROVISIONING_FAILED, each.why)
        done = [await self._make(each, nodes[each.node]) for each in found.make]
        done += [await self._remove(each, nodes.get(each.node)) for each in found.remove]
        for node, name in tuple(self._strays):
            if node not in nodes or await _tried(name, nodes[node].erase, name):
                self._strays.remove((node, name))
        done += [await self._mount(each) for each in nodes.values()]
        return all(done) and not self._strays

    async def _make(self, volume: PersistentVolume, node: NodeVolumes) -> bool:
        name, size = volume.metadata.name, volume.capacity
        try:
            if is_sized(volume):
                await asyncio.to_thread(node.make_sized, name, size_of(size), self._cluster)
                problem = (await asyncio.to_thread(node.mount)).get(name, "")
                if problem:
                    # It is empty. If the claim goes before a volume is there, nothing else deletes it.
                    await asyncio.to_thread(node.erase, name)
                    self._report(volume.claim, reasons.PROVISIONING_FAILED, _unmounted(size, problem))
                    return False
            else:
                await asyncio.to_thread(node.make_folder, name)
                self._report(volume.claim, reasons.SIZE_NOT_ENFORCED, _unlimited(size, self._lacks))
        except (TenantryError, OSError) as error:
            _warn(name, error)
            self._report(volume.claim, reasons.PROVISIONING_FAILED, _unmade(size, error))
            return False
        try:
            # A restarted provisioner may have created the volume before it was killed.
            await self._client.create(volume)
        except AlreadyExists:
            return True
        except ApiError as error:
            _warn(name, error)
            return False
        return True

    async def _remove(self, volume: PersistentVolume, node: NodeVolumes | None) -> bool:
        meta = volume.metadata
        if node is not None and not await _tried(meta.name, node.erase, meta.name):
            return False
        try:
            await self._client.delete(PersistentVolume.resource, "", meta.name, uid=meta.uid)
        except NotFound:
            return True
        except ApiError as error:
            _warn(meta.name, error)
            return False
        return True

    async def _mount(self, node: NodeVolumes) -> bool:
        """Mount what a node could not mount at its start."""
        try:
            problems = await asyncio.to_thread(node.mount)
        except (TenantryError, OSError) as error:
            _warn("", error)
            return False
        for volume in self._volumes.cache:
            problem = problems.get(volume.metadata.name)
            if problem is not None:
                self._report(volume.claim, reasons.VOLUME_NOT_MOUNTED, _unmounted(volume.capacity, problem))
        return not problems

    def _report(self, claim: ObjectMeta, reason: str, text: str) -> None:
        """Report once to the owner of a claim."""
        if self._said.get(claim.uid) == text:
            return
        self._said[claim.uid] = text
        about = NamedObject(PersistentVolumeClaim.resource, claim)
        self._recorder.say(about, EventKind.WARNING, reason, text)


async def _tried(name: str, do: Callable[[str], None], argument: str) -> bool:
    try:
        await asyncio.to_thread(do, argument)
    except (TenantryError, OSError) as error:
        _warn(name, error)
        return False
    return True


def _warn(name: str, error: Exception) -> None:
    log.warning("a volume could not be made, mounted or removed", extra={"volume": name, "problem": str(error)})


def _unmade(size: str, error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EFBIG}:
        return (
            f"the disk of the node has no room for a volume of {size} beside the sizes of all other volumes: create the"
            " claim again with a smaller size, delete other claims, or ask the administrator for a larger disk"
        )
    return f"the volume of {size} cannot be made: the administrator finds the cause with `tenantry logs {IDENTITY}`"


def _unmounted(size: str, problem: str) -> str:
    return (
        f"the volume of {size} cannot be mounted on its node ({problem}), and its pods wait: the administrator frees"
        " loop devices (`losetup --list` shows them), or looks at the log of the kernel"
    )


def _unlimited(size: str, lacks: str) -> str:
    return f"the size {size} of the volume is not enforced, because the machine of the node lacks something: {lacks}"


async def serve(places: VolumePlaces, paths: ClusterPaths) -> None:
    """Serve a cluster until cancelled.

    Args:
        places: Where its volumes are.
        paths: The files of the local cluster.
    """
    lacks = await asyncio.to_thread(lacking, paths.folder)
    if lacks:
        log.warning("the sizes of volumes are not enforced", extra={"problem": lacks})
    connection = kubeconfig.load([places.kubeconfig])
    async with Client(connection, field_manager="tenantry-local-storage", max_connections=4) as client:
        await Provisioner(client, places, paths.folder, lacks).run()


if __name__ == "__main__":
    log_to(logging.StreamHandler())
    cluster = ClusterPaths(Path(sys.argv[1]))
    served = PlaneVolumes(cluster, sys.argv[2]) if len(sys.argv) > 2 else HostVolumes(cluster)  # noqa: PLR2004 - the usage
    asyncio.run(serve(served, cluster))

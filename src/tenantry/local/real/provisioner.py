"""Creates and deletes the folders of volumes, as a component of each local cluster with real nodes.

    python -m tenantry.local.real.provisioner CLUSTER-FOLDER         volumes of the cluster itself
    python -m tenantry.local.real.provisioner CLUSTER-FOLDER UID     those of a hosted control plane

All nodes keep their files on this machine, so one process with an identity of its own serves all of them. Sizes are
not enforced. The volumes of a control plane are on the machines that serve it, and are wiped with them.

Administrators of a control plane write into the folders of its machines: no link that they leave there is followed.
They can also make its API server ask a server of theirs for claims and volumes (an APIService of the core group), so
nothing in the answers is used as a path before it was checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import stat
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, NotFound
from tenantry.engine.cache import Change
from tenantry.engine.informer import Informer
from tenantry.engine.jsonlines import log_to
from tenantry.hosting import plane as hosting
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import hostedfolders
from tenantry.local.paths import ClusterPaths
from tenantry.local.readiness import tell_ready
from tenantry.local.real import memberships
from tenantry.local.real.node import folder_of
from tenantry.local.real.volumes import PersistentVolume, PersistentVolumeClaim, VolumePlan, is_name, plan
from tenantry.local.spec import read_spec

IDENTITY = "local-storage"
_FOLDER = "volumes"
_AGAIN_SECONDS = 2.0
log = logging.getLogger(__name__)


class VolumePlaces(Protocol):
    """Where the volumes of one cluster are."""

    @property
    def kubeconfig(self) -> Path:
        """Return the path of the kubeconfig of the provisioner."""
        ...

    def nodes(self) -> dict[str, Path]:
        """Return the folders of the volumes of all nodes that are there, by the names of the nodes."""
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

    def nodes(self) -> dict[str, Path]:
        """See `VolumePlaces.nodes`."""
        spec = read_spec(self._paths)
        return {name: folder_of(self._paths, name) / _FOLDER for name in (spec.real_names if spec else ())}


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

    def nodes(self) -> dict[str, Path]:
        """See `VolumePlaces.nodes`."""
        spec = read_spec(self._paths)
        found: dict[str, Path] = {}
        for name in spec.real_names if spec else ():
            known = memberships.read(self._paths, name)
            folder = memberships.folder_in(self._paths, self._uid, name) / _FOLDER
            if known is not None and known.plane == self._uid and known.runs and folder.is_dir():
                found[name] = folder
        return found


class Provisioner:
    """Keeps volumes and their folders in step with claims.

    Args:
        client: The provisioner's client.
        places: Where the volumes are.
    """

    def __init__(self, client: Client, places: VolumePlaces) -> None:
        self._client = client
        self._places = places
        self._changed = asyncio.Event()
        self._is_new = True
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
            # Claims first: every volume that a listed claim is bound to is then in the later list of volumes.
            for informer in (self._claims, self._volumes):
                group.create_task(informer.run(self._client))
                await informer.synced.wait()
            tell_ready()
            while True:
                self._changed.clear()
                try:
                    await self._act()
                except (ApiError, OSError) as error:
                    log.warning("a volume could not be made or removed", extra={"problem": str(error)})
                    await asyncio.sleep(_AGAIN_SECONDS)
                else:
                    await self._changed.wait()

    async def _act(self) -> None:
        nodes = self._places.nodes()
        # Only at the start, for what a killed process left: later, the watch may be behind the volume of a folder.
        places = nodes if self._is_new else {}
        folders = [(node, each.name) for node, place in places.items() for each in place.glob("pvc-*")]
        found = plan(self._claims.cache, self._volumes.cache, frozenset(nodes), folders)
        await self._make(found, nodes)
        for volume in found.remove:
            if volume.node in nodes:
                await asyncio.to_thread(erase, nodes[volume.node], volume.metadata.name)
            try:
                await self._client.delete(PersistentVolume.resource, "", volume.metadata.name, uid=volume.metadata.uid)
            except NotFound:
                continue
        for node, name in found.forget:
            await asyncio.to_thread(erase, nodes[node], name)
        self._is_new = False

    async def _make(self, found: VolumePlan, nodes: Mapping[str, Path]) -> None:
        for volume in found.make:
            await asyncio.to_thread(open_to_all, nodes[volume.node], volume.metadata.name)
            try:
                # A restarted provisioner may have created the volume before it was killed.
                await self._client.create(volume)
            except AlreadyExists:
                continue


def open_to_all(place: Path, name: str) -> None:
    """Make the folder of a volume, which pods of any user may write to.

    The folder above is private, so other users of the machine cannot get in.

    Args:
        place: The folder of the volumes of a node.
        name: The name of the volume.

    Raises:
        OSError: There is something else of this name, such as a link; or it is no name of a volume.
    """
    with _opened(place, name) as above:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=above)
        own = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        try:
            os.fchmod(own, 0o777)
        finally:
            os.close(own)


def erase(place: Path, name: str) -> None:
    """Delete the folder of a volume, or what a pod has put in its place; arguments as `open_to_all`.

    Raises:
        OSError: It cannot be deleted, or it is no name of a volume.
    """
    if not place.is_dir():
        return
    with _opened(place, name) as above:
        try:
            found = os.stat(name, dir_fd=above, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode):
            # rmtree follows no link that a pod left, because shutil.rmtree.avoids_symlink_attacks is true on Linux.
            shutil.rmtree(name, dir_fd=above)
        else:
            os.unlink(name, dir_fd=above)


@contextlib.contextmanager
def _opened(place: Path, name: str) -> Generator[int]:
    """Open the folder of volumes, in which all is done by one name: no answer of a cluster leads to another folder."""
    if not is_name(name):
        raise OSError(errno.EINVAL, "the name of a volume must be pvc- and the uid of a claim", name)
    above = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield above
    finally:
        os.close(above)


async def serve(places: VolumePlaces) -> None:
    """Serve a cluster until cancelled."""
    connection = kubeconfig.load([places.kubeconfig])
    async with Client(connection, field_manager="tenantry-local-storage", max_connections=4) as client:
        await Provisioner(client, places).run()


if __name__ == "__main__":
    log_to(logging.StreamHandler())
    cluster = ClusterPaths(Path(sys.argv[1]))
    asyncio.run(serve(PlaneVolumes(cluster, sys.argv[2]) if len(sys.argv) > 2 else HostVolumes(cluster)))  # noqa: PLR2004 - the usage

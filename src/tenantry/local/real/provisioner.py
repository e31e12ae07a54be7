"""Creates and deletes the folders of volumes, as a component of each local cluster with real nodes.

    python -m tenantry.local.real.provisioner CLUSTER-FOLDER

All nodes keep their files on this machine, so one process with an identity of its own serves all of them. Sizes are
not enforced.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from pathlib import Path

import msgspec

from tenantry.api.errors import AlreadyExists, ApiError, NotFound
from tenantry.engine.cache import Change
from tenantry.engine.informer import Informer
from tenantry.engine.jsonlines import log_to
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.paths import ClusterPaths
from tenantry.local.readiness import tell_ready
from tenantry.local.real.node import folder_of
from tenantry.local.real.volumes import PersistentVolume, PersistentVolumeClaim, VolumePlan, plan
from tenantry.local.spec import read_spec

IDENTITY = "local-storage"
_AGAIN_SECONDS = 2.0
log = logging.getLogger(__name__)


class Provisioner:
    """Keeps volumes and their folders in step with claims.

    Args:
        client: The provisioner's client.
        paths: The cluster's files.
    """

    def __init__(self, client: Client, paths: ClusterPaths) -> None:
        self._client = client
        self._paths = paths
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
        spec = read_spec(self._paths)
        nodes = frozenset(spec.real_names if spec else ())
        # Only at the start, for what a killed process left: later, the watch may be behind the volume of a folder.
        places = nodes if self._is_new else ()
        folders = [(node, each.name) for node in places for each in self._place(node).glob("pvc-*")]
        found = plan(self._claims.cache, self._volumes.cache, nodes, folders)
        await self._make(found)
        for volume in found.remove:
            await self._erase(volume.node, volume.metadata.name)
            try:
                await self._client.delete(PersistentVolume.resource, "", volume.metadata.name, uid=volume.metadata.uid)
            except NotFound:
                continue
        for node, name in found.forget:
            await self._erase(node, name)
        self._is_new = False

    async def _make(self, found: VolumePlan) -> None:
        for volume in found.make:
            folder = self._place(volume.node) / volume.metadata.name
            folder.mkdir(exist_ok=True)
            # The pod may run as any user. The folder above is private, so other users of the machine cannot get in.
            folder.chmod(0o777)
            try:
                # A restarted provisioner may have created the volume before it was killed.
                await self._client.create(volume)
            except AlreadyExists:
                continue

    async def _erase(self, node: str, name: str) -> None:
        folder = self._place(node) / name
        if folder.is_dir():
            # rmtree follows no link that a pod left, because shutil.rmtree.avoids_symlink_attacks is true on Linux.
            await asyncio.to_thread(shutil.rmtree, folder)

    def _place(self, node: str) -> Path:
        return folder_of(self._paths, node) / "volumes"


async def serve(paths: ClusterPaths) -> None:
    """Serve the cluster of a folder until cancelled."""
    connection = kubeconfig.load([paths.kubeconfig(IDENTITY)])
    async with Client(connection, field_manager="tenantry-local-storage", max_connections=4) as client:
        await Provisioner(client, paths).run()


if __name__ == "__main__":
    log_to(logging.StreamHandler())
    asyncio.run(serve(ClusterPaths(Path(sys.argv[1]))))

"""The etcd that one control plane has to itself, in its own Pod.

    attach ─► Secret hosted-UID-etcd-keys: all keys, which only the operator reads
           ─► Secret hosted-UID-etcd: what the containers read
           ─► StoreWay: containers etcd, admit and etcd-keeper, before the process ─► Unix socket in the Pod
    detach ─► both Secrets are gone; the placement deletes the volume

No port leads to the etcd, so that no NetworkPolicy has to admit anything. It sleeps with its control plane.

Source: Kubernetes, "Sidecar Containers" (init containers that are restarted always).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from tenantry.api.errors import NotFound
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import objects
from tenantry.hostedpods.issuedkeys import IssuedKeys
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.podsockets import USUAL, PodSockets
from tenantry.hostedpods.storeway import StoreWay
from tenantry.hosting import certificates, etcdserver, stores
from tenantry.install import planestore
from tenantry.kube.client import Client
from tenantry.local import pki

_SIZE = "8Gi"
"""Of the file at its largest, the copy, the next copy or the file that replaces it, and the log."""

_DATA, _PEER = "/data", "/peer"
_VOLUME, _FILES, _PEERS = "etcd", "etcd-files", "etcd-peer"
_KEEPER = "etcd-keeper"
"""The container that defragments and copies it. A Job has it beside the keeper of snapshots."""

_KEEPER_MEMORY, _KEEPER_MILLIS = (32 * 2**20, 64 * 2**20), 5
"""The part of the keeper in what an etcd is charged, `etcdserver.OWN_CHARGE`; the etcd has the rest."""


def name(uid: str) -> str:
    """Return the name of the claim of an etcd, and of the Secret that it reads."""
    return f"{objects.name(uid)}-etcd"


def keys_name(uid: str) -> str:
    """Return the name of the Secret with all of its keys."""
    return f"{name(uid)}-keys"


def claim(uid: str, settings: PodSettings) -> Json:
    """Return the claim of its volume."""
    return objects.claim(uid, settings, name(uid), _SIZE)


class OwnEtcds:
    """Gives control planes an etcd each.

    Args:
        client: The operator's, of the cluster.
        image: The image of hosted control planes; an upgrade of a control plane is none of its etcd.
        folder: A private folder of this process.
    """

    def __init__(self, client: Client, image: str, folder: Path) -> None:
        self._client = client
        self._image = image
        self._folder = folder

    async def attach(self, uid: str, sockets: PodSockets = USUAL) -> StoreWay:
        """Return the way of a control plane to its etcd, whose keys are issued or renewed.

        Args:
            uid: Of the control plane.
            sockets: Where the sockets of its Pod are.

        Raises:
            ApiError: A Secret cannot be written.
        """
        at = self._folder / uid
        keys = IssuedKeys(self._client, at, keys_name(uid), {objects.UID_LABEL: uid})
        wanted = {**stores.etcd_leaves(), stores.user(uid): stores.client_leaf(uid)}
        files = await keys.kept(wanted)
        own = _for_etcd(files, sockets)
        await self._client.apply(objects.SECRETS, PROCESS_NAMESPACE, name(uid), objects.secret(uid, name(uid), own))
        index = await asyncio.to_thread(pki.read_index, at)
        return StoreWay(
            socket=stores.ETCD_SOCKET,
            containers=containers(uid, self._image, sockets),
            volumes=volumes(uid),
            files={key: files[file] for key, file in stores.client_files(uid).items()},
            own=own,
            renewal=certificates.next_renewal(index, tuple(wanted)),
        )

    async def detach(self, uid: str) -> None:
        """Delete the keys of an etcd, whose Pod has ended; a second time does nothing."""
        for each in (name(uid), keys_name(uid)):
            try:
                await self._client.delete(objects.SECRETS, PROCESS_NAMESPACE, each)
            except NotFound:
                continue


def containers(uid: str, image: str, sockets: PodSockets = USUAL) -> tuple[Json, ...]:
    """Return the init containers of an etcd: it and its keeper run on beside the process, the one between them ends.

    Args:
        uid: Of the control plane.
        image: The image of hosted control planes.
        sockets: Where the sockets of the Pod are.
    """
    urls = [f"unixs://{sockets.folder}{stores.ETCD_SOCKET}"]
    flags = etcdserver.flags(urls, f"{_DATA}/etcd", "/pki", etcdserver.OWN_BYTES)
    act = [planestore.PROGRAM, "etcd", f"/keeper/{planestore.ACCESS}"]
    root = {f"{_FILES}-root": "/keeper"}
    written = {_VOLUME: _DATA, **sockets.mounted}
    # The port of peers trusts the certificate of the process, too, and has neither users nor a limit of size.
    private = {**written, _PEERS: _PEER}
    beside, most = _KEEPER_MEMORY
    etcd = planestore.container(
        "etcd",
        image,
        [planestore.ETCD, *flags],
        written=private,
        read={f"{_FILES}-server": "/pki"},
        memory=(etcdserver.OWN_REQUEST_BYTES - beside, etcdserver.OWN_MEMORY_BYTES - most),
        cpu_millis=etcdserver.OWN_REQUEST_MILLIS - _KEEPER_MILLIS,
    )
    small = partial(planestore.container, read=root, memory=_KEEPER_MEMORY, cpu_millis=_KEEPER_MILLIS)
    admit = small("admit", image, [*act, "admit", stores.user(uid), stores.prefix(uid)], written=sockets.mounted)
    keeper = small(_KEEPER, image, [*act, "keep", "", "", "", f"{_DATA}/backup.db"], written=written)
    etcd |= {"restartPolicy": "Always", "workingDir": _PEER}
    return etcd, admit, {**keeper, "restartPolicy": "Always"}


def volumes(uid: str) -> tuple[Json, ...]:
    """Return the volumes of these containers: those of the etcd, and the files that they read."""
    return (
        {"name": _VOLUME, "persistentVolumeClaim": {"claimName": name(uid)}},
        {"name": _PEERS, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        planestore.files(f"{_FILES}-server", name(uid), planestore.SERVER_FILES),
        planestore.files(f"{_FILES}-root", name(uid), planestore.ROOT_FILES),
    )


def _for_etcd(files: Mapping[str, bytes], sockets: PodSockets) -> dict[str, bytes]:
    names = {*planestore.SERVER_FILES, *planestore.ROOT_FILES} - {planestore.ACCESS}
    access = stores.access("pki", "etcd-ca", "root", sockets.folder)
    return {**{each: files[each] for each in names}, planestore.ACCESS: msgspec.json.encode(access)}

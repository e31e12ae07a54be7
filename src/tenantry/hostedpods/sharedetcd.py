"""The etcd that control planes in Pods share: its keys, and what each control plane has in it.

    prepare ─► Secret hosted-etcd-keys: all keys, which only the operator reads
            ─► Secret hosted-etcd: what the Pod of the etcd reads
    attach  ─► keeper of the etcd: a user, a role, a prefix ─► StoreWay: a certificate, the address of the Service
    detach  ─► keeper of the etcd: user, role and keys are gone

The Pod is installed (install/planestore.py). Its keeper has an authority of its own, so that no certificate of a
control plane opens it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tenantry.api.errors import ApiError, InputError, LocalError, NotFound
from tenantry.api.model import Json
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import issuedkeys, keys, objects, seenpods
from tenantry.hostedpods.issuedkeys import IssuedKeys
from tenantry.hostedpods.storeway import StoreWay
from tenantry.hosting import certificates, stores
from tenantry.hosting.certificates import CertificateUse, LeafCertificate
from tenantry.install import planestore
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local import pki

KEYS = f"{planestore.NAME}-keys"

_SECONDS = 40.0
_REMOVE_SECONDS = 660.0
_SELECTOR = ",".join(f"{key}={value}" for key, value in planestore.SELECTOR.items())

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


def leaves() -> dict[str, LeafCertificate]:
    """Return the certificates of the etcd, of its keeper, and of the operator there."""
    keeper = planestore.KEEPER
    server = LeafCertificate(ca=planestore.KEEPER_AUTHORITY, user=keeper, use=CertificateUse.SERVER, names=(keeper,))
    client = LeafCertificate(ca=planestore.KEEPER_AUTHORITY, user=planestore.KEEPER_CLIENT)
    return {**stores.etcd_leaves(), keeper: server, planestore.KEEPER_CLIENT: client}


class EtcdKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of the shared etcd.

    Args:
        files: Their contents by the names of files; see `pki.ensure`.
        renewal: When one of them is to be renewed; None for never.
    """

    files: Mapping[str, bytes]
    renewal: dt.datetime | None


class SharedEtcd:
    """Administers the shared etcd of one cluster.

    Args:
        client: The operator's, of the cluster.
        folder: A private folder of this process.
    """

    def __init__(self, client: Client, folder: Path) -> None:
        self._client = client
        self._folder = folder
        self._keys = IssuedKeys(client, folder, KEYS, planestore.SELECTOR)
        # Several control planes start at once, and all have their certificates in one Secret.
        self._lock = asyncio.Lock()

    async def keep(self) -> None:
        """Have the etcd's certificates issued, and renewed in time, until cancelled."""
        await issuedkeys.kept_up(self.prepare, "the shared etcd")

    async def prepare(self, uid: str = "", *, is_gone: bool = False) -> EtcdKeys:
        """Issue the certificates of the etcd, write what its Pod reads, and return all.

        Args:
            uid: Of a control plane whose certificate is issued, too; "" for none.
            is_gone: Whether that certificate is deleted instead.

        Raises:
            ApiError: A Secret cannot be written.
        """
        async with self._lock:
            files = await self._kept(uid, is_gone=is_gone)
            wanted = self._keys.secret(planestore.NAME, _for_pod(files))
            await self._client.apply(objects.SECRETS, PROCESS_NAMESPACE, planestore.NAME, wanted)
            names = (*leaves(), *((stores.user(uid),) if uid else ()))
            index = await asyncio.to_thread(pki.read_index, self._folder)
            return EtcdKeys(files=files, renewal=certificates.next_renewal(index, names))

    async def attach(self, uid: str) -> StoreWay:
        """Give a control plane its prefix, and return its way there.

        Raises:
            InputError: There is no shared etcd.
            LocalError: It does not answer.
        """
        address = await self._service()
        found = await self.prepare(uid)
        await self._ask("admit", uid, found.files, _SECONDS)
        return StoreWay(
            socket=stores.ETCD_SOCKET,
            address=address,
            labels=planestore.CLIENTS,
            files={key: found.files[name] for key, name in stores.client_files(uid).items()},
            renewal=found.renewal,
        )

    async def detach(self, uid: str) -> None:
        """Delete the keys of a control plane, whose Pod has ended, and its rights; a second time does nothing.

        Raises:
            LocalError: The etcd does not answer.
        """
        if await keys.find(self._client, KEYS) is None:
            return  # the etcd was removed with all its keys
        found = await self.prepare()
        await self._ask("remove", uid, found.files, _REMOVE_SECONDS)
        await self.prepare(uid, is_gone=True)

    async def _kept(self, uid: str, *, is_gone: bool) -> dict[str, bytes]:
        """Return the files of the Secret with all keys, as they should be."""
        user = stores.user(uid)
        wanted = leaves() if is_gone or not uid else {**leaves(), user: stores.client_leaf(uid)}
        return await self._keys.kept(wanted, gone=(user,) if is_gone else ())

    async def _service(self) -> str:
        """Return where Pods reach the etcd.

        Raises:
            InputError: There is none.
        """
        path = wire.path(objects.SERVICES, PROCESS_NAMESPACE, planestore.NAME)
        try:
            found = _json.decode(await self._client.request("GET", path))
        except NotFound:
            raise InputError(
                "spec.datastore.kind must be SQLite, because this cluster has no shared etcd: an administrator adds it"
                " by `tenantry install --virtual-control-planes --hosted-etcd`"
            ) from None
        return objects.at_port(objects.address(found), planestore.CLIENT_PORT)

    async def _ask(self, act: str, uid: str, files: Mapping[str, bytes], seconds: float) -> None:
        """Have the keeper act.

        Raises:
            LocalError: It does not, and why.
        """
        called = planestore.KEEPER_CLIENT
        connection = Connection(
            server=f"https://{objects.at_port(await self._pod(), planestore.KEEPER_PORT)}",
            source="the keeper of the shared etcd",
            ca=files[f"{planestore.KEEPER_AUTHORITY}.crt"],
            tls_server_name=planestore.KEEPER,
            certificate=files[f"{called}.crt"],
            key=files[f"{called}.key"],
        )
        body = msgspec.json.encode({"user": stores.user(uid), "prefix": stores.prefix(uid)})
        try:
            async with asyncio.timeout(seconds), Client(connection, max_connections=1) as client:
                await client.request("POST", f"/{act}", body=body)
        except (ApiError, TimeoutError) as error:
            raise LocalError(
                f"the shared etcd does not {act} a control plane: {error or 'no answer in time'}"
            ) from error

    async def _pod(self) -> str:
        """Return the address of the Pod of the etcd.

        Raises:
            LocalError: It is not ready.
        """
        path = wire.path(objects.PODS, PROCESS_NAMESPACE)
        body = await self._client.request("GET", path, query={"labelSelector": _SELECTOR})
        pods = [seenpods.seen(each) for each in _json.decode(body)["items"]]
        ready = [each.address for each in pods if each.is_ready and each.address]
        if not ready:
            why = next((f": {each.problem}" for each in pods if each.problem), "")
            raise LocalError(f"Pod {planestore.NAME}-0 in {PROCESS_NAMESPACE!r}, the shared etcd, is not ready{why}")
        return ready[0]


def _for_pod(files: Mapping[str, bytes]) -> dict[str, bytes]:
    names = {*planestore.SERVER_FILES, *planestore.ROOT_FILES, *planestore.KEEPER_FILES} - {planestore.ACCESS}
    access = stores.access("pki", "etcd-ca", "root", planestore.SOCKETS)
    return {**{name: files[name] for name in names}, planestore.ACCESS: msgspec.json.encode(access)}

"""Runs hosted control planes in Pods of the cluster that the operator serves.

    start ─► Service, its address ─► keys ─► Secrets, claim, StatefulSet ─► Pod is ready ─► RunningPlane
    renewed or replaced certificates ─► other Secrets ─► another Pod ─► RunningPlane
    connected ─► SidecarTunnel to the Pod: its gate, its admission step and its API group are here
    remove ─► StatefulSet, until its Pod is gone ─► everything else

All state is in the cluster, so that each replica of the operator continues what another one has begun. The folder of
this process has the sockets, and the keys of control planes that it has started.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import re
import shutil
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import Forbidden, Gone, InputError, LocalError, NotFound, Unreachable
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.engine.tasks import in_background
from tenantry.hostedpods import credentials, objects
from tenantry.hostedpods.objects import PodSettings, SeenPod
from tenantry.hosting import plane as hosting
from tenantry.hosting import sidecar, snapshotplaces, versions
from tenantry.hosting.placement import RunningPlane, ServerEndpoint
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.sidecar import SidecarTunnel
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.hosting.snapshots import KeptSnapshot, SnapshotStore
from tenantry.hosting.versions import HostedVersion
from tenantry.kube import watch, wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local import kubeconfigs, pki
from tenantry.local.files import make_private_folder
from tenantry.local.paths import ClusterPaths

START_SECONDS = 180.0
"""A first start may pull the image and make a volume; the queue tries again after it."""

END_SECONDS = 60.0

_UID = re.compile(r"[0-9a-f-]{1,64}")
_NAME = "kubernetes"
"""A name in the certificate of each API server: that of its Pod's address is not."""

_json: msgspec.json.Decoder[Json] = msgspec.json.Decoder(Json)


class PodPlacement:
    """Runs hosted control planes in Pods; see `hosting.placement.Placement`.

    Args:
        client: The operator's, of the cluster.
        settings: What all Pods have in common.
        folder: A private folder of this process.
    """

    def __init__(self, client: Client, settings: PodSettings, folder: Path) -> None:
        self._client = client
        self._settings = settings
        self._root = folder
        # By uid: where `start` has found the Pod.
        self._addresses: dict[str, str] = {}

    @property
    def snapshots(self) -> SnapshotStore:
        """See `Placement.snapshots`."""
        return _NoSnapshots()

    @property
    def snapshot_kinds(self) -> frozenset[SnapshotPlaceKind]:
        """See `Placement.snapshot_kinds`."""
        return frozenset()

    def snapshots_at(self, place: SnapshotPlace) -> SnapshotStore:
        """See `Placement.snapshots_at`."""
        raise snapshotplaces.refusal(place, self.snapshot_kinds)

    @property
    def can_sleep(self) -> bool:
        """See `Placement.can_sleep`: nothing holds the clients of a Pod that does not run."""
        return False

    def versions(self) -> tuple[HostedVersion, ...]:
        """See `Placement.versions`: that of the image."""
        return objects.VERSIONS

    async def provide(self, version: str) -> None:
        """See `Placement.provide`: the image is there, or a Pod reports that it is not."""
        versions.find(objects.VERSIONS, version)

    async def start(self, plane: HostedPlane) -> RunningPlane:
        """See `Placement.start`."""
        objects.check(plane)
        uid, paths = plane.uid, self._paths(plane.uid)
        server = await self._serve(uid)
        plane = replace(plane, names=(*plane.names, server))
        await self._prepare(plane, paths)
        files, own = await asyncio.to_thread(credentials.contents, plane, paths)
        await self._apply(objects.SECRETS, objects.secret(uid, objects.name(uid), files))
        await self._apply(objects.SECRETS, objects.secret(uid, objects.sidecar_name(uid), own))
        await self._claim(uid)
        wanted = objects.stateful_set(uid, self._settings, plane.limits, files, own)
        await self._apply(objects.STATEFUL_SETS, wanted)
        found = await self._ready(uid, objects.digest_of(wanted))
        self._addresses[uid] = found.address
        url, trusted = f"https://{_host(server)}", hosting.TRUSTED
        connection = self._connection(found.address, paths)
        return RunningPlane(
            connection=connection,
            server=url,
            kubeconfig=kubeconfigs.text(paths, plane.name, hosting.OWNER, url, authority=trusted),
            from_pods=ServerEndpoint(address=found.address, port=sidecar.API_PORT),
            version=await self._version(connection),
            renewal=await asyncio.to_thread(credentials.renewal, plane, paths.pki),
        )

    async def stop(self, uid: str) -> None:
        """See `Placement.stop`."""
        self._addresses.pop(uid, None)
        with suppress(NotFound):
            name = objects.name(_checked(uid))
            patch = {"spec": {"replicas": 0}}
            await self._client.merge_patch(objects.STATEFUL_SETS, PROCESS_NAMESPACE, name, patch)
        await self._gone(uid)

    async def remove(self, uid: str) -> None:
        """See `Placement.remove`."""
        self._addresses.pop(uid, None)
        name = objects.name(_checked(uid))
        await self._delete(objects.STATEFUL_SETS, name)
        # Its objects outlive the process, which could not end in order without them.
        await self._gone(uid)
        for resource in (objects.CLAIMS, objects.SERVICES):
            await self._delete(resource, name)
        for each in (name, objects.sidecar_name(uid), objects.keys_name(uid)):
            await self._delete(objects.SECRETS, each)
        await asyncio.to_thread(_erase, self._paths(uid).folder)

    async def kubeconfig(self, uid: str) -> str:  # noqa: ARG002 - no Pod is stopped for a sleep
        """See `Placement.kubeconfig`."""
        return ""

    @asynccontextmanager
    async def connected(self, uid: str) -> AsyncGenerator[None]:
        """See `Placement.connected`."""
        folder = self._paths(uid).pki
        context = ssl.create_default_context(cafile=folder / f"{sidecar.AUTHORITY}.crt")
        context.load_cert_chain(folder / f"{sidecar.CLIENT}.crt", folder / f"{sidecar.CLIENT}.key")
        own = self._paths(uid).folder
        sockets = {sidecar.socket_name(each): own / each for each in sidecar.SOCKETS}
        async with in_background(SidecarTunnel(self._addresses[uid], context, sockets).run()):
            yield

    async def has_moved(self, uid: str) -> bool:
        """See `Placement.has_moved`."""
        pods = [objects.seen(each) for each in await self._pods(uid)]
        return all(each.address != self._addresses.get(uid) or each.ends for each in pods)

    async def knocked(self, uid: str) -> None:
        """See `Placement.knocked`; it never returns, because nothing holds clients."""
        _checked(uid)
        await asyncio.get_running_loop().create_future()

    def activity(self, uid: str) -> Path:
        """See `Placement.activity`; nothing answers there."""
        return self._paths(uid).folder / hosting.ACTIVITY

    def gate(self, uid: str) -> Path:
        """See `Placement.gate`."""
        return self._paths(uid).folder / hosting.GATE

    def admission(self, uid: str) -> Path:
        """See `Placement.admission`."""
        return self._paths(uid).folder / hosting.ADMISSION

    def forwarded(self, uid: str) -> Path:
        """See `Placement.forwarded`."""
        return self._paths(uid).folder / hosting.FORWARDED

    async def kubelet_tls(self, uid: str, addresses: Sequence[str], context: ssl.SSLContext | None) -> ssl.SSLContext:
        """See `Placement.kubelet_tls`."""
        folder = self._paths(uid).pki
        await asyncio.to_thread(pki.ensure, folder, {"kubelet": hosting.kubelet(addresses)}, dt.datetime.now(dt.UTC))
        if context is None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
            context.verify_mode = ssl.CERT_REQUIRED
        # Handshakes from now on present the new certificate.
        context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
        return context

    def _paths(self, uid: str) -> ClusterPaths:
        return ClusterPaths(self._root / _checked(uid))

    def _connection(self, address: str, paths: ClusterPaths) -> Connection:
        return Connection(
            server=f"https://{_host(address)}:{sidecar.API_PORT}",
            source=f"the Pod of a hosted control plane at {address}",
            ca=(paths.pki / hosting.TRUSTED).read_bytes(),
            tls_server_name=_NAME,
            certificate=(paths.pki / f"{hosting.OPERATOR}.crt").read_bytes(),
            key=(paths.pki / f"{hosting.OPERATOR}.key").read_bytes(),
        )

    async def _serve(self, uid: str) -> str:
        """Create the Service, and return the name or the address by which users reach it."""
        found = await self._apply(objects.SERVICES, objects.service(uid, self._settings))
        address = objects.address(found)
        if not address:
            raise LocalError(
                f"Service {objects.name(uid)!r} in {PROCESS_NAMESPACE!r} has no address yet: the cluster must give one"
                " to Services of type LoadBalancer"
            )
        return address

    async def _version(self, connection: Connection) -> str:
        """Return the version that an API server reports.

        Raises:
            LocalError: The image has another one than this version of Tenantry.
            ApiError: It does not answer.
        """
        async with Client(connection, max_connections=1) as client:
            found: str = _json.decode(await client.request("GET", "/version"))["gitVersion"].removeprefix("v")
        if found != objects.KUBERNETES:
            raise LocalError(
                f"the image {self._settings.image!r} has Kubernetes {found}, not {objects.KUBERNETES}: build it again"
                " with the version of Tenantry that the operator has (`tenantry image build --with-hosted`)"
            )
        return found

    async def _prepare(self, plane: HostedPlane, paths: ClusterPaths) -> None:
        """Bring the keys of a control plane into its folder, and renewed and replaced ones into its Secret.

        Only when that has them does a Pod get them: after a crash in between, they are issued again.
        """
        await asyncio.to_thread(make_private_folder, paths.folder)
        data = await self._find(objects.SECRETS, objects.keys_name(plane.uid))
        known = objects.files_of(data) if data is not None else {}
        files = await asyncio.to_thread(credentials.issue, plane, paths.pki, known, dt.datetime.now(dt.UTC))
        if files == known:
            return
        wanted = objects.secret(plane.uid, objects.keys_name(plane.uid), files)
        if data is None:
            # Not applied: another replica may have written others meanwhile, and those hold.
            body = wire.encode_json(wanted)
            await self._client.request("POST", wire.path(objects.SECRETS, PROCESS_NAMESPACE), body=body)
        else:
            # At the resourceVersion that was read: keys that another replica has issued meanwhile are not lost.
            gone = dict.fromkeys(known.keys() - files.keys())
            patch = {
                "metadata": {"resourceVersion": data["metadata"]["resourceVersion"]},
                "data": {**wanted["data"], **gone},
            }
            name = objects.keys_name(plane.uid)
            await self._client.merge_patch(objects.SECRETS, PROCESS_NAMESPACE, name, patch)

    async def _claim(self, uid: str) -> None:
        # A claim hardly changes, and its class is filled in.
        if await self._find(objects.CLAIMS, objects.name(uid)) is None:
            await self._apply(objects.CLAIMS, objects.claim(uid, self._settings))

    async def _ready(self, uid: str, digest: str) -> SeenPod:
        """Return the Pod with a digest once it is ready.

        Raises:
            LocalError: It is not ready in time, and why.
        """
        last: SeenPod | None = None
        try:
            async with asyncio.timeout(START_SECONDS):
                async for found in self._followed(uid):
                    for each in found.values():
                        pod = objects.seen(each)
                        if pod.digest == digest:
                            last = pod
                        if pod.digest == digest and pod.is_ready and pod.address:
                            return pod
        except TimeoutError:
            pass
        name = f"{objects.name(uid)}-0"
        why = (last.problem or "`kubectl logs` shows why") if last is not None else "it does not exist yet"
        raise LocalError(f"Pod {name!r} in {PROCESS_NAMESPACE!r} is not ready after {START_SECONDS:.0f} s: {why}")

    async def _gone(self, uid: str) -> None:
        """Return once no Pod of a control plane is left.

        Raises:
            LocalError: One still ends.
        """
        try:
            async with asyncio.timeout(END_SECONDS):
                async for found in self._followed(uid):
                    if not found:
                        return
        except TimeoutError as error:
            name = f"{objects.name(uid)}-0"
            raise LocalError(
                f"Pod {name!r} in {PROCESS_NAMESPACE!r} has not ended after {END_SECONDS:.0f} s: if its node is gone,"
                " delete the Node"
            ) from error

    async def _followed(self, uid: str) -> AsyncGenerator[dict[str, Json]]:
        """Yield the Pods of a control plane by name, now and after each change, for ever."""
        while True:
            body = await self._client.request("GET", wire.path(objects.PODS, PROCESS_NAMESPACE), query=_select(uid))
            listed = _json.decode(body)
            found = {each["metadata"]["name"]: each for each in listed["items"]}
            yield found
            changes = watch.watch(
                self._client,
                objects.PODS,
                resource_version=listed["metadata"]["resourceVersion"],
                selectors=_select(uid),
                namespace=PROCESS_NAMESPACE,
            )
            # It is listed again.
            with suppress(Gone, Unreachable):
                async for events in changes:
                    for event in events:
                        pod: Json = _json.decode(event.object)
                        name = pod["metadata"].get("name", "")
                        if event.type is watch.EventType.DELETED:
                            found.pop(name, None)
                        elif event.type is not watch.EventType.BOOKMARK:
                            found[name] = pod
                    yield found

    async def _pods(self, uid: str) -> list[Json]:
        body = await self._client.request("GET", wire.path(objects.PODS, PROCESS_NAMESPACE), query=_select(uid))
        found: list[Json] = _json.decode(body)["items"]
        return found

    async def _find(self, resource: Resource, name: str) -> Json | None:
        try:
            return _json.decode(await self._client.request("GET", wire.path(resource, PROCESS_NAMESPACE, name)))
        except NotFound:
            return None

    async def _apply(self, resource: Resource, value: Json) -> Json:
        name: str = value["metadata"]["name"]
        try:
            return _json.decode(await self._client.apply(resource, PROCESS_NAMESPACE, name, value))
        except (NotFound, Forbidden) as error:
            # Without the namespace, the operator has no rights in it.
            raise LocalError(
                f"{resource.kind} {name!r} cannot be written in namespace {PROCESS_NAMESPACE!r}"
                f" (`tenantry install --virtual-control-planes` gives the rights): {error}"
            ) from error

    async def _delete(self, resource: Resource, name: str) -> None:
        with suppress(NotFound):
            await self._client.delete(resource, PROCESS_NAMESPACE, name)


class _NoSnapshots:
    """Takes none: the files of a Pod are not reached yet."""

    async def take(self, uid: str, upgrade: str = "") -> KeptSnapshot:  # noqa: ARG002 - it is refused
        """See `SnapshotStore.take`."""
        _refuse(uid)

    async def kept(self, uid: str) -> tuple[KeptSnapshot, ...]:  # noqa: ARG002 - there is none of any
        """See `SnapshotStore.kept`."""
        return ()

    async def discard(self, uid: str, name: str) -> None:
        """See `SnapshotStore.discard`."""

    async def restore(self, uid: str, name: str, version: str = "") -> None:  # noqa: ARG002 - it is refused
        """See `SnapshotStore.restore`."""
        _refuse(uid)


def _refuse(uid: str) -> NoReturn:
    _checked(uid)
    raise InputError("control planes in Pods have no snapshots yet: take one of the volume")


def _select(uid: str) -> dict[str, str]:
    return {"labelSelector": f"{objects.UID_LABEL}={_checked(uid)}"}


def _host(address: str) -> str:
    """Return an address or a name as URLs have it."""
    try:
        return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address  # noqa: PLR2004 - IPv6
    except ValueError:
        return address


def _checked(uid: str) -> str:
    if not _UID.fullmatch(uid):
        raise InputError(f"{uid!r} is not the uid of an object")
    return uid


def _erase(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)

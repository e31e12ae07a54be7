"""Runs hosted control planes in Pods of the cluster that the operator serves.

    start ─► Service, its address ─► keys ─► Secrets, claim, StatefulSet ─► Pod is ready ─► RunningPlane
    renewed or replaced certificates ─► other Secrets ─► another Pod ─► RunningPlane
    connected ─► SidecarTunnel to the Pod: its gate, its admission step and its API group are here
    stop ─► its Pod is gone; its clients are held by the proxy before it (fronts.py), and reported
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
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import Forbidden, InputError, LocalError, NotFound
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.engine.tasks import all_of, in_background
from tenantry.hostedpods import (
    checks,
    credentials,
    following,
    issuedkeys,
    keys,
    objects,
    ownetcd,
    podsnapshots,
    proxyports,
    seenpods,
)
from tenantry.hostedpods.fronts import Fronts
from tenantry.hostedpods.jobs import KeeperRole
from tenantry.hostedpods.keeper import SnapshotKeeper
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.podauthorities import PodAuthorities
from tenantry.hostedpods.podsnapshots import PodSnapshots
from tenantry.hostedpods.seenpods import SeenPod
from tenantry.hostedpods.stores import PodStores
from tenantry.hostedpods.storeway import is_elsewhere
from tenantry.hostedpods.workers import KeeperJobs
from tenantry.hosting import encryption, reportedversion, sidecar, versions
from tenantry.hosting import plane as hosting
from tenantry.hosting.noderuntime import NodeEndpoint, NodeRuntime
from tenantry.hosting.placement import RESPONSE_BYTES, RunningPlane, ServerEndpoint
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.sidecar import SidecarTunnel
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.hosting.snapshots import SnapshotStore
from tenantry.hosting.versions import HostedVersion
from tenantry.kube import wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local import hostedpki, kubeconfigs, pki
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
        scratch: A folder with room for snapshots on their way; None for the former.
    """

    def __init__(self, client: Client, settings: PodSettings, folder: Path, scratch: Path | None = None) -> None:
        self._client = client
        self._settings = settings
        self._root = folder
        self._stores = PodStores(client, settings, folder / "stores")
        self._fronts = Fronts(client, folder / "proxy")
        # By uid: where `start` has found the Pods.
        self._addresses: dict[str, frozenset[str]] = {}
        # By uid: where machines reach those that may have some.
        self._nodes: dict[str, NodeEndpoint] = {}
        # The uids of those whose folder has the keys of their Secret.
        self._loaded: set[str] = set()
        self._keepers = KeeperJobs(client, folder)
        self.authorities = PodAuthorities(client)
        self.snapshots = PodSnapshots(
            client, self._keepers, self._running, self.stop, settings.images, (scratch or folder) / "snapshots"
        )

    async def keep(self) -> None:
        """Keep what control planes share, until cancelled."""
        await all_of([self._stores.keep(), self._fronts.keep()])

    async def follow(self, has: Callable[[str], bool], moved: Callable[[str], None]) -> None:
        """See `Placement.follow`."""
        try:
            async with self._fronts.followed(has, moved):
                await asyncio.get_running_loop().create_future()
        finally:
            # Other replicas may renew them from now on.
            self._loaded = {uid for uid in self._loaded if not has(uid)}

    @property
    def snapshot_kinds(self) -> frozenset[SnapshotPlaceKind]:
        """See `Placement.snapshot_kinds`."""
        return podsnapshots.KINDS

    def snapshots_at(self, place: SnapshotPlace) -> SnapshotStore:
        """See `Placement.snapshots_at`."""
        return self.snapshots.at(place)

    def versions(self) -> tuple[HostedVersion, ...]:
        """See `Placement.versions`: those that have an image."""
        return self._settings.images.versions()

    async def provide(self, version: str) -> None:
        """See `Placement.provide`: the image is there, or a Pod reports that it is not."""
        versions.find(self.versions(), version)

    async def start(self, plane: HostedPlane) -> RunningPlane:
        """See `Placement.start`."""
        before = await self._find(objects.STATEFUL_SETS, objects.name(_checked(plane.uid)))
        if plane.is_sandboxed and not plane.runtime_class:
            # Its class is deleted: what runs in it stays there.
            plane = replace(plane, runtime_class=objects.runtime_class_of(before))
        checks.check(plane, self.versions())
        if plane.pod_range and not await self._is_loaded(plane.uid):
            checks.check_first(plane)
        image = self._settings.images.of(plane.version)
        settings = replace(self._settings, image=image, runtime_class=plane.runtime_class)
        uid, paths = plane.uid, self._paths(plane.uid)
        service = await self._serve(plane)
        # The nodes of a control plane in a Pod bring the ranges of their pods.
        plane = replace(plane, names=(*plane.names, objects.address(service)), pod_range="")
        if plane.has_nodes:
            plane = replace(plane, advertised=objects.ip_of_nodes(service))
        await self._prepare(plane, paths)
        self._loaded.add(uid)
        await self._fronts.prepare(uid, paths.pki, runs=True)
        way = await self._stores.attach(plane)
        files, own = await asyncio.to_thread(credentials.contents, plane, paths)
        if way is not None:
            files |= way.files
        if plane.replicas > 1 and before is not None and await self.encryption(uid) != files.get(encryption.FILE, b""):
            # Each process has to read what the others write. Before the Secret: a crash leaves the former one.
            await self.stop(uid)
        await self._apply(objects.SECRETS, objects.secret(uid, objects.name(uid), files))
        await self._apply(objects.SECRETS, objects.secret(uid, objects.sidecar_name(uid), own))
        if not is_elsewhere(way):
            await self._claim(objects.claim(uid, self._settings))
        if way is not None and way.own:
            await self._claim(ownetcd.claim(uid, self._settings))
        # A Job that has its volume may be on another node.
        await self._keepers.end(uid, KeeperRole.DATA)
        wanted = objects.stateful_set(
            uid,
            settings,
            plane.limits,
            files,
            own,
            way=way,
            replicas=plane.replicas,
            has_audit_log=bool(plane.options.audit_level),
        )
        if objects.replicas_of(before) not in (0, plane.replicas):
            # One that elects no leader must not run beside others.
            await self.stop(uid)
        await self._apply(objects.STATEFUL_SETS, wanted)
        pods = await self._ready(uid, objects.digest_of(wanted))
        found = pods[0]
        self._addresses[uid] = frozenset(each.address for each in pods)
        await self._fronts.ready(uid, self._addresses[uid])
        if plane.has_nodes:
            authority = await asyncio.to_thread((paths.pki / hosting.TRUSTED).read_text)
            self._nodes[uid] = NodeEndpoint(server=objects.url_of_nodes(service), ca=authority)
        url, trusted = objects.url(service), hosting.TRUSTED
        connection = self._connection(found.address, paths)
        return RunningPlane(
            connection=connection,
            server=url,
            kubeconfig=kubeconfigs.text(paths, plane.name, hosting.OWNER, url, authority=trusted),
            from_pods=self._fronts.endpoint(uid),
            version=await _version(connection, versions.find(self.versions(), plane.version), settings.image),
            renewal=_first(
                await asyncio.to_thread(credentials.renewal, plane, paths.pki), way.renewal if way is not None else None
            ),
        )

    async def stop(self, uid: str) -> None:
        """See `Placement.stop`."""
        self._addresses.pop(uid, None)
        self._fronts.stops(uid, is_stopped=False)
        with suppress(NotFound):
            name = objects.name(_checked(uid))
            patch = {"spec": {"replicas": 0}}
            await self._client.merge_patch(objects.STATEFUL_SETS, PROCESS_NAMESPACE, name, patch)
        await self._gone(uid)
        self._fronts.stops(uid, is_stopped=True)

    async def remove(self, uid: str) -> None:
        """See `Placement.remove`."""
        self._addresses.pop(uid, None)
        self._nodes.pop(uid, None)
        name = objects.name(_checked(uid))
        await self._delete(objects.STATEFUL_SETS, name)
        # Its objects outlive the process, which could not end in order without them.
        await self._gone(uid)
        self._loaded.discard(uid)
        await self._fronts.remove(uid)
        for role in KeeperRole:
            await self._keepers.remove(uid, role)
        await self._stores.detach(uid)
        for resource in (objects.CLAIMS, objects.SERVICES):
            await self._delete(resource, name)
        await self._delete(objects.CLAIMS, ownetcd.name(uid))
        for each in (name, objects.sidecar_name(uid), objects.keys_name(uid)):
            await self._delete(objects.SECRETS, each)
        await asyncio.to_thread(_erase, self._paths(uid).folder)

    async def kubeconfig(self, uid: str) -> str:
        """See `Placement.kubeconfig`."""
        service = await self._find(objects.SERVICES, objects.name(_checked(uid))) or {"metadata": {}}
        address = objects.address(service)
        if not address or not objects.called(service) or not await self._is_loaded(uid):
            return ""
        url, paths, called = objects.url(service), self._paths(uid), objects.called(service)
        return await asyncio.to_thread(kubeconfigs.text, paths, called, hosting.OWNER, url, authority=hosting.TRUSTED)

    async def encryption(self, uid: str) -> bytes:
        """See `Placement.encryption`."""
        found = await self._find(objects.SECRETS, objects.name(_checked(uid)))
        return objects.files_of(found).get(encryption.FILE, b"") if found is not None else b""

    def endpoint(self, uid: str) -> ServerEndpoint | None:
        """See `Placement.endpoint`."""
        return self._fronts.endpoint(uid)

    @asynccontextmanager
    async def connected(self, uid: str) -> AsyncGenerator[None]:
        """See `Placement.connected`."""
        folder = self._paths(uid).pki
        context = sidecar.context(folder)
        own = self._paths(uid).folder
        sockets = {sidecar.socket_name(each): own / each for each in sidecar.SOCKETS}
        name = sidecar.socket_name(hosting.ACTIVITY)
        tunnels = [
            SidecarTunnel(address, context, sockets, reached={name: reported})
            for address, reported in zip(sorted(self._addresses[uid]), self.activity(uid), strict=True)
        ]
        async with in_background(all_of([each.run() for each in tunnels])):
            yield

    async def has_moved(self, uid: str) -> bool:
        """See `Placement.has_moved`."""
        pods = [seenpods.seen(each) for each in await self._pods(uid)]
        if seenpods.have_moved(pods, self._addresses.get(uid, frozenset())):
            return True
        return await self._stores.has_moved(uid)

    async def open(self, uid: str, *, is_open: bool) -> None:
        """See `Placement.open`."""
        # First: what is reported next must not open one that another replica has closed.
        self._fronts.decide(_checked(uid), is_open=is_open)
        if not self._fronts.knows(uid) and await self._is_loaded(uid):
            found = await self._find(objects.STATEFUL_SETS, objects.name(uid))
            await self._fronts.prepare(uid, self._paths(uid).pki, runs=objects.replicas_of(found) > 0)
        await self._fronts.admit(uid)

    def unreachable(self, uid: str) -> str:
        """See `Placement.unreachable`."""
        return self._fronts.unreachable(_checked(uid))

    async def knocked(self, uid: str) -> None:
        """See `Placement.knocked`."""
        await self._fronts.knocked(_checked(uid))

    def activity(self, uid: str) -> tuple[Path, ...]:
        """See `Placement.activity`."""
        first = self._paths(uid).folder / hosting.ACTIVITY
        others = range(2, len(self._addresses.get(uid, ())) + 1)
        return (first, *(first.with_name(f"{number}-{first.name}") for number in others))

    def node_runtime(self) -> NodeRuntime | None:
        """See `Placement.node_runtime`."""
        return None

    def node_endpoint(self, uid: str) -> NodeEndpoint | None:
        """See `Placement.node_endpoint`."""
        return self._nodes.get(_checked(uid))

    def gate(self, uid: str) -> Path:
        """See `Placement.gate`."""
        return self._paths(uid).folder / hosting.GATE

    def admission(self, uid: str) -> Path:
        """See `Placement.admission`."""
        return self._paths(uid).folder / hosting.ADMISSION

    def forwarded(self, uid: str) -> Path:
        """See `Placement.forwarded`."""
        return self._paths(uid).folder / hosting.FORWARDED

    async def front_proxy_tls(self, uid: str) -> ssl.SSLContext:
        """See `Placement.front_proxy_tls`."""
        return await asyncio.to_thread(hostedpki.front_proxy_tls, self._paths(uid).pki)

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
            max_bytes=RESPONSE_BYTES,
        )

    async def _serve(self, plane: HostedPlane) -> Json:
        """Create the Service by which users reach a control plane, and return it."""
        uid = plane.uid
        port = await self._port(uid, self._fronts.port)
        nodes = await self._port(uid, self._fronts.port_of_nodes) if plane.has_nodes else 0
        found = await self._apply(objects.SERVICES, objects.service(uid, self._settings, plane, port, nodes))
        if not objects.address(found):
            raise LocalError(
                f"Service {objects.name(uid)!r} in {PROCESS_NAMESPACE!r} has no address yet: the cluster must give one"
                " to Services of type LoadBalancer"
            )
        return found

    async def _port(self, uid: str, port: Callable[[str], Awaitable[int]]) -> int:
        try:
            return await port(uid)
        except (NotFound, Forbidden) as error:
            raise _without_rights("ConfigMap", proxyports.NAME, error) from error

    async def _is_loaded(self, uid: str) -> bool:
        """Return whether the keys of a control plane are in its folder; if not, they are brought there from its Secret.

        There are none before its first start.
        """
        if uid in self._loaded:
            return True
        folder = self._paths(uid).pki
        found = await keys.find(self._client, objects.keys_name(uid))
        if found is None:
            return False
        await asyncio.to_thread(make_private_folder, folder.parent)
        await asyncio.to_thread(issuedkeys.lay, folder, objects.files_of(found))
        self._loaded.add(uid)
        return True

    async def _running(self, uid: str) -> SnapshotKeeper | None:
        addresses = self._addresses.get(uid)
        if not addresses and await self._is_loaded(uid):
            # Another operator has started it, and was the leader until now.
            pods = [seenpods.seen(each) for each in await self._pods(uid)]
            addresses = frozenset(each.address for each in pods if each.is_ready)
        if not addresses:
            return None
        # Each of several has a way to the datastore.
        return SnapshotKeeper(min(addresses), sidecar.context(self._paths(uid).pki), podsnapshots.VOLUME)

    async def _prepare(self, plane: HostedPlane, paths: ClusterPaths) -> None:
        """Bring the keys of a control plane into its folder, and renewed and replaced ones into its Secret.

        Only when that has them does a Pod get them: after a crash in between, they are issued again.
        """
        await asyncio.to_thread(make_private_folder, paths.folder)
        found = await self._stores.recorded(plane)
        uid, name, kind = plane.uid, objects.keys_name(plane.uid), plane.store.kind
        await keys.keep(
            self._client,
            found,
            lambda files: objects.secret(uid, name, files, kind),
            lambda known: credentials.issue(plane, paths.pki, known, dt.datetime.now(dt.UTC)),
        )

    async def _claim(self, wanted: Json) -> None:
        # A claim hardly changes, and its class is filled in.
        if await self._find(objects.CLAIMS, wanted["metadata"]["name"]) is None:
            await self._apply(objects.CLAIMS, wanted)

    async def _ready(self, uid: str, digest: str) -> list[SeenPod]:
        """Return the Pods with a digest that are ready; `has_moved` reports those that come later.

        Raises:
            LocalError: None is ready in time, and why.
        """
        name = f"{objects.name(uid)}-0"
        return await following.ready(self._client, _select(uid), name, START_SECONDS, lambda pod: pod.digest == digest)

    async def _gone(self, uid: str) -> None:
        """Return once no Pod of a control plane is left.

        Raises:
            LocalError: One still ends.
        """
        await following.gone(self._client, _select(uid), f"{objects.name(uid)}-0", END_SECONDS)

    async def _pods(self, uid: str) -> list[Json]:
        body = await self._client.request(
            "GET", wire.path(objects.PODS, PROCESS_NAMESPACE), query={"labelSelector": _select(uid)}
        )
        found: list[Json] = _json.decode(body)["items"]
        return found

    async def _find(self, resource: Resource, name: str) -> Json | None:
        try:
            return _json.decode(await self._client.request("GET", wire.path(resource, PROCESS_NAMESPACE, name)))
        except NotFound:
            return None
        except Forbidden as error:
            raise _without_rights(resource.kind, name, error) from error

    async def _apply(self, resource: Resource, value: Json) -> Json:
        name: str = value["metadata"]["name"]
        try:
            return _json.decode(await self._client.apply(resource, PROCESS_NAMESPACE, name, value))
        except (NotFound, Forbidden) as error:
            raise _without_rights(resource.kind, name, error) from error

    async def _delete(self, resource: Resource, name: str) -> None:
        with suppress(NotFound):
            await self._client.delete(resource, PROCESS_NAMESPACE, name)


def _without_rights(kind: str, name: str, error: NotFound | Forbidden) -> LocalError:
    # Without the namespace, the operator has no rights in it.
    return LocalError(
        f"{kind} {name!r} cannot be used in namespace {PROCESS_NAMESPACE!r}"
        f" (`tenantry install --virtual-control-planes` gives the rights): {error}"
    )


async def _version(connection: Connection, wanted: HostedVersion, image: str) -> str:
    """Return the version that an API server reports.

    Raises:
        LocalError: The image has another one than this version of Tenantry.
        ApiError: It does not answer.
    """
    found = await reportedversion.read(connection)
    if found != wanted.kubernetes:
        raise LocalError(
            f"the image {image!r} has Kubernetes {found}, not {wanted.kubernetes}: build it again"
            " with the version of Tenantry that the operator has (`tenantry image build --with-hosted`)"
        )
    return found


def _select(uid: str) -> str:
    return f"{objects.UID_LABEL}={_checked(uid)}"


def _host(address: str) -> str:
    """Return an address or a name as URLs have it."""
    try:
        return f"[{address}]" if ipaddress.ip_address(address).version == 6 else address  # noqa: PLR2004 - IPv6
    except ValueError:
        return address


def _first(*times: dt.datetime | None) -> dt.datetime | None:
    return min((each for each in times if each is not None), default=None)


def _checked(uid: str) -> str:
    if not _UID.fullmatch(uid):
        raise InputError(f"{uid!r} is not the uid of an object")
    return uid


def _erase(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)

"""Hosted control planes on this machine: a folder each, and a component of the cluster's supervisor.

CLUSTER/hosted/UID/  process.json  settings.json  egress.json  *.kubeconfig  pki/  state.db  *.sock
▲ written by the operator            │ read by the supervisor when it reloads ─► component hosted@NAME

The process listens at an internal port, which only Tenantry and the process itself use. Users and pods reach it at its
port, where the endpoint proxy listens for all control planes (endpointproxy.py). If the cluster has real nodes, their
pods reach that port at the bridge's address.

process.json is called stopped.json while the control plane is stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import LocalError
from tenantry.hosting import plane as hosting
from tenantry.hosting import reportedversion, serveroptions
from tenantry.hosting.noderuntime import NodeEndpoint, NodeRuntime
from tenantry.hosting.placement import RESPONSE_BYTES, RunningPlane, ServerEndpoint
from tenantry.hosting.plane import HostedLimits, HostedPlane
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.hosting.snapshots import SnapshotStore
from tenantry.hosting.versions import HostedVersion
from tenantry.kube import kubeconfig
from tenantry.local import (
    components,
    control,
    endpointproxy,
    forwards,
    hostedfolders,
    hostedguards,
    hostedkeys,
    hostednodes,
    hostedpki,
    hostedreplicas,
    hostedsnapshots,
    hostedversions,
    kubeconfigs,
    pki,
    planestorage,
    ports,
    simulators,
)
from tenantry.local.build import Binaries
from tenantry.local.components import Component, ReadinessSignal
from tenantry.local.control import SupervisorRequest
from tenantry.local.files import explain, make_private_folder, write_private
from tenantry.local.hostedauthorities import LocalAuthorities
from tenantry.local.hostedprocess import PROCESS, STOPPED, HostedProcess, check_process, known, read
from tenantry.local.hostedsnapshots import LocalSnapshots
from tenantry.local.limits import LimitedGroup, ProcessLimits
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import network, planebridges, trust
from tenantry.local.real.network import NodeAddresses
from tenantry.local.spec import read_spec
from tenantry.local.state import ClusterState, ComponentState, Phase
from tenantry.local.stores import LocalStores

PREFIX = "hosted@"
START_SECONDS = 90.0
"""On a busy machine, a first start may take long; the queue tries again after it."""

_ORDER_SECONDS = 30.0
# A small heap from the start: one that grows first stays scattered, and keeps 5 MB more. Freed memory goes back at
# once.
_ENVIRONMENT = {"GOGC": "20", "GODEBUG": "madvdontneed=1"}
_SOFT_PART = 0.8
"""Of the memory limit: where Go begins to collect garbage more often; its program and SQLite take memory, too."""


def processes(paths: ClusterPaths) -> tuple[Component, ...]:
    """Return the hosted control planes of a cluster, and the endpoint proxy before them, as components.

    Args:
        paths: The cluster's.
    """
    found: list[Component] = []
    for file in sorted((paths.folder / "hosted").glob(f"*/{PROCESS}")):
        try:
            process = msgspec.json.decode(file.read_bytes(), type=HostedProcess)
        except (OSError, msgspec.MsgspecError):
            continue  # it is being removed
        for number, port in enumerate((process.internal or process.port, *process.others), start=1):
            own = hostedreplicas.folder(file.parent, number)
            found.append(
                Component(
                    name=f"{PREFIX}{hostedreplicas.name(process.name, number)}",
                    command=(process.program, str(own / hosting.SETTINGS)),
                    port=port,
                    signal=ReadinessSignal.NOTIFY_HTTPS,
                    health="/readyz",
                    authority=_authority(own / "pki"),
                    environment=_ENVIRONMENT | _soft_limit(process.limits),
                    limits=_limits(process.limits),
                )
            )
        server = f"{PREFIX}{process.name}"
        found += planestorage.of(paths, file.parent, process.name, server)
        if process.simulator:
            found += simulators.of(paths, file.parent, process.name, process.simulator, server)
    proxy = endpointproxy.component(paths) if _has_proxied(paths) else None
    return (*(() if proxy is None else (proxy,)), *forwards.forwards(paths), *found)


def _authority(folder: Path) -> Path:
    """Return the file with the authorities of an API server; an earlier version has written only one."""
    trusted = folder / hosting.TRUSTED
    return trusted if trusted.exists() else folder / "ca.crt"


def _has_proxied(paths: ClusterPaths) -> bool:
    """Return whether a control plane is reached by the endpoint proxy; clients of stopped ones wait there, too."""
    # One that is stopped or started meanwhile is found under one of its names.
    for name in (PROCESS, STOPPED, PROCESS):
        for file in (paths.folder / "hosted").glob(f"*/{name}"):
            with contextlib.suppress(LocalError):
                process = read(file)
                if process is not None and process.internal > 0:
                    return True
    return False


def _limits(given: HostedLimits | None) -> ProcessLimits | None:
    if given is None:
        return None
    return ProcessLimits(memory_bytes=given.memory_bytes, cpu_millis=given.cpu_millis)


def _soft_limit(given: HostedLimits | None) -> dict[str, str]:
    # Near its limit, the runtime of Go collects garbage more often: that is slow, and the end would be worse.
    return {} if given is None else {"GOMEMLIMIT": str(int(given.memory_bytes * _SOFT_PART))}


class LocalPlacement:
    """Runs hosted control planes under the supervisor of a local cluster; see `hosting.placement.Placement`.

    Args:
        paths: The cluster's.
        now: Returns the time, by which certificates are issued.
    """

    def __init__(self, paths: ClusterPaths, now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)) -> None:
        self._paths = paths
        self._now = now
        self._stores = LocalStores(paths, self._reload, self._ready)
        self.authorities = LocalAuthorities(paths)
        self.snapshots = LocalSnapshots(
            paths, self.stop, self._program, lambda uid: self._stores.opened(uid, self._folder(uid)), self._confined
        )

    def versions(self) -> tuple[HostedVersion, ...]:
        """See `Placement.versions`."""
        return hostedversions.known()

    async def provide(self, version: str) -> None:
        """See `Placement.provide`."""
        await asyncio.to_thread(hostedversions.built, version)

    async def start(self, plane: HostedPlane) -> RunningPlane:
        """See `Placement.start`."""
        check_process(plane)
        plane = await asyncio.to_thread(hostednodes.reached, self._paths, plane)
        program = hostedversions.built(plane.version)
        before = known(self._folder(plane.uid))
        if before is not None and len(before.others) != plane.replicas - 1:
            # One that elects no leader must not run beside others.
            await self.stop(plane.uid)
        if await asyncio.to_thread(self._ends_first, plane, program):
            # Its clients are held until it is back. Before its datastore starts, which ends with it.
            await self.stop(plane.uid)
        await self._stores.attach(plane, self._folder(plane.uid), program.hosted)
        process = await asyncio.to_thread(self._write, plane, program)
        state = await self._reload()
        if state.component(components.ENDPOINT_PROXY) is None:
            raise LocalError(
                "the supervisor of the cluster is of an earlier version: `tenantry down`, then `tenantry up`"
            )
        names = [f"{PREFIX}{hostedreplicas.name(plane.name, number)}" for number in range(1, plane.replicas + 1)]
        ready = await self._ready(*names)
        await endpointproxy.listens(self._paths, plane.uid, process.port)
        # Nodes that have joined find any process from now on, or the only one.
        await asyncio.to_thread(planebridges.admit, self._folder(plane.uid), process.internal, process.of_any)
        own = ClusterPaths(self._folder(plane.uid))
        connection = replace(kubeconfig.load([own.kubeconfig(hosting.OPERATOR)]), max_bytes=RESPONSE_BYTES)
        return RunningPlane(
            connection=connection,
            version=await reportedversion.read(connection),
            server=_url(plane, process.port),
            kubeconfig=own.kubeconfig(hosting.OWNER).read_text(),
            # Not before it listens: until then, the port could be another program's.
            from_pods=await asyncio.to_thread(self._admit, process.port),
            unlimited=ready.unlimited,
            renewal=hostedpki.next_change(own.pki, plane),
        )

    async def stop(self, uid: str) -> None:
        """See `Placement.stop`."""
        folder = self._folder(uid)
        with contextlib.suppress(FileNotFoundError):
            (folder / PROCESS).rename(folder / STOPPED)
        # Also for one that is stopped: an earlier reload may have failed. It returns when the process has ended.
        await self._reload()
        await self._stores.rest(uid, folder)

    @property
    def snapshot_kinds(self) -> frozenset[SnapshotPlaceKind]:
        """See `Placement.snapshot_kinds`."""
        return hostedsnapshots.KINDS

    def snapshots_at(self, place: SnapshotPlace) -> SnapshotStore:
        """See `Placement.snapshots_at`."""
        return self.snapshots.at(place)

    async def kubeconfig(self, uid: str) -> str:
        """See `Placement.kubeconfig`."""
        file = ClusterPaths(self._folder(uid)).kubeconfig(hosting.OWNER)
        try:
            return await asyncio.to_thread(file.read_text)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise explain(error, file) from error

    async def encryption(self, uid: str) -> bytes:
        """See `Placement.encryption`."""
        return await asyncio.to_thread(hostedkeys.read, self._paths, uid)

    def connected(self, uid: str) -> contextlib.AbstractAsyncContextManager[None]:  # noqa: ARG002 - its sockets are here
        """See `Placement.connected`."""
        return contextlib.nullcontext()

    async def has_moved(self, uid: str) -> bool:  # noqa: ARG002 - none moves
        """See `Placement.has_moved`."""
        return False

    def activity(self, uid: str) -> tuple[Path, ...]:
        """See `Placement.activity`."""
        folder = self._folder(uid)
        process = known(folder)
        others = len(process.others) if process is not None else 0
        return tuple(hostedreplicas.folder(folder, number) / hosting.ACTIVITY for number in range(1, others + 2))

    async def remove(self, uid: str) -> None:
        """See `Placement.remove`."""
        folder = self._folder(uid)
        # While the file is there, which has the port.
        await asyncio.to_thread(self._dismiss, folder)
        await asyncio.to_thread(planebridges.remove, folder)
        # Next the file that makes it a component: the supervisor ends the process, and does not start it again.
        (folder / PROCESS).unlink(missing_ok=True)
        # And the one for which the endpoint proxy listens while it sleeps.
        (folder / STOPPED).unlink(missing_ok=True)
        await self._reload()
        await self._stores.detach(uid, folder)
        await asyncio.to_thread(hostedfolders.remove, folder)
        await asyncio.to_thread(hostedkeys.remove, self._paths, uid)
        await asyncio.to_thread(hostedsnapshots.remove, self._paths, uid)

    async def open(self, uid: str, *, is_open: bool) -> None:
        """See `Placement.open`."""
        folder = self._folder(uid)
        # One that has not been started yet has no clients.
        await endpointproxy.admit(self._paths, folder, self._reload if known(folder) else None, is_open=is_open)

    async def follow(self, has: Callable[[str], bool], moved: Callable[[str], None]) -> None:  # noqa: ARG002 - none moves
        """See `Placement.follow`."""
        await asyncio.get_running_loop().create_future()

    def endpoint(self, uid: str) -> ServerEndpoint | None:  # noqa: ARG002 - its port stays
        """See `Placement.endpoint`."""
        return None

    async def knocked(self, uid: str) -> None:
        """See `Placement.knocked`."""
        self._folder(uid)
        await endpointproxy.knocked(self._paths, uid)

    def unreachable(self, uid: str) -> str:  # noqa: ARG002 - the supervisor restarts the proxy, and reports it
        """See `Placement.unreachable`."""
        return ""

    def node_runtime(self) -> NodeRuntime | None:
        """See `Placement.node_runtime`."""
        return hostednodes.runtime(self._paths)

    def node_endpoint(self, uid: str) -> NodeEndpoint | None:
        """See `Placement.node_endpoint`."""
        process = known(self._folder(uid))
        return hostednodes.endpoint(self._paths, uid, process) if process is not None else None

    def gate(self, uid: str) -> Path:
        """See `Placement.gate`."""
        return self._folder(uid) / hosting.GATE

    def admission(self, uid: str) -> Path:
        """See `Placement.admission`."""
        return self._folder(uid) / hosting.ADMISSION

    def forwarded(self, uid: str) -> Path:
        """See `Placement.forwarded`."""
        return self._folder(uid) / hosting.FORWARDED

    async def front_proxy_tls(self, uid: str) -> ssl.SSLContext:
        """See `Placement.front_proxy_tls`."""
        return await asyncio.to_thread(hostedpki.front_proxy_tls, self._folder(uid) / "pki")

    async def kubelet_tls(self, uid: str, addresses: Sequence[str], context: ssl.SSLContext | None) -> ssl.SSLContext:
        """See `Placement.kubelet_tls`."""
        folder = ClusterPaths(self._folder(uid)).pki
        await asyncio.to_thread(pki.ensure, folder, {"kubelet": hosting.kubelet(addresses)}, self._now())
        if context is None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
            context.verify_mode = ssl.CERT_REQUIRED
        # Handshakes from now on present the new certificate.
        context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
        return context

    def _ends_first(self, plane: HostedPlane, program: Binaries) -> bool:
        """Return whether the process runs with credentials that are replaced now, or with other settings."""
        folder = self._folder(plane.uid)
        process = read(folder / PROCESS)
        if process is None or not process.internal:
            return False
        if hostedpki.needs_restart(folder / "pki", plane, self._now()):
            return True
        keys = hostedpki.former_keys(folder / "pki")
        wanted = self._settings(plane, process.internal, program, keys)
        file = folder / hosting.SETTINGS
        if file.exists() and file.read_bytes() != wanted:
            return True
        # All processes end first: each one that runs has to read what another one writes.
        if hostedkeys.is_other(self._paths, plane.uid, plane.encryption):
            return True
        # The API server reads it only when it starts.
        policy = folder / serveroptions.AUDIT_POLICY
        ignored = hosting.leaves(plane)[hosting.OPERATOR].user
        return policy.exists() and policy.read_bytes() != serveroptions.audit_policy(plane.options, ignored)

    async def _reload(self) -> ClusterState:
        return await control.order(self._paths.socket, SupervisorRequest(verb="reload"), _ORDER_SECONDS)

    def _folder(self, uid: str) -> Path:
        return hostedfolders.of(self._paths, uid)

    def _program(self, uid: str, version: str) -> str:
        """Return the path of the program that a control plane has, or that of a version.

        Raises:
            LocalError: It has none yet.
        """
        process = known(self._folder(uid))
        if process is None:
            raise LocalError("the control plane has not been started yet: it has no objects")
        return str(hostedversions.built(version).hosted) if version else process.program

    def _confined(self, uid: str, pid: int) -> Callable[[], None]:
        """Put a command about a control plane under the limits of its process, and return what ends them."""
        process = known(self._folder(uid))
        limits = _limits(process.limits) if process is not None else None
        if process is None or limits is None:
            return lambda: None
        # Of its own: the process itself may run meanwhile.
        group = LimitedGroup(network.identity(self._paths.folder), f"{PREFIX}{process.name}-command")
        group.confine(pid, limits)
        return group.remove

    def _admit(self, port: int) -> ServerEndpoint | None:
        spec = read_spec(self._paths)
        if spec is None or spec.real is None:
            return None
        network.admit(network.identity(self._paths.folder), port)
        return ServerEndpoint(address=NodeAddresses(spec.real.block).bridge, port=port, is_of_operator=True)

    def _dismiss(self, folder: Path) -> None:
        try:
            process = known(folder)
        except LocalError:
            return  # the port stays in the rules until the cluster starts again
        if process is not None:
            network.dismiss(network.identity(self._paths.folder), process.port)

    def _reserved(self, folder: Path, plane: HostedPlane) -> tuple[int, int]:
        """Return the port of a control plane that starts first, and the internal one."""
        if plane.port:
            first, second = ports.reserve_at(folder, plane.port, 1, partial(owner_of_port, plane))
        else:
            first, second = ports.reserve_some(folder, 2)
        return first, second

    def _write(self, plane: HostedPlane, program: Binaries) -> HostedProcess:
        """Write what the process needs, and last the file that makes it a component."""
        own = ClusterPaths(self._folder(plane.uid))
        make_private_folder(own.folder)
        before = known(own.folder)
        endpointproxy.write(self._paths)
        # Ports that it has are kept: kubeconfigs name the first, and the process that runs occupies the second.
        if before is None:
            port, internal = self._reserved(own.folder, plane)
        else:
            port, internal = before.port, before.internal or ports.reserve_further(own.folder, 1)[0]
        operator = before.operator if before is not None else 0
        if plane.replicas > 1 and not operator:
            operator = ports.reserve_further(own.folder, 1)[0]
        nodes = before.nodes if before is not None else 0
        if plane.replicas > 1 and plane.has_nodes and not nodes:
            nodes = ports.reserve_further(own.folder, 1)[0]
        simulator = before.simulator if before is not None else 0
        if not simulator and plane.has_nodes and simulators.has_any(self._paths):
            simulator = ports.reserve_further(own.folder, 1)[0]
        process = HostedProcess(
            name=plane.name,
            program=str(program.hosted),
            port=port,
            internal=internal,
            limits=plane.limits,
            others=hostedreplicas.ports_of(own.folder, before.others if before is not None else (), plane.replicas - 1),
            operator=operator,
            nodes=nodes,
            simulator=simulator,
        )
        keys = hostedpki.issue(own.pki, plane, self._now())
        # Before the process starts, and with it the phase of a rotation: its next client is known to all kubelets.
        trust.bring(self._paths, plane.uid)
        kubeconfigs.write_at(own, plane.name, hosting.OWNER, _url(plane, port), authority=hosting.TRUSTED)
        # Their connections are no reason to wake the process, and do not count as those of users.
        # With several processes, the operator needs any that answers, also while clients are refused.
        own_port = internal if plane.replicas == 1 else operator
        kubeconfigs.write(own, plane.name, hosting.OPERATOR, own_port, authority=hosting.TRUSTED)
        # Their clients read the files anew when they change.
        for each in hosting.in_files(plane):
            kubeconfigs.write_named(own, plane.name, each, internal, authority=hosting.TRUSTED)
        if planestorage.has_any(self._paths, plane):
            kubeconfigs.write_named(own, plane.name, hosting.STORAGE, own_port, authority=hosting.TRUSTED)
        if simulator:
            kubeconfigs.write_named(own, plane.name, hosting.SIMULATOR, own_port, authority=hosting.TRUSTED)
        write_private(own.folder / serveroptions.AUTHENTICATION, serveroptions.authentication(plane.options))
        ignored = hosting.leaves(plane)[hosting.OPERATOR].user
        write_private(own.folder / serveroptions.AUDIT_POLICY, serveroptions.audit_policy(plane.options, ignored))
        hostedkeys.write(self._paths, plane.uid, plane.encryption)
        write_private(own.folder / hosting.SETTINGS, self._settings(plane, internal, program, keys))
        write_private(own.folder / "egress.json", hosting.egress())
        hostedguards.write(own.folder, plane.guards)
        folder_of_keys = hostedkeys.folder(self._paths, plane.uid)
        hostedreplicas.write(
            own.folder, plane, process.others, str(program.openapi), keys, folder_of_keys=f"{folder_of_keys}/"
        )
        write_private(own.folder / PROCESS, msgspec.json.encode(process))
        (own.folder / STOPPED).unlink(missing_ok=True)
        return process

    def _settings(self, plane: HostedPlane, port: int, program: Binaries, former_keys: Sequence[str]) -> bytes:
        return hosting.settings(
            plane,
            port,
            str(program.openapi),
            former_keys,
            prebuilt=str(program.prebuilt),
            folder_of_keys=f"{hostedkeys.folder(self._paths, plane.uid)}/",
        )

    async def _ready(self, *names: str) -> ComponentState:
        """Return the first of some components that is ready.

        Raises:
            LocalError: One ended, with its last lines, and none is ready; or none is in time.
        """
        first = names[0]
        try:
            async with asyncio.timeout(START_SECONDS), contextlib.aclosing(control.watch(self._paths.socket)) as states:
                async for state in states:
                    known = [found for name in names if (found := state.component(name)) is not None]
                    if (ready := _ready_of(known)) is not None:
                        return ready
        except TimeoutError as error:
            raise LocalError(
                f"{first} is not ready after {START_SECONDS:.0f} s: `tenantry logs {first}` shows why"
            ) from error
        raise LocalError("the supervisor of the cluster ended: `tenantry status` shows why")


def _ready_of(known: Sequence[ComponentState]) -> ComponentState | None:
    """Return one that is ready, None if they start.

    Raises:
        LocalError: All have ended: the last lines of the first one.
    """
    ready = next((each for each in known if each.phase is Phase.READY), None)
    if ready is None and known and all(each.phase is Phase.BACK_OFF and each.last_exit is not None for each in known):
        found = known[0]
        lines = "\n".join(f"    {line}" for line in found.last_exit.lines[-3:]) if found.last_exit else ""
        raise LocalError(f"{found.name} ended ({found.last_exit}); its last lines:\n{lines}")
    return ready


def owner_of_port(plane: HostedPlane, folder: Path) -> str:
    """Return the control plane of the same namespace that has reserved a port, in words; "" for any other one."""
    with contextlib.suppress(LocalError):
        process = known(folder)
        if process is not None and process.name.partition(".")[0] == plane.name.partition(".")[0]:
            return f"the control plane {process.name!r}"
    return ""


def _url(plane: HostedPlane, port: int) -> str:
    return f"https://{plane.host or components.LOOPBACK}:{port}"

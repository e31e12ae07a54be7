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
import re
import shutil
import ssl
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError
from tenantry.hosting import plane as hosting
from tenantry.hosting.placement import RunningPlane, ServerEndpoint
from tenantry.hosting.plane import HostedLimits, HostedPlane
from tenantry.kube import kubeconfig
from tenantry.local import build, components, control, endpointproxy, hostedsnapshots, kubeconfigs, pki, ports
from tenantry.local.build import Binaries
from tenantry.local.components import Component, ReadinessSignal
from tenantry.local.control import SupervisorRequest
from tenantry.local.files import explain, make_private_folder, write_private
from tenantry.local.hostedsnapshots import LocalSnapshots
from tenantry.local.limits import ProcessLimits
from tenantry.local.paths import ClusterPaths
from tenantry.local.real import network
from tenantry.local.real.network import NodeAddresses
from tenantry.local.spec import read_spec
from tenantry.local.state import ClusterState, ComponentState, Phase
from tenantry.local.stores import LocalStores

PREFIX = "hosted@"
START_SECONDS = 90.0
"""On a busy machine, a first start may take long; the queue tries again after it."""

_ORDER_SECONDS = 30.0
_PROCESS = "process.json"
_STOPPED = "stopped.json"
"""The same file of a control plane that the supervisor must not run."""
_UID = re.compile(r"[0-9a-f-]{1,64}")
# A small heap from the start: one that grows first stays scattered, and keeps 5 MB more. Freed memory goes back at
# once.
_ENVIRONMENT = {"GOGC": "20", "GODEBUG": "madvdontneed=1"}
_SOFT_PART = 0.8
"""Of the memory limit: where Go begins to collect garbage more often; its program and SQLite take memory, too."""


class HostedProcess(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How the supervisor runs one hosted control plane.

    Args:
        name: Its component is called "hosted@NAME".
        program: The path of the program.
        port: The port on 127.0.0.1 that kubeconfigs and pods name; the endpoint proxy listens there.
        internal: The port of its API server on 127.0.0.1; 0 if that is `port`, as in earlier versions.
        limits: As in `HostedPlane`.
    """

    name: str
    program: str
    port: int
    internal: int = 0
    limits: HostedLimits | None = None


def processes(paths: ClusterPaths) -> tuple[Component, ...]:
    """Return the hosted control planes of a cluster, and the endpoint proxy before them, as components.

    Args:
        paths: The cluster's.
    """
    found: list[Component] = []
    for file in sorted((paths.folder / "hosted").glob(f"*/{_PROCESS}")):
        try:
            process = msgspec.json.decode(file.read_bytes(), type=HostedProcess)
        except (OSError, msgspec.MsgspecError):
            continue  # it is being removed
        folder = file.parent
        found.append(
            Component(
                name=f"{PREFIX}{process.name}",
                command=(process.program, str(folder / hosting.SETTINGS)),
                port=process.internal or process.port,
                signal=ReadinessSignal.NOTIFY_HTTPS,
                health="/readyz",
                authority=folder / "pki" / "ca.crt",
                environment=_ENVIRONMENT | _soft_limit(process.limits),
                limits=_limits(process.limits),
            )
        )
    proxy = endpointproxy.component(paths) if _has_proxied(paths) else None
    return (*(() if proxy is None else (proxy,)), *found)


def _has_proxied(paths: ClusterPaths) -> bool:
    """Return whether a control plane is reached by the endpoint proxy; clients of stopped ones wait there, too."""
    # One that is stopped or started meanwhile is found under one of its names.
    for name in (_PROCESS, _STOPPED, _PROCESS):
        for file in (paths.folder / "hosted").glob(f"*/{name}"):
            with contextlib.suppress(LocalError):
                process = _read(file)
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
    """

    def __init__(self, paths: ClusterPaths) -> None:
        self._paths = paths
        self._stores = LocalStores(paths, self._reload, self._ready)
        self.snapshots = LocalSnapshots(paths, self.stop, self._program)

    async def start(self, plane: HostedPlane) -> RunningPlane:
        """See `Placement.start`."""
        program = build.built(build.HOSTED)
        if program is None:
            raise LocalError(
                "the program of hosted control planes is not built: run `tenantry local build --with-hosted`"
            )
        await self._stores.attach(plane, self._folder(plane.uid), program.hosted)
        process = await asyncio.to_thread(self._write, plane, program)
        state = await self._reload()
        if state.component(components.ENDPOINT_PROXY) is None:
            raise LocalError(
                "the supervisor of the cluster is of an earlier version: `tenantry down`, then `tenantry up`"
            )
        ready = await self._ready(f"{PREFIX}{plane.name}")
        await endpointproxy.listens(self._paths, plane.uid, process.port)
        own = ClusterPaths(self._folder(plane.uid))
        return RunningPlane(
            connection=kubeconfig.load([own.kubeconfig(hosting.OPERATOR)]),
            server=f"https://{components.LOOPBACK}:{process.port}",
            kubeconfig=own.kubeconfig(hosting.OWNER).read_text(),
            # Not before it listens: until then, the port could be another program's.
            from_pods=await asyncio.to_thread(self._admit, process.port),
            unlimited=ready.unlimited,
        )

    async def stop(self, uid: str) -> None:
        """See `Placement.stop`."""
        folder = self._folder(uid)
        with contextlib.suppress(FileNotFoundError):
            (folder / _PROCESS).rename(folder / _STOPPED)
        # Also for one that is stopped: an earlier reload may have failed. It returns when the process has ended.
        await self._reload()

    @property
    def can_sleep(self) -> bool:
        """See `Placement.can_sleep`."""
        return True

    def connected(self, uid: str) -> contextlib.AbstractAsyncContextManager[None]:  # noqa: ARG002 - its sockets are here
        """See `Placement.connected`."""
        return contextlib.nullcontext()

    async def has_moved(self, uid: str) -> bool:  # noqa: ARG002 - none moves
        """See `Placement.has_moved`."""
        return False

    def activity(self, uid: str) -> Path:
        """See `Placement.activity`."""
        return self._folder(uid) / hosting.ACTIVITY

    async def remove(self, uid: str) -> None:
        """See `Placement.remove`."""
        folder = self._folder(uid)
        # While the file is there, which has the port.
        await asyncio.to_thread(self._dismiss, folder)
        # Next the file that makes it a component: the supervisor ends the process, and does not start it again.
        (folder / _PROCESS).unlink(missing_ok=True)
        # And the one for which the endpoint proxy listens while it sleeps.
        (folder / _STOPPED).unlink(missing_ok=True)
        await self._reload()
        await self._stores.detach(uid, folder)
        await asyncio.to_thread(_remove, folder)
        await asyncio.to_thread(hostedsnapshots.remove, self._paths, uid)

    async def knocked(self, uid: str) -> None:
        """See `Placement.knocked`."""
        self._folder(uid)
        await endpointproxy.knocked(self._paths, uid)

    def gate(self, uid: str) -> Path:
        """See `Placement.gate`."""
        return self._folder(uid) / hosting.GATE

    def admission(self, uid: str) -> Path:
        """See `Placement.admission`."""
        return self._folder(uid) / hosting.ADMISSION

    async def kubelet_tls(self, uid: str, addresses: Sequence[str], context: ssl.SSLContext | None) -> ssl.SSLContext:
        """See `Placement.kubelet_tls`."""
        folder = ClusterPaths(self._folder(uid)).pki
        await asyncio.to_thread(pki.ensure, folder, {"kubelet": hosting.kubelet(addresses)}, dt.datetime.now(dt.UTC))
        if context is None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.crt")
            context.verify_mode = ssl.CERT_REQUIRED
        # Handshakes from now on present the new certificate.
        context.load_cert_chain(folder / "kubelet.crt", folder / "kubelet.key")
        return context

    async def _reload(self) -> ClusterState:
        return await control.order(self._paths.socket, SupervisorRequest(verb="reload"), _ORDER_SECONDS)

    def _folder(self, uid: str) -> Path:
        if not _UID.fullmatch(uid):
            raise InputError(f"{uid!r} is not the uid of an object")
        return self._paths.folder / "hosted" / uid

    def _program(self, uid: str) -> str:
        """Return the path of the program that a control plane has.

        Raises:
            LocalError: It has none yet.
        """
        process = _known(self._folder(uid))
        if process is None:
            raise LocalError("the control plane has not been started yet: it has no objects")
        return process.program

    def _admit(self, port: int) -> ServerEndpoint | None:
        spec = read_spec(self._paths)
        if spec is None or spec.real is None:
            return None
        network.admit(network.identity(self._paths.folder), port)
        return ServerEndpoint(address=NodeAddresses(spec.real.block).bridge, port=port)

    def _dismiss(self, folder: Path) -> None:
        try:
            process = _known(folder)
        except LocalError:
            return  # the port stays in the rules until the cluster starts again
        if process is not None:
            network.dismiss(network.identity(self._paths.folder), process.port)

    def _write(self, plane: HostedPlane, program: Binaries) -> HostedProcess:
        """Write what the process needs, and last the file that makes it a component."""
        own = ClusterPaths(self._folder(plane.uid))
        make_private_folder(own.folder)
        before = _known(own.folder)
        endpointproxy.write(self._paths)
        # Ports that it has are kept: kubeconfigs name the first, and the process that runs occupies the second.
        if before is None:
            port, internal = ports.reserve_some(own.folder, 2)
        else:
            port, internal = before.port, before.internal or ports.reserve_further(own.folder, 1)[0]
        process = HostedProcess(
            name=plane.name,
            program=str(program.hosted),
            port=port,
            internal=internal,
            limits=plane.limits,
        )
        pki.ensure(own.pki, hosting.leaves(plane), dt.datetime.now(dt.UTC))
        kubeconfigs.write(own, plane.name, hosting.OWNER, port)
        # Their connections are no reason to wake the process, and do not count as those of users.
        for identity in (hosting.OPERATOR, components.CONTROLLER_MANAGER):
            kubeconfigs.write(own, plane.name, identity, internal)
        write_private(own.folder / hosting.SETTINGS, hosting.settings(plane, internal, str(program.openapi)))
        write_private(own.folder / "egress.json", hosting.egress())
        write_private(own.folder / _PROCESS, msgspec.json.encode(process))
        (own.folder / _STOPPED).unlink(missing_ok=True)
        return process

    async def _ready(self, component: str) -> ComponentState:
        """Return a component once it is ready.

        Raises:
            LocalError: It ended, with its last lines, or is not ready in time.
        """
        try:
            async with asyncio.timeout(START_SECONDS), contextlib.aclosing(control.watch(self._paths.socket)) as states:
                async for state in states:
                    found = state.component(component)
                    if found is not None and _is_ready(found):
                        return found
        except TimeoutError as error:
            raise LocalError(
                f"{component} is not ready after {START_SECONDS:.0f} s: `tenantry logs {component}` shows why"
            ) from error
        raise LocalError("the supervisor of the cluster ended: `tenantry status` shows why")


def _is_ready(found: ComponentState) -> bool:
    if found.phase is Phase.BACK_OFF and found.last_exit is not None:
        lines = "\n".join(f"    {line}" for line in found.last_exit.lines[-3:])
        raise LocalError(f"{found.name} ended ({found.last_exit}); its last lines:\n{lines}")
    return found.phase is Phase.READY


def _known(folder: Path) -> HostedProcess | None:
    """Return how a control plane runs, or ran until it was stopped; None if it has not been started yet."""
    return _read(folder / _PROCESS) or _read(folder / _STOPPED)


def _read(file: Path) -> HostedProcess | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=HostedProcess)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise LocalError(
            f'"{file}" cannot be read ({error}): delete it, and the control plane gets a new port'
        ) from error


def _remove(folder: Path) -> None:
    ports.release(folder)
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise explain(error, folder) from error

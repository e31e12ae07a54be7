"""Light clusters: API servers that share one etcd, for tests and benchmarks of many clusters on one machine.

    async with light_clusters("alpha", "beta") as clusters:      etcd ─┬─ kube-apiserver alpha (--etcd-prefix=/alpha-0)
        await clusters["alpha"].kill()                                 └─ kube-apiserver beta  (--etcd-prefix=/beta-0)

Each cluster has a port, an authority, a key pair for service accounts and an administrator of its own, and consists of
nothing but the API server: no controller runs, so that namespaces stay `Terminating` and no ServiceAccount is created
in new ones. Data lives in a temporary folder. The kernel kills all processes when this one ends.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import ssl
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tenantry.api.errors import InputError, LocalError
from tenantry.kube import kubeconfig
from tenantry.kube.kubeconfig import Connection
from tenantry.local import authentication, build, folders, kubeconfigs, pki, ports
from tenantry.local.components import Component, Datastore, light_apiserver, shared_etcd
from tenantry.local.files import check_space, tail, write_private
from tenantry.local.paths import ClusterPaths, check_name
from tenantry.local.process import ChildProcess, environment
from tenantry.local.progress import SilentProgress
from tenantry.local.readiness import Notification, trust
from tenantry.local.runner import race, start, wait_ready

_NEEDED_MIB = 256
_SHOWN_LINES = 5
START_SECONDS = 120.0
"""The time that one process gets to become ready; on a busy machine its share of the CPU may be small."""


class LightCluster:
    """One API server; made by `LightClusters.add`.

    Args:
        name: A DNS label.
        paths: Its files.
        port: The port on 127.0.0.1 that it keeps for its life.
        binaries: The folder of the programs.
        datastore: The shared etcd.
        watch_cache: Whether the API server caches what is watched.
        max_watch_seconds: The longest time for which a watch stays open; None for the default.
    """

    def __init__(
        self,
        name: str,
        paths: ClusterPaths,
        port: int,
        binaries: str,
        datastore: Datastore,
        *,
        watch_cache: bool,
        max_watch_seconds: int | None,
    ) -> None:
        self.name = name
        self.port = port
        self.kubeconfig_path = paths.kubeconfig("admin")
        self._paths = paths
        self._binaries = binaries
        self._datastore = datastore
        self._watch_cache = watch_cache
        self._max_watch_seconds = max_watch_seconds
        self._generation = 0
        self._tls = trust(paths.pki / "ca.crt")
        self._child: ChildProcess | None = None

    @property
    def connection(self) -> Connection:
        """Return how to reach it as its administrator, a member of system:masters."""
        return kubeconfig.load([self.kubeconfig_path])

    @property
    def pid(self) -> int:
        """Return the pid of its API server.

        Raises:
            LocalError: It does not run.
        """
        return self._running().pid

    async def start(self) -> None:
        """Start the API server and wait until it is ready.

        Raises:
            LocalError: It runs already, ends, or is not ready in time.
        """
        if self._child:
            raise LocalError(f'the API server of "{self.name}" runs already')
        # Two API servers of the same prefix are one cluster, and those of one etcd must not see each other's keys.
        prefix = f"/{self.name}-{self._generation}"
        datastore = Datastore(port=self._datastore.port, pki=self._datastore.pki, prefix=prefix)
        component = light_apiserver(
            self._binaries,
            self._paths,
            self.port,
            datastore,
            watch_cache=self._watch_cache,
            max_watch_seconds=self._max_watch_seconds,
        )
        self._child = await _start(component, self._paths, self._tls)

    def pause(self) -> None:
        """Stop the API server with SIGSTOP: it accepts connections, and never answers."""
        self._running().send(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the API server with SIGCONT."""
        self._running().send(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill the API server with SIGKILL, if it runs, and wait until it has ended; its data stays in etcd."""
        child, self._child = self._child, None
        if child:
            child.send(signal.SIGKILL)
            await child.wait()

    async def restart(self, *, empty: bool = False) -> None:
        """Kill the API server and start it again, with the same port, certificates and keys.

        Args:
            empty: Whether it starts without its data, as a cluster does that was restored from nothing.
        """
        await self.kill()
        if empty:
            # With another prefix, the API server finds none of its objects in etcd.
            self._generation += 1
        await self.start()

    def _running(self) -> ChildProcess:
        if self._child is None:
            raise LocalError(f'the API server of "{self.name}" does not run')
        return self._child


class LightClusters:
    """The clusters of one etcd, by name; made by `light_clusters`.

    Args:
        folder: The folder of all files.
        binaries: The folder of the programs.
        datastore: The etcd.
        etcd_pid: The pid of etcd.
    """

    def __init__(self, folder: Path, binaries: str, datastore: Datastore, etcd_pid: int) -> None:
        self.etcd_pid = etcd_pid
        self._folder = folder
        self._binaries = binaries
        self._datastore = datastore
        self._clusters: dict[str, LightCluster] = {}
        # Each start takes a core for a second: more at once would only make all of them slow.
        self._starting = asyncio.Semaphore(os.cpu_count() or 1)

    def __getitem__(self, name: str) -> LightCluster:
        """Return the cluster of this name."""
        return self._clusters[name]

    @property
    def all(self) -> tuple[LightCluster, ...]:
        """Return all clusters, in the order in which they were added."""
        return tuple(self._clusters.values())

    async def add(self, name: str, *, watch_cache: bool = False, max_watch_seconds: int | None = None) -> LightCluster:
        """Create a cluster and wait until it is ready.

        Args:
            name: A DNS label that no other cluster of this etcd has.
            watch_cache: Whether the API server caches what is watched: more memory, and less load for etcd when many
                clients watch the same.
            max_watch_seconds: The longest time for which a watch stays open; None for the default.

        Raises:
            InputError: The name is taken, or no DNS label.
            LocalError: The API server does not become ready.
        """
        if check_name(name) in self._clusters:
            raise InputError(f'there is a light cluster "{name}" already')
        paths = ClusterPaths(self._folder / "clusters" / name)
        folders.prepare(paths, name, None)
        pki.ensure(paths.pki, pki.apiserver_leaves(), dt.datetime.now(dt.UTC))
        (port,) = ports.reserve_some(paths.folder, 1)
        kubeconfigs.write(paths, name, "admin", port)
        write_private(paths.authentication, authentication.text(None).encode())
        cluster = LightCluster(
            name,
            paths,
            port,
            self._binaries,
            self._datastore,
            watch_cache=watch_cache,
            max_watch_seconds=max_watch_seconds,
        )
        self._clusters[name] = cluster
        async with self._starting:
            await cluster.start()
        return cluster

    async def remove(self, name: str) -> None:
        """Kill a cluster's API server and forget the cluster."""
        await self._clusters.pop(name).kill()
        ports.release(self._folder / "clusters" / name)


@asynccontextmanager
async def light_clusters(*names: str) -> AsyncGenerator[LightClusters]:
    """Run an etcd, and one API server for each name; all end with the block, and their data goes.

    Use it in a process with one thread: children are prepared between fork and exec (`process.Child`).

    Args:
        names: DNS labels.

    Raises:
        LocalError: A process does not become ready.
    """
    binaries = build.built() or await asyncio.to_thread(build.ensure, SilentProgress())
    with tempfile.TemporaryDirectory(prefix="tenantry-light-") as name:
        folder = Path(name)
        check_space(folder, _NEEDED_MIB)
        paths = ClusterPaths(folder / "etcd")
        folders.prepare(paths, "etcd", None)
        pki.ensure(paths.pki, pki.etcd_leaves(), dt.datetime.now(dt.UTC))
        client_port, peer_port = ports.reserve_some(paths.folder, 2)
        programs = str(binaries.folder)
        store = shared_etcd(programs, paths, client_port, peer_port, throwaway=True)
        child = await _start(store, paths, trust(paths.pki / "etcd-ca.crt"))
        clusters = LightClusters(folder, programs, Datastore(port=client_port, pki=paths.pki), child.pid)
        try:
            async with asyncio.TaskGroup() as group:
                for each in names:
                    group.create_task(clusters.add(each))
            yield clusters
        finally:
            for cluster in clusters.all:
                await clusters.remove(cluster.name)
            await child.stop(0)
            ports.release(paths.folder)


async def _start(component: Component, paths: ClusterPaths, tls: ssl.SSLContext) -> ChildProcess:
    """Start a component and wait until it is ready.

    Raises:
        LocalError: It cannot be started, ends, or is not ready in time.
    """
    with Notification() as notification:
        try:
            child = start(component, paths, environment(), notification)
        except OSError as error:
            raise LocalError(f"{component.name} cannot be started: {error}") from error
        problem = "ended"
        is_ready = False
        try:
            async with asyncio.timeout(START_SECONDS):
                is_ready = await race(wait_ready(component, notification, tls), child.wait())
        except TimeoutError:
            problem = f"is not ready after {START_SECONDS:.0f} s"
        finally:
            if not is_ready:
                await child.stop(0)
    if is_ready:
        return child
    log = paths.log(component.name)
    lines = "\n".join(tail(log, _SHOWN_LINES))
    raise LocalError(f'{component.name} {problem}. The end of "{log}":\n{lines}')

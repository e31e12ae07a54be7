"""One local cluster: starts it, inspects it, stops it. Every user of a local control plane goes through here.

LocalCluster("default").up()   prepare: folder, ports, certificates ─► supervisor ─► control plane ready
                               ─► what a fresh cluster needs (bootstrap.py) ─► kwok, nodes, operator
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import os
import subprocess
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tenantry.api.errors import InputError, LocalError
from tenantry.local import (
    authentication,
    build,
    components,
    control,
    controlplaneversions,
    folders,
    kubeconfigs,
    locks,
    pki,
    ports,
    process,
)
from tenantry.local.authentication import Oidc
from tenantry.local.control import SupervisorRequest, Verb
from tenantry.local.deadline import ProgressDeadline
from tenantry.local.files import check_space, write_private
from tenantry.local.launch import start_supervisor
from tenantry.local.leftovers import kill_components
from tenantry.local.lightpeers import prepare_light, seen
from tenantry.local.nodes import NodePlan
from tenantry.local.paths import ClusterPaths, check_name, cluster_folder, home
from tenantry.local.progress import Progress, SilentProgress
from tenantry.local.real import fleet
from tenantry.local.spec import ClusterSpec, RealNodes, read_spec, supervised_at, write_spec
from tenantry.local.state import ClusterState, Phase, ended, read_state
from tenantry.local.trouble import crash_of, what_is_late

# etcd's write-ahead log alone takes 64 MB from the start.
_NEEDED_MIB = 256
_ORDER_SECONDS = 20.0
_DOWN_SECONDS = 30.0
_STATE_SECONDS = 2.0
_CRASHES = 3

Install = Callable[[Path], Awaitable[None]]
"""Installs Tenantry into the cluster of a kubeconfig, before the operator starts. `up` may repeat it."""


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """Options of `up`.

    Args:
        nodes: Its simulated nodes; None keeps the present ones.
        real_nodes: The number of its real nodes; None keeps the present ones.
        data: The folder of its files; None for the present one, or the default for a new cluster.
        throwaway: Whether data may be lost when the machine dies.
        operator: Whether the operator runs in it.
        install: Installs what the operator needs to start.
        guard: Installs the rest, and waits until it is in force, while operator and nodes start.
        addresses: Further IP addresses for the API server's certificate.
        oidc: The OIDC provider that the API server trusts; None keeps the present one.
        no_oidc: Stop trusting any OIDC provider.
        waits: Whether to wait for the operator and the nodes; otherwise, they go on starting.
        kubernetes: The minor version of Kubernetes, as in "1.36"; "" keeps the present one, or takes the default.
        timeout_seconds: The time without progress after which `up` gives up. Each component or node that becomes ready
            restarts it, and so does each finished step of the installation. Building is not counted.
    """

    nodes: NodePlan | None = None
    real_nodes: int | None = None
    data: Path | None = None
    throwaway: bool = False
    operator: bool = False
    install: Install | None = None
    guard: Install | None = None
    addresses: tuple[str, ...] = ()
    oidc: Oidc | None = None
    no_oidc: bool = False
    waits: bool = True
    kubernetes: str = ""
    timeout_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class UpResult:
    """The result of `up`.

    Args:
        was_running: Whether the control plane ran already.
        seconds: How long it took.
        state: The cluster then.
    """

    was_running: bool
    seconds: float
    state: ClusterState


class LocalCluster:
    """A cluster on this machine.

    Args:
        name: A DNS label.
        root: The home of all clusters; None for the user's.

    Raises:
        InputError: The name is no DNS label.
    """

    def __init__(self, name: str = "default", *, root: Path | None = None) -> None:
        self.name = check_name(name)
        self.root = root or home()
        self.paths = ClusterPaths(cluster_folder(name, self.root))
        self._deadline = ProgressDeadline()

    @property
    def kubeconfig_path(self) -> Path:
        """Return the path of the administrator's kubeconfig; the first `up` writes it."""
        return self.paths.kubeconfig("admin")

    @property
    def server(self) -> str:
        """Return the URL of its API server.

        Raises:
            LocalError: There is no such cluster.
        """
        return f"https://{components.LOOPBACK}:{self.spec().ports.apiserver}"

    def exists(self) -> bool:
        """Return whether the cluster exists, running or not."""
        return self.paths.spec.exists()

    def is_running(self) -> bool:
        """Return whether its supervisor runs."""
        return locks.is_held(supervised_at(self.paths).supervisor_lock)

    def spec(self) -> ClusterSpec:
        """Return its spec.

        Raises:
            LocalError: There is no such cluster.
        """
        spec = read_spec(self.paths)
        if spec is None:
            raise LocalError(f'there is no local cluster "{self.name}": `tenantry up --cluster {self.name}` makes it')
        return spec

    def version(self, wanted: str = "") -> str:
        """Return the version of Kubernetes that it starts with, as in "1.36".

        Args:
            wanted: The version that it is to have; "" for the present one, or the default.

        Raises:
            InputError: There is no such version, or it may not get it.
        """
        before = read_spec(self.paths)
        return controlplaneversions.chosen(wanted, before.kubernetes if before else None, self.name)

    def status(self) -> ClusterState:
        """Return its state; phase `Killed` means that its supervisor ended without stopping it.

        Raises:
            LocalError: There is no such cluster.
        """
        spec = self.spec()
        # On a full disk, the supervisor cannot write its state.
        paths = supervised_at(self.paths)
        state = control.current(paths.socket, _STATE_SECONDS) if self.is_running() else None
        state = state or read_state(paths)
        if state is None:
            phase = Phase.STARTING if self.is_running() else Phase.STOPPED
            return ClusterState(name=spec.name, boot_id="", supervisor_pid=0, supervisor_ticks=0, phase=phase)
        if state.phase is not Phase.STOPPED and not self.is_running():
            state = ended(state, Phase.KILLED)
        return seen(spec, state)

    async def up(self, options: UpOptions | None = None, progress: Progress | None = None) -> UpResult:
        """Start it; if it runs already, only apply the options.

        Raises:
            InputError: The options contradict what the cluster is.
            LocalError: It does not come up: which component, why, and the end of its log.
        """
        options = options or UpOptions()
        progress = progress or SilentProgress()
        # Before the clock starts: a build takes minutes.
        product = controlplaneversions.VERSIONS.product(self.version(options.kubernetes))
        binaries = build.built(product) or await asyncio.to_thread(build.ensure, progress, product)
        started = time.monotonic()
        folders.prepare(self.paths, self.name, options.data)
        async with self._changing_until(options.timeout_seconds):
            was_running = self.is_running()
            if was_running:
                # A running cluster only gets what can change while it runs.
                self._check_same(options)
                await self._identify(options, progress)
                if options.real_nodes is not None:
                    nodes = fleet.counted(self.real().nodes, options.real_nodes)
                    await self._renode(msgspec.structs.replace(self.real(), nodes=nodes))
                await self._furnish(options, progress)
            else:
                await self._start(binaries, options, progress)
        return UpResult(was_running=was_running, seconds=time.monotonic() - started, state=self.status())

    async def down(self, *, purge: bool = False) -> bool:
        """Stop all its processes; return whether any ran.

        Args:
            purge: Whether to delete its data, too.

        Raises:
            LocalError: There is no such cluster.
        """
        if not self.paths.folder.is_dir():
            if self.paths.folder.is_symlink() and purge:
                self.paths.folder.unlink()
                return False
            self.spec()
        async with self._changing(_DOWN_SECONDS):
            was_running = self.is_running()
            if was_running:
                await self._shut_down()
            await self._kill_leftovers()
            if purge:
                folders.purge(self.paths)
        return was_running

    def kubectl(self, *arguments: str, timeout_seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator; return its exit code, stdout and stderr."""
        return subprocess.run(
            [str(build.Binaries(Path(self.spec().binaries)).kubectl), *arguments],
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_seconds,
        )

    async def stop_component(self, component: str) -> None:
        """Stop a component until `start_component`."""
        await self._order("stop", component)

    async def start_component(self, component: str, timeout_seconds: float = 30.0) -> None:
        """Start a component, and wait until it is ready.

        Raises:
            LocalError: It is not, in that time.
        """
        await self._order("start", component)
        await self.wait_ready(component, timeout_seconds=timeout_seconds)

    async def restart_component(self, component: str, timeout_seconds: float = 30.0) -> None:
        """Stop a component, start it again, and wait until it is ready."""
        await self._order("restart", component)
        await self.wait_ready(component, timeout_seconds=timeout_seconds)

    async def wait_ready(self, *names: str, timeout_seconds: float = 30.0) -> ClusterState:
        """Wait until components are ready (default: all of the control plane)."""
        wanted = frozenset(names or components.CONTROL_PLANE)

        def is_ready(state: ClusterState) -> bool:
            return wanted <= {each.name for each in state.components if each.phase is Phase.READY}

        return await self.wait_for(is_ready, timeout_seconds=timeout_seconds)

    async def wait_for(self, is_so: Callable[[ClusterState], bool], *, timeout_seconds: float = 30.0) -> ClusterState:
        """Wait until the supervisor reports a state that meets a condition.

        Raises:
            LocalError: It is not, in that time.
        """
        try:
            async with (
                asyncio.timeout(timeout_seconds),
                contextlib.aclosing(control.watch(self.paths.socket)) as states,
            ):
                async for state in states:
                    if is_so(state):
                        return state
        except TimeoutError as error:
            raise LocalError(what_is_late(self.name, self.paths, timeout_seconds)) from error
        raise LocalError(f'the supervisor of "{self.name}" ended')

    async def _order(self, verb: Verb, component: str = "") -> ClusterState:
        return await control.order(self.paths.socket, SupervisorRequest(verb=verb, component=component), _ORDER_SECONDS)

    @asynccontextmanager
    async def _changing(self, timeout_seconds: float) -> AsyncGenerator[None]:
        lock = locks.FileLock(self.paths.up_lock)
        try:
            await lock.acquire_async(timeout_seconds)
        except TimeoutError as error:
            raise LocalError(f'another `tenantry up` or `down` of "{self.name}" takes too long') from error
        try:
            yield
        finally:
            lock.release()

    @asynccontextmanager
    async def _changing_until(self, seconds: float) -> AsyncGenerator[None]:
        """Hold the cluster's lock while changing it, and give up after this time without progress."""
        try:
            async with self._deadline.of(seconds), self._changing(seconds):
                yield
        except TimeoutError as error:
            raise LocalError(what_is_late(self.name, self.paths, seconds, self._deadline)) from error

    def _check_same(self, options: UpOptions) -> None:
        if options.throwaway and not self.spec().throwaway:
            raise InputError(
                f'the cluster "{self.name}" runs and keeps its data: `tenantry down --cluster {self.name}` first, or '
                "leave --throwaway out"
            )
        runs = self.version()
        if options.kubernetes not in {"", runs}:
            raise InputError(
                f'the cluster "{self.name}" runs Kubernetes {runs}: `tenantry down --cluster {self.name}` first,'
                " or leave --kubernetes-version out"
            )

    def real(self) -> RealNodes:
        """Return its real nodes.

        Raises:
            InputError: It has none.
        """
        real = self.spec().real
        if real is None:
            raise InputError(
                f'the cluster "{self.name}" has no real nodes, and while it runs its API server listens to none: '
                f"`tenantry down --cluster {self.name}`, then `tenantry up --cluster {self.name} --runtime real"
                " --nodes N`"
            )
        return real

    async def change_nodes(self, change: Callable[[RealNodes], RealNodes], timeout_seconds: float = 60.0) -> None:
        """Add and remove real nodes of the running cluster, and wait until all of them are Ready.

        Raises:
            InputError: The cluster has none, or not the one that is meant.
            LocalError: A node does not come up.
        """
        async with self._changing_until(timeout_seconds):
            await self._renode(change(self.real()))
            await self._run_real(SilentProgress())

    async def restart_node(self, name: str, timeout_seconds: float = 60.0) -> None:
        """Stop a real node, start it again, and wait until it is Ready.

        Raises:
            InputError: It was taken back, so it would never be Ready.
            LocalError: It does not come up.
        """
        from tenantry.local.real import ranges

        async with self._changing_until(timeout_seconds):
            await self._deadline.insist(ranges.check, self.kubeconfig_path, self.real(), name)
            await self.restart_component(name, timeout_seconds)
            self._deadline.renew()
            await self._wait_named(name)

    async def _renode(self, real: RealNodes) -> None:
        spec = self.spec()
        gone = fleet.write(self.paths, spec, real)
        if gone is not None:
            await self._order("reload")
            await fleet.forget(self.paths, gone)

    async def _start(self, binaries: build.Binaries, options: UpOptions, progress: Progress) -> None:
        await self._kill_leftovers()
        check_space(self.paths.folder, _NEEDED_MIB)
        progress.update("preparing ports and certificates")
        before = read_spec(self.paths)
        reserved = ports.reserve(self.paths.folder, before.ports if before else None)
        had = before.real if before else None
        real = fleet.prepare(self.paths, reserved.apiserver, had, options.real_nodes, progress.say)
        spec = ClusterSpec(
            name=self.name,
            ports=reserved,
            binaries=str(binaries.folder),
            throwaway=options.throwaway,
            addresses=options.addresses or (before.addresses if before else ()),
            oidc=_oidc(options, before),
            real=real,
            peers=before.peers if before else (),
            kubernetes=self.version(options.kubernetes),
        )
        prepare_light(spec, self.paths)
        nodes = real.addressed() if real else ()
        pki.ensure(self.paths.pki, pki.leaves(spec.server_addresses, nodes), dt.datetime.now(dt.UTC))
        kubeconfigs.write_all(self.paths, self.name, spec.ports.apiserver)
        write_private(self.paths.authentication, authentication.text(spec.oidc).encode())
        write_spec(self.paths, spec)
        progress.update("starting the control plane")
        self._deadline.renew()
        await start_supervisor(self.paths, self.name)
        try:
            await self._furnish(options, progress)
        except BaseException:
            # Half a cluster is worse than none: after an error or Ctrl-C, stop what was started.
            self._deadline.seen = read_state(self.paths)
            await self._shut_down()
            raise

    async def _identify(self, options: UpOptions, progress: Progress) -> None:
        """Make a running API server trust the OIDC provider of the options."""
        before = self.spec()
        spec = msgspec.structs.replace(before, oidc=_oidc(options, before))
        text = authentication.text(spec.oidc).encode()
        file = self.paths.authentication
        if spec == before and file.exists() and file.read_bytes() == text:
            return
        progress.update("restarting the API server with another identity provider")
        write_private(file, text)
        # It reloads the file by itself, but trusts the old provider until the new one answers.
        await self.restart_component(components.APISERVER)
        # Their watches would begin again only after a pause, which grows to half a minute over several restarts.
        for client in (components.CONTROLLER_MANAGER, components.SCHEDULER):
            await self._order("restart", client)
        # Written last: if the API server does not start with it, the next `up` restores the old one.
        write_spec(self.paths, spec)

    async def _wait_up(self, names: Sequence[str], progress: Progress) -> None:
        """Wait until components are ready; give up on the first that keeps crashing."""
        async with contextlib.aclosing(control.watch(self.paths.socket)) as states:
            async for state in states:
                late = [each for each in state.components if each.name in names and each.phase is not Phase.READY]
                self._deadline.note_remaining(tuple(names), len(late))
                if not late:
                    return
                progress.update(f"waiting for {', '.join(each.name for each in late)}")
                for each in late:
                    if each.restarts >= _CRASHES and each.phase is Phase.BACK_OFF:
                        raise LocalError(crash_of(self.name, self.paths, state, each.name))

    async def _furnish(self, options: UpOptions, progress: Progress) -> None:
        # Imported here: nothing else in this file needs aiohttp, and the API server is starting meanwhile.
        from tenantry.local import bootstrap

        # The import takes long on a busy machine, and no event restarts the clock meanwhile.
        self._deadline.renew()
        await self._wait_up((components.ETCD, components.APISERVER), progress)
        progress.update("making nodes and installing Tenantry")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wait_up((components.SCHEDULER,), progress))
            group.create_task(self._deadline.insist(bootstrap.apply_rights, self.kubeconfig_path))
            if options.install:
                group.create_task(self._deadline.insist(options.install, self.kubeconfig_path))
        await self._order("start", components.CONTROLLER_MANAGER)
        async with asyncio.TaskGroup() as group:
            if options.waits:
                group.create_task(self._wait_up(components.CONTROL_PLANE, progress))
            if options.install and self.spec().real_names:
                group.create_task(self._deadline.insist(bootstrap.declare_image_credentials, self.kubeconfig_path))
            if options.guard:
                group.create_task(self._deadline.insist(options.guard, self.kubeconfig_path))
            group.create_task(self._run_operator(options, progress))
            group.create_task(self._run_nodes(options, progress))

    async def _run_operator(self, options: UpOptions, progress: Progress) -> None:
        await self._order("start" if options.operator else "stop", components.OPERATOR)
        if options.operator and options.waits:
            await self._wait_up((components.OPERATOR,), progress)

    async def _run_nodes(self, options: UpOptions, progress: Progress) -> None:
        from tenantry.local import bootstrap

        await self._run_real(progress, waits=options.waits)
        if await self._deadline.insist(bootstrap.apply_nodes, self.kubeconfig_path, options.nodes):
            await self._order("start", components.KWOK)
            if not options.waits:
                return
            progress.update("waiting for the nodes")
            report = functools.partial(self._deadline.note_remaining, "simulated nodes")
            await self._deadline.insist(bootstrap.wait_simulated, self.kubeconfig_path, report)
        else:
            await self._order("stop", components.KWOK)

    async def _run_real(self, progress: Progress, *, waits: bool = True) -> None:
        from tenantry.local.real import addons, ranges

        # Machines that serve clusters of tenants have Nodes there, which those report.
        real = fleet.at_home(self.paths, self.spec().real)
        if real is None or not real.nodes:
            return
        names = await self._deadline.insist(ranges.record, self.kubeconfig_path, real, progress.say)
        async with asyncio.TaskGroup() as group:
            if waits:
                group.create_task(self._wait_up(names, progress))
            group.create_task(self._deadline.insist(addons.apply, self.kubeconfig_path))
        if names and waits:
            await self._wait_named(*names)

    async def _wait_named(self, *names: str) -> None:
        from tenantry.local.bootstrap import wait_named

        await self._deadline.insist(wait_named, self.kubeconfig_path, frozenset(names), self._deadline.note_nodes)

    async def _shut_down(self) -> None:
        state = read_state(self.paths)
        # A supervisor that does not answer is killed below.
        with contextlib.suppress(LocalError, TimeoutError):
            await self._order("shutdown")
        lock = locks.FileLock(self.paths.supervisor_lock)
        try:
            await lock.acquire_async(_DOWN_SECONDS / 2)
        except TimeoutError:
            # It hangs: kill it, and the kernel kills its children. One just forked has the lock, too, until then.
            if state and process.kill_if_same(state.supervisor_pid, state.supervisor_ticks):
                await process.wait_gone(state.supervisor_pid, state.supervisor_ticks, 5.0)
                await lock.acquire_async(5.0)
        finally:
            lock.release()

    async def _kill_leftovers(self) -> None:
        """Kill what a killed supervisor left behind; usually the kernel has done so already."""
        await kill_components(self.paths)
        await asyncio.to_thread(fleet.remove, self.paths.folder)


def _oidc(options: UpOptions, before: ClusterSpec | None) -> Oidc | None:
    if options.no_oidc:
        return None
    return options.oidc or (before.oidc if before else None)

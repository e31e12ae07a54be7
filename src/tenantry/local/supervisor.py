"""The daemon of one local cluster: starts its components, restarts crashed ones, and serves requests on a socket.

    python -m tenantry.local.supervisor FOLDER LOCK-DESCRIPTOR

`cluster.py` starts it with the cluster's lock already held on an inherited descriptor, so that the lock has no gap; the
kernel drops the lock with the process. It writes "listening" to stdout once it accepts requests, and closes stdout.

With TENANTRY_LIVES_WITH=PID the cluster stops when that process ends: tests set it, so that no cluster outlives a
killed pytest. With TENANTRY_GOGC=PERCENT the garbage collectors of all Go components run that seldom: tests give memory
for CPU. GOGC itself is not used, because a user may have set it for other programs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from tenantry.api.errors import LocalError, TenantryError
from tenantry.engine.jsonlines import log_to
from tenantry.engine.sockets import short_path
from tenantry.local import etcdadmin, etcds, forwards, lightpeers, planestorage, simulators
from tenantry.local.components import (
    APISERVER,
    CONTROL_PLANE,
    CONTROLLER_MANAGER,
    ENDPOINT_PROXY,
    ETCD,
    KWOK,
    MACHINE_PREFIX,
    NAMES,
    SCHEDULER,
    Component,
    check_name,
    components,
    real_nodes,
)
from tenantry.local.control import SupervisorReply, SupervisorRequest, decode_order, encode_reply
from tenantry.local.hosted import PREFIX, processes
from tenantry.local.paths import ClusterPaths
from tenantry.local.process import boot_id, environment, start_ticks, wait_gone
from tenantry.local.readiness import trust
from tenantry.local.real import memberships
from tenantry.local.runner import Runner, rotate, truncate
from tenantry.local.spec import read_spec
from tenantry.local.state import ClusterState, Phase, ended, write_state

_LOG = logging.getLogger(__name__)
LIVES_WITH = "TENANTRY_LIVES_WITH"
COLLECTOR = "TENANTRY_GOGC"
_LOG_LIMIT_BYTES = 64 * 2**20
_LOG_CHECK_SECONDS = 60.0
_CLIENT_SECONDS = 120.0
"""How long a client may take to send its request or to read a reply.

On a busy machine, `up` computes for more than ten seconds between the opening of a connection and its request.
"""

_AWAY_SECONDS = 5.0
"""Until then, the API server connects again sooner than it would start."""

# What belongs to hosted control planes and light peers.
_HOSTED = (
    PREFIX,
    etcds.PREFIX,
    forwards.PREFIX,
    lightpeers.PREFIX,
    simulators.PREFIX,
    planestorage.PREFIX,
    MACHINE_PREFIX,
)


class Supervisor:
    """All components of one cluster.

    Args:
        paths: The cluster's files.
    """

    def __init__(self, paths: ClusterPaths) -> None:
        spec = read_spec(paths)
        if spec is None:
            raise LocalError(f'"{paths.spec}" is gone')
        self._paths = paths
        self._name = spec.name
        self._environment = environment()
        self._tls = trust(paths.pki / "ca.crt")
        self._living: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        light = lightpeers.components_of(spec, paths, sys.executable)
        own = components(spec, paths, sys.executable, memberships.away(paths))
        every = (*own, *etcds.etcds(paths), *processes(paths), *light)
        self._runners = {each.name: self._runner(each) for each in every}
        self._boot = boot_id()
        self._ticks = start_ticks(os.getpid())
        self._stopping = asyncio.Event()
        self._change = asyncio.Event()
        self._was_ready = False
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._state = self._snapshot()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the components that it keeps, those that are ending included."""
        return tuple(self._runners)

    def _runner(self, component: Component) -> Runner:
        if pace := os.environ.get(COLLECTOR):
            component = dataclasses.replace(component, environment={**component.environment, "GOGC": pace})
        tls = self._tls if component.authority is None else trust(component.authority)
        return Runner(component, self._paths, self._environment, tls, self._changed)

    def _snapshot(self) -> ClusterState:
        states = tuple(runner.state for runner in self._runners.values())
        plane = {state.phase for state in states if state.name in CONTROL_PLANE}
        self._was_ready = self._was_ready or plane == {Phase.READY}
        # A hosted control plane reports by itself: one that starts, or that a user broke, degrades no cluster. Nor does
        # their proxy: the operator, which names its program anew, must be able to start.
        wanted = {
            runner.state.phase
            for name, runner in self._runners.items()
            if runner.is_wanted and name != ENDPOINT_PROXY and not name.startswith(_HOSTED)
        }
        if self._stopping.is_set():
            phase = Phase.STOPPING
        elif plane | wanted == {Phase.READY}:
            phase = Phase.READY
        else:
            phase = Phase.DEGRADED if self._was_ready else Phase.STARTING
        return ClusterState(
            name=self._name,
            boot_id=self._boot,
            supervisor_pid=os.getpid(),
            supervisor_ticks=self._ticks,
            phase=phase,
            components=states,
        )

    def _changed(self) -> None:
        self._state = self._snapshot()
        try:
            write_state(self._paths, self._state)
        except LocalError as error:
            # A full disk must not end the components; watchers of the socket still see the state.
            _LOG.warning("the state cannot be written", extra={"error": str(error)})
        # Waiting tasks hold the old event; the next wait gets a new one.
        self._change.set()
        self._change = asyncio.Event()

    async def run(self) -> None:
        """Run all components until SIGTERM, SIGINT or a `shutdown` request."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        self._paths.socket.unlink(missing_ok=True)
        # Bound here and not by asyncio, which would remove the path by a name that is gone by then.
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        with short_path(self._paths.socket) as address:
            listener.bind(address)
        server = await asyncio.start_unix_server(self._serve, sock=listener)
        self._changed()
        announce()
        async with asyncio.TaskGroup() as group:
            self._group = group
            for runner in self._runners.values():
                self._start(group, runner)
            group.create_task(self._watch_logs())
            group.create_task(etcdadmin.keep(self._paths))
            group.create_task(self._reconnect())
            pid = os.environ.get(LIVES_WITH, "")
            if pid.isdecimal():
                group.create_task(self._end_with(int(pid)))
            await self._stopping.wait()
            await self._stop_all()
            server.close()
            raise SupervisorStopped

    def _start(self, group: asyncio.TaskGroup, runner: Runner) -> None:
        needed = tuple(self._runners[name].ready for name in runner.component.after)
        self._living[runner.component.name] = group.create_task(runner.run(needed))
        if not runner.component.on_request:
            runner.want()

    async def reload(self, group: asyncio.TaskGroup) -> None:
        """Start real nodes, hosted control planes and light peers that were added; stop removed and changed ones.

        Components end at once, and reloads run at once: one that ends slowly delays no start of another.

        Args:
            group: Runs the components.
        """
        if ending := self._compare(group):
            await asyncio.wait(ending)
            # Those that were changed, or that are wanted again.
            self._compare(group)
        self._changed()

    def _compare(self, group: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Begin to stop and start components as files say; return what ends now. It never waits, so needs no lock."""
        spec = read_spec(self._paths)
        away = memberships.away(self._paths)
        nodes = real_nodes(spec, self._paths, sys.executable, away) if spec else ()
        light = lightpeers.components_of(spec, self._paths, sys.executable) if spec else ()
        wanted = {each.name: each for each in (*nodes, *etcds.etcds(self._paths), *processes(self._paths), *light)}
        for name, runner in self._runners.items():
            # Only real nodes, their provisioner, hosted control planes and light peers come and go meanwhile.
            is_gone = name not in wanted or _differs(runner.component, wanted[name])
            if name not in NAMES and name not in self._ending and is_gone:
                self._ending[name] = group.create_task(self._retire(name))
        for name, component in wanted.items():
            # One that is ending keeps its name until then.
            if name not in self._runners and not self._stopping.is_set():
                self._runners[name] = self._runner(component)
                self._start(group, self._runners[name])
        return list(self._ending.values())

    async def _retire(self, name: str) -> None:
        await self._runners[name].stop()
        self._living.pop(name).cancel()
        del self._runners[name], self._ending[name]
        self._changed()

    async def _stop_all(self) -> None:
        _LOG.info("stopping")
        self._changed()
        names = [*self._runners]
        # Clients of the API server end first, all at once; etcd ends last, because the API server writes until its end.
        for level in (names[2:], names[1:2], names[:1]):
            async with asyncio.TaskGroup() as group:
                for name in level:
                    group.create_task(self._runners[name].stop())
        self._state = self._snapshot()
        with contextlib.suppress(LocalError):
            # The disk may be full or the folder deleted: the end of the processes matters more.
            write_state(self._paths, ended(self._state, Phase.STOPPED))
        self._paths.socket.unlink(missing_ok=True)
        _LOG.info("stopped")

    async def _reconnect(self) -> None:
        """Restart the API server and its clients when etcd is back after a while.

        The longer etcd was away, the longer they wait between their tries to connect, up to two minutes. The operator
        and real nodes stay: the operator asks every second, and a node would end its containers.
        """
        loop, etcd, server = asyncio.get_running_loop(), self._runners[ETCD], self._runners[APISERVER]
        clients = [self._runners[name] for name in (CONTROLLER_MANAGER, SCHEDULER, KWOK)]
        away_since: float | None = None
        while True:
            change = self._change
            if not etcd.ready.is_set():
                away_since = loop.time() if away_since is None else away_since
            elif away_since is not None:
                away_since, seconds = None, loop.time() - away_since
                if seconds > _AWAY_SECONDS and server.ready.is_set():
                    _LOG.info("restarting the API server, because etcd was away", extra={"seconds": round(seconds)})
                    # The server first: its clients start again when it is ready.
                    await self._restart(server, *(each for each in clients if each.is_wanted))
            await change.wait()

    async def _restart(self, *runners: Runner) -> None:
        for runner in runners:
            await runner.stop()
        # The supervisor may have begun to stop meanwhile.
        for runner in () if self._stopping.is_set() else runners:
            runner.want()

    async def _end_with(self, pid: int) -> None:
        # The kernel's notification, not polling: the pid could be reused in between.
        await wait_gone(pid)
        self._stopping.set()

    async def _watch_logs(self) -> None:
        while True:
            await asyncio.sleep(_LOG_CHECK_SECONDS)
            for name in self._runners:
                with contextlib.suppress(OSError):
                    truncate(self._paths.log(name), _LOG_LIMIT_BYTES)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_CLIENT_SECONDS):
                line = await reader.readline()
            order = decode_order(line)
            if order.verb == "watch":
                await self._stream(writer)
            else:
                await self._send(writer, await self._obey(order))
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the client disconnected, or the supervisor stops
        finally:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        while True:
            change = self._change
            await self._send(writer, SupervisorReply(state=self._state))
            await change.wait()

    async def _send(self, writer: asyncio.StreamWriter, reply: SupervisorReply) -> None:
        writer.write(encode_reply(reply))
        async with asyncio.timeout(_CLIENT_SECONDS):
            await writer.drain()

    async def _obey(self, order: SupervisorRequest) -> SupervisorReply:
        try:
            if order.verb == "shutdown":
                self._stopping.set()
            elif order.verb == "reload":
                if self._group:
                    await self.reload(self._group)
            else:
                runner = self._runners[check_name(order.component, self._runners)]
                if order.verb in ("stop", "restart"):
                    await runner.stop()
                if order.verb in ("start", "restart"):
                    runner.want()
        except TenantryError as error:
            return SupervisorReply(error=str(error))
        return SupervisorReply(state=self._state)


def _differs(running: Component, wanted: Component) -> bool:
    return (running.command, running.port, running.limits) != (wanted.command, wanted.port, wanted.limits)


class SupervisorStopped(Exception):
    """All components have been stopped."""


def announce() -> None:
    """Report to the starting process that the daemon listens, and detach from its terminal."""
    with contextlib.suppress(OSError):
        os.write(1, b"listening\n")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def main() -> None:
    """Run the daemon of the folder named by the first argument; the caller's process ends at once."""
    paths = ClusterPaths(Path(sys.argv[1]))
    os.umask(0o077)
    # The second of two forks (the caller did the first): init adopts and reaps the daemon.
    if os.fork():
        # Without clean-up of the interpreter, which belongs to the daemon now.
        os._exit(0)
    for log in paths.logs.glob("*.log"):
        rotate(log)
    log_to(logging.FileHandler(paths.log("supervisor")))
    try:
        asyncio.run(_supervise(paths))
    except Exception:
        _LOG.exception("the supervisor ends")
        raise


async def _supervise(paths: ClusterPaths) -> None:
    try:
        await Supervisor(paths).run()
    except* SupervisorStopped:
        pass


if __name__ == "__main__":
    main()

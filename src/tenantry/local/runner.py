"""Runs one component: starts it after the components that it needs, detects when it is ready, restarts it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import signal
import ssl
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tenantry.local.backoff import LAST_SECONDS, BackOff
from tenantry.local.components import Component, ReadinessSignal
from tenantry.local.files import is_full, tail
from tenantry.local.limits import LimitedGroup
from tenantry.local.process import ChildProcess
from tenantry.local.readiness import Notification, wait_healthy
from tenantry.local.real import network
from tenantry.local.state import ComponentState, Phase, ProcessExit

if TYPE_CHECKING:
    from tenantry.local.paths import ClusterPaths

_LOG = logging.getLogger(__name__)
_NOTIFYING = (ReadinessSignal.NOTIFY, ReadinessSignal.NOTIFY_HTTPS)
_SPACE_SECONDS = 0.5
_KEPT_LINES = 12
# The first line of a Go panic matters more than the goroutines below it, so lines are cut, not the text.
_LINE_LENGTH = 400


class Runner:
    """Keeps one component in the wanted state.

    Args:
        component: How to run it.
        paths: The cluster's files.
        environment: The environment variables of all components.
        tls: The context to verify health endpoints with.
        on_change: Called after each change of `state`.
    """

    def __init__(
        self,
        component: Component,
        paths: ClusterPaths,
        environment: Mapping[str, str],
        tls: ssl.SSLContext,
        on_change: Callable[[], None],
    ) -> None:
        self.component = component
        self.state = ComponentState(name=component.name, port=component.port)
        self.ready = asyncio.Event()
        self.stopped = asyncio.Event()
        self.stopped.set()
        self._wanted = asyncio.Event()
        self._paths = paths
        self._environment = environment
        self._tls = tls
        self._on_change = on_change
        self._child: ChildProcess | None = None
        self._group = LimitedGroup(network.identity(paths.folder), component.name) if component.limits else None
        # When the present process became ready, by the clock of the event loop; None before.
        self._ready_at: float | None = None
        self._unwanted = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        """Return whether it should run."""
        return self._wanted.is_set()

    def want(self) -> None:
        """Request that the component runs."""
        self.stopped.clear()
        self._unwanted.clear()
        self._wanted.set()

    async def stop(self) -> None:
        """End the component, and wait until it has ended."""
        self._wanted.clear()
        self._unwanted.set()
        if self._child:
            self._set(phase=Phase.STOPPING)
            await self._child.stop(self.component.stop_seconds)
        await self.stopped.wait()

    async def run(self, needed: tuple[asyncio.Event, ...]) -> None:
        """Keep the component in the wanted state until cancelled.

        Args:
            needed: Set while the components that it needs are ready.
        """
        back_off = BackOff()
        while True:
            if not self._wanted.is_set():
                self._set(phase=Phase.STOPPED, pid=0, start_ticks=0)
                self.stopped.set()
                await self._wanted.wait()
                back_off.reset()
            if not all(event.is_set() for event in needed):
                self._set(phase=Phase.WAITING)
            if not await self._unless_unwanted(_all_set(needed)):
                continue
            self._ready_at = None
            code = await self._run_once()
            if not self._wanted.is_set():
                continue
            ready_at, now = self._ready_at, asyncio.get_running_loop().time()
            self._note_crash(code)
            await self._wait_for_restart(back_off, back_off.after_crash(None if ready_at is None else now - ready_at))
            if self._wanted.is_set():
                self._set(restarts=self.state.restarts + 1)

    async def _wait_for_restart(self, back_off: BackOff, seconds: float) -> None:
        folder = self._paths.folder
        if not is_full(folder):
            await self._unless_unwanted(asyncio.sleep(seconds))
            return
        _LOG.warning("the disk is full", extra={"component": self.component.name, "folder": str(folder)})
        # Until there is space, most components would crash again. Another cause of the crash may be over earlier.
        await self._unless_unwanted(race(asyncio.sleep(LAST_SECONDS), _has_space(folder)))
        back_off.reset()

    async def _unless_unwanted(self, wait: Coroutine[Any, Any, object]) -> bool:
        """Wait until a coroutine returns, or until the component shall stop; return whether it shall still run."""
        await race(wait, self._unwanted.wait())
        return self._wanted.is_set()

    async def _run_once(self) -> int:
        with Notification() as notification:
            try:
                child = start(self.component, self._paths, self._environment, notification)
            except OSError as error:
                # On a full disk there may be no log either, and the supervisor must go on.
                with contextlib.suppress(OSError), self._paths.log(self.component.name).open("a") as file:
                    file.write(f"cannot start {self.component.command[0]}: {error}\n")
                # The exit code of a shell for a program that cannot be started.
                return 127
            self._child = child
            self._set(phase=Phase.STARTING, pid=child.pid, start_ticks=child.ticks, unlimited=self._limit(child.pid))
            _LOG.info("started", extra={"component": self.component.name, "pid": child.pid})
            async with asyncio.TaskGroup() as group:
                readiness = group.create_task(self._become_ready(notification))
                try:
                    return await child.wait()
                finally:
                    readiness.cancel()
                    self.ready.clear()
                    self._child = None
                    if self._group is not None:
                        self._group.remove()

    def _limit(self, pid: int) -> str:
        limits = self.component.limits
        if self._group is None or limits is None:
            return ""
        unlimited = self._group.confine(pid, limits)
        if unlimited:
            _LOG.warning("its limits are not enforced", extra={"component": self.component.name, "why": unlimited})
        return unlimited

    async def _become_ready(self, notification: Notification) -> None:
        await wait_ready(self.component, notification, self._tls)
        # A component that is being stopped may still answer its health check.
        if self.state.phase is Phase.STARTING:
            self._ready_at = asyncio.get_running_loop().time()
            self.ready.set()
            self._set(phase=Phase.READY)
            _LOG.info("ready", extra={"component": self.component.name})

    def _note_crash(self, code: int) -> None:
        lines = tail(self._paths.log(self.component.name), _KEPT_LINES)
        end = ProcessExit(
            at=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
            code=None if code < 0 else code,
            signal=signal.Signals(-code).name if code < 0 else "",
            lines=tuple(line[:_LINE_LENGTH] for line in lines),
        )
        self._set(phase=Phase.BACK_OFF, pid=0, start_ticks=0, last_exit=end)
        _LOG.error("ended unasked", extra={"component": self.component.name, "how": str(end), "last_lines": lines})

    def _set(self, **changes: object) -> None:
        changed = msgspec.structs.replace(self.state, **changes)
        if changed != self.state:
            self.state = changed
            self._on_change()


def start(
    component: Component, paths: ClusterPaths, environment: Mapping[str, str], notification: Notification
) -> ChildProcess:
    """Start a component's process.

    Args:
        component: How to run it.
        paths: The cluster's files.
        environment: The environment variables of all components.
        notification: The socket to which it reports that it is ready.

    Raises:
        OSError: The program cannot be started.
    """
    variables = dict(environment) | component.environment
    if component.signal in _NOTIFYING:
        variables |= notification.environment
    return ChildProcess(component.command, paths.log(component.name), variables, component.folder or paths.folder)


async def wait_ready(component: Component, notification: Notification, tls: ssl.SSLContext) -> None:
    """Wait until a started component is ready; a component that ends never is."""
    how = component.signal
    if how in _NOTIFYING:
        await notification.wait()
    if how is not ReadinessSignal.NOTIFY:
        await wait_healthy(component.port, component.health, None if how is ReadinessSignal.HTTP else tls)


async def race(first: Coroutine[Any, Any, object], second: Coroutine[Any, Any, object]) -> bool:
    """Run two coroutines until one returns, and cancel the other; return whether the first one returned."""
    async with asyncio.TaskGroup() as group:
        tasks = (group.create_task(first), group.create_task(second))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        is_first = tasks[0].done()
        for task in tasks:
            task.cancel()
    return is_first


async def _has_space(folder: Path) -> None:
    while is_full(folder):  # noqa: ASYNC110 - the kernel reports no event when space is freed
        await asyncio.sleep(_SPACE_SECONDS)


async def _all_set(events: tuple[asyncio.Event, ...]) -> None:
    for event in events:
        await event.wait()


def rotate(log: Path) -> None:
    """Keep one previous log, before a run."""
    with contextlib.suppress(FileNotFoundError):
        log.replace(log.with_suffix(".log.1"))


def truncate(log: Path, limit_bytes: int) -> None:
    """Move the text of a log that is too long to the previous one; its writer appends and need not reopen it."""
    try:
        if log.stat().st_size <= limit_bytes:
            return
    except FileNotFoundError:
        return
    log.with_suffix(".log.1").write_bytes(log.read_bytes())
    with log.open("r+b") as file:
        file.truncate(0)

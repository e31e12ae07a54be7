"""Runs one component: starts it after what it needs, learns when it is ready, starts it again when it crashes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import signal
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tenantry.local.components import Component, Signal
from tenantry.local.files import tail
from tenantry.local.process import Child
from tenantry.local.readiness import Notification, wait_healthy
from tenantry.local.state import ComponentState, Exit, Phase

if TYPE_CHECKING:
    from tenantry.local.paths import ClusterPaths

_LOG = logging.getLogger(__name__)
_FIRST_BACK_OFF_SECONDS = 0.2
_LAST_BACK_OFF_SECONDS = 15.0
_CALM_SECONDS = 30.0
_KEPT_LINES = 12
# Text of a crash that is worth more than the goroutines below it would be.
_LINE_LENGTH = 400


class Runner:
    """One component's life.

    Args:
        component: How to run it.
        paths: The cluster's files.
        environment: What all components get.
        tls: How to verify health pages.
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
        self._child: Child | None = None
        self._unwanted = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        """Whether it is to run."""
        return self._wanted.is_set()

    def want(self) -> None:
        """Ask for the component to run."""
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
        """Live: until cancelled, keep the component in the state that is wanted.

        Args:
            needed: Readiness of the components that come before.
        """
        back_off = _FIRST_BACK_OFF_SECONDS
        loop = asyncio.get_running_loop()
        while True:
            if not self._wanted.is_set():
                self._set(phase=Phase.STOPPED, pid=0, start_ticks=0)
                self.stopped.set()
                await self._wanted.wait()
                back_off = _FIRST_BACK_OFF_SECONDS
            if not all(event.is_set() for event in needed):
                self._set(phase=Phase.WAITING)
            if not await self._unless_unwanted(*(event.wait() for event in needed)):
                continue
            started = loop.time()
            code = await self._run_once()
            if not self._wanted.is_set():
                continue
            if loop.time() - started > _CALM_SECONDS:
                back_off = _FIRST_BACK_OFF_SECONDS
            self._note_crash(code)
            await self._unless_unwanted(asyncio.sleep(back_off))
            back_off = min(back_off * 2, _LAST_BACK_OFF_SECONDS)
            if self._wanted.is_set():
                self._set(restarts=self.state.restarts + 1)

    async def _unless_unwanted(self, *awaitables: object) -> bool:
        """Wait for all of these, or until the component is not wanted any more; tell which."""
        coroutines = [each for each in awaitables if asyncio.iscoroutine(each)]
        waiting = asyncio.gather(*coroutines)
        unwanted = asyncio.ensure_future(self._unwanted.wait())
        try:
            await asyncio.wait({waiting, unwanted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unwanted.cancel()
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        return self._wanted.is_set()

    async def _run_once(self) -> int:
        with Notification() as notification:
            environment = dict(self._environment) | self.component.environment
            if self.component.signal in (Signal.NOTIFY, Signal.NOTIFY_HTTPS):
                environment |= notification.environment
            log = self._paths.log(self.component.name)
            try:
                child = Child(self.component.command, log, environment, self._paths.folder)
            except OSError as error:
                with log.open("a") as file:
                    file.write(f"cannot start {self.component.command[0]}: {error}\n")
                return 127
            self._child = child
            self._set(phase=Phase.STARTING, pid=child.pid, start_ticks=child.ticks)
            _LOG.info("started", extra={"component": self.component.name, "pid": child.pid})
            becoming = asyncio.ensure_future(self._become_ready(notification))
            try:
                return await child.wait()
            finally:
                becoming.cancel()
                self.ready.clear()
                self._child = None

    async def _become_ready(self, notification: Notification) -> None:
        how = self.component.signal
        if how in (Signal.NOTIFY, Signal.NOTIFY_HTTPS):
            await notification.wait()
        if how is not Signal.NOTIFY:
            await wait_healthy(self.component.port, self.component.health, None if how is Signal.HTTP else self._tls)
        if self.state.phase is Phase.STARTING:
            self.ready.set()
            self._set(phase=Phase.READY)
            _LOG.info("ready", extra={"component": self.component.name})

    def _note_crash(self, code: int) -> None:
        lines = tail(self._paths.log(self.component.name), _KEPT_LINES)
        end = Exit(
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


def rotate(log: Path) -> None:
    """Keep one previous log: called before a run."""
    with contextlib.suppress(FileNotFoundError):
        log.replace(log.with_suffix(".log.1"))


def truncate(log: Path, limit_bytes: int) -> None:
    """Move the text of a log that has become too long to the previous one; its writer appends, and so goes on."""
    try:
        if log.stat().st_size <= limit_bytes:
            return
    except FileNotFoundError:
        return
    log.with_suffix(".log.1").write_bytes(log.read_bytes())
    with log.open("r+b") as file:
        file.truncate(0)

"""Child processes that end with their parent, and pids that cannot be mistaken for later processes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: the child of a fork may not load libraries.
_LIBC = ctypes.CDLL(None, use_errno=True)
# Variables that would make a component of this machine talk through a proxy, or to another cluster.
_DROPPED = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "KUBECONFIG", "NOTIFY_SOCKET", "GODEBUG", "GOGC")


def environment() -> dict[str, str]:
    """Return the environment variables of this process that components of a cluster may see."""
    return {name: value for name, value in os.environ.items() if name.upper() not in _DROPPED}


def boot_id() -> str:
    """Return the kernel's identifier of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if the process has ended or is a zombie.

    Source: proc_pid_stat(5), fields 3 and 22.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name, in parentheses, may hold anything, parentheses and spaces included.
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_same(pid: int, ticks: int) -> bool:
    """Return whether the process that had this pid when it started at these ticks still runs."""
    return pid > 0 and ticks > 0 and start_ticks(pid) == ticks


def kill_if_same(pid: int, ticks: int, number: signal.Signals = signal.SIGKILL) -> bool:
    """Send a signal to a process, never to a later one with the same pid; return whether it was running."""
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError):
        return False
    try:
        # Compared after opening: from here on the descriptor means this very process.
        if not is_same(pid, ticks):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


async def wait_gone(pid: int, ticks: int = 0, timeout_seconds: float | None = None) -> None:
    """Wait until a process, a child of this one or not, has ended.

    Args:
        pid: The process.
        ticks: When it started, if a later process may have its pid by now; see `start_ticks`.
        timeout_seconds: The time limit; None for none.

    Raises:
        TimeoutError: It has not ended in time.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except (OSError, ValueError):
        return
    try:
        if not ticks or is_same(pid, ticks):
            async with asyncio.timeout(timeout_seconds):
                await _readable(descriptor)
    finally:
        os.close(descriptor)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)


def die_with(parent: int) -> Callable[[], None]:
    """Return the function that a child calls before its program starts, so that it ends with its parent."""

    def prepare() -> None:
        # The kernel kills this process when the thread that started it ends, however that ends.
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


class ChildProcess:
    """A running child process in a session of its own, which the kernel kills when this process ends.

    Args:
        command: The program and its arguments.
        log: The file that its output is appended to.
        environment: All of its environment.
        folder: Its working directory.
    """

    def __init__(self, command: tuple[str, ...], log: Path, environment: Mapping[str, str], folder: Path) -> None:
        # preexec_fn is safe in a process with one thread, which a supervisor is: it waits by pidfd, not by threads.
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
                preexec_fn=die_with(os.getpid()),  # noqa: PLW1509 - see above
            )
        self.pid = self._process.pid
        self.ticks = start_ticks(self.pid)
        self._descriptor = os.pidfd_open(self.pid)
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = loop.create_future()
        loop.add_reader(self._descriptor, self._reap, loop)

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self._ended.set_result(self._process.wait())

    async def wait(self) -> int:
        """Wait for its end; return the exit code, or the negative number of the signal that ended it."""
        # Shielded: a waiter that gives up must not take the future from the others.
        return await asyncio.shield(self._ended)

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if it still runs."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def stop(self, grace_seconds: float) -> int:
        """End it: SIGTERM, and after the grace period SIGKILL for its whole session."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                return await self.wait()
        except TimeoutError:
            self.send(signal.SIGKILL)
            return await self.wait()

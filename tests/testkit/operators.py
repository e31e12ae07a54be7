"""The operator as a process of its own, as a Deployment runs it: started, watched through /metrics, stopped, killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from testkit import ports
from testkit.api import SECONDS, until

_SAMPLE = re.compile(r"^([a-zA-Z_:]+)(\{[^}]*\})? ([0-9.e+-]+)$", re.MULTILINE)
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Operator:
    """One replica.

    Args:
        kubeconfig: Its credentials.
        log: The file of its log.
        flags: More flags of the command.
        source: The folder of its package; None for the one under test.
    """

    def __init__(self, kubeconfig: Path, log: Path, *flags: str, source: Path | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._flags = flags
        self._environment = {"PYTHONPATH": str(source)} if source is not None else {}
        self.log = log
        self._process: asyncio.subprocess.Process | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """`host:port` of its /metrics."""
        return self._address

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it; `leads` waits until it reconciles."""
        self._address = f"127.0.0.1:{ports.free(1)[0]}"
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tenantry", "operator", "--kubeconfig", str(self._kubeconfig)),
                *("--metrics-address", self._address, "--log-level", "debug", *self._flags),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONWARNINGS": "default", **self._environment},
            )

    async def leads(self) -> None:
        """Wait until it leads and its caches are filled."""

        async def so() -> bool:
            if not self.is_running:
                raise AssertionError(f"the operator ended: {self.log.read_text()[-2000:]}")
            leads = await self.sample("leader_election_master_status") == 1
            return leads and await self._answers("/readyz")

        await until(so, "the operator leads", seconds=SECONDS)

    async def stop(self) -> int:
        """Send SIGTERM, as Kubernetes does, and return its exit code."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> int:
        """Kill it, and return its exit code."""
        return await self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it with SIGSTOP, as if its machine froze; `go_on` continues it."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Continue it with SIGCONT; it has missed all changes in between."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    async def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(SECONDS):
            return await self._process.wait()

    # -- metrics and logs -------------------------------------------------------------------------

    async def sample(self, name: str, *labels: str) -> float:
        """Return the sum of a metric's samples that have all of these labels (each as in `method="GET"`)."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{self._address}/metrics") as answer:
                text = await answer.text()
        except aiohttp.ClientError:
            return 0.0
        found = [match for match in _SAMPLE.finditer(text) if match[1] == name]
        return sum(float(match[3]) for match in found if all(label in (match[2] or "") for label in labels))

    async def writes(self) -> float:
        """Return the number of its writes, without those of its lease."""
        return sum([await self.sample("rest_client_requests_total", f'method="{verb}"') for verb in WRITES])

    def written(self, since: int, *names: str) -> list[str]:
        """Return its writes from its log, without those of its lease.

        Other tests share the operator, and what they left behind comes to its end in its own time: a test that expects
        nothing to be written, or so much, means its own objects.

        Args:
            since: Where in the log to begin; see `calm`.
            names: Fragments of the paths; without any, all writes are returned.
        """
        return [each for each in self.asked(since, *names) if any(f'"method": "{verb}"' in each for verb in WRITES)]

    def asked(self, since: int, *names: str) -> list[str]:
        """Return its requests, reads included; see `written`."""
        return [each for each in self._told(since, *names) if '"message": "asked"' in each and "/leases" not in each]

    def looks(self, since: int, *names: str, controller: str = "") -> list[str]:
        """Return its reconciles of keys that contain one of the names, from its log.

        Args:
            since: Where in the log to begin; see `calm`.
            names: As of `written`.
            controller: The controller to count; all of them by default.
        """
        by = f'"controller": "{controller}"' if controller else ""
        return [each for each in self._told(since, *names) if '"message": "reconciled"' in each and by in each]

    def _told(self, since: int, *names: str) -> list[str]:
        with self.log.open("rb") as log:
            log.seek(since)
            lines = log.read().decode().splitlines()
        return [line for line in lines if not names or any(name in line for name in names)]

    async def calm(self, *names: str, seconds: float = 0.5) -> int:
        """Wait until it has neither sent a request nor reconciled a key with one of the names for some time.

        A request that is not answered yet is not seen.

        Returns:
            Where its log ends, for `written`, `asked` and `looks`.
        """
        since = -1

        async def so() -> bool:
            nonlocal since
            begin = self.log.stat().st_size
            await asyncio.sleep(seconds)
            since = self.log.stat().st_size
            return not self.asked(begin, *names) and not self.looks(begin, *names)

        await until(so, f"nothing is left to do for {names or 'any controller'}")
        return since

    async def _answers(self, path: str) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{self._address}{path}") as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def running(kubeconfig: Path, log: Path, *flags: str) -> AsyncGenerator[Operator]:
    """Run an operator while the context is open; at the end it releases its lease."""
    operator = Operator(kubeconfig, log, *flags)
    await operator.start()
    try:
        yield operator
    finally:
        await operator.stop()

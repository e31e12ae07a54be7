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
        kubeconfig: Who it is.
        log: Where it writes.
    """

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        self._kubeconfig = kubeconfig
        self.log = log
        self._process: asyncio.subprocess.Process | None = None
        self._address = ""

    @property
    def is_running(self) -> bool:
        """Tell whether the process lives."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it; see `leads` for when it does something."""
        self._address = f"127.0.0.1:{ports.free(1)[0]}"
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tenantry", "operator", "--kubeconfig", str(self._kubeconfig)),
                *("--metrics-address", self._address, "--log-level", "debug"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONWARNINGS": "default"},
            )

    async def leads(self) -> None:
        """Wait until it leads and its caches are in step."""

        async def so() -> bool:
            if not self.is_running:
                raise AssertionError(f"the operator ended: {self.log.read_text()[-2000:]}")
            leads = await self.sample("leader_election_master_status") == 1
            return leads and await self._answers("/readyz")

        await until(so, "the operator leads", seconds=SECONDS)

    async def stop(self) -> int:
        """Tell it to stop, as Kubernetes does, and return its exit code."""
        return await self._end(signal.SIGTERM)

    async def kill(self) -> int:
        """Kill it, and return its exit code."""
        return await self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop it in the middle of whatever it does, as a machine does that swaps or freezes; see `go_on`."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on where it was: it knows nothing of what has happened meanwhile."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGCONT)

    async def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(SECONDS):
            return await self._process.wait()

    # -- what it says -----------------------------------------------------------------------------

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
        """Return how many writes it has sent, its lease's not counted."""
        return sum([await self.sample("rest_client_requests_total", f'method="{verb}"') for verb in WRITES])

    def written(self, since: int, *names: str) -> list[str]:
        """Return its writes as its log has them, its lease's left out.

        Other tests share the operator, and what they left behind comes to its end in its own time: a test that expects
        nothing to be written, or so much, means its own objects.

        Args:
            since: Where in the log to begin; see `calm`.
            names: What their paths have in them, one of these; all writes, where none is given.
        """
        return [each for each in self.asked(since, *names) if any(f'"method": "{verb}"' in each for verb in WRITES)]

    def asked(self, since: int, *names: str) -> list[str]:
        """Return its requests, as `written`, those that read with them."""
        return [each for each in self._told(since, *names) if '"message": "asked"' in each and "/leases" not in each]

    def looks(self, since: int, *names: str, controller: str = "") -> list[str]:
        """Return its looks at what has one of some names in its key, as its log has them.

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
        """Wait until it has had nothing to do for a while with what has one of some names in its path or key.

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

        await until(so, f"nothing is left to do for {names or 'anybody'}")
        return since

    async def _answers(self, path: str) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{self._address}{path}") as answer:
                return answer.ok
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def running(kubeconfig: Path, log: Path) -> AsyncGenerator[Operator]:
    """Run an operator while the context is open; told to stop at its end, it lets go of the lease."""
    operator = Operator(kubeconfig, log)
    await operator.start()
    try:
        yield operator
    finally:
        await operator.stop()

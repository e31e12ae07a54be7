"""Prometheus, Debian's, as a process of its own: scrapes pages and answers PromQL."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from testkit import debian, ports
from testkit.api import SECONDS, until

Json = dict[str, Any]

_PACKAGE = "prometheus"


def program(name: str) -> Path:
    """Return `prometheus` or `promtool` of Debian's package, which is fetched once.

    Raises:
        RuntimeError: The package cannot be fetched.
    """
    return debian.cached(_PACKAGE, lambda folder: debian.fetch(_PACKAGE, folder=folder)) / "usr" / "bin" / name


def check_rules(groups: Sequence[Json], folder: Path) -> None:
    """Let promtool check groups of rules.

    Args:
        groups: As under `groups` of a rule file.
        folder: For the file.

    Raises:
        AssertionError: It finds an error.
    """
    file = folder / "rules.json"
    # JSON is YAML.
    file.write_text(json.dumps({"groups": list(groups)}))
    command = [str(program("promtool")), "check", "rules", "--lint=all", "--lint-fatal", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr


class Prometheus:
    """A running Prometheus.

    Args:
        address: `host:port`.
        session: For its requests.
    """

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self._url = f"http://{address}"
        self._session = session

    async def query(self, text: str) -> list[Json]:
        """Return the series of a query, as the API writes them.

        Raises:
            AssertionError: Prometheus refuses the query.
        """
        async with self._session.get(f"{self._url}/api/v1/query", params={"query": text}) as answer:
            found = await answer.json()
        assert found["status"] == "success", f"{text}: {found}"
        return found["data"]["result"]

    async def targets(self) -> dict[str, Json]:
        """Return the scraped pages, by job."""
        async with self._session.get(f"{self._url}/api/v1/targets") as answer:
            found = await answer.json()
        return {each["labels"]["job"]: each for each in found["data"]["activeTargets"]}

    async def is_ready(self) -> bool:
        """Return whether it answers queries."""
        try:
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.status == web.HTTPOk.status_code
        except aiohttp.ClientError:
            return False


@asynccontextmanager
async def prometheus(folder: Path, jobs: Sequence[Json], groups: Sequence[Json] = ()) -> AsyncGenerator[Prometheus]:
    """Run Prometheus while the context is open.

    Args:
        folder: For its files.
        jobs: `scrape_configs`.
        groups: Groups of rules, which it evaluates.
    """
    rules, file, log = folder / "rules.json", folder / "prometheus.json", folder / "log"
    rules.write_text(json.dumps({"groups": list(groups)}))
    settings = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    file.write_text(json.dumps({"global": settings, "rule_files": [str(rules)], "scrape_configs": list(jobs)}))
    address = f"127.0.0.1:{ports.free(1)[0]}"
    binary = await asyncio.to_thread(program, "prometheus")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(str(binary), f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}"),
            f"--web.listen-address={address}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        async with aiohttp.ClientSession() as session:
            running = Prometheus(address, session)

            async def is_up() -> bool:
                assert process.returncode is None, log.read_text()
                return await running.is_ready()

            await until(is_up, "Prometheus answers")
            yield running
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), SECONDS)

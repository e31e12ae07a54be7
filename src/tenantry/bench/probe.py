"""CPU and memory of the operator's process, read from its own /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError
from tenantry.bench.hold import leading_operator
from tenantry.kube.client import Client

T = TypeVar("T")

MIB = 1024 * 1024
_WRITES = ("POST", "PUT", "PATCH", "DELETE")
TIMEOUT = aiohttp.ClientTimeout(total=10.0)


class ProcessUsage(msgspec.Struct, frozen=True):
    """CPU seconds since the process began (or since another reading), and resident memory."""

    cpu_seconds: float
    rss_mib: float


class OperatorMetrics:
    """Reads the metrics of one operator.

    Args:
        fetch: Returns the text of its /metrics.
    """

    def __init__(self, fetch: Callable[[], Awaitable[bytes]]) -> None:
        self._fetch = fetch

    async def page(self) -> bytes:
        """Return the whole page.

        Raises:
            ApiError: It cannot be read.
        """
        return await self._fetch()

    async def read(self) -> ProcessUsage:
        """Return what the process has used.

        Raises:
            ApiError: The page cannot be read, or lacks the process's figures.
        """
        values: dict[str, float] = {}
        for line in (await self._fetch()).decode().splitlines():
            name, _, value = line.rpartition(" ")
            if name in {"process_cpu_seconds_total", "process_resident_memory_bytes"}:
                values[name] = float(value)
        try:
            return ProcessUsage(values["process_cpu_seconds_total"], values["process_resident_memory_bytes"] / MIB)
        except KeyError as error:
            raise ApiError(f"the operator's /metrics has no {error}") from error

    async def writes(self) -> int:
        """Return how many requests of the process have written since it began, those for its Leases left out.

        Raises:
            ApiError: The page cannot be read.
        """
        count = 0.0
        for line in (await self._fetch()).decode().splitlines():
            if line.startswith("rest_client_requests_total{") and any(f'method="{each}"' in line for each in _WRITES):
                count += float(line.rpartition(" ")[2])
        return round(count)


async def operator_metrics(client: Client, url: str, *, waits: bool = True) -> OperatorMetrics:
    """Return the metrics of the operator that leads, read once to see that they can be read.

    Args:
        client: An administrator's client.
        url: The URL of its /metrics; "" to read them through the API server's proxy of its pod.
        waits: Wait until an operator leads; see `leading_operator`.

    Raises:
        ApiError: They cannot be read.
        RetryableError: No operator leads.
    """

    async def from_url() -> bytes:
        try:
            async with aiohttp.ClientSession(timeout=TIMEOUT) as session, session.get(url) as response:
                return await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ApiError(f"{url}: {error}") from error

    async def through_api_server() -> bytes:
        path = f"/api/v1/namespaces/{marks.SYSTEM_NAMESPACE}/pods/{pod}:8080/proxy/metrics"
        return await client.request("GET", path)

    pod = "" if url else (await leading_operator(client, waits=waits)).partition("_")[0]
    metrics = OperatorMetrics(from_url if url else through_api_server)
    await metrics.read()
    return metrics


async def measured(metrics: OperatorMetrics | None, work: Awaitable[T]) -> tuple[T, ProcessUsage | None]:
    """Return the result of some work, and what the operator used meanwhile; None without metrics."""
    if metrics is None:
        return await work, None
    before = await metrics.read()
    result = await work
    after = await metrics.read()
    return result, ProcessUsage(after.cpu_seconds - before.cpu_seconds, after.rss_mib)

"""What the operator's process uses, read from its own /metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from tenantry.api.errors import ApiError

MIB = 1024 * 1024


class Usage(msgspec.Struct, frozen=True):
    """CPU seconds since the process began (or since another reading), and resident memory."""

    cpu_seconds: float
    rss_mib: float

    def since(self, before: Usage) -> Usage:
        """Return the CPU used since another reading, and the memory of this one."""
        return Usage(self.cpu_seconds - before.cpu_seconds, self.rss_mib)


class Probe:
    """Reads the metrics of one operator.

    Args:
        fetch: Returns the text of its /metrics.
    """

    def __init__(self, fetch: Callable[[], Awaitable[bytes]]) -> None:
        self._fetch = fetch

    async def read(self) -> Usage:
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
            return Usage(values["process_cpu_seconds_total"], values["process_resident_memory_bytes"] / MIB)
        except KeyError as error:
            raise ApiError(f"the operator's /metrics has no {error}") from error

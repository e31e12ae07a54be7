"""Pauses the operator: only the holder of its lease acts, so the benchmark takes the lease and gives it back."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tenantry.api import marks
from tenantry.api.errors import NotFound, RetryableError
from tenantry.engine.clock import SystemClock
from tenantry.engine.lease import NAME, Election, Lease
from tenantry.engine.tasks import in_background
from tenantry.kube import watch as watching
from tenantry.kube.client import Client

LEAD_SECONDS = 60.0
HOLDER_PREFIX = "bench_"


_ADVICE = "is one running? See `tenantry status`, or install it with `tenantry install`"


async def leading_operator(client: Client, *, waits: bool = True) -> str:
    """Return the identity of the operator that holds the lease.

    Args:
        client: An administrator's client.
        waits: Wait until an operator holds it, for up to `LEAD_SECONDS`; otherwise, read the lease once.

    Raises:
        RetryableError: No operator holds it (in time).
    """
    try:
        async with asyncio.timeout(LEAD_SECONDS):
            while True:
                try:
                    lease = await client.get(Lease, NAME, marks.SYSTEM_NAMESPACE)
                except NotFound:
                    lease = None
                holder = (lease.spec.holder_identity or "") if lease is not None else ""
                if holder and not holder.startswith(HOLDER_PREFIX):
                    return holder
                if not waits:
                    raise RetryableError(f"no operator holds the lease {marks.SYSTEM_NAMESPACE}/{NAME}; {_ADVICE}")
                version = lease.metadata.resource_version if lease is not None else "0"
                await _changed(client, version)
    except TimeoutError as error:
        raise RetryableError(
            f"no operator holds the lease {marks.SYSTEM_NAMESPACE}/{NAME} after {LEAD_SECONDS:.0f} s; {_ADVICE}"
        ) from error


async def _changed(client: Client, version: str) -> None:
    only = {"fieldSelector": f"metadata.name={NAME}"}
    stream = watching.watch(
        client, Lease.resource, namespace=marks.SYSTEM_NAMESPACE, resource_version=version, selectors=only
    )
    async for events in stream:
        if any(event.type is not watching.EventType.BOOKMARK for event in events):
            return


@asynccontextmanager
async def held_operator(client: Client) -> AsyncGenerator[None]:
    """Hold the operator's lease while the context is open: the operator stands by and keeps no watch.

    If this process dies, the lease expires and the operator continues.
    """
    identity = f"{HOLDER_PREFIX}{uuid.uuid4()}"
    election = Election(client, SystemClock(), namespace=marks.SYSTEM_NAMESPACE, identity=identity)
    await election.request()
    try:
        async with asyncio.timeout(LEAD_SECONDS):
            await election.acquire()
    except TimeoutError as error:
        raise RetryableError(f"{election.holder!r} did not release the lease in {LEAD_SECONDS:.0f} s") from error
    try:
        async with in_background(election.hold()) as holding:
            yield
            if holding.done():
                raise RetryableError(f"the lease was taken by {election.holder!r} during the measurement; run it again")
    finally:
        await election.release()

"""A hosted control plane without an operator: its process under the supervisor of a local cluster."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tenantry.api.clusterguards import ClusterGuard
from tenantry.hosting.placement import RunningPlane
from tenantry.hosting.plane import AdmissionRule, HostedPlane
from tenantry.hosting.stores import HostedStore
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from tenantry.local.hosted import LocalPlacement
from tenantry.local.progress import SilentProgress


@asynccontextmanager
async def running(
    tenancy: LocalCluster,
    name: str,
    *rules: AdmissionRule,
    store: HostedStore | None = None,
    service_range: str = "10.96.0.0/16",
    replicas: int = 1,
    guards: tuple[ClusterGuard, ...] = (),
) -> AsyncGenerator[tuple[LocalPlacement, HostedPlane, RunningPlane]]:
    """A hosted control plane that is ready."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    place = LocalPlacement(tenancy.paths)
    issuer, owner = f"https://{name}.example", f"owner:{name}"
    plane = HostedPlane(
        uid=str(uuid.uuid4()),
        name=name,
        issuer=issuer,
        owner=owner,
        admission=rules,
        store=store or HostedStore(),
        service_range=service_range,
        replicas=replicas,
        # Only a control plane with nodes of its own has guards.
        has_nodes=bool(guards),
        guards=guards,
    )
    try:
        yield place, plane, await place.start(plane)
    finally:
        await place.remove(plane.uid)

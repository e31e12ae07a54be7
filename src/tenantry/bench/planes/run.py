"""The tenants and the control planes of one run of a benchmark.

run ─► tenants, few control planes in each ─► POST ─► Ready ─► a request with its kubeconfig ─► usable
end ─► tenants deleted, their namespaces gone
"""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tenantry.api import reasons
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, VirtualControlPlane
from tenantry.bench.load import RUN_LABEL, clean_up, create_tenants, first_seen, new_run, new_tenant, of_run
from tenantry.engine.conditions import is_true
from tenantry.engine.tasks import in_background
from tenantry.kube import kubeconfig, wire
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection

READY_SECONDS = 300.0
A_TENANT = 5
"""Control planes of one tenant; more would meet the standard limits of what a namespace may have."""

SECRETS = Resource("", "v1", "secrets", "Secret")
_QUOTA = {
    "cpu": "64",
    "memory": "128Gi",
    "pods": "1000",
    # The tokens of each pod inside are a Secret.
    "count/secrets": "2000",
    f"count/{VirtualControlPlane.resource.full_name}": A_TENANT,
}


class BenchPlane(msgspec.Struct, frozen=True, kw_only=True):
    """A control plane of a run.

    Args:
        namespace: Its tenant's.
        name: Its name there.
        connection: Its users'.
        seconds: From the POST to the first request that its users' kubeconfig was good for.
    """

    namespace: str
    name: str
    connection: Connection
    seconds: float

    @property
    def process(self) -> str:
        """Return the name of its process."""
        return f"{self.namespace}.{self.name}"


class PlaneRun:
    """Creates the control planes of one run.

    Args:
        client: An administrator's.
        run: The id.
        namespaces: Of its tenants.
    """

    def __init__(self, client: Client, run: str, namespaces: Sequence[str]) -> None:
        self.client = client
        self.run = run
        self.namespaces = namespaces
        self._created = 0

    async def create(self) -> BenchPlane:
        """Create a control plane, and return it once it has answered its users.

        Raises:
            RetryableError: It is not Ready in time.
        """
        number = self._created
        self._created += 1
        meta = ObjectMeta(
            name=f"plane-{number}",
            namespace=self.namespaces[number % len(self.namespaces)],
            labels={RUN_LABEL: self.run},
        )
        found = VirtualControlPlane(metadata=meta)
        seen = first_seen(
            self.client, VirtualControlPlane, {found.key}, is_ready, of_run(self.run), "Ready", READY_SECONDS
        )
        async with in_background(seen) as waiting:
            began = time.perf_counter()
            await self.client.create(found)
            await waiting
        connection = await connection_of(self.client, meta.namespace, meta.name)
        async with Client(connection, max_connections=1) as inside:
            await inside.request("GET", "/api/v1/namespaces/default/pods")
        return BenchPlane(
            namespace=meta.namespace, name=meta.name, connection=connection, seconds=time.perf_counter() - began
        )


@asynccontextmanager
async def planes_of_run(client: Client, count: int) -> AsyncGenerator[PlaneRun]:
    """Yield a run with tenants for so many control planes; at the end, delete all that it has created.

    Raises:
        RetryableError: The tenants are not Ready, or not gone, in time.
    """
    run = new_run()
    names = [f"bench-{run}-{number}" for number in range(-(-count // A_TENANT))]
    try:
        await create_tenants(client, [new_tenant(name, run, quota=_QUOTA) for name in names])
        yield PlaneRun(client, run, names)
    finally:
        await clean_up(client, run)


def is_ready(found: VirtualControlPlane) -> bool:
    """Return whether a control plane is Ready."""
    return is_true(found.status.conditions, reasons.READY)


async def connection_of(client: Client, namespace: str, name: str) -> Connection:
    """Return the connection of the users of a control plane, from its Secret."""
    status = (await client.get(VirtualControlPlane, name, namespace)).status
    path = wire.path(SECRETS, status.kubeconfig_namespace or namespace, status.kubeconfig_secret)
    data = await client.request("GET", path)
    text = base64.b64decode(msgspec.json.decode(data)["data"][KUBECONFIG_KEY])
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        return kubeconfig.load([Path(file.name)]).detached()

"""The private memory of one control plane: at rest, and after use.

created ─► rest ─► memory
OpenAPI documents read, definitions and ConfigMaps created ─► rest ─► memory
"""

from __future__ import annotations

import asyncio

import msgspec

from tenantry.api.model import Json, Resource
from tenantry.bench.load import Progress, post, saturate
from tenantry.bench.objects import CONFIG_MAPS
from tenantry.bench.planes.processes import Processes
from tenantry.bench.planes.run import planes_of_run
from tenantry.kube.client import Client

DEFINITIONS = 20
CONFIG_MAP_COUNT = 200
_CONNECTIONS = 8
_DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)


class PlaneMemoryResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result, in 10^6 bytes.

    Args:
        private_megabytes: Of a control plane that nothing uses.
        used_megabytes: The same after it was used: both OpenAPI documents were read, and objects created.
    """

    private_megabytes: float
    used_megabytes: float


async def memory(client: Client, idle_seconds: float, processes: Processes, progress: Progress) -> PlaneMemoryResult:
    """Run the benchmark and clean up after it.

    Args:
        client: An administrator's client of a local cluster.
        idle_seconds: How long to rest before each measurement.
        processes: Of the cluster.
        progress: Receives a line after each step.

    Raises:
        RetryableError: The control plane is not usable in time.
    """
    async with planes_of_run(client, 1) as run:
        plane = await run.create()
        await asyncio.sleep(idle_seconds)
        (idle,) = processes.of_planes([plane.process])
        progress(f"at rest: {idle.private_megabytes:.1f} MB")
        async with Client(plane.connection, max_connections=_CONNECTIONS) as inside:
            await _use(inside)
        await asyncio.sleep(idle_seconds)
        (used,) = processes.of_planes([plane.process])
    return PlaneMemoryResult(
        private_megabytes=round(idle.private_megabytes, 1), used_megabytes=round(used.private_megabytes, 1)
    )


async def _use(inside: Client) -> None:
    for path in ("/openapi/v2", "/openapi/v3"):
        await inside.request("GET", path)
    await saturate(
        lambda number: post(inside, _DEFINITIONS, _definition(number)), range(DEFINITIONS), connections=_CONNECTIONS
    )
    await saturate(
        lambda number: post(inside, CONFIG_MAPS, {"metadata": {"name": f"c-{number}", "namespace": "default"}}),
        range(CONFIG_MAP_COUNT),
        connections=_CONNECTIONS,
    )
    await inside.request("GET", "/openapi/v2")


def _definition(number: int) -> Json:
    names = {"plural": f"kinds{number}", "singular": f"kind{number}", "kind": f"Kind{number}"}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": f"kinds{number}.bench.example.com"},
        "spec": {"group": "bench.example.com", "names": names, "scope": "Namespaced", "versions": [version]},
    }

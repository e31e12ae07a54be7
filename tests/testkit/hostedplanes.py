"""Control planes in Pods on a cluster without nodes: their containers, and those of the proxy before them, run here."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import objects
from tenantry.hostedpods.placement import PodPlacement
from tenantry.hosting import sidecar
from tenantry.hosting.placement import RunningPlane
from tenantry.hosting.plane import HostedPlane
from tenantry.install import apply, manifests, planepods, planeproxy, planestore
from tenantry.install.planepods import PodOptions
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.progress import SilentProgress
from testkit.api import PODS, SECONDS, SECRETS, Api, until
from testkit.podprocesses import PodProcesses

Json = dict[str, Any]
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose sockets have short paths, as in a Pod."""
    with tempfile.TemporaryDirectory(prefix="p-") as folder:
        yield Path(folder)


@pytest.fixture
def programs() -> dict[str, Path]:
    """What the image has, by its path there."""
    progress = SilentProgress()
    hosted = build.ensure(progress, build.HOSTED)
    return {
        objects.PROGRAM: hosted.hosted,
        objects.OPENAPI: hosted.openapi,
        objects.PREBUILT: hosted.prebuilt,
        objects.SIDECAR: build.ensure(progress, build.SIDECAR).sidecar,
        objects.FORWARDER: build.ensure(progress, build.ENDPOINT_PROXY).endpoint_proxy,
        planestore.ETCD: build.ensure(progress, build.HOSTED_ETCD).hosted_etcd,
    }


@asynccontextmanager
async def installed(admin: Client, options: PodOptions) -> AsyncGenerator[Client]:
    """The ServiceAccount of the operator, with the rights of this installation only."""
    account = manifests.SERVICE_ACCOUNT
    await apply.apply(admin, planepods.everything(account, options))
    may = partial(Api(admin).may, account, "patch", "apps", "statefulsets", PROCESS_NAMESPACE)
    await until(may, "the API server knows the rights of the operator")
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    async with Client(replace(admin.connection, impersonate=user)) as client:
        yield client


def loopback() -> str:
    """Return a loopback address that no other test has."""
    return f"127.{1 + secrets.randbelow(250)}.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"


async def pod_of(host: Api, selector: dict[str, str], *former: str) -> Json:
    """Wait for a Pod with labels whose uid is not one of the former ones, and return it."""
    found: list[Json] = []

    async def there() -> bool:
        found[:] = [
            each
            for each in await host.list(PODS, PROCESS_NAMESPACE)
            if selector.items() <= each["metadata"]["labels"].items() and each["metadata"]["uid"] not in former
        ]
        return bool(found)

    await until(there, f"a Pod with {selector} is there", seconds=SECONDS)
    return found[0]


async def listens(address: str, port: int) -> None:
    """Wait until a port accepts connections."""

    async def so() -> bool:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
            return True
        return False

    await until(so, f"{address}:{port} accepts", seconds=2 * SECONDS)


@asynccontextmanager
async def served(pod: Json, processes: PodProcesses) -> AsyncGenerator[None]:
    """The containers of a Pod of a control plane run here, and it is ready."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def answers() -> bool:
        processes.check()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(processes.address, sidecar.API_PORT, ssl=context)
            writer.write(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            line = await reader.readline()
            writer.close()
            return b" 200 " in line
        return False

    async with processes.running(pod):
        await until(answers, "the API server is ready", seconds=3 * SECONDS)
        await processes.ready(pod)
        yield


@asynccontextmanager
async def started(
    place: PodPlacement, wanted: HostedPlane, processes: PodProcesses, host: Api, *former: str
) -> AsyncGenerator[tuple[RunningPlane, Json]]:
    """A control plane whose containers run here, and its Pod."""
    async with contextlib.AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            start = group.create_task(place.start(wanted))
            pod = await pod_of(host, {objects.UID_LABEL: wanted.uid}, *former)
            await stack.enter_async_context(served(pod, processes))
        yield start.result(), pod


@asynccontextmanager
async def proxied(
    host: Api, folder: Path, programs: dict[str, Path], address: str = ""
) -> AsyncGenerator[PodProcesses]:
    """The Pod of the endpoint proxy, at a loopback address unless one is given."""
    pod = await pod_of(host, planeproxy.SELECTOR)

    async def told() -> bool:
        return await host.find(SECRETS, planeproxy.NAME, PROCESS_NAMESPACE) is not None

    await until(told, "the operator has written the certificates of the proxy")
    processes = PodProcesses(host, folder, address or loopback(), programs, {})
    async with processes.running(pod):
        await listens(processes.address, planeproxy.CONTROL_PORT)
        await processes.ready(pod)
        yield processes


async def unproxied(host: Api) -> None:
    """Delete the endpoint proxy, and wait until no Pod of it is left."""
    await host.delete(DEPLOYMENTS, planeproxy.NAME, PROCESS_NAMESPACE)

    async def gone() -> bool:
        found = await host.list(PODS, PROCESS_NAMESPACE)
        return not [each for each in found if planeproxy.SELECTOR.items() <= each["metadata"]["labels"].items()]

    await until(gone, "the Pod of the proxy is gone", seconds=SECONDS)

"""Virtual control planes for tests: created on a host, and entered as their user."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tenantry.api.errors import Forbidden, ServerError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, VirtualControlPlane
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.local.control import SupervisorRequest, order
from testkit.api import SECONDS, SECRETS, SERVICE_ACCOUNTS, Api, until

Json = dict[str, Any]
T = TypeVar("T")


def ready(found: Json) -> Json:
    """Return the condition Ready of an object; {} if it has none."""
    conditions: list[Json] = found.get("status", {}).get("conditions", [])
    none: Json = {}
    return next((each for each in conditions if each["type"] == "Ready"), none)


class Planes:
    """Creates virtual control planes in tenants' namespaces.

    Args:
        host: An administrator of the host.
        folder: Where the kubeconfigs are kept; its path is also how the control planes are reached by kubectl.
    """

    def __init__(self, host: Api, folder: Path) -> None:
        self.host = host
        self._folder = folder

    def kubeconfig(self, namespace: str, name: str) -> Path:
        """Return the path of the kubeconfig of a control plane that was entered."""
        return self._folder / f"{namespace}.{name}.kubeconfig"

    async def create(self, namespace: str, name: str) -> Json:
        """Create one, wait until it is ready, and return it."""
        await self.host.create(VirtualControlPlane.resource, {"metadata": {"name": name}, "spec": {}}, namespace)
        return await self.ready(namespace, name)

    async def ready(self, namespace: str, name: str) -> Json:
        """Wait until one is ready, and return it."""
        seen: Json = {}

        async def so() -> Json | None:
            seen.update(await self.host.get(VirtualControlPlane.resource, name, namespace))
            return seen if ready(seen).get("status") == "True" else None

        return await until(so, "the control plane is ready", seconds=3 * SECONDS, seen=lambda: ready(seen))

    @asynccontextmanager
    async def entered(self, namespace: str, name: str) -> AsyncGenerator[Api]:
        """Its user, an administrator inside."""
        found = await self.host.get(VirtualControlPlane.resource, name, namespace)
        place = found["status"].get("kubeconfigNamespace") or namespace
        secret = await self.host.get(SECRETS, found["status"]["kubeconfigSecret"], place)
        path = self.kubeconfig(namespace, name)
        path.write_bytes(base64.b64decode(secret["data"][KUBECONFIG_KEY]))
        async with Client(kubeconfig.load([path])) as client:
            inside = Api(client)

            async def is_known() -> bool:
                try:
                    return await inside.find(SERVICE_ACCOUNTS, "default", "default") is not None
                except Forbidden:  # the authorizer inside sees the binding of the owners a moment after it was written
                    return False

            await until(is_known, "the user has rights inside, and pods can be made")
            yield inside

    async def delete(self, namespace: str, name: str) -> None:
        """Delete one, and wait until it is gone."""
        await self.host.delete(VirtualControlPlane.resource, name, namespace)

        async def gone() -> bool:
            return await self.host.find(VirtualControlPlane.resource, name, namespace) is None

        await until(gone, "the control plane is gone", seconds=2 * SECONDS)

    async def names(self, resource: Resource, namespace: str) -> list[str]:
        """Return the names of objects of the host."""
        return sorted(each["metadata"]["name"] for each in await self.host.list(resource, namespace))

    async def exists(self, namespace: str) -> bool:
        """Return whether a namespace of the host exists."""
        return await self.host.find(Namespace.resource, namespace) is not None


async def awakened(ask: Callable[[], Awaitable[T]]) -> T:
    """Send a request to a control plane that sleeps, until it has an answer.

    A busy machine needs longer for the start than the endpoint proxy lets a client wait, and than a client tries.
    """

    async def so() -> tuple[T] | None:
        try:
            return (await ask(),)
        except ServerError:
            return None

    return (await until(so, "the control plane is woken", seconds=3 * SECONDS))[0]


@asynccontextmanager
async def without_operator(cluster: LocalCluster) -> AsyncGenerator[None]:
    """Stop the operator, and start it again."""
    await order(cluster.paths.socket, SupervisorRequest(verb="stop", component="operator"), SECONDS)
    try:
        yield
    finally:
        await order(cluster.paths.socket, SupervisorRequest(verb="start", component="operator"), SECONDS)


async def vcp(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    """Run a command of `tenantry vcp`; return its exit code, its output and its messages."""
    return await command(cluster, "vcp", *arguments)


async def command(cluster: LocalCluster, *arguments: str) -> tuple[int, str, str]:
    """Run a command about a local cluster; return its exit code, its output and its messages."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", *arguments, f"--cluster={cluster.name}"),
        env={**os.environ, "TENANTRY_HOME": str(cluster.paths.folder.parent.parent)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    return child.returncode or 0, out.decode().strip(), err.decode()

"""The endpoint proxy before control planes in Pods: its process, and those of the Pods, run here (H01)."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest_asyncio
import yaml
from msgspec.structs import replace

from tenantry.api.errors import LocalError
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.engine.tasks import in_background
from tenantry.hostedpods import objects
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.placement import PodPlacement
from tenantry.hosting import activity, sidecar
from tenantry.hosting.plane import HostedPlane
from tenantry.install import apply, manifests, planepods
from tenantry.install.planepods import PodOptions
from tenantry.kube.client import Client
from testkit import ports
from testkit.api import PODS, Api, until
from testkit.hostedplanes import loopback, pod_of, programs, proxied, served, short_folder, started, unproxied
from testkit.kubectl import Kubectl
from testkit.podprocesses import PodProcesses

Json = dict[str, Any]
# Fixtures.
__all__ = ("programs", "short_folder")

IMAGE = "registry.example/hosted:1"
SETTINGS = PodSettings(image=IMAGE)


@pytest_asyncio.fixture
async def operator(admin: Client) -> AsyncGenerator[Client]:
    """The ServiceAccount of the operator, with the rights of this installation only."""
    await apply.apply(admin, planepods.everything(manifests.SERVICE_ACCOUNT, PodOptions(image=IMAGE)))
    account = manifests.SERVICE_ACCOUNT
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    async with Client(replace(admin.connection, impersonate=user)) as client:
        yield client
    await unproxied(Api(admin))


@asynccontextmanager
async def serving(client: Client, folder: Path) -> AsyncGenerator[PodPlacement]:
    """An operator that serves all control planes."""
    place = PodPlacement(client, SETTINGS, folder)
    async with in_background(place.keep()), in_background(place.follow(lambda _: True, lambda _: None)):
        yield place


def of_pod(host: Api, folder: Path, programs: dict[str, Path]) -> PodProcesses:
    """Return the place for the Pod of a control plane."""
    folder.mkdir()
    (internal,) = ports.free(1)
    return PodProcesses(host, folder, loopback(), programs, {str(sidecar.INTERNAL_PORT): str(internal)})


async def kubectl_of(place: PodPlacement, own: HostedPlane, folder: Path) -> Kubectl:
    """Return kubectl of the users at the proxy: nothing leads addresses of Services here."""
    found = yaml.safe_load(await place.kubeconfig(own.uid))
    at = place.endpoint(own.uid)
    assert at is not None
    found["clusters"][0]["cluster"] |= {"server": f"https://{at.address}:{at.port}", "tls-server-name": "kubernetes"}
    path = folder / "users.kubeconfig"
    path.write_text(yaml.safe_dump(found))
    return Kubectl(path)


async def test_a_control_plane_in_a_pod_sleeps_is_woken_and_is_closed_while_suspended(
    admin: Client, operator: Client, short_folder: Path, programs: dict[str, Path]
) -> None:
    """H01: the first request wakes it and is answered; also with another operator; suspended, it answers 503."""
    host = Api(admin)
    own = HostedPlane(uid=str(uuid.uuid4()), name="a.web", issuer="https://a.example", owner="owner:a")
    local = of_pod(host, short_folder / "a", programs)
    for each in ("o", "x"):
        (short_folder / each).mkdir()
    async with serving(operator, short_folder / "o") as place, proxied(host, short_folder / "x", programs):
        async with started(place, own, local, host) as (_, pod):
            kubectl = await kubectl_of(place, own, short_folder)
            await kubectl.out("create", "configmap", "mine")
            async with place.connected(own.uid):
                # The process reports its clients through the sidecar.
                async def asked() -> bool:
                    with contextlib.suppress(LocalError):
                        return (await activity.ask(place.activity(own.uid), None)).open_requests == 0
                    return False

                await until(asked, "the activity is reported")
            # The containers end with the Pod, which the operator deletes.
        await place.stop(own.uid)
        assert not [each for each in await host.list(PODS, PROCESS_NAMESPACE) if own.uid in each["metadata"]["name"]]
        async with asyncio.TaskGroup() as group:
            knocked = group.create_task(place.knocked(own.uid))
            first = group.create_task(kubectl.out("get", "configmaps", "-o", "name"))
            await knocked
            starting = group.create_task(place.start(own))
            again = await pod_of(host, {objects.UID_LABEL: own.uid}, pod["metadata"]["uid"])
            async with served(again, local):
                assert "configmap/mine" in await first
                await starting
                await place.open(own.uid, is_open=False)
                refused = await kubectl.run("get", "configmaps")
                assert "suspended" in refused.stderr
        await place.remove(own.uid)

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

from tenantry.api.errors import LocalError
from tenantry.api.kubernetes import RBAC_GROUP
from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.engine.tasks import in_background
from tenantry.hostedpods import objects, proxyports
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.placement import PodPlacement
from tenantry.hosting import activity, sidecar
from tenantry.hosting.plane import HostedPlane
from tenantry.install.planepods import PodOptions
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from testkit import ports
from testkit.api import CONFIG_MAPS, PODS, SECONDS, SECRETS, Api, until
from testkit.hostedplanes import (
    installed,
    loopback,
    pod_of,
    programs,
    proxied,
    served,
    short_folder,
    started,
    unproxied,
)
from testkit.kubectl import Kubectl
from testkit.podprocesses import PodProcesses

Json = dict[str, Any]
# Fixtures.
__all__ = ("programs", "short_folder")

BINDINGS = Resource(RBAC_GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding")
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints")
REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
TOKEN: Json = {
    "metadata": {"name": "bootstrap-token-abcdef"},
    "type": "bootstrap.kubernetes.io/token",
    "stringData": {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
    },
}
IMAGE = "registry.example/hosted:1"
SETTINGS = PodSettings(image=IMAGE)


@pytest_asyncio.fixture
async def operator(admin: Client) -> AsyncGenerator[Client]:
    """The ServiceAccount of the operator, with the rights of this installation only."""
    async with installed(admin, PodOptions(image=IMAGE)) as client:
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


async def is_known(place: PodPlacement, own: HostedPlane) -> bool:
    """Return whether the operator has told the proxy that runs now."""
    at = place.endpoint(own.uid)
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(at.address if at else "", at.port if at else 0)
        writer.close()
        return True
    return False


async def allowed(inside: Api, user: str) -> None:
    """Make the user of the kubeconfig an administrator, as the operator does, and create a ConfigMap."""
    reference = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": RBAC_GROUP, "kind": "User", "name": user}
    await inside.create(BINDINGS, {"metadata": {"name": "owner"}, "roleRef": reference, "subjects": [subject]})
    await inside.create(CONFIG_MAPS, {"metadata": {"name": "mine"}}, "default")


async def reports(place: PodPlacement, uid: str) -> None:
    """Wait until the process reports its clients to the operator, through the sidecar."""

    async def so() -> bool:
        with contextlib.suppress(LocalError):
            return (await activity.ask(place.activity(uid)[0], None)).idle_seconds >= 0
        return False

    async with place.connected(uid):
        await until(so, "the activity is reported")


async def answers(kubectl: Kubectl, words: str) -> None:
    """Wait until a request of the users has words in its answer."""
    seen: list[str] = []

    async def so() -> bool:
        done = await kubectl.run("get", "configmaps", "-o", "name")
        seen[:] = [done.stdout + done.stderr]
        return words in seen[0]

    await until(so, f"the answer has {words!r}", seconds=2 * SECONDS, seen=lambda: seen)


async def test_a_control_plane_in_a_pod_sleeps_is_woken_and_is_closed_while_suspended(
    admin: Client, operator: Client, short_folder: Path, programs: dict[str, Path]
) -> None:
    """H01: the first request wakes it and is answered; suspended, it answers 503, also from a new proxy."""
    host = Api(admin)
    own = HostedPlane(uid=str(uuid.uuid4()), name="a.web", issuer="https://a.example", owner="owner:a")
    local = of_pod(host, short_folder / "a", programs)
    for each in ("o", "x", "y", "z"):
        (short_folder / each).mkdir()
    async with contextlib.AsyncExitStack() as stack:
        place = await stack.enter_async_context(serving(operator, short_folder / "o"))
        proxy = await stack.enter_async_context(contextlib.AsyncExitStack())
        await proxy.enter_async_context(proxied(host, short_folder / "x", programs))
        async with started(place, own, local, host) as (running, pod):
            async with Client(running.connection) as client:
                await allowed(Api(client), own.owner)
            kubectl = await kubectl_of(place, own, short_folder)
            # No operator has decided yet that its tenant is not suspended.
            await answers(kubectl, "(ServiceUnavailable)")
            await place.open(own.uid, is_open=True)
            await answers(kubectl, "configmap/mine")
            await reports(place, own.uid)
            # The containers end with the Pod, which the operator deletes.
        await place.stop(own.uid)
        assert not [each for each in await host.list(PODS, PROCESS_NAMESPACE) if own.uid in each["metadata"]["name"]]
        async with asyncio.TaskGroup() as group:
            knocked = group.create_task(place.knocked(own.uid))
            # The proxy keeps a client waiting for seconds only; a busy machine needs more for a process.
            first = group.create_task(answers(kubectl, "configmap/mine"))
            await knocked
            starting = group.create_task(place.start(own))
            again = await pod_of(host, {objects.UID_LABEL: own.uid}, pod["metadata"]["uid"])
            await stack.enter_async_context(served(again, local))
            await first
            await starting
        await place.open(own.uid, is_open=False)
        assert "is suspended" in (await kubectl.run("get", "configmaps")).stderr
        # A new proxy knows nothing, and is told.
        await proxy.aclose()
        await stack.enter_async_context(proxied(host, short_folder / "y", programs))
        await until(lambda: is_known(place, own), "the operator has found it")
        kubectl = await kubectl_of(place, own, short_folder)
        # kubectl discovers kinds first, and shows no message of that.
        await answers(kubectl, "(ServiceUnavailable)")
        # Another operator goes on, and has only what is in the cluster.
        other = await stack.enter_async_context(serving(operator, short_folder / "z"))
        await other.open(own.uid, is_open=True)
        await answers(kubectl, "configmap/mine")
        await other.remove(own.uid)


async def test_a_machine_with_a_token_reaches_a_control_plane_in_a_pod_at_a_port_of_its_own(
    admin: Client, operator: Client, short_folder: Path, programs: dict[str, Path]
) -> None:
    """H04: also while its clients are refused; the Service inside leads the pods of machines there."""
    host = Api(admin)
    own = HostedPlane(uid=str(uuid.uuid4()), name="a.web", issuer="https://a.example", owner="owner:a", has_nodes=True)
    local = of_pod(host, short_folder / "a", programs)
    for each in ("o", "x"):
        (short_folder / each).mkdir()
    async with contextlib.AsyncExitStack() as stack:
        place = await stack.enter_async_context(serving(operator, short_folder / "o"))
        await stack.enter_async_context(proxied(host, short_folder / "x", programs))
        assert place.node_endpoint(own.uid) is None
        running, _ = await stack.enter_async_context(started(place, own, local, host))
        service = await host.get(objects.SERVICES, objects.name(own.uid), PROCESS_NAMESPACE)
        address = service["spec"]["clusterIP"]
        node, proxy = place.node_endpoint(own.uid), place.endpoint(own.uid)
        assert node is not None
        assert proxy is not None
        assert node.server == f"https://{objects.at_port(address, sidecar.INTERNAL_PORT)}"
        (port,) = (each for each in service["spec"]["ports"] if each["name"] == objects.NODES)
        assert port["port"] == sidecar.INTERNAL_PORT
        async with Client(running.connection) as client:
            inside = Api(client)
            await inside.create(SECRETS, TOKEN, "kube-system")

            async def is_led() -> bool:
                found = await inside.find(ENDPOINTS, "kubernetes", "default")
                return bool(found) and [each["ip"] for each in found["subsets"][0]["addresses"]] == [address]

            await until(is_led, "pods of machines find the address")
        machine = Connection(
            server=f"https://{objects.at_port(proxy.address, port['targetPort'])}",
            source="the machine",
            ca=node.ca.encode(),
            tls_server_name=address,
            token="abcdef.0123456789abcdef",
        )
        async with Client(machine) as client:
            # No operator has decided yet that its tenant is not suspended: that is for clients.
            found = await Api(client).create(REVIEWS, {"metadata": {}})
        assert found["status"]["userInfo"]["username"] == "system:bootstrap:abcdef"
        await place.remove(own.uid)
        taken = await host.get(CONFIG_MAPS, proxyports.NAME, PROCESS_NAMESPACE)
        assert not [each for each in taken.get("data", {}) if own.uid in each]

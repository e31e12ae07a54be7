"""Virtual control planes in Pods that sleep, with the operator of an existing cluster; their containers run here."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
import shutil
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenantry.api import reasons
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import KUBECONFIG_KEY, PROCESS_NAMESPACE, PlanePhase, VirtualControlPlane
from tenantry.controllers.virtualcontrolplane import apiservice
from tenantry.engine.tasks import in_background
from tenantry.hostedpods import objects
from tenantry.hosting import sidecar
from tenantry.install import apply, manifests, planepods, planeproxy
from tenantry.install.planepods import PodOptions
from tenantry.local.cluster import LocalCluster
from testkit import ports
from testkit.api import PODS, SECONDS, SECRETS, Api, until
from testkit.hostedplanes import loopback, pod_of, programs, proxied, served, short_folder, unproxied
from testkit.kubectl import Kubectl
from testkit.operators import Operator
from testkit.planes import ready
from testkit.podprocesses import PodProcesses

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
# Fixtures.
__all__ = ("programs", "short_folder")

IMAGE = "registry.example/hosted:1"
PLANES = VirtualControlPlane.resource


@pytest.fixture
def addresses() -> Iterator[tuple[str, str]]:
    """Two addresses of this machine that EndpointSlices may have: none of loopback."""
    found = [f"198.18.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}" for _ in range(2)]

    def change(verb: str, address: str) -> bool:
        command = ("ip", "address", verb, f"{address}/32", "dev", "lo")
        return (
            shutil.which("ip") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0
        )

    with contextlib.ExitStack() as stack:
        for each in found:
            if not change("add", each):
                pytest.skip("the test adds addresses to this machine, for which it must be root")
            stack.callback(change, "del", each)
        yield found[0], found[1]


async def kept(host: Api, local: PodProcesses, uid: str) -> None:
    """Run the containers of a control plane whenever it has a Pod, as kubelet does, until cancelled."""
    while True:
        pods = [each for each in await host.list(PODS, PROCESS_NAMESPACE) if is_of(each, uid)]
        if not pods:
            await asyncio.sleep(0.1)
            continue
        (pod,) = pods
        async with served(pod, local):
            await until(lambda pod=pod: ended(host, pod), "the Pod is deleted", seconds=10 * SECONDS)


async def ended(host: Api, pod: Json) -> bool:
    """Return whether a Pod is deleted."""
    found = await host.list(PODS, PROCESS_NAMESPACE)
    return pod["metadata"]["uid"] not in {each["metadata"]["uid"] for each in found}


def is_of(pod: Json, uid: str) -> bool:
    """Return whether a Pod is one of a control plane."""
    return pod["metadata"]["labels"].get(objects.UID_LABEL) == uid


@asynccontextmanager
async def operated(api: Api, tenancy: LocalCluster, folder: Path, shared: Operator) -> AsyncGenerator[Operator]:
    """The operator of an installation with control planes in Pods, in place of the one that tests share."""
    if shared.is_running:
        await shared.stop()
    await apply.apply(api.client, planepods.everything(manifests.SERVICE_ACCOUNT, PodOptions(image=IMAGE)))
    operator = Operator(tenancy.kubeconfig_path, folder / "operator.log", "--hosted-image", IMAGE)
    await operator.start()
    try:
        await operator.leads()
        yield operator
    finally:
        await operator.stop()
        await unproxied(api)


async def in_phase(api: Api, namespace: str, phase: PlanePhase, wakes: int) -> Json:
    """Wait until the control plane is in a phase, with its share or without, and return its status."""
    seen: Json = {}

    async def so() -> Json | None:
        seen.clear()
        seen.update((await api.get(PLANES, "web", namespace))["status"])
        is_settled = bool(seen.get("charged")) == (phase is not PlanePhase.ASLEEP)
        return seen if (seen.get("phase"), seen.get("wakes", 0)) == (phase, wakes) and is_settled else None

    return await until(so, f"the control plane is {phase}", seconds=3 * SECONDS, seen=lambda: seen)


async def kubectl_of(api: Api, namespace: str, folder: Path) -> Kubectl:
    """Return kubectl of the owners, at the address to which the pods of the tenant are led."""
    secret = await api.get(SECRETS, "web-kubeconfig", namespace)
    found = yaml.safe_load(base64.b64decode(secret["data"][KUBECONFIG_KEY]))
    (endpoints,) = await api.list(apiservice.ENDPOINT_SLICES, namespace)
    address, port = endpoints["endpoints"][0]["addresses"][0], endpoints["ports"][0]["port"]
    assert planeproxy.FIRST_PORT <= port <= planeproxy.LAST_PORT
    found["clusters"][0]["cluster"] |= {"server": f"https://{address}:{port}", "tls-server-name": "kubernetes"}
    path = folder / f"{namespace}.kubeconfig"
    path.write_text(yaml.safe_dump(found))
    return Kubectl(path)


async def reported_while_the_proxy_is_away(api: Api, namespace: str, proxy: PodProcesses) -> None:
    """Check that the control plane is not Ready while kubelet reports that the Pod of the proxy is not."""
    pod = await pod_of(api, planeproxy.SELECTOR)
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    await api.client.merge_patch(
        PODS, PROCESS_NAMESPACE, pod["metadata"]["name"], {"status": status}, subresource="status"
    )
    seen: Json = {}

    async def has(reason: str) -> bool:
        seen.update(ready(await api.get(PLANES, "web", namespace)))
        return seen.get("reason") == reason

    await until(lambda: has(reasons.UNREACHABLE), "it is reported", seconds=2 * SECONDS, seen=lambda: seen)
    assert seen["status"] == "False"
    assert f"no Pod of Deployment {planeproxy.NAME!r}" in seen["message"]
    await proxy.ready(pod)
    await until(lambda: has(reasons.ESTABLISHED), "it is Ready again", seconds=SECONDS, seen=lambda: seen)


@pytest.mark.long
async def test_a_control_plane_in_a_pod_sleeps_and_its_first_request_wakes_it(
    api: Api,
    tenancy: LocalCluster,
    the_operator: Operator,
    *,
    addresses: tuple[str, str],
    short_folder: Path,
    tmp_path: Path,
    programs: dict[str, Path],
    name: str,
) -> None:
    """H01: by the operator: its Pod ends, its share returns; a request, another operator and a suspension find it."""
    for each in ("a", "x", "y"):
        (short_folder / each).mkdir()
    (internal,) = ports.free(1)
    local = PodProcesses(api, short_folder / "a", loopback(), programs, {str(sidecar.INTERNAL_PORT): str(internal)})
    async with contextlib.AsyncExitStack() as stack:
        operator = await stack.enter_async_context(operated(api, tenancy, tmp_path, the_operator))
        proxy = await stack.enter_async_context(contextlib.AsyncExitStack())
        first = await proxy.enter_async_context(proxied(api, short_folder / "x", programs, addresses[0]))
        await api.make_tenant(name, quota={"hard": {"cpu": "1", "memory": "1Gi", "pods": "10"}})
        await api.create(PLANES, {"metadata": {"name": "web"}, "spec": {"sleep": {"afterIdleSeconds": 0}}}, name)
        uid = (await api.get(PLANES, "web", name))["metadata"]["uid"]
        await stack.enter_async_context(in_background(kept(api, local, uid)))
        seen: Json = {}

        async def is_ready() -> bool:
            seen.update(await api.get(PLANES, "web", name))
            return ready(seen).get("status") == "True"

        await until(is_ready, "it is ready", seconds=4 * SECONDS, seen=lambda: ready(seen))
        kubectl = await kubectl_of(api, name, tmp_path)
        await kubectl.out("create", "configmap", "mine")
        await reported_while_the_proxy_is_away(api, name, first)
        # The process reports its clients through the sidecar.
        await api.patch(PLANES, "web", {"spec": {"sleep": {"afterIdleSeconds": 10}}}, name)
        await in_phase(api, name, PlanePhase.ASLEEP, 0)
        assert not [each for each in await api.list(PODS, PROCESS_NAMESPACE) if is_of(each, uid)]
        assert "configmap/mine" in await kubectl.out("get", "configmaps", "-o", "name")
        await in_phase(api, name, PlanePhase.AWAKE, 1)
        await in_phase(api, name, PlanePhase.ASLEEP, 1)
        # Another operator and another proxy find it asleep; pods of the tenant are led to the new proxy.
        await operator.stop()
        await proxy.aclose()
        before = await api.list(apiservice.ENDPOINT_SLICES, name)
        await stack.enter_async_context(proxied(api, short_folder / "y", programs, addresses[1]))
        await operator.start()

        async def is_led() -> bool:
            return (await api.list(apiservice.ENDPOINT_SLICES, name))[0]["endpoints"] != before[0]["endpoints"]

        await until(is_led, "the pods of the tenant are led to the new proxy", seconds=3 * SECONDS)
        await api.patch(Tenant.resource, name, {"spec": {"suspended": True}})
        kubectl = await kubectl_of(api, name, tmp_path)

        async def answers(words: str) -> bool:
            done = await kubectl.run("get", "configmaps", "-o", "name")
            return words in done.stdout + done.stderr

        await until(lambda: answers("(ServiceUnavailable)"), "its clients are refused", seconds=3 * SECONDS)
        assert (await in_phase(api, name, PlanePhase.ASLEEP, 1))["wakes"] == 1
        await api.patch(Tenant.resource, name, {"spec": {"suspended": False}})
        await until(lambda: answers("configmap/mine"), "it is woken again", seconds=3 * SECONDS)
        await in_phase(api, name, PlanePhase.AWAKE, 2)
        await api.delete(PLANES, "web", name)
        await api.gone(PLANES, "web", name)

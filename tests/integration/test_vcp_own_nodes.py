"""A control plane with nodes of its own (H04): a scheduler, nothing mirrored, and no way out of its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import ApiError
from tenantry.api.node import Node
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.local import build
from tenantry.local.cluster import LocalCluster
from testkit.api import CONFIG_MAPS, CRDS, PODS, Api, until
from testkit.planes import Planes, awakened, vcp
from testkit.refusals import refusal
from testkit.webhooks import API_SERVICES, SERVICES, SLICES, WEBHOOKS, configured, told

pytest_plugins = ["testkit.fixtures", "testkit.planefixtures"]

Json = dict[str, Any]

LOOPBACK = "127.0.0.1"
FOREIGN = "10.96.0.1"
"""The host's API server, as pods of the host reach it."""

REFUSED = "is not an address of this cluster that can be reached"
BOX: Json = {"containers": [{"name": "c", "image": "busybox"}]}


@asynccontextmanager
async def listener() -> AsyncGenerator[tuple[int, list[str]]]:
    """Listen on loopback; return the port and who has connected."""
    came: list[str] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(str(writer.get_extra_info("peername")))
        writer.transport.abort()

    server = await asyncio.start_server(accept, LOOPBACK, 0)
    async with server:
        yield server.sockets[0].getsockname()[1], came


@asynccontextmanager
async def entered(planes: Planes, name: str) -> AsyncGenerator[Api]:
    """The administrator of a control plane with nodes of its own."""
    await planes.host.make_tenant(name)
    spec = {"nodes": "Own"}
    await planes.host.create(VirtualControlPlane.resource, {"metadata": {"name": "prod"}, "spec": spec}, name)
    await planes.ready(name, "prod")
    async with planes.entered(name, "prod") as inside:
        yield inside


async def asked(inside: Api, path: str) -> str:
    """Send a request that the API server passes on; return what it answers instead."""
    with pytest.raises(ApiError) as raised:
        await inside.client.request("GET", path, attempts=1)
    return str(raised.value)


async def executed(file: Path) -> str:
    """Run a command in the pod `web`; return what kubectl says."""
    programs = build.built()
    assert programs is not None
    child = await asyncio.create_subprocess_exec(
        *(programs.kubectl, f"--kubeconfig={file}", "exec", "web", "--", "id"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await child.communicate()
    return err.decode()


async def endpoints(inside: Api, name: str, address: str, port: int) -> Json:
    """Create a Service with an endpoint that its administrator has written; return how webhooks name it."""
    await inside.create(
        SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"name": "web", "port": port}]}}, "default"
    )
    slice_: Json = {
        "metadata": {"name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": "web", "port": port}],
    }
    await inside.create(SLICES, slice_, "default")
    return {"namespace": "default", "name": name, "port": port}


async def test_it_schedules_pods_on_its_own_nodes_only(plane_cluster: LocalCluster, planes: Planes, name: str) -> None:
    """H04: it has no node of the host, its pods wait for one of its own, and nothing of them is on the host."""
    async with entered(planes, name) as inside:
        assert await inside.list(Node.resource) == []
        await inside.create(PODS, {"metadata": {"name": "web"}, "spec": BOX}, "default")

        async def waits() -> bool:
            found = (await inside.get(PODS, "web", "default")).get("status", {}).get("conditions", [])
            return any("no nodes available" in each.get("message", "") for each in found)

        await until(waits, "the scheduler inside reports that there is no node")
        assert await planes.host.list(PODS, name) == []
        patch = {"spec": {"nodes": "Used"}}
        message = await refusal(planes.host, VirtualControlPlane.resource, patch, name, patch="prod")
        assert "create another VirtualControlPlane" in message
        # Its pods keep it from no sleep, and a client wakes it.
        code, _, err = await vcp(plane_cluster, "sleep", "prod", "-n", name)
        assert code == 0, err
        found = await awakened(lambda: inside.get(PODS, "web", "default"))
        assert found["metadata"]["name"] == "web"


async def test_an_administrator_inside_reaches_nothing_outside(planes: Planes, name: str) -> None:
    """H04: webhooks and APIServices by URL and by Service, proxies, and exec to a Node with an address of the host."""
    async with entered(planes, name) as inside, listener() as (port, came):
        hosts: Sequence[str] = (LOOPBACK, FOREIGN, "169.254.169.254", "[::1]")
        for number, host in enumerate(hosts):
            await inside.create(WEBHOOKS, configured(f"url{number}", {"url": f"https://{host}:{port}/"}))
            assert "403" in await told(inside, f"url{number}")
        await inside.create(WEBHOOKS, configured("named", {"url": f"https://localhost:{port}/"}))
        assert "is not an allowed host" in await told(inside, "named")

        service = await endpoints(inside, "leads-out", FOREIGN, port)
        await inside.create(WEBHOOKS, configured("served", {"service": service}))

        async def is_refused() -> bool:
            return REFUSED in await told(inside, "served")

        await until(is_refused, "the endpoint is refused")
        spec: Json = {"group": "x.example.com", "version": "v1", "service": service, "insecureSkipTLSVerify": True}
        spec |= {"groupPriorityMinimum": 100, "versionPriority": 100}
        await inside.create(API_SERVICES, {"metadata": {"name": "v1.x.example.com"}, "spec": spec})

        async def unavailable() -> bool:
            found = (await inside.get(API_SERVICES, "v1.x.example.com")).get("status", {}).get("conditions", [])
            return any(each["status"] == "False" and FOREIGN in each["message"] for each in found)

        await until(unavailable, "the APIService is not reached")

        addresses = [{"type": "InternalIP", "address": FOREIGN}]
        status: Json = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}
        await inside.create(Node.resource, {"metadata": {"name": "foreign"}, "status": status})
        await inside.create(PODS, {"metadata": {"name": "web"}, "spec": {**BOX, "nodeName": "foreign"}}, "default")
        body = msgspec.json.encode({"status": {"phase": "Running", "podIP": FOREIGN, "podIPs": [{"ip": FOREIGN}]}})
        path = "/api/v1/namespaces/default/pods/web"
        await inside.client.request("PATCH", f"{path}/status", body=body, content_type="application/merge-patch+json")
        for each in (
            "/api/v1/nodes/foreign/proxy/pods",
            f"{path}:{port}/proxy/",
            f"{path}/log",
        ):
            assert REFUSED in await asked(inside, each), each
        assert REFUSED in await executed(planes.kubeconfig(name, "prod"))
        await _is_named_elsewhere(inside, port)
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "works"}}, "default")
        assert came == []


async def _is_named_elsewhere(inside: Api, port: int) -> None:
    """Check that a Service that is a name, and a webhook that converts versions, lead nowhere either."""
    spec: Json = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    await inside.create(SERVICES, {"metadata": {"name": "named"}, "spec": spec}, "default")
    await inside.create(
        WEBHOOKS, configured("external", {"service": {"namespace": "default", "name": "named", "port": port}})
    )
    assert 'unsupported service type "ExternalName"' in await told(inside, "external")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": each, "served": True, "storage": each == "v1", "schema": schema} for each in ("v1", "v2")]
    url = {"url": f"https://{LOOPBACK}:{port}/"}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": url, "conversionReviewVersions": ["v1"]}}
    spec = {"group": "example.com", "names": {"plural": "things", "kind": "Thing"}, "scope": "Cluster"}
    spec |= {"versions": versions, "conversion": conversion}
    await inside.create(CRDS, {"metadata": {"name": "things.example.com"}, "spec": spec})
    seen: list[str] = []

    async def is_refused() -> bool:
        try:
            body = msgspec.json.encode({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": {"name": "a"}})
            await inside.client.request("POST", "/apis/example.com/v2/things", body=body, attempts=1)
        except ApiError as error:
            seen[:] = [str(error)]
        return REFUSED in "".join(seen)

    await until(is_refused, "the conversion is refused", seen=lambda: seen)

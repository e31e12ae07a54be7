"""Pods of a virtual control plane on real nodes: streams into them, and their way to their own API server."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tenantry.api.model import Resource
from tenantry.api.virtualcontrolplane import PLANE
from tenantry.controllers.virtualcontrolplane import apiservice
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import build
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.progress import SilentProgress
from tenantry.local.real import network
from tenantry.world.netpol.services import ENDPOINT_SLICES
from testkit import ports
from testkit.api import CONFIG_MAPS, PODS, SECONDS, SECRETS, Api, until
from testkit.installation import install
from testkit.kubectl import Kubectl
from testkit.planes import Planes
from testkit.realpods import AGNHOST, PORT, START_SECONDS, RealPods, Spot, connects, missing

pytest_plugins = ["testkit.fixtures"]
pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Json = dict[str, Any]

REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SELF_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False)
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN = f"{ACCOUNT}/token"


@pytest_asyncio.fixture(scope="module")
async def pods(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPods]:
    """The host's pods of a cluster with two real nodes and the operator."""
    await asyncio.to_thread(build.ensure, SilentProgress(), build.HOSTED)
    cluster = LocalCluster("realplanes", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=2, install=install, operator=True, timeout_seconds=180.0))
    async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
        found = RealPods(cluster, Api(client))
        await found.load_image(tmp_path_factory.mktemp("images"))
        yield found
    await cluster.down(purge=True)


@pytest.fixture(scope="module")
def planes(pods: RealPods, tmp_path_factory: pytest.TempPathFactory) -> Planes:
    """Virtual control planes of this cluster."""
    return Planes(pods.api, tmp_path_factory.mktemp("planes"))


def pod(name: str) -> Json:
    """Return a pod that serves HTTP on 8080, and that the rules of a tenant accept."""
    careful = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "web",
        "image": AGNHOST,
        "args": ["netexec", "--http-port=8080"],
        "securityContext": careful,
        "env": [
            {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "word"}}},
        ],
    }
    return {"metadata": {"name": name}, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}


async def test_logs_exec_and_port_forward_reach_the_pod(planes: Planes, name: str) -> None:
    """H01: through the gate, in both protocols; a pod reads its token, its name, and what it refers to."""
    await planes.host.make_tenant(name, isolation={"runtime": "Shared"})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        kubectl = Kubectl(planes.kubeconfig(name, "web"))
        await inside.create(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}}, "default")
        await inside.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"word": "sesame"}}, "default")
        await inside.create(PODS, pod("web"), "default")

        async def runs() -> bool:
            return (await inside.get(PODS, "web", "default")).get("status", {}).get("phase") == "Running"

        await until(runs, "the pod runs", seconds=START_SECONDS)

        async def logged() -> bool:
            return "Started HTTP server" in await kubectl.out("logs", "web")

        await until(logged, "the server has said that it listens")
        said = await kubectl.out("exec", "web", "--", "/agnhost", "mounttest", f"--file_content={TOKEN}")
        token = re.search(r"ey[\w.-]+", said)
        assert token is not None
        # The token is the one that this control plane has issued for this pod.
        found = await inside.create(REVIEWS, {"spec": {"token": token[0]}})
        assert found["status"]["user"]["username"] == "system:serviceaccount:default:default"
        assert await kubectl.out("exec", "web", "--", "/agnhost", "help")
        port = ports.free(1)[0]
        forward = await asyncio.create_subprocess_exec(
            *kubectl.command("port-forward", "pod/web", f"{port}:8080"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            assert forward.stdout is not None
            assert b"Forwarding from" in await asyncio.wait_for(forward.stdout.readline(), 30)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /hostname HTTP/1.0\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 30)).endswith(b"web")
            writer.close()
        finally:
            forward.terminate()
            await forward.wait()
        # What the gate does not admit: other paths of a node, and nodes that are not there.
        (node,) = {each["spec"]["nodeName"] for each in await inside.list(PODS, "default")}
        refused = await kubectl.run("get", "--raw", f"/api/v1/nodes/{node}/proxy/pods")
        assert refused.returncode != 0
        assert "could not find the requested resource" in refused.stderr


def called(server: str, authority: str, token: str) -> Json:
    """Ask an API server who the caller is, as a program in a pod does; TLS is verified for its address."""
    context = ssl.create_default_context(cadata=authority)
    connection = http.client.HTTPSConnection(server, apiservice.PORT, timeout=30, context=context)
    kind = {"apiVersion": f"{SELF_REVIEWS.group}/{SELF_REVIEWS.version}", "kind": SELF_REVIEWS.kind}
    heads = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        connection.request(
            "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", json.dumps(kind).encode(), heads
        )
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


async def test_a_pod_calls_its_own_api_server_and_others_do_not_reach_it(
    pods: RealPods, planes: Planes, name: str
) -> None:
    """H01: with the token and the authority that it mounts; the way comes back when owners change it."""
    host, other = planes.host, f"{name}-b"
    own, foreign = [await running(planes, each) for each in (name, other)]
    lower = await host.get(PODS, own.name, name)
    variables = {each["name"]: each.get("value") for each in lower["spec"]["containers"][0]["env"]}
    server = variables["KUBERNETES_SERVICE_HOST"]
    kubectl = Kubectl(planes.kubeconfig(name, "web"))
    authority, token = await mounted(kubectl)
    said = await pods.inside_pod(own, lambda: called(server, authority, token))
    assert said["status"]["userInfo"]["username"] == "system:serviceaccount:default:default"
    # By its name, too.
    await kubectl.out("exec", "web", "--", "/agnhost", "connect", f"kubernetes.default.svc:{apiservice.PORT}")
    service, (bridge, port) = await way(host, name)
    assert service["spec"]["clusterIP"] == server
    theirs, (_, their_port) = await way(host, other)
    their_server = theirs["spec"]["clusterIP"]
    plain = await pods.make(name, "plain", own.node, "runc")
    assert await pods.reaches(plain, own.address, PORT)
    attempts: list[tuple[str, Spot, str, int, bool]] = [
        ("own", own, server, apiservice.PORT, True),
        ("own to the port", own, bridge, port, True),
        ("own to the other's", own, their_server, apiservice.PORT, False),
        ("own to the other's port", own, bridge, their_port, False),
        ("own to the host's port", own, bridge, pods.cluster.spec().ports.apiserver, False),
        ("other", foreign, their_server, apiservice.PORT, True),
        ("other to own", foreign, server, apiservice.PORT, False),
        ("other to the port of own", foreign, bridge, port, False),
        ("plain", plain, server, apiservice.PORT, False),
        ("plain to the port", plain, bridge, port, False),
    ]
    tried = await asyncio.gather(*(pods.inside_pod(each[1], partial(connects, each[2], each[3])) for each in attempts))
    assert [(each[0], found) for each, found in zip(attempts, tried, strict=True) if found is not each[4]] == []
    # An owner leads the Service to a pod of its own, and takes the other objects away.
    kept = service["metadata"]["name"]
    await host.patch(apiservice.SERVICES, kept, {"spec": {"selector": {"app": "plain"}}}, name)
    for kind in (ENDPOINT_SLICES, apiservice.NETWORK_POLICIES):
        await host.delete(kind, kept, name)

    async def mended() -> bool:
        found = await host.find(apiservice.SERVICES, kept, name)
        slices = [each for each in await host.list(ENDPOINT_SLICES, name) if serves(each, kept)]
        policy = await host.find(apiservice.NETWORK_POLICIES, kept, name)
        is_own = [each["endpoints"][0]["addresses"] for each in slices] == [[bridge]]
        return found is not None and "selector" not in found["spec"] and is_own and policy is not None

    await until(mended, "the way is as it was", seconds=2 * SECONDS)
    assert (await way(host, name))[0]["spec"]["clusterIP"] == server

    async def answered() -> bool:
        return await pods.inside_pod(own, lambda: connects(server, apiservice.PORT))

    await until(answered, "the pod reaches its API server again", seconds=2 * SECONDS)
    # The end of a control plane is the end of its port.
    await planes.delete(name, "web")
    left = admitted(pods)
    assert (port in left, their_port in left) == (False, True)
    await planes.delete(other, "web")


async def running(planes: Planes, name: str) -> Spot:
    """Make a tenant with a control plane and a pod inside; return the pod on the host once it runs."""
    await planes.host.make_tenant(name, isolation={"runtime": "Shared"})
    await planes.create(name, "web")
    async with planes.entered(name, "web") as inside:
        await inside.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"word": "sesame"}}, "default")
        await inside.create(PODS, pod("web"), "default")

        async def runs() -> bool:
            return (await inside.get(PODS, "web", "default")).get("status", {}).get("phase") == "Running"

        await until(runs, "the pod runs", seconds=START_SECONDS)
    (lower,) = await planes.host.list(PODS, name)
    return Spot(name, lower["metadata"]["name"], lower["spec"]["nodeName"], lower["status"]["podIP"])


async def mounted(kubectl: Kubectl) -> tuple[str, str]:
    """Return the certificate authority and the token that the pod mounts."""
    texts = [
        await kubectl.out("exec", "web", "--", "/agnhost", "mounttest", f"--file_content={ACCOUNT}/{file}")
        for file in ("ca.crt", "token")
    ]
    authority = re.search(r"-----BEGIN.*END CERTIFICATE-----\n", texts[0], re.DOTALL)
    token = re.search(r"ey[\w.-]+", texts[1])
    assert authority is not None
    assert token is not None
    return authority[0], token[0]


async def way(host: Api, namespace: str) -> tuple[Json, tuple[str, int]]:
    """Return the Service of the API server of the control plane in a namespace, and its one endpoint."""
    found = [
        [each for each in await host.list(kind, namespace) if PLANE in each["metadata"].get("labels", {})]
        for kind in (apiservice.SERVICES, ENDPOINT_SLICES)
    ]
    (service,), (endpoints,) = found
    ((address,),) = (each["addresses"] for each in endpoints["endpoints"])
    return service, (address, endpoints["ports"][0]["port"])


def admitted(pods: RealPods) -> set[int]:
    """Return the ports of this machine that nodes and pods reach."""
    command = ("/usr/bin/env", "nft", "list", "set", "ip", network.identity(pods.cluster.paths.folder), "servers")
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return {int(each) for each in re.findall(r"\d+", listed.stdout.partition("elements")[2])}


def serves(endpoints: Json, service: str) -> bool:
    """Return whether an EndpointSlice is one of a Service."""
    return endpoints["metadata"]["labels"].get("kubernetes.io/service-name") == service

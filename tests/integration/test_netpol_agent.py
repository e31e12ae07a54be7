"""The NetworkPolicy agent between a real API server and real packets; nodes and pods are network namespaces."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tenantry.api.kubernetes import Namespace, NetworkPolicy
from tenantry.api.model import Resource
from tenantry.api.node import Node
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.world.netpol.compile import TABLE
from testkit import nginx
from testkit.api import PODS, SECONDS, SERVICE_ACCOUNTS, Api, until
from testkit.connections import ConnectionAttempt
from testkit.hosts import INGRESSES, ingress
from testkit.podnet import PATIENCE_SECONDS, Endpoint, Fabric, connects, mismatches, missing, page

pytest_plugins = ["testkit.fixtures"]

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "-"),
    # Tenants' namespaces and policies are the operator's work.
    pytest.mark.usefixtures("operator"),
]

Json = dict[str, Any]
PORT = 8080
SERVICES = Resource("", "v1", "services", "Service")
SHORT_SECONDS = 0.6


class Site:
    """Two nodes of a fabric, with names of their own in the cluster, and pods that are in both.

    Args:
        api: An administrator.
        scheduler: Who says on which node a pod is.
        fabric: The nodes.
        name: A name that no other test has.
    """

    def __init__(self, api: Api, scheduler: Api, fabric: Fabric, name: str) -> None:
        self.api = api
        self.scheduler = scheduler
        self.fabric = fabric
        self.names = [f"{name}-{number}" for number in range(len(fabric.nodes))]
        self._made: list[tuple[str, str]] = []

    async def pod(self, namespace: str, node: int, *, labels: Json | None = None, port: int = PORT) -> Endpoint:
        """Make a pod that serves, and say of it what its node would say."""
        endpoint = self.fabric.pod(node)
        await self.fabric.serve(endpoint, [port])
        await self.announce(namespace, node, endpoint, labels or {})
        return endpoint

    async def announce(self, namespace: str, node: int, endpoint: Endpoint, labels: Json) -> None:
        """Put a pod into the cluster that is in the fabric already."""
        name = endpoint.place.name
        careful: Json = {
            "allowPrivilegeEscalation": False,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        container = {"name": "main", "image": "example.com/app:1", "securityContext": careful}
        spec: Json = {"containers": [container], "terminationGracePeriodSeconds": 0}
        await until(lambda: self.api.find(SERVICE_ACCOUNTS, "default", namespace), f"pods can be made in {namespace}")
        await self.api.create(PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec}, namespace)
        self._made.append((namespace, name))
        binding = {"kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": self.names[node]}}
        await self.scheduler.create(PODS, binding, namespace, subresource="binding")
        ips = [{"ip": address} for address in endpoint.addresses]
        ready = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "podIP": endpoint.addresses[0], "podIPs": ips, "conditions": ready}
        await self.api.client.merge_patch(PODS, namespace, name, {"status": status}, subresource="status")

    async def clear(self) -> None:
        """Take the pods out of the cluster again."""
        for namespace, name in self._made:
            # Kubernetes may have taken them away, whose nodes have no kubelet.
            await self.api.delete(PODS, name, namespace)


@pytest.fixture
async def site(api: Api, tenancy: LocalCluster, name: str) -> AsyncGenerator[Site]:
    connection = kubeconfig.load([tenancy.paths.kubeconfig("kube-scheduler")])
    with Fabric(2) as fabric:
        async with Client(connection) as scheduler:
            made = Site(api, Api(scheduler), fabric, name)
            for node in made.names:
                # Nothing else is to be put there; without the object, pods would be collected as orphans.
                await api.create(Node.resource, {"metadata": {"name": node}, "spec": {"unschedulable": True}})
            try:
                yield made
            finally:
                await made.clear()
                for node in made.names:
                    await api.delete(Node.resource, node)


@asynccontextmanager
async def agent(
    cluster: LocalCluster, site: Site, node: int, folder: Path
) -> AsyncGenerator[tuple[Path, asyncio.subprocess.Process]]:
    """Run the agent of one node, from when it says that it is ready; yield the file that says so, and its process."""
    ready, log = folder / f"ready-{node}", folder / f"log-{node}"
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tenantry", "netpol-agent", "--kubeconfig", str(cluster.kubeconfig_path)),
            *("--node", site.names[node], "--netns", str(site.fabric.nodes[node].path), "--ready-file", str(ready)),
            stderr=file,
        )

    async def is_there() -> bool:
        assert process.returncode is None, log.read_text()
        return ready.exists()

    try:
        await until(is_there, f"the agent of node {node} is ready")
        yield ready, process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), SECONDS) == 0, log.read_text()


@pytest.fixture
async def agents(tenancy: LocalCluster, site: Site, tmp_path: Path) -> AsyncGenerator[None]:
    async with agent(tenancy, site, 0, tmp_path), agent(tenancy, site, 1, tmp_path):
        yield


def rows(
    sources: Iterable[Endpoint], targets: Iterable[Endpoint], *, expected: bool, port: int = PORT
) -> list[tuple[Endpoint, ConnectionAttempt, bool]]:
    """Return all pairs of pods, by TCP and UDP and both families."""
    targets = list(targets)
    return [
        (source, ConnectionAttempt(source=own, target=other, port=port, protocol=protocol), expected)
        for source in sources
        for target in targets
        if source is not target
        for own, other in zip(source.addresses, target.addresses, strict=False)
        for protocol in ("TCP", "UDP")
    ]


async def _until_so(attempts: list[tuple[Endpoint, ConnectionAttempt, bool]]) -> None:
    """Wait until packets do what is expected; an agent may still be at work."""
    last: list[str] = []
    patience = SHORT_SECONDS

    async def so() -> bool:
        nonlocal patience
        last[:] = await mismatches(attempts, patience=patience)
        # What is not so yet is soon asked again, but a busy machine needs its time for so many at once.
        patience = min(2 * patience, PATIENCE_SECONDS)
        return not last

    try:
        await until(so, "packets do what the policies say")
    except AssertionError:
        assert last == []
        raise


@pytest.mark.usefixtures("agents")
async def test_pods_of_two_tenants_do_not_reach_each_other(site: Site, api: Api, name: str) -> None:
    """H06: by the policies that Tenantry writes, on one node and across, by both families; DNS is reached."""
    one, other = f"{name}a", f"{name}b"
    for tenant in (one, other):
        await api.make_tenant(tenant, isolation={"network": "Isolated"})
    ours = [await site.pod(one, node) for node in (0, 0, 1)]
    theirs = [await site.pod(other, node) for node in (0, 1)]
    system = await site.pod("kube-system", 1, labels={"k8s-app": "kube-dns"}, port=53)
    await site.fabric.serve(system, [PORT])
    outside = site.fabric.outside()
    await site.fabric.serve(outside, [PORT])
    nodes = [site.fabric.node(number) for number in (0, 1)]
    for node in nodes:
        await site.fabric.serve(node, [PORT])

    await _until_so(
        [
            *rows(ours, ours, expected=True),
            *rows(theirs, theirs, expected=True),
            *rows([*ours, *theirs], [system], expected=True, port=53),
            *rows([system], [outside], expected=True),
            *rows(ours, theirs, expected=False),
            *rows(theirs, ours, expected=False),
            *rows([*ours, *theirs], [system, outside, *nodes], expected=False),
            *rows([system, outside], [*ours, *theirs], expected=False),
            # kubelet's probes: a node reaches its own pods, and no other's.
            *rows([nodes[0]], [ours[0], ours[1], theirs[0]], expected=True),
            *rows([nodes[0]], [ours[2], theirs[1]], expected=False),
        ]
    )


@pytest.mark.usefixtures("agents")
async def test_an_ingress_controller_reaches_tenants(site: Site, api: Api, name: str) -> None:
    """H06: the pods that TenancyDefaults names, and no others of their namespace; pods do not reach it in turn.

    A tenant that has the namespace of a controller is a tenant like the others.
    """
    controllers, taken = f"{name}-ingress", f"{name}-taken"
    await api.make_tenant(name, isolation={"network": "Isolated"})
    await api.make_tenant(taken, isolation={"network": "Open"})  # its own policies do not stop it
    await api.create(Namespace.resource, {"metadata": {"name": controllers}})
    labels = {"app": "ingress"}
    # As its owner writes it: closed to the zone by a chart, and still reached by the controller.
    await api.create(NetworkPolicy.resource, {"metadata": {"name": "chart"}, "spec": {"podSelector": {}}}, name)
    targets = [await site.pod(name, node) for node in (0, 1)]
    controller = await site.pod(controllers, 0, labels=labels)
    beside = await site.pod(controllers, 1, labels={"app": "other"})
    alike = [await site.pod(each, 0, labels=labels) for each in ("default", taken)]
    closed = [*rows(targets, [controller], expected=False), *rows([beside, *alike], targets, expected=False)]
    await _until_so([*rows([controller], targets, expected=False), *closed])
    named = [{"namespace": each, "podLabels": labels} for each in (controllers, taken)]
    network = {"ingressControllers": named}
    await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"network": network}})
    try:
        await _until_so([*rows([controller], targets, expected=True), *closed])
    finally:
        await api.delete(TenancyDefaults.resource, "default")
    await _until_so(rows([controller], targets, expected=False))


@pytest.mark.usefixtures("agents")
async def test_visitors_of_an_ingress_get_answers_of_an_isolated_tenant(
    site: Site, api: Api, name: str, tmp_path: Path
) -> None:
    """H06: by a real controller and a real Ingress; other tenants get them in no other way than visitors do."""
    host, mine, stranger, controllers, labels = f"{name}.example", name, f"{name}b", f"{name}c", {"app": "nginx"}
    for tenant, network in ((mine, "Isolated"), (stranger, "Isolated"), (f"{name}o", "Open")):
        await api.make_tenant(tenant, isolation={"network": network})
    await api.create(Namespace.resource, {"metadata": {"name": controllers}})
    web, controller = site.fabric.pod(0), site.fabric.pod(1)
    await site.fabric.serve_http(web, 80, "welcome")
    await site.announce(mine, 0, web, {"app": "web"})
    await site.announce(controllers, 1, controller, labels)
    # The labels of the controller do not help a tenant.
    isolated = await site.pod(stranger, 1, labels=labels)
    open_one, visitor = await site.pod(f"{name}o", 1, labels=labels), site.fabric.outside()
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    await api.create(SERVICES, {"metadata": {"name": "web"}, "spec": service}, mine)
    await api.create(INGRESSES, ingress(host, cls=name), mine)
    asked: list[str] = []

    async def gets(source: Endpoint, expected: str) -> None:
        async def so() -> bool:
            asked[:] = [await page(source, controller.addresses[0], nginx.PORT, host=host)]
            return asked[0].startswith(expected)

        await until(so, f"an answer {expected!r}", seen=lambda: asked)

    async with nginx.nginx(api, controller, tmp_path, cls=name) as running:
        await until(running.sync, "nginx knows the pod behind the Ingress")
        await gets(visitor, "504 ")
        entry = {"namespace": controllers, "podLabels": labels}
        network = {"ingressControllers": [entry]}
        await api.create(TenancyDefaults.resource, {"metadata": {"name": "default"}, "spec": {"network": network}})
        try:
            await gets(visitor, "200 welcome")
            await gets(open_one, "200 welcome")
            # An Isolated tenant has no way out to the controller either.
            ways = [(visitor, web, 80), (open_one, web, 80), (isolated, web, 80), (isolated, controller, nginx.PORT)]
            closed = [page(one, to.addresses[0], port, host=host, seconds=SHORT_SECONDS) for one, to, port in ways]
            assert await asyncio.gather(*closed) == [""] * len(ways)
        finally:
            await api.delete(TenancyDefaults.resource, "default")
        await gets(visitor, "504 ")


@pytest.mark.usefixtures("agents")
async def test_an_unknown_pod_reaches_no_address_until_it_is_known(site: Site, api: Api, name: str) -> None:
    """H06: an address that the agent has not seen is closed both ways, where a seen one without policies is open."""
    await api.make_tenant(name, isolation={"network": "Open"})
    known = [await site.pod(name, node) for node in (0, 1)]
    new = site.fabric.pod(0)
    await site.fabric.serve(new, [PORT])
    await _until_so(rows(known, known, expected=True))

    assert await mismatches([*rows([new], known, expected=False), *rows(known, [new], expected=False)]) == []

    await site.announce(name, 0, new, {})
    await _until_so([*rows([new], known, expected=True), *rows(known, [new], expected=True)])


@pytest.mark.usefixtures("agents")
async def test_a_new_policy_ends_connections_that_it_forbids(site: Site, api: Api, name: str) -> None:
    """H06: what is under way is looked at again, packet by packet."""
    await api.make_tenant(name, isolation={"network": "Open"})
    client, server = [await site.pod(name, node) for node in (0, 1)]
    way = ConnectionAttempt(source=client.addresses[0], target=server.addresses[0], port=PORT)
    await _until_so([(client, way, True)])
    async with client.open(way) as connection:
        assert await connection.is_answered(seconds=SECONDS)
        closed: Json = {"metadata": {"name": "closed"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}
        await api.create(NetworkPolicy.resource, closed, name)
        await _until_so([(client, way, False)])

        assert not await connection.is_answered(seconds=SHORT_SECONDS)


@pytest.mark.long
async def test_rules_outlive_the_agent_and_come_back(
    site: Site, api: Api, tenancy: LocalCluster, tmp_path: Path, name: str
) -> None:
    """H06: while the agent is away what was in force stays; a deleted table is created again."""
    await api.make_tenant(name, isolation={"network": "Isolated"})
    pods = [await site.pod(name, 0) for _ in range(2)]
    stranger = await site.pod("default", 0)
    expected = [*rows(pods, pods, expected=True), *rows([stranger], pods, expected=False)]
    async with agent(tenancy, site, 0, tmp_path) as (ready, _):
        await _until_so(expected)
    assert not ready.exists()
    assert await mismatches(expected) == []

    async with agent(tenancy, site, 0, tmp_path) as (_, process):
        await _until_so(expected)
        # It may look at any moment: not before it is seen that all is open.
        process.send_signal(signal.SIGSTOP)
        try:
            site.fabric.nodes[0].run("nft", "delete", "table", "inet", TABLE)
            assert await connects(stranger, rows([stranger], pods, expected=True)[0][1], seconds=SECONDS)
        finally:
            process.send_signal(signal.SIGCONT)
        await _until_so(expected)


async def test_an_agent_that_could_not_filter_is_not_ready(site: Site, tenancy: LocalCluster, tmp_path: Path) -> None:
    """H06: where the kernel would not show packets between pods of one bridge, the agent says what to set."""
    site.fabric.nodes[0].set(0, "bridge/bridge-nf-call-iptables")
    ready = tmp_path / "ready"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tenantry", "netpol-agent", "--kubeconfig", str(tenancy.kubeconfig_path)),
        *("--node", site.names[0], "--netns", str(site.fabric.nodes[0].path), "--ready-file", str(ready)),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        line = await asyncio.wait_for(process.stderr.readline(), SECONDS)
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), SECONDS)

    assert b"set net.bridge.bridge-nf-call-iptables to 1" in line
    assert not ready.exists()

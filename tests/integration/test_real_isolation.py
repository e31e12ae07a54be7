"""Who reaches whom on real nodes: two tenants, containers and sandboxes, on one node and across two.

It needs what `test_real_nodes` needs, and is skipped in the same way (TENANTRY_TEST_REAL=0).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import Namespace, NetworkPolicy
from tenantry.api.marks import TENANT_UID, ZONE
from tenantry.api.model import Resource
from tenantry.api.tenant import Tenant
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.real import addons
from tenantry.local.real.network import NodeAddresses
from testkit.api import PODS, SECRETS, Api, until
from testkit.installation import install
from testkit.privateregistry import IMAGE, pull_secret, registry
from testkit.realpods import CAREFUL, PORT, START_SECONDS, RealPods, Spot, missing
from testkit.requests import People
from testkit.trees import Trees, subtenant

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

Json = dict[str, Any]
SERVICES = Resource("", "v1", "services", "Service")
NODES = ("real-1", "real-2")
RUNTIMES = ("runc", "gvisor")
METADATA = "169.254.169.254"
LIKE_SSH = 2222


@pytest_asyncio.fixture(scope="module")
async def pods(tenantry_home: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealPods]:
    """A cluster with Tenantry and two real nodes."""
    cluster = LocalCluster("isolation", root=tenantry_home)
    await cluster.up(UpOptions(throwaway=True, real_nodes=2, install=install, operator=True, timeout_seconds=180.0))
    try:
        async with Client(kubeconfig.load([cluster.kubeconfig_path])) as client:
            made = RealPods(cluster, Api(client))
            await made.load_image(tmp_path_factory.mktemp("images"))
            yield made
    finally:
        await cluster.down(purge=True)


async def make_tenant(pods: RealPods) -> str:
    """Make a tenant of alice's whose network is closed, and which may choose its runtimes."""
    name = f"t{uuid.uuid4().hex[:8]}"
    await pods.api.make_tenant(name, isolation={"network": "Isolated", "runtime": "Shared"})
    return name


async def make_pods(pods: RealPods, namespace: str) -> list[Spot]:
    """Make a pod of each runtime on each node, and a Service of all of them."""
    ports = [{"port": 80, "targetPort": PORT, "protocol": "TCP"}]
    spec = {"selector": {"side": namespace}, "ports": ports}
    await pods.api.create(SERVICES, {"metadata": {"name": "web"}, "spec": spec}, namespace)
    spots = await asyncio.gather(
        *(pods.make(namespace, f"{runtime}-{place}", place, runtime) for place in NODES for runtime in RUNTIMES)
    )
    return list(spots)


async def service_address(pods: RealPods, namespace: str) -> str:
    return str((await pods.api.get(SERVICES, "web", namespace))["spec"]["clusterIP"])


class Listeners:
    """Servers at addresses of nodes and of this machine, which no pod of a tenant is to reach."""

    def __init__(self, pods: RealPods) -> None:
        self._pods = pods
        self._servers: list[asyncio.Server] = []

    async def open(self, place: str, address: str, port: int) -> int:
        """Answer by HTTP in the network namespace of a node, "" for this machine; the port is returned."""

        def listening() -> socket.socket:
            found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((address, port))
            return found

        found = self._pods.inside(place, listening) if place else listening()
        self._servers.append(await asyncio.start_server(self._answer, sock=found))
        return int(found.getsockname()[1])

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhere")
        writer.close()

    async def close(self) -> None:
        for server in self._servers:
            server.close()


@pytest_asyncio.fixture
async def listeners(pods: RealPods) -> AsyncIterator[Listeners]:
    made = Listeners(pods)
    yield made
    await made.close()


async def test_nothing_passes_between_tenants_nor_to_nodes_and_machine(pods: RealPods, listeners: Listeners) -> None:
    """H06: pods, Services, names, nodes, kubelets, the machine, the API server, metadata; both runtimes, all ways."""
    ours, theirs = await make_tenant(pods), await make_tenant(pods)
    addresses = NodeAddresses(pods.cluster.real().block)
    own, others = await asyncio.gather(make_pods(pods, ours), make_pods(pods, theirs))
    # In a namespace of no tenant, where no policy is: what it reaches is there to be reached.
    plain = await pods.make("default", f"plain-{ours}", NODES[0], "runc")
    for place in NODES:
        await listeners.open(place, "0.0.0.0", LIKE_SSH)  # noqa: S104 - in the node's own namespace
        pods.run(place, "ip", "addr", "replace", f"{METADATA}/32", "dev", "lo")
        await listeners.open(place, METADATA, 80)
    machine = await listeners.open("", "0.0.0.0", 0)  # noqa: S104 - it is what no pod is to reach
    nodes = [addresses.node(number) for number in (1, 2)]
    reachable = [
        *((node, port) for node in nodes for port in (LIKE_SSH, 10250)),
        (METADATA, 80),
        (addresses.bridge, pods.cluster.spec().ports.apiserver),
        ("10.96.0.1", 443),
    ]
    rows: list[tuple[Spot, str, int, str, bool]] = [(plain, *each, "http", True) for each in reachable]
    rows.append((plain, addresses.bridge, machine, "http", False))
    for mine, their in ((own, others), (others, own)):
        here, there = mine[0].namespace, their[0].namespace
        own_service, service = await service_address(pods, here), await service_address(pods, there)
        for spot in mine:
            rows += [
                *((spot, *each, "http", False) for each in (*reachable, (addresses.bridge, machine))),
                *((spot, each.address, PORT, word, False) for each in their for word in ("http", "udp")),
                (spot, service, 80, "http", False),
                (spot, f"web.{there}.svc.cluster.local", 80, "http", False),
                *((spot, each.address, PORT, word, True) for each in mine for word in ("http", "udp")),
                (spot, own_service, 80, "http", True),
                (spot, "web", 80, "http", True),
                (spot, f"web.{here}.svc.cluster.local", 80, "http", True),
            ]
    rows += [(plain, each.address, PORT, "http", False) for each in (*own, *others)]

    assert await pods.mismatches(rows) == []


async def test_pods_of_a_baseline_tenant_reach_no_address_of_a_node(pods: RealPods, listeners: Listeners) -> None:
    """H06: kubelets, listeners and hostPorts, at addresses of nodes and at gateways; pods of others are open."""
    name = f"t{uuid.uuid4().hex[:8]}"
    await pods.api.make_tenant(name, isolation={"network": "Baseline", "runtime": "Shared"})
    addresses = NodeAddresses(pods.cluster.real().block)
    ports = {"container": {"ports": [{"containerPort": PORT, "hostPort": 8090}]}}
    plain, _, *own = await asyncio.gather(
        pods.make("default", f"plain-{name}", NODES[0], "runc", **ports),
        # A node has the gateway address of its pods only while it has a pod.
        pods.make("default", f"other-{name}", NODES[1], "runc"),
        *(pods.make(name, runtime, NODES[0], runtime) for runtime in RUNTIMES),
    )
    for place in NODES:
        await listeners.open(place, "0.0.0.0", LIKE_SSH)  # noqa: S104 - in the node's own namespace
    first, second = (addresses.pods_of(number).replace(".0/24", ".1") for number in (1, 2))
    owned = [(at, port) for at in (first, second, addresses.node(1), addresses.node(2)) for port in (LIKE_SSH, 10250)]
    owned += [(at, 8090) for at in (first, addresses.node(1))]
    rows: list[tuple[Spot, str, int, str, bool]] = [(plain, *each, "http", True) for each in owned if each[1] != 8090]
    rows += [(spot, *each, "http", False) for spot in own for each in owned]
    rows += [(spot, plain.address, PORT, "http", True) for spot in own]

    async def known() -> bool:
        found = await pods.api.get(NetworkPolicy.resource, "tenantry-outside", name)
        return f"{first.removesuffix('1')}0/31" in str(found)

    await until(known, "the policy names the gateways")
    assert await pods.mismatches(rows) == []


def policy(name: str, direction: str, selector: Json, **labels: str) -> Json:
    """Return a NetworkPolicy of pods of a namespace, by which those of namespaces with labels are let in, or to."""
    side = {"Ingress": "from", "Egress": "to"}[direction]
    rule = {side: [{"namespaceSelector": {"matchLabels": labels}}]}
    spec = {"podSelector": selector, "policyTypes": [direction], direction.lower(): [rule]}
    return {"metadata": {"name": name}, "spec": spec}


async def test_policies_of_owners_open_their_own_tree_and_nothing_else(pods: RealPods, tmp_path: Path) -> None:
    """H06, E06: provider and customer reach each other where both say so, one way; another tenant stays out."""
    ours, other = await make_tenant(pods), await make_tenant(pods)
    customer = await Trees(pods.api).make(ours, "customer", subtenant("carl"))
    labels = (await pods.api.get(Namespace.resource, customer))["metadata"]["labels"]
    uid = (await pods.api.get(Tenant.resource, ours))["metadata"]["uid"]
    stranger = (await pods.api.get(Tenant.resource, other))["metadata"]["uid"]
    provider, client, outsider = await asyncio.gather(
        pods.make(ours, "provider", NODES[0], "runc"),
        pods.make(customer, "client", NODES[1], "gvisor"),
        pods.make(other, "outsider", NODES[0], "runc"),
    )
    async with AsyncExitStack() as stack:
        people = People(pods.cluster, tmp_path, stack)
        alice, carl = await people.person("alice"), await people.person("carl")
        anyone: Json = {}
        foreign = policy("open", "Ingress", anyone, **{TENANT_UID: stranger})
        with pytest.raises(Forbidden, match="tenantry-networkpolicies"):
            await alice.create(NetworkPolicy.resource, foreign, ours)
        into = policy("from-provider", "Ingress", anyone, **{TENANT_UID: uid})
        await carl.create(NetworkPolicy.resource, into, customer)
        rows = [(one, to.address, PORT, "http", False) for one in (provider, outsider) for to in (client,)]
        assert await pods.mismatches([*rows, (client, provider.address, PORT, "http", False)]) == []

        out = policy("to-customer", "Egress", anyone, **{TENANT_UID: uid, ZONE: labels[ZONE]})
        await alice.create(NetworkPolicy.resource, out, ours)

        await until(lambda: pods.reaches(provider, client.address, PORT), "the provider is let out")
        rows = [(outsider, each.address, PORT, "http", False) for each in (client, provider)]
        assert await pods.mismatches([*rows, (client, provider.address, PORT, "http", False)]) == []


async def test_while_its_agent_is_away_a_node_keeps_its_rules_and_closes_what_is_new(pods: RealPods) -> None:
    """H06: a stopped agent opens nothing; who comes meanwhile has no network until one is in step again."""
    ours, theirs = await make_tenant(pods), await make_tenant(pods)
    one, two, foreign = await asyncio.gather(
        pods.make(ours, "one", NODES[0], "runc"),
        pods.make(ours, "two", NODES[0], "runc"),
        pods.make(theirs, "foreign", NODES[0], "runc"),
    )
    allowed, denied = (one, two.address, PORT, "http", True), (one, foreign.address, PORT, "http", False)
    assert await pods.mismatches([allowed, denied]) == []
    agent = pods.agent(NODES[0])

    os.kill(agent, signal.SIGSTOP)
    new = await pods.make(ours, "new", NODES[0], "runc")
    closed = [(new, one.address, PORT, "http", False), (one, new.address, PORT, "http", False)]
    assert await pods.mismatches([allowed, denied, *closed]) == []
    os.kill(agent, signal.SIGKILL)

    assert await pods.mismatches([allowed, denied]) == []
    await until(lambda: pods.reaches(one, new.address, PORT), "another agent knows the pod", seconds=START_SECONDS)
    assert await pods.mismatches([allowed, denied, (new, one.address, PORT, "http", True)]) == []


async def test_a_node_is_closed_until_its_agent_knows_what_is_allowed(pods: RealPods) -> None:
    """H06: pods start on a node whose agent may not read policies, but none gets anywhere until it may."""
    ours = await make_tenant(pods)
    far, near = await asyncio.gather(
        pods.make(ours, "far", NODES[0], "runc"), pods.make("default", f"near-{ours}", NODES[1], "runc")
    )
    plain = await pods.make("default", f"far-{ours}", NODES[0], "runc")
    assert await pods.mismatches([(near, plain.address, PORT, "http", True)]) == []
    binding = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
    await pods.api.delete(binding, "tenantry:netpol-agent")
    try:
        await pods.cluster.restart_node(NODES[1], 180.0)
        fresh = await pods.make("default", f"fresh-{ours}", NODES[1], "runc")
        rows = [(fresh, plain.address, PORT, "http", False), (far, fresh.address, PORT, "http", False)]
        assert await pods.mismatches([*rows, (plain, fresh.address, PORT, "http", False)]) == []
    finally:
        await addons.apply(pods.cluster.kubeconfig_path)

    await until(lambda: pods.reaches(fresh, plain.address, PORT), "the agent may read", seconds=START_SECONDS)
    assert await pods.mismatches([(plain, fresh.address, PORT, "http", True)]) == []


async def megabits(pods: RealPods, asker: Spot, server: Spot) -> float:
    """Return at how many Mbit/s what one pod echoes gets to another; several connections, a hundred times 100 kB."""
    request = urlencode({"msg": "x" * 100_000})
    query = urlencode({"host": server.address, "port": PORT, "request": f"echo?{request}", "tries": 25})
    began = time.monotonic()
    answers = await asyncio.gather(*(pods.ask(asker, f"/dial?{query}") for _ in range(4)))
    seconds = time.monotonic() - began
    received = sum(len(each) for _, body in answers for each in json.loads(body)["responses"])
    assert received == 10_000_000
    return received * 8 / seconds / 1e6


async def test_bandwidth_that_a_pod_asks_for_is_all_that_it_gets(pods: RealPods) -> None:
    """E09: 10 Mbit/s in either direction are 10 Mbit/s between two real pods, and without the annotation far more."""
    ours = await make_tenant(pods)
    limit = {"kubernetes.io/ingress-bandwidth": "10M"}, {"kubernetes.io/egress-bandwidth": "10M"}
    server, free, narrow_in, narrow_out = await asyncio.gather(
        pods.make(ours, "server", NODES[0], "runc"),
        pods.make(ours, "free", NODES[1], "runc"),
        pods.make(ours, "narrow-in", NODES[1], "runc", annotations=limit[0]),
        pods.make(ours, "narrow-out", NODES[1], "runc", annotations=limit[1]),
    )
    allowed = [(one, each.address, PORT, "http", True) for one in (free, narrow_in) for each in (server, narrow_out)]
    assert await pods.mismatches(allowed) == []

    unlimited = await megabits(pods, free, server)
    found = [await megabits(pods, narrow_in, server), await megabits(pods, free, narrow_out)]

    # A bucket lets something through at once, and headers are counted, too.
    assert all(4.0 < each < 13.0 for each in found), (found, unlimited)
    assert unlimited > 30.0, (found, unlimited)


async def test_a_pod_with_all_rights_over_its_network_sends_as_itself_alone(pods: RealPods) -> None:
    """H06: root in a pod's network cannot take the address of a pod beside it; what it sends as itself arrives."""
    name = f"p{uuid.uuid4().hex[:8]}"
    liar, victim, target = await asyncio.gather(
        pods.make("default", f"{name}-liar", NODES[0], "runc"),
        pods.make("default", f"{name}-victim", NODES[0], "runc"),
        pods.make("default", f"{name}-target", NODES[1], "runc"),
    )
    assert await pods.mismatches([(liar, target.address, PORT, "http", True)]) == []
    port = PORT + 1

    def opened() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    with (
        await pods.inside_pod(target, opened) as receiver,
        await pods.inside_pod(liar, opened) as forger,
        await pods.inside_pod(liar, opened) as honest,
    ):
        receiver.bind((target.address, port))
        receiver.settimeout(60.0)
        # IP_TRANSPARENT, linux/in.h: bind to an address that is another's; it takes CAP_NET_ADMIN.
        forger.setsockopt(socket.SOL_IP, 19, 1)
        forger.bind((victim.address, 0))
        forger.sendto(b"?", (target.address, port))
        honest.sendto(b"?", (target.address, port))
        heard = await asyncio.to_thread(receiver.recvfrom, 16)

    assert heard[1][0] == liar.address
    dropped = pods.run(NODES[0], "nft", "list", "chain", "inet", "tenantry-netpol", "source")
    assert "counter packets 0 " not in dropped, dropped


async def test_no_tenant_runs_the_private_image_of_another_one(pods: RealPods, tmp_path: Path) -> None:
    """E12: also not from the cache of its node; a pod with the credentials of an earlier pull does."""
    ours, theirs = await make_tenant(pods), await make_tenant(pods)
    async with registry(pods, NODES[0], tmp_path):
        await pods.api.create(SECRETS, pull_secret(), ours)
        await pods.api.create(SECRETS, pull_secret("wrong"), theirs)
        assert await image_state(pods, ours, "own", "IfNotPresent", "registry") == "running"
        assert await image_state(pods, ours, "again", "Never", "registry") == "running"
        attempts = [(policy, secret) for policy in ("IfNotPresent", "Never", "Always") for secret in ("", "registry")]
        found = await asyncio.gather(
            *(image_state(pods, theirs, f"p{number}", *attempt) for number, attempt in enumerate(attempts))
        )
    refused = {"IfNotPresent": "ErrImagePull", "Never": "ErrImageNeverPull", "Always": "ErrImagePull"}
    assert found == [refused[policy] for policy, _ in attempts]


async def image_state(pods: RealPods, namespace: str, name: str, policy: str, secret: str) -> str:
    """Create a pod of the private image, and return "running", or the reason for which it does not run."""
    container: Json = {
        "name": "private",
        "image": IMAGE,
        "imagePullPolicy": policy,
        "securityContext": CAREFUL,
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": "100m", "memory": "32Mi"}},
    }
    spec: Json = {
        "nodeSelector": {"kubernetes.io/hostname": NODES[0]},
        "runtimeClassName": "runc",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "imagePullSecrets": [{"name": secret}] if secret else [],
    }
    await pods.api.create(PODS, {"metadata": {"name": name}, "spec": spec}, namespace)

    async def decided() -> str | None:
        status = (await pods.api.get(PODS, name, namespace))["status"]
        states: list[Json] = [each["state"] for each in status.get("containerStatuses", ())]
        if any("running" in state for state in states):
            return "running"
        reasons: list[str] = [state["waiting"]["reason"] for state in states if "waiting" in state]
        # The kubelet alternates between the error and the pause before it tries again.
        found = [{"ImagePullBackOff": "ErrImagePull"}.get(each, each) for each in reasons]
        return next((each for each in found if each != "ContainerCreating"), None)

    return await until(decided, f"the image of {name} is pulled or refused", seconds=START_SECONDS)

"""Metrics inside: the APIService that follows the host's, and the answers to reads (VCP-45)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tenantry.api.errors import ApiError
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import MANAGED_BY, MANAGER
from tenantry.api.model import ObjectMeta, Resource
from tenantry.controllers.virtualcontrolplane import metrics
from tenantry.controllers.virtualcontrolplane.metrics import API_SERVICES, KEY, NAME, MetricsService, PodMeasures
from tenantry.engine.cluster import Cluster, Watch
from tenantry.hosting.forwarding import ForwardedRead
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.mirror import cachedpods, nodes
from tenantry.mirror.nodenames import LowerNode
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES, PODS, Thing
from tenantry.mirror.uppernodes import UpperNodes
from testkit.egress import listening
from testkit.mirroring import PROFILE, copied, down, upper_pod
from testkit.model import World
from testkit.worldcluster import WorldCluster

pytestmark = pytest.mark.timeout(60)

Json = dict[str, Any]

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
LABEL = {MANAGED_BY: MANAGER}
SERVICE = {"namespace": "default", "name": "mine"}
NODE = LowerNode(name="rack-7", uid="u-rack", hostname="rack-7")
UPPER_NODE = nodes.upper_name(PROFILE.owner_uid, NODE.name, NODE.uid)
OWNED = f"labelSelector={PROFILE.mark('owner')}".replace("/", "%2F")


def service(labels: Json, **spec: object) -> Json:
    """Return an APIService inside."""
    found = metrics.wanted()
    return {**found, "metadata": {"name": NAME, "labels": labels}, "spec": {**found["spec"], **spec}}


class _Lower:
    """Holds the watch of the host's APIService."""

    name = "below"
    kind = Thing

    def watches(self) -> list[Watch]:
        """Return it."""
        return [metrics.lower_watch()]

    async def reconcile(self, cluster: Cluster, key: str, attempt: int) -> float | None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        ("", None, None),
        ("metrics-server", None, service(LABEL)),
        ("", service(LABEL), None),
        ("metrics-server", service(LABEL, service=SERVICE, insecureSkipTLSVerify=True), service(LABEL)),
        ("metrics-server", service(LABEL), service(LABEL)),
        # Those of users.
        ("metrics-server", service({}, service=SERVICE), service({}, service=SERVICE)),
        ("", service({}), service({})),
    ],
)
async def test_the_apiservice_follows_the_hosts(source: str, before: Json | None, after: Json | None) -> None:
    lower, upper = World(), World()
    if source:
        lower.put_in(API_SERVICES, {"metadata": {"name": NAME, "labels": {"app": source}}})
    # A World knows the kinds of its objects.
    upper.put_in(CLUSTER_ROLES, {"metadata": {"name": "view"}})
    upper.put_in(API_SERVICES, {"metadata": {"name": "v1.apps"}})
    if before is not None:
        upper.put_in(API_SERVICES, before)
    below = WorldCluster(lower, [_Lower()])
    below.is_synced = True
    controller = MetricsService(below)
    above = WorldCluster(upper, [])
    for watch in controller.watches():
        (watch.cluster or above).listen(above.lane.listener("metrics", watch))
    for _ in range(2):
        await controller.reconcile(above, KEY, 1)
        found = {each["metadata"]["name"]: each for each in upper.list(API_SERVICES)}.get(NAME)
        assert (found and found["spec"]) == (after and after["spec"])
        assert (found and found["metadata"].get("labels")) == (after and after["metadata"]["labels"])


# -- answers --------------------------------------------------------------------------------------


def pods(name: str, namespace: str = "shop", uid: str = "") -> tuple[Json, Json]:
    """Return a pod inside, and its lower one."""
    upper = upper_pod(nodeName=UPPER_NODE)
    upper["metadata"] |= {"name": name, "namespace": namespace, "uid": uid or f"u-{name}", "labels": {"app": name}}
    lower = copied(down(upper, PROFILE).object)
    lower["metadata"]["uid"] = f"l-{name}"
    lower["spec"]["nodeName"] = NODE.name
    return upper, lower


def measures(*lower: Json) -> list[Json]:
    """Return what the host measures of lower pods."""
    usage = {"cpu": "2m", "memory": "1Mi"}
    return [
        {
            "metadata": {"name": each["metadata"]["name"], "namespace": PROFILE.namespace},
            "timestamp": "2026-11-24T10:00:00Z",
            "window": "15s",
            "containers": [{"name": "web", "usage": usage}],
        }
        for each in lower
    ]


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


async def _not_noticed(addresses: Sequence[str]) -> None:
    """Do nothing."""


class Host:
    """The host's API server, as far as metrics go.

    Args:
        status: The HTTP status of all answers.
        items: The PodMetrics that it has.
    """

    def __init__(self, status: int, items: Sequence[Json]) -> None:
        self.asked: list[str] = []
        self._status = status
        self._items = items

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        while head := await reader.readuntil(b"\r\n\r\n"):
            self.asked.append(head.split(b" ")[1].decode())
            body = msgspec.json.encode({"items": self._items, "message": "at 10.9.8.7"})
            line = (
                f"HTTP/1.1 {self._status} OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            writer.write(line.encode() + body)
            await writer.drain()


class Reads:
    """Counts the requests to the API server inside."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return "none"


@asynccontextmanager
async def answering(
    host: Host,
    upper_pods: Sequence[Json],
    lower_pods: Sequence[Json],
    *,
    upper_nodes: Sequence[str] = (UPPER_NODE,),
    labels: Mapping[str, str] | None = None,
    reads: Callable[[], str] = lambda: "none",
) -> AsyncGenerator[PodMeasures]:
    """Return the answers of a control plane with these pods and nodes."""
    upper, lower = World(), World()
    for world, name in ((upper, "shop"), (upper, "stock"), (lower, PROFILE.namespace)):
        world.create(Namespace(metadata=ObjectMeta(name=name)))
    for each in upper_pods:
        upper.put_in(PODS, each)
    for each in lower_pods:
        lower.put_in(PODS, each)
    for name in upper_nodes:
        upper.put_in(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}})
    above, below = WorldCluster(upper, [], faults=reads), WorldCluster(lower, [])
    side = LowerSide(cluster=below, writer=below.writer, node=_no_node, nodes={NODE.name: NODE}, reason="Refused")
    own = UpperNodes(PROFILE, above, side, _not_noticed)
    decode = cachedpods.decoder(PROFILE.prefix)
    above.listen(above.lane.listener("nodes", own.watch()))
    for cluster in (above, below):
        cluster.listen(cluster.lane.listener("pods", Watch(resource=PODS, decode=decode, keys=lambda _: ())))
    async with listening(host.serve) as port:
        connection = Connection(server=f"http://127.0.0.1:{port}", source="the test")
        async with Client(connection) as client:

            async def read(path: str, query: Mapping[str, str]) -> bytes:
                return await client.request("GET", path, query=query, attempts=1)

            yield PodMeasures(PROFILE, above, below.cache(PODS), own, read)


def names(found: Json) -> list[str]:
    """Return the keys of a list."""
    return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in found["items"]]


async def test_own_pods_are_found_by_namespace_name_and_labels() -> None:
    """VCP-45: the host is asked once, about the own namespace only."""
    both = [pods("a"), pods("b"), pods("b", "stock", "u-stock")]
    uppers, lowers = [each[0] for each in both], [each[1] for each in both]
    host = Host(200, measures(*lowers))
    async with answering(host, uppers, lowers) as found:
        everything = await found.answer(ForwardedRead(resource="pods"))
        assert names(everything) == ["shop/a", "shop/b", "stock/b"]
        assert everything["kind"] == "PodMetricsList"
        for read, wanted in (
            (ForwardedRead(resource="pods", namespace="shop"), ["shop/a", "shop/b"]),
            (ForwardedRead(resource="pods", namespace=PROFILE.namespace), []),
            (ForwardedRead(resource="pods", label_selector="app in (b, c)"), ["shop/b", "stock/b"]),
            (ForwardedRead(resource="pods", label_selector="app!=b"), ["shop/a"]),
            (ForwardedRead(resource="pods", namespace="shop", field_selector="metadata.name=b"), ["shop/b"]),
            (ForwardedRead(resource="pods", field_selector="metadata.namespace==stock"), ["stock/b"]),
        ):
            assert names(await found.answer(read)) == wanted
        one = await found.answer(ForwardedRead(resource="pods", namespace="shop", name="a"))
        assert one["containers"] == [{"name": "web", "usage": {"cpu": "2000000n", "memory": "1024Ki"}}]
        node = await found.answer(ForwardedRead(resource="nodes", name=UPPER_NODE))
        assert node["usage"] == {"cpu": "6000000n", "memory": "3072Ki"}
        nodes_ = await found.answer(ForwardedRead(resource="nodes"))
        assert [each["metadata"]["name"] for each in nodes_["items"]] == [UPPER_NODE]
        for status, read in (
            (404, ForwardedRead(resource="pods", namespace="shop", name="c")),
            (404, ForwardedRead(resource="nodes", name="rack-7")),
            (400, ForwardedRead(resource="pods", label_selector="a in b")),
            (400, ForwardedRead(resource="pods", field_selector="spec.nodeName=a")),
            (400, ForwardedRead(resource="pods", field_selector="metadata.name!=a")),
        ):
            with pytest.raises(ApiError) as error:
                await found.answer(read)
            assert error.value.status == status
    assert len(host.asked) == 1
    assert host.asked[0].startswith(f"/apis/metrics.k8s.io/v1beta1/namespaces/{PROFILE.namespace}/pods?")
    assert OWNED in host.asked[0]


async def test_nothing_of_others_is_shown() -> None:
    """VCP-45: whatever the host lists; and Nodes that users make show nothing."""
    upper, lower = pods("a")
    other, replaced, unknown = copied(lower), copied(lower), copied(lower)
    other["metadata"] |= {"name": "other", "labels": {PROFILE.mark("owner"): "u-other"}}
    replaced["metadata"] |= {"name": "old"}
    replaced["metadata"]["annotations"] = {**lower["metadata"]["annotations"], PROFILE.mark("uid"): "u-before"}
    unknown["metadata"]["name"] = "unknown"
    host = Host(200, measures(lower, other, replaced, unknown))
    made_by_users = ["rack-7", "node-000000000000"]
    async with answering(host, [upper], [lower, other, replaced], upper_nodes=[UPPER_NODE, *made_by_users]) as found:
        assert names(await found.answer(ForwardedRead(resource="pods"))) == ["shop/a"]
        (node,) = (await found.answer(ForwardedRead(resource="nodes")))["items"]
        assert (node["metadata"]["name"], node["usage"]["cpu"]) == (UPPER_NODE, "2000000n")


async def test_nodes_are_selected_among_the_own_ones_and_read_once() -> None:
    """VCP-45: Nodes that users make are not read, and reads with selectors do not flood the API server inside."""
    upper, lower = pods("a")
    host, reads = Host(200, measures(lower)), Reads()
    labels = {"disk": "ssd"}
    async with answering(
        host, [upper], [lower], upper_nodes=[UPPER_NODE, "rack-7"], labels=labels, reads=reads
    ) as found:
        for selector, wanted in (("disk=ssd", [UPPER_NODE]), ("disk!=ssd", []), ("!disk", []), ("disk", [UPPER_NODE])):
            answer = await found.answer(ForwardedRead(resource="nodes", label_selector=selector))
            assert [each["metadata"]["name"] for each in answer["items"]] == wanted
        with pytest.raises(ApiError) as error:
            await found.answer(ForwardedRead(resource="nodes", label_selector="disk in b"))
        assert error.value.status == 400
    assert reads.count == 1


async def test_a_node_with_too_many_labels_is_not_selected() -> None:
    """VCP-45: what is kept of a node that users write to is bounded."""
    host = Host(200, [])
    labels = {f"label-{number}": "x" * 60 for number in range(600)}
    async with answering(host, [], [], labels=labels) as found:
        answer = await found.answer(ForwardedRead(resource="nodes", label_selector="label-1"))
        assert answer["items"] == []
        assert len((await found.answer(ForwardedRead(resource="nodes")))["items"]) == 1


@pytest.mark.parametrize(("status", "words"), [(404, "serves no"), (403, "has no"), (503, "has no")])
async def test_a_host_without_metrics_is_named_once(status: int, words: str) -> None:
    """VCP-45: the words are Tenantry's, and a failure counts for as long as an answer: reads do not flood the host."""
    host = Host(status, [])
    async with answering(host, [], []) as found:
        for resource in ("pods", "nodes", "pods"):
            with pytest.raises(ApiError, match=words) as error:
                await found.answer(ForwardedRead(resource=resource))
            assert error.value.status == 503
            assert "10.9.8.7" not in str(error.value)
    assert len(host.asked) == 1

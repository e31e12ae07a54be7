"""The destinations of a control plane: its own pods and nodes, whatever users write into Nodes and pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tenantry.api.contribution import PREFIX as CONTRIBUTED
from tenantry.controllers.virtualcontrolplane.destinations import (
    BY_OWNER,
    Destinations,
    owner_of,
)
from tenantry.engine.cache import Cache
from tenantry.hosting.destinations import Destination, Direct, Kubelet, Outside, Refused
from tenantry.hosting.outside import OutsideRule, networks
from tenantry.mirror import nodes, things
from tenantry.mirror.cachedpods import CachedPod
from tenantry.mirror.endpoints import BY_ADDRESS, addresses_of
from tenantry.mirror.kinds import services as kind_services
from tenantry.mirror.side import LowerSide
from tenantry.mirror.things import NODES, Thing
from tenantry.mirror.uppernodes import UpperNodes
from testkit.mirroring import PROFILE, cached
from testkit.model import World
from testkit.worldcluster import WorldCluster

Json = dict[str, Any]

ADDRESS = "10.1.0.7"
SERVICE = "10.96.7.7"
NOTHING = OutsideRule()


async def _no_node(name: str) -> Json | None:  # noqa: ARG001 - there is none
    return None


async def _not_noticed(addresses: Sequence[str]) -> None:
    """Do nothing."""


def rule(
    *pods: CachedPod, upper: Sequence[Json] = (), services: Sequence[Thing] = (), outside: OutsideRule = NOTHING
) -> Destinations:
    """Return the rule of a control plane with these lower pods and Services, and upper nodes."""
    world = World()
    for each in upper:
        world.put_in(NODES, each)
    cluster = WorldCluster(world, [])
    side = LowerSide(cluster=cluster, writer=cluster.writer, node=_no_node, nodes={}, reason="Refused")
    own = UpperNodes(PROFILE, cluster, side, _not_noticed)
    cluster.listen(cluster.lane.listener("nodes", own.watch()))
    lower: Cache[CachedPod] = Cache({BY_ADDRESS: addresses_of, BY_OWNER: lambda each: owner_of(each, PROFILE.prefix)})
    for pod in pods:
        lower.put(pod)
    lower_services: Cache[Thing] = Cache({BY_ADDRESS: kind_services.addresses})
    for service in services:
        lower_services.put(service)
    return Destinations(
        PROFILE, Cache[CachedPod](), lower, lower_services, own, lambda: outside, choose=lambda found: found[0]
    )


def pod(
    name: str = "web",
    *,
    namespace: str = PROFILE.namespace,
    owner: str = PROFILE.owner_uid,
    address: str = ADDRESS,
    ready: str = "True",
    **spec: Any,  # noqa: ANN401 - any field
) -> CachedPod:
    """Return a running lower pod."""
    labels = {PROFILE.mark("owner"): owner, "app": "web", PROFILE.mark("namespace"): "shop"}
    found = {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
        "status": {
            "phase": "Running",
            "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return cached(found)


def service(
    *,
    namespace: str = PROFILE.namespace,
    owner: str = PROFILE.owner_uid,
    target: int | str | None = 8443,
    **spec: Any,  # noqa: ANN401 - any field
) -> Thing:
    """Return a lower Service at `SERVICE`."""
    marks = {PROFILE.mark("name"): "web", PROFILE.mark("namespace"): "shop"}
    port: Json = {"port": 443} if target is None else {"port": 443, "targetPort": target, "protocol": "TCP"}
    found = {
        "metadata": {
            "name": "web-x",
            "namespace": namespace,
            "labels": {PROFILE.mark("owner"): owner},
            "annotations": marks,
        },
        "spec": {
            "clusterIPs": [SERVICE],
            "selector": {"app": "web", PROFILE.mark("namespace"): "shop", PROFILE.mark("owner"): PROFILE.owner_uid},
            "ports": [port, {"port": 53, "protocol": "UDP"}],
        }
        | spec,
    }
    return things.thing(f"{namespace}/web-x", 1, found)


def node(name: str, address: str) -> Json:
    """Return an upper Node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


OWN = str(nodes.ADDRESSES.network_address + 9)


@pytest.mark.parametrize(
    ("found", "host", "port", "wanted"),
    [
        (rule(pod()), ADDRESS, 443, Direct(address=ADDRESS, port=443)),
        (rule(), ADDRESS, 443, Refused),
        (rule(pod(owner="u-other")), ADDRESS, 443, Refused),
        # Its address may be a new one of the other pod, or a lie.
        (rule(pod(), pod("db", owner="u-other")), ADDRESS, 443, Refused),
        # The owners of another namespace write marks there.
        (rule(pod(namespace="elsewhere")), ADDRESS, 443, Refused),
        (rule(pod(hostNetwork=True)), ADDRESS, 443, Refused),
        (rule(pod(nodeName=f"{CONTRIBUTED}1")), ADDRESS, 443, Refused),
        (rule(upper=[node("a", OWN)]), OWN, 10250, Kubelet(node="a")),
        (rule(upper=[node("a", OWN)]), OWN, 22, Refused),
        (rule(upper=[node("a", "127.0.0.1")]), "127.0.0.1", 10250, Refused),
        (rule(upper=[node("a", "x,DNS:y")]), "x,DNS:y", 10250, Refused),
        (rule(upper=[node("a", "")]), "", 10250, Refused),
    ],
)
def test_destinations(found: Destinations, host: str, port: int, wanted: Destination | type[Refused]) -> None:
    destination = found.decide(host, port)
    assert destination == wanted if not isinstance(wanted, type) else isinstance(destination, wanted)


@pytest.mark.parametrize(
    "host", ["198.18.0.2", "169.254.169.254", "127.0.0.1", "10.96.0.1", "kubernetes.default", "::1"]
)
def test_nothing_else_is_reached(host: str) -> None:
    """H01: metadata, loopback, Services, names: whatever the control plane is told to connect to."""
    assert isinstance(rule(pod()).decide(host, 443), Refused)


CONTAINER = {"name": "c", "ports": [{"name": "hook", "containerPort": 9443}, {"name": "u", "protocol": "UDP"}]}
NEW = "10.1.0.8"


@pytest.mark.parametrize(
    ("found", "port", "wanted"),
    [
        (rule(pod(), services=[service()]), 443, Direct(address=ADDRESS, port=8443)),
        (rule(pod(), services=[service(target=None)]), 443, Direct(address=ADDRESS, port=443)),
        (
            rule(pod(containers=[CONTAINER]), services=[service(target="hook")]),
            443,
            Direct(address=ADDRESS, port=9443),
        ),
        (rule(pod(ready="False"), pod("new", address=NEW), services=[service()]), 443, Direct(address=NEW, port=8443)),
        (
            rule(pod(ready="False"), services=[service(publishNotReadyAddresses=True)]),
            443,
            Direct(address=ADDRESS, port=8443),
        ),
        (rule(pod(), services=[service()]), 80, "Service shop/web has no TCP port 80"),
        (rule(pod(), services=[service()]), 53, "Service shop/web has no TCP port 53"),
        (rule(services=[service()]), 443, "Service shop/web has no ready pod with port 443"),
        (rule(pod(ready="False"), services=[service()]), 443, "Service shop/web has no ready pod with port 443"),
        (rule(pod(), services=[service(target="other")]), 443, "Service shop/web has no ready pod with port 443"),
        (
            rule(pod(containers=[CONTAINER]), services=[service(target="u")]),
            443,
            "Service shop/web has no ready pod with port 443",
        ),
        # Its users choose the endpoints.
        (
            rule(pod(), services=[service(selector={})]),
            443,
            "Service shop/web has no selector: use `service` in place of `url`",
        ),
        # Pods of others, whatever the Service selects.
        (rule(pod(owner="u-other"), services=[service(selector={"app": "web"})]), 443, "no ready pod"),
        (rule(pod(), pod("db", owner="u-other"), services=[service()]), 443, "no ready pod"),
        (rule(pod(namespace="elsewhere"), services=[service(selector={"app": "web"})]), 443, "no ready pod"),
        (rule(pod(hostNetwork=True), services=[service()]), 443, "no ready pod"),
        # Services of others.
        (rule(pod(), services=[service(owner="u-other")]), 443, "is not a running pod or a Service"),
        (rule(pod(), services=[service(namespace="elsewhere")]), 443, "is not a running pod or a Service"),
    ],
)
def test_an_own_service_leads_to_its_own_ready_pods(found: Destinations, port: int, wanted: Direct | str) -> None:
    """H01: a webhook with the address of a Service in its URL."""
    destination = found.decide(SERVICE, port)
    if isinstance(wanted, Direct):
        assert destination == wanted
    else:
        assert isinstance(destination, Refused)
        assert wanted in destination.reason


ALLOWED = OutsideRule(
    cidrs=networks(("0.0.0.0/0", "10.0.0.0/8", "198.18.0.0/15")),
    hosts=("*.example.com", "*.cluster.local"),
    kept=networks(("10.96.0.0/16", "10.1.0.0/16")),
)


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("8.8.8.8", Outside(host="8.8.8.8", port=443)),
        ("10.7.0.1", Outside(host="10.7.0.1", port=443)),
        ("hooks.example.com", Outside(host="hooks.example.com", port=443)),
        (ADDRESS, Direct(address=ADDRESS, port=443)),
        # A pod and a Service of another tenant, the host's API server, a node inside.
        ("10.1.0.8", Refused),
        ("10.96.0.1", Refused),
        ("169.254.169.254", Refused),
        ("kubernetes.default.svc", Refused),
        ("kubernetes.default.svc.cluster.local", Refused),
        (OWN, Refused),
    ],
)
def test_hosts_outside_come_last(host: str, wanted: Destination | type[Refused]) -> None:
    found = rule(pod(), upper=[node("a", OWN)], outside=ALLOWED).decide(host, 443)
    assert found == wanted if not isinstance(wanted, type) else isinstance(found, wanted)


def test_a_stream_goes_to_the_mirrored_pod_of_that_node_only() -> None:
    """H01: not to a pod that has no lower one, is on another node, or is of an earlier pod of the name."""
    above: Cache[CachedPod] = Cache()
    below: Cache[CachedPod] = Cache({BY_ADDRESS: addresses_of})
    for name in ("mine", "late", "old"):
        meta = {"namespace": "default", "name": name, "uid": f"u-{name}"}
        above.put(cached({"metadata": meta, "spec": {"nodeName": "node-1"}}))
    for name, uid in (("mine", "u-mine"), ("old", "u-older")):
        lower = PROFILE.lower_name("Pod", "default", name)
        meta = {"namespace": PROFILE.namespace, "name": lower, "annotations": {PROFILE.mark("uid"): uid}}
        below.put(cached({"metadata": meta}))
    found = rule()
    own = found._nodes  # pyright: ignore[reportPrivateUsage]
    found = Destinations(PROFILE, above, below, Cache[Thing](), own, lambda: NOTHING)
    assert found.locate("default", "mine", "node-1") == (
        PROFILE.namespace,
        PROFILE.lower_name("Pod", "default", "mine"),
    )
    for namespace, name, node_ in (
        ("default", "mine", "node-2"),
        ("default", "late", "node-1"),
        ("default", "old", "node-1"),
        ("default", "theirs", "node-1"),
        ("other", "mine", "node-1"),
    ):
        assert found.locate(namespace, name, node_) is None

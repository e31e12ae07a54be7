"""Where the connections of a virtual control plane may go (H01): the rule that its gate asks."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.controllers.virtualcontrolplane.destinations import BY_ADDRESS, Destinations, addresses_of
from tenantry.engine.cache import Cache
from tenantry.hosting.destinations import Direct, Kubelet, Refused
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import Thing

Json = dict[str, Any]

PROFILE = Profile(owner_uid="o", namespace="acme", prefix="mirror.example")


class Nodes:
    """One upper node."""

    def at(self, address: str) -> str:
        """Return its name at its address."""
        return "node-1" if address == "198.18.0.1" else ""


def lower(owner: str, name: str, address: str, **spec: object) -> Thing:
    """Return a mirrored pod of any control plane."""
    meta: Json = {
        "namespace": "acme",
        "name": PROFILE.lower_name("Pod", "default", name),
        "uid": f"l-{name}",
        "labels": {"mirror.example/owner": owner},
        "annotations": {"mirror.example/uid": f"u-{name}"},
    }
    status = {"phase": "Running", "podIPs": [{"ip": address}]}
    return Thing(f"acme/{meta['name']}", 1, {"metadata": meta, "spec": spec, "status": status})


def upper(name: str, node: str) -> Thing:
    """Return a pod inside."""
    meta = {"namespace": "default", "name": name, "uid": f"u-{name}"}
    return Thing(f"default/{name}", 1, {"metadata": meta, "spec": {"nodeName": node}})


@pytest.fixture
def rule() -> Destinations:
    """The rule of a control plane with one pod, beside one of another."""
    above: Cache[Thing] = Cache()
    below: Cache[Thing] = Cache({BY_ADDRESS: addresses_of})
    for each in (upper("mine", "node-1"), upper("late", "node-1")):
        above.put(each)
    for each in (
        lower("o", "mine", "10.1.0.1"),
        lower("p", "theirs", "10.1.0.2"),
        lower("o", "host", "10.0.0.7", hostNetwork=True),
    ):
        below.put(each)
    return Destinations(PROFILE, above, below, Nodes())  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_only_own_pods_and_kubelets_are_reached(rule: Destinations) -> None:
    """H01: not the pods of others, a node by any other port, an address of the machine, nor any name."""
    assert rule.decide("10.1.0.1", 8443) == Direct(address="10.1.0.1", port=8443)
    assert rule.decide("198.18.0.1", 10250) == Kubelet(node="node-1")
    for host, port in (
        ("10.1.0.2", 8443),
        ("10.0.0.7", 443),
        ("198.18.0.1", 22),
        ("198.18.0.2", 10250),
        ("169.254.169.254", 80),
        ("127.0.0.1", 6443),
        ("10.96.0.1", 443),
        ("kubernetes.default.svc", 443),
        ("::1", 443),
    ):
        assert isinstance(rule.decide(host, port), Refused), host


def test_a_stream_goes_to_the_mirrored_pod_of_that_node_only(rule: Destinations) -> None:
    """H01: not to a pod that has no lower one, is on another node, or is of an earlier pod of the name."""
    assert rule.locate("default", "mine", "node-1") == ("acme", PROFILE.lower_name("Pod", "default", "mine"))
    assert rule.locate("default", "mine", "node-2") is None
    assert rule.locate("default", "late", "node-1") is None
    assert rule.locate("default", "theirs", "node-1") is None
    assert rule.locate("other", "mine", "node-1") is None

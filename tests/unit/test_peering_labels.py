"""L01: which labels the Node of a peer has; what a peer proposes is untrusted."""

from __future__ import annotations

import pytest

from tenantry.api.peercluster import MOST_LABELS, PEER, VIRTUAL
from tenantry.controllers.peering.link.labels import admitted, proposal, proposed, selectable


@pytest.mark.parametrize(
    ("key", "value", "is_admitted"),
    [
        ("topology.kubernetes.io/region", "eu-west", True),
        ("federation.tenantry.dev/tier", "gold", True),
        ("example.com/gpu", "a100", True),
        ("example.com/other", "x", False),
        ("kubernetes.io/hostname", "node-1", False),
        ("kubernetes.io/os", "linux", False),
        ("node-role.kubernetes.io/control-plane", "", False),
        ("node-role", "x", False),
        ("tenantry.dev/slice", "x", False),
        ("tenantry.dev/contributed-by", "acme", False),
        ("acme.tenantry.dev/x", "x", False),
        (VIRTUAL, "false", False),
        (PEER, "paris", False),
        ("federation.tenantry.dev/pod-strategy", "Remote", False),
        # What is no label would keep the Node from being written at all.
        ("topology.kubernetes.io/region", "eu west", False),
        ("topology.kubernetes.io/region", "x" * 64, False),
        ("topology.kubernetes.io/" + "x" * 64, "x", False),
        ("topology.kubernetes.io/a/b", "x", False),
        ("topology.kubernetes.io/", "x", False),
        ("federation.tenantry.dev/tier\n", "x", False),
    ],
)
def test_a_peer_proposes_only_labels_that_are_allowed(key: str, value: str, *, is_admitted: bool) -> None:
    # A key that an administrator allows by mistake gives no node's name, role or mark away.
    allowed = ("example.com/gpu", "kubernetes.io/hostname", "tenantry.dev/slice", "node-role", VIRTUAL)
    assert admitted({key: value}, {}, allowed) == ({key: value} if is_admitted else {})


def test_the_administrator_takes_precedence_and_may_give_other_labels() -> None:
    given = {"topology.kubernetes.io/region": "eu", "example.com/other": "x", "tenantry.dev/slice": "x", PEER: "paris"}
    found = admitted({"topology.kubernetes.io/region": "us", "topology.kubernetes.io/zone": "us-1"}, given, ())
    assert found == {
        "topology.kubernetes.io/region": "eu",
        "topology.kubernetes.io/zone": "us-1",
        "example.com/other": "x",
    }


def test_a_peer_cannot_fill_a_node_with_labels() -> None:
    proposed = {f"topology.kubernetes.io/l{number:05}": "x" for number in range(5000)}
    assert len(admitted(proposed, {}, ())) == MOST_LABELS


def test_what_a_peer_proposes_is_read_whatever_it_is() -> None:
    labels = {"topology.kubernetes.io/region": "eu", "tier": ""}
    assert proposed(proposal(labels)) == labels
    assert proposed("") == {}
    assert proposed("a=b,c,=d,e=f=g,\x1b=x,h=i") == {"a": "b", "c": "", "h": "i"}
    assert proposed("a=b," * 10**6) == {}
    assert len(proposed(",".join(f"l{number}=x" for number in range(1000)))) == MOST_LABELS


def test_a_peer_is_selected_by_its_name() -> None:
    assert selectable("berlin", {"a": "b"}) == {"a": "b", PEER: "berlin", VIRTUAL: "true"}

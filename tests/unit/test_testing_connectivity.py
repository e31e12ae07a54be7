"""The evaluator of NetworkPolicies, by the recipes of Kubernetes' own documentation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from testkit.connectivity import Fabric, Outside, Pod, Policy

Json = dict[str, Any]
NAMESPACES = {"a": {"team": "red"}, "b": {"team": "blue"}}
WEB, DB = Pod("a", "10.0.0.1", (("app", "web"),)), Pod("a", "10.0.0.2", (("app", "db"),))
OTHER, WORLD = Pod("b", "10.0.1.1"), Outside("192.0.2.1")


def _fabric(*specs: Json) -> Fabric:
    whole = [{"metadata": {"namespace": "a"}, "spec": spec} for spec in specs]
    return Fabric(NAMESPACES, msgspec.convert(whole, list[Policy]))


def test_without_policies_all_pods_reach_each_other() -> None:
    """H06: what isolation starts from."""
    fabric = _fabric()
    assert fabric.allows(OTHER, WEB)
    assert fabric.allows(WEB, WORLD)
    assert fabric.allows(WORLD, WEB)


DEFAULTS: list[tuple[Json, bool, bool]] = [
    ({"podSelector": {}, "policyTypes": ["Ingress"]}, False, True),
    ({"podSelector": {}, "ingress": [{}]}, True, True),
    ({"podSelector": {}, "policyTypes": ["Egress"]}, True, False),
    ({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}, True, True),
    ({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, False, False),
    ({"podSelector": {}, "egress": [{"to": [{"podSelector": {}}]}]}, False, False),
]


@pytest.mark.parametrize(("spec", "into", "out"), DEFAULTS)
def test_the_default_policies_of_the_documentation(spec: Json, into: bool, out: bool) -> None:  # noqa: FBT001
    """H06: deny all, allow all, each way; egress rules without policyTypes deny ingress as well."""
    fabric = _fabric(spec)
    assert fabric.allows(OTHER, WEB) is into
    assert fabric.allows(WEB, OTHER) is out


def test_policies_add_up_and_each_side_must_let() -> None:
    """H06: one that opens is enough on its side; the other side's own policies count as well."""
    closed: Json = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    opened: Json = {"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{}]}
    assert _fabric(closed, opened).allows(OTHER, WEB)
    assert not _fabric(closed, opened).allows(OTHER, DB)
    assert not _fabric(closed, opened).allows(DB, WEB), "the way out of DB is closed"


RED: Json = {"key": "team", "operator": "NotIn", "values": ["red"]}
PEERS: list[tuple[Json, set[Pod | Outside]]] = [
    ({"podSelector": {}}, {DB}),
    ({"podSelector": {"matchLabels": {"app": "x"}}}, set()),
    ({"namespaceSelector": {}}, {DB, OTHER}),
    ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, {OTHER}),
    ({"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "db"}}}, {DB}),
    (
        {"namespaceSelector": {"matchExpressions": [RED]}},
        {OTHER},
    ),
    ({"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}, {DB, OTHER}),
    ({"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/24"]}}, {OTHER, WORLD}),
    ({"ipBlock": {"cidr": "192.0.2.0/24"}}, {WORLD}),
    ({"ipBlock": {"cidr": "::/0"}}, set()),
]


@pytest.mark.parametrize(("peer", "who"), PEERS)
def test_peers_are_who_they_say(peer: Json, who: set[Pod | Outside]) -> None:
    """H06: pods of the same namespace, of selected ones, and addresses but for some."""
    fabric = _fabric({"podSelector": {"matchLabels": {"app": "web"}}, "ingress": [{"from": [peer]}]})
    assert {place for place in (DB, OTHER, WORLD) if fabric.allows(place, WEB)} == who


def test_ports_are_numbers_ranges_and_protocols() -> None:
    """H06: a rule of ports alone is for every peer; the protocol is TCP by default."""
    ports = [{"port": 53, "protocol": "UDP"}, {"port": 8000, "endPort": 8010}]
    fabric = _fabric({"podSelector": {}, "ingress": [{"ports": ports}]})
    assert fabric.allows(OTHER, WEB, 53, "UDP")
    assert not fabric.allows(OTHER, WEB, 53)
    assert fabric.allows(OTHER, WEB, 8010)
    assert not fabric.allows(OTHER, WEB, 8011)

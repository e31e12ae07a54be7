"""What NetworkPolicies leave open, and to whom."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.tenancydefaults import IngressController
from tenantry.audit import openings
from tenantry.audit.context import OtherNamespace

Json = dict[str, Any]

ALL: Json = {}
NO_PEERS: list[Json] = []
RIVAL = OtherNamespace(name="rival", labels={"kubernetes.io/metadata.name": "rival", "tenantry.dev/zone": "2"})
OWN = {"namespaceSelector": {"matchLabels": {"tenantry.dev/zone": "1"}}}
DNS = {"ports": [{"port": 53, "protocol": "UDP"}], "to": [{"namespaceSelector": ALL}]}


PODS = ("10.244.1.0/24", "fd00:10:244::/64")
"""Where the nodes have their pods."""


def policy(name: str = "p", **spec: object) -> Json:
    """Return a NetworkPolicy for all pods."""
    return {"metadata": {"name": name}, "spec": {"podSelector": {}, **spec}}


CLOSED = policy(policyTypes=["Ingress", "Egress"], ingress=[{"from": [OWN]}], egress=[{"to": [OWN]}, DNS])


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([CLOSED], ""),
        ([policy()], ""),
        ([], "no NetworkPolicy of Ingress selects all pods"),
        ([policy(policyTypes=["Egress"])], "no NetworkPolicy of Ingress selects all pods"),
        ([policy(podSelector={"matchLabels": {"a": "b"}})], "no NetworkPolicy of Ingress selects all pods"),
        ([CLOSED, policy("q", ingress=[ALL])], "NetworkPolicy 'q' opens Ingress of any peer"),
        ([CLOSED, policy("q", ingress=[{"from": NO_PEERS}])], "NetworkPolicy 'q' opens Ingress of any peer"),
        ([CLOSED, policy(ingress=[{"from": [{"namespaceSelector": ALL}]}])], "opens Ingress of all namespaces"),
        ([CLOSED, policy(ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}])], "opens Ingress of 0.0.0.0/0"),
        ([CLOSED, policy(ingress=[{"from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}])], ""),
        (
            [CLOSED, policy(ingress=[{"from": [{"ipBlock": {"cidr": "10.244.0.0/16"}}]}])],
            "opens Ingress of 10.244.0.0/16",
        ),
        (
            [CLOSED, policy(ingress=[{"from": [{"ipBlock": {"cidr": "10.244.1.7/32"}}]}])],
            "opens Ingress of 10.244.1.7/32",
        ),
        (
            [CLOSED, policy(ingress=[{"from": [{"ipBlock": {"cidr": "fd00:10::/56"}}]}])],
            "opens Ingress of fd00:10::/56",
        ),
        (
            [CLOSED, policy(ingress=[{"from": [{"ipBlock": {"cidr": "10.244.0.0/16", "except": ["10.244.0.0/17"]}}]}])],
            "",
        ),
        # Who has the label is not selected.
        (
            [policy(podSelector={"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]})],
            "no NetworkPolicy of Ingress selects all pods",
        ),
        ([CLOSED, policy(ingress=[{"from": [{"podSelector": ALL}]}])], ""),
        # One for some pods opens those.
        ([CLOSED, policy(podSelector={"matchLabels": {"a": "b"}}, ingress=[ALL])], "opens Ingress of any peer"),
        (
            [CLOSED, policy(ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"tenantry.dev/zone": "2"}}}]}])],
            "opens Ingress of the namespace 'rival'",
        ),
        (
            [
                CLOSED,
                policy(
                    ingress=[
                        {
                            "from": [
                                {"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}
                            ]
                        }
                    ]
                ),
            ],
            "opens Ingress of the namespace 'rival'",
        ),
    ],
)
def test_who_may_connect(policies: list[Json], expected: str) -> None:
    """H06: default deny is there, and nothing adds others to it."""
    found = openings.ingress(policies, [RIVAL], PODS)
    assert found.endswith(expected) if expected else found == ""


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([CLOSED], ""),
        ([policy()], "no NetworkPolicy of Egress selects all pods"),
        ([CLOSED, policy("q", egress=[ALL])], "NetworkPolicy 'q' opens Egress of any peer"),
        ([CLOSED, policy(egress=[{"ports": [{"port": 1, "endPort": 53}]}])], "opens Egress of any peer"),
        ([CLOSED, policy(egress=[{"ports": [{"port": 53, "endPort": 9000}]}])], "opens Egress of any peer"),
        ([CLOSED, policy(egress=[{"ports": [{"port": 53}]}])], ""),
        ([CLOSED, policy(egress=[{"to": [{"ipBlock": {"cidr": "::/0"}}]}])], "opens Egress of ::/0"),
    ],
)
def test_where_pods_may_connect(policies: list[Json], expected: str) -> None:
    """H06: nothing but DNS leads out."""
    found = openings.egress(policies, [RIVAL])
    assert found.endswith(expected) if expected else found == ""


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["b"]}, True),
        ({"key": "a", "operator": "In", "values": ["c"]}, False),
        ({"key": "a", "operator": "NotIn", "values": ["b"]}, False),
        ({"key": "z", "operator": "NotIn", "values": ["b"]}, True),
        ({"key": "a", "operator": "Exists"}, True),
        ({"key": "z", "operator": "Exists"}, False),
        ({"key": "a", "operator": "DoesNotExist"}, False),
    ],
)
def test_a_selector_holds_as_kubernetes_has_it(requirement: Json, expected: bool) -> None:  # noqa: FBT001 - a table
    assert openings.selects({"matchExpressions": [requirement]}, {"a": "b"}) is expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([ALL], "it admits any peer"),
        ([{"from": [OWN]}, {"ports": [{"port": 80}]}], "it admits any peer"),
        ([{"from": [{"namespaceSelector": ALL}]}], "it admits all namespaces"),
        ([{"from": [OWN], "ports": [{"port": 80}]}], ""),
    ],
)
def test_a_rule_that_was_given_peers_opens_nothing(rules: list[Json], expected: str) -> None:
    """H06: the audit looks at what the API server would store."""
    assert openings.of_rules(policy(ingress=rules), [RIVAL]) == expected


CONTROLLER = IngressController(namespace="ingress", pod_labels={"app": "traefik"})
INGRESS = OtherNamespace(name="ingress", labels={"kubernetes.io/metadata.name": "ingress"})
ADMITTED: Json = {
    "namespaceSelector": {
        "matchLabels": {"kubernetes.io/metadata.name": "ingress"},
        "matchExpressions": [{"key": "tenantry.dev/tenant-uid", "operator": "DoesNotExist"}],
    },
    "podSelector": {"matchLabels": {"app": "traefik"}},
}
ALSO_OF_A_TENANT: Json = {
    **ADMITTED,
    "namespaceSelector": {"matchLabels": ADMITTED["namespaceSelector"]["matchLabels"]},
}


@pytest.mark.parametrize(
    ("peers", "controllers", "expected"),
    [
        ([OWN, ADMITTED], (CONTROLLER,), ""),
        ([ADMITTED], (CONTROLLER,), ""),
        ([OWN, ADMITTED], (), "NetworkPolicy 'p' opens Ingress of the namespace 'ingress'"),
        (
            [OWN, {"namespaceSelector": ADMITTED["namespaceSelector"]}],
            (CONTROLLER,),
            "NetworkPolicy 'p' opens Ingress of the namespace 'ingress'",
        ),
        (
            [OWN, ALSO_OF_A_TENANT],
            (CONTROLLER,),
            "NetworkPolicy 'p' opens Ingress of the namespace 'ingress'",
        ),
        (NO_PEERS, (CONTROLLER,), "NetworkPolicy 'p' opens Ingress of any peer"),
    ],
)
def test_only_ingress_controllers_of_an_administrator_are_let_in(
    peers: list[Json], controllers: tuple[IngressController, ...], expected: str
) -> None:
    """H06: a wider peer in the same namespace is an opening."""
    assert openings.ingress([policy(ingress=[{"from": peers}])], [RIVAL, INGRESS], (), controllers) == expected

"""Where pods of offloaded namespaces run: strategies, selectors, and what admission refuses (L02, L03, L06)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tenantry.api import marks, reasons
from tenantry.api.errors import Forbidden, Invalid
from tenantry.api.model import Json, Resource
from tenantry.api.offloading import DEFAULTED, OFFLOADING, MappingStrategy, NamespaceOffloading, PodStrategy
from tenantry.api.peercluster import AUDIENCES_ALLOWED_IN, PEER, VIRTUAL, PeerCluster, node_name
from tenantry.api.tenant import Tenant
from tenantry.mirror.podlimits import PodLimits, unfit
from testkit.api import PODS, until
from testkit.peerings import Peering, federated, offloading, peering, placed
from testkit.planes import without_operator

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
REGION = "topology.kubernetes.io/region"


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home with a node of its own, and a peer with simulated nodes, connected."""
    async with peering(tenantry_home, "strategy", "--nodes", "2") as found:
        await found.connect()
        yield found


async def prepared(both: Peering, name: str, strategy: PodStrategy) -> str:
    """Make a tenant whose namespace has a strategy; return the namespace at the peer."""
    await both.home.create(Tenant.resource, federated(name, both.peer_name))
    await both.home.ready(name)
    wanted = offloading(name, both.peer_name)
    wanted["spec"]["podStrategy"] = strategy.value
    await both.home.create(NamespaceOffloading.resource, wanted, name)
    await reported(both, name, reasons.ESTABLISHED)
    return await both.accepted(name)


async def reported(both: Peering, namespace: str, reason: str) -> str:
    """Wait until a NamespaceOffloading is Ready, or not, for a reason; return the message."""
    seen: Json = {}

    async def so() -> str | None:
        found = await both.home.find(NamespaceOffloading.resource, OFFLOADING, namespace)
        seen["status"] = (found or {}).get("status")
        status: Json = seen["status"] or {}
        conditions: list[Json] = status.get("conditions", [])
        told = [each for each in conditions if (each["type"], each["reason"]) == (reasons.READY, reason)]
        return told[0]["message"] if told else None

    return await until(so, f"the NamespaceOffloading of {namespace!r} reports {reason}", seen=lambda: seen)


def plain(namespace: str, name: str, **more: object) -> Json:
    """Return a pod as a user writes it who knows nothing of peers."""
    pod = placed(namespace, name, **more)
    if "nodeSelector" not in more:
        del pod["spec"]["nodeSelector"]
    return pod


def deployment(namespace: str, name: str, replicas: int = 1, **more: object) -> Json:
    """Return a Deployment as a user writes it."""
    pod = plain(namespace, name, **more)
    template = {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def peers_of(pod: Json) -> list[str]:
    """Return the peers that a pod tolerates."""
    return [each["value"] for each in pod["spec"].get("tolerations", ()) if each.get("key") == PEER]


async def test_a_plain_deployment_of_a_remote_namespace_runs_at_the_peer(both: Peering) -> None:
    """L06: the author writes no toleration and no selector."""
    there = await prepared(both, "remote", PodStrategy.REMOTE)
    await both.home.create(DEPLOYMENTS, deployment("remote", "web", 2), "remote")

    async def runs() -> bool:
        pods = await both.home.list(PODS, "remote")
        return len(pods) == 2 and all(each["status"].get("phase") == "Running" for each in pods)

    await until(runs, "both pods run")
    pods = await both.home.list(PODS, "remote")
    assert {each["spec"]["nodeName"] for each in pods} == {node_name(both.peer_name)}
    assert {each["metadata"]["name"] for each in await both.peer.list(PODS, there)} == {
        each["metadata"]["name"] for each in pods
    }
    await both.home.delete(DEPLOYMENTS, "web", "remote")


async def test_pods_are_placed_as_the_strategy_says_and_once(both: Peering) -> None:
    """L06: a pod that a client sends with what admission gives it is not changed again."""
    await prepared(both, "mixed", PodStrategy.LOCAL_AND_REMOTE)
    pod = await both.home.create(PODS, plain("mixed", "web"), "mixed")
    assert peers_of(pod) == [both.peer_name]
    assert VIRTUAL not in pod["spec"].get("nodeSelector", {})
    sent = plain("mixed", "again", tolerations=pod["spec"]["tolerations"])
    assert peers_of(await both.home.create(PODS, sent, "mixed")) == [both.peer_name]
    chosen = await both.home.create(PODS, placed("mixed", "there"), "mixed")
    assert chosen["spec"]["nodeSelector"] == {VIRTUAL: "true"}
    await both.pod("there", "mixed")

    await prepared(both, "local", PodStrategy.LOCAL)
    pod = await both.home.create(PODS, plain("local", "web"), "local")
    assert peers_of(pod) == []
    assert VIRTUAL not in pod["spec"].get("nodeSelector", {})


LIMITS = PodLimits(allowed_by=AUDIENCES_ALLOWED_IN)
FIT: dict[str, Json] = {
    "plain": {},
    "config": {"volumes": [{"name": "a", "configMap": {"name": "greeting"}}, {"name": "b", "emptyDir": {}}]},
    "projected": {"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "a"}}]}}]},
}
UNFIT: dict[str, Json] = {
    "claim": {"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}}]},
    "second": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "csi": {"driver": "secrets.example.com"}}]},
    "ephemeral": {
        "volumes": [
            {
                "name": "a",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
                    }
                },
            }
        ]
    },
    "root": {"volumes": [{"name": "a", "configMap": {"name": "kube-root-ca.crt"}}]},
    "token": {
        "volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "v"}}]}}]
    },
    "api": {"volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
    "projectedroot": {
        "volumes": [
            {
                "name": "a",
                "projected": {"sources": [{"secret": {"name": "a"}}, {"configMap": {"name": "kube-root-ca.crt"}}]},
            }
        ]
    },
    # Not the volume of admission, which has no audience.
    "named": {
        "volumes": [
            {
                "name": "kube-api-access-mine",
                "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "vault"}}]},
            }
        ]
    },
    "claims": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]},
    "users": {"hostUsers": True},
}


async def test_a_pod_that_cannot_travel_is_refused_where_it_must_and_stays_at_home_where_it_may(both: Peering) -> None:
    """L06: the policies and the mirror have one rule: a pod that one admits and the other fails is made without end."""
    await prepared(both, "must", PodStrategy.REMOTE)
    await prepared(both, "may", PodStrategy.LOCAL_AND_REMOTE)
    for name, spec in FIT.items():
        assert not unfit(spec, LIMITS)
        assert peers_of(await both.home.create(PODS, plain("must", name, **spec), "must")) == [both.peer_name]
        assert peers_of(await both.home.create(PODS, plain("may", name, **spec), "may")) == [both.peer_name]
    for name, spec in UNFIT.items():
        told = unfit(spec, LIMITS)
        with pytest.raises((Forbidden, Invalid)) as refused:
            await both.home.create(PODS, plain("must", name, **spec), "must")
        assert f"NotFederable: {told}" in str(refused.value), name
        assert peers_of(await both.home.create(PODS, plain("may", name, **spec), "may")) == [], name
        toleration = {"key": PEER, "operator": "Equal", "value": both.peer_name}
        with pytest.raises((Forbidden, Invalid), match="NotFederable"):
            await both.home.create(PODS, plain("may", "x", tolerations=[toleration], **spec), "may")
    # A ReplicaSet of such pods has no pod, and reports why.
    await both.home.create(DEPLOYMENTS, deployment("must", "stuck", **UNFIT["claim"]), "must")

    async def told_why() -> bool:
        found = await both.home.list(REPLICA_SETS, "must")
        conditions = [each for one in found for each in one["status"].get("conditions", ())]
        return any("NotFederable: spec.volumes[0].persistentVolumeClaim" in each["message"] for each in conditions)

    await until(told_why, "the ReplicaSet reports the refusal")
    assert not [each for each in await both.home.list(PODS, "must") if each["metadata"]["name"].startswith("stuck")]


async def test_no_pod_reaches_a_peer_that_its_namespace_does_not_have(both: Peering) -> None:
    """L06: also while the operator is stopped, and with any toleration."""
    await prepared(both, "held", PodStrategy.REMOTE)
    # Its rules let it name nodes, which passes by taints.
    other = federated("other")
    other["spec"]["rules"] = {"scheduling": {"nodeName": "Allow"}}
    await both.home.create(Tenant.resource, other)
    await both.home.ready("other")
    everything: list[Json] = [
        {"operator": "Exists"},
        {"operator": "Exists", "effect": "NoSchedule"},
        {"key": PEER, "operator": "Exists"},
        {"key": PEER, "operator": "Equal", "value": "paris"},
        {"key": PEER},
    ]
    own = {"key": PEER, "operator": "Equal", "value": both.peer_name}
    async with without_operator(both.cluster(both.home_name)):
        for namespace, tolerations in (("held", everything), ("other", [*everything, own])):
            for toleration in tolerations:
                # By the policy of peers, or by the standard rule about taints: the API server reports one of them.
                with pytest.raises((Forbidden, Invalid), match=r"spec\.tolerations|leave out tolerations"):
                    await both.home.create(PODS, plain(namespace, "bad", tolerations=[toleration]), namespace)
        with pytest.raises((Forbidden, Invalid), match=r"spec\.nodeName"):
            await both.home.create(PODS, plain("other", "bad", nodeName=node_name(both.peer_name)), "other")
        pod = await both.home.create(PODS, plain("held", "web"), "held")
        assert (peers_of(pod), pod["spec"]["nodeSelector"]) == ([both.peer_name], {VIRTUAL: "true"})
        with pytest.raises((Forbidden, Invalid), match="NotFederable"):
            await both.home.create(PODS, plain("held", "bad", **UNFIT["claim"]), "held")
        # The cluster's own pods tolerate every taint, as kube-proxy does.
        everywhere = plain("default", "proxy", tolerations=[{"operator": "Exists"}], nodeSelector={"none": "such"})
        await both.home.create(PODS, everywhere, "default")
        await both.home.delete(PODS, "proxy", "default")


async def test_labels_of_peers_select_them_and_pods_leave_one_that_stops_matching(both: Peering) -> None:
    """L02, L06: the administrator labels the peer; the tenant selects by the label."""
    await both.home.create(Tenant.resource, federated("selects", both.peer_name))
    await both.home.ready("selects")
    expression = {"key": REGION, "operator": "In", "values": ["eu"]}
    wanted = offloading("selects", both.peer_name)
    wanted["spec"]["clusterSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    await both.home.create(NamespaceOffloading.resource, wanted, "selects")
    assert "spec.clusterSelector" in await reported(both, "selects", reasons.NO_CLUSTER_SELECTED)

    node_uid = (await both.home.get(NODES, node_name(both.peer_name)))["metadata"]["uid"]
    await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": {"labels": {REGION: "eu"}}}})
    await reported(both, "selects", reasons.ESTABLISHED)

    async def labelled() -> bool:
        node = await both.home.get(NODES, node_name(both.peer_name))
        return node["metadata"]["labels"].get(REGION) == "eu" and node["metadata"]["uid"] == node_uid

    await until(labelled, "the Node of the peer has the label")
    await both.home.create(DEPLOYMENTS, deployment("selects", "web", nodeSelector={VIRTUAL: "true"}), "selects")

    async def phases() -> list[str]:
        return [each["status"].get("phase", "") for each in await both.home.list(PODS, "selects")]

    async def runs() -> bool:
        return await phases() == ["Running"]

    await until(runs, "the pod runs at the peer")
    await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": {"labels": {REGION: "us"}}}})
    await reported(both, "selects", reasons.NO_CLUSTER_SELECTED)

    async def left() -> bool:
        pods = await both.home.list(PODS, "selects")
        return bool(pods) and all(not each["spec"].get("nodeName") and not peers_of(each) for each in pods)

    await until(left, "its replacement waits at home, and tolerates no peer")
    await both.home.delete(DEPLOYMENTS, "web", "selects")
    await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": {"labels": {REGION: None}}}})


async def test_a_peer_proposes_labels_and_the_home_admits_some_of_them(both: Peering) -> None:
    """L01, L13: the administrator of the home takes precedence."""
    given = {REGION: "asia", "topology.kubernetes.io/zone": "z1", "example.com/gpu": "x", "kubernetes.io/hostname": "x"}
    await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"labels": given}}})
    await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": {"labels": {REGION: "eu"}}}})

    seen: Json = {}

    async def labelled() -> Json | None:
        labels: Json = (await both.home.get(NODES, node_name(both.peer_name)))["metadata"]["labels"]
        seen["node"] = labels
        seen["status"] = (await both.home.get(PeerCluster.resource, both.peer_name))["status"]
        seen["proposed"] = (await both.peer.get(NAMESPACES, both.tenant))["metadata"]["annotations"]
        return labels if labels.get("topology.kubernetes.io/zone") == "z1" and labels.get(REGION) == "eu" else None

    labels = await until(labelled, "the Node has the labels of both", seen=lambda: seen)
    assert "example.com/gpu" not in labels
    assert labels["kubernetes.io/hostname"] == node_name(both.peer_name)
    status = (await both.home.get(PeerCluster.resource, both.peer_name))["status"]
    assert status["labels"] == given
    await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": {"labels": {REGION: None}}}})
    await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"labels": None}}})

    async def gone() -> bool:
        left = (await both.home.get(NODES, node_name(both.peer_name)))["metadata"]["labels"]
        return REGION not in left and "topology.kubernetes.io/zone" not in left

    await until(gone, "the labels are taken away")


async def test_a_namespace_has_its_own_name_at_a_peer_that_allows_it_if_it_is_free_there(both: Peering) -> None:
    """L03, L04: a namespace that exists there is never taken over."""

    async def same(name: str) -> None:
        await both.home.create(Tenant.resource, federated(name, both.peer_name))
        await both.home.ready(name)
        wanted = offloading(name, both.peer_name)
        wanted["spec"]["mappingStrategy"] = MappingStrategy.ENFORCE_SAME_NAME.value
        await both.home.create(NamespaceOffloading.resource, wanted, name)

    await same("exact")
    assert "spec.guest.names" in await reported(both, "exact", reasons.PEER_REFUSED)
    await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"names": "Same"}}})
    assert await both.accepted("exact") == "exact"

    own = {"metadata": {"name": "busy", "labels": {"team": "peer"}}}
    uid = (await both.peer.create(NAMESPACES, own))["metadata"]["uid"]
    await same("busy")
    assert "'busy' exists" in await reported(both, "busy", reasons.NAME_TAKEN)
    there = await both.peer.get(NAMESPACES, "busy")
    assert (there["metadata"]["uid"], there["metadata"]["labels"].get(marks.TENANT)) == (uid, None)
    await both.peer.delete(NAMESPACES, "busy")
    assert await both.accepted("busy") == "busy"
    await both.home.create(PODS, placed("busy", "web"), "busy")
    await both.pod("web", "busy")


async def test_a_federated_subnamespace_has_one_name_at_home_and_at_the_peer(both: Peering) -> None:
    """E08: its name has the id of the home in it, so that the peer gives it to no other home."""
    await both.home.create(Tenant.resource, federated("united", both.peer_name))
    await both.home.ready("united")
    namespace = await both.team("united", "everywhere", scope="Federated")
    assert namespace != "everywhere"
    await both.home.create(NamespaceOffloading.resource, offloading(namespace, both.peer_name), namespace)
    assert await both.accepted(namespace) == namespace
    await both.home.create(PODS, placed(namespace, "web"), namespace)
    await both.pod("web", namespace)
    assert await both.peer.find(PODS, "web", namespace) is not None
    # By hash: the guest need not be allowed any name.
    space = await both.mapped(namespace)
    assert space["spec"]["namespaceName"] == namespace


async def test_selectors_and_labels_that_are_wrong_are_refused_and_name_the_field(both: Peering) -> None:
    """L01, L02: by the API server itself."""
    await both.home.create(Tenant.resource, federated("wrong", both.peer_name))
    await both.home.ready("wrong")
    good = {"key": REGION, "operator": "In", "values": ["eu"]}
    refused: tuple[tuple[Json, str], ...] = (
        ({"operator": "Exists"}, "values"),
        ({"values": []}, "values"),
        ({"operator": "Near"}, "operator"),
        ({"key": "not a label"}, "matchExpressions"),
        ({"values": ["not a value"]}, "matchExpressions"),
    )
    for changed, field in refused:
        wanted = offloading("wrong", both.peer_name)
        wanted["spec"]["clusterSelector"] = {"nodeSelectorTerms": [{"matchExpressions": [{**good, **changed}]}]}
        with pytest.raises(Invalid, match=rf"spec\.clusterSelector\.nodeSelectorTerms\[0\].*{field}"):
            await both.home.create(NamespaceOffloading.resource, wanted, "wrong")
    for key, value in (
        ("kubernetes.io/hostname", "x"),
        ("node-role.kubernetes.io/worker", ""),
        ("tenantry.dev/slice", "x"),
        (PEER, "paris"),
        ("no label", "x"),
        (REGION, "no value"),
    ):
        with pytest.raises(Invalid, match=r"spec\.host\.labels"):
            await both.home.patch(PeerCluster.resource, both.peer_name, {"spec": {"host": {"labels": {key: value}}}})


async def test_a_label_of_a_namespace_creates_its_offloading_and_takes_it_away(both: Peering) -> None:
    """L02: an administrator labels the namespace; the operator keeps the label, and the owner may not remove it."""
    await both.home.create(Tenant.resource, federated("labelled", both.peer_name))
    await both.home.ready("labelled")
    await both.home.patch(NAMESPACES, "labelled", {"metadata": {"labels": {marks.OFFLOAD: "true"}}})
    await reported(both, "labelled", reasons.ESTABLISHED)
    made = await both.home.get(NamespaceOffloading.resource, OFFLOADING, "labelled")
    assert made["metadata"]["labels"][DEFAULTED] == "true"
    assert made["spec"]["podStrategy"] == PodStrategy.LOCAL_AND_REMOTE
    pod = await both.home.create(PODS, placed("labelled", "web"), "labelled")
    assert peers_of(pod) == [both.peer_name]
    await both.pod("web", "labelled")
    await both.home.patch(NAMESPACES, "labelled", {"metadata": {"labels": {marks.OFFLOAD: None}}})
    await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "labelled")
    found = await both.home.get(NAMESPACES, "labelled")
    assert marks.POD_STRATEGY not in found["metadata"]["labels"]
    assert marks.PEERS not in found["metadata"].get("annotations", {})

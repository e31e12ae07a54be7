"""Two whole clusters: namespaces and pods of one at the other, and what is left when that ends (L01 to L06, X03)."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from tenantry.api import reasons
from tenantry.api.errors import ApiError, Forbidden, Invalid
from tenantry.api.kubernetes import ClusterRole, ClusterRoleBinding, Namespace, RoleBinding
from tenantry.api.marks import ZONE
from tenantry.api.model import Json, Resource
from tenantry.api.offloading import OFFLOADING, NamespaceMap, NamespaceOffloading
from tenantry.api.peercluster import PEER, PEERS_NAMESPACE, PREFIX, PeerCluster, node_name, renewer_name
from tenantry.api.signing import NODE, NODES_GROUP, grant_name
from tenantry.api.slice import SliceClaim
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.engine import request
from tenantry.engine.writer import Writer
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from testkit.api import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.peerings import PATIENCE, Peering, connection, federated, offloading, peering, placed, token_of

NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
TOKEN = {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]}}
"""A token of the home, which does not travel."""


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home, and a peer with simulated nodes, connected."""
    async with peering(tenantry_home, "two", "--nodes", "2") as found:
        await found.connect()
        yield found


async def test_a_pod_runs_at_the_peer_with_the_config_that_it_names_and_nothing_else(both: Peering) -> None:
    """L06: status comes up, named ConfigMaps and Secrets follow, and others stay at home."""
    there = await both.offload("shop")
    await both.home.create(CONFIG_MAPS, {"metadata": {"name": "greeting"}, "data": {"word": "hello"}}, "shop")
    for name in ("named", "canary"):
        await both.home.create(SECRETS, {"metadata": {"name": name}, "stringData": {"key": name}}, "shop")
    sources = [{"configMapRef": {"name": "greeting"}}, {"secretRef": {"name": "named"}}]
    await both.home.create(PODS, placed("shop", "web", container={"envFrom": sources}), "shop")
    above = await both.pod("web", "shop")
    below = await both.peer.get(PODS, "web", there)
    assert above["spec"]["nodeName"] == node_name(both.peer_name)
    assert "podIP" not in above["status"]
    assert below["metadata"]["annotations"][f"{PREFIX}/uid"] == above["metadata"]["uid"]
    # The peer chooses the node, and the pod has no identity there.
    assert below["spec"]["nodeName"] != node_name(both.peer_name)
    assert below["spec"]["automountServiceAccountToken"] is False
    assert (await both.peer.get(CONFIG_MAPS, "greeting", there))["data"] == {"word": "hello"}
    assert {each["metadata"]["name"] for each in await both.peer.list(SECRETS, there)} == {"named"}

    await both.home.patch(CONFIG_MAPS, "greeting", {"data": {"word": "again"}}, "shop")

    async def followed() -> bool:
        return (await both.peer.get(CONFIG_MAPS, "greeting", there))["data"] == {"word": "again"}

    await until(followed, "a changed ConfigMap follows")
    await both.home.delete(PODS, "web", "shop")
    await both.home.gone(PODS, "web", "shop")
    await both.peer.gone(PODS, "web", there)
    # Nothing names them any more.
    await both.peer.gone(CONFIG_MAPS, "greeting", there)
    await both.peer.gone(SECRETS, "named", there)


async def test_a_pod_that_the_peer_deletes_fails_at_home_and_never_runs_twice(both: Peering) -> None:
    """L06: its controller replaces it; the same uid gets no second pod."""
    there = await both.offload("lost")
    await both.home.create(PODS, placed("lost", "web"), "lost")
    await both.pod("web", "lost")
    await both.peer.delete(PODS, "web", there)
    failed = await both.pod("web", "lost", "Failed")
    assert failed["status"]["reason"] == reasons.POD_LOST
    assert await both.peer.find(PODS, "web", there) is None


async def test_a_pod_that_the_peer_refuses_waits_with_its_words_and_runs_when_there_is_room(both: Peering) -> None:
    """L06, X03: the share of the namespace bounds what runs at the peer."""
    there = await both.offload("full", cpu="50m", memory="1Gi", pods="5")
    await both.home.create(PODS, placed("full", "web"), "full")
    seen: Json = {}

    async def refused() -> Json | None:
        found = await both.home.get(PODS, "web", "full")
        conditions = {each["type"]: each for each in found["status"].get("conditions", ())}
        seen["conditions"] = conditions
        told = conditions.get(f"{PREFIX}/Mirrored", {})
        return told if told.get("reason") == reasons.PEER_REFUSED else None

    told = await until(refused, "the pod reports the refusal of the peer", seen=lambda: seen)
    assert "exceeded quota" in told["message"]
    assert (await both.home.get(PODS, "web", "full"))["status"]["phase"] == "Pending"
    more = {"spec": {"quota": {"hard": {"cpu": "500m"}}}}
    await both.home.patch(NamespaceOffloading.resource, OFFLOADING, more, "full")
    await both.pod("web", "full")
    assert await both.peer.find(PODS, "web", there) is not None


async def test_a_pod_whose_fields_cannot_travel_is_refused_and_names_the_field(both: Peering) -> None:
    """L06: no field that affects the running pod is dropped silently."""
    await both.offload("bulky")
    toleration = {"key": PEER, "operator": "Equal", "value": both.peer_name}
    with pytest.raises(Forbidden, match=rf"{reasons.NOT_FEDERABLE}: spec\.volumes\[0\]"):
        await both.home.create(PODS, placed("bulky", "web", tolerations=[toleration], volumes=[TOKEN]), "bulky")


async def test_tenants_of_one_home_have_workspaces_and_network_zones_of_their_own_at_the_peer(both: Peering) -> None:
    """L05, X03: the share of a Workspace is the sum of those of its namespaces, and ends with the last of them."""
    first, other = await both.offload("first", cpu="1", memory="1Gi"), await both.offload("other")
    # A further namespace of the same tenant.
    team = await both.team("first", "team")
    await both.home.create(
        NamespaceOffloading.resource, offloading(team, both.peer_name, cpu="500m", memory="1Gi"), team
    )
    second = await both.accepted(team)
    space = await both.workspace("first")
    zones = {
        name: (await both.peer.get(Namespace.resource, name))["metadata"]["labels"][ZONE]
        for name in (first, second, other)
    }
    assert zones[first] == zones[second] == space["metadata"]["uid"]
    assert zones[other] == (await both.workspace("other"))["metadata"]["uid"]
    # Pods are not named: their number follows them, from one for each namespace.
    assert space["spec"]["quota"]["hard"] == {"pods": "2", "requests.cpu": "1500m", "requests.memory": "2Gi"}
    assert {each["metadata"]["namespace"] for each in (await both.mapped("first"), await both.mapped(team))} == {
        space["status"]["namespace"]
    }

    await both.home.delete(NamespaceOffloading.resource, OFFLOADING, team)

    async def shrunk() -> bool:
        return (await both.workspace("first"))["spec"]["quota"]["hard"]["requests.cpu"] == "1"

    await until(shrunk, "the share of a namespace that has ended is taken back from its Workspace")
    await both.home.delete(NamespaceOffloading.resource, OFFLOADING, "first")
    await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "first")
    assert await both.peer.find(Subnamespace.resource, space["metadata"]["name"], both.tenant) is None


async def test_a_tenant_uses_no_peer_without_an_administrator(both: Peering) -> None:
    """L01: by default, a tenant may use none, and the condition says who changes that."""
    await both.home.create(Tenant.resource, federated("closed"))
    await both.home.ready("closed")
    await both.home.create(NamespaceOffloading.resource, offloading("closed", both.peer_name), "closed")

    async def told() -> str | None:
        found = await both.home.get(NamespaceOffloading.resource, OFFLOADING, "closed")
        conditions = found.get("status", {}).get("conditions", ())
        return next((each["message"] for each in conditions if each["reason"] == reasons.PEER_NOT_ALLOWED), None)

    assert "spec.isolation.federation.peers" in await until(told, "the condition of a tenant that may use no peer")
    found = await both.home.find(NamespaceMap.resource, both.peer_name)
    spec: Json = (found or {}).get("spec") or {}
    assert "closed" not in spec.get("desired", {})


async def test_pods_leave_before_their_namespace_when_a_tenant_may_not_use_the_peer_any_more(both: Peering) -> None:
    """L02: an administrator takes the peer away; nothing of the namespace is left there."""
    there = await both.offload("leaving")
    await both.home.create(PODS, placed("leaving", "web"), "leaving")
    await both.pod("web", "leaving")
    await both.home.patch(Tenant.resource, "leaving", {"spec": {"isolation": {"federation": {"peers": []}}}})
    await both.home.gone(PODS, "web", "leaving")
    await both.peer.gone(Namespace.resource, there)
    # The user deletes what does nothing any more; its finalizer waits for nothing.
    await both.home.delete(NamespaceOffloading.resource, OFFLOADING, "leaving")
    await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "leaving")


async def test_pods_that_are_replaced_do_not_keep_a_namespace_at_the_peer(both: Peering) -> None:
    """L02: a controller makes another pod for each that is evicted; no further one is sent."""
    there = await both.offload("replaced")
    template = placed("replaced", "web")
    labels = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 2, "selector": labels, "template": {"metadata": template["metadata"], "spec": template["spec"]}}
    sets = Resource("apps", "v1", "replicasets", "ReplicaSet")
    await both.home.create(sets, {"metadata": {"name": "web"}, "spec": spec}, "replaced")

    async def sent() -> bool:
        return len(await both.peer.list(PODS, there)) == 2

    await until(sent, "both pods run at the peer")
    await both.home.delete(NamespaceOffloading.resource, OFFLOADING, "replaced")
    await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "replaced")
    await both.peer.gone(Namespace.resource, there)
    await both.home.delete(sets, "web", "replaced")


async def test_a_home_ends_alone_after_the_peer_has_ended_its_side(both: Peering) -> None:
    """L14: the accounts are gone, so that nothing can be deleted there; the condition says that it does not answer."""
    await both.offload("alone")
    await both.end(at_peer=True)

    async def noticed() -> bool:
        found = await both.home.get(PeerCluster.resource, both.peer_name)
        conditions = {each["type"]: each for each in found["status"]["conditions"]}
        return conditions[reasons.REACHABLE]["status"] == "False"

    await until(noticed, "the home reports that the peer does not serve it any more")
    await both.end()
    assert await both.home.find(NODES, node_name(both.peer_name)) is None
    await both.home.delete(NamespaceOffloading.resource, OFFLOADING, "alone")
    await both.home.gone(NamespaceOffloading.resource, OFFLOADING, "alone")
    await both.peer.gone(Tenant.resource, both.tenant)
    await both.connect()


async def test_a_namespace_that_is_deleted_at_the_peer_is_made_again(both: Peering) -> None:
    """L04: the phase is Lost meanwhile, and pods run in the new one."""
    there = await both.offload("again")
    before = (await both.peer.get(Namespace.resource, there))["metadata"]["uid"]
    sub = await both.mapped("again")
    await both.peer.delete(Subnamespace.resource, sub["metadata"]["name"], sub["metadata"]["namespace"])

    async def renewed() -> bool:
        found = await both.peer.find(Namespace.resource, there)
        return found is not None and found["metadata"]["uid"] != before

    await until(renewed, "the namespace is made again")
    await both.accepted("again")
    await both.home.create(PODS, placed("again", "web"), "again")
    await both.pod("web", "again")
    assert await both.peer.find(PODS, "web", there) is not None


async def test_a_home_that_lies_is_held_by_the_rules_of_a_tenant(both: Peering) -> None:
    """L05: the identity of a home is an owner of one Tenant, with the marks of mirrored objects and no others."""
    there = await both.offload("guest")
    async with Client(
        connection(both.cluster(both.peer_name), await token_of(both.peer, both.home_name, 3600))
    ) as client:
        guest = Api(client)
        for spec in (
            {"hostNetwork": True},
            {"nodeName": "node-1"},
            {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
            {"priorityClassName": "system-node-critical"},
        ):
            with pytest.raises(Forbidden):
                await guest.create(PODS, placed(there, "bad", **spec), there)
        for key in ("tenantry.dev/tenant", "vcp.tenantry.dev/owner"):
            pod = placed(there, "marked")
            pod["metadata"]["labels"][key] = "other"
            with pytest.raises((Forbidden, Invalid)):
                await guest.create(PODS, pod, there)
        for resource, namespace in ((SECRETS, "kube-system"), (SECRETS, PEERS_NAMESPACE), (NODES, "")):
            with pytest.raises(Forbidden):
                await guest.list(resource, namespace)
        # A token that stays, nodes of the peer, and a control plane: an owner of a Tenant may have these, a home not.
        lasting = {"metadata": {"name": "lasting", "annotations": {"kubernetes.io/service-account.name": "default"}}}
        with pytest.raises(Forbidden, match="outlive the peering"):
            await guest.create(SECRETS, {**lasting, "type": "kubernetes.io/service-account-token"}, there)
        refused: tuple[tuple[Resource, Json], ...] = (
            (SliceClaim.resource, {"spec": {"count": 1}}),
            (VirtualControlPlane.resource, {"spec": {}}),
            (RoleBinding.resource, {"roleRef": ROLE, "subjects": []}),
            (SERVICE_ACCOUNTS, {}),
        )
        for resource, value in refused:
            with pytest.raises(Forbidden, match="another cluster does not write"):
                await guest.create(resource, {"metadata": {"name": "bad"}, **value}, both.tenant)
        with pytest.raises(Forbidden, match="another cluster does not write"):
            await Writer(client).send(request.token(SERVICE_ACCOUNTS, there, "default", seconds=3600))
        # Not even its own tokens: only the account that renews them may request any.
        with pytest.raises(Forbidden):
            await Writer(client).send(request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, both.home_name, seconds=3600))
        with pytest.raises(Forbidden):
            await guest.patch(Tenant.resource, both.tenant, {"spec": {"quota": {"hard": {"cpu": "100"}}}})
        with pytest.raises(Forbidden):
            await guest.get(PeerCluster.resource, both.home_name)


async def test_the_account_that_renews_gets_no_longer_tokens_than_agreed(both: Peering) -> None:
    """L05: a stolen token ends with the lease of the home."""
    token = await token_of(both.peer, renewer_name(both.home_name), 7 * 24 * 3600)
    async with Client(connection(both.cluster(both.peer_name), token)) as client:
        for account, seconds in ((both.home_name, 3601), (renewer_name(both.home_name), 7 * 24 * 3600 + 1)):
            await Writer(client).send(request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, account, seconds=seconds - 1))
            with pytest.raises(Forbidden, match="must be at most"):
                await Writer(client).send(request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, account, seconds=seconds))


async def test_the_node_of_a_peer_makes_no_pods_and_no_node_without_its_taint(both: Peering) -> None:
    """L01: what NodeRestriction admits of a kubelet, the identity of a peer's Node may not do."""
    await both.home.create(Tenant.resource, federated("nodes"))
    await both.home.ready("nodes")
    kept = (await both.home.get(SECRETS, f"{both.peer_name}-node", PEERS_NAMESPACE))["data"]
    found = kubeconfig.load([both.cluster(both.home_name).kubeconfig_path])
    connection = Connection(
        server=found.server,
        source="the node",
        ca=found.ca,
        certificate=base64.b64decode(kept["tls.crt"]),
        key=base64.b64decode(kept["tls.key"]),
    )
    node = node_name(both.peer_name)
    async with Client(connection) as client:
        api = Api(client)
        static = placed("nodes", "static")
        static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        static["spec"]["nodeName"] = node
        itself = {"apiVersion": "v1", "kind": "Node", "name": node, "controller": True}
        static["metadata"]["ownerReferences"] = [{**itself, "uid": (await api.get(NODES, node))["metadata"]["uid"]}]
        with pytest.raises(Forbidden, match="creates no pods"):
            await api.create(PODS, static, "nodes")
        with pytest.raises(Forbidden, match="must not be changed by the Node"):
            await api.patch(NODES, node, {"metadata": {"labels": {"tenantry.dev/tenant": "nodes"}}})
        with pytest.raises(Forbidden):
            await api.list(SECRETS, "nodes")
        await both.home.delete(NODES, node)
        with pytest.raises(Forbidden, match="must have the label and the taint"):
            await api.create(NODES, {"metadata": {"name": node}})

    async def back() -> bool:
        again = await both.home.find(NODES, node)
        return again is not None and any(each["type"] == "Ready" for each in again["status"].get("conditions", ()))

    await until(back, "the Node is made again")


async def test_the_operator_acts_as_the_node_in_a_cluster_that_signs_no_certificates_of_nodes(both: Peering) -> None:
    """L01: an administrator allows it, and the API server limits it as a node."""
    node, found = node_name(both.peer_name), PeerCluster.resource
    await both.offload("weaker")

    async def told(type_: str, words: str) -> str | None:
        conditions = (await both.home.get(found, both.peer_name))["status"]["conditions"]
        return next(
            (each["message"] for each in conditions if each["type"] == type_ and words in each["message"]), None
        )

    way = {"spec": {"host": {"nodeIdentity": "Impersonation"}}}
    await both.home.patch(found, both.peer_name, way)
    assert "spec.host.nodeIdentity" in await until(
        lambda: told(reasons.NODE_READY, f"tenantry peer allow-node {both.peer_name}"),
        "the condition names the command",
    )
    await both.run("peer", "allow-node", both.peer_name, "--cluster", both.home_name, PATIENCE)
    assert await told(reasons.NODE_READY, "by impersonation") is not None
    await both.home.create(SECRETS, {"metadata": {"name": "named"}, "stringData": {"key": "named"}}, "weaker")
    container = {"envFrom": [{"secretRef": {"name": "named"}}]}
    await both.home.create(PODS, placed("weaker", "web", container=container), "weaker")
    await both.pod("web", "weaker")

    # The kubelet port has a certificate that no authority has signed.
    path = "/api/v1/namespaces/weaker/pods/web/log"
    with pytest.raises(ApiError, match="certificate signed by unknown authority"):
        await both.home.client.request("GET", path)
    # The words of the peer, whose nodes are simulated.
    with pytest.raises(ApiError, match="no preferred addresses found"):
        await both.home.client.request("GET", path, query={"insecureSkipTLSVerifyBackend": "true"})

    # The operator may be this node and no other user, nor in another group.
    itself = kubeconfig.load([both.cluster(both.home_name).paths.kubeconfig("operator")])
    others = ((f"{NODE}other", NODES_GROUP), ("system:admin", NODES_GROUP), (f"{NODE}{node}", "system:masters"))
    for user, group in others:
        async with Client(msgspec.structs.replace(itself, impersonate=user, impersonate_groups=(group,))) as client:
            with pytest.raises(Forbidden, match="impersonate"):
                await Api(client).list(SECRETS, "weaker")
    as_node = msgspec.structs.replace(itself, impersonate=f"{NODE}{node}", impersonate_groups=(NODES_GROUP,))
    async with Client(as_node) as client:
        assert await Api(client).get(SECRETS, "named", "weaker")
        with pytest.raises(Forbidden, match="cannot list resource"):
            await Api(client).list(SECRETS, "weaker")

    await both.home.patch(found, both.peer_name, {"spec": {"host": {"nodeIdentity": None}}})

    async def certified() -> bool:
        conditions = (await both.home.get(found, both.peer_name))["status"]["conditions"]
        ready = next(each for each in conditions if each["type"] == reasons.NODE_READY)
        return ready["status"] == "True" and "impersonation" not in ready["message"]

    await until(certified, "the Node has certificates again")
    # What was granted is withdrawn, also before the PeerCluster ends.
    for kind in (ClusterRoleBinding, ClusterRole):
        await both.home.gone(kind.resource, grant_name(both.peer_name))
    await both.pod("web", "weaker")


async def test_owners_do_not_write_the_marks_of_mirrored_objects(both: Peering) -> None:
    """L05: only the identity of a home names the pod that a pod stands for."""
    await both.home.create(Tenant.resource, federated("marks"))
    await both.home.ready("marks")
    await both.home.open("marks")
    found = kubeconfig.load([both.cluster(both.home_name).kubeconfig_path])
    pod = placed("marks", "web")
    pod["metadata"]["annotations"] = {f"{PREFIX}/uid": "other"}
    async with Client(msgspec.structs.replace(found, impersonate="ada")) as client:
        with pytest.raises((Forbidden, Invalid), match="must not be set"):
            await Api(client).create(PODS, pod, "marks")


async def test_nothing_is_left_on_either_side_when_a_peering_ends(both: Peering) -> None:
    """L14: first at home, where pods leave in order, then at the peer; then the clusters can be connected again."""
    await both.offload("last")
    await both.home.create(PODS, placed("last", "web"), "last")
    await both.pod("web", "last")
    await both.end()
    assert await both.home.find(NODES, node_name(both.peer_name)) is None
    await both.home.gone(NamespaceMap.resource, both.peer_name)
    # What an administrator has allowed for this peer.
    await both.home.gone(ClusterRole.resource, grant_name(both.peer_name))
    await both.home.gone(ClusterRoleBinding.resource, grant_name(both.peer_name))
    assert [each["metadata"]["name"] for each in await both.home.list(SECRETS, PEERS_NAMESPACE)] == []
    assert await both.peer.list(Subnamespace.resource, both.tenant) == []
    await both.end(at_peer=True)
    await both.peer.gone(Tenant.resource, both.tenant)
    await both.peer.gone(Namespace.resource, both.tenant)

    async def accounts() -> bool:
        found = await both.peer.list(SERVICE_ACCOUNTS, PEERS_NAMESPACE)
        return [each["metadata"]["name"] for each in found] == ["default"]

    await until(accounts, "the accounts of the home are gone")
    await both.connect()
    await both.accepted("last")

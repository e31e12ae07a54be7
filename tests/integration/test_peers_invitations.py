"""Two clusters without a common administrator: invitations, and who may use them (L14)."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio
import yaml

from tenantry.api import reasons
from tenantry.api.errors import Forbidden, Invalid, Unauthorized
from tenantry.api.model import Json, Resource
from tenantry.api.peercluster import PEERS_NAMESPACE, PeerCluster, inviter_name, node_name, renewer_name
from tenantry.api.peerinvitation import PeerInvitation
from tenantry.cli import output
from tenantry.controllers.peering.guests import invitations
from tenantry.controllers.peering.guests.guest import BINDINGS
from tenantry.engine import request
from tenantry.engine.writer import Writer
from tenantry.kube.client import Client
from tenantry.kube.kubeconfig import Connection
from tenantry.local import build
from tenantry.local.progress import SilentProgress
from testkit.api import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS, Api, until
from testkit.coredns import zone_server
from testkit.peerings import QUOTA as WHOLE
from testkit.peerings import Peering, peering, placed

pytestmark = pytest.mark.long
"""Each pair of clusters costs minutes on a busy machine; `make test` has test_peers.py and docs/federation.md."""

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
QUOTA_PODS = WHOLE["pods"]
QUOTA = "cpu=8,memory=16Gi,pods=50"


@pytest_asyncio.fixture(scope="module")
async def both(tenantry_home: Path) -> AsyncIterator[Peering]:
    """A home and a peer that are not connected."""
    async with peering(tenantry_home, "inv", "--nodes", "1") as found:
        yield found


async def invited(both: Peering, *flags: str) -> PeerInvitation:
    """Return an invitation of the peer."""
    done = await both.call("peer", "invite", *flags, "--cluster", both.peer_name, "--quota", QUOTA)
    assert done.returncode == 0, done.stderr
    return invitations.read(done.stdout.encode(), PeerInvitation)


def document(invitation: PeerInvitation) -> str:
    """Return the file of an invitation."""
    return msgspec.json.encode(output.whole(invitation)).decode()


def secret(name: str, text: str) -> Json:
    """Return the Secret that has an invitation."""
    return {
        "metadata": {"name": f"{name}-credentials"},
        "data": {"invitation": base64.b64encode(text.encode()).decode()},
    }


def host(name: str, invitation: PeerInvitation) -> Json:
    """Return the PeerCluster that uses an invitation."""
    half = {
        "server": invitation.spec.server,
        "ca": invitation.spec.ca,
        "guest": invitation.spec.guest,
        "credentialsSecretName": f"{name}-credentials",
        "accept": {"hard": {"cpu": "1", "memory": "1Gi", "pods": "5"}},
    }
    return {"metadata": {"name": name}, "spec": {"host": half}}


async def condition(api: Api, name: str, type_: str) -> Json:
    """Return a condition of a PeerCluster; {} if it has none."""
    live: Json = await api.find(PeerCluster.resource, name) or {}
    status: Json = live.get("status") or {}
    found: list[Json] = status.get("conditions") or []
    return {each["type"]: each for each in found}.get(type_) or {}


async def test_a_cluster_in_the_dns_is_discovered_and_only_its_own_invitation_is_accepted(
    both: Peering, tmp_path: Path
) -> None:
    """L13: discovery grants nothing, and an invitation of another authority sends no token there."""
    # Names of its own: the clusters may be connected already.
    name, finder, found = "found", "finder", PeerCluster.resource
    own = ("--as", name, "--cluster", both.peer_name)
    here = await both.call("peer", "record", *own)
    server, digest = re.findall(r"--server (\S+) .*--ca-digest (\S+)", here.stdout)[0]
    wrong = f"sha256:{'0' * 64}"
    by_hand = ("peer", "discover", name, "--server", server, "--cluster", both.home_name)
    named = f"https://api.example.test:{server.rpartition(':')[2]}"
    records = await both.call("peer", "record", "example.test", *own, "--server", named)
    binary = (await asyncio.to_thread(build.ensure, SilentProgress(), build.DNS)).coredns
    async with zone_server(binary, tmp_path, "example.test", records.stdout.splitlines()) as port:
        ask = ("peer", "discover", "example.test", "--nameserver", f"127.0.0.1:{port}", "--cluster", both.home_name)
        await both.run(*ask)
        await until(lambda: condition(both.home, name, reasons.DISCOVERED), "the cluster is discovered")
        told = await condition(both.home, name, reasons.READY)
        assert (told["status"], told["reason"]) == ("False", reasons.NOT_ACCEPTED)
        live = await both.home.get(found, name)
        assert live["spec"]["discovered"]["server"] == named
        assert live["spec"].keys() == {"discovered"}
        assert await both.home.find(NODES, node_name(name)) is None
        # A second look does not make a second one, and another cluster does not take its name.
        await both.run(*ask)
        other = await both.call(*by_hand, "--ca-digest", wrong)
        assert other.returncode != 0
        assert "another cluster that was discovered" in other.stderr
        nothing = await both.call("peer", "discover", "other.test", *ask[3:])
        assert nothing.returncode != 0

    # It is not used, so it ends.
    await both.home.patch(found, name, {"spec": {"discovered": {"seen": "2020-01-01T00:00:00Z"}}})
    await both.home.gone(found, name)

    await both.run(*by_hand, "--ca-digest", wrong)
    invitation = await invited(both, finder)
    file = tmp_path / "invitation.json"
    file.write_text(document(invitation))
    refused = await both.call("peer", "accept", name, "-f", str(file), "--cluster", both.home_name)
    assert refused.returncode != 0
    assert "spec.discovered.caDigests" in refused.stderr
    # Nor by YAML: no token is sent to a server of another authority.
    await both.home.create(SECRETS, secret(name, document(invitation)), PEERS_NAMESPACE)
    await both.home.patch(found, name, {"spec": host(name, invitation)["spec"]})

    async def stopped() -> bool:
        return (await condition(both.home, name, reasons.READY)).get("reason") == reasons.OTHER_THAN_FOUND

    await until(stopped, "the cluster that was found is another one")
    kept = await both.home.get(SECRETS, f"{name}-credentials", PEERS_NAMESPACE)
    assert kept["data"].keys() == {"invitation"}
    # The administrator has compared the digests, and corrects the one that was wrong.
    await both.home.patch(found, name, {"spec": {"discovered": {"caDigests": [digest]}}})

    async def right() -> bool:
        return (await condition(both.home, name, reasons.DISCOVERED)).get("status") == "True"

    await until(right, "the cluster is the one that was found")
    await both.run("peer", "delete", name, "--cluster", both.home_name, "--yes")
    await both.run("peer", "delete", finder, "--cluster", both.peer_name, "--yes")


async def test_an_invitation_connects_two_clusters_once(both: Peering, tmp_path: Path) -> None:
    """L14: home asks, the peer invites, home accepts; then neither this home nor another one can use the file."""
    asked = await both.call("peer", "request", "--cluster", both.home_name)
    (tmp_path / "request.yaml").write_text(asked.stdout)
    invitation = await invited(both, "-f", str(tmp_path / "request.yaml"))
    file = tmp_path / "invitation.json"
    file.write_text(document(invitation))
    assert invitation.spec.home_id
    await both.run("peer", "accept", "-f", str(file), "--cluster", both.home_name, "--accept", "cpu=2,pods=7")
    node = await both.home.get(PeerCluster.resource, both.peer_name)
    assert node["spec"]["host"]["accept"]["hard"] == {"cpu": "2", "memory": "16Gi", "pods": "7"}

    # The home has ended it before it was Ready, whenever the operator of the peer looks.
    assert await both.peer.find(BINDINGS, inviter_name(both.home_name), PEERS_NAMESPACE) is None
    early = await both.call("peer", "accept", "early", "-f", str(file), "--cluster", both.home_name)
    assert early.returncode != 0
    assert "spec.token is not valid" in early.stderr
    await both.run("peer", "delete", "early", "--cluster", both.home_name, "--yes")

    async def used() -> bool:
        found = await both.peer.get(PeerCluster.resource, both.home_name)
        return found["status"]["invitation"]["phase"] == "Used"

    await until(used, "the peer sees that the invitation is used")
    await both.peer.gone(SERVICE_ACCOUNTS, inviter_name(both.home_name), PEERS_NAMESPACE)
    secret = await both.home.get(SECRETS, f"{both.peer_name}-credentials", PEERS_NAMESPACE)
    assert set(secret["data"]) == {"token"}

    again = await both.call("peer", "accept", "-f", str(file), "--cluster", both.home_name)
    assert again.returncode != 0
    assert "this cluster has used it already" in again.stderr
    other = await both.call("peer", "accept", "other", "-f", str(file), "--cluster", both.home_name)
    assert other.returncode != 0
    assert "spec.token is not valid" in other.stderr
    refused = await condition(both.home, "other", reasons.READY)
    assert refused["reason"] == reasons.INVITATION_REFUSED
    await both.run("peer", "delete", "other", "--cluster", both.home_name, "--yes")

    there = await both.offload("shop")
    await both.home.create(PODS, placed("shop", "web"), "shop")
    await both.pod("web", "shop")
    assert await both.peer.find(PODS, "web", there) is not None


async def test_an_invitation_for_another_cluster_is_refused_at_home_and_by_the_operator(both: Peering) -> None:
    """L14: the file names the home, and YAML alone meets the same checks."""
    invitation = await invited(both, "third")
    wrong = msgspec.structs.replace(invitation.spec, home_id="00000000-0000-0000-0000-000000000000")
    text = document(msgspec.structs.replace(invitation, spec=wrong))
    file = both.folder / "foreign.yaml"
    file.write_text(text)
    refused = await both.call("peer", "accept", "-f", str(file), "--cluster", both.home_name)
    assert refused.returncode != 0
    assert "spec.homeId must be the id of this cluster" in refused.stderr
    await both.home.create(SECRETS, secret("foreign", text), PEERS_NAMESPACE)
    await both.home.create(PeerCluster.resource, host("foreign", invitation))

    async def told() -> Json | None:
        found = await condition(both.home, "foreign", reasons.STALLED)
        return found or None

    found = await until(told, "the operator refuses the invitation")
    assert found["reason"] == reasons.INVITATION_REFUSED
    assert "spec.homeId must be the id of this cluster" in found["message"]
    await both.home.delete(PeerCluster.resource, "foreign")
    await both.home.gone(PeerCluster.resource, "foreign")


async def test_yaml_alone_connects_two_clusters(both: Peering) -> None:
    """L14: the objects are applied, and a token of the account of the invitation is requested with kubectl."""
    invitation = await invited(both, "plain")
    await both.home.create(SECRETS, secret("plain", document(invitation)), PEERS_NAMESPACE)
    await both.home.create(PeerCluster.resource, host("plain", invitation))

    async def ready() -> bool:
        return (await condition(both.home, "plain", reasons.READY)).get("status") == "True"

    await until(ready, "the operator uses the invitation")
    # Either side alone: first the peer, then the home, which nothing answers any more.
    await both.run("peer", "delete", "plain", "--cluster", both.peer_name, "--yes")
    await both.run("peer", "delete", "plain", "--cluster", both.home_name, "--yes")
    assert await both.home.find(NODES, node_name("plain")) is None
    assert await both.home.find(SECRETS, "plain-credentials", PEERS_NAMESPACE) is None


async def test_the_account_of_an_invitation_may_only_use_it(both: Peering) -> None:
    """L14: a thief of the file gets the first token, and nothing else; once used, nothing at all."""
    invitation = await invited(both, "thief")
    ours = Connection(
        server=invitation.spec.server, source="a thief", ca=invitation.spec.ca.encode(), token=invitation.spec.token
    )
    account = inviter_name("thief")
    async with Client(ours) as client:
        writer, api = Writer(client), Api(client)
        for name in ("thief", account):
            with pytest.raises(Forbidden):
                await writer.send(request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, name, seconds=3600))
        with pytest.raises(Forbidden):
            await api.list(SECRETS, PEERS_NAMESPACE)
        with pytest.raises(Forbidden):
            await api.create(PODS, placed("peer-thief", "web"), "peer-thief")
        await writer.send(request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, renewer_name("thief"), seconds=3600))
        await api.delete(SECRETS, account, PEERS_NAMESPACE)

        async def dead() -> bool:
            try:
                await writer.send(request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, renewer_name("thief"), seconds=3600))
            except (Unauthorized, Forbidden):
                # The operator has deleted the Role, or the API server has found that the Secret is gone.
                return True
            return False

        await until(dead, "the API server accepts the token no more")


async def test_no_token_of_an_invitation_outlives_its_use(both: Peering) -> None:
    """L14: an administrator who requests it by hand must bind it, and for an hour at most."""
    await invited(both, "careful")
    account = inviter_name("careful")
    bound = (account, (await both.peer.get(SECRETS, account, PEERS_NAMESPACE))["metadata"]["uid"])
    writer = Writer(both.peer.client)
    with pytest.raises((Forbidden, Invalid), match="boundObjectRef must be the Secret"):
        await writer.send(request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, account, seconds=3600))
    with pytest.raises((Forbidden, Invalid), match="must be at most 3600"):
        await writer.send(request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, account, seconds=3601, secret=bound))


async def capacity(both: Peering) -> Json:
    """Return the capacity of the Node of the peer."""
    found = await both.home.find(NODES, node_name(both.peer_name))
    status: Json = (found or {}).get("status") or {}
    return status.get("capacity") or {}


async def test_capacity_falls_when_the_peer_offers_less_and_pods_stay(both: Peering) -> None:
    """L13: the Node has the least of offer and acceptance; a withdrawn offer leaves 0, and the pod that runs."""
    await both.connect()
    there = await both.offload("offers")
    await both.home.create(PODS, placed("offers", "web"), "offers")
    await both.pod("web", "offers")
    labels = {"topology.kubernetes.io/region": "eu-west", "kubernetes.io/hostname": "web"}
    less = {"offer": {"amounts": "Share", "percent": 10}, "labels": labels}
    await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": less}})

    async def fallen() -> bool:
        pods = (await capacity(both)).get("pods", "")
        return pods.isdigit() and 0 < int(pods) < int(QUOTA_PODS)

    await until(fallen, "the Node has a tenth of what is free at the peer", seen=lambda: less)

    async def proposed() -> bool:
        return (await both.home.get(PeerCluster.resource, both.peer_name))["status"].get("labels") == labels

    await until(proposed, "the home has read the labels")

    async def labelled() -> bool:
        node = await both.home.get(NODES, node_name(both.peer_name))
        return node["metadata"]["labels"].get("topology.kubernetes.io/region") == "eu-west"

    await until(labelled, "the Node has the label that is allowed")
    node = await both.home.get(NODES, node_name(both.peer_name))
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == node_name(both.peer_name)
    listed = await both.run("peer", "list", "--cluster", both.home_name)
    assert "eu-west" in listed

    await both.peer.patch(PeerCluster.resource, both.home_name, {"spec": {"guest": {"offer": {"amounts": "None"}}}})

    seen: Json = {}

    async def withdrawn() -> bool:
        seen["capacity"] = await capacity(both)
        return {seen["capacity"].get(key) for key in ("cpu", "memory", "pods")} == {"0"}

    await until(withdrawn, "nothing is offered any more", seen=lambda: seen)
    assert (await both.pod("web", "offers"))["spec"]["nodeName"] == node_name(both.peer_name)
    assert await both.peer.find(PODS, "web", there) is not None


async def test_a_peer_is_removed_now_in_spite_of_disruption_budgets(both: Peering) -> None:
    """L14: without --now, pods stay within their budgets first."""
    await both.connect()
    there = await both.offload("budget")
    await both.home.create(PODS, placed("budget", "web"), "budget")
    await both.pod("web", "budget")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await both.home.create(BUDGETS, {"metadata": {"name": "web"}, "spec": spec}, "budget")

    async def blocks() -> bool:
        found = await both.home.get(BUDGETS, "web", "budget")
        status: Json = found.get("status") or {}
        return status.get("currentHealthy") == 1 and status.get("disruptionsAllowed") == 0

    await until(blocks, "the budget admits no eviction")
    # The deadline is far below the minute after which budgets do not count any more.
    called = both.peer_name
    await both.run("peer", "delete", called, "--cluster", both.home_name, "--yes", "--now", "--timeout", "45s")
    assert await both.home.find(NODES, node_name(called)) is None
    await both.peer.gone(PODS, "web", there)
    await both.run("peer", "delete", both.home_name, "--cluster", called, "--yes")


async def test_a_home_reads_its_own_offer_and_no_other(both: Peering) -> None:
    """L13: nor can it change what is offered to it."""
    await invited(both, "reader")
    asked = request.token(SERVICE_ACCOUNTS, PEERS_NAMESPACE, "reader", seconds=3600)
    token = msgspec.json.decode(await Writer(both.peer.client).send(asked))["status"]["token"]
    ours = both.peer.client.connection
    async with Client(Connection(server=ours.server, source="the guest", ca=ours.ca, token=token)) as client:
        api = Api(client)
        assert (await api.get(CONFIG_MAPS, "reader-offer", PEERS_NAMESPACE))["data"]
        for name in ("other-offer", f"{both.home_name}-offer"):
            with pytest.raises(Forbidden):
                await api.get(CONFIG_MAPS, name, PEERS_NAMESPACE)
        with pytest.raises(Forbidden):
            await api.patch(CONFIG_MAPS, "reader-offer", {"data": {"offer": "{}"}}, PEERS_NAMESPACE)


async def test_contexts_whose_names_are_none_of_peers_are_connected_under_names_of_their_own(
    both: Peering, tmp_path: Path
) -> None:
    """L14: clouds and kubeadm name contexts as no Kubernetes object can be named."""
    contexts = {both.home_name: "kubernetes-admin@prod", both.peer_name: "arn:aws:eks:eu:1:cluster/Berlin=1"}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(_merged(both, contexts)))
    refused = await both.call("peer", "create", *contexts.values(), "--kubeconfig", str(file), "--quota", QUOTA)
    assert refused.returncode != 0
    assert "as in berlin=kubernetes-admin@prod" in refused.stderr
    sides = [f"{name}={context}" for name, context in contexts.items()]
    await both.run("peer", "create", *sides, "--kubeconfig", str(file), "--quota", QUOTA)
    assert (await condition(both.home, both.peer_name, reasons.READY))["status"] == "True"
    await both.run("peer", "delete", both.peer_name, "--cluster", both.home_name, "--yes")
    await both.run("peer", "delete", both.home_name, "--cluster", both.peer_name, "--yes")


def _merged(both: Peering, contexts: dict[str, str]) -> Json:
    """Return one kubeconfig with the contexts of both clusters under other names."""
    merged: Json = {"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []}
    for name, context in contexts.items():
        config: Json = yaml.safe_load(both.cluster(name).kubeconfig_path.read_text())
        for part, inner in (("clusters", "cluster"), ("users", "user")):
            merged[part].append({"name": name, inner: config[part][0][inner]})
        merged["contexts"].append({"name": context, "context": {"cluster": name, "user": name}})
    return merged
